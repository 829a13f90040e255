import pytest
import torch

from paircaps.layers.norms import CapsuleNorm


@pytest.mark.parametrize(("shape", "axes"), [((4,), (0, 1, 2)), ((5, 3, 4), (0,)), ((3, 4), (0, 1))])
def test_statistics_are_kept_for_the_trailing_axes(shape, axes):
    norm, x = CapsuleNorm(shape), 3 + 2 * torch.randn(8, 5, 3, 4)
    y = norm(x)
    mean, variance = x.mean(dim=axes), x.var(dim=axes, unbiased=False)
    torch.testing.assert_close(y, (x - mean) / (variance + 1e-3).sqrt(), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(norm.running_mean, 0.01 * mean.flatten(), rtol=1e-4, atol=1e-5)


def test_other_trailing_axes_are_refused():
    with pytest.raises(ValueError, match=r"\(\.\.\., 5, 4\).*\(8, 4, 5\)"):
        CapsuleNorm((5, 4))(torch.randn(8, 4, 5))


def test_a_single_image_is_refused_in_training_and_fine_afterwards():
    norm = CapsuleNorm((5, 4))
    with pytest.raises(ValueError, match=r"more than one image.*\(1, 5, 4\).*eval mode"):
        norm(torch.randn(1, 5, 4))
    assert norm.eval()(torch.randn(1, 5, 4)).shape == (1, 5, 4)
