import torch
from torch import nn

from paircaps.bench.memory import bytes_for_backward


def test_what_is_kept_is_counted_once_and_weights_are_not():
    layer = nn.Linear(100, 50, bias=False)
    x = torch.randn(10, 100)
    assert bytes_for_backward(lambda: layer(x).sum(), layer) == x.numel() * 4
    assert bytes_for_backward(lambda: (layer(x) + layer(x)).sum(), layer) == x.numel() * 4
    y = torch.randn(10, 50)
    assert bytes_for_backward(lambda: (layer(x) * y).sum(), layer) == (x.numel() + y.numel()) * 4


def test_what_is_freed_at_once_is_not_counted():
    layer = nn.Linear(100, 50, bias=False)
    assert bytes_for_backward(lambda: layer(torch.randn(10, 100) + 1).sum(), layer) == 10 * 100 * 4
