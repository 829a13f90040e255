"""Run ``paircaps train`` and ``paircaps replay``."""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence
from typing import Any

from paircaps._utils.allocator import keep_freed_memory
from paircaps._utils.plugins import load_plugins
from paircaps._utils.words import counted, visible
from paircaps.cli.arguments import path
from paircaps.cli.names import shipped_recipes
from paircaps.cli.parser import add_plugin_option
from paircaps.cli.recipe_argument import read_named_tree
from paircaps.errors import RecipeError
from paircaps.training.failure import Replay, replay
from paircaps.training.loop import TrainingResult, train
from paircaps.training.recipe_io import (
    in_words,
    overrides_to_tree,
    recipe_from_tree,
    recipe_parser,
    require_key,
    to_toml,
)
from paircaps.training.recipes import list_recipes
from paircaps.training.run_folder import existing_folder

_ABOUT = """
Train a network by a recipe. The same command again continues a training that was stopped, with the very same result.
Every key of a recipe can be given as --section.key value; --print-config prints the recipe with these values.
Several processes: torchrun --nproc-per-node N -m paircaps train ...
"""


def _parser(recipes: Sequence[str]) -> Any:
    """Parser of ``train``; ``recipes`` are those that its help names."""
    parser = recipe_parser("paircaps train")
    parser.usage = (
        "paircaps train RECIPE --out DIR [--hours H] [--fresh | --extend] [--quiet] [--print-config] "
        "[--SECTION.KEY VALUE ...]"
    )
    parser.description = _ABOUT
    parser.add_argument(
        "recipe",
        nargs="?",
        metavar="RECIPE",
        help=f"{', '.join(recipes)}, the path of a .toml file, or that of a folder of pictures, for the recipe folder",
    )
    parser.add_argument("--out", type=str, default="", metavar="DIR", help="folder of the run")
    parser.add_argument(
        "--hours",
        type=str,
        default="",
        metavar="H",
        help="time that the training may take on this machine: its length and schedule are changed to fit",
    )
    parser.add_argument("--fresh", action="store_true", help="remove the run that is in DIR, and start over")
    parser.add_argument(
        "--extend",
        action="store_true",
        help="make the run that is in DIR as long as --train.epochs or --train.steps say, if its schedule allows it",
    )
    parser.add_argument("--quiet", action="store_true", help="show no progress, only the result")
    add_plugin_option(parser)
    parser.add_argument("--print-config", action="store_true", help="print the recipe with all its keys, train nothing")
    return parser


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Options of ``train``; errors of jsonargparse become sentences that name the key."""
    for word in arguments:
        key = word.split("=")[0].removeprefix("--")
        if word.startswith("--") and "." in key:
            require_key(".".join(key.split(".")[:2]))
    wants_help = bool({"-h", "--help"} & set(arguments))
    parser = _parser(list_recipes() if wants_help else shipped_recipes())  # listing all imports the plug-ins
    try:
        given = parser.parse_args(list(arguments), defaults=False)
    except argparse.ArgumentError as error:
        raise RecipeError(in_words(error)) from None
    load_plugins(given.get("plugin") or [])  # before the recipe is read: it may be one of theirs
    if not given.get("recipe"):
        raise RecipeError(f"RECIPE is missing: one of {', '.join(list_recipes())}, or the path of a .toml file")
    tree = read_named_tree(given.recipe, given.get("out") or "", overrides_to_tree(given), bool(given.get("quiet")))
    return argparse.Namespace(
        run="train:run_train",
        recipe=recipe_from_tree(tree),
        out=path(given["out"]) if given.get("out") else None,
        hours=_hours(given.get("hours")),
        fresh=bool(given.get("fresh")),
        extend=bool(given.get("extend")),
        quiet=bool(given.get("quiet")),
        print_config=bool(given.get("print_config")),
    )


def _hours(text: str | None) -> float | None:
    """The number of hours that the user gave; None for none."""
    if not text:
        return None
    try:
        hours = float(text)
    except ValueError:
        hours = math.nan
    if not 0 < hours <= 10_000:
        raise RecipeError(f"--hours must be a number above 0 and of 10,000 at most, got {text!r}")
    return hours


def run_train(options: argparse.Namespace) -> int:
    """Train by the recipe, or print the recipe with ``--print-config``."""
    if options.print_config:
        if options.hours is not None:
            raise RecipeError("--print-config cannot show what --hours chooses: that is measured when training starts")
        print(to_toml(options.recipe), end="")
        return 0
    if options.out is None:
        raise RecipeError("--out DIR is missing: the folder of the run")
    keep_freed_memory()
    how = {"fresh": options.fresh, "quiet": options.quiet, "hours": options.hours, "extend": options.extend}
    result = train(options.recipe, options.out, **how)
    print(visible(_result_line(result)))
    return 0


def _result_line(result: TrainingResult) -> str:
    """Steps and accuracies of a finished training in one line."""
    trained = result.trained
    state = "was finished already," if result.resumed_at is None else "finished"
    has_masks = "test_mean_iou" in trained
    chosen = trained["validation_mean_iou" if has_masks else "validation_accuracy"]
    kind = "mean IoU " if has_masks else ""
    validation = "" if chosen is None else f"validation {kind}{100 * chosen:.2f} %, "
    iou = f"mean IoU {100 * trained['test_mean_iou']:.2f} %, accuracy " if has_masks else ""
    right = f"{100 * trained['test_accuracy']:.2f} %"
    test = f"test {iou}{right} of {trained['test_images']:,} images of {trained['tested_on']}"
    test += f" ({trained['note']})" if trained.get("note") else ""
    return (
        f"{result.folder}: {state} after {counted(trained['steps'], 'step')}; {validation}{test} "
        f"(weights of step {trained['weights_of_step']:,})"
    )


def run_replay(options: argparse.Namespace) -> int:
    """Repeat a failed step and print its report; the exit code is 0 if it fails again, 1 if it does not."""
    replayed = replay(existing_folder(options.folder))
    print(json.dumps(_replay_facts(replayed), indent=2) if options.json else _replay_text(replayed))
    return 0 if replayed.shown_again else 1


def _replay_facts(replayed: Replay) -> dict[str, object]:
    """The report of a repeated step for JSON; numbers that are not finite are text there."""
    return {
        "step": replayed.step,
        "shown_again": replayed.shown_again,
        "loss": str(replayed.loss),
        "reported_loss": str(replayed.reported),
        "gradient": str(replayed.gradient),
        "layers": replayed.layers,
        "weights": replayed.weights,
        "gradients": replayed.gradients,
    }


def _replay_text(replayed: Replay) -> str:
    """The report of a repeated step in sentences."""

    def some(names: list[str]) -> str:
        more = f" and {len(names) - 5} more" if len(names) > 5 else ""
        return ", ".join(names[:5]) + more if names else "none"

    verdict = "fails again" if replayed.shown_again else "does not fail now"
    return "\n".join(
        [
            f"step {replayed.step:,} {verdict}: loss {replayed.loss}, length of the gradient {replayed.gradient}; "
            f"the loss in the training was {replayed.reported}",
            f"weights that are not finite before it: {some(replayed.weights)}",
            f"layers whose output is not finite, the first one first: {some(replayed.layers)}",
            f"weights whose gradient is not finite: {some(replayed.gradients)}",
        ]
    )
