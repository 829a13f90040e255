"""Tile size of streaming votes, and the size from which streaming is faster than holding all votes.

The constants of :mod:`paircaps.votes.layout` were chosen by these measurements.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from paircaps._utils.machine import describe_machine, machine_line
from paircaps._utils.words import Say, as_size
from paircaps.bench.layer_shapes import CAPSNET_LAYER, LayerShape, inference_pass, training_pass
from paircaps.bench.timing import interleaved, ratio, silent

BATCH = 128
TILES = (4, 8, 16, 32, 48, 64, 128)
"""Children in a tile."""

BATCHES = (1, 2, 4, 8, 16, 32, 64, 128)
SHAPES = (CAPSNET_LAYER, replace(CAPSNET_LAYER, in_capsules=512), LayerShape(64, 32, 16, 16, "matrix", "pose"))

Runs = dict[str, Callable[[], object]]


def bench_tiles(repeats: int = 15, say: Say = silent) -> dict[str, Any]:
    """Time FM agreement by the size of a tile, and streaming against plain votes by the size of a batch.

    Args:
        repeats: timed runs of every case.
        say: called with each progress line.
    """
    return {
        "repeats": repeats,
        "layer": str(CAPSNET_LAYER),
        "batch": BATCH,
        "tiles": _time_tiles(repeats, say),
        "batches": [_time_batch(shape, batch, repeats, say) for shape in SHAPES for batch in BATCHES],
        "machine": describe_machine(),
    }


def _time_tiles(repeats: int, say: Say) -> list[dict[str, Any]]:
    """Milliseconds of CapsNet's layer for every number of children in a tile."""
    say(f"tiles of {CAPSNET_LAYER}")
    u = CAPSNET_LAYER.random_children(BATCH)
    runs: Runs = {}
    for tile in TILES:
        layer = CAPSNET_LAYER.layer("fm", True)
        layer.tile = tile
        runs[f"{tile} forward"] = inference_pass(layer, u, "tiles")
        runs[f"{tile} training"] = training_pass(layer, u, "tiles")
    timings = interleaved(runs, repeats)
    return [
        {
            "tile": tile,
            "votes_bytes": CAPSNET_LAYER.votes_bytes(BATCH) * tile // CAPSNET_LAYER.in_capsules,
            "forward": timings[f"{tile} forward"].in_milliseconds(),
            "training": timings[f"{tile} training"].in_milliseconds(),
        }
        for tile in TILES
    ]


def _time_batch(shape: LayerShape, batch: int, repeats: int, say: Say) -> dict[str, Any]:
    """Time of streaming votes, by tiles and by the kernel, over that of plain votes, of one layer and batch."""
    say(f"{batch} images through {shape}")
    u = shape.random_children(batch)
    runs: Runs = {}
    for name, streaming, path in (("kernel", True, "c"), ("tiles", True, "tiles"), ("plain", False, "tiles")):
        layer = shape.layer("fm", streaming)
        runs[f"{name} forward"] = inference_pass(layer, u, path)
        runs[f"{name} training"] = training_pass(layer, u, path)
    timings = interleaved(runs, repeats)
    ratios = {
        f"{path} {kind}": ratio(timings[f"{path} {kind}"], timings[f"plain {kind}"]).median
        for path in ("tiles", "kernel")
        for kind in ("forward", "training")
    }
    return {"layer": str(shape), "batch": batch, "votes_bytes": shape.votes_bytes(batch), **ratios}


def as_markdown(result: dict[str, Any]) -> str:
    """Format the result as two tables."""
    lines = [
        "# The size of a tile",
        "",
        f"`paircaps bench tiles --repeats {result['repeats']}`",
        "",
        f"Medians of {result['repeats']} repeats taken in turn. {machine_line(result['machine'])}.",
        "",
        f"CapsNet's layer, {result['layer']}, {result['batch']} images:",
        "",
        "| children in a tile | its votes | forward, ms | forward and backward, ms |",
        "|---|---|---|---|",
    ]
    for row in result["tiles"]:
        lines.append(
            f"| {row['tile']} | {as_size(row['votes_bytes'])} | {row['forward']['median']:.1f} | "
            f"{row['training']['median']:.1f} |"
        )
    lines += [
        "",
        "Streaming over plain, both forced; the plain path is faster above 1:",
        "",
        "| layer | images | votes | tiles: forward | and backward | kernel: forward | and backward |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in result["batches"]:
        lines.append(
            f"| {row['layer']} | {row['batch']} | {as_size(row['votes_bytes'])} | {row['tiles forward']:.2f} | "
            f"{row['tiles training']:.2f} | {row['kernel forward']:.2f} | {row['kernel training']:.2f} |"
        )
    return "\n".join(lines) + "\n"
