"""``paircaps bench``: measure it on this machine."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from paircaps._files import write_whole
from paircaps.bench import data, layer, pictures, scaling, table1, train
from paircaps.cli.arguments import data_folder, path, whole_number
from paircaps.data.errors import DataError
from paircaps.experiments.recipes import list_recipes, load_recipe

Result = dict[str, Any]


def add_commands(commands: Any) -> None:
    """Declare ``bench`` and its subcommands."""
    bench = commands.add_parser("bench", help="measure speed and memory on this machine")
    group = bench.add_subparsers(metavar="WHAT", required=True)
    loader = group.add_parser("data", parents=[data_folder()], help="images a second out of the loader")
    loader.add_argument("--batches", type=whole_number(1), default=100, help="batches of 128 in a repeat")
    loader.add_argument("--repeats", type=whole_number(1), default=9, help="of every case")
    loader.add_argument("--seed", type=whole_number(0), default=0, help="of order and augmentation")
    _add_output(loader, run_data)

    loop = group.add_parser("train", help="images a second of every recipe, and what the loop itself costs")
    loop.add_argument("recipes", nargs="*", metavar="RECIPE", help="all that come with the package unless told")
    loop.add_argument("--seconds", type=whole_number(1), default=10, help="of every case, more or less")
    _add_output(loop, run_train)

    inference = group.add_parser("table1", help="the paper's Table 1: milliseconds of a batch, by routing")
    alone = group.add_parser("layer", help="a capsule layer alone: plain and streaming, in time and memory")
    growth = group.add_parser("scaling", help="time and memory against the number of children and of classes")
    for command in (inference, alone, growth):
        command.add_argument(
            "--seconds", type=whole_number(1), default=20, help="of repeats at every size, or more (%(default)s)"
        )
        command.add_argument("--batch", type=whole_number(2), default=128, help="images, two or more (%(default)s)")
    growth.add_argument(
        "--largest",
        type=whole_number(64),
        default=65_536,
        help="children or classes beyond it are left out (%(default)s)",
    )
    _add_output(inference, run_table1, picture=True)
    _add_output(alone, run_layer, picture=True)
    _add_output(growth, run_scaling, picture=True)


def _add_output(
    command: argparse.ArgumentParser, run: Callable[[argparse.Namespace], int], *, picture: bool = False
) -> None:
    command.add_argument("--json", action="store_true", help="print JSON in place of tables")
    kinds = "JSON if it ends in .json" + (", a picture in .png" if picture else "") + ", else tables"
    help_text = f"write it to a file too, {kinds}; may be given several times"
    command.add_argument("-o", "--out", type=path, action="append", default=[], metavar="FILE", help=help_text)
    command.set_defaults(run=run)


def run_data(options: argparse.Namespace) -> int:
    """Time the loader."""
    _require_places(options.out)
    print(f"timing the loader, {options.repeats} times {options.batches} batches of every case ...", file=sys.stderr)
    result = data.bench_data(options.data_dir, options.batches, options.repeats, options.seed)
    return _show(result, data.as_markdown, options)


def run_train(options: argparse.Namespace) -> int:
    """Time training."""
    _require_places(options.out)
    recipes = {name: load_recipe(name) for name in options.recipes or list_recipes()}
    print(f"timing the loop of {len(recipes)} recipes, {2 * options.seconds} seconds each ...", file=sys.stderr)
    return _show(train.bench_train(recipes, float(options.seconds)), train.as_markdown, options)


def run_table1(options: argparse.Namespace) -> int:
    """Time inference by routing."""
    _require_places(options.out, picture=True)
    result = table1.bench_table1(float(options.seconds), options.batch, _say)
    return _show(result, table1.as_markdown, options, pictures.draw_table1)


def run_layer(options: argparse.Namespace) -> int:
    """Time and weigh capsule layers."""
    _require_places(options.out, picture=True)
    result = layer.bench_layer(float(options.seconds), options.batch, say=_say)
    return _show(result, layer.as_markdown, options, pictures.draw_layer)


def run_scaling(options: argparse.Namespace) -> int:
    """Time and weigh growing layers."""
    _require_places(options.out, picture=True)
    result = scaling.bench_scaling(float(options.seconds), options.batch, options.largest, _say)
    return _show(result, scaling.as_markdown, options, pictures.draw_scaling)


def _say(what: str) -> None:
    print(f"measuring {what} ...", file=sys.stderr, flush=True)


def _require_places(files: list[Path], *, picture: bool = False) -> None:
    """Refuse a file that cannot be written, before the work."""
    for out in files:
        if out.is_dir() or not out.parent.is_dir():
            raise DataError(f"{out}: {'is a folder' if out.is_dir() else 'no such folder'}")
        if out.suffix.lower() == ".png" and not picture:
            raise DataError(f"{out}: this benchmark has no picture; .json and .md are there")


def _show(
    result: Result,
    as_markdown: Callable[[Result], str],
    options: argparse.Namespace,
    draw: Callable[[Result], bytes] | None = None,
) -> int:
    """Print a result, and write it to the files that were named."""
    as_json, text = json.dumps(result, indent=2) + "\n", as_markdown(result)
    print(as_json if options.json else text, end="")
    for out in options.out:
        suffix = out.suffix.lower()
        if suffix == ".png" and draw is not None:
            write_whole(out, draw(result))
        else:
            write_whole(out, (as_json if options.json or suffix == ".json" else text).encode())
    return 0
