"""What a training costs: size of its network, and time."""

import pytest

from paircaps.paper import time_estimate as pace
from paircaps.paper.time_estimate import images_like, parameters_of
from paircaps.paper.training_length import total_steps
from paircaps.training.recipes import load_recipe


def test_what_grows_and_what_does_not(monkeypatch):
    monkeypatch.setattr(pace, "seconds_of_step", lambda recipe: 0.5)
    one, two = (load_recipe("table2-fashion-mnist", {"train": {"epochs": epochs}}) for epochs in (20, 40))
    assert pace.pace_of(two).growing == pytest.approx(2 * pace.pace_of(one).growing)
    assert pace.pace_of(two).fixed == pytest.approx(pace.pace_of(one).fixed)
    assert 1 < pace.pace_of(one).seconds / (0.5 * total_steps(one)) < 1.2, "evaluation is a small part"
    mirrored = load_recipe("table2-fashion-mnist", {"train": {"epochs": 20}, "evaluate": {"mirror": True}})
    assert pace.pace_of(mirrored).fixed > pace.pace_of(one).fixed


def test_the_many_test_images_of_affnist_are_counted(monkeypatch):
    monkeypatch.setattr(pace, "seconds_of_step", lambda recipe: 0.5)
    assert pace.pace_of(load_recipe("table3")).fixed > 0.5 * 320_000 / 128 / 3
    assert pace.pace_of(load_recipe("table3", {"data": {"limit": 256}, "train": {"steps": 1}})).seconds < 3


@pytest.mark.parametrize("name", ["table3", "table5", "table6", "fig4-cifar10"])
def test_a_step_of_every_kind_can_be_timed(name):
    assert pace.seconds_of_step(load_recipe(name)) > 0


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
