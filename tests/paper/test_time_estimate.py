"""Time of a training, from that of a step."""

import pytest

from paircaps.paper import time_estimate as room
from paircaps.paper.time_estimate import measure_training_time
from paircaps.paper.training_length import total_steps
from paircaps.training.recipes import load_recipe


def test_what_grows_and_what_does_not(monkeypatch):
    monkeypatch.setattr(room, "measure_step", lambda recipe: 0.5 / recipe.train.batch_size)
    one, two = (load_recipe("table2-fashion-mnist", {"train": {"epochs": epochs}}) for epochs in (20, 40))
    assert measure_training_time(two).growing == pytest.approx(2 * measure_training_time(one).growing)
    assert measure_training_time(two).fixed == pytest.approx(measure_training_time(one).fixed)
    assert 1 < measure_training_time(one).seconds / (0.5 * total_steps(one)) < 1.2, "evaluation is a small part"
    fixed = [
        measure_training_time(load_recipe("table2-fashion-mnist", {"evaluate": {"views": views}})).fixed
        for views in ("none", "flip", "shift", "flip-shift")
    ]
    assert fixed == sorted(set(fixed))


def test_the_many_test_images_of_affnist_are_counted(monkeypatch):
    monkeypatch.setattr(room, "measure_step", lambda recipe: 0.5 / recipe.train.batch_size)
    assert measure_training_time(load_recipe("table3")).fixed > 0.5 * 320_000 / 128 / 3
    assert measure_training_time(load_recipe("table3", {"data": {"limit": 256}, "train": {"steps": 1}})).seconds < 3
