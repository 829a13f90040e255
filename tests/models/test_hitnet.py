"""HitNet: a dense layer, batch norm, a sigmoid, and how near the middle of the cube a capsule is."""

import pytest
import torch

import paircaps
from paircaps import count_parameters, create_model
from paircaps.errors import PaircapsError
from paircaps.explain import agreement
from paircaps.functional import centre_distance
from paircaps.models import HitOrMiss, pooling_twin
from paircaps.network import Network, NetworkSpec, Preparation
from paircaps.training.recipe import Model, Recipe, Train

NARROW = {"num_classes": 4, "image_size": 20, "filters": 6, "groups": 3}


def narrow(**options):
    return create_model("hitnet", **{**NARROW, **options})


def test_its_parameters_are_those_of_capsnet_and_of_one_batch_norm():
    convolutions = 256 * (81 + 1) + 256 * (256 * 81 + 1)
    dense = 6 * 6 * 256 * 10 * 16
    with torch.device("meta"):
        assert count_parameters(create_model("hitnet")) == convolutions + dense + 2 * 10 * 16 == 6_804_544
        assert count_parameters(create_model("capsnet")) == convolutions + dense


def test_it_is_a_dense_layer_batch_norm_and_a_sigmoid():
    model, images = narrow().double().eval(), torch.rand(5, 1, 20, 20, dtype=torch.float64)
    body = model.body
    maps = body.primary.conv(body.conv(images).relu()).relu()
    children = maps.unflatten(1, (3, 8)).permute(0, 3, 4, 1, 2).flatten(1)
    s = torch.einsum("bi,ijk->bjk", children, body.layers[0].votes.weight.permute(0, 2, 1, 3).flatten(0, 1))
    torch.testing.assert_close(model(images).pose, (s / 1.001**0.5).sigmoid())  # statistics of a fresh norm
    normed = (s - s.mean(0)) / (s.var(0, correction=0) + 1e-3).sqrt()
    torch.testing.assert_close(model.train()(images).pose, normed.sigmoid())


def test_an_activation_falls_from_the_middle_to_the_corners():
    layer = HitOrMiss(3, 4).eval()
    s = torch.tensor([0.0, 1.0, 1e9]).view(1, 3, 1).expand(2, 3, 4)
    capsules = layer(s)
    assert capsules.activation[0].tolist() == pytest.approx([1.0, 0.5379, 0.0], abs=1e-3)
    assert capsules.activation[0, 0] == 1
    assert (capsules.activation >= 0).all()
    nearest = centre_distance(capsules.pose).argmin(-1)
    assert nearest.tolist() == capsules.activation.argmax(-1).tolist() == [0, 0]


@pytest.mark.parametrize("routing", ["sum", "dynamic", "fm", "em"])
def test_any_routing_may_stand_below_the_cube(routing):
    model = narrow(routing=routing, hidden_capsules=(5,))
    assert (model.bounded, model.in_unit_cube, model.wanted_loss) == (True, True, "centripetal")
    capsules = model(torch.rand(6, 1, 20, 20))
    for part in (capsules.pose, capsules.activation):
        assert ((part >= 0) & (part <= 1)).all()
    capsules.pose.square().sum().backward()
    assert all(layer.votes.weight.grad.any() for layer in model.layers)


def test_its_recipe_names_its_routing_and_its_twin_is_that_of_capsnet():
    assert Recipe(model=Model("hitnet"), train=Train(epochs=1)).model.routing == "sum"
    assert pooling_twin("hitnet") == "capsnet-pool"


def test_shares_in_a_distance_are_refused_in_words():
    size = {"size": (20, 20), "crop": (20, 20)}
    network = Network(NetworkSpec("hitnet", NARROW, tuple("abcd"), Preparation(**size)))
    with pytest.raises(PaircapsError, match="hitnet is no single stack of capsules, so shares in its classes cannot"):
        agreement(network, torch.rand(2, 1, 20, 20))


def test_images_that_are_too_small_are_refused():
    with pytest.raises(ValueError, match="16×16 is too small for HitNet, which needs at least 17×17"):
        paircaps.create_model("hitnet", image_size=16)
