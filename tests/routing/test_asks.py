"""What a routing may ask its layer for: sizes, and the child capsules."""

import itertools
from functools import partial

import pytest
import torch
from torch import nn
from votes.twins import everything

from paircaps import CapsuleLayer, Capsules, ConvCapsuleLayer, Routing, create_routing, testing
from paircaps.errors import PaircapsError
from paircaps.routing import Evidence, VoteNeeds, at_every_position, layer_sizes

J, KINDS, GRID = 3, 2, (3, 4)


class Gated(Routing):
    """Votes weighted by a gate that reads the child, with weights for each child, and scaled for each dimension."""

    layer_sizes = ("in_capsules", "in_dim", "pose_dim")
    reads_children = True
    child_parameters = ("gate",)

    def __init__(self, out_capsules, *, in_capsules, in_dim, pose_dim, sharpness=1.0):
        super().__init__(out_capsules, in_capsules=in_capsules, in_dim=in_dim, pose_dim=pose_dim)
        self.sharpness = sharpness
        self.gate = nn.Parameter(torch.randn(in_capsules, in_dim))
        self.scale = nn.Parameter(torch.randn(pose_dim))

    @property
    def needs(self):
        return VoteNeeds.IMAGES

    def weighted(self, votes, activation, children):
        weight = torch.sigmoid(self.sharpness * (children * at_every_position(self.gate, votes.shape[-3])).sum(-1))
        return votes * (weight if activation is None else weight * activation)[..., None, None] * self.scale

    def agree(self, votes, activation, children):
        s = self.weighted(votes, activation, children).sum(-3) / votes.shape[-3]
        return Capsules(s, s, s.sum(-1))

    def evidence(self, votes, activation, children):
        weighted = self.weighted(votes, activation, children) / votes.shape[-3]
        return Evidence(weighted.sum(-1), None, weighted, torch.ones_like(weighted[..., 0, :, :]))


def gated(children=5, **options):
    return Gated(J, in_capsules=children, in_dim=6, pose_dim=4, **options)


def own_matrices(**options):
    return CapsuleLayer(5, J, pose_dim=4, in_dim=6, transform="vector", routing=Gated, **options).double()


def shared_matrices(**options):
    sizes = {"pose_dim": 4, "in_dim": 6, "transform": "vector", "share": "position", "coordinates": "add"}
    return CapsuleLayer((*GRID, KINDS), J, **sizes, routing=Gated, **options).double()


def windows(**options):
    return ConvCapsuleLayer(KINDS, J, 3, 2, 1, 4, 6, transform="vector", routing=Gated, **options).double()


LAYERS = {"own matrices": own_matrices, "shared matrices": shared_matrices, "windows": windows}


def children_of(layer, *leading, dtype=torch.float64):
    grid = (5,) if getattr(layer, "grid", GRID) is None else (*GRID, KINDS)
    return torch.randn(*leading, *grid, 6, dtype=dtype)


# --- sizes -----------------------------------------------------------------------------------------------------------


def test_a_layer_gives_the_sizes_that_a_routing_asks_for():
    sizes = [
        (layer().routing.in_capsules, layer().routing.in_dim, layer().routing.pose_dim) for layer in LAYERS.values()
    ]
    assert sizes == [(5, 6, 4), (KINDS, 6, 4), (9 * KINDS, 6, 4)]


def test_options_come_beside_the_sizes():
    assert own_matrices(routing_options={"sharpness": 2.0}).routing.sharpness == 2
    layer = CapsuleLayer(5, J, pose_dim=4, in_dim=6, transform="vector", routing=partial(Gated, sharpness=3.0))
    assert (layer.routing.sharpness, layer.routing.in_capsules) == (3, 5)


def test_a_routing_made_alone_takes_them_as_options():
    routing = create_routing(Gated, J, in_capsules=5, in_dim=6, pose_dim=4, sharpness=2.0)
    assert routing.gate.shape == (5, 6)
    assert CapsuleLayer(5, J, pose_dim=4, in_dim=6, transform="vector", routing=routing).routing is routing
    assert layer_sizes(Gated) == layer_sizes(partial(Gated, sharpness=1)) == ("in_capsules", "in_dim", "pose_dim")
    assert layer_sizes("fm") == layer_sizes(lambda out_capsules: None) == ()


class Asking(Gated):
    layer_sizes = ("height",)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: create_routing(Gated, J, in_dim=6), TypeError, r"give in_capsules=\.\.\., pose_dim=\.\.\.; a"),
        (lambda: create_routing(Gated, J, in_capsules=0, in_dim=6, pose_dim=4), ValueError, "in_capsules must be at"),
        (
            lambda: create_routing(Gated, J, in_capsules=5, in_dim=6, pose_dim=4, blunt=1),
            TypeError,
            "no option 'blunt'; it takes sharpness",
        ),
        (lambda: own_matrices(routing_options={"in_dim": 3}), ValueError, "in_dim cannot be chosen, the layer gives"),
        (lambda: create_routing(Asking, J), ValueError, "layer_sizes .* 'in_capsules', 'in_dim', 'pose_dim', got 'hei"),
        (
            lambda: CapsuleLayer(4, J, pose_dim=4, in_dim=6, transform="vector", routing=gated()),
            ValueError,
            "a layer of in_capsules=4 got a routing built for 5",
        ),
        (lambda: gated()(torch.ones(2, 5, J, 4)), ValueError, r"Gated reads the child capsules: call routing\("),
        (
            lambda: gated()(torch.ones(2, 5, J, 4), None, torch.ones(2, 5, 7)),
            ValueError,
            r"children must have shape \(2, 5, 6\), one capsule per child .* got \(2, 5, 7\)",
        ),
        (
            lambda: gated()(torch.ones(2, 7, J, 4), None, torch.ones(2, 7, 6)),
            ValueError,
            r"built for 5 children at each position, got votes of 7: shape \(2, 7, 3, 4\)",
        ),
        (
            lambda: gated()(torch.ones(2, 5, J, 9), None, torch.ones(2, 5, 6)),
            ValueError,
            "built for poses of 4, got votes of 9",
        ),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_in_words(call, error, words):
    with pytest.raises(error, match=words):
        call()


# --- children --------------------------------------------------------------------------------------------------------


def test_the_shipped_checks_hand_children_to_a_routing_that_reads_them():
    testing.check_routing(gated(), J)
    testing.check_routing(gated(children=1), J)


def test_they_notice_rows_that_do_not_go_with_their_child():
    class Forgetful(Gated):
        child_parameters = ()

    with pytest.raises(AssertionError, match="make other parents"):
        testing.check_routing(Forgetful(J, in_capsules=5, in_dim=6, pose_dim=4), J)


def test_they_notice_a_child_whose_gradient_is_wrong():
    class Deaf(Gated):
        def agree(self, votes, activation, children):
            return super().agree(votes, activation, children.detach())

    with pytest.raises(AssertionError, match="differ from finite differences"):
        testing.assert_gradients(Deaf(J, in_capsules=5, in_dim=6, pose_dim=4), J)


@pytest.mark.parametrize("activation", [True, False])
def test_with_matrices_of_their_own_it_gets_the_children_as_they_are(activation):
    layer = own_matrices(vote_norm=None)
    u = children_of(layer, 4)
    x = torch.rand(4, 5, dtype=torch.float64) if activation else None
    torch.testing.assert_close(layer(u, x).s, layer.routing(layer.votes(u), x, u).s)


def test_on_a_grid_it_gets_them_without_their_coordinates_and_rows_repeat_over_positions():
    layer = shared_matrices(vote_norm=None)
    u = children_of(layer, 4)
    gates = torch.einsum("byxkd,kd->byxk", u, layer.routing.gate).sigmoid()
    votes = torch.einsum("byxkd,kjdf->byxkjf", u, layer.votes.weight)
    row, column = ((torch.arange(side) + 0.5) / side * 4 for side in GRID)
    votes[..., 0] += row[:, None, None, None]
    votes[..., 1] += column[:, None, None]
    expected = (gates[..., None, None] * votes).mean((1, 2, 3)) * layer.routing.scale
    torch.testing.assert_close(layer(u).s, expected)


def test_a_window_has_its_own_children_and_nobody_outside_of_the_grid():
    layer = windows(vote_norm=None)
    u = children_of(layer, 4)
    gate, weight = layer.routing.gate.view(3, 3, KINDS, 6), layer.votes.weight.view(3, 3, KINDS, J, 6, 4)
    found = layer(u).s
    assert found.shape == (4, 2, 2, J, 4)
    for y, x in itertools.product(range(2), range(2)):
        total = torch.zeros(4, J, 4, dtype=torch.float64)
        for dy, dx, kind in itertools.product(range(3), range(3), range(KINDS)):
            row, column = 2 * y + dy - 1, 2 * x + dx - 1
            if 0 <= row < GRID[0] and 0 <= column < GRID[1]:
                child = u[:, row, column, kind]
                vote = torch.einsum("bd,jdf->bjf", child, weight[dy, dx, kind])
                total += torch.sigmoid(child @ gate[dy, dx, kind])[:, None, None] * vote
        torch.testing.assert_close(found[:, y, x], total / (9 * KINDS) * layer.routing.scale)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", LAYERS)
def test_a_few_images_at_a_time_is_all_at_once(name, training, monkeypatch):
    monkeypatch.setattr("paircaps.votes.layout.IMAGE_BYTES", 1)  # one image at a time
    found = []
    for streaming in (True, False):
        torch.manual_seed(0)
        layer = LAYERS[name](streaming=streaming).train(training)
        torch.manual_seed(1)
        found.append(everything(layer, children_of(layer, 9)))
    for key, value in found[1].items():
        torch.testing.assert_close(
            found[0][key], value, rtol=1e-9, atol=1e-9, msg=lambda text, key=key: f"{key} {text}"
        )


@pytest.mark.parametrize("name", LAYERS)
def test_shares_of_a_layer_add_up(name):
    layer = LAYERS[name]().eval()
    u = children_of(layer, 2)
    torch.testing.assert_close(layer.evidence(u).share.sum(-2), layer(u).activation.flatten(1))


@pytest.mark.parametrize("name", LAYERS)
def test_exported_and_compiled_it_is_the_layer(name):
    torch.compiler.reset()
    layer = LAYERS[name]().eval()
    u = children_of(layer, 3)
    program = torch.export.export(layer, (u,), dynamic_shapes=({0: torch.export.Dim("batch", min=2)},))
    more = children_of(layer, 5)
    torch.testing.assert_close(program.module()(more).s, layer(more).s)
    torch.testing.assert_close(torch.compile(layer, fullgraph=True, backend="aot_eager")(u).s, layer(u).s)


@pytest.mark.parametrize("name", LAYERS)
def test_half_precision_and_autocast(name):
    layer = LAYERS[name]().float()
    u = children_of(layer, 9, dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        assert layer(u).s.isfinite().all()
    assert layer.bfloat16()(u.bfloat16()).s.isfinite().all()


def test_sums_have_no_children_so_dense_votes_are_given():
    class Summing(Gated):
        needs = VoteNeeds.TOTAL

        def agree_on_total(self, total, children):
            raise AssertionError("sums were given")

    layer = CapsuleLayer(5, J, pose_dim=4, in_dim=6, transform="vector", routing=Summing)
    assert layer(children_of(layer, 40, dtype=torch.float32)).s.shape == (40, J, 4)


def test_without_evidence_it_says_so():
    class Mute(Gated):
        evidence = Routing.evidence

    layer = CapsuleLayer(5, J, pose_dim=4, in_dim=6, transform="vector", routing=Mute)
    with pytest.raises(PaircapsError, match="Mute does not say what children contributed"):
        layer.evidence(children_of(layer, 2, dtype=torch.float32))
