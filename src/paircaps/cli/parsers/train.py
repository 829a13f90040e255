"""Arguments of ``paircaps train`` and ``paircaps replay``."""

from __future__ import annotations

from paircaps.cli.arguments import path
from paircaps.cli.parser import CommandParser, load_function


def declare_train(parser: CommandParser) -> None:
    """Leave the arguments of ``train`` to jsonargparse, which reads the keys of a recipe."""
    parser.delegate = "train:parse"
    parser.stand_in = lambda: load_function("recipe_keys:train_parser")()


def declare_replay(parser: CommandParser) -> None:
    """Declare the arguments of ``replay``."""
    parser.add_argument("folder", type=path, metavar="DIR", help="folder of the run: the --out of its training")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run="train:run_replay")
