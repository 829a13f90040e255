"""A run as a comparison sees it."""

import json

import pytest
from training.compare.conftest import OLD

from paircaps.errors import ModelFileError, PaircapsError, TrainingError
from paircaps.training.compare import read_run


def test_a_run_of_an_earlier_version_is_read():
    run = read_run("old", OLD)
    assert (run.is_finished, run.data, run.note, run.parameters, run.step, run.steps) == (
        True,
        "glyphs",
        "",
        6016,
        12,
        12,
    )
    assert (run.accuracy, run.plain_accuracy, run.loss) == (0.17, 0.15333333333333332, 2.27757448832194)
    assert (run.validation_accuracy, run.validation_loss) == (0.13333333333333333, 2.283652750651042)
    assert (run.threads, run.commit, run.loss_name) == (1, "be29f46", "cross-entropy")
    assert run.seconds.total == pytest.approx(7.931, abs=1e-3)


def test_validation_is_that_of_the_weights_that_were_tested(make_run):
    folder = make_run("a")
    rows = (folder / "metrics.jsonl").read_text().replace('"weights_of_step": 12', '"weights_of_step": 8')
    (folder / "metrics.jsonl").write_text(rows)
    assert read_run("a", folder).validation_accuracy == 0.1


def test_an_unfinished_run_has_what_it_has_so_far(make_run):
    run = read_run("a", make_run("a", finished=False))
    assert (run.is_finished, run.accuracy, run.loss, run.parameters, run.note) == (False, None, None, None, None)
    assert (run.step, run.steps, run.validation_accuracy) == (9, 12, 0.1)
    assert run.seconds.total == pytest.approx(6.141, abs=1e-3)


def test_a_run_that_has_just_begun_has_nothing_yet(make_run):
    folder = make_run("a", finished=False)
    (folder / "metrics.jsonl").unlink()
    (folder / "timing.jsonl").write_text('{"time": 5.0, "start": 0}\n')
    run = read_run("a", folder)
    assert (run.step, run.steps, run.validation_accuracy, run.seconds, run.threads, run.commit) == (
        *(0, None, None, None, None),
        "",
    )


def test_a_row_that_is_being_written_is_left_out(make_run):
    folder = make_run("a", finished=False)
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"kind": "step", "st')
    assert read_run("a", folder).step == 9


def test_a_step_that_was_not_finite_is_told(make_run):
    folder = make_run("a", finished=False)
    (folder / "failure").mkdir()
    assert read_run("a", folder).has_failed


def test_every_start_names_its_commit_once(make_run):
    folder = make_run("a")
    with (folder / "timing.jsonl").open("a") as file:
        for commit in ("be29f46", "1234567"):
            file.write(json.dumps({"time": 99.0, "start": 12, "machine": {"commit": commit, "threads": 3}}) + "\n")
    run = read_run("a", folder)
    assert (run.commit, run.threads) == ("be29f46 and 1234567", 3)


def test_a_run_without_times_is_read(make_run):
    folder = make_run("a")
    (folder / "timing.jsonl").unlink()
    run = read_run("a", folder)
    assert (run.seconds, run.threads, run.commit) == (None, 1, "be29f46"), "those of model.json"


ROW = '{"kind": "test", "step": 12, "images": 300, "accuracy": %s, "loss": 1.0}\n'


@pytest.mark.parametrize(
    ("name", "text", "error", "told"),
    [
        ("metrics.jsonl", "", TrainingError, r"metrics.jsonl: is damaged: it has no row of the test"),
        ("metrics.jsonl", "{", TrainingError, r"metrics.jsonl: is damaged: a line of it is not JSON"),
        ("metrics.jsonl", "[]\n", TrainingError, r"metrics.jsonl: is damaged: a line of it is no row of metrics"),
        ("metrics.jsonl", ROW % "7", TrainingError, r"metrics.jsonl: is damaged: a row of kind test has accuracy: 7"),
        ("metrics.jsonl", ROW % "NaN", TrainingError, r"has accuracy: nan"),
        ("metrics.jsonl", ROW % "null", TrainingError, r"has accuracy: None"),
        (
            "timing.jsonl",
            '{"time": "now", "start": 0}\n',
            TrainingError,
            r"timing.jsonl: is damaged: a line of it is no",
        ),
        ("timing.jsonl", '{"time": 3}\n', TrainingError, r"timing.jsonl: is damaged: a line of it is no row of times"),
        ("model.json", "{", ModelFileError, r"model.json: not JSON"),
        ("config.toml", "[model]\nname = 3\n", TrainingError, r"config.toml: no recipe of this version"),
    ],
)
def test_a_damaged_file_is_named(make_run, name, text, error, told):
    folder = make_run("a")
    (folder / name).write_text(text)
    with pytest.raises(error, match=told):
        read_run("a", folder)


@pytest.mark.parametrize(
    "damage", [{"trained": 3}, {"trained": {"machine": 3}}, {"model": "no-such"}, {"arguments": {}}]
)
def test_a_model_that_says_nothing_of_use_is_damaged(make_run, damage):
    folder = make_run("a")
    facts = json.loads((folder / "model.json").read_text())
    (folder / "model.json").write_text(json.dumps({**facts, **damage}))
    with pytest.raises(PaircapsError, match=r"model.json: (is damaged|no model that this paircaps can build)"):
        read_run("a", folder)
