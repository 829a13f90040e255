"""The layer whose children are kinds with their maps: loops over kinds, positions and places; its joint softmax."""

import itertools

import pytest
import torch

from paircaps import Capsules, DynamicRouting, Routing, functional, list_routings
from paircaps.layers import MapCapsuleLayer

KINDS, PARENTS, K_IN, K = 3, 2, 4, 6
HEIGHT, WIDTH = 4, 5


def map_layer(**options):
    torch.manual_seed(1)
    return MapCapsuleLayer(KINDS, (HEIGHT, WIDTH), PARENTS, pose_dim=K, in_dim=K_IN, **options).double()


def grid(*leading):
    return torch.randn(*leading, HEIGHT, WIDTH, KINDS, K_IN, dtype=torch.float64)


def votes_by_loop(layer, u):
    """Votes (B, I, H, W, J, K) of every kind for every kind at every position, place by place in the 3×3 window."""
    votes = torch.zeros(len(u), KINDS, HEIGHT, WIDTH, PARENTS, K, dtype=u.dtype)
    kernel = layer.votes.weight.view(PARENTS, K, K_IN, 3, 3)
    for kind, y, x, dy, dx in itertools.product(range(KINDS), range(HEIGHT), range(WIDTH), range(3), range(3)):
        row, column = y + dy - 1, x + dx - 1
        if 0 <= row < HEIGHT and 0 <= column < WIDTH:
            votes[:, kind, y, x] += torch.einsum("jkc,bc->bjk", kernel[..., dy, dx], u[:, row, column, kind])
    return votes


@pytest.mark.parametrize("routing", list_routings())
def test_every_kind_votes_with_its_map_for_all_kinds_at_all_positions(routing):
    layer, u = map_layer(routing=routing), grid(2)
    activation = torch.rand(u.shape[:-1], dtype=torch.float64)
    votes = votes_by_loop(layer, u).flatten(2, 4)
    inputs = [votes, activation.mean((1, 2))]
    if layer.routing.reads_children:
        inputs.append(u.permute(0, 3, 4, 1, 2).flatten(2))
    expected = layer.routing(*inputs)
    capsules = layer(u, activation)
    assert capsules.pose.shape == capsules.s.shape == (2, HEIGHT, WIDTH, PARENTS, K)
    for one, other in zip(capsules, expected, strict=True):
        torch.testing.assert_close(one.flatten(1, 3), other)
    for one, other in zip(layer(Capsules(u, u, activation)), capsules, strict=True):
        assert torch.equal(one, other)
    assert layer.votes_shape(u) == votes.shape


def test_a_kind_is_divided_among_kinds_and_positions_together():
    layer, u = map_layer(routing_options={"iterations": 2}), grid(1)
    votes = votes_by_loop(layer, u)[0]  # (I, H, W, J, K)
    first = functional.squash(votes.sum(0) / (HEIGHT * WIDTH * PARENTS))
    logits = (votes * first).sum(-1)  # (I, H, W, J)
    coupling = logits.exp() / logits.exp().sum((1, 2, 3), keepdim=True)
    expected = functional.squash((coupling.unsqueeze(-1) * votes).sum(0))
    torch.testing.assert_close(layer(u).pose[0], expected)


def test_all_kinds_have_the_same_kernel():
    layer, u = map_layer(), grid(2)
    torch.testing.assert_close(layer(u).pose, layer(u.flip(-2)).pose)
    assert [tuple(values.shape) for values in layer.parameters()] == [(PARENTS * K, K_IN, 3, 3)]


@pytest.mark.parametrize("leading", [(), (0,), (2, 3)], ids=str)
def test_leading_axes_are_free(leading):
    layer, u = map_layer(), grid(*leading)
    capsules = layer(u)
    assert capsules.activation.shape == (*leading, HEIGHT, WIDTH, PARENTS)
    one_by_one = [layer(image).pose for image in u.reshape(-1, *u.shape[-4:])]
    if one_by_one:
        torch.testing.assert_close(capsules.pose.reshape(-1, HEIGHT, WIDTH, PARENTS, K), torch.stack(one_by_one))


def test_a_routing_gets_the_sizes_that_it_asks_for_and_the_maps_that_it_reads():
    class Reader(Routing):
        layer_sizes = ("in_capsules", "in_dim", "pose_dim")
        reads_children = True

        def agree(self, votes, activation, children):
            self.read = children
            mean = votes.mean(-3)
            return Capsules(mean, mean, mean.norm(dim=-1))

    layer, u = map_layer(routing=Reader), grid(2)
    routing = layer.routing
    assert (routing.out_capsules, routing.in_capsules) == (HEIGHT * WIDTH * PARENTS, KINDS)
    assert (routing.in_dim, routing.pose_dim) == (HEIGHT * WIDTH * K_IN, K)
    layer(u)
    torch.testing.assert_close(routing.read[1, 2].view(K_IN, HEIGHT, WIDTH), u[1, :, :, 2].movedim(-1, 0))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: MapCapsuleLayer(3, 4, 2, kernel_size=4), "kernel_size must be odd, .*, got 4"),
        (lambda: MapCapsuleLayer(3, 4, 0), "out_kinds.*0"),
        (lambda: MapCapsuleLayer(3, 4, 2, routing=DynamicRouting(2)), "layer of 32 capsules got .* for 2"),
        (lambda: map_layer()(grid(1)[:, :-1]), r"\(\.\.\., 4, 5, 3, 4\), got \(1, 3, 5, 3, 4\)"),
        (lambda: map_layer()(grid(1), torch.rand(1, 3)), r"activation.*\(1, 3\)"),
        (lambda: map_layer()(map_layer()(grid(1)), torch.rand(1, 3)), "given twice"),
    ],
)
def test_what_does_not_fit_is_refused_in_words_that_quote_it(call, words):
    with pytest.raises(ValueError, match=words):
        call()
