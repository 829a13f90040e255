"""Convolutional capsule layers: a loop over windows, streaming without them, any grid, any routing."""

import itertools

import pytest
import torch
from torch import nn
from votes.twins import everything

from paircaps import Capsules, ConvCapsuleLayer, functional, list_routings
from paircaps.errors import PaircapsError
from paircaps.votes import Windows, grid_sums

KINDS, PARENTS = 3, 5

WINDOWS = [(3, 1, 0), (3, 2, 1), (2, 1, 1), (1, 1, 0), (3, 3, 2), (5, 2, 2)]
"""Side, stride and padding."""


def conv_layer(window=(3, 1, 0), **options):
    torch.manual_seed(1)
    layer = ConvCapsuleLayer(KINDS, PARENTS, *window, **options).double()
    if isinstance(layer.norm, nn.BatchNorm1d):
        for value in (layer.norm.weight, layer.norm.bias, layer.norm.running_mean):
            nn.init.normal_(value)
        nn.init.uniform_(layer.norm.running_var, 0.5, 2)
    for name in layer.routing.child_parameters:
        nn.init.normal_(layer.routing.get_parameter(name))
    return layer


def grid(*leading, height=6, width=7):
    return 1 + torch.randn(*leading, height, width, KINDS, 16, dtype=torch.float64)


def windows_by_loop(layer, u, activation):
    """Votes (B, H', W', I, J, K), activations (B, H', W', I) and children of every window, one by one; zero outside."""
    side, stride, padding = layer.windows.side, layer.windows.stride, layer.windows.padding
    batch, height, width = u.shape[:3]
    rows, columns = ((size + 2 * padding - side) // stride + 1 for size in (height, width))
    votes = torch.zeros(batch, rows, columns, side * side * KINDS, PARENTS, 16, dtype=torch.float64)
    active = torch.zeros(votes.shape[:4], dtype=torch.float64)
    children = torch.zeros(*votes.shape[:4], 16, dtype=torch.float64)
    for y, x, dy, dx, kind in itertools.product(*map(range, (rows, columns, side, side, KINDS))):
        row, column, number = y * stride + dy - padding, x * stride + dx - padding, (dy * side + dx) * KINDS + kind
        if 0 <= row < height and 0 <= column < width:
            child, matrices = u[:, row, column, kind], layer.votes.weight[number]
            cast = [(child.view(batch, -1, matrices.shape[1]) @ matrix).flatten(1) for matrix in matrices]
            votes[:, y, x, number] = torch.stack(cast, 1)
            active[:, y, x, number], children[:, y, x, number] = activation[:, row, column, kind], child
    return votes, active, children


@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("transform", ["matrix", "vector"])
@pytest.mark.parametrize("routing", list_routings())
def test_every_parent_hears_the_children_in_its_window(routing, transform, window, streaming):
    layer = conv_layer(window, routing=routing, transform=transform, vote_norm=None, streaming=streaming)
    u, activation = grid(2), torch.rand(2, 6, 7, KINDS, dtype=torch.float64)
    expected = layer.routing(*windows_by_loop(layer, u, activation))
    for one, other in zip(layer(u, activation), expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)
    assert layer(u).s.shape == (2, *layer.out_size((6, 7)), PARENTS, 16)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("vote_norm", ["pose", "vote", None])
@pytest.mark.parametrize("transform", ["matrix", "vector"])
@pytest.mark.parametrize(
    ("routing", "options"),
    [
        ("fm", {}),
        ("fm", {"weigh": "activation", "softness": 0.5, "learn_softness": True}),
        ("dynamic", {"iterations": 1}),
        ("dynamic", {}),
        ("em", {}),
    ],
    ids=str,
)
def test_streaming_windows_is_the_plain_path(routing, options, transform, vote_norm, window, training, monkeypatch):
    monkeypatch.setattr(grid_sums, "COLUMNS", 10)  # several passes
    u, activation = grid(2), torch.rand(2, 6, 7, KINDS, dtype=torch.float64)
    found = []
    for streaming in (True, False):
        form = {"routing": routing, "transform": transform, "vote_norm": vote_norm}
        layer = conv_layer(window, **form, routing_options=options, streaming=streaming).train(training)
        x = activation.clone().requires_grad_()
        found.append(everything(lambda u, layer=layer, x=x: layer(Capsules(u, u, x)), u, layer))
        of_activation = torch.autograd.grad(layer(u, x).activation.square().sum(), x, allow_unused=True)[0]
        found[-1]["d activation"] = torch.zeros_like(x) if of_activation is None else of_activation
    for name, value in found[1].items():
        torch.testing.assert_close(found[0][name], value, rtol=1e-7, atol=1e-8, msg=lambda text, n=name: f"{n} {text}")


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("options", [{}, {"softness": 0.5, "learn_softness": True, "weigh": "activation"}], ids=str)
@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("vote_norm", ["pose", "vote", None])
def test_windows_in_float32_are_near_the_plain_path_in_float64(vote_norm, window, options, monkeypatch):
    monkeypatch.setattr(grid_sums, "COLUMNS", 40)  # several passes
    form = {"transform": "vector" if window[1] == 2 else "matrix", "vote_norm": vote_norm, "routing_options": options}
    plain, layer = conv_layer(window, **form, streaming=False), conv_layer(window, **form, streaming=True).float()
    u, x = grid(5), torch.rand(5, 6, 7, KINDS, dtype=torch.float64)
    found = everything(lambda u: layer(u, x.float()), u.float(), layer)
    for name, value in everything(lambda u: plain(u, x), u, plain).items():
        error = (found[name] - value).abs().max()
        assert error <= 1e-4 * value.abs().max(), f"{name} is off by {error:g}"


@pytest.mark.parametrize("vote_norm", ["pose", "vote"])
@pytest.mark.parametrize("streaming", [True, False])
def test_statistics_are_those_of_all_votes_for_all_places(streaming, vote_norm):
    """Votes at the border that fall into fewer windows count as much as others, and padding does not count."""
    layer = ConvCapsuleLayer(KINDS, PARENTS, 3, 2, 1, vote_norm=vote_norm, streaming=streaming).double()
    u = grid(4)
    places = layer.votes.weight.unflatten(0, (9, KINDS))
    votes = torch.einsum("byxipq,oijqr->byxoijpr", u.unflatten(-1, (4, 4)), places).flatten(-2)
    over = (0, 1, 2, 3, 4, 5) if vote_norm == "pose" else (0, 1, 2)
    layer(u)
    assert layer.norm.running_mean.shape == ((16,) if vote_norm == "pose" else (9 * KINDS * PARENTS * 16,))
    torch.testing.assert_close(layer.norm.running_mean, 0.1 * votes.mean(over).flatten())
    torch.testing.assert_close(layer.norm.running_var, 0.9 + 0.1 * votes.var(over).flatten())


def test_capsules_move_with_the_picture():
    layer = ConvCapsuleLayer(KINDS, PARENTS, 3).double().eval()
    u = grid(2, height=9, width=9)
    moved = u.roll((2, 1), (1, 2))
    one, other = layer(u).s, layer(moved).s
    torch.testing.assert_close(other[:, 2:, 1:], one[:, :-2, :-1])


def test_layers_chain_over_grids_of_any_size_and_any_leading_axes():
    layers = nn.Sequential(ConvCapsuleLayer(3, 4, stride=2), ConvCapsuleLayer(4, 2, 2)).double()
    for height, width in ((6, 7), (9, 5)):
        u = torch.randn(2, 5, height, width, 3, 16, dtype=torch.float64)
        rows, columns = ((size - 3) // 2 for size in (height, width))
        assert layers(u).s.shape == (2, 5, rows, columns, 2, 16)
    layers.eval()
    torch.testing.assert_close(layers(u).s[1, 4], layers(u[1, 4]).s)


@pytest.mark.parametrize("weigh", [None, "activation"])
def test_nobody_votes_outside_the_grid(weigh):
    """Batch norm would shift even the vote of nobody."""
    layer = conv_layer((3, 1, 1), routing_options={"weigh": weigh})
    u, activation = grid(2), torch.rand(2, 6, 7, KINDS, dtype=torch.float64)
    votes = layer._lazy_votes(u, activation)[0].dense()
    assert (votes[:, 0, :, : 3 * KINDS] == 0).all()
    assert (votes[:, 1:-1, 1:-1] != 0).all()


@pytest.mark.parametrize("routing", list_routings())
def test_shares_between_two_grids_add_up_to_the_activations(routing):
    layer = conv_layer((3, 2, 1), routing=routing).eval()
    u = grid(2)
    evidence, capsules = layer.evidence(u), layer(u)
    assert evidence.share.shape == (2, 6 * 7 * KINDS, 3 * 4 * PARENTS)
    torch.testing.assert_close(evidence.share.sum(1), capsules.activation.flatten(1))
    # a parent hears its window alone: that in row 1, column 1 has the children of rows 1 to 3 and columns 1 to 3
    heard = evidence.share.unflatten(2, (3, 4, PARENTS))[:, :, 1, 1].abs().sum((0, 2)).view(6, 7, KINDS) > 0
    assert heard[1:4, 1:4].all()
    assert heard.sum() == 9 * KINDS


def test_gradients_are_those_of_finite_differences():
    layer = conv_layer((2, 2, 1), routing_options={"weigh": "activation", "softness": 0.5}, streaming=True)
    u = torch.randn(2, 3, 2, KINDS, 16, dtype=torch.float64, requires_grad=True)
    activation = (0.1 + torch.rand(2, 3, 2, KINDS, dtype=torch.float64)).requires_grad_()
    assert torch.autograd.gradcheck(lambda u, x: layer(u, x).s, (u, activation), fast_mode=True)


@pytest.mark.parametrize(("streaming", "backend"), [(True, "inductor"), (True, "aot_eager"), (False, "aot_eager")])
@pytest.mark.usefixtures("fresh_compiler")
def test_a_compiled_layer_is_the_layer(streaming, backend):
    layer = conv_layer((3, 1, 1), streaming=streaming).float()
    u = grid(3).float()
    found = everything(torch.compile(layer, backend=backend), u, layer)
    layer.norm.reset_running_stats()
    expected = everything(layer, u)
    for name in ("s", "activation", "d u", "d votes.weight"):
        torch.testing.assert_close(found[name], expected[name], rtol=1e-3, atol=1e-4)


def test_an_exported_layer_is_the_layer():
    layer = conv_layer((3, 2, 1)).eval()
    u = grid(3)
    batch = torch.export.Dim("batch", min=2)
    program = torch.export.export(layer, (u,), dynamic_shapes=({0: batch},))
    more = grid(5)
    torch.testing.assert_close(program.module()(more).s, layer(more).s)


def test_half_precision_and_autocast_stay_close():
    layer = conv_layer((3, 1, 1)).float().eval()
    u = grid(8, height=8, width=8).float()
    with torch.autocast("cpu", torch.bfloat16):
        close = layer(u)
    assert close.s.dtype == torch.float32
    torch.testing.assert_close(close.s, layer(u).s, rtol=0.1, atol=0.1)
    half = layer.bfloat16()(u.bfloat16())
    assert half.s.dtype == torch.bfloat16


def test_a_routing_that_does_not_explain_says_so():
    class Mean(nn.Module):
        def forward(self, votes, activation=None):
            s = votes.mean(-3)
            return Capsules(s, s, s.norm(dim=-1))

    layer = ConvCapsuleLayer(KINDS, PARENTS, routing=Mean())
    assert layer(grid(2).float()).s.shape == (2, 4, 5, PARENTS, 16)
    with pytest.raises(PaircapsError, match="Mean is no Routing"):
        layer.evidence(grid(2).float())


def test_windows_gather_what_unfold_gathers():
    values = torch.randn(2, 6, 7, 3)
    gathered = Windows(3, 2, 1).gather(values)
    unfolded = nn.functional.unfold(values.movedim(-1, 1), 3, padding=1, stride=2)  # (B, kinds·9, windows)
    torch.testing.assert_close(gathered.flatten(1, 2), unfolded.unflatten(1, (3, 9)).permute(0, 3, 2, 1).flatten(2))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: ConvCapsuleLayer(0, 5), "in_kinds must be at least 1, got 0"),
        (lambda: ConvCapsuleLayer(3, 5, 0), "kernel_size must be at least 1, got 0"),
        (lambda: ConvCapsuleLayer(3, 5, 3, 0), "stride must be at least 1, got 0"),
        (lambda: ConvCapsuleLayer(3, 5, 3, 1, -1), "padding must be at least 0, got -1"),
        (lambda: ConvCapsuleLayer(3, 5, 3, 1, 3), "padding must be smaller than kernel_size=3.*got 3"),
        (lambda: ConvCapsuleLayer(3, 5, streaming="yes"), "'auto', True, False, got 'yes'"),
        (lambda: ConvCapsuleLayer(3, 5, tile=4, streaming=False), "tile=4 is for streaming"),
        (lambda: ConvCapsuleLayer(3, 5)(torch.randn(2, 2, 6, 3, 16)), "grid of 2×6 capsules is too small .* 3×3"),
        (lambda: ConvCapsuleLayer(3, 5)(torch.randn(2, 6, 6, 4, 16)), r"3 kinds of child capsules of 16.*6, 4, 16\)"),
        (lambda: ConvCapsuleLayer(3, 5)(torch.randn(6, 3, 16)), "too few"),
        (lambda: conv_layer()(grid(2), torch.ones(2, 6, 7)), r"\(2, 6, 7, 3\).*\(2, 6, 7\)"),
        (lambda: conv_layer()(functional.Capsules(*[grid(2)] * 3), torch.ones(2)), "given twice"),
    ],
)
def test_errors_say_what_was_wrong(call, words):
    with pytest.raises(ValueError, match=words):
        call()
