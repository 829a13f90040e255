"""Run ``paircaps estimate``."""

from __future__ import annotations

import argparse
import json

from paircaps.bench.estimate import as_json, as_text, estimate
from paircaps.errors import RecipeError


def run(options: argparse.Namespace) -> int:
    """Print parameters, operations and memory of a model, for each routing."""
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
