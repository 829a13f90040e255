"""``paircaps reproduce`` and ``paircaps report`` as typed."""

import re

import pytest

from paircaps.data.files.locate import VARIABLE
from paircaps.paper.experiments import experiments


@pytest.fixture(autouse=True)
def _no_data(tmp_path_factory, monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))


def test_a_table_and_its_report(run, tmp_path):
    out = tmp_path / "results"
    words = ["reproduce", "table5", "--limit", 64, "--epochs", 1, "--only", "fm", "--only", "pool", "--out", out]
    code, said, errors = run(*words, "--quiet")
    assert code == 0, errors
    assert f"{out}/report.html" in said
    assert "[1/2] table5, multi-glyphs, FM agreement, seed 0: 1 step\n" in errors
    text = (out / "report.md").read_text()
    assert "multi-glyphs stands in for multi-mnist" in text
    assert "![table5](pictures/table5-multi-glyphs.png)" in text
    page = (out / "report.html").read_bytes()
    (out / "report.html").unlink()
    assert run("report", out)[0] == 0
    assert (out / "report.html").read_bytes() == page
    code, said, errors = run(*words, "--quiet")
    assert errors.count("was finished already") == 2
    code, said, errors = run(*words, "--short", "--quiet")
    assert code == 1
    assert "was begun with other settings" in errors


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["reproduce"], 2, "NAME is missing: one of fig4, fig5, table1"),
        (["reproduce", "table7", "--out", "x"], 2, "unknown experiment 'table7'"),
        (["reproduce", "table3"], 2, "--out DIR is missing"),
        (["reproduce", "table3", "--out", "x", "--epochs", "0"], 2, "must be a whole number from 1"),
        (["reproduce", "table3", "--out", "x", "--hours", "-1"], 2, "must be a number above 0, got '-1'"),
        (["reproduce", "table3", "--out", "x", "--hours", "nan"], 2, "must be a number above 0, got 'nan'"),
        (["reproduce", "table3", "--out", "x", "--hours", "1", "--epochs", "2"], 2, "not allowed with"),
        (["reproduce", "table3", "--out", "x", "--seeds", "x"], 2, "must be a whole number"),
        (["reproduce", "table3", "--out", "x", "--limit", "3"], 2, "must be a whole number of at least 32"),
        (["reproduce", "table3", "--out", "x", "--only", "gm"], 2, "--only: no 'gm' in these experiments"),
        (["reproduce", "table3", "--out", "x", "--set", "train.seed=3"], 2, "--set: train.seed is what experiments"),
        (["reproduce", "table3", "--out", "x", "--set", "model.optoins.blocks=3"], 2, "did you mean 'model.options'?"),
        (["reproduce", "table3", "--out", "x", "--set", "blocks"], 2, "--set: must be SECTION.KEY=VALUE, got 'blocks'"),
        (["reproduce", "table3", "--out", "x", "--set", "optimiser.lr=fast"], 2, "optimiser.lr must be a number"),
        (["report", "nowhere"], 1, "nowhere: no such folder"),
        (["report"], 2, "DIR"),
    ],
)
def test_wrong_words(run, tmp_path, monkeypatch, words, code, told):
    monkeypatch.chdir(tmp_path)
    found, _, errors = run(*words)
    assert (found, told in errors) == (code, True), errors
    assert not list(tmp_path.iterdir()), "nothing is written"


def test_a_file_in_place_of_a_folder(run, tmp_path):
    (tmp_path / "file").write_text("")
    code, _, errors = run("reproduce", "table6", "--out", tmp_path / "file")
    assert code == 2
    assert f"--out: {tmp_path / 'file'} is a file; it takes a folder" in errors
    assert f"{tmp_path / 'file'}: is a file, not a folder" in run("report", tmp_path / "file")[2]


def test_nothing_could_be_run(run, tmp_path):
    code, _, errors = run("reproduce", "table2-small", "--data", "svhn", "--out", tmp_path)
    assert code == 1
    assert "nothing could be run" in errors
    assert "no data: table2-small: svhn is not here (paircaps data get svhn)" in errors
    assert "svhn is not here" in (tmp_path / "report.md").read_text()


def test_the_list_has_every_experiment_and_those_named_alone(run):
    code, said, _ = run("reproduce", "--list")
    assert code == 0
    assert re.findall(r"^(\w+(?:-\w+)*)  ", said, flags=re.M) == list(experiments())
    assert re.findall(r"^(\w+)  ", run("reproduce", "--list", "table4")[1], flags=re.M) == ["table3"]


@pytest.mark.parametrize("out", ["/proc/no-such-thing", f"/tmp/{'a' * 300}"])
def test_a_folder_that_cannot_be_is_told_once(run, out):
    code, _, errors = run("reproduce", "table3", "--limit", 64, "--epochs", 1, "--out", out)
    assert code == 1
    assert errors.startswith(f"paircaps: {out}")
    assert errors.count("\n") == 1
