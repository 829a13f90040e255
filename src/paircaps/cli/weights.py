"""Run ``paircaps weights``, ``weights show`` and ``weights add``."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict

from paircaps._utils.shipped import IN_REPOSITORY, VARIABLE, missing_places
from paircaps._utils.text_tables import column_widths, text_line
from paircaps._utils.words import visible
from paircaps.pretrained import ShippedWeights, find_weights, list_weights


def print_weights(options: argparse.Namespace) -> int:
    """Print every network that comes with the project and is on this machine."""
    found = list_weights()
    if options.json:
        print(json.dumps([{**asdict(weights), "folder": str(weights.folder)} for weights in found], indent=2))
        return 0
    titles = ["", "model", "accuracy", "tested on", "parameters", "commit"]
    rows = [_row(weights) for weights in found]
    widths = column_widths([titles, *rows])
    print(text_line(titles, widths))
    for weights, row in zip(found, rows, strict=True):
        print(visible(text_line(row, widths)))
        print(visible(f"  trained on {weights.data} (licence: {weights.licence}); recipe {weights.recipe}"))
        print(visible(f"  SHA-256 {weights.sha256}, {weights.size / 1e6:.2f} MB in {weights.stored}"))
    for place in missing_places():
        print(f"paircaps: note: {VARIABLE} names {visible(str(place))}, which is no folder", file=sys.stderr)
    lost = [name for name in IN_REPOSITORY if name not in {weights.name for weights in found}]
    if lost:
        print(f"not here: {', '.join(lost)}. They are in the repository's folder weights, which {VARIABLE} can name")
    return 0


def _row(weights: ShippedWeights) -> list[str]:
    kind = f"{weights.model}, {weights.routing}" if weights.routing else weights.model
    return [
        weights.name,
        kind,
        f"{100 * weights.accuracy:.2f} %",
        weights.tested_on,
        f"{weights.parameters:,}",
        weights.commit,
    ]


def show_card(options: argparse.Namespace) -> int:
    """Print the card of a network."""
    print(visible(find_weights(options.name).card, keep="\n"), end="")
    return 0


def add_weights(options: argparse.Namespace) -> int:
    """Write a finished run as weights that come with the project."""
    from paircaps.shipping import ship

    def say(line: str) -> None:
        print(f"{visible(line)} ...", file=sys.stderr, flush=True)

    shipped = ship(options.folder, options.name, options.to, say, precision=options.precision, replace=options.replace)
    print(visible(f"{shipped.folder}: {100 * shipped.accuracy:.2f} %, {shipped.size / 1e6:.2f} MB"))
    if options.precision != "fp32":
        print(f"in float32: {100 * shipped.accuracy_fp32:.2f} %")
    return 0
