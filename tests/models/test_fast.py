"""The fast networks: their size, the images and options that they take, and the whitening of their stem."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import paircaps
from paircaps import count_parameters, create_model, functional, load
from paircaps.model_files import save_model
from paircaps.models import FastBackbone, FastCapsules, FastPool, WhiteningStem, pooling_twin
from paircaps.network import Network, NetworkSpec, Preparation

PAPER = [
    *({"num_classes": 10, "in_channels": channels, "image_size": size} for size, channels in ((28, 1), (32, 3))),
    *({"num_classes": 10, "in_channels": 1, "image_size": size} for size in (36, 40)),
    *({"num_classes": 5, "in_channels": 2, "image_size": size} for size in (32, 48)),
]
"""Images and classes of every dataset of the paper."""

SMALL = {"widths": (8, 8, 8), "kinds": 2}


def correlated_images(count=60, channels=3, size=(12, 15)):
    """Smooth images of correlated channels with a mean that is not zero."""
    noise = torch.randn(count, channels, size[0] + 2, size[1] + 2)
    mixed = torch.einsum("ij,bjhw->bihw", torch.randn(channels, channels), noise)
    return 0.3 + F.avg_pool2d(mixed, 3, 1) + 0.5 * torch.randn(channels, 1, 1)


# --- size ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", PAPER, ids=str)
@pytest.mark.parametrize(("ending", "most"), [("", 1_000_000), ("-tiny", 150_000)])
def test_capsules_and_their_twin_are_small_and_of_one_size(ending, most, arguments):
    capsules = create_model(f"fast-caps{ending}", **arguments)
    assert most / 4 < count_parameters(capsules) < most
    pool = create_model(f"fast-pool{ending}", **arguments)
    assert pooling_twin(f"fast-caps{ending}") == f"fast-pool{ending}"
    assert count_parameters(pool) == pytest.approx(count_parameters(capsules), rel=0.005)
    assert type(capsules.backbone) is type(pool.backbone) is FastBackbone
    assert [p.shape for p in capsules.backbone.parameters()] == [p.shape for p in pool.backbone.parameters()]


@pytest.mark.parametrize(
    "options", [{"widths": (16, 24, 32)}, {"hidden_capsules": (32, 16)}, {"stem": "conv"}, {"kinds": 4}], ids=str
)
def test_the_twin_follows_the_options_of_its_capsules(options):
    capsules, pool = (create_model(f"fast-{kind}", **options) for kind in ("caps", "pool"))
    assert count_parameters(pool) == pytest.approx(count_parameters(capsules), rel=0.005)
    assert [p.shape for p in capsules.backbone.parameters()] == [p.shape for p in pool.backbone.parameters()]


@pytest.mark.parametrize("name", ["fast-caps", "fast-pool"])
@pytest.mark.parametrize("size", [9, 16, 17, 28, 32, 36, 40, 48, (31, 45)], ids=str)
def test_images_of_any_size_from_nine_pixels_on(name, size):
    model = create_model(name, image_size=size, in_channels=2, num_classes=3)
    height, width = model.image_size
    images = torch.randn(2, 2, height, width)
    assert model(images).activation.shape == (2, 3)
    maps = model.backbone(images)
    assert tuple(maps.shape) == (2, 128, (height - 1) // 8, (width - 1) // 8)
    assert maps.shape[2:] == model.backbone.out_size(model.image_size)


@pytest.mark.parametrize("name", ["fast-caps", "fast-pool"])
@pytest.mark.parametrize("size", [8, (8, 30), (30, 8)], ids=str)
def test_smaller_images_are_refused(name, size):
    with pytest.raises(ValueError, match=r"an image of \d+×\d+ is too small for Fast\w+, which needs at least 9×9"):
        create_model(name, image_size=size)


# --- options ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("routing", paircaps.list_routings())
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"hidden_capsules": (32, 16)},
        {"votes": "shared"},
        {"votes": "shared", "hidden_capsules": (6,)},
        {"transform": "matrix"},
        {"transform": "matrix", "votes": "shared"},
        {"stem": "conv"},
        {"kinds": 3, "pose_dim": 9},
        {"vote_norm": None, "primary_norm": None},
        {"vote_norm": "vote", "primary_norm": "capsule"},
        {"streaming": True},
    ],
    ids=str,
)
def test_every_option_with_every_routing_trains(options, routing):
    model = create_model("fast-caps", image_size=17, routing=routing, **{**SMALL, **options})
    capsules = model(torch.randn(4, 1, 17, 17))
    assert capsules.pose.shape == (4, 10, options.get("pose_dim", 16))
    (capsules.activation.square().sum() + (capsules.pose * torch.randn_like(capsules.pose)).sum()).backward()
    # attention does not read activations, so nothing learns what those of hidden capsules are made of
    unread = tuple(f"layers.{i}.routing.score." for i in range(len(options.get("hidden_capsules", ()))))
    for name, parameter in model.named_parameters():
        if name.startswith(unread):
            continue
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.any(), name


def test_sizes_of_the_parts_are_those_of_the_options():
    model = FastCapsules(image_size=(17, 25), widths=(4, 6, 8), kinds=3, pose_dim=9, hidden_capsules=(32, 16))
    convolutions = [part for part in model.backbone.groups.modules() if isinstance(part, nn.Conv2d)]
    assert [(part.in_channels, part.out_channels) for part in convolutions] == [(8, 4), (4, 4), (4, 6), (6, 6), (6, 8)]
    assert (model.primary.grid, model.primary.groups, model.primary.out_capsules) == ((2, 3), 3, 18)
    assert [layer.votes.weight.shape for layer in model.layers] == [(18, 32, 9, 9), (32, 16, 9, 9), (16, 10, 9, 9)]


@pytest.mark.parametrize("transform", ["vector", "matrix"])
def test_shared_votes_are_those_of_the_primary_capsules_of_one_position(transform):
    options = {**SMALL, "image_size": 25, "hidden_capsules": (6,), "transform": transform}
    own, shared = (FastCapsules(**options, votes=votes).eval() for votes in ("position", "shared"))
    side = 16 if transform == "vector" else 4
    assert own.layers[0].votes.weight.shape == (9 * 2, 6, side, side)
    assert shared.layers[0].votes.weight.shape == (2, 6, side, side)
    assert own.layers[1].votes.weight.shape == shared.layers[1].votes.weight.shape
    weights = shared.state_dict()
    own.load_state_dict({**weights, "layers.0.votes.weight": weights["layers.0.votes.weight"].repeat(9, 1, 1, 1)})
    images = torch.randn(3, 1, 25, 25)
    for one, other in zip(shared(images), own(images), strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"votes": "all"}, "votes must be one of 'position', 'shared', got 'all'"),
        ({"stem": "patches"}, "stem must be one of 'whitening', 'conv', got 'patches'"),
        ({"widths": (8, 8)}, r"widths must be .* 3 .*\(8, 8\)"),
        ({"kinds": 0}, "groups must be at least 1, got 0"),
        ({"primary_norm": "vote"}, "primary_norm must be one of 'pose', 'channel', 'capsule', None, got 'vote'"),
        ({"transform": "matrix", "pose_dim": 10}, "square number, got 10"),
    ],
)
def test_wrong_options_are_refused(options, words):
    with pytest.raises(ValueError, match=words):
        create_model("fast-caps", **options)


# --- what is computed ------------------------------------------------------------------------------------------------


def travelled(module):
    """Batch norm that has seen something."""
    for norm in module.modules():
        if isinstance(norm, nn.BatchNorm1d | nn.BatchNorm2d):
            for tensor in (norm.weight, norm.running_var):
                nn.init.uniform_(tensor, 0.5, 2)
            for tensor in (norm.bias, norm.running_mean):
                nn.init.normal_(tensor)
    return module.eval()


def activated(norm, x, eps=1e-5):
    mean, variance, weight, bias = (
        value.view(-1, 1, 1) for value in (norm.running_mean, norm.running_var, norm.weight, norm.bias)
    )
    x = (x - mean) / (variance + eps).sqrt() * weight + bias
    return x * (1 + torch.erf(x / 2**0.5)) / 2


def test_the_body_is_convolutions_that_pool_before_they_normalise():
    model = travelled(FastBackbone(2, (4, 6, 8), "whitening"))
    images = torch.randn(3, 2, 18, 25)
    x = F.gelu(F.conv2d(images, model.stem.weight, model.stem.bias))
    for number, group in enumerate(model.groups):
        x = activated(group[2][0], F.max_pool2d(F.conv2d(x, group[0].weight, padding=1), 2))
        if number < 2:
            x = activated(group[4][0], F.conv2d(x, group[3].weight, padding=1))
    torch.testing.assert_close(model(images), x, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("stem", ["whitening", "conv"])
def test_the_memory_format_changes_nothing_and_is_kept(stem):
    model = FastBackbone(3, (8, 8, 8), stem)
    images = torch.randn(4, 3, 18, 25)
    results = []
    for layout in (torch.contiguous_format, torch.channels_last):
        model.zero_grad()
        maps = model.to(memory_format=layout)(images.contiguous(memory_format=layout))
        assert maps.is_contiguous(memory_format=layout)
        maps.square().sum().backward()
        results.append((maps, [parameter.grad for parameter in model.parameters()]))
    torch.testing.assert_close(*results, rtol=1e-3, atol=1e-3)


def test_fast_capsules_route_full_votes_of_normalised_channels():
    model = travelled(FastCapsules(**SMALL, image_size=17))
    images = torch.randn(3, 1, 17, 17)
    norm, maps = model.primary.norm, F.conv2d(model.backbone(images), model.primary.conv.weight, padding=1)
    x = F.batch_norm(maps, norm.running_mean, norm.running_var, norm.weight, norm.bias, eps=1e-3)
    u = functional.squash(x.unflatten(1, (2, 16)).permute(0, 3, 4, 1, 2).flatten(1, 3))
    votes = functional.vector_votes(u, model.layers[0].votes.weight)
    norm = model.layers[0].norm
    votes = (votes - norm.running_mean) / (norm.running_var + 1e-3).sqrt() * norm.weight + norm.bias
    for one, other in zip(model(images), functional.fm_agreement(votes), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


def test_fast_pool_takes_the_largest_of_all_positions():
    model = travelled(FastPool(widths=(4, 6, 8), head_width=5, image_size=(17, 25)))
    images = torch.randn(3, 1, 17, 25)
    maps = activated(model.head[1][0], F.conv2d(model.backbone(images), model.head[0].weight, padding=1))
    features = maps.flatten(2).max(dim=2).values
    capsules = model(images)
    torch.testing.assert_close(capsules.pose, torch.stack([features] * 10, 1), rtol=1e-4, atol=1e-4)
    expected = F.linear(features, model.classify.weight, model.classify.bias)
    torch.testing.assert_close(capsules.activation, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("position", [(3, 4), (4, 3)])
def test_centres_are_those_of_the_pixels_that_a_capsule_depends_on(position):
    """Seen in many images at once: max-pooling lets through a part of them in each."""
    model = FastCapsules(**SMALL, image_size=(72, 80), stem="conv", primary_norm=None).eval()
    images = torch.rand(64, 1, 72, 80, requires_grad=True)
    row, column = position
    capsule = (row * model.primary.grid[1] + column) * 2 + 1
    model.primary(model.features(images)).s.flatten(1, 3)[:, capsule].abs().sum().backward()
    seen = (images.grad != 0).any(0)[0]
    rows, columns = seen.any(1).nonzero().flatten() + 0.5, seen.any(0).nonzero().flatten() + 0.5
    middle = torch.stack([columns[0] + columns[-1], rows[0] + rows[-1]]) / 2
    torch.testing.assert_close(model.centres()[capsule], middle)


# --- whitening stem --------------------------------------------------------------------------------------------------


def outputs_before_gelu(stem, images):
    """Outputs of a stem at all positions, in float64, (N, C·8)."""
    outputs = F.conv2d(images.double(), stem.weight.double(), stem.bias.detach().double())
    return outputs.transpose(0, 1).flatten(1).T


@pytest.mark.parametrize("channels", [1, 2, 3])
def test_fitted_outputs_are_uncorrelated_with_mean_zero_and_variance_one(channels):
    stem, images = WhiteningStem(channels), correlated_images(channels=channels)
    values = 4 * channels
    patches = F.unfold(images.double(), 2).transpose(1, 2).reshape(-1, values)
    before = patches.T.cov(correction=0)
    assert (patches.T.corrcoef() - torch.eye(values)).abs().max() > 0.3
    stem.fit(images)
    outputs = outputs_before_gelu(stem, images)[:, :values]
    covariance = outputs.T.cov(correction=0)
    eigenvalues = torch.linalg.eigvalsh(before).flip(0)
    added = WhiteningStem.LEAST_VARIANCE * eigenvalues.mean()
    expected = (eigenvalues / (eigenvalues + added)).diag()
    torch.testing.assert_close(covariance, expected, rtol=0, atol=1e-4)
    assert covariance[0, 0] > 0.99
    torch.testing.assert_close(outputs.mean(0), torch.zeros(values).double(), rtol=0, atol=1e-4)


def test_the_second_half_of_the_filters_has_the_opposite_sign():
    stem = WhiteningStem(2)
    stem.fit(correlated_images(channels=2))
    assert torch.equal(stem.weight[8:], -stem.weight[:8])
    torch.testing.assert_close(stem.bias[8:], -stem.bias[:8])
    outputs = stem(torch.randn(3, 2, 7, 9))
    assert outputs.shape == (3, 16, 6, 8)


def test_directions_without_variance_are_not_blown_up():
    images = correlated_images(channels=3)
    images[:, 1] = images[:, 0]  # half of the variance is in four directions, and four have none
    stem = WhiteningStem(3)
    stem.fit(images)
    patches = F.unfold(images, 2).transpose(1, 2).reshape(-1, 12)
    mean_eigenvalue = patches.T.cov(correction=0).diagonal().mean()
    largest = (WhiteningStem.LEAST_VARIANCE * mean_eigenvalue) ** -0.5
    norms = stem.weight[:12].flatten(1).norm(dim=1)
    torch.testing.assert_close(norms[-4:], largest.expand(4), rtol=1e-2, atol=0)
    assert norms.max() < 1.01 * largest


def test_a_fit_depends_on_the_images_and_not_on_what_was_fitted_before():
    one, two = WhiteningStem(3), WhiteningStem(3)
    images = correlated_images()
    one.fit(correlated_images())
    one.fit(images)
    two.fit(images)
    assert torch.equal(one.weight, two.weight)
    assert torch.equal(one.bias, two.bias)


@pytest.mark.parametrize("grey", [0.0, 0.1, 1 / 3, 0.7, 1.0])
def test_images_of_one_grey_change_nothing(grey):
    stem = WhiteningStem(2)
    before = {name: value.clone() for name, value in stem.state_dict().items()}
    stem.fit(torch.full((7, 2, 9, 11), grey))
    assert all(torch.equal(value, before[name]) for name, value in stem.state_dict().items())


def test_before_its_fit_a_stem_shows_pixels_and_their_negatives():
    images = torch.randn(2, 1, 5, 6)
    corners = [images[:, 0, y : y + 4, x : x + 5] for y in (0, 1) for x in (0, 1)]
    expected = torch.stack([*corners, *(-corner for corner in corners)], 1)
    torch.testing.assert_close(WhiteningStem(1)(images), F.gelu(expected))


@pytest.mark.parametrize("name", ["fast-caps-tiny", "fast-pool-tiny"])
def test_a_model_fits_its_stem_and_leaves_all_else(name):
    model = create_model(name, in_channels=3, image_size=(12, 15))
    before = {key: value.clone() for key, value in model.state_dict().items()}
    images = correlated_images()
    model.fit(images)
    stem = WhiteningStem(3)
    stem.fit(images)
    changed = {key for key, value in model.state_dict().items() if not torch.equal(value, before[key])}
    assert changed == {"backbone.stem.weight", "backbone.stem.bias"}
    assert torch.equal(model.backbone.stem.weight, stem.weight)


@pytest.mark.parametrize("name", ["resnet-caps-small", "capsnet-light", "fast-caps-tiny"])
def test_models_without_a_whitening_stem_have_nothing_to_fit(name):
    model = create_model(name, image_size=28, **({"stem": "conv"} if "fast" in name else {}))
    before = {key: value.clone() for key, value in model.state_dict().items()}
    model.fit(correlated_images(channels=1, size=(28, 28)))
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())


def test_only_the_bias_of_the_stem_is_trained():
    stem = WhiteningStem(1)
    assert [name for name, _ in stem.named_parameters()] == ["bias"]
    assert set(stem.state_dict()) == {"weight", "bias"}


def test_the_fitted_stem_is_saved_and_loaded_with_the_weights(tmp_path):
    arguments = {"num_classes": 2, "in_channels": 3, "image_size": (12, 15)}
    spec = NetworkSpec("fast-caps-tiny", arguments, ("a", "b"), Preparation((12, 15), (12, 15), True, channels=3))
    network, images = Network(spec).eval(), correlated_images().clamp(0, 1)
    network.fit(images)
    save_model(tmp_path, network, {})
    loaded = load(tmp_path).eval()
    stem = WhiteningStem(3)
    stem.fit(network.model_input(images))
    assert torch.equal(loaded.model.backbone.stem.weight, stem.weight)
    torch.testing.assert_close(loaded(images), network(images))


@pytest.mark.parametrize("name", ["fast-caps", "fast-pool"])
def test_batch_norms_of_the_body(name):
    norms = [part for part in create_model(name, image_size=9).modules() if isinstance(part, nn.BatchNorm2d)]
    assert len(norms) == (5 if name == "fast-caps" else 6)
    assert {(norm.eps, norm.momentum) for norm in norms} == {(1e-5, 0.1)}
