"""Pictures can be opened, show what they should, and are as large as what is in them."""

import io
import re

import numpy as np
import pytest
import torch
from explain.small import DIGITS, small_network, some_images, stacked_network
from PIL import Image

from paircaps._utils.figures import as_png, new_figure
from paircaps.data.synthetic.poses import POSE
from paircaps.explain import agreement, dimension_ranges, perturb, reconstruct, tree
from paircaps.explain.plots import (
    draw_agreement,
    draw_equivariance,
    draw_perturbation,
    draw_reconstruction,
    draw_tree,
)
from paircaps.explain.plots.panels import overlay, shortened, show
from paircaps.explain.plots.tree import _in_short

NAMES = ["one.png", "two", "a name that is far too long to be shown whole.jpeg"]


def opened(content):
    picture = Image.open(io.BytesIO(content))
    picture.load()
    assert picture.format == "PNG"
    return picture.convert("RGB")


def coloured(picture, colour, near=60):
    """Pixels of about that colour."""
    pixels = np.asarray(picture).astype(int)
    return int((np.abs(pixels - np.array(colour)).sum(-1) < near).sum())


def dark_columns(picture):
    """Width of the first panel of images, in pixels of the middle row."""
    row = np.asarray(picture).astype(int)[picture.height // 2].min(-1) < 250
    begin = int(row.argmax())
    return int((~row[begin:]).argmax())


def test_numbers_of_leaves_at_one_place_are_told_in_short():
    # "2 · 3 · 4" of many leaves ran over those of the place beside them
    assert [_in_short(numbers) for numbers in ([5], [2, 3, 4], [1, 3, 7, 8])] == ["5", "2–4", "1 · 3 · 7–8"]


@pytest.mark.parametrize("routing", ["fm", "dynamic", "em"])
def test_agreement(routing):
    seen = agreement(small_network(routing), some_images())
    one = opened(draw_agreement(agreement(small_network(routing), some_images(1)), NAMES[:1], DIGITS))
    three = opened(draw_agreement(seen, NAMES, DIGITS))
    assert three.size == one.size == (1920, 1080)
    assert coloured(three, (255, 122, 24)) > 50, "lines between pairs"


def test_couplings_have_a_column_of_their_own():
    with_coupling, without = (
        opened(draw_agreement(agreement(small_network(routing), some_images(1)), NAMES[:1], DIGITS))
        for routing in ("dynamic", "fm")
    )
    assert dark_columns(with_coupling) < 0.9 * dark_columns(without), "four panels are smaller than three"


def test_what_speaks_for_a_class_is_orange_and_what_speaks_against_it_blue_where_it_is():
    figure = new_figure(2, 2)
    figure.set_layout_engine("none")
    axis = figure.add_axes((0, 0, 1, 1))
    show(axis, torch.zeros(1, 40, 40))
    values = torch.zeros(5, 5)
    values[1, 0], values[3, 4] = 1.0, -1.0
    middles = torch.arange(5) * 8 + 4.0
    overlay(axis, values, middles, middles, 1.0)
    pixels = np.asarray(opened(as_png(figure))).astype(int)
    side = len(pixels)
    orange, blue = pixels[int(0.3 * side), int(0.1 * side)], pixels[int(0.7 * side), int(0.9 * side)]
    assert orange[0] > 120 > orange[2]
    assert blue[2] > 120 > blue[0]
    assert pixels[side // 2, side // 2].sum() < 30, "where nothing speaks, the picture stays as it is"


def test_reconstruction_of_one_and_of_many_and_of_two_digits():
    for count in (1, 3, 11):
        names = [str(number) for number in range(count)]
        opened(draw_reconstruction(reconstruct(small_network(), some_images(count)), names, DIGITS))
    seen = reconstruct(small_network(labels=2), some_images())
    picture = opened(draw_reconstruction(seen, NAMES, DIGITS))
    assert coloured(picture, (255, 150, 40), 160) + coloured(picture, (40, 140, 255), 160) > 100


def test_perturbation_has_a_row_a_dimension_and_marks_its_own_value():
    network = small_network()
    reach = dimension_ranges(network, some_images(40))
    picture = opened(draw_perturbation(perturb(network, some_images(1), reach), 0, NAMES[2], "7"))
    assert coloured(picture, (255, 122, 24)) > 16 * 50
    few = opened(draw_perturbation(perturb(network, some_images(1), reach), 0, NAMES[2], "7", dimensions=[6, 2]))
    assert 0 < coloured(few, (255, 122, 24)) < 0.5 * coloured(picture, (255, 122, 24)), "two frames, larger ones"


@pytest.mark.parametrize("dimensions", [[], [16], [-1], [*range(16), 0]])
def test_dimensions_that_are_not_there_are_refused(dimensions):
    network = small_network()
    seen = perturb(network, some_images(1), dimension_ranges(network, some_images(40)))
    with pytest.raises(ValueError, match="dimensions must be 1 to 16 numbers from 0 to 15"):
        draw_perturbation(seen, 0, "x", "7", dimensions=dimensions)


def test_of_many_dimensions_sixteen_are_shown():
    pictures = []
    for network in (small_network(), small_network(model="resnet-pool-small")):
        seen = perturb(network, some_images(1), dimension_ranges(network, some_images(40)))
        pictures.append(opened(draw_perturbation(seen, 0, "x", "7")))
    assert pictures[0].size == pictures[1].size


def test_every_figure_can_be_any_format_and_grows_as_a_whole():
    seen = agreement(small_network(), some_images(1))
    for width, inches in ((1920, 40 / 3), (960, 20 / 3)):
        png = Image.open(io.BytesIO(draw_agreement(seen, ["x"], DIGITS, width=width)))
        assert png.size == (width, width * 9 // 16)
        assert png.info["dpi"] == pytest.approx((144, 144), rel=1e-3)
        svg = draw_agreement(seen, ["x"], DIGITS, format="svg", width=width).decode()
        assert f'width="{72 * inches:.6g}pt" height="{72 * inches * 9 / 16:.6g}pt" viewBox="0 0 960 540"' in svg
        assert svg == draw_agreement(seen, ["x"], DIGITS, format="svg", width=width).decode(), "the same each time"
        pdf = draw_agreement(seen, ["x"], DIGITS, format="pdf", width=width)
        left, bottom, *corner = map(float, re.search(rb"/MediaBox \[ (.*?) \]", pdf)[1].split())
        assert (left, bottom, *corner) == pytest.approx((0, 0, 72 * inches, 72 * inches * 9 / 16))
    with pytest.raises(ValueError, match="format must be"):
        draw_agreement(seen, ["x"], DIGITS, format="gif")


@pytest.mark.parametrize("build", [small_network, stacked_network])
def test_tree(build):
    picture = opened(draw_tree(tree(build(), some_images(1)[0]), NAMES[2], "a class with a very long name indeed"))
    assert coloured(picture, (255, 122, 24), 120) + coloured(picture, (47, 143, 255), 120) > 100


def test_colour_images_and_images_of_two_channels():
    for channels in (2, 3):
        network = small_network(channels=channels)
        images = some_images(1, channels=channels)
        opened(draw_agreement(agreement(network, images), ["x"], DIGITS))
        opened(draw_reconstruction(reconstruct(network, images), ["x"], DIGITS))


def test_equivariance():
    row = {"name": "fm", "r2": dict.fromkeys(POSE, 0.5), "curves": {kind: [(0.0, 1.0), (1.0, 0.5)] for kind in POSE}}
    low = {**row, "name": "em", "r2": dict.fromkeys(POSE, -3.0)}
    picture = opened(draw_equivariance({"networks": [row, low], "data": {"name": "affine-glyphs"}}))
    assert picture.width > 1000


def test_names_are_shortened_in_the_middle():
    assert shortened("short") == "short"
    assert len(shortened("a" * 100, 18)) == 18
    assert shortened("beginning-and-the-end.png", 15).endswith("end.png")


def test_agreement_without_pairs():
    opened(draw_agreement(agreement(small_network(), some_images(1), pairs=0), NAMES[:1], DIGITS))
