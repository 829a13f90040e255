"""Arguments of ``paircaps demo``."""

from __future__ import annotations

from pathlib import Path

from paircaps.cli.arguments import path, whole_number
from paircaps.cli.parser import CommandParser


def declare(parser: CommandParser) -> None:
    """Declare the arguments of ``demo``."""
    parser.add_argument(
        "--out",
        type=path,
        default=Path("paircaps-demo"),
        metavar="DIR",
        help="folder of the results (default: %(default)s)",
    )
    parser.add_argument("--steps", type=whole_number(1), help="steps of each training (default: 200)")
    parser.add_argument("--limit", type=whole_number(10), help="most images of each split (default: all)")
    parser.add_argument("--seed", type=whole_number(0), default=0, help="seed of every training (%(default)s)")
    parser.add_argument("--fresh", action="store_true", help="start over where DIR holds an earlier demonstration")
    parser.add_argument("--quiet", action="store_true", help="show no progress, only the table")
    parser.set_defaults(run="demo:run")
