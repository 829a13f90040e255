"""``paircaps bench``: measure it on this machine."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from paircaps._files import write_whole
from paircaps.bench.data import as_markdown, bench_data
from paircaps.cli.arguments import data_folder, path, whole_number
from paircaps.data.errors import DataError


def add_commands(commands: Any) -> None:
    """Declare ``bench`` and its subcommands."""
    bench = commands.add_parser("bench", help="measure speed on this machine")
    group = bench.add_subparsers(metavar="WHAT", required=True)
    data = group.add_parser("data", parents=[data_folder()], help="images a second out of the loader")
    data.add_argument("--batches", type=whole_number(1), default=100, help="batches of 128 in a repeat")
    data.add_argument("--repeats", type=whole_number(1), default=9, help="of every case")
    data.add_argument("--seed", type=whole_number(0), default=0, help="of order and augmentation")
    data.add_argument("--json", action="store_true", help="print JSON in place of a table")
    data.add_argument("-o", "--out", type=path, metavar="FILE", help="write it to a file too")
    data.set_defaults(run=run_data)


def run_data(options: argparse.Namespace) -> int:
    """Time the loader."""
    if options.out and (options.out.is_dir() or not options.out.parent.is_dir()):
        raise DataError(f"{options.out}: {'is a folder' if options.out.is_dir() else 'no such folder'}")
    print(f"timing the loader, {options.repeats} times {options.batches} batches of every case ...", file=sys.stderr)
    result = bench_data(options.data_dir, options.batches, options.repeats, options.seed)
    text = json.dumps(result, indent=2) + "\n" if options.json else as_markdown(result)
    print(text, end="")
    if options.out:
        write_whole(options.out, text.encode())
    return 0
