import pytest
import torch
from explain.small import small_network, some_images

from paircaps._utils.colours import DIGITS, one_colour_each
from paircaps.errors import PaircapsError
from paircaps.explain import Reconstruction, reconstruct


def test_what_is_redrawn_is_what_the_network_redraws():
    network = small_network()
    seen = reconstruct(network, some_images())
    torch.testing.assert_close(seen.drawings[:, 0], network.reconstruct(some_images()))
    torch.testing.assert_close(seen.images, some_images() / 255)
    assert seen.label.squeeze(-1).tolist() == network.classify(some_images()).tolist()
    by_hand = (seen.drawings[:, 0] - seen.images).square().flatten(1).sum(1)
    torch.testing.assert_close(seen.error, by_hand)


def test_a_named_class_is_drawn():
    network = small_network(decoder="dense")
    seen = reconstruct(network, some_images(), 6)
    label = torch.full((3,), 6)
    torch.testing.assert_close(seen.drawings[:, 0], network.reconstruct(some_images(), label))


def test_two_digits_are_drawn_apart_and_in_two_colours():
    network = small_network(labels=2)
    seen = reconstruct(network, some_images())
    assert seen.drawings.shape == (3, 2, 1, 28, 28)
    assert seen.label.tolist() == network(some_images()).activation.topk(2).indices.tolist()
    assert seen.in_colours().shape == (3, 3, 28, 28)


def test_each_digit_has_its_colour():
    parts = torch.zeros(1, 2, 1, 1, 3)
    parts[0, 0, 0, 0, 0] = parts[0, 1, 0, 0, 1] = 1
    parts[0, :, 0, 0, 2] = 1
    coloured = (one_colour_each(parts)[0, :, 0] * 255).round().int()  # (3, W)
    orange, blue = ([int(code[at : at + 2], 16) for at in (1, 3, 5)] for code in DIGITS[:2])
    assert coloured[:, 0].tolist() == orange
    assert coloured[:, 1].tolist() == blue
    assert (coloured[:, 2] >= torch.tensor([255, 255, 255])).all(), "white where both are"


def test_one_digit_stays_grey_and_colours_stay_colours():
    assert reconstruct(small_network(), some_images()).in_colours().shape == (3, 1, 28, 28)
    colour = small_network(channels=3)
    assert reconstruct(colour, some_images(channels=3)).in_colours().shape == (3, 3, 28, 28)


def test_a_network_without_a_decoder_is_refused_in_words():
    with pytest.raises(PaircapsError, match="trained without a decoder"):
        reconstruct(small_network(decoder="none"), some_images())


def test_drawings_that_meet_are_as_bright_as_an_image_can_be():
    drawings = torch.full((1, 2, 1, 2, 2), 0.8)
    seen = Reconstruction(torch.ones(1, 1, 2, 2), torch.tensor([[1, 2]]), drawings, torch.zeros(1, 10))
    assert seen.error.item() == 0
