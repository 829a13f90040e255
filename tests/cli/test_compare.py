"""``paircaps compare`` as typed."""

import json

import pytest
from training.compare.conftest import make_run, seed

assert make_run  # a fixture


@pytest.fixture
def runs(make_run):
    return [make_run("fm-0"), make_run("fm-1", seed(1), 0.52), make_run("em", {"model": {"routing": "em"}}, 0.4)]


def test_a_table_in_the_terminal(run, runs, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    code, said, errors = run("compare", *runs)
    assert (code, errors) == (0, "")
    assert "A fm-{0,1}" in said
    assert "51.00 ± 1.41" in said
    assert "model.routing  fm  em" in said
    assert max(map(len, said.splitlines())) <= 80


def test_a_folder_of_runs_is_as_good_as_their_names(run, runs, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    _, named, _ = run("compare", *sorted(runs))
    assert run("compare", runs[0].parent)[1] == named
    assert run("compare", *sorted(runs), runs[1])[1] == named, "given twice, counted once"


def test_every_kind_of_file(run, runs, tmp_path):
    files = [tmp_path / f"table{ending}" for ending in (".md", ".csv", ".json", ".PNG")]
    code, said, errors = run("compare", *runs, "--json", *(word for file in files for word in ("-o", file)))
    assert (code, errors) == (0, "")
    assert "| glyphs | fm-{0,1} |" in files[0].read_text()
    assert files[1].read_text().startswith("data,run,folder,finished,")
    assert json.loads(files[2].read_text()) == json.loads(said)
    assert files[3].read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        ([], 2, "the following arguments are required: RUN"),
        (["nowhere"], 1, "nowhere: no such folder"),
        (["runs", "-o", "table.txt"], 1, "table.txt: ends in .txt; .md, .csv, .json, .png are there"),
        (["runs", "-o", "table"], 1, "table: ends in nothing; .md, .csv, .json, .png are there"),
        (["runs", "-o", "no/table.md"], 1, "no/table.md: no such folder"),
        (["runs", "--over", "days"], 2, "invalid choice: 'days'"),
        (["empty"], 1, "empty: no run of a training, and no folder that contains one"),
    ],
)
def test_wrong_words(run, make_run, tmp_path, monkeypatch, words, code, told):
    make_run("runs/a")
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    found, said, errors = run("compare", *words)
    assert (found, said) == (code, "")
    assert told in errors
    assert sorted(tmp_path.rglob("*")) == before, "nothing is written"


def test_a_damaged_run_is_named_and_left_out(run, runs, tmp_path):
    # one of a dozen must not keep the others from being compared
    (runs[1] / "metrics.jsonl").write_text("{")
    code, said, errors = run("compare", *runs, "-o", tmp_path / "table.md")
    assert code == 1
    assert runs[0].name in said
    assert errors == f"paircaps: left out: {runs[1]}/metrics.jsonl: is damaged: a line of it is not JSON\n"
    assert (tmp_path / "table.md").exists()


def test_nothing_is_written_if_no_run_can_be_read(run, runs, tmp_path):
    (runs[1] / "metrics.jsonl").write_text("{")
    code, said, errors = run("compare", runs[1], "-o", tmp_path / "table.md")
    assert (code, said) == (1, "")
    assert errors == f"paircaps: {runs[1]}/metrics.jsonl: is damaged: a line of it is not JSON\n"
    assert not (tmp_path / "table.md").exists()


@pytest.mark.filterwarnings("always:no run of a training")
def test_what_a_pattern_matches_besides_runs_is_noted(run, runs, tmp_path):
    (tmp_path / "log.txt").write_text("")
    code, said, errors = run("compare", *sorted(tmp_path.iterdir()))
    assert (code, errors) == (0, f"paircaps: note: no run of a training in {tmp_path}/log.txt\n")
    assert "fm-{0,1}" in said
