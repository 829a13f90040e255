"""``paircaps demo``."""

from __future__ import annotations

import argparse
import shlex
import shutil
import sys
from pathlib import Path

from paircaps.paper.demo import run_demo


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
