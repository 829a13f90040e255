"""Half precision: never worse than twice a plain float32 computation rounded to the same precision."""

import pytest
import torch
from reference import plain

from paircaps import functional
from paircaps.functional import Capsules
from paircaps.testing import random_votes

VOTES, ACTIVATION = random_votes(4, out_capsules=7, children=97, pose_dim=16, dtype=torch.float64)
BETA_U, BETA_A = torch.linspace(-1, 1, 7).double(), torch.linspace(-500, 500, 7).double()
PRESENT = torch.eye(7).double()[:4]
IMAGES = torch.rand(2, 4, 1, 9, 9, generator=torch.Generator().manual_seed(0)).double()

# each function, its plain twin, and their arguments
CASES = {
    "squash": (functional.squash, plain.squash, [VOTES]),
    "pairwise_agreement": (functional.pairwise_agreement, plain.pairwise_agreement, [VOTES]),
    "fm_agreement": (functional.fm_agreement, plain.fm_agreement, [VOTES]),
    "dynamic_routing": (functional.dynamic_routing, plain.dynamic_routing, [VOTES]),
    "em_routing": (functional.em_routing, plain.em_routing, [VOTES, ACTIVATION, BETA_U, BETA_A]),
    "margin_loss": (functional.margin_loss, plain.margin_loss, [ACTIVATION[:, :7], PRESENT]),
    "reconstruction_loss": (functional.reconstruction_loss, plain.reconstruction_loss, [*IMAGES]),
}


def values_and_gradients(function, arguments):
    """What it returns, and the gradient for each argument of the sum of all that."""
    leaves = [argument.detach().clone().requires_grad_() for argument in arguments]
    result = function(*leaves)
    parts = list(result) if isinstance(result, tuple) else [result]
    total = torch.stack([part.double().sum() for part in parts]).sum()
    return parts, list(torch.autograd.grad(total, leaves))


def error(actual, exact):
    return (actual.double() - exact).abs().max().item()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", CASES)
def test_half_precision_is_as_good_as_float32_rounded(name, dtype):
    ours, reference, arguments = CASES[name]
    arguments = [argument.to(dtype) for argument in arguments]
    exact = values_and_gradients(reference, [argument.double() for argument in arguments])
    rounded = values_and_gradients(reference, [argument.float() for argument in arguments])
    actual = values_and_gradients(ours, arguments)
    for kind in range(2):
        for one, other, truth in zip(actual[kind], rounded[kind], exact[kind], strict=True):
            assert one.dtype == dtype
            assert error(one, truth) <= 2 * error(other.to(dtype), truth)


@pytest.mark.parametrize("name", CASES)
def test_under_autocast_half_precision_arguments_are_computed_in_float32(name):
    ours, reference, arguments = CASES[name]
    arguments = [argument.bfloat16() for argument in arguments]
    exact = values_and_gradients(reference, [argument.double() for argument in arguments])
    in_float32 = values_and_gradients(reference, [argument.float() for argument in arguments])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        values, gradients = values_and_gradients(ours, arguments)
    for one, other, truth in zip(values, in_float32[0], exact[0], strict=True):
        assert one.dtype == torch.float32
        assert error(one, truth) <= max(2 * error(other, truth), 1e-6)
    for one, other, truth in zip(gradients, in_float32[1], exact[1], strict=True):
        assert error(one, truth) <= 2 * error(other.bfloat16(), truth)


@pytest.mark.parametrize("name", ["fm_agreement", "dynamic_routing", "em_routing"])
def test_autocast_does_not_touch_float32_arguments(name):
    ours, _, arguments = CASES[name]
    arguments = [argument.float() for argument in arguments]
    outside = ours(*arguments)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = ours(*arguments)
    for one, other in zip(inside, outside, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)


@pytest.mark.parametrize(("votes_of", "weight"), [("matrix_votes", (97, 7, 4, 4)), ("vector_votes", (97, 7, 16, 8))])
def test_half_precision_votes_are_as_good_as_float32_rounded(votes_of, weight):
    votes_of = getattr(functional, votes_of)
    u, w = torch.randn(4, 97, 16).bfloat16(), torch.randn(weight).bfloat16()
    exact = votes_of(u.double(), w.double())
    rounded = votes_of(u.float(), w.float()).bfloat16()
    assert error(votes_of(u, w), exact) <= 2 * error(rounded, exact)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        under_autocast = votes_of(u.float(), w.float())
    assert under_autocast.dtype == torch.bfloat16
    assert error(under_autocast, exact) <= 2 * error(rounded, exact)


def test_e5_in_bfloat16_survives_cancellation():
    # a thousand votes of +1 and −1 in turn: (Σû)² and Σû² are 0 and 1000, their running sums in bfloat16 are not
    votes = torch.ones(1000, 1, 4).bfloat16()
    votes[::2] = -1
    torch.testing.assert_close(functional.pairwise_agreement(votes), torch.full((1, 4), -0.5).bfloat16())


def test_arguments_by_keyword_are_widened_in_any_order():
    # the dtype was once taken from the keyword that was written first
    votes = VOTES.bfloat16()
    by_position, by_keyword = functional.fm_agreement(votes), functional.fm_agreement(halve=True, votes=votes)
    assert isinstance(by_keyword, Capsules)
    for one, other in zip(by_keyword, by_position, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'votes'"):
        functional.fm_agreement()
