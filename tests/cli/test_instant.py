"""Help, a wrong command and completion import no PyTorch; names that are written down twice are the same."""

import argparse
import json
import subprocess
import sys

import paircaps
from paircaps._utils.figures import FORMATS, SLIDE_WIDTH
from paircaps.cli import COMMANDS, build_parser, names
from paircaps.cli.parser import load_function
from paircaps.explain.equivariance import IMAGES
from paircaps.paper.comparison import NAME
from paircaps.paper.experiments import ALL, experiments
from paircaps.pictures import FITS
from paircaps.training.compare.curves import AXES
from paircaps.training.recipes import list_recipes

GROUPS = {
    "data": ("list", "get", "show", "check"),
    "weights": ("show", "add"),
    "bench": (
        "data",
        "train",
        "table1",
        "layer",
        "scaling",
        "depth",
        "channels-last",
        "tiles",
        "triton",
        "export",
        "busy",
        "serve",
    ),
}
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
import contextlib, io, json, sys
from paircaps.__main__ import main
for words in json.load(sys.stdin):
    sys.argv = ["paircaps", *words]
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            code = main()
        except SystemExit as stop:
            code = stop.code
    print(json.dumps([code, said.getvalue(), "torch" in sys.modules]))
"""


def test_no_pytorch_where_nothing_is_computed():
    words = json.dumps([words for words, _, _ in LIGHT])
    done = subprocess.run([sys.executable, "-c", RUN], input=words, capture_output=True, text=True, check=True)
    for (words, code, text), line in zip(LIGHT, done.stdout.splitlines(), strict=True):
        found, said, loaded = json.loads(line)
        assert (words, found, loaded) == (words, code, False)
        assert text in said, words


def runs(parser):
    """The functions that a parser and those below it name."""
    parser.declare_arguments()
    below = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if below:
        return [name for group in below for inner in group.choices.values() for name in runs(inner)]
    return [parser.get_default("run") or parser.delegate]


def test_every_command_names_a_function_that_is_there():
    found = runs(build_parser())
    assert len(found) == len(COMMANDS) - len(GROUPS) + sum(map(len, GROUPS.values()))
    assert all(callable(load_function(name)) for name in found)


REGISTERED = """
import json, paircaps
from paircaps.data import list_datasets
from paircaps.data.registry import all_metadata
downloads = [metadata.name for metadata in all_metadata() if metadata.files]
found = {"DATASETS": sorted({*list_datasets()} - {"folder"}), "DOWNLOADS": downloads}
from paircaps.losses import list_losses
found["LOSSES"] = sorted(["auto", *list_losses()])
print(json.dumps({**found, "MODELS": paircaps.list_models(), "ROUTINGS": paircaps.list_routings()}))
"""


def test_names_are_those_of_the_rooms():
    # in a process of its own, because other tests register names of their own
    done = subprocess.run([sys.executable, "-c", REGISTERED], capture_output=True, text=True, check=True)
    for constant, registered in json.loads(done.stdout).items():
        assert list(getattr(names, constant)) == registered, f"add or remove the name in {constant} of cli/names.py"
    assert (*names.EXPERIMENTS, names.ALL_EXPERIMENTS) == (*experiments(), ALL)
    assert names.COMPARISON == NAME
    assert names.FITS == FITS
    assert tuple(AXES) == names.CURVES_OVER
    assert names.EQUIVARIANCE_IMAGES == IMAGES
    assert (names.PICTURE_FORMATS, names.PICTURE_WIDTH) == (FORMATS, SLIDE_WIDTH)
    assert names.shipped_recipes() == list_recipes()
