"""What is decided when a run begins: threads, precision, and a length that fits a number of hours."""

from dataclasses import replace

import pytest
import torch

from paircaps.errors import RecipeError, TrainingError
from paircaps.training import resolve as resolving
from paircaps.training import train
from paircaps.training.distributed import Processes
from paircaps.training.recipe import Run, Schedule
from paircaps.training.recipes import load_recipe
from paircaps.training.resolve import (
    MeasuredTimes,
    choose_precision,
    expected_seconds,
    fit_to_hours,
    measure_times,
    resolve,
    set_threads,
    steps_within,
    with_length,
)
from paircaps.training.run_folder import RunFolder
from paircaps.training.schedule import with_length_of

CPU = torch.device("cpu")
SMALL = {
    "train": {"batch_size": 32},
    "data": {"limit": 200},
    "model": {"options": {"widths": [8, 8, 8], "primary_groups": 2}},
    "run": {"threads": 1},
}


def small(**sections):
    return load_recipe("glyphs", {**SMALL, **{name: SMALL.get(name, {}) | values for name, values in sections.items()}})


@pytest.fixture
def threads():
    """PyTorch's number of threads, put back afterwards."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


# --- threads and precision -------------------------------------------------------------------------------------------


def test_auto_takes_the_cores_that_are_free(monkeypatch, threads):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    for before, free, expected in ((4, 2, 2), (2, 4, 2), (4, 1, 1)):
        torch.set_num_threads(before)
        monkeypatch.setattr(resolving, "free_cores", lambda free=free: free)
        for setting in ("auto", 0):
            set_threads(Run(threads=setting))
            assert torch.get_num_threads() == expected


def test_a_number_of_threads_that_the_user_chose_counts(monkeypatch, threads):
    monkeypatch.setattr(resolving, "free_cores", lambda: 1)
    set_threads(Run(threads=3))
    assert torch.get_num_threads() == 3
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    set_threads(Run())
    assert torch.get_num_threads() == 3


def test_a_resume_takes_as_many_threads_as_before(monkeypatch, threads, tmp_path):
    # else a machine that is busier than it was would give other bits
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    torch.set_num_threads(4)
    monkeypatch.setattr(resolving, "free_cores", lambda: 2)
    recipe = small(train={"steps": 2}, run={"threads": "auto"})
    train(recipe, tmp_path / "run")
    (tmp_path / "run" / "model.json").unlink()  # not finished any more
    monkeypatch.setattr(resolving, "free_cores", lambda: 1)
    assert train(recipe, tmp_path / "run").trained["machine"]["threads"] == 2


def test_a_training_leaves_the_number_of_threads_alone(monkeypatch, threads, tmp_path):
    # else a next one in this process, as of `paircaps reproduce`, could never take more than this one
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    torch.set_num_threads(4)
    recipe = small(train={"steps": 1}, run={"threads": "auto"})
    for free in (1, 2):
        monkeypatch.setattr(resolving, "free_cores", lambda free=free: free)
        assert train(recipe, tmp_path / str(free)).trained["machine"]["threads"] == free
        assert torch.get_num_threads() == 4


@pytest.mark.parametrize(("fast", "expected"), [(True, "bf16"), (False, "fp32")])
def test_auto_is_bfloat16_where_the_processor_multiplies_it(monkeypatch, fast, expected):
    monkeypatch.setattr(resolving, "has_fast_bfloat16", lambda: fast)
    assert choose_precision(CPU) == expected
    assert choose_precision(torch.device("mps")) == "fp32"


def test_a_run_keeps_the_precision_it_began_with(monkeypatch, tmp_path):
    monkeypatch.setattr(resolving, "has_fast_bfloat16", lambda: False)
    recipe = small(train={"steps": 1, "precision": "auto"})
    train(recipe, tmp_path / "run")
    folder = RunFolder(tmp_path / "run")
    assert folder.read_recipe().train.precision == "fp32"
    monkeypatch.setattr(resolving, "has_fast_bfloat16", lambda: True)
    assert train(recipe, tmp_path / "run").resumed_at is None, "the same run, which is finished"
    train(recipe, tmp_path / "run", fresh=True)
    assert folder.read_recipe().train.precision == "bf16"


# --- hours -----------------------------------------------------------------------------------------------------------


def test_steps_validations_and_test_fill_the_time():
    times = MeasuredTimes(step=0.5, validation=3.0, test=10.0)
    steps = steps_within(1000, times, per_epoch=20, every=2)
    assert expected_seconds(steps, times, 20, 2) <= 1000
    assert expected_seconds(steps + 40, times, 20, 2) > 1000, "another two epochs would not fit"
    assert steps_within(12, times, 20, 2) == 0


def test_a_length_is_whole_epochs_or_else_steps():
    recipe = small(train={"epochs": 10}, schedule={"name": "drops", "drops": [5, 8], "warm_up": 1})
    longer = with_length(recipe, 417, per_epoch=20)
    assert (longer.train.epochs, longer.train.steps) == (20, None)
    assert (longer.schedule.drops, longer.schedule.warm_up) == ((10, 16), 2)
    shorter = with_length(recipe, 15, per_epoch=20)
    assert (shorter.train.epochs, shorter.train.steps) == (None, 15)
    assert shorter.schedule.drops == pytest.approx((5 * 15 / 200, 8 * 15 / 200))


def test_times_are_those_of_real_steps_and_leave_the_random_numbers_alone():
    torch.manual_seed(3)
    first = torch.rand(1)
    torch.manual_seed(3)
    times = measure_times(small(train={"epochs": 1}), resolving.load_datasets(small().data), CPU)
    assert torch.rand(1) == first
    assert 0 < times.step < 60
    assert 0 < times.validation < times.test


def test_the_share_of_a_process_need_not_divide_into_the_parts_of_a_batch(monkeypatch):
    monkeypatch.setattr(resolving, "_TIMED_SECONDS", 0.0)
    recipe = small(train={"epochs": 1, "batch_size": 36, "accumulate": 4})
    assert measure_times(recipe, resolving.load_datasets(recipe.data), CPU, world_size=2).step > 0


def test_every_timed_step_has_a_batch_of_its_own(monkeypatch):
    # batches that are kept and taken again would cost memory, and no time for their augmentation
    monkeypatch.setattr(resolving, "_FEWEST_STEPS", 12)
    monkeypatch.setattr(resolving, "_TIMED_SECONDS", 0.0)
    seen, step = [], resolving.Stepper.__call__

    def noted(stepper, batch, *arguments):
        seen.append(batch)
        return step(stepper, batch, *arguments)

    monkeypatch.setattr(resolving.Stepper, "__call__", noted)
    recipe = small(train={"epochs": 1})  # of 5 batches
    measure_times(recipe, resolving.load_datasets(recipe.data), CPU)
    assert len({id(batch) for batch in seen}) == len(seen) == 13


def test_a_training_within_hours_says_what_it_expects(monkeypatch):
    monkeypatch.setattr(resolving, "measure_times", lambda *_: MeasuredTimes(0.5, 3.0, 10.0))
    fitted, sentence = fit_to_hours(small(train={"epochs": 1}), 0.1, CPU)
    # 180 images to train on, 5 steps an epoch: 0.97 · 360 − 13 s, of which an epoch takes 2.5 + 3
    assert fitted.train.epochs == 61
    assert "--hours 0.1: 61 epochs at 64 images/s, as measured now, take 0:0" in sentence
    with pytest.raises(
        RecipeError, match=r"--hours: 0.001 is too little: a step takes 0.5 s, and validation and test 13"
    ):
        fit_to_hours(small(), 0.001, CPU)


def test_a_run_that_has_begun_keeps_its_length(monkeypatch, tmp_path):
    monkeypatch.setattr(resolving, "measure_times", lambda *_: MeasuredTimes(1.0, 0.5, 1.0))
    recipe = small(schedule={"name": "one-cycle", "warm_up": 0.3})
    result = train(recipe, tmp_path / "run", hours=12 / 3600)
    length = RunFolder(tmp_path / "run").read_recipe().train
    assert (length.epochs, result.trained["steps"]) == (1, 5)
    monkeypatch.setattr(resolving, "measure_times", lambda *_: pytest.fail("measured again"))
    assert train(recipe, tmp_path / "run", hours=12 / 3600).resumed_at is None
    begun = RunFolder(tmp_path / "run").read_recipe()
    again, _ = resolve(recipe, begun, CPU, 5.0, Processes(), quiet=True)
    assert (again.train.epochs, again.schedule) == (begun.train.epochs, begun.schedule)
    other = small(schedule={"name": "cosine", "warm_up": 0})
    with pytest.raises(TrainingError, match=r"schedule.name: \"one-cycle\" there, \"cosine\" here"):
        train(other, tmp_path / "run", hours=12 / 3600)


def test_a_run_that_has_begun_keeps_only_what_was_stretched():
    given = Schedule("drops", drops=(5, 8), warm_up=1, factor=0.2)
    begun = Schedule("drops", drops=(10, 16), warm_up=2, factor=0.1)
    assert with_length_of(given, begun) == replace(begun, factor=0.2)
    cycle = Schedule("one-cycle", warm_up=0.3)
    assert with_length_of(cycle, Schedule("one-cycle", warm_up=0.5)) == cycle


def test_schedules_in_epochs_are_stretched_and_others_stay():
    recipe = replace(small(train={"epochs": 4}), schedule=Schedule("trapezoid", warm_up=1, cool_down=0.5))
    stretched = with_length(recipe, 160, per_epoch=20).schedule
    assert (stretched.warm_up, stretched.cool_down) == (2, 0.5)
