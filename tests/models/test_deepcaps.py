"""DeepCaps: its parameters layer by layer, its equations, and its routings."""

import pytest
import torch
import torch.nn.functional as F
from reference.sized import sized_routing

import paircaps
from paircaps import count_parameters, create_model, functional
from paircaps.bench.estimate import votes_of_layers
from paircaps.bench.layer_shapes import meta_model
from paircaps.layers import MapCapsuleLayer
from paircaps.models import DeepCaps, DeepCapsDecoder, DeepCapsPool

NARROW = {"width": 6, "kinds": 3, "dims": (2, 4, 4, 4), "pose_dim": 5}
"""A DeepCaps of a few capsules."""

STEP = 9 * 256 * 256
"""Weights of a step between 32 kinds of 8 dimensions."""

BIASES = 32 * 8 + 10 * 32
"""What the published code adds to the sums of both routings."""


def test_parameters_are_the_published_ones_layer_by_layer():
    model = meta_model("deepcaps", 32, 3, 10)
    assert count_parameters(model.stem) == 3 * 9 * 128 + 128 + 2 * 128
    first, second, third, last = (count_parameters(cell) for cell in model.cells)
    assert first == 4 * 9 * 128 * 128
    assert second == 9 * 128 * 256 + 3 * STEP
    assert third == 4 * STEP
    assert last == 3 * STEP + 9 * 8 * 256
    assert count_parameters(model.layers) == (4 * 4 + 2 * 2) * 32 * 10 * 8 * 32
    assert count_parameters(model) == 8_444_224 - BIASES
    assert count_parameters(meta_model("deepcaps", 64, 3, 10)) == 13_359_424 - BIASES


def test_the_published_sum_is_that_of_capsules_of_eight_dimensions():
    model = meta_model("deepcaps", 32, 3, 10, pose_dim=8)
    assert count_parameters(model) + 32 * 8 + 10 * 8 == 7_215_184  # 7.22 million are published


def test_the_light_network_has_less_than_a_million():
    for channels, size in ((1, 28), (3, 32)):
        assert 800_000 < count_parameters(meta_model("deepcaps-light", size, channels, 10)) < 1_000_000


@pytest.mark.parametrize("ending", ["", "-light"])
@pytest.mark.parametrize("options", [{}, {"enlarge": 2}, {"routing": "em"}, {"dims": (4, 4, 6, 6)}], ids=str)
def test_the_pooling_twin_is_as_large(ending, options):
    capsules, pooling = (meta_model(f"deepcaps{kind}{ending}", 32, 3, 10, **options) for kind in ("", "-pool"))
    assert count_parameters(pooling) == pytest.approx(count_parameters(capsules), rel=0.005)


def test_the_estimate_counts_the_votes_of_both_routings():
    votes = votes_of_layers(meta_model("deepcaps", 32, 3, 10))
    assert sorted(votes.values()) == [4 * 32 * (2 * 2 * 32) * 8, 4 * (4 * 4 + 2 * 2) * 32 * 10 * 32]


def squashed(maps, kinds):
    """Feature maps (B, kinds · K, H, W) as squashed capsules of (B, H, W, kinds, K)."""
    return functional.squash(maps.unflatten(1, (kinds, -1)).permute(0, 3, 4, 1, 2))


def as_maps(capsules):
    return capsules.permute(0, 3, 4, 1, 2).flatten(1, 2)


def test_the_network_is_the_published_figure():
    torch.manual_seed(0)
    model = DeepCaps(4, 3, (16, 24), **NARROW, step_norm=None).eval()
    images = torch.rand(2, 3, 16, 24)
    convolution, _, norm = model.stem
    maps = norm(F.conv2d(images, convolution.weight, convolution.bias, padding=1).relu())
    outputs = []
    for number, cell in enumerate(model.cells):
        start = squashed(F.conv2d(maps, cell.down.conv.weight, stride=2, padding=1), 3)
        long = start
        for step in (cell.first, cell.second):
            long = squashed(F.conv2d(as_maps(long), step.step.conv.weight, padding=1), 3)
        if number < 3:
            skip = squashed(F.conv2d(as_maps(start), cell.skip.step.conv.weight, padding=1), 3)
        else:
            assert isinstance(cell.skip, MapCapsuleLayer)
            skip = cell.skip(start).pose
        outputs.append(long + skip)
        maps = as_maps(outputs[-1])
    assert [tuple(output.shape[1:3]) for output in outputs] == [(8, 12), (4, 6), (2, 3), (1, 2)]
    children = torch.cat([outputs[3].flatten(1, 3), outputs[2].flatten(1, 3)], 1)
    votes = functional.vector_votes(children, model.layers[0].votes.weight)
    for one, other in zip(model(images), functional.dynamic_routing(votes, 3), strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("routing", paircaps.list_routings())
def test_the_routing_is_injected_in_the_last_cell_and_for_the_classes(routing):
    model = create_model("deepcaps", image_size=16, routing=routing, **NARROW)
    wanted = type(sized_routing(routing, 1))
    assert [type(part.routing) for part in (model.cells[3].skip, model.layers[0])] == [wanted, wanted]
    assert model.layers[0].routing is not model.cells[3].skip.routing
    assert model(torch.rand(3, 1, 16, 16)).activation.shape == (3, 10)


def test_it_is_published_with_dynamic_routing_and_learns_by_the_margin_loss():
    model = create_model("deepcaps", image_size=16, routing_options={"iterations": 2}, **NARROW)
    assert model.bounded
    assert model.wanted_loss is None
    assert [part.routing.iterations for part in (model.cells[3].skip, model.layers[0])] == [2, 2]


@pytest.mark.parametrize("kind", [DeepCaps, DeepCapsPool])
def test_images_may_be_enlarged_first(kind):
    torch.manual_seed(2)
    options = {name: value for name, value in NARROW.items() if kind is DeepCaps or name != "pose_dim"}
    twice, once = kind(4, 1, 16, enlarge=2, **options), kind(4, 1, 32, **options)
    once.load_state_dict(twice.state_dict())
    images = torch.rand(2, 1, 16, 16)
    larger = F.interpolate(images, size=(32, 32), mode="bilinear")
    torch.testing.assert_close(twice.eval()(images), once.eval()(larger))


def test_batch_norm_keeps_the_capsules_of_the_light_network_long():
    torch.manual_seed(0)
    images = torch.rand(4, 3, 32, 32)
    lengths = {}
    for norm in ("channel", None):
        found = []
        model = create_model("deepcaps-light", in_channels=3, image_size=32, step_norm=norm)
        model.cells[3].register_forward_hook(lambda _, __, capsules, found=found: found.append(capsules.activation))
        model(images)
        lengths[norm] = found[0].mean().item()
    assert lengths["channel"] > 0.5 > 0.01 > lengths[None]


@pytest.mark.parametrize(
    ("size", "channels", "trainable"),
    # dense layer, batch norm, convolutions
    [
        (64, 3, 33 * 1024 + 32 + 145 * 64 + 577 * 32 + 289 * 16 + 145 * 8 + 73 * 3),
        (32, 3, 33 * 1024 + 32 + 145 * 64 + 577 * 32 + 289 * 16 + 145 * 3),
        (28, 1, 33 * 784 + 32 + 145 * 64 + 577 * 32 + 289 * 16 + 145 * 1),
    ],
)
def test_the_decoder_has_the_published_layers(size, channels, trainable):
    assert count_parameters(DeepCapsDecoder(32, size, channels)) == trainable


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"image_size": 7}, ValueError, "7×7 is too small for DeepCaps, which needs at least 8×8"),
        ({"dims": (4, 8, 8)}, ValueError, "dims"),
        ({"dims": (4, 8, 8, 4)}, ValueError, r"last two cells must be equal, .*, got \(4, 8, 8, 4\)"),
        ({"enlarge": 0}, ValueError, "enlarge.*0"),
        ({"step_norm": "pose"}, ValueError, "'channel', None, got 'pose'"),
        ({"routing": paircaps.DynamicRouting(10)}, TypeError, "a routing of its own"),
    ],
)
def test_what_does_not_fit_is_refused_in_words_that_quote_it(options, error, words):
    with pytest.raises(error, match=words):
        DeepCaps(**options)
