"""What a trace finds inside a network adds up, layer by layer."""

import pytest
import torch
from explain.small import small_network, some_images, stacked_network

from paircaps.errors import PaircapsError
from paircaps.explain.trace import choose_classes, trace

ROUTINGS = ["fm", "dynamic", "em"]


@pytest.mark.parametrize("routing", ROUTINGS)
@pytest.mark.parametrize("build", [small_network, stacked_network])
def test_shares_of_every_layer_add_up_to_the_activation(build, routing):
    network = build(routing)
    traced = trace(network, some_images())
    label = torch.tensor([3, 0, 9])
    shares = traced.shares(label)
    expected = network(some_images()).activation[torch.arange(3), label]
    assert len(shares) == len(network.model.layers)
    for layer, below in zip(shares, traced.levels, strict=False):
        assert layer.shape == below.activation.flatten(1).shape
        torch.testing.assert_close(layer.sum(-1), expected, rtol=1e-4, atol=1e-5)


def test_a_share_is_handed_down_in_proportion_to_the_shares_below():
    traced = trace(stacked_network(), some_images(1))
    label = torch.tensor([4])
    lowest, middle, top = traced.shares(label)
    part = traced.evidence[1].share[0].abs()
    by_hand = sum(top[0, j] * part[:, j] / part[:, j].sum() for j in range(part.shape[1]))
    torch.testing.assert_close(middle[0], by_hand)
    assert lowest.shape == (1, traced.centres.shape[0])


@pytest.mark.parametrize("build", [small_network, stacked_network])
@pytest.mark.parametrize("routing", ["dynamic", "em"])
def test_each_primary_capsule_is_coupled_to_all_classes_together_as_a_whole(build, routing):
    traced = trace(build(routing), some_images(2))
    coupled = sum(traced.coupling(torch.full((2,), label)) for label in range(10))
    torch.testing.assert_close(coupled, torch.ones_like(coupled))


def test_fm_agreement_has_no_coupling():
    assert trace(small_network("fm"), some_images(1)).coupling(torch.tensor([0])) is None


def test_a_trace_ends_in_what_the_network_says():
    network = stacked_network()
    torch.testing.assert_close(trace(network, some_images()).capsules, network(some_images()))


def test_places_of_a_layer_are_the_middles_of_what_it_is_made_of():
    traced = trace(stacked_network(), some_images(1))
    part = traced.evidence[0].share[0].abs()
    by_hand = (part / part.sum(0)).T @ traced.centres
    torch.testing.assert_close(traced.places(1)[0], by_hand, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(traced.places(0)[0], traced.centres)


def test_positions_lie_on_the_grid_as_in_the_image():
    traced = trace(small_network(size=40), some_images(1, 40))
    x, y = traced.on_grid(traced.centres.T)
    assert x.shape == (*traced.grid, 4)
    assert (x.diff(dim=1) > 0).all()
    assert (y.diff(dim=0) > 0).all()
    assert (x.diff(dim=0) == 0).all()


def test_standardised_images_are_looked_at_as_the_model_sees_them():
    network = small_network()
    network.spec = type(network.spec)(
        **{**vars(network.spec), "preparation": type(network.spec.preparation)((28, 28), (28, 28), True)}
    )
    traced = trace(network, some_images())
    torch.testing.assert_close(traced.capsules, network(some_images()))
    torch.testing.assert_close(traced.images, some_images() / 255)


def test_a_network_without_capsules_is_refused_in_words():
    network = small_network(model="resnet-pool-small")
    with pytest.raises(PaircapsError, match="resnet-pool-small has no capsules"):
        trace(network, some_images())


def test_classes_are_chosen_or_named():
    capsules = small_network()(some_images())
    most = capsules.activation.argmax(-1)
    assert choose_classes(capsules, None).tolist() == most.tolist()
    assert choose_classes(capsules, 4).tolist() == [4, 4, 4]
    assert choose_classes(capsules, torch.tensor([1, 2, 3])).tolist() == [1, 2, 3]
    two = choose_classes(capsules, None, 2)
    assert two.shape == (3, 2)
    assert two[:, 0].tolist() == most.tolist()
    for wrong, words in ((10, "from 0 to 9"), (-1, "from 0 to 9"), (torch.tensor([1, 2]), "one for each of 3 images")):
        with pytest.raises(ValueError, match=words):
            choose_classes(capsules, wrong)
