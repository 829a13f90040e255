"""Capsules on a grid: sizes, images of any size, and options that the routing chooses."""

import pytest
import torch

from paircaps import CapsuleLayer, ConvCapsuleLayer, FMAgreement, count_parameters, create_model, list_routings
from paircaps.routing import Routing, grid_options


@pytest.mark.parametrize("ending", ["", "-medium", "-small"])
@pytest.mark.parametrize("routing", list_routings())
def test_it_takes_images_of_any_size(ending, routing):
    blocks = {"blocks": (1, 1, 1)} if not ending else {}
    model = create_model(f"resnet-caps-grid{ending}", image_size=40, routing=routing, **blocks).eval()
    assert model.takes_any_size
    for size in ((40, 40), (28, 64), (8, 8)):
        capsules = model(torch.rand(2, 1, *size))
        assert capsules.pose.shape == (2, 10, 16)
        assert capsules.activation.isfinite().all()


@pytest.mark.parametrize(
    ("ending", "arguments"),
    [
        ("", {"image_size": 32, "in_channels": 3}),
        ("-medium", {"image_size": 36}),
        ("-small", {"image_size": 40}),
        ("-small", {"image_size": 48}),
    ],
)
def test_it_is_no_larger_than_its_relative_with_matrices_of_every_position(ending, arguments):
    """At the sizes of the paper's tables; at 28×28 the smaller ones have 168 parameters more, 0.1 %."""
    grid, relative = (create_model(f"resnet-caps{kind}{ending}", **arguments) for kind in ("-grid", ""))
    assert count_parameters(grid) <= count_parameters(relative)


def test_a_digit_that_moves_by_the_distance_of_two_capsules_moves_on_the_grid():
    """Nothing is learned at one place only: away from the border, votes move with the picture."""
    model = create_model("resnet-caps-grid-small", image_size=64, coordinates=None).eval()
    step = 8
    picture = torch.zeros(1, 1, 64, 64)
    picture[..., 24:36, 24:34] = torch.rand(12, 10)
    one, other = (model.primary(model.features(image)).s for image in (picture, picture.roll(step, -1)))
    torch.testing.assert_close(other[:, 2:-2, 3:-2], one[:, 2:-2, 2:-3], rtol=1e-4, atol=1e-5)


def test_agreement_is_weighted_unless_it_is_asked_not_to():
    (layer,) = create_model("resnet-caps-grid-small").layers
    assert isinstance(layer.routing, FMAgreement)
    assert layer.routing.weigh == "activation"
    (layer,) = create_model("resnet-caps-grid-small", routing_options={"weigh": None}).layers
    assert layer.routing.weigh is None


def test_a_routing_of_ones_own_says_what_suits_a_grid():
    class Own(Routing):
        grid_options = {"sharp": True}  # noqa: RUF012

        def __init__(self, out_capsules, sharp=False):
            super().__init__(out_capsules)
            self.sharp = sharp

        def agree(self, votes, activation):
            raise NotImplementedError

    (layer,) = create_model("resnet-caps-grid-small", routing=Own).layers
    assert layer.routing.sharp
    assert grid_options(lambda out_capsules: Own(out_capsules)) == {}
    assert grid_options("dynamic") == {}


@pytest.mark.parametrize(("value", "words"), [((0,), "conv_kinds.*got .*0"), (3, "conv_kinds.*got 3")])
def test_kinds_that_are_none_are_refused_by_name(value, words):
    with pytest.raises((ValueError, TypeError), match=words):
        create_model("resnet-caps-grid-small", conv_kinds=value)


def test_convolutional_capsules_and_hidden_ones_lie_between():
    model = create_model(
        "resnet-caps-grid-small", conv_kinds=(6,), hidden_capsules=(8,), hidden_options={"activation": "squash"}
    )
    conv, hidden, last = model.layers
    assert isinstance(conv, ConvCapsuleLayer)
    assert (conv.in_kinds, conv.out_kinds) == (4, 6)
    assert isinstance(hidden, CapsuleLayer)
    assert (hidden.grid, hidden.share, last.share) == ((4, 4, 6), "position", None)
    assert [layer.routing.activation for layer in model.layers] == ["squash", "squash", "sum"]
    images = torch.rand(3, 1, 28, 28)
    model(images).activation.sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    levels = model.eval().ascend(images)
    assert [tuple(level.activation.shape) for level in levels] == [(3, 4, 4, 4), (3, 4, 4, 6), (3, 8), (3, 10)]


def test_a_fine_grid_has_a_capsule_at_every_feature_and_begins_sparse():
    torch.manual_seed(0)
    model = create_model("resnet-caps-fine-small", image_size=40)
    assert model.primary.out_grid == (10, 10, 4)
    (layer,) = model.layers
    assert layer.routing.scale.item() == pytest.approx(30)
    activation = model.primary(model.features(torch.rand(8, 1, 40, 40))).activation
    assert 0.02 < activation.mean() < 0.3
    coarse = create_model("resnet-caps-grid-small", image_size=40)
    assert count_parameters(model) == count_parameters(coarse) + 1
    assert coarse.layers[0].routing.scale is None
    # matrices of one capsule are larger than those of a layer
    assert layer.votes.weight.std().item() == pytest.approx(0.25, rel=0.1)
    assert coarse.layers[0].votes.weight.std() < 0.02


def test_of_several_layers_the_one_that_folds_the_grid_has_the_scale():
    model = create_model("resnet-caps-fine-small", image_size=40, hidden_capsules=(8,), conv_kinds=(4,))
    conv, fold, last = model.layers
    assert conv.routing.scale is None
    assert fold.routing.scale is not None
    assert last.routing.scale is None


def test_a_fine_grid_with_another_routing_or_activation():
    for options in ({"routing": "dynamic"}, {"primary_activation": "length"}, {"routing_options": {"scale": None}}):
        model = create_model("resnet-caps-fine-small", image_size=40, **options).eval()
        assert model(torch.rand(2, 1, 40, 40)).activation.isfinite().all()


def test_mean_agreement_does_not_depend_on_how_often_a_vote_is_cast():
    """Twice the same votes: the sum of the products grows, their mean hardly does."""
    votes = torch.randn(40, 3, 8)
    routing = FMAgreement(3, scale=10.0)
    once, twice = routing(votes).activation, routing(torch.cat([votes, votes])).activation
    plain = FMAgreement(3)
    assert (plain(torch.cat([votes, votes])).activation - 2 * plain(votes).activation).abs().max() < 1
    # pairs of a vote with its own copy agree fully: 1/2n of all pairs
    torch.testing.assert_close(twice, once + 10 * 0.5 / 80, rtol=0, atol=1e-4)
