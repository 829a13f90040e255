"""``paircaps demo``."""

from __future__ import annotations

import argparse
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any

from paircaps.cli.arguments import path, whole_number
from paircaps.paper.demo import run_demo


def add_commands(commands: Any) -> None:
    """Declare ``demo``."""
    parser = commands.add_parser("demo", help="three routings and a pooling network side by side, in minutes")
    parser.add_argument(
        "--out", type=path, default=Path("paircaps-demo"), metavar="DIR", help="paircaps-demo unless told"
    )
    parser.add_argument("--steps", type=whole_number(1), help="of each training; 200 unless told")
    parser.add_argument("--limit", type=whole_number(10), help="images of each split; all of them unless told")
    parser.add_argument("--seed", type=whole_number(0), default=0, help="of every training")
    parser.add_argument("--fresh", action="store_true", help="start over, where DIR holds an earlier demonstration")
    parser.add_argument("--quiet", action="store_true", help="show no progress, only the table")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Train, test, compare."""
    table, files = run_demo(
        options.out,
        steps=options.steps,
        limit=options.limit,
        seed=options.seed,
        fresh=options.fresh,
        quiet=options.quiet,
    )
    print(table)
    print("written:", *files, sep="\n  ")
    print(f"\nDraw a digit, and watch them disagree: {_command()} serve {shlex.quote(str(options.out))}")
    return 0


def _command() -> str:
    """How this command can be called from where we are."""
    program = Path(sys.argv[0])
    if program.name != "paircaps" or shutil.which("paircaps") == str(program):
        return "paircaps"
    return shlex.quote(sys.argv[0])
