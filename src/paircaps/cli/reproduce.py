"""``paircaps reproduce`` and ``paircaps report``: reproduce the paper's tables and figures, and report on them."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from paircaps._utils.allocator import keep_freed_memory
from paircaps._utils.words import visible
from paircaps.errors import RecipeError
from paircaps.paper import comparison
from paircaps.paper.experiments import ALL, experiments, find_experiments
from paircaps.paper.own_routing import take_own_routings
from paircaps.paper.plan import RUNS, Choice, describe_experiments
from paircaps.paper.report import write_report
from paircaps.paper.reproduce import ReproduceSummary, reproduce, require_known_choice
from paircaps.paper.training_length import Budget
from paircaps.training.recipe_io import RecipeTree, merge, parse_setting


def run_reproduce(options: argparse.Namespace) -> int:
    """Run ``paircaps reproduce``: list experiments, or train and write the report; returns the exit code."""
    if comparison.NAME in options.names:
        return _run_comparison(options)
    if options.steps is not None:
        raise RecipeError(f"--steps is for {comparison.NAME}; the paper's experiments have --epochs and --hours")
    if options.list:
        wanted = find_experiments(options.names or list(experiments()))
        print(describe_experiments(wanted), end="")
        return 0
    if not options.names:
        raise RecipeError(f"NAME is missing: one of {', '.join((*experiments(), ALL))}; --list describes them")
    wanted = find_experiments(options.names)
    if options.out is None:
        raise RecipeError("--out DIR is missing: the folder of all results")
    if options.out.exists() and not options.out.is_dir():
        raise RecipeError(f"--out: {options.out} is a file; it takes a folder")
    wanted, only, changes = take_own_routings(wanted, options.only, _changes(options.set))
    choice = Choice(
        budget=Budget(epochs=options.epochs),
        seeds=options.seeds,
        limit=options.limit,
        short=options.short,
        data=tuple(options.data),
        variants=tuple(only),
        changes=changes,
    )
    require_known_choice(wanted, choice)
    keep_freed_memory()
    summary = reproduce(wanted, options.out, choice, hours=options.hours, say=_say, quiet=options.quiet)
    if (options.out / RUNS).is_dir():
        _print_files(write_report(options.out))
    return _print_problems(summary)


def _run_comparison(options: argparse.Namespace) -> int:
    """Run ``paircaps reproduce routings``: train every routing in the same networks; returns the exit code."""
    if options.names != [comparison.NAME]:
        raise RecipeError(f"{comparison.NAME} compares routings and is no table of the paper: give it alone")
    given = {"--epochs": options.epochs, "--hours": options.hours, "--limit": options.limit, "--set": options.set}
    for name, value in {**given, "--short": options.short}.items():
        if value:
            raise RecipeError(f"{name} is not for {comparison.NAME}, whose trainings are all alike: it has --steps")
    wanted = comparison.RoutingComparison(tasks=tuple(options.data), routings=tuple(options.only))
    wanted = replace(wanted, steps=options.steps or wanted.steps, seeds=options.seeds or wanted.seeds)
    if options.list:
        print(comparison.describe(wanted), end="")
        return 0
    if options.out is None:
        raise RecipeError("--out DIR is missing: the folder of all results")
    if options.out.exists() and not options.out.is_dir():
        raise RecipeError(f"--out: {options.out} is a file; it takes a folder")
    folder = options.out / comparison.NAME
    keep_freed_memory()
    done, problems = comparison.compare_routings(wanted, folder, _say, quiet=options.quiet)
    _print_files(comparison.write_page(replace(wanted, routings=()), folder))  # a page has all that there is
    return _print_problems(ReproduceSummary(done, (), tuple(problems)))


def _changes(settings: list[str]) -> RecipeTree:
    """Settings of all ``--set`` options, as sections of keys."""
    if sum(text.partition("=")[0].strip() == "model.routing" for text in settings) > 1:
        raise RecipeError("--set: model.routing is given twice: each is a row of its own, by a command of its own")
    tree: RecipeTree = {}
    for text in settings:
        try:
            tree = merge(tree, parse_setting(text))
        except RecipeError as error:
            raise RecipeError(f"--set: {error}") from None
    return tree


def run_report(options: argparse.Namespace) -> int:
    """Run ``paircaps report``: write the report of a folder of results; returns the exit code."""
    _print_files(write_report(options.folder))
    return 0


def _print_problems(summary: ReproduceSummary) -> int:
    """Print what is missing or failed; returns the exit code, 0 if something was done and nothing failed."""
    for title, lines in (("no data", summary.missing), ("failed", summary.failed)):
        for line in lines:
            _say(f"{title}: {line}")
    if not summary.done and not summary.failed:
        print("paircaps: nothing could be run", file=sys.stderr)
    return 0 if summary.done and not summary.failed else 1


def _print_files(files: list[Path]) -> None:
    print("written:", *(visible(str(file)) for file in files), sep="\n  ")


def _say(text: str) -> None:
    print(visible(text, keep="\n"), file=sys.stderr, flush=True)
