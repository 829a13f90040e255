"""Vote matrices that all positions share: the same as a layer whose weight repeats them."""

import itertools

import pytest
import torch
from reference import loops
from torch import nn
from votes.twins import everything

from paircaps import CapsuleLayer, Capsules, list_routings
from paircaps.votes import MatrixVotes, VectorVotes, grid_sums

GRID, KINDS, PARENTS = (2, 3), 4, 5
POSITIONS = GRID[0] * GRID[1]


def shared_layer(**options):
    return CapsuleLayer((*GRID, KINDS), PARENTS, **{"share": "position", **options}).double()


def of_each_child(layer):
    """Names of the values that a layer has for each child with matrices of its own."""
    return ["votes.weight", *(f"routing.{name}" for name in layer.routing.child_parameters)]


def repeated(layer, **options):
    """A layer with matrices for every child, which are those of the shared ones, child by child."""
    other = CapsuleLayer((*GRID, KINDS), PARENTS, **options).double()
    state = layer.state_dict()
    children = range(POSITIONS * KINDS)
    own = {
        name: torch.stack([state[name][child % len(state[name])] for child in children])
        for name in of_each_child(layer)
    }
    other.load_state_dict({**state, **own})
    return other


def summed(found, layer):
    """Gradients of repeated values, summed over the children that share them in a layer."""
    sharers = len(layer.votes.weight)
    shared = {f"d {name}": found[f"d {name}"].unflatten(0, (-1, sharers)).sum(0) for name in of_each_child(layer)}
    return {**found, **shared}


def travelled(layer):
    if isinstance(layer.norm, nn.BatchNorm1d):
        for value in (layer.norm.weight, layer.norm.bias, layer.norm.running_mean):
            nn.init.normal_(value)
        nn.init.uniform_(layer.norm.running_var, 0.5, 2)
    for name in layer.routing.child_parameters:
        nn.init.normal_(layer.routing.get_parameter(name))
    return layer


def children(*leading):
    return torch.randn(*leading, *GRID, KINDS, 16, dtype=torch.float64)


@pytest.mark.parametrize("transform", ["matrix", "vector"])
def test_dense_votes_against_a_plain_loop(transform):
    layer = shared_layer(transform=transform)
    side = 4 if transform == "matrix" else 16
    assert layer.votes.weight.shape == (KINDS, PARENTS, side, side)
    u = children(3).flatten(1, 3)
    votes = layer.votes(u)
    assert votes.shape == (3, POSITIONS * KINDS, PARENTS, 16)
    for position, kind, parent in itertools.product(range(POSITIONS), range(KINDS), range(PARENTS)):
        child = position * KINDS + kind
        matrix = layer.votes.weight[kind, parent]
        expected = (u[:, child].view(3, -1, side) @ matrix).flatten(1)
        torch.testing.assert_close(votes[:, child, parent], expected)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize("vote_norm", ["pose", None])
@pytest.mark.parametrize("transform", ["matrix", "vector"])
@pytest.mark.parametrize("routing", list_routings())
def test_shared_votes_are_those_of_a_repeated_weight(routing, transform, vote_norm, streaming, training):
    options = {"routing": routing, "transform": transform, "vote_norm": vote_norm}
    layer = travelled(shared_layer(**options, streaming=streaming)).train(training)
    plain = repeated(layer, **options, streaming=False).train(training)
    u = 1 + children(7)
    found, expected = everything(layer, u), summed(everything(plain, u), layer)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(
            found[name], value, rtol=1e-8, atol=1e-8, msg=lambda text, name=name: f"{name} {text}"
        )


@pytest.mark.parametrize("tile", [1, 5, 24])
def test_tiles_need_not_end_where_a_position_ends(tile):
    layer = travelled(shared_layer(streaming=True, tile=tile))
    plain, u = repeated(layer, streaming=False), children(7)
    found, expected = everything(layer, u), summed(everything(plain, u), layer)
    for name in ("s", "pose", "activation", "d u", "d votes.weight"):
        torch.testing.assert_close(found[name], expected[name], rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize("transform", ["matrix", "vector"])
def test_a_norm_of_each_vote_has_statistics_of_each_kind_over_all_positions(transform, streaming):
    layer = shared_layer(transform=transform, vote_norm="vote", streaming=streaming)
    assert layer.norm.shape == (KINDS, PARENTS, 16)
    u = 1 + children(7)
    votes = layer.votes(u.flatten(1, 3)).unflatten(1, (POSITIONS, KINDS))
    mean, variance = votes.mean((0, 1)), votes.var((0, 1), correction=0)
    votes = ((votes - mean) / (variance + 1e-3).sqrt()).flatten(1, 2)
    torch.testing.assert_close(layer(u).s, layer.routing(votes).s, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(layer.norm.running_mean, 0.1 * mean.flatten(), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("routing", list_routings())
@pytest.mark.parametrize("streaming", [True, False])
def test_votes_that_are_shared_are_cast_from_any_grid(streaming, routing):
    layer = shared_layer(routing=routing, streaming=streaming, coordinates="add").eval()
    u = torch.randn(9, 5, 7, KINDS, 16, dtype=torch.float64)
    assert layer(u).s.shape == (9, PARENTS, 16)
    # without coordinates, where a child lies does not matter
    layer = shared_layer(routing=routing, streaming=streaming).eval()
    torch.testing.assert_close(layer(u).s, layer(u.transpose(1, 2).flip(1)).s)


@pytest.mark.parametrize("kind", [MatrixVotes, VectorVotes])
def test_only_shared_matrices_say_so(kind):
    assert "shared" not in repr(kind(6, 3, 16, 16))
    assert "shared by all positions" in repr(kind(6, 3, 16, 16, 3))


@pytest.mark.parametrize(("transform", "fans"), [("matrix", 64 * 10 * 8), ("vector", 64 * 16 + 64 * 10 * 16)])
def test_shared_weights_start_as_those_of_all_children_do(transform, fans):
    weight = CapsuleLayer((2, 2, 16), 10, transform=transform, share="position").votes.weight
    assert len(weight) == 16
    assert weight.std().item() == pytest.approx((2 / fans) ** 0.5, rel=0.05)


# --- coordinates ------------------------------------------------------------------------------------------------------


def coordinates(height, width):
    """Row and column of every position, from 0 to 4: the middles of equal parts."""
    return [[(4 * (y + 0.5) / height, 4 * (x + 0.5) / width) for x in range(width)] for y in range(height)]


@pytest.mark.parametrize("vote_norm", ["pose", None])
@pytest.mark.parametrize(("transform", "entries"), [("matrix", (3, 7)), ("vector", (0, 1))])
def test_coordinates_are_added_to_two_entries_of_every_normalised_vote(transform, entries, vote_norm):
    plain = travelled(shared_layer(transform=transform, vote_norm=vote_norm)).eval()
    layer = shared_layer(transform=transform, vote_norm=vote_norm, coordinates="add", streaming=False).eval()
    layer.load_state_dict(plain.state_dict())  # there is nothing more to save
    u = children(3)
    votes = plain.norm(plain.votes(u.flatten(1, 3))).unflatten(1, (*GRID, KINDS))
    for (y, row), (x, _) in itertools.product(enumerate(coordinates(*GRID)), enumerate(coordinates(*GRID)[0])):
        for entry, value in zip(entries, row[x], strict=True):
            votes[:, y, x, :, :, entry] += value
    torch.testing.assert_close(layer(u).s, layer.routing(votes.flatten(1, 3)).s)


@pytest.mark.parametrize("transform", ["matrix", "vector"])
def test_learned_coordinates_start_as_none_and_are_learned(transform):
    torch.manual_seed(0)
    layer = shared_layer(transform=transform, coordinates="learned")
    plain = shared_layer(transform=transform)
    plain.votes.weight.data.copy_(layer.votes.weight)
    u = children(3)
    torch.testing.assert_close(layer(u).s, plain(u).s)
    layer(u).activation[:, 0].sum().backward()
    assert layer.votes.coordinate_weight.grad.abs().max() > 0


@pytest.mark.parametrize("mode", ["add", "learned"])
@pytest.mark.parametrize("vote_norm", ["pose", "vote", None])
@pytest.mark.parametrize("transform", ["matrix", "vector"])
@pytest.mark.parametrize(
    ("routing", "options"),
    [
        ("fm", {}),
        ("fm", {"softness": 0.5, "learn_softness": True}),
        ("fm", {"weigh": "activation"}),
        ("fm", {"weigh": "activation", "softness": 2.0, "learn_softness": True}),
        ("fm", {"weigh": "activation", "normalize": False}),
        ("dynamic", {}),
        ("dynamic", {"iterations": 1}),
        ("em", {}),
    ],
    ids=str,
)
def test_streaming_a_grid_is_the_plain_path(routing, options, transform, vote_norm, mode, monkeypatch):
    monkeypatch.setattr(grid_sums, "COLUMNS", 16)  # several passes
    found = []
    u, activation = 1 + children(7), torch.rand(7, *GRID, KINDS, dtype=torch.float64)
    for streaming in (True, False):
        torch.manual_seed(1)
        form = {"routing": routing, "transform": transform, "vote_norm": vote_norm, "coordinates": mode}
        layer = travelled(shared_layer(**form, routing_options=options, streaming=streaming))
        if mode == "learned":
            nn.init.normal_(layer.votes.coordinate_weight)
        x = activation.clone().requires_grad_()
        found.append(everything(lambda u, layer=layer, x=x: layer(u, x), u, layer))
        if "weigh" in options:
            found[-1]["d activation"] = torch.autograd.grad(layer(u, x).activation.square().sum(), x)[0]
    for name, value in found[1].items():
        torch.testing.assert_close(found[0][name], value, rtol=1e-8, atol=1e-8, msg=lambda text, n=name: f"{n} {text}")


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("options", [{}, {"softness": 0.5, "learn_softness": True, "weigh": "activation"}], ids=str)
@pytest.mark.parametrize("mode", ["add", "learned", None])
@pytest.mark.parametrize("vote_norm", ["pose", "vote", None])
@pytest.mark.parametrize("transform", ["matrix", "vector"])
def test_a_grid_in_float32_is_near_the_plain_path_in_float64(transform, vote_norm, mode, options, monkeypatch):
    monkeypatch.setattr(grid_sums, "COLUMNS", 40)  # several passes
    plain = travelled(
        shared_layer(
            transform=transform, vote_norm=vote_norm, coordinates=mode, routing_options=options, streaming=False
        )
    )
    layer = CapsuleLayer(
        (*GRID, KINDS),
        PARENTS,
        share="position",
        transform=transform,
        vote_norm=vote_norm,
        coordinates=mode,
        routing_options=options,
        streaming=True,
    )
    layer.load_state_dict(plain.state_dict())
    u, x = 1 + children(21), torch.rand(21, *GRID, KINDS, dtype=torch.float64)
    found = everything(lambda u: layer(u, x.float()), u.float(), layer)
    for name, value in everything(lambda u: plain(u, x), u, plain).items():
        error = (found[name] - value).abs().max()
        assert error <= 1e-4 * value.abs().max(), f"{name} is off by {error:g}"


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: CapsuleLayer(24, 3, share="position"), r"in_capsules=\(height, width, kinds\), got 24"),
        (lambda: CapsuleLayer((2, 3), 3), r"\(height, width, kinds\), got \(2, 3\)"),
        (lambda: CapsuleLayer((2, 0, 4), 3), r"in_capsules\[1\] must be at least 1, got 0"),
        (lambda: CapsuleLayer((2, 3, 4), 3, share="kind"), "share must be one of 'position', 'all', None, got 'kind'"),
        (lambda: CapsuleLayer((2, 3, 4), 3, coordinates="add"), "coordinates='add' needs share=\"position\""),
        (
            lambda: CapsuleLayer(24, 3, share="all", coordinates="add"),
            "coordinates='add' needs children on a grid, got",
        ),
        (lambda: CapsuleLayer(0, 3, share="all"), "in_capsules must be at least 1, got 0"),
        (
            lambda: CapsuleLayer(24, 3, share="all")(torch.randn(2, 23, 16)),
            r"24 child capsules of 16, .* \(2, 23, 16\)",
        ),
        (lambda: shared_layer(coordinates="polar"), "'add', 'learned', None, got 'polar'"),
        (lambda: shared_layer(pose_dim=1, coordinates="add"), "two entries, got pose_dim=1"),
        (lambda: shared_layer()(torch.randn(2, 24, 16).double()), r"height, width, kinds, in_dim\), got \(2, 24, 16\)"),
        (lambda: shared_layer()(torch.randn(2, 2, 3, 5, 16).double()), r"\(2, 2, 3, 5, 16\)"),
        (lambda: shared_layer()(torch.randn(2, 0, 3, 4, 16).double()), r"\(2, 0, 3, 4, 16\)"),
        (lambda: shared_layer()(children(2), torch.ones(2, 24)), r"\(2, 2, 3, 4\).*\(2, 24\)"),
        (
            lambda: CapsuleLayer((2, 3, 4), 3)(torch.randn(2, 3, 2, 4, 16)),
            r"24 child capsules of 16, .*\(..., 2, 3, 4, 16\), got",
        ),
    ],
)
def test_what_is_no_grid_is_refused(call, words):
    with pytest.raises(ValueError, match=words):
        call()


# --- one matrix for each parent, shared by all children ---------------------------------------------------------------


def layer_of_one_matrix(on_grid=True, **options):
    sizes = (*GRID, KINDS) if on_grid else POSITIONS * KINDS
    return CapsuleLayer(sizes, PARENTS, **{"share": "all", **options}).double()


@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize("on_grid", [True, False])
@pytest.mark.parametrize("transform", ["matrix", "vector"])
def test_one_matrix_for_all_children_against_a_plain_loop(transform, on_grid, streaming):
    layer = layer_of_one_matrix(on_grid, transform=transform, vote_norm=None, streaming=streaming)
    side = 4 if transform == "matrix" else 16
    assert layer.votes.weight.shape == (1, PARENTS, side, side)
    u = children(3)
    found = layer(u if on_grid else u.flatten(1, 3))
    vote_of = loops.matrix_vote if transform == "matrix" else loops.vector_vote
    matrices = layer.votes.weight[0].tolist()
    for image, row in enumerate(u.flatten(1, 3).tolist()):
        expected = loops.fm_agreement([[vote_of(child, matrix) for matrix in matrices] for child in row])
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one[image], torch.tensor(other, dtype=torch.float64))


@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize("on_grid", [True, False])
@pytest.mark.parametrize("vote_norm", ["pose", None])
@pytest.mark.parametrize("routing", list_routings())
def test_one_matrix_is_a_weight_that_every_child_repeats(routing, vote_norm, on_grid, streaming, monkeypatch):
    monkeypatch.setattr(grid_sums, "COLUMNS", 40)  # several passes
    options = {"routing": routing, "vote_norm": vote_norm}
    layer = travelled(layer_of_one_matrix(on_grid, **options, streaming=streaming))
    plain = repeated(layer, **options, streaming=False)
    u, x = 1 + children(7), torch.rand(7, *GRID, KINDS, dtype=torch.float64)
    found = everything(lambda u: layer(u, x) if on_grid else layer(u.flatten(1, 3), x.flatten(1)), u, layer)
    expected = summed(everything(lambda u: plain(u, x), u, plain), layer)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(
            found[name], value, rtol=1e-8, atol=1e-8, msg=lambda text, name=name: f"{name} {text}"
        )


@pytest.mark.parametrize("streaming", [True, False])
def test_a_norm_of_each_vote_has_statistics_of_each_parent_over_all_children(streaming):
    layer = layer_of_one_matrix(vote_norm="vote", streaming=streaming)
    assert layer.norm.shape == (1, PARENTS, 16)
    u = 1 + children(7)
    votes = layer.votes(u.flatten(1, 3))
    mean, variance = votes.mean((0, 1)), votes.var((0, 1), correction=0)
    expected = layer.routing((votes - mean) / (variance + 1e-3).sqrt())
    torch.testing.assert_close(layer(u).s, expected.s, rtol=1e-8, atol=1e-8)


def test_one_matrix_knows_no_place_and_no_kind_but_by_coordinates():
    u = torch.randn(3, 4, 5, KINDS, 16, dtype=torch.float64)
    shuffled = u.flip(1, 3).transpose(1, 2)
    plain, placed = layer_of_one_matrix().eval(), layer_of_one_matrix(coordinates="add").eval()
    torch.testing.assert_close(plain(shuffled).s, plain(u).s)
    assert not torch.allclose(placed(shuffled).s, placed(u).s)
    assert "shared by all children" in repr(plain)
    assert "shared by all positions" not in repr(plain)


def test_evidence_of_children_with_one_matrix_adds_up():
    layer, u = layer_of_one_matrix().eval(), children(3)
    torch.testing.assert_close(layer.evidence(u).share.sum(-2), layer(u).activation)


# --- grids of children that have matrices of their own ----------------------------------------------------------------


def test_a_grid_is_folded_by_the_layer_above_it():
    torch.manual_seed(0)
    flat, grid = CapsuleLayer(24, 3), CapsuleLayer((2, 3, 4), 3)
    grid.load_state_dict(flat.state_dict())
    u, activation = torch.randn(5, 2, 3, 4, 16), torch.rand(5, 2, 3, 4)
    expected = flat(u.flatten(1, 3), activation.flatten(1))
    torch.testing.assert_close(grid(u.flatten(1, 3), activation.flatten(1)).s, expected.s)  # or in one row already
    for layer in (flat, grid):
        for one, other in zip(layer(Capsules(u, u, activation)), expected, strict=True):
            torch.testing.assert_close(one, other)


def test_a_grid_of_one_position_is_folded_if_the_layer_expects_a_grid():
    """As a row of children, its height and width would be free axes in front."""
    u = torch.randn(5, 1, 1, 4, 16)
    assert CapsuleLayer((1, 1, 4), 3)(u).s.shape == (5, 3, 16)
    assert CapsuleLayer(4, 3)(u).s.shape == (5, 1, 1, 3, 16)
