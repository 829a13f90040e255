"""``paircaps reproduce`` and ``paircaps report``: the paper's tables and figures, made again."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from paircaps.cli.arguments import path, positive_number, whole_number
from paircaps.errors import RecipeError
from paircaps.paper.experiments import ALL, experiments, find_experiments
from paircaps.paper.plan import RUNS, Choice, listed
from paircaps.paper.report import write_report
from paircaps.paper.reproduce import ReproduceSummary, reproduce, require_known
from paircaps.paper.training_length import Budget
from paircaps.training.recipe_io import RecipeTree, merge, parse_setting

_ABOUT = """
Make tables and figures of the paper again, each of ordinary trainings, and write a report of them. The same command
again goes on where it was stopped, and skips what is done. What has no data here is told, and left out.
"""
_ABOUT_REPORT = """
Write report.html, one page that needs nothing beside it, and report.md with its pictures, from what is in the folder.
"""


def add_commands(commands: Any) -> None:
    """Declare ``reproduce`` and ``report``."""
    names = ", ".join((*experiments(), ALL))
    command = commands.add_parser("reproduce", help="make tables and figures of the paper again", description=_ABOUT)
    command.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help=f"{names}; table4 comes with table3, and table2-small, which is not in the paper, not with all",
    )
    command.add_argument("--list", action="store_true", help="what each needs, and how long it would take here")
    command.add_argument("--out", type=path, metavar="DIR", help="the folder of all results")
    command.add_argument(
        "--seeds", type=whole_number(1, 1000), metavar="N", help="how many seeds; the paper's number without it"
    )
    lengths = command.add_mutually_exclusive_group()
    lengths.add_argument(
        "--epochs",
        type=whole_number(1, 1_000_000),
        metavar="N",
        help="length of every training; the paper's without it",
    )
    lengths.add_argument(
        "--hours", type=positive_number, metavar="H", help="time of all trainings together, estimated beforehand"
    )
    command.add_argument("--limit", type=whole_number(32), metavar="N", help="images of each split, at most")
    command.add_argument(
        "--short",
        action="store_true",
        help="take settings that suit short trainings: one-cycle, where needed at a higher rate; the report says so",
    )
    command.add_argument(
        "--data", action="append", default=[], metavar="NAME", help="this dataset only; may be given several times"
    )
    command.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="NETWORK",
        help="this network only, as fm or pool; may be given several times",
    )
    command.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="SECTION.KEY=VALUE",
        help="change a setting of every training, as train.ema=0.999; the report says so; may be given several times",
    )
    command.add_argument("--quiet", action="store_true", help="show no progress within a training")
    command.set_defaults(run=run_reproduce)

    report = commands.add_parser(
        "report", help="the paper's tables and figures beside ours, as a page", description=_ABOUT_REPORT
    )
    report.add_argument("folder", type=path, metavar="DIR", help="the --out of paircaps reproduce")
    report.set_defaults(run=run_report)


def run_reproduce(options: argparse.Namespace) -> int:
    """List, or train and report."""
    if options.list:
        wanted = find_experiments(options.names or list(experiments()))
        _say("timing every network for a moment ...")
        print(listed(wanted), end="")
        return 0
    if not options.names:
        raise RecipeError(f"NAME is missing: one of {', '.join((*experiments(), ALL))}; --list tells more of them")
    wanted = find_experiments(options.names)
    if options.out is None:
        raise RecipeError("--out DIR is missing: the folder of all results")
    if options.out.exists() and not options.out.is_dir():
        raise RecipeError(f"--out: {options.out} is a file; it takes a folder")
    choice = Choice(
        budget=Budget(epochs=options.epochs),
        seeds=options.seeds,
        limit=options.limit,
        short=options.short,
        data=tuple(options.data),
        variants=tuple(options.only),
        changes=_changes(options.set),
    )
    require_known(wanted, choice)
    outcome = reproduce(wanted, options.out, choice, hours=options.hours, say=_say, quiet=options.quiet)
    if (options.out / RUNS).is_dir():
        _print_files(write_report(options.out))
    return _tell(outcome)


def _changes(settings: list[str]) -> RecipeTree:
    tree: RecipeTree = {}
    for text in settings:
        try:
            tree = merge(tree, parse_setting(text))
        except RecipeError as error:
            raise RecipeError(f"--set: {error}") from None
    return tree


def run_report(options: argparse.Namespace) -> int:
    """Write the report of what is there."""
    _print_files(write_report(options.folder))
    return 0


def _tell(outcome: ReproduceSummary) -> int:
    for title, lines in (("no data", outcome.missing), ("failed", outcome.failed)):
        for line in lines:
            print(f"{title}: {line}", file=sys.stderr)
    if not outcome.done and not outcome.failed:
        print("paircaps: nothing could be run", file=sys.stderr)
    return 0 if outcome.done and not outcome.failed else 1


def _print_files(files: list[Path]) -> None:
    print("written:", *files, sep="\n  ")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
