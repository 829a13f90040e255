"""Shares of children add up to the activation of their parent, and are what the definitions say."""

import pytest
import torch
from reference.sized import sized_routing

import paircaps
from paircaps import CapsuleLayer, create_routing, functional, list_routings
from paircaps.errors import PaircapsError
from paircaps.routing import Routing
from paircaps.testing import random_inputs, random_votes

ROUTINGS = [
    ("fm", {}),
    ("fm", {"halve": False}),
    ("fm", {"normalize": False}),
    ("fm", {"activation": "squash"}),
    ("fm", {"activation": "squash", "halve": False, "normalize": False}),
    ("fm", {"softness": 2.0}),
    ("fm", {"weigh": "activation"}),
    ("fm", {"linear": 0.5}),
    ("fm", {"scale": 3.0}),
    ("fm", {"scale": 3.0, "weigh": "activation", "activation": "squash", "linear": 0.5}),
    ("fm", {"linear": 0.5, "weigh": "activation", "activation": "squash", "halve": False}),
    ("fm", {"weigh": "activation", "softness": 2.0, "learn_softness": True, "activation": "squash"}),
    ("dynamic", {}),
    ("dynamic", {"iterations": 1}),
    ("efficient", {}),
    ("efficient", {"prior": False}),
    ("em", {}),
    ("em", {"iterations": 1}),
    ("mean", {}),
    ("self", {}),
    ("sum", {}),
    ("heinsen", {}),
    ("heinsen", {"iterations": 1}),
    ("heinsen", {"activation": "logit", "beta_use": 0.75}),
    ("vb", {}),
    ("vb", {"iterations": 1}),
    ("attention", {}),
    ("attention", {"iterations": 1}),
    ("attention", {"iterations": 3, "activation": "probability"}),
]


@pytest.fixture(params=ROUTINGS, ids=str)
def routing(request):
    name, options = request.param
    return sized_routing(name, 4, children=7, pose_dim=9, **options).double().eval()


def votes_of(*leading):
    return random_votes(*leading, children=7, out_capsules=4, pose_dim=9)


def test_every_registered_routing_is_here():
    assert {name for name, _ in ROUTINGS} == set(list_routings())


@pytest.mark.parametrize("leading", [(), (3,), (2, 3)])
def test_shares_add_up_to_the_activation(routing, leading):
    inputs = random_inputs(routing, *leading, children=7, out_capsules=4, pose_dim=9)
    evidence = routing.evidence(*inputs)
    assert evidence.share.shape == (*leading, 7, 4)
    torch.testing.assert_close(evidence.share.sum(-2), routing(*inputs).activation)


def test_fm_shares_are_those_of_the_definition():
    votes, _ = votes_of(3)
    evidence = create_routing("fm", 4, normalize=False).double().evidence(votes)
    for i in range(7):
        others = sum(votes[:, k] for k in range(7) if k != i)
        torch.testing.assert_close(evidence.share[:, i], (votes[:, i] * others).sum(-1) / (2 * 7))


@pytest.mark.parametrize(
    "options", [options for name, options in ROUTINGS if name == "fm" and "linear" not in options], ids=str
)
def test_pairs_of_different_children_add_up_to_the_activation(options):
    votes, _ = votes_of(3)
    routing = create_routing("fm", 4, **options).double()
    parent = torch.tensor([2, 0, 3])
    pairs = routing.evidence(votes).pairs(parent)
    activation = routing(votes).activation[torch.arange(3), parent]
    torch.testing.assert_close(pairs.triu(1).sum((-2, -1)), activation)


@pytest.mark.parametrize("name", ["dynamic", "efficient", "mean", "sum"])
def test_pairs_and_each_child_with_itself_add_up_too(name):
    votes, _ = votes_of(3)
    routing, parent = sized_routing(name, 4, children=7), torch.tensor([1, 1, 0])
    pairs = routing.evidence(votes).pairs(parent)
    torch.testing.assert_close(pairs.sum((-2, -1)), routing(votes).activation[torch.arange(3), parent])


@pytest.mark.parametrize("name", ["attention", "dynamic", "em", "heinsen", "vb"])
@pytest.mark.parametrize("iterations", [1, 2, 4])
def test_coupling_divides_each_child_among_the_parents(name, iterations):
    votes, activation = votes_of(3)
    routing = sized_routing(name, 4, children=7, pose_dim=9, iterations=iterations).double()
    coupling = routing.evidence(votes, activation).coupling
    torch.testing.assert_close(coupling.sum(-1), torch.ones_like(activation))
    assert (coupling.var() > 1e-6) == (iterations > 1), "uniform at first, and no longer when votes were heard"


@pytest.mark.parametrize("iterations", [1, 3])
def test_none_of_the_above_is_a_parent_without_votes_that_nobody_sees(iterations):
    votes, activation = votes_of(3)
    routing = create_routing("dynamic", 4, iterations=iterations, none_of_the_above=True).double()
    silent = torch.cat([votes, torch.zeros_like(votes[..., :1, :])], -2)  # a fifth parent that nobody votes for
    for one, other in zip(routing(votes), functional.dynamic_routing(silent, iterations), strict=True):
        torch.testing.assert_close(one, other[:, :4])
    coupling = routing.evidence(votes, activation).coupling
    torch.testing.assert_close(coupling, functional.dynamic_coupling(silent, iterations)[..., :4])
    assert (coupling.sum(-1) < 1).all()


def test_parents_are_made_with_the_coupling_that_is_told():
    votes, activation = votes_of(3)
    c = functional.dynamic_coupling(votes, 3)
    v = functional.squash(torch.einsum("bij,bijk->bjk", c, votes))
    torch.testing.assert_close(v, functional.dynamic_routing(votes, 3).s)

    em = create_routing("em", 4).double()
    assigned = functional.em_coupling(votes, activation, em.beta_u, em.beta_a, 3) * activation[..., None]
    mu = torch.einsum("bij,bijk->bjk", assigned / assigned.sum(1, keepdim=True), votes)
    torch.testing.assert_close(mu, em(votes, activation).s)


@pytest.mark.parametrize("name", list_routings())
def test_evidence_is_finite_where_nothing_is_there(name):
    routing = sized_routing(name, 4, children=7, pose_dim=9)
    inputs = random_inputs(routing, 2, children=7, out_capsules=4, pose_dim=9, dtype=torch.float32)
    evidence = routing.evidence(*map(torch.zeros_like, inputs))
    assert all(part.isfinite().all() for part in evidence if part is not None)
    assert evidence.pairs(torch.tensor([0, 3])).isfinite().all()


@pytest.mark.parametrize("name", list_routings())
@pytest.mark.parametrize("streaming", ["auto", True, False])
def test_a_layer_tells_the_evidence_of_its_own_votes(name, streaming):
    layer = CapsuleLayer(7, 4, 16, routing=name, streaming=streaming).eval()
    below = layer(torch.randn(3, 7, 16))
    upper = CapsuleLayer(4, 5, 16, routing=name, streaming=streaming).eval()
    torch.testing.assert_close(upper.evidence(below).share.sum(-2), upper(below).activation)


def test_a_routing_that_does_not_say_is_refused_in_words():
    class Mute(Routing):
        def agree(self, votes, activation):
            return paircaps.functional.fm_agreement(votes)

    with pytest.raises(PaircapsError, match="Mute does not say what children contributed"):
        CapsuleLayer(7, 4, 16, routing=Mute).evidence(torch.randn(1, 7, 16))
    with pytest.raises(PaircapsError, match="Identity is no Routing"):
        CapsuleLayer(7, 4, 16, routing=torch.nn.Identity()).evidence(torch.randn(1, 7, 16))


def test_em_shares_go_by_what_was_assigned_of_active_children():
    votes, activation = votes_of(3)
    em = create_routing("em", 4).double()
    evidence = em.evidence(votes, activation)
    R = functional.em_coupling(votes, activation, em.beta_u, em.beta_a, 3)
    a_j = em(votes, activation).activation
    for i in range(7):
        part = R[:, i] * activation[:, i, None] / (R * activation[..., None]).sum(1)
        torch.testing.assert_close(evidence.share[:, i], a_j * part)
        torch.testing.assert_close(evidence.weighted[:, i], part[..., None] * votes[:, i])


def test_heinsen_shares_are_what_a_parent_gains_and_loses_by_each_child():
    votes, activation = votes_of(3)
    routing = create_routing("heinsen", 4, activation="logit", beta_use=2.0, beta_ign=0.5).double()
    evidence = routing.evidence(votes, activation)
    f = activation[..., None]
    used = f * evidence.coupling
    torch.testing.assert_close(evidence.share, 2.0 * used - 0.5 * (f - used))
    torch.testing.assert_close(evidence.weighted.sum(1), routing(votes, activation).s)
