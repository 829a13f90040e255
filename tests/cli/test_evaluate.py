"""``paircaps evaluate`` of several runs, as typed."""

import json
import re
import shutil
from pathlib import Path

import pytest

OLD = Path(__file__).parents[1] / "training" / "run_of_be29f46"


@pytest.fixture
def runs(tmp_path):
    """Two seeds of one recipe, which have the same weights, and the same with other views; all of them a copy."""
    folders = [tmp_path / "runs" / name for name in ("fm-0", "fm-1", "plain")]
    for folder in folders:
        shutil.copytree(OLD, folder)
    change(folders[1] / "config.toml", "seed = 0\nprecision", "seed = 1\nprecision")
    change(folders[2] / "config.toml", "mirror = true", "mirror = false")
    change(folders[2] / "model.json", '"mirror": true', '"mirror": false')
    return folders


def change(path, *texts):
    text = path.read_text()
    for old, new in zip(texts[::2], texts[1::2], strict=True):
        assert old in text
        text = text.replace(old, new)
    path.write_text(text)


def test_several_runs_share_a_table(run, runs):
    code, said, errors = run("evaluate", *runs, "--limit", 100)
    assert (code, errors) == (0, "evaluating fm-0 ...\nevaluating fm-1 ...\nevaluating plain ...\n")
    lines = said.splitlines()
    assert lines[0] == "<glyphs test: 100 images of 28×28×1, 10 classes>"
    assert re.split("  +", lines[1])[1:] == ["accuracy", "loss", "calibration error", "without other views"]
    rows = [re.split("  +", line.strip()) for line in lines[2:]]
    assert [row[0] for row in rows] == ["fm-0", "fm-1", "mean, n = 2", "plain"]
    assert rows[0][1:] == rows[1][1:]
    accuracy, loss = rows[0][1].split()[0], rows[0][2]
    assert rows[2][1:3] == [f"{accuracy} ± 0.00 %", f"{loss} ± 0.0000"]
    assert rows[3][-1] == "–", "nothing was averaged"
    assert max(map(len, lines)) <= 100


def test_a_folder_of_runs_has_them_all(run, runs):
    named = run("evaluate", *runs, "--limit", 60)
    assert run("evaluate", runs[0].parent, "--limit", 60) == named
    assert run("evaluate", *runs, runs[0], "--limit", 60) == named, "given twice, evaluated once"


def test_json_is_one_object_a_line(run, runs):
    code, said, _ = run("evaluate", *runs, "--limit", 60, "--json")
    rows = [json.loads(line) for line in said.splitlines()]
    assert code == 0
    assert [row["folder"] for row in rows] == list(map(str, runs))
    assert [row["views"] for row in rows] == ["flip", "flip", "none"]
    alone = json.loads(run("evaluate", runs[2], "--limit", 60, "--json")[1])
    assert rows[2] == alone


def test_a_run_that_does_not_fit_is_named_before_any_work(run, runs):
    change(runs[1] / "config.toml", 'name = "glyphs"\ntest', 'name = "affine-glyphs"\ntest')
    code, said, errors = run("evaluate", *runs)
    assert (code, said) == (1, "")
    assert errors.startswith(f"paircaps: {runs[1]}: <affine-glyphs test")
    assert "another shape than the network's" in errors


def test_runs_of_two_datasets_are_apart(run, runs):
    change(runs[1] / "config.toml", "limit = 300", "limit = 200")
    said = run("evaluate", *runs)[1]
    assert re.findall(r"^<glyphs test: (\d+)", said, flags=re.M) == ["300", "200"]
    assert "mean" not in said


def test_a_run_that_is_not_finished_is_left_out_and_named(run, runs):
    for name in ("model.json", "model.safetensors"):
        (runs[1] / name).unlink()
    code, said, errors = run("evaluate", *runs, "--limit", 60)
    assert code == 0
    assert errors.startswith("paircaps: note: not finished, and left out: fm-1\n")
    assert "fm-1" not in said
    code, _, errors = run("evaluate", runs[1])
    assert (code, "its training has not finished" in errors) == (1, True)


def test_a_network_without_a_recipe_is_evaluated_too(run, runs):
    (runs[1] / "config.toml").unlink()
    words = ("--data", "glyphs", "--limit", 60)
    code, said, _ = run("evaluate", *runs, *words)
    assert code == 0
    assert said.splitlines()[-1].startswith("fm-1 ")
