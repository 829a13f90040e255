"""How long a training would take: a guess, in proportion."""

import pytest

from paircaps.experiments import pace
from paircaps.experiments.budget import total_steps
from paircaps.experiments.recipes import load_recipe


def test_twice_the_steps_take_about_twice_as_long(monkeypatch):
    monkeypatch.setattr(pace, "seconds_of_step", lambda recipe: 0.5)
    one, two = (load_recipe("table2-fashion-mnist", {"train": {"epochs": epochs}}) for epochs in (20, 40))
    assert pace.seconds_of(two) == pytest.approx(2 * pace.seconds_of(one), rel=0.02)
    assert 1 < pace.seconds_of(one) / (0.5 * total_steps(one)) < 1.2, "evaluation is a small part"
    mirrored = load_recipe("table2-fashion-mnist", {"train": {"epochs": 20}, "evaluate": {"mirror": True}})
    assert pace.seconds_of(mirrored) > pace.seconds_of(one)


def test_a_limit_makes_it_short(monkeypatch):
    monkeypatch.setattr(pace, "seconds_of_step", lambda recipe: 0.5)
    limited = load_recipe("table3", {"data": {"limit": 256}, "train": {"epochs": 1}})
    assert pace.seconds_of(limited) < 3


@pytest.mark.parametrize("name", ["table3", "table5", "table6", "fig4-cifar10"])
def test_a_step_of_every_kind_can_be_timed(name):
    assert pace.seconds_of_step(load_recipe(name)) > 0
