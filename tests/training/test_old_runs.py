"""A run folder that an earlier commit wrote loads and goes on.

``run_of_be29f46`` was written by commit be29f46, before the rooms were moved: a finished run of twelve steps (fp16 with
its scaled loss, averaged weights, Adam, crops and flips) and its checkpoint after eight steps.
"""

import json
import shutil
from pathlib import Path

import pytest

from paircaps import load
from paircaps.data import load_dataset
from paircaps.losses import Loss, Objective
from paircaps.training import evaluate, train
from paircaps.training.run_folder import RunFolder
from paircaps.votes.kernels.native import library_problem

OLD = Path(__file__).parent / "run_of_be29f46"
VIEWS = {True: "flip", False: "none"}
ROWS = [json.loads(line) for line in (OLD / "metrics.jsonl").read_text().splitlines()]


def test_an_old_model_loads_and_has_the_accuracy_that_was_written_down():
    trained = json.loads((OLD / "model.json").read_text())["trained"]
    dataset = load_dataset("glyphs", "test").limit(300)
    assert trained["mirror"] is (RunFolder(OLD).read_recipe().evaluate.views == "flip")
    evaluation = evaluate(Objective(load(OLD), Loss(**trained["loss"])), dataset, views=VIEWS[trained["mirror"]])
    assert evaluation.accuracy == pytest.approx(trained["test_accuracy"], abs=0.02)  # another Matplotlib, other pixels
    assert evaluation.loss == pytest.approx(trained["test_loss"], rel=1e-3)


def test_an_old_run_keeps_the_momentum_of_its_time():
    assert "norm_momentum" not in (OLD / "config.toml").read_text()
    assert RunFolder(OLD).read_recipe().train.norm_momentum == 0.01


def interrupted(folder):
    """The old run as it was before its end."""
    shutil.copytree(OLD, folder)
    for name in ("model.json", "model.safetensors"):
        (folder / name).unlink()
    return folder


@pytest.mark.skipif(library_problem() is not None, reason="no C kernel here")
def test_a_run_of_another_path_goes_on_and_says_so(tmp_path):
    folder = interrupted(tmp_path / "run")
    with pytest.warns(UserWarning, match=r"summed votes by tiles, now 1 of .*, by c \(.*\): it goes on, but not to"):
        train(RunFolder(folder).read_recipe(), folder)
    facts = json.loads((folder / "checkpoints" / "step-00000012" / "state.json").read_text())
    assert facts["kernel"].startswith("c (")


def test_an_old_run_that_was_interrupted_goes_on_to_the_same_end(tmp_path, monkeypatch):
    monkeypatch.setenv("PAIRCAPS_KERNEL", "off")  # there was none
    folder = interrupted(tmp_path / "run")
    result = train(RunFolder(folder).read_recipe(), folder)
    assert result.resumed_at == 8
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    old_lines = (OLD / "metrics.jsonl").read_text().splitlines()
    at_checkpoint = next(number for number, row in enumerate(ROWS) if row["step"] > 8)
    assert lines[:at_checkpoint] == old_lines[:at_checkpoint]
    assert len(lines) == len(ROWS)
    for line, expected in zip(lines[at_checkpoint:], ROWS[at_checkpoint:], strict=True):
        row = json.loads(line)
        assert row.pop("kind") == expected["kind"]
        numbers = {name: value for name, value in expected.items() if name != "kind"}
        old_numbers = {name: row[name] for name in numbers}  # later commits may measure more
        assert old_numbers == pytest.approx(numbers, rel=0.01, abs=0.05)  # half precision on another machine


def test_an_old_run_that_is_finished_is_not_trained_again(tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(OLD, folder)
    result = train(RunFolder(folder).read_recipe(), folder)
    assert result.resumed_at is None
    assert result.trained["test_accuracy"] == 0.17
