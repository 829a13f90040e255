"""Shell completion: candidates for what was typed, and the scripts in the shells themselves."""

import os
import shutil
import subprocess
import sys

import pytest

from paircaps.cli.completion import SCRIPTS, candidates
from paircaps.cli.recipe_keys import recipe_keys
from paircaps.training.recipe_io import KEYS


def names(*words, **options):
    return [name for name, _ in candidates(words, **options)]


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["tr"], ["train"]),
        (["data", ""], ["list", "get", "show", "check"]),
        (["data", "sh"], ["show"]),
        (["data", "show", "gl"], ["glyphs"]),
        (["data", "get", "mnist", "fash"], ["fashion-mnist"]),
        (["data", "show", "--data-dir", "x", "sv"], ["svhn"]),
        (["bench", "la"], ["layer"]),
        (["train", "table2-small-f"], ["table2-small-fashion-mnist"]),
        (["train", "glyphs", "--train.ep"], ["--train.epochs"]),
        (["train", "glyphs", "--model.routing", "d"], ["dynamic"]),
        (["train", "glyphs", "--model.routing=d"], ["--model.routing=dynamic"]),
        (["train", "--out", "x", "glyphs", "--run.device", "c"], ["cpu", "cuda"]),
        (["train", "glyphs", "--data.name", "smalln"], ["smallnorb"]),
        (["evaluate", "run", "--views", "flip"], ["flip", "flip-shift"]),
        (["evaluate", "run", "--data", "affine-"], ["affine-glyphs", "affine-mnist"]),
        (["comp"], ["compare", "completion"]),
        (["compare", "a", "b", "--over", ""], ["epochs", "steps", "minutes"]),
        (["compare", "a", "--o"], ["--over", "--out"]),
        (["predict", "run", "--fit", ""], ["crop", "pad", "stretch"]),
        (["explain", "run", "--only", "t"], ["tree"]),
        (["estimate", "capsnet", "--routing", "e"], ["efficient", "em"]),
        (["reproduce", "table2", "fi"], ["fig4", "fig5"]),
        (["completion", "z"], ["zsh"]),
        (["predict", "run", "pict"], []),  # a path: the shell completes it
        (["predict", "run", "--", "--fi"], []),
        (["train", "glyphs", "--out", ""], []),
        (["nothing", ""], []),
        (["data", "nothing", ""], []),
    ],
)
def test_candidates(words, found):
    assert names(*words) == found


def test_every_command_and_its_options_are_offered():
    assert set(names("")) >= {"train", "evaluate", "data", "bench", "completion"}
    assert {"--help", "--plugin", "--batch-size"} <= set(names("evaluate", "--"))
    assert {"--help", "--plugin", "--out", "--fresh"} <= set(names("train", "--"))
    assert dict(candidates([""]))["data"] == "list, download, show and check datasets"


def test_bash_passes_an_equals_sign_as_a_word():
    assert names("predict", "run", "--fit", "=", splits_equals=True) == ["crop", "pad", "stretch"]
    assert names("predict", "run", "--fit", "=", "p", splits_equals=True) == ["pad"]
    assert names("predict", "run", "--fit", "=", "pad", "--in", splits_equals=True) == ["--invert"]


def test_keys_of_a_recipe_are_those_of_the_training():
    keys = recipe_keys()
    assert tuple(keys) == KEYS
    assert keys["train.precision"] == ("auto", "fp32", "bf16", "fp16")
    assert keys["run.tensorboard"] == ("true", "false")
    assert keys["train.epochs"] == ()


@pytest.fixture
def program(tmp_path, monkeypatch):
    """A command ``paircaps`` of this Python on the path, and the scripts beside it."""
    path = tmp_path / "bin" / "paircaps"
    path.parent.mkdir()
    path.write_text(f'#!/bin/sh\nexec {sys.executable} -m paircaps "$@"\n')
    path.chmod(0o755)
    for shell, script in SCRIPTS.items():
        (tmp_path / shell).write_text(script)
    (tmp_path / "picture one.png").write_text("")
    monkeypatch.setenv("PATH", f"{path.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def shell(*words):
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=True, stdin=subprocess.DEVNULL)
    assert done.stderr == ""
    return done.stdout.splitlines()


LINES = [
    ("paircaps tr", ["train"]),
    ("paircaps data show gly", ["glyphs"]),
    ("paircaps train glyphs --model.routing d", ["dynamic"]),
    ("paircaps evaluate run --mir", ["--mirror"]),
]


@pytest.mark.skipif(not shutil.which("bash"), reason="needs bash")
def test_in_bash(program):
    for line, found in [*LINES, ("paircaps predict run --fit=p", ["pad"]), ("./bin/paircaps tr", ["train"])]:
        words = line.replace("=", " = ").split()
        script = (
            f"source ./bash; COMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}; "
            f'_paircaps {words[0]}; printf "%s\\n" "${{COMPREPLY[@]}}"'
        )
        assert shell("bash", "--norc", "-c", script) == found


@pytest.mark.skipif(not shutil.which("fish"), reason="needs fish")
def test_in_fish(program):
    for line, found in [*LINES, ("paircaps predict run --fit=p", ["--fit=pad"])]:
        said = shell("fish", "--no-config", "-c", f"source ./fish; complete -C '{line}'")
        assert [text.split("\t")[0] for text in said] == found
    assert shell("fish", "--no-config", "-c", "source ./fish; complete -C 'paircaps predict run pict'") == [
        "picture one.png"
    ]


@pytest.mark.skipif(not shutil.which("zsh"), reason="needs zsh")
def test_in_zsh(program):
    """The script's function, with zsh's own functions replaced by ones that print what they are given."""
    start = 'compdef() { : }; _describe() { print -rl -- "${(@P)2}" }; _files() { print files }; source ./zsh; '
    for line, found in [*LINES, ("paircaps predict run --fit=p", ["--fit=pad"]), ("paircaps predict run p", ["files"])]:
        words = line.split()
        said = shell("zsh", "-f", "-c", f"{start} words=({' '.join(words)}); CURRENT={len(words)}; _paircaps")
        assert [text.split(":")[0] for text in said] == found
