"""What a figure was measured on."""

import subprocess

from paircaps._utils.machine import commit_of, describe_machine, machine_line


def test_a_line_has_all_of_it():
    facts = describe_machine()
    assert machine_line() == "; ".join(f"{key} {value}" for key, value in facts.items())
    assert machine_line({"cpu": "a processor", "cores": 2}) == "cpu a processor; cores 2"


def test_only_changes_of_the_code_mark_its_commit(tmp_path):
    # trainings that wrote their results into the checkout used to mark those that came after them
    def git(*words):
        who = ("-c", "user.name=n", "-c", "user.email=e@x")
        return subprocess.run(["git", *who, *words], cwd=tmp_path, check=True, capture_output=True, text=True).stdout

    code, results = tmp_path / "code", tmp_path / "results"
    assert commit_of(tmp_path) == "unknown (not a git checkout)"
    git("init", "-q")
    for folder in (code, results):
        folder.mkdir()
        (folder / "file").write_text("a")
    git("add", ".")
    git("commit", "-qm", "first")
    commit = git("rev-parse", "--short", "HEAD").strip()
    (results / "file").write_text("b")
    assert commit_of(code) == commit
    (code / "new").write_text("a")
    assert commit_of(code) == f"{commit} with changes"
