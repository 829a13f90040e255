"""Self-attention routing beyond the suite of all routings: the prior, and what is read without it."""

import pytest
import torch
from reference import loops
from reference.sized import sized_routing
from torch import nn
from votes.twins import everything

from paircaps import CapsuleLayer, Capsules, functional, testing
from paircaps.routing.efficient import efficient_routing
from paircaps.votes import LazyVotes
from paircaps.votes.kernels import choice
from paircaps.votes.kernels.native import library_problem

J = 3


def test_a_prior_is_added_to_the_weight_of_each_vote():
    routing = sized_routing("efficient", J)
    nn.init.normal_(routing.prior)
    prior = routing.prior.double().tolist()

    def oracle(votes, _):
        parts = loops.efficient_routing(votes.tolist(), prior)
        return Capsules(*(torch.tensor(part, dtype=torch.float64) for part in parts))

    testing.assert_matches_oracle(routing, oracle, J)
    testing.assert_permutation_invariant(routing, J)


def test_without_a_prior_it_has_no_parameters_and_passes_the_checks():
    routing = sized_routing("efficient", J, prior=False)
    assert not list(routing.parameters())
    testing.check_routing(routing, J)
    for one, other in zip(routing(*inputs()), sized_routing("efficient", J)(*inputs()), strict=True):
        torch.testing.assert_close(one, other)  # the prior is zero at first


def inputs():
    return testing.random_votes(2, out_capsules=J, dtype=torch.float32)


def test_activations_of_the_children_are_not_read():
    votes, activation = inputs()
    routing = sized_routing("efficient", J)
    torch.testing.assert_close(routing(votes, 0 * activation).s, routing(votes).s, rtol=0, atol=0)


def test_children_turn_to_the_parent_for_whom_the_votes_agree():
    votes = torch.zeros(4, 2, 4)
    votes[:, 0], votes[:2, 1], votes[2:, 1] = 2, 2, -2  # all agree on the first parent, two against two on the second
    capsules = sized_routing("efficient", 2, children=4)(votes)
    assert capsules.activation[0] > 0.99
    assert capsules.activation[1] == 0


@pytest.mark.skipif(library_problem() is not None, reason="no kernel runs here")
@pytest.mark.parametrize("vote_norm", ["pose", None])
def test_without_a_prior_a_layer_walks_through_its_children(vote_norm, monkeypatch):
    options = {"routing": "efficient", "routing_options": {"prior": False}, "vote_norm": vote_norm}
    walks, plain = (CapsuleLayer(40, 5, **options, streaming=streaming) for streaming in (True, False))
    plain.load_state_dict(walks.state_dict())
    u = 0.2 * torch.randn(21, 40, 16)
    expected = everything(plain, u)
    monkeypatch.setattr(LazyVotes, "dense", None)
    monkeypatch.setattr(LazyVotes, "by_image", None)
    with choice.only("c"):
        found = everything(walks, u)
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-3, atol=1e-4, msg=lambda text, n=name: f"{n} {text}")


def test_evidence_is_of_the_votes_by_their_weights_with_the_prior():
    routing = sized_routing("efficient", J)
    nn.init.normal_(routing.prior)
    votes, _ = inputs()
    evidence = routing.evidence(votes)
    torch.testing.assert_close(evidence.coupling.sum(-1), 1 + routing.prior.detach().sum(-1).expand(2, -1))
    torch.testing.assert_close(evidence.weighted, evidence.coupling[..., None] * votes)
    torch.testing.assert_close(functional.squash_exponential(evidence.weighted.sum(-3)), routing(votes).s)


def test_children_that_share_their_matrices_share_their_priors():
    assert CapsuleLayer(40, 5, routing="efficient").routing.prior.shape == (40, 5)
    assert CapsuleLayer((4, 5, 2), 5, share="position", routing="efficient").routing.prior.shape == (2, 5)
    assert CapsuleLayer((4, 5, 2), 5, share="all", routing="efficient").routing.prior.shape == (1, 5)


def test_a_prior_of_another_shape_is_refused_in_words():
    with pytest.raises(ValueError, match=r"prior must have shape \(5, 3\), one value per child and parent .*\(4, 3\)"):
        efficient_routing(inputs()[0], torch.zeros(4, 3))
    assert "prior=False" in repr(sized_routing("efficient", J, prior=False))
