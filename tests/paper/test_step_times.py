"""Time of a training step: measured and kept, or estimated."""

import json

import pytest
import torch

from paircaps.paper import step_times as room
from paircaps.paper.network_size import known_multiplications
from paircaps.paper.step_times import StepTimes, convolution_rate, keep_step_time, keep_training_speed, measure_step
from paircaps.paper.time_estimate import measure_training_time
from paircaps.training.recipes import load_recipe

pytestmark = pytest.mark.usefixtures("no_data")


@pytest.fixture
def slow(monkeypatch):
    """A machine of a billion multiplications a second."""
    monkeypatch.setattr(room, "convolution_rate", lambda device: 1e9)


@pytest.mark.parametrize("name", ["table3", "table5", "table6", "fig4-cifar10"])
def test_a_step_of_every_kind_can_be_timed(name):
    assert measure_step(load_recipe(name)) > 0


def test_a_step_is_timed_in_the_precision_that_the_training_will_choose(monkeypatch):
    seen, build = [], room.build_objective
    monkeypatch.setattr(room, "build_objective", lambda recipe, *rest: seen.append(recipe) or build(recipe, *rest))
    monkeypatch.setattr(room, "choose_precision", lambda device: "bf16")
    measure_step(load_recipe("table6"))
    measure_step(load_recipe("table6", {"train": {"precision": "fp32"}}))
    assert [recipe.train.precision for recipe in seen] == ["bf16", "fp32"]


@pytest.mark.usefixtures("slow")
def test_what_was_measured_is_kept_and_the_rest_is_estimated():
    estimate = StepTimes().find("table3", "fm")
    assert estimate.measured == ""
    assert estimate.seconds == pytest.approx(3 * known_multiplications()["table3"]["fm"] / 0.6e9)
    keep_step_time("table3/fm", 0.25)
    keep_step_time("table3/em", 0.5)
    times = StepTimes()
    assert [times.find("table3", name).seconds for name in ("fm", "em")] == [0.25, 0.5]
    assert times.find("table3", "fm").measured
    assert times.find("table3", "pool").measured == ""


@pytest.mark.usefixtures("slow")
def test_a_measured_training_leaves_the_time_of_its_step(monkeypatch):
    monkeypatch.setattr("paircaps.paper.time_estimate.measure_step", lambda recipe: 0.125)
    recipe = load_recipe("table3")
    measure_training_time(recipe)
    assert StepTimes().find("table3", "fm").measured == ""
    measure_training_time(recipe, "table3/fm")
    assert StepTimes().find("table3", "fm").seconds == 0.125


@pytest.mark.usefixtures("slow")
def test_times_of_another_machine_are_not_taken(monkeypatch):
    keep_step_time("table3/fm", 0.25)
    here = room.machine_key()
    monkeypatch.setattr(room, "machine_key", lambda: "another")
    assert StepTimes().find("table3", "fm").measured == ""
    keep_step_time("table3/fm", 4.0)
    monkeypatch.setattr(room, "machine_key", lambda: here)
    assert StepTimes().find("table3", "fm").seconds == 0.25, "and both are kept"


@pytest.mark.usefixtures("slow")
@pytest.mark.parametrize("text", ["", "{", "[]", "null", "entry of text", "entry without a date", "seconds of nothing"])
def test_a_damaged_file_is_as_none(text):
    keep_step_time("table3/fm", 0.25)
    file = room._cache_file()
    entries = {
        "entry of text": "0.25",
        "entry without a date": {"seconds_per_image": 1},
        "seconds of nothing": {"seconds_per_image": None, "date": "2026-01-31"},
    }
    file.write_text(json.dumps({room.machine_key(): {"table3/fm": entries[text]}}) if text in entries else text)
    assert StepTimes().find("table3", "fm").measured == ""
    keep_step_time("table3/fm", 0.5)
    assert StepTimes().find("table3", "fm").seconds == 0.5


def test_a_cache_that_cannot_be_written_is_done_without(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(room, "user_cache", lambda: tmp_path / "file")
    keep_step_time("table3/fm", 0.25)
    assert (tmp_path / "file").read_text() == ""


@pytest.mark.usefixtures("slow")
def test_the_speed_of_a_training_is_kept(tmp_path):
    timing = tmp_path / "timing.jsonl"
    keep_training_speed("table3/fm", timing)  # there is none
    timing.write_text('{"time": 1.0, "start": 0}\n{"time": 1.0, "step": 50, "images_per_second": 9.0}\n')
    keep_training_speed("table3/fm", timing)  # of a training of a few steps
    assert StepTimes().find("table3", "fm").measured == ""
    speeds = [100.0, 500.0, 400.0]
    timing.write_text("".join(f'{{"time": 1.0, "step": 50, "images_per_second": {speed}}}\n' for speed in speeds))
    keep_training_speed("table3/fm", timing)
    assert StepTimes().find("table3", "fm").seconds == 1 / 400


def test_the_speed_of_this_machine():
    threads = torch.get_num_threads()
    one = convolution_rate(torch.device("cpu"))
    assert 1e8 < one < 1e14
    assert torch.get_num_threads() == threads


def test_the_speed_of_this_machine_does_not_depend_on_what_else_it_does(monkeypatch):
    # beside ten other processes, the time on the clock used to make it thirty times as slow
    ticks = iter(range(0, 10**9, 3600))
    monkeypatch.setattr(room.time, "perf_counter", lambda: float(next(ticks)))
    assert convolution_rate(torch.device("cpu")) > 1e8
