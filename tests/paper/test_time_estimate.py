"""How long a training would take: a guess, in proportion."""

import pytest

from paircaps.paper import time_estimate as pace
from paircaps.paper.budget import total_steps
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
