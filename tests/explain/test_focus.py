"""Focus of the agreement: known for maps that are drawn by hand."""

import sys

import pytest
import torch
from explain.small import small_network

from paircaps.explain import focus
from paircaps.explain.agreement import Agreement
from paircaps.explain.focus import shares_of_pixels


def drawn(map_of_shares, images):
    """Agreement with shares that are given, of positions in the middles of equal parts."""
    rows, columns = (
        (torch.arange(count) + 0.5) * side / count
        for count, side in zip(map_of_shares.shape[1:], images.shape[-2:], strict=True)
    )
    nothing = torch.zeros(len(images), 0)
    return Agreement(
        images, torch.zeros(1).long(), nothing, nothing, map_of_shares, None, rows, columns, nothing, nothing, nothing
    )


def test_a_share_is_spread_over_the_pixels_that_are_nearest_to_its_position():
    shares = torch.tensor([[[1.0, -2.0], [3.0, 4.0]]])
    pixels = shares_of_pixels(drawn(shares, torch.zeros(1, 1, 4, 6)))
    assert pixels.shape == (1, 4, 6)
    torch.testing.assert_close(pixels[0, :2, :3], torch.full((2, 3), 1 / 6))
    torch.testing.assert_close(pixels[0, :2, 3:], torch.full((2, 3), 2 / 6))  # against the class counts as well
    torch.testing.assert_close(pixels.sum(), shares.abs().sum())


@pytest.mark.parametrize(
    ("shares", "expected"),
    [
        ([[1.0, 0.0], [0.0, 0.0]], 4.0),  # all of it where the object is, which covers a quarter
        ([[1.0, 1.0], [1.0, 1.0]], 1.0),  # anywhere
        ([[0.0, 1.0], [1.0, 1.0]], 0.0),  # everywhere else
    ],
)
def test_focus_is_the_share_on_the_object_over_its_part_of_the_picture(shares, expected, monkeypatch):
    images = torch.zeros(3, 1, 8, 8)
    images[:, :, :4, :4] = 1
    images[2] = 0  # no object, so nothing to focus on

    def agreement(network, some, labels, pairs):
        return drawn(torch.tensor([shares]).expand(len(some), -1, -1), some)

    monkeypatch.setattr(sys.modules["paircaps.explain.focus"], "agreement", agreement)
    assert focus(None, images, torch.zeros(3).long()) == pytest.approx(expected)


def test_focus_of_a_network_is_a_number():
    network = small_network()
    images = torch.zeros(2, 1, 28, 28, dtype=torch.uint8)
    images[:, :, 8:20, 12:16] = 255
    assert 0 < focus(network, images, torch.tensor([1, 7])) < 28 * 28
