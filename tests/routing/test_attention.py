"""Inverted dot-product attention beyond the suite of all routings: parameters, passes, and what it does not read."""

import pytest
import torch
from reference import loops

from paircaps import CapsuleLayer, create_routing
from paircaps.losses import Loss
from paircaps.testing import random_votes
from paircaps.votes import LazyVotes
from paircaps.votes.kernels.native import library_problem

J, K = 3, 4


def attention(**options):
    """The routing in float64 with parameters that are not those it begins with."""
    routing = create_routing("attention", J, pose_dim=K, **options).double()
    with torch.no_grad():
        for parameter in routing.parameters():
            parameter.uniform_(-2, 2)
    return routing


@pytest.mark.parametrize("iterations", [1, 2, 4])
def test_with_any_parameters_it_is_its_loop(iterations):
    routing = attention(iterations=iterations)
    votes, activation = random_votes(out_capsules=J)
    learned = routing.norm.weight, routing.norm.bias, routing.score.weight[0], routing.score.bias[0]
    pose, _, logit = loops.attention_routing(votes.tolist(), *(part.tolist() for part in learned), iterations)
    found = routing(votes, activation)
    torch.testing.assert_close(found.pose, torch.tensor(pose, dtype=torch.float64))
    torch.testing.assert_close(found.activation, torch.tensor(logit, dtype=torch.float64))


def test_activations_of_the_children_are_not_read():
    votes, activation = random_votes(2, out_capsules=J)
    routing = attention()
    assert torch.equal(routing(votes, activation).pose, routing(votes).pose)


@pytest.mark.skipif(library_problem() is not None, reason=f"no C kernel here: {library_problem()}")
@pytest.mark.parametrize("iterations", [1, 2, 3])
def test_a_layer_takes_it_without_votes(iterations, monkeypatch):
    torch.manual_seed(0)
    layer = CapsuleLayer(97, 7, routing="attention", routing_options={"iterations": iterations}, streaming=True)
    u = torch.randn(12, 97, 16)
    layer.streaming = False
    expected = layer(u)
    layer.load_state_dict(layer.state_dict())
    layer.streaming = True
    monkeypatch.setattr(LazyVotes, "dense", None)
    monkeypatch.setattr(LazyVotes, "by_image", None)
    for one, other in zip(layer(u), expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


def test_the_kind_of_activation_decides_the_loss():
    logit, probability = attention(), attention(activation="probability")
    probability.load_state_dict(logit.state_dict())
    assert [Loss().resolve(routing.bounded, 1) for routing in (logit, probability)] == ["cross-entropy", "margin"]
    votes, activation = random_votes(2, out_capsules=J)
    torch.testing.assert_close(logit(votes, activation).activation.sigmoid(), probability(votes, activation).activation)


@pytest.mark.parametrize("activation", ["logit", "probability"])
def test_a_child_that_casts_no_votes_has_no_share(activation):
    votes, _ = random_votes(2, out_capsules=J)
    votes[:, 1] = 0
    routing = attention(activation=activation)
    share = routing.evidence(votes).share
    assert (share[:, 1] == 0).all()
    torch.testing.assert_close(share.sum(1), routing(votes).activation)


def test_what_it_cannot_take_is_refused_in_words():
    with pytest.raises(ValueError, match=r"pose_dim must be at least 2 for attention.* got 1"):
        create_routing("attention", J, pose_dim=1)
    with pytest.raises(ValueError, match="activation must be one of 'logit', 'probability', got 'length'"):
        create_routing("attention", J, pose_dim=K, activation="length")
    with pytest.raises(TypeError, match=r"give pose_dim=\.\.\.; a CapsuleLayer gives them itself"):
        create_routing("attention", J)
    assert "iterations=2, activation='logit'" in repr(attention())
