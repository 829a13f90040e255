"""Heinsen's routing beyond the suite of all routings: absent children, large votes, parents that nobody chose."""

import pytest
import torch

from paircaps import CapsuleLayer, create_routing
from paircaps.losses import Loss
from paircaps.routing import HeinsenRouting
from paircaps.routing.heinsen import heinsen_routing
from paircaps.testing import random_votes

J = 3
BETAS = torch.full((J,), 0.125, dtype=torch.float64), torch.full((J,), 0.25, dtype=torch.float64)


def assert_alike(found, expected):
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)


def test_no_activations_are_children_that_are_certainly_there():
    votes, activation = random_votes(2, out_capsules=J)
    assert_alike(heinsen_routing(votes, None, *BETAS), heinsen_routing(votes, torch.ones_like(activation), *BETAS))


def test_a_child_that_is_not_there_has_no_say():
    votes, activation = random_votes(2, out_capsules=J)
    activation[:, 0] = 0
    routing = create_routing("heinsen", J).double()
    assert_alike(routing(votes, activation), routing(votes[:, 1:], activation[:, 1:]))
    activation[:, 0] = -3.0  # as FM agreement says of children whose own children disagree
    assert_alike(routing(votes, activation), routing(votes[:, 1:], activation[:, 1:]))


@pytest.mark.parametrize("unit", [1e3, 1e6, 1e9])
def test_large_votes_are_routed_as_those_of_the_largest_ordinary_size(unit):
    votes, activation = random_votes(2, out_capsules=J)
    votes = votes / votes.abs().amax(dim=(1, 2, 3), keepdim=True) * 1e4
    found, expected = (heinsen_routing(some, activation, *BETAS) for some in (unit * votes, votes))
    torch.testing.assert_close(found.s, unit * expected.s)
    torch.testing.assert_close(found.activation, expected.activation)


def test_a_parent_that_all_children_left_has_a_mean_and_a_gradient():
    """R underflows for it: its weights are a softmax of logarithms, not a quotient of zeros."""
    votes, activation = random_votes(2, out_capsules=J, pose_dim=16, dtype=torch.float32)
    votes = 1e-3 * votes
    votes[:, :, 0] = 1e3 * torch.arange(1.0, 6.0)[:, None]  # children differ about this parent alone
    votes.requires_grad_()
    routing = HeinsenRouting(J, iterations=2)
    assert routing.evidence(votes, activation).coupling[..., 0].max() == 0
    s = routing(votes, activation).s
    assert s[:, 0].min() >= 1e3
    assert torch.autograd.grad(s.sum(), votes)[0].isfinite().all()


def test_the_kind_of_activation_decides_the_loss():
    logit, probability = create_routing("heinsen", J, activation="logit"), create_routing("heinsen", J)
    assert [Loss().resolve(routing.bounded, 1) for routing in (logit, probability)] == ["cross-entropy", "margin"]
    votes, activation = random_votes(2, out_capsules=J, dtype=torch.float32)
    torch.testing.assert_close(logit(votes, activation).activation.sigmoid(), probability(votes, activation).activation)


def test_two_layers_are_those_of_the_publication():
    """The lower layer gives σ(a), and the upper layer takes it as f."""
    lower, upper = CapsuleLayer(6, 4, routing="heinsen"), CapsuleLayer(4, J, routing="heinsen")
    u = torch.randn(2, 6, 16)
    betas = lower.routing.beta_use, lower.routing.beta_ign
    logits = heinsen_routing(lower.norm(lower.votes(u)), None, *betas, output="logit")
    expected = upper(logits.s, logits.activation.sigmoid())
    assert_alike(upper(lower(u)), expected)


def test_options_are_named_where_they_are_wrong_and_shown():
    with pytest.raises(ValueError, match="activation must be one of 'probability', 'logit', got 'length'"):
        create_routing("heinsen", J, activation="length")
    assert "iterations=3, activation='probability'" in repr(create_routing("heinsen", J))
    with pytest.raises(ValueError, match="beta_ign"):
        heinsen_routing(torch.randn(2, 5, J, 4), None, torch.ones(J), torch.ones(4))
