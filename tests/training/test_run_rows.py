"""Rows of metrics and times, read back."""

import pytest

from paircaps.errors import TrainingError
from paircaps.training.run_rows import read_rows, read_timing, require_numbers, training_seconds


def test_seconds_leave_out_pauses_and_steps_that_were_lost():
    timing = [
        {"time": 1000, "start": 0},
        {"time": 1060, "step": 10},
        {"time": 1180, "step": 20},
        {"time": 9000, "start": 10},  # from the checkpoint of step 10, a day later
        {"time": 9060, "step": 20},
        {"time": 9120, "step": 30},
    ]
    seconds = training_seconds(timing)
    assert seconds.by_step == {10: 60, 20: 120, 30: 180}
    assert seconds.total == 180
    assert training_seconds(timing[:4]).total == 60, "what was done after the checkpoint is gone"
    assert training_seconds([]) is None
    assert training_seconds(timing[:1]) is None


def test_a_resume_between_two_rows_goes_on_in_proportion():
    timing = [{"time": 0, "start": 0}, {"time": 100, "step": 10}, {"time": 500, "start": 5}, {"time": 560, "step": 10}]
    assert training_seconds(timing).by_step == {10: 110}


def test_the_end_counts_and_a_step_keeps_its_own_time():
    timing = [{"time": 0, "start": 0}, {"time": 10, "step": 5}, {"time": 14, "end": 5}]
    seconds = training_seconds(timing)
    assert (seconds.total, seconds.by_step) == (14, {5: 10}), "the test comes after the last step"
    stopped = training_seconds([{"time": 0, "start": 0}, {"time": 14, "end": 7}])
    assert (stopped.total, stopped.at(7)) == (14, 14), "a training that was shorter than a row"


def test_seconds_between_rows_are_in_proportion():
    seconds = training_seconds([{"time": 0, "start": 0}, {"time": 10, "step": 5}, {"time": 30, "step": 15}])
    assert [seconds.at(step) for step in (0, 1, 5, 10, 15, 99)] == [0, 2, 10, 20, 30, 30]


def test_a_line_that_grows_is_left_out_and_a_damaged_one_is_not(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"kind": "step", "step": 1}\n{"kind": "st')
    assert read_rows(path, is_growing=True) == [{"kind": "step", "step": 1}]
    with pytest.raises(TrainingError, match=r"metrics.jsonl: is damaged: a line of it is not JSON"):
        read_rows(path)
    path.write_text('{"kind": "st\n{"kind": "step"}\n')
    with pytest.raises(TrainingError, match="is damaged"):
        read_rows(path, is_growing=True)
    path.write_text("")
    assert read_rows(path) == []
    with pytest.raises(TrainingError, match="No such file"):
        read_rows(tmp_path / "other")


@pytest.mark.parametrize(
    "row", ["3", '{"time": 1}', '{"time": true, "step": 1}', '{"start": 0}', '{"time": 1, "step": "x"}']
)
def test_a_row_of_times_has_a_time_and_a_step(tmp_path, row):
    path = tmp_path / "timing.jsonl"
    path.write_text(f'{{"time": 1.5, "start": 0}}\n{row}\n')
    with pytest.raises(TrainingError, match="no row of times"):
        read_timing(path)


@pytest.mark.parametrize("value", [None, "1", True, -1, 1.5, float("nan")])
def test_an_accuracy_is_a_share(value):
    require_numbers({"kind": "test", "accuracy": 1, "loss": 7.0}, {"test": ("accuracy",)}, ("loss", "other"))
    with pytest.raises(ValueError, match="accuracy"):
        require_numbers({"kind": "test", "accuracy": value}, {"test": ("accuracy",)})
