"""Sizes of networks, without their data."""

import pytest

from paircaps.paper.shapes import images_like, parameters_of
from paircaps.training.recipes import load_recipe


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("table2-fashion-mnist", (903_472, 0)),
        ("table2-cifar10", (903_760, 0)),
        ("table3", (195_376, 186_145)),
        ("table5", (292_592, 163_041)),
        ("table6", (196_720, 0)),
        ("fig4-cifar10", (1_002_816, 0)),
    ],
)
def test_the_paper_s_numbers_of_parameters(name, sizes):
    assert parameters_of(load_recipe(name)) == sizes


def test_noise_has_the_shape_of_the_images():
    assert images_like(load_recipe("table6"), 3).shape == (1, 32, 32), "the crop"
    assert images_like(load_recipe("table5"), 3).batch([0]).extras["originals"].shape == (1, 2, 1, 36, 36)
