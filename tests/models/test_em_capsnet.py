"""Matrix capsules: their grids, what each layer reads, and their sizes."""

import pytest
import torch

from paircaps import EMRouting, create_model, list_routings
from paircaps.bench.layer_shapes import meta_model
from paircaps.losses import Loss, Objective
from paircaps.models import count_parameters
from paircaps.network import Network, NetworkSpec, Preparation

NARROW = {"filters": 6, "kinds": 2, "conv_kinds": (3, 4)}


def narrow(size=32, **options):
    return create_model("em-capsnet", 5, image_size=size, **NARROW, **options).eval()


def published(filters, primary, first, second, channels=1, classes=5):
    """Parameters by the publication's A, B, C and D, counted layer by layer."""
    convolution = 25 * channels * filters + filters
    poses, activations = filters * 16 * primary + 16 * primary, filters * primary + primary
    windows = 9 * primary * first * 16 + 9 * first * second * 16
    costs = 2 * (first + second + classes)  # β_u and β_a of every kind
    return convolution + poses + activations + windows + second * classes * 16 + costs


@pytest.mark.parametrize(
    ("name", "kinds", "channels", "parameters", "said"),
    [
        ("em-capsnet-small", (64, 8, 16, 16), 1, 67_154, 68_000),
        ("em-capsnet-small", (64, 8, 16, 16), 2, 68_754, 68_000),
        ("em-capsnet", (32, 32, 32, 32), 1, 316_394, 310_000),
        ("em-capsnet", (32, 32, 32, 32), 2, 317_194, 310_000),
    ],
)
def test_parameters_are_those_of_the_publication(name, kinds, channels, parameters, said):
    model = meta_model(name, 32, channels, 5)
    assert count_parameters(model) == published(*kinds, channels) == parameters
    assert parameters == pytest.approx(said, rel=0.025)
    twin = meta_model(name.replace("capsnet", "capsnet-pool"), 32, channels, 5)
    assert count_parameters(twin) == pytest.approx(parameters, rel=0.005)


def test_grids_are_those_of_the_publication():
    levels = narrow().ascend(torch.rand(2, 1, 32, 32))
    shapes = [tuple(level.pose.shape[1:]) for level in levels]
    assert shapes == [(14, 14, 2, 16), (6, 6, 3, 16), (4, 4, 4, 16), (5, 16)]


def test_poses_are_linear_in_the_features_and_activations_are_not_theirs():
    model = narrow()
    features = torch.randn(2, 6, 14, 14)
    one, double = model.primary(features), model.primary(2 * features)
    bias = model.primary.conv.bias.view(2, 16)
    torch.testing.assert_close(double.s - bias, 2 * (one.s - bias), rtol=1e-4, atol=1e-5)
    assert ((one.activation > 0) & (one.activation < 1)).all()
    with torch.no_grad():
        model.primary.conv.weight.zero_()
    torch.testing.assert_close(model.primary(features).activation, one.activation)


def test_the_coordinates_of_the_last_layer_tell_places_apart():
    image = torch.zeros(1, 1, 64, 64)
    image[..., 16:24, 16:24] = torch.rand(8, 8)  # so far from the border that as many windows see it at both places
    moved = image.roll(16, -1)
    for coordinates, same in (("add", False), (None, True)):
        torch.manual_seed(0)
        model = narrow(64)
        last = model.layers[-1].votes
        if coordinates is None:
            last.coordinate_weight.zero_()
        poses = [model(picture).pose for picture in (image, moved)]
        assert torch.allclose(*poses, atol=1e-4) == same


@pytest.mark.parametrize("routing", list_routings())
def test_every_routing_is_injected_in_every_layer_and_takes_any_size(routing):
    model = narrow(routing=routing)
    wanted = type(create_model("resnet-caps-small", routing=routing).layers[0].routing)
    assert [type(layer.routing) for layer in model.layers] == [wanted] * 3
    assert model.takes_any_size
    for size in ((17, 17), (24, 33)):
        assert model(torch.rand(2, 1, *size)).activation.shape == (2, 5)


def test_auto_is_em_and_the_spread_loss():
    assert isinstance(narrow().layers[0].routing, EMRouting)
    preparation = Preparation(size=(32, 32), crop=(32, 32))
    for routing in ("em", "fm"):
        arguments = {"num_classes": 5, "image_size": 32, "routing": routing, **NARROW}
        network = Network(NetworkSpec("em-capsnet", arguments, tuple("abcde"), preparation))
        assert Objective(network, Loss()).loss_name == "spread"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"image_size": 16}, "16×16 is too small for EMCapsNet, which needs at least 17×17"),
        ({"conv_kinds": (3,)}, r"conv_kinds must be .* 2 .*\(3,\)"),
        ({"kinds": 0}, "kinds must be at least 1, got 0"),
        ({"pose_dim": 10}, "square number, got 10"),
    ],
)
def test_bad_options_are_refused_in_words_that_quote_them(options, words):
    with pytest.raises(ValueError, match=words):
        create_model("em-capsnet", **options)
    if "conv_kinds" not in options:
        return
    with pytest.raises(TypeError, match="each capsule layer needs a routing of its own"):
        create_model("em-capsnet", routing=EMRouting(10))
