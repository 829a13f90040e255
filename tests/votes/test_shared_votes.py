"""Vote matrices that all positions share: the same as a layer whose weight repeats them."""

import itertools

import pytest
import torch
from torch import nn
from votes.twins import everything

from paircaps import CapsuleLayer, list_routings
from paircaps.votes import MatrixVotes, VectorVotes
from paircaps.votes.transforms import create_transform

POSITIONS, KINDS, PARENTS = 6, 4, 5


def shared_layer(**options):
    return CapsuleLayer(POSITIONS * KINDS, PARENTS, **{"positions": POSITIONS, **options}).double()


def repeated(layer, **options):
    """A layer with matrices for every child, which are those of the shared ones, child by child."""
    other = CapsuleLayer(POSITIONS * KINDS, PARENTS, **options).double()
    state = layer.state_dict()
    weight = torch.stack([state["votes.weight"][child % KINDS] for child in range(POSITIONS * KINDS)])
    other.load_state_dict({**state, "votes.weight": weight})
    return other


def summed(found):
    """The gradient of repeated weights, summed over the positions that share them."""
    gradient = found["d votes.weight"]
    kinds = [sum(gradient[child] for child in range(kind, len(gradient), KINDS)) for kind in range(KINDS)]
    return {**found, "d votes.weight": torch.stack(kinds)}


def travelled(layer):
    if isinstance(layer.norm, nn.BatchNorm1d):
        for value in (layer.norm.weight, layer.norm.bias, layer.norm.running_mean):
            nn.init.normal_(value)
        nn.init.uniform_(layer.norm.running_var, 0.5, 2)
    return layer


def children(*leading):
    return torch.randn(*leading, POSITIONS * KINDS, 16, dtype=torch.float64)


@pytest.mark.parametrize("transform", ["matrix", "vector"])
def test_dense_votes_against_a_plain_loop(transform):
    layer = shared_layer(transform=transform)
    side = 4 if transform == "matrix" else 16
    assert layer.votes.weight.shape == (KINDS, PARENTS, side, side)
    u = children(3)
    votes = layer.votes(u)
    assert votes.shape == (3, POSITIONS * KINDS, PARENTS, 16)
    for position, kind, parent in itertools.product(range(POSITIONS), range(KINDS), range(PARENTS)):
        child = position * KINDS + kind
        matrix = layer.votes.weight[kind, parent]
        expected = (u[:, child].view(3, -1, side) @ matrix).flatten(1)
        torch.testing.assert_close(votes[:, child, parent], expected)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize("vote_norm", ["pose", "vote", None])
@pytest.mark.parametrize("transform", ["matrix", "vector"])
@pytest.mark.parametrize("routing", list_routings())
def test_shared_votes_are_those_of_a_repeated_weight(routing, transform, vote_norm, streaming, training):
    options = {"routing": routing, "transform": transform, "vote_norm": vote_norm}
    layer = travelled(shared_layer(**options, streaming=streaming)).train(training)
    plain = repeated(layer, **options, streaming=False).train(training)
    u = 1 + children(7)
    found, expected = everything(layer, u), summed(everything(plain, u))
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(
            found[name], value, rtol=1e-8, atol=1e-8, msg=lambda text, name=name: f"{name} {text}"
        )


@pytest.mark.parametrize("tile", [1, 5, 24])
def test_tiles_need_not_end_where_a_position_ends(tile):
    layer = travelled(shared_layer(streaming=True, tile=tile))
    plain, u = repeated(layer, streaming=False), children(7)
    found, expected = everything(layer, u), summed(everything(plain, u))
    for name in ("s", "pose", "activation", "d u", "d votes.weight"):
        torch.testing.assert_close(found[name], expected[name], rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("kind", [MatrixVotes, VectorVotes])
def test_one_position_is_a_matrix_for_every_child(kind):
    transform = kind(6, 3, 16, 16)
    assert transform.weights(6) is transform.weight
    assert len(transform.weight) == 6
    assert "shared" not in repr(transform)
    assert "shared by 3 positions" in repr(kind(6, 3, 16, 16, 3))


@pytest.mark.parametrize(("transform", "fans"), [("matrix", 64 * 10 * 8), ("vector", 64 * 16 + 64 * 10 * 16)])
def test_shared_weights_start_as_those_of_all_children_do(transform, fans):
    weight = CapsuleLayer(64, 10, transform=transform, positions=4).votes.weight
    assert len(weight) == 16
    assert weight.std().item() == pytest.approx((2 / fans) ** 0.5, rel=0.05)


@pytest.mark.parametrize("transform", ["matrix", "vector"])
@pytest.mark.parametrize(
    ("positions", "words"),
    [(5, "24 children do not lie at 5 positions"), (48, "24 children"), (0, "positions must be at least 1, got 0")],
)
def test_a_number_of_positions_that_does_not_divide_the_children_is_refused(transform, positions, words):
    for make in (
        lambda: create_transform(transform, 24, 3, 16, 16, positions),
        lambda: CapsuleLayer(24, 3, transform=transform, positions=positions),
    ):
        with pytest.raises(ValueError, match=words):
            make()
