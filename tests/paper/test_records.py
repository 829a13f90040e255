"""What trainings left behind."""

import json
import shutil

import pytest
from paper.results import finished, variant_of

from paircaps.errors import TrainingError
from paircaps.paper.experiments import experiments
from paircaps.paper.records import NOT_RUN, read_cell, read_record, read_times

TABLE3 = experiments()["table3"]
FM = variant_of(TABLE3, "fm")


def cell_of(out):
    return read_cell(out, TABLE3, TABLE3.studies[0], FM)


def test_a_finished_training(tmp_path):
    folder = finished(tmp_path, "table3", "affine-mnist", "fm", 2, 0.91, train_accuracy=0.97)
    record = read_record(folder.path)
    assert (record.seed, record.accuracy("test"), record.accuracy("train")) == (2, 0.91, 0.97)
    assert record.machine["commit"] == "abc1234"


@pytest.mark.parametrize("lost", ["config", "metrics", "model"])
def test_what_is_not_whole_is_no_result(tmp_path, lost):
    folder = finished(tmp_path, "table3", "affine-mnist", "fm", 0, 0.91)
    getattr(folder, lost).unlink()
    assert read_record(folder.path) is None
    assert cell_of(tmp_path).records == ()
    assert cell_of(tmp_path).reason == "not finished: seed 0"


def test_a_training_without_its_test_is_not_finished(tmp_path):
    folder = finished(tmp_path, "table3", "affine-mnist", "fm", 0, 0.91)
    folder.metrics.write_text("".join(folder.metrics.read_text().splitlines(keepends=True)[:-1]))
    assert read_record(folder.path) is None


def test_damage_is_told_with_what_to_do(tmp_path):
    folder = finished(tmp_path, "table3", "affine-mnist", "fm", 0, 0.91)
    folder.metrics.write_text(folder.metrics.read_text()[:-20])
    with pytest.raises(TrainingError, match=r"metrics\.jsonl: is damaged"):
        read_record(folder.path)
    assert cell_of(tmp_path).reason == "seed 0: a file of it is damaged; `paircaps reproduce` makes it again"


TESTED = '{{"kind": "test", "images": {}, "accuracy": {}}}\n'
WITHOUT_EPOCH = '{"kind": "epoch", "epoch": 1.0, "train_accuracy": 0.5}\n{"kind": "step", "accuracy": 0.5}\n'


def test_the_rows_of_the_next_test_are_whole_but_for_one_thing(tmp_path):
    folder = finished(tmp_path, "table3", "affine-mnist", "fm", 0, 0.91)
    folder.metrics.write_text('{"kind": "epoch", "epoch": 1.0, "train_accuracy": 0.5}\n' + TESTED.format(10, 0.5))
    assert read_record(folder.path)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("metrics", '{"kind": "test"}\n'),
        ("metrics", '{"no": "kind"}\n'),
        ("metrics", "[1]\n"),
        ("metrics", '{"kind": "test", "accuracy": 0.5, "images": 9}\n'),
        ("model", '{"trained": {"machine": 3}}'),
        ("model", "[]"),
        ("config", "garb["),
        ("config", "[model]\nname = 3\n"),
        ("config", '[data]\nname = "no-such-data"\n'),
        ("metrics", '{"kind": "epoch", "epoch": 1.0, "train_accuracy": 0.5}\n' + TESTED.format('"10"', 0.5)),
        ("metrics", '{"kind": "epoch", "epoch": 1.0, "train_accuracy": 0.5}\n' + TESTED.format(10, "NaN")),
        ("metrics", '{"kind": "epoch", "train_accuracy": 0.5}\n' + TESTED.format(10, 0.5)),
        ("metrics", '{"kind": "epoch", "epoch": 1.0, "train_accuracy": null}\n' + TESTED.format(10, 0.5)),
        ("metrics", WITHOUT_EPOCH + TESTED.format(10, 0.5)),
        ("metrics", '{"kind": "epoch", "epoch": 1.0, "train_accuracy": 0.5}\n' + TESTED.format(10, 7.5)),
        ("metrics", '{"kind": "epoch", "epoch": 1.0, "train_accuracy": 0.5}\n' + TESTED.format(10, -0.5)),
        ("metrics", '{"kind": "epoch", "epoch": 1.0, "train_accuracy": 0.5}\n' + TESTED.format(10, "true")),
    ],
)
def test_valid_words_of_the_wrong_kind_are_damage_too(tmp_path, name, text):
    folder = finished(tmp_path, "table3", "affine-mnist", "fm", 0, 0.91)
    getattr(folder, name).write_text(text)
    with pytest.raises(TrainingError):
        read_record(folder.path)
    assert "is damaged" in cell_of(tmp_path).reason


def test_accuracy_in_training_is_that_of_a_whole_epoch(tmp_path):
    folder = finished(tmp_path, "table3", "affine-mnist", "fm", 0, 0.91, train_accuracy=0.97)
    rows = folder.metrics.read_text().splitlines()
    rows.insert(-1, json.dumps({"kind": "epoch", "step": 201, "epoch": 2.01, "train_accuracy": 1.0}))
    folder.metrics.write_text("\n".join(rows))
    assert read_record(folder.path).accuracy("train") == 0.97


def test_a_good_result_has_no_note(tmp_path):
    folder = finished(tmp_path, "table3", "affine-mnist", "fm", 0, 0.91)
    (folder.path / NOT_RUN).write_text("of an earlier day\n")
    assert cell_of(tmp_path).reason == ""


def test_times_that_are_damaged_are_none(tmp_path):
    file = tmp_path / "metrics.jsonl"
    assert read_times(file) == {}
    row = {"kind": "time", "variant": "fm", "median": 1.0, "low": 1.0, "high": 1.0, "repeats": 5, "seconds": 1.0}
    file.write_text(json.dumps({"kind": "machine"}) + "\n" + json.dumps(row))
    assert list(read_times(file)) == ["fm"]
    for damage in ({"median": "?"}, {"low": "1.0"}, {"repeats": None}, {"settings": 3}):
        file.write_text(json.dumps({"kind": "machine"}) + "\n" + json.dumps({**row, **damage}))
        assert read_times(file) == {}
    file.write_text("{")
    assert read_times(file) == {}


def test_other_folders_are_no_seeds(tmp_path):
    folder = finished(tmp_path, "table3", "affine-mnist", "fm", 0, 0.9)
    for name in ("seed-²", "7", "seed-0.aside-1", "seed-"):
        shutil.copytree(folder.path, folder.path.with_name(name))
    assert [record.seed for record in cell_of(tmp_path).records] == [0]


def test_seeds_come_in_order_and_the_paper_s_data_first(tmp_path):
    for seed in (10, 2):
        finished(tmp_path, "table3", "affine-mnist", "fm", seed, 0.9)
    cell = cell_of(tmp_path)
    assert [record.seed for record in cell.records] == [2, 10]
    assert cell.is_stand_in
    finished(tmp_path, "table3", "affnist", "fm", 0, 0.8)
    assert not cell_of(tmp_path).is_stand_in
    assert cell_of(tmp_path).records[0].accuracy("test") == 0.8


def test_why_there_is_nothing(tmp_path):
    assert cell_of(tmp_path).reason == "not run"
    folder = tmp_path / "runs/table3/affine-mnist/fm/seed-0"
    folder.mkdir(parents=True)
    (folder / NOT_RUN).write_text("the loss was nan\n")
    assert cell_of(tmp_path).reason == "seed 0: the loss was nan"
    (folder.parents[1] / NOT_RUN).write_text("mnist is not here\n")
    assert cell_of(tmp_path).reason == "mnist is not here"
