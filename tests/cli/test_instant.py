"""Help, a wrong command and completion import no PyTorch; names that are written down twice are the same."""

import subprocess
import sys

import pytest

import paircaps
from paircaps.cli import COMMANDS, names
from paircaps.cli.parser import load_function
from paircaps.data import list_datasets
from paircaps.data.pictures import FITS
from paircaps.explain.equivariance import IMAGES
from paircaps.paper.experiments import ALL, experiments
from paircaps.training.recipes import list_recipes

GROUPS = {"data": ("list", "get", "show", "check"), "bench": ("data", "train", "table1", "layer", "scaling", "serve")}
LIGHT = [
    (["--help"], 0, "usage: paircaps"),
    (["--version"], 0, f"paircaps {paircaps.__version__}"),
    (["trian"], 2, "invalid choice: 'trian'; did you mean 'train'?"),
    (["data", "lsit"], 2, "invalid choice: 'lsit'; did you mean 'list'?"),
    (["bench", "layer", "--batch", "x"], 2, "must be a whole number"),
    ([], 2, "the following arguments are required: COMMAND"),
    (["completion", "bash"], 0, "complete -o default"),
    (["__complete", "bash", "tra"], 0, "train"),
    (["__complete", "bash", "train", "glyphs", "--train.ep"], 0, "--train.epochs"),
    *(([name, "--help"], 0, f"usage: paircaps {name}") for name in COMMANDS if name != "train"),
    *(([name, what, "--help"], 0, f"usage: paircaps {name} {what}") for name in GROUPS for what in GROUPS[name]),
]

RUN = """
import sys
from paircaps.__main__ import main
for words in {words!r}:
    sys.argv = ["paircaps", *words]
    try:
        code = main()
    except SystemExit as stop:
        code = stop.code
    print("exit", code, "torch" in sys.modules, flush=True)
    print("exit", file=sys.stderr, flush=True)
"""


def test_nothing_is_imported_where_nothing_is_computed():
    code = RUN.format(words=[words for words, _, _ in LIGHT])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    said = [part.rpartition("exit") for part in done.stdout.split("\nexit ")]
    output, errors = done.stdout.split("exit "), done.stderr.split("exit\n")
    assert len(said) >= len(LIGHT)
    for number, (words, wanted, text) in enumerate(LIGHT):
        exit_code, torch_is_there = output[number + 1].split("\n")[0].split()
        assert (words, exit_code, torch_is_there) == (words, str(wanted), "False")
        before = output[number].split("\n", 1)[1] if number else output[0]
        assert text in before + errors[number], words


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_arguments_and_something_to_run(name):
    parser = load_function(f"parsers.{COMMANDS[name][0]}")
    assert callable(parser)


def test_names_are_those_of_the_rooms():
    assert set(names.DATASETS) == {*list_datasets()} - {"folder"}
    assert list(names.MODELS) == paircaps.list_models()
    assert list(names.ROUTINGS) == paircaps.list_routings()
    assert (*names.EXPERIMENTS, names.ALL_EXPERIMENTS) == (*experiments(), ALL)
    assert names.FITS == FITS
    assert names.EQUIVARIANCE_IMAGES == IMAGES
    assert names.shipped_recipes() == list_recipes()
