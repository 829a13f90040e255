"""``paircaps bench``: measure it on this machine."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from paircaps._files import write_whole
from paircaps.bench import data, train
from paircaps.cli.arguments import data_folder, path, whole_number
from paircaps.data.errors import DataError
from paircaps.experiments.recipes import list_recipes, load_recipe


def add_commands(commands: Any) -> None:
    """Declare ``bench`` and its subcommands."""
    bench = commands.add_parser("bench", help="measure speed on this machine")
    group = bench.add_subparsers(metavar="WHAT", required=True)
    loader = group.add_parser("data", parents=[data_folder()], help="images a second out of the loader")
    loader.add_argument("--batches", type=whole_number(1), default=100, help="batches of 128 in a repeat")
    loader.add_argument("--repeats", type=whole_number(1), default=9, help="of every case")
    loader.add_argument("--seed", type=whole_number(0), default=0, help="of order and augmentation")
    loader.add_argument("--json", action="store_true", help="print JSON in place of a table")
    loader.add_argument("-o", "--out", type=path, metavar="FILE", help="write it to a file too")
    loader.set_defaults(run=run_data)

    loop = group.add_parser("train", help="images a second of every recipe, and what the loop itself costs")
    loop.add_argument("recipes", nargs="*", metavar="RECIPE", help="all that come with the package unless told")
    loop.add_argument("--seconds", type=whole_number(1), default=10, help="of every case, more or less")
    loop.add_argument("--json", action="store_true", help="print JSON in place of a table")
    loop.add_argument("-o", "--out", type=path, metavar="FILE", help="write it to a file too")
    loop.set_defaults(run=run_train)


def run_data(options: argparse.Namespace) -> int:
    """Time the loader."""
    _require_place(options.out)
    print(f"timing the loader, {options.repeats} times {options.batches} batches of every case ...", file=sys.stderr)
    result = data.bench_data(options.data_dir, options.batches, options.repeats, options.seed)
    _show(result, data.as_markdown, options)
    return 0


def run_train(options: argparse.Namespace) -> int:
    """Time training."""
    _require_place(options.out)
    recipes = {name: load_recipe(name) for name in options.recipes or list_recipes()}
    print(f"timing the loop of {len(recipes)} recipes, {2 * options.seconds} seconds each ...", file=sys.stderr)
    result = train.bench_train(recipes, float(options.seconds))
    _show(result, train.as_markdown, options)
    return 0


def _require_place(out: Path | None) -> None:
    """Refuse a file that cannot be written, before the work."""
    if out and (out.is_dir() or not out.parent.is_dir()):
        raise DataError(f"{out}: {'is a folder' if out.is_dir() else 'no such folder'}")


def _show(result: dict[str, object], as_markdown: Callable[[dict], str], options: argparse.Namespace) -> None:
    """Print a result, and write it to a file if one was named."""
    text = json.dumps(result, indent=2) + "\n" if options.json else as_markdown(result)
    print(text, end="")
    if options.out:
        write_whole(options.out, text.encode())
