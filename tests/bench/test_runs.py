"""Accuracy and time of finished trainings."""

import json
import shutil

import pytest

from paircaps.bench.runs import as_markdown, bench_runs, draw_runs, minutes_by_step, read_run
from paircaps.errors import TrainingError
from paircaps.training import train
from paircaps.training.recipes import load_recipe

SMALL = {
    "train": {"epochs": 2, "batch_size": 32, "log_every": 2, "precision": "fp32"},
    "data": {"limit": 120},
    "model": {"options": {"widths": [8, 8, 8], "primary_groups": 2}},
    "evaluate": {"settle": 1, "views": "flip"},
    "run": {"threads": 1},
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Two seeds of one recipe, and a pooling network."""
    out = tmp_path_factory.mktemp("runs")
    for name, changes in {"a": {}, "b": {"train": {"seed": 1}}, "c": {"model": {"name": "resnet-pool-small"}}}.items():
        sections = {section: values | changes.get(section, {}) for section, values in SMALL.items()}
        train(load_recipe("glyphs", sections), out / name)
    return [out / name for name in "cab"]


def test_minutes_leave_out_pauses_and_steps_that_were_lost():
    timing = [
        {"time": 1000, "start": 0},
        {"time": 1060, "step": 10},
        {"time": 1180, "step": 20},
        {"time": 9000, "start": 10},  # from the checkpoint of step 10, a day later
        {"time": 9060, "step": 20},
        {"time": 9120, "step": 30},
    ]
    assert minutes_by_step(timing) == {10: 1, 20: 2, 30: 3}
    assert minutes_by_step([]) == {}


def test_numbers_are_those_of_the_folder(folders):
    run = read_run(folders[1])
    rows = [json.loads(line) for line in (folders[1] / "metrics.jsonl").read_text().splitlines()]
    test = rows[-1]
    assert run.accuracy == 100 * test["accuracy"]
    assert run.plain_accuracy == 100 * test["plain_accuracy"]
    epochs = [row for row in rows if row["kind"] == "epoch"]
    assert [value for _, value in run.curve] == [100 * row["validation_accuracy"] for row in epochs]
    start = json.loads((folders[1] / "timing.jsonl").read_text().splitlines()[0])
    assert run.commit == start["machine"]["commit"], "the code that was loaded, not what is checked out at the end"
    assert 0 < run.curve[0][0] <= run.curve[1][0] <= run.minutes


def test_seeds_of_one_recipe_share_a_row(folders):
    result = bench_runs(folders)
    rows = [line for line in as_markdown(result).splitlines() if line.startswith("| glyphs")]
    assert len(rows) == 2
    fm = next(row for row in rows if "resnet-caps-small, fm" in row)
    accuracies = [run["accuracy"] for run in result["runs"] if "caps" in run["network"]]
    assert f"| 0, 1 | {sum(accuracies) / 2:.2f} ± " in fm
    assert "fm" not in next(row for row in rows if "resnet-pool-small" in row)
    assert draw_runs(result).startswith(b"\x89PNG")


def test_a_training_that_is_not_finished_is_refused(folders, tmp_path):
    (tmp_path / "metrics.jsonl").write_text("")
    with pytest.raises(TrainingError, match="no finished training"):
        read_run(tmp_path)
    with pytest.raises(TrainingError, match="no such folder"):
        bench_runs([tmp_path / "nowhere"])


def test_metrics_without_a_test_are_a_sentence(folders, tmp_path):
    damaged = shutil.copytree(folders[0], tmp_path / "run")
    (damaged / "metrics.jsonl").write_text("")
    with pytest.raises(TrainingError, match=r"metrics.jsonl: has no row of a test"):
        read_run(damaged)
