"""Batch norm over several processes, in a group of one process, where it must equal PyTorch's batch norm."""

import copy

import pytest
import torch
import torch.distributed as dist
from torch import nn

from paircaps import CapsuleLayer
from paircaps.layers.norms import CapsuleNorm
from paircaps.training.distributed import Processes, SyncedNorm, synchronise_norms


@pytest.fixture
def group(tmp_path):
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("group")
@pytest.mark.parametrize(
    ("norm", "shape"),
    [
        (nn.BatchNorm2d(3, eps=1e-3, momentum=0.01), (5, 3, 4, 4)),
        (nn.BatchNorm1d(6), (7, 6)),
        (nn.BatchNorm1d(3, affine=False), (7, 3, 5)),
        (CapsuleNorm((4,)), (5, 6, 2, 4)),
        (CapsuleNorm((2, 4)), (5, 2, 4)),
    ],
)
def test_it_is_batch_norm(norm, shape):
    with torch.no_grad():
        for parameter in norm.parameters():
            parameter.uniform_(0.5, 2)
    synced = SyncedNorm(copy.deepcopy(norm))
    x = (3 + 2 * torch.randn(shape)).requires_grad_()
    y = x.detach().clone().requires_grad_()
    for _ in range(2):
        expected, found = norm(x), synced(y)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    for output in (expected, found):
        output.pow(3).sum().backward()
    torch.testing.assert_close(y.grad, x.grad, rtol=1e-3, atol=1e-4)
    for one, other in zip(synced.parameters(), norm.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-4, atol=1e-4)
    for name, value in norm.state_dict().items():
        torch.testing.assert_close(synced.state_dict()[name], value, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(synced.eval()(y), norm.eval()(x), rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("group")
@pytest.mark.parametrize("vote_norm", ["pose", "vote"])
def test_folded_into_the_votes_it_is_the_same(vote_norm):
    layers = [CapsuleLayer(6, 3, vote_norm=vote_norm, streaming=streaming).double() for streaming in (True, False)]
    layers[1].load_state_dict(layers[0].state_dict())
    synchronise_norms(layers[0])
    assert isinstance(layers[0].norm, SyncedNorm)
    u = torch.randn(5, 6, 16, dtype=torch.float64)
    for layer in layers:
        layer(u).activation.square().sum().backward()
    for one, other in zip(*(layer.parameters() for layer in layers), strict=True):
        torch.testing.assert_close(one.grad, other.grad)
    for one, other in zip(*(layer.buffers() for layer in layers), strict=True):
        torch.testing.assert_close(one, other)
    torch.testing.assert_close(*(layer.eval()(u).s for layer in layers))


def test_all_norms_of_a_module_change_and_no_name_does():
    module = nn.Sequential(nn.BatchNorm2d(3), nn.Sequential(CapsuleNorm((4,)), nn.ReLU()))
    names = list(module.state_dict())
    synchronise_norms(module)
    assert list(module.state_dict()) == names
    assert sum(isinstance(part, SyncedNorm) for part in module.modules()) == 2


@pytest.mark.usefixtures("group")
@pytest.mark.filterwarnings("ignore:.broadcast_buffers. is deprecated:FutureWarning")
def test_a_parameter_without_a_gradient_stops_no_training():
    class Partly(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.unused = nn.Linear(3, 2), nn.Linear(3, 2)

        def forward(self, x):
            return self.used(x)

    module = Partly()
    wrapped = Processes(world_size=2).wrap(module, torch.device("cpu"))
    for _ in range(2):  # the second step is where PyTorch would complain of the first
        wrapped(torch.ones(4, 3)).sum().backward()
    assert module.used.weight.grad is not None
    assert module.unused.weight.grad is None


def test_one_process_by_itself():
    alone = Processes()
    assert alone.first
    assert alone.sum([1, 2.5]) == [1.0, 2.5]
    assert alone.share(b"abc") == b"abc"
    with alone.first_only() as first:
        assert first
    module = nn.Linear(1, 1)
    assert alone.wrap(module, torch.device("cpu")) is module
