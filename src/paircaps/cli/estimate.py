"""``paircaps estimate``: will it fit?"""

from __future__ import annotations

import argparse
import json
from typing import Any

from paircaps.bench.estimate import as_json, as_text, estimate
from paircaps.cli.arguments import add_option, whole_number
from paircaps.errors import RecipeError

RESERVED = ("name", "num_classes", "in_channels", "image_size", "routing")


def add_commands(commands: Any) -> None:
    """Declare ``estimate``."""
    command = commands.add_parser("estimate", help="parameters, operations and memory of a model, before it is run")
    command.add_argument("model", metavar="MODEL", help="a registered name, such as resnet-caps")
    command.add_argument(
        "--image-size", type=whole_number(1, 16_384), default=32, metavar="N", help="side of an image (%(default)s)"
    )
    command.add_argument(
        "--classes", type=whole_number(1, 1_000_000), default=10, metavar="C", help="number of classes (%(default)s)"
    )
    command.add_argument(
        "--batch",
        type=whole_number(2, 1_000_000),
        default=128,
        metavar="B",
        help="images at a time, two or more (%(default)s)",
    )
    command.add_argument(
        "--channels", type=whole_number(1, 10_000), default=3, metavar="N", help="of an image (%(default)s)"
    )
    routing_help = "one to estimate; may be given several times, all unless told"
    command.add_argument("--routing", action="append", default=[], metavar="NAME", help=routing_help)
    add_option(command, "of the model, as streaming=False", RESERVED)
    command.add_argument("--json", action="store_true", help="print JSON in place of a table")
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Estimate a model and print it."""
    try:
        rows = estimate(
            options.model,
            options.image_size,
            options.classes,
            options.batch,
            options.channels,
            options.routing,
            **dict(options.option),
        )
    except (TypeError, ValueError) as error:
        raise RecipeError(str(error)) from None
    except RuntimeError as error:
        if "overflow" not in str(error):
            raise
        raise RecipeError("no computer has that much memory: its bytes do not fit into 64 bits") from None
    size = f"{options.channels}×{options.image_size}×{options.image_size}"
    images = f"A batch of {options.batch:,} images of {size}, classes: {options.classes:,}"
    print(json.dumps(as_json(rows), indent=2) + "\n" if options.json else as_text(rows, images), end="")
    return 0
