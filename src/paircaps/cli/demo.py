"""Run ``paircaps demo``."""

from __future__ import annotations

import argparse
import shlex
import shutil
import sys
from pathlib import Path

from paircaps._utils.shipped import DIGITS, shipped_folders
from paircaps._utils.words import visible
from paircaps.paper.demo import run_demo


def run(options: argparse.Namespace) -> int:
    """Train and test the networks of the demonstration, and print their comparison."""
    table, files = run_demo(
        options.out,
        steps=options.steps,
        limit=options.limit,
        seed=options.seed,
        fresh=options.fresh,
        quiet=options.quiet,
    )
    print(table)
    print("written:", *(visible(str(file)) for file in files), sep="\n  ")
    shipped = [name for name in DIGITS if name in shipped_folders()]
    serve = shlex.join(["serve", str(options.out), *shipped])
    print(f"\nDraw a digit, and see where the networks disagree: {_command()} {serve}")
    if shipped:
        print(f"These have seen printed digits alone; {', '.join(shipped)} come with paircaps and know handwriting")
    return 0


def _command() -> str:
    """The command as the user can type it: its name if it is on the path, else the path of the program."""
    program = Path(sys.argv[0])
    if program.name != "paircaps" or shutil.which("paircaps") == str(program):
        return "paircaps"
    return shlex.quote(sys.argv[0])
