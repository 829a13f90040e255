"""Runs that are found in folders."""

import pytest

from paircaps.errors import TrainingError
from paircaps.training.run_folder import find_runs


@pytest.fixture
def add_run(tmp_path):
    def add(name, *files):
        folder = tmp_path / name
        folder.mkdir(parents=True)
        for file in files or ("config.toml", "metrics.jsonl"):
            (folder / file).write_text("")
        return folder

    return add


def test_runs_are_found_at_any_depth_in_the_order_of_their_names(add_run, tmp_path):
    for name in ("b/seed-10", "b/seed-2", "a", ".hidden/x", "other/folder"):
        add_run(name, *(["notes.txt"] if name == "other/folder" else []))
    add_run("a/checkpoints/inner")  # a run is not searched
    assert list(find_runs([tmp_path])) == ["a", "seed-2", "seed-10"]
    assert list(find_runs([tmp_path / "b", tmp_path / "a"])) == ["seed-2", "seed-10", "a"]


def test_names_are_as_long_as_they_must_be(add_run, tmp_path):
    for name in ("x/fm/seed-0", "x/fm/seed-1", "x/em/seed-0", "y/pool"):
        add_run(name)
    assert list(find_runs([tmp_path])) == ["em/seed-0", "fm/seed-0", "fm/seed-1", "pool"]


def test_a_recipe_alone_is_no_run_and_a_model_alone_is_one(add_run, tmp_path):
    add_run("begun", "config.toml", "timing.jsonl")
    add_run("recipe", "config.toml")
    add_run("model", "model.json")
    assert list(find_runs([tmp_path])) == ["begun", "model"]


def test_links_are_followed_to_runs_alone(add_run, tmp_path):
    run = add_run("runs/a")
    (tmp_path / "runs" / "again").symlink_to(tmp_path / "runs")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "linked").symlink_to(run)
    assert find_runs([tmp_path / "runs"]) == {"a": run}
    assert list(find_runs([tmp_path / "elsewhere", run])) == ["a"], "once"


def test_a_pattern_may_match_what_is_no_run(add_run, tmp_path):
    run = add_run("a")
    (tmp_path / "log.txt").write_text("")
    with pytest.warns(UserWarning, match=r"^no run of a training in \S+/log.txt$"):
        assert find_runs([run, tmp_path / "log.txt"]) == {"a": run}
    with pytest.raises(TrainingError, match="no run of a training"):
        find_runs([tmp_path / "log.txt"])
    with pytest.raises(TrainingError, match="b: no such folder"):
        find_runs([run, tmp_path / "b"])
