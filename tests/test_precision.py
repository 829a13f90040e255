"""Half precision: never worse than twice a plain float32 computation rounded to the same precision."""

import pytest
import torch

from paircaps import create_routing, functional, list_routings
from paircaps.functional import Capsules
from paircaps.testing import random_votes

SHAPE = {"out_capsules": 7, "children": 97, "pose_dim": 16}


def outputs_and_gradients(routing, votes, activation):
    votes, activation = votes.detach().requires_grad_(), activation.detach().requires_grad_()
    capsules = routing(votes, activation)
    loss = sum(part.float().sum() for part in capsules)
    gradients = torch.autograd.grad(loss, [votes, activation], allow_unused=True)
    return [*capsules, *(gradient for gradient in gradients if gradient is not None)]


def largest_error(actual, exact):
    return (actual.double() - exact).abs().max().item()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", list_routings())
def test_half_precision_is_as_good_as_float32_rounded(name, dtype):
    votes, activation = random_votes(4, dtype=dtype, **SHAPE)
    routing = create_routing(name, 7)
    exact = outputs_and_gradients(routing.double(), votes.double(), activation.double())
    plain = outputs_and_gradients(routing.float(), votes.float(), activation.float())
    ours = outputs_and_gradients(routing.to(dtype), votes, activation)
    for one, reference, truth in zip(ours, plain, exact, strict=True):
        assert one.dtype == dtype
        rounded = reference.to(dtype)
        assert largest_error(one, truth) <= 2 * largest_error(rounded, truth)


@pytest.mark.parametrize("name", list_routings())
def test_autocast_leaves_the_routing_in_float32(name):
    votes, activation = random_votes(4, dtype=torch.bfloat16, **SHAPE)
    routing = create_routing(name, 7)
    plain = routing(votes.float(), activation.float())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        ours = routing(votes, activation)
    for one, reference in zip(ours, plain, strict=True):
        torch.testing.assert_close(one, reference, rtol=0, atol=0)  # float32 too: assert_close compares dtypes


@pytest.mark.parametrize(("votes_of", "weight"), [("matrix_votes", (97, 7, 4, 4)), ("vector_votes", (97, 7, 16, 8))])
def test_half_precision_votes_are_as_good_as_float32_rounded(votes_of, weight):
    votes_of = getattr(functional, votes_of)
    u, w = torch.randn(4, 97, 16).bfloat16(), torch.randn(weight).bfloat16()
    exact = votes_of(u.double(), w.double())
    rounded = votes_of(u.float(), w.float()).bfloat16()
    assert largest_error(votes_of(u, w), exact) <= 2 * largest_error(rounded, exact)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        under_autocast = votes_of(u.float(), w.float())
    assert under_autocast.dtype == torch.bfloat16
    assert largest_error(under_autocast, exact) <= 2 * largest_error(rounded, exact)


def test_squash_and_losses_keep_their_dtype():
    x = torch.randn(3, 8).bfloat16()
    assert functional.squash(x).dtype == torch.bfloat16
    assert functional.margin_loss(x, torch.tensor([0, 1, 2])).dtype == torch.bfloat16
    image = torch.rand(2, 1, 3, 3).bfloat16()
    assert functional.reconstruction_loss(image, image).dtype == torch.bfloat16


def test_e5_in_bfloat16_survives_cancellation():
    # a thousand votes of +1 and −1 in turn: (Σû)² and Σû² are 0 and 1000, their running sums in bfloat16 are not
    votes = torch.ones(1000, 1, 4).bfloat16()
    votes[::2] = -1
    torch.testing.assert_close(functional.pairwise_agreement(votes), torch.full((1, 4), -0.5).bfloat16())


def test_named_tuple_survives_the_cast():
    votes, _ = random_votes(4, dtype=torch.bfloat16, **SHAPE)
    assert isinstance(functional.fm_agreement(votes), Capsules)
    assert isinstance(functional.dynamic_routing(votes=votes), Capsules)
