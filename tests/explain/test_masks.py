import pytest
import torch
from explain.small import small_network

from paircaps.errors import PaircapsError
from paircaps.explain import find_masks
from paircaps.explain.plots import draw_masks


@pytest.fixture(scope="module")
def network():
    made = small_network(model="caps-segment", size=20, decoder="none", labels=2)
    with torch.no_grad():
        made.model.read.bias.copy_(torch.linspace(-1, 1, 40))
    return made


def test_found_masks_are_those_of_the_most_active_classes(network):
    images = torch.rand(3, 1, 20, 20)
    found = find_masks(network, images)
    capsules, masks = network.segment(images)
    assert torch.equal(found.label, capsules.activation.topk(2).indices)
    for number in range(3):
        for place, label in enumerate(found.label[number]):
            assert torch.equal(found.masks[number, place], masks[number, label] > 0)
    assert found.iou is None


def test_beside_true_masks_those_of_the_true_classes_are_shown(network):
    true = torch.zeros(2, 10, 20, 20)
    true[:, 3, :9], true[:, 7, 5:8] = 1, 1
    found = find_masks(network, torch.rand(2, 1, 20, 20), true)
    assert found.label.tolist() == [[3, 7], [3, 7]]
    both, either = (found.masks & found.true).flatten(1).sum(1), (found.masks | found.true).flatten(1).sum(1)
    assert found.iou.tolist() == pytest.approx((both / either).tolist())
    orange, blue = (torch.tensor(colour) / 255 for colour in ((255, 150, 40), (40, 140, 255)))
    picture = found.true_in_colours()[0]
    torch.testing.assert_close(picture[:, 0, 0], orange)
    torch.testing.assert_close(picture[:, 6, 0], (orange + blue).clamp(0, 1))
    assert picture[:, 15, 0].sum() == 0


def test_a_class_can_be_asked_for(network):
    found = find_masks(network, torch.rand(2, 1, 20, 20), label=torch.tensor([4, 5]))
    assert found.label.tolist() == [[4], [5]]


def test_a_network_without_masks_is_refused():
    with pytest.raises(PaircapsError, match="resnet-caps-small gives no masks"):
        find_masks(small_network(), torch.rand(1, 1, 28, 28))


@pytest.mark.parametrize("known", [True, False])
def test_the_figure_has_a_row_for_true_masks_where_they_are_known(network, known):
    images = torch.rand(2, 1, 20, 20)
    true = torch.ones(2, 10, 20, 20) if known else None
    picture = draw_masks(find_masks(network, images, true), ["a", "b"], network.classes, format="svg", width=640)
    assert (b"true masks" in picture) == known  # Matplotlib writes texts as comments beside their outlines
    assert picture.startswith(b"<?xml")


def test_the_figure_says_which_class_has_which_colour(network):
    """It once said "the first class orange", below a title that named the classes in another order."""
    true = torch.zeros(1, 10, 20, 20)
    true[:, 7, :9], true[:, 3, 5:8] = 1, 1
    found = find_masks(network, torch.rand(1, 1, 20, 20), true)
    picture = draw_masks(found, ["digits 3 and 7"], network.classes, format="svg", width=640)
    assert b"<!-- orange 7 -->" in picture
    assert b"<!-- blue 3 -->" in picture
    found = find_masks(network, torch.rand(1, 1, 20, 20))
    first, second = found.chosen[0].tolist()
    picture = draw_masks(found, ["mine"], network.classes, format="svg", width=640)
    assert f"<!-- orange {first} -->".encode() in picture
    assert f"<!-- blue {second} -->".encode() in picture
