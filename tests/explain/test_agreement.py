"""The agreement on a class, taken apart: against the definitions, computed by hand."""

import pytest
import torch
import torch.nn.functional as F
from explain.small import small_network, some_images, stacked_network

from paircaps.explain import agreement
from paircaps.explain.agreement import strongest_pairs
from paircaps.explain.trace import trace


@pytest.mark.parametrize("routing", ["fm", "dynamic", "em"])
@pytest.mark.parametrize("build", [small_network, stacked_network])
def test_the_map_adds_up_to_the_activation(build, routing):
    network = build(routing)
    seen = agreement(network, some_images(), 7)
    activation = network(some_images()).activation[:, 7]
    torch.testing.assert_close(seen.activation, activation)
    torch.testing.assert_close(seen.shares.sum(-1), activation, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(seen.map.sum((-2, -1)), activation, rtol=1e-4, atol=1e-5)


def test_shares_are_those_of_equation_5_by_hand():
    network = small_network()
    model, layer = network.model, network.model.layers[-1]
    u = model.primary(model.features(some_images() / 255)).s.flatten(1, 3)
    votes = F.normalize(layer.norm(layer.votes(u)), dim=-1)[:, :, 2]  # (B, I, K) for class 2
    children = votes.shape[1]
    total = votes.sum(1)
    seen = agreement(network, some_images(), 2)
    for i in (0, 17, children - 1):
        by_hand = (votes[:, i] * (total - votes[:, i])).sum(-1) / (2 * children)
        torch.testing.assert_close(seen.shares[:, i], by_hand)


def test_a_place_on_the_map_is_the_sum_of_its_capsules():
    seen = agreement(small_network(), some_images(), 2)
    groups = 4
    rows, columns = seen.map.shape[1:]
    first = groups * (columns * 1 + 2)  # row 1, column 2
    torch.testing.assert_close(seen.map[:, 1, 2], seen.shares[:, first : first + groups].sum(-1))
    assert seen.rows.shape == (rows,)
    torch.testing.assert_close(seen.places[0, first], torch.stack([seen.columns[2], seen.rows[1]]))


def test_the_strongest_pairs_are_found():
    votes = torch.randn(2, 9, 5)
    agreeing = votes @ votes.transpose(1, 2)
    pairs, strength = strongest_pairs(agreeing, 6)
    for image in range(2):
        every = sorted((agreeing[image, i, k].item(), i, k) for i in range(9) for k in range(i + 1, 9))[::-1]
        assert [tuple(pair) for pair in pairs[image].tolist()] == [(i, k) for _, i, k in every[:6]]
        torch.testing.assert_close(strength[image], torch.tensor([value for value, _, _ in every[:6]]))


def test_fewer_pairs_than_asked_for_are_all_of_them():
    pairs, strength = strongest_pairs(torch.eye(3).unsqueeze(0), 100)
    assert pairs.shape == (1, 3, 2)
    assert strength.shape == (1, 3)


def test_without_pairs_all_else_is_the_same():
    some, none = (agreement(small_network(), some_images(), pairs=count) for count in (5, 0))
    assert none.pairs.shape == (3, 0, 2)
    assert none.map.equal(some.map)


def test_pairs_are_those_of_the_class_that_is_looked_at():
    network = small_network()
    label = torch.tensor([2, 5, 9])
    seen = agreement(network, some_images(), label)
    pairs = trace(network, some_images()).evidence[-1].pairs(label)
    for image in range(3):
        first, second = seen.pairs[image, 0].tolist()
        assert seen.strength[image, 0] == pairs[image, first, second] == pairs[image].triu(1).max()


@pytest.mark.parametrize("build", [small_network, stacked_network])
def test_images_that_are_no_squares(build):
    network = build(size=(28, 52))
    images = torch.randint(0, 256, (2, 1, 28, 52), dtype=torch.uint8)
    seen = agreement(network, images)
    assert seen.map.shape[1:] == (4, 7)
    assert seen.rows.tolist() == [0.5, 8.5, 16.5, 24.5]
    assert seen.columns.tolist() == [0.5 + 8 * place for place in range(7)]
    assert seen.places.shape == (2, seen.shares.shape[1], 2)
    assert seen.places[..., 0].max() > 28 or build is stacked_network


def test_children_of_a_stacked_network_lie_where_their_own_children_do():
    network = stacked_network()
    seen = agreement(network, some_images())
    torch.testing.assert_close(seen.places, trace(network, some_images()).places(2))


def test_the_coupling_of_a_position_is_the_mean_of_its_capsules():
    network = small_network("dynamic")
    seen = agreement(network, some_images(), 3)
    coupling = trace(network, some_images()).coupling(torch.full((3,), 3))
    torch.testing.assert_close(seen.coupling[:, 0, 1], coupling[:, 4:8].mean(-1))


def test_to_look_does_not_change_a_network():
    network = small_network().train()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    seen = agreement(network, some_images())
    assert network.training
    assert all(value.equal(before[name]) for name, value in network.state_dict().items())
    torch.testing.assert_close(seen.activation, network.eval()(some_images()).activation.amax(-1))


def test_half_precision():
    network = small_network().bfloat16()
    seen = agreement(network, (some_images() / 255).bfloat16())
    assert seen.map.isfinite().all()
    assert seen.places.isfinite().all()


@pytest.mark.parametrize(
    ("label", "pairs", "words"),
    [
        (0, -1, "pairs"),
        (torch.zeros(3, 2), 1, "class index"),
        (torch.zeros(3, 2).long(), 1, "one for each of 3 images"),
        (1.7, 1, "class index"),
    ],
)
def test_wrong_arguments_are_refused_in_words(label, pairs, words):
    with pytest.raises((ValueError, TypeError), match=words):
        agreement(small_network(), some_images(), label, pairs)


def test_coupling_is_told_for_routings_that_have_one():
    assert agreement(small_network("fm"), some_images()).coupling is None
    for routing in ("dynamic", "em"):
        seen = agreement(small_network(routing), some_images())
        assert seen.coupling.shape == seen.map.shape
        assert ((seen.coupling >= 0) & (seen.coupling <= 1)).all()


def test_colour_images_and_other_sizes():
    seen = agreement(small_network(size=44, channels=3), some_images(2, 44, 3))
    assert seen.images.shape == (2, 3, 44, 44)
    assert seen.map.shape[1:] == (6, 6)
