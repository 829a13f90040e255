"""GELU of the fast networks: that of PyTorch up to rounding, in the memory format of its input."""

import pytest
import torch
import torch.nn.functional as F

from paircaps.models.fast import GELU, gelu

ROUNDING = {torch.float32: 3e-6, torch.bfloat16: 2**-7, torch.float64: 1e-14}


@pytest.mark.parametrize("layout", [torch.channels_last, torch.contiguous_format])
@pytest.mark.parametrize("dtype", ROUNDING, ids=str)
@pytest.mark.parametrize("shape", [(3, 5, 4, 6), (2, 1, 3, 3), (4, 7, 1, 1)], ids=str)
def test_the_same_values_and_gradients_in_the_same_layout(shape, dtype, layout):
    images = (3 * torch.randn(shape)).to(dtype).contiguous(memory_format=layout)
    ours, theirs = (images.clone().requires_grad_() for _ in range(2))
    direction = torch.randn(shape).to(dtype).contiguous(memory_format=layout)
    output, expected = GELU()(ours), F.gelu(theirs)
    output.backward(direction)
    expected.backward(direction)
    for one, other in ((output, expected), (ours.grad, theirs.grad)):
        torch.testing.assert_close(one, other, rtol=ROUNDING[dtype], atol=ROUNDING[dtype])
        assert one.is_contiguous(memory_format=layout)


def test_other_tensors_are_taken_too():
    empty, strided = torch.randn(0, 3, 2, 2), torch.randn(2, 8, 4, 4)[:, ::2, ::2]
    for images in (torch.randn(3, 4), torch.randn(2, 3, 4), empty, strided):
        torch.testing.assert_close(gelu(images), F.gelu(images))


def test_half_precision_is_rounded_as_well_as_by_pytorch():
    images = (2 * torch.randn(8, 16, 8, 8)).bfloat16().contiguous(memory_format=torch.channels_last)
    exact = F.gelu(images.double())
    ours, theirs = ((gelu(images).double() - exact).abs(), (F.gelu(images).double() - exact).abs())
    assert ours.mean() < 1.01 * theirs.mean()
