"""Time and memory of FM agreement against the number of children and of classes.

Streaming votes, by tiles and by the kernel, are measured throughout, plain votes where they fit into memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from paircaps._utils.machine import describe_machine, machine_line
from paircaps._utils.words import Say, as_size
from paircaps.bench.layer_shapes import CAPSNET_LAYER, LayerShape, inference_pass, training_pass
from paircaps.bench.memory import available_memory
from paircaps.bench.peak_memory import can_measure, layer_job, measure_peaks
from paircaps.bench.timing import interleaved, repeats_within, silent
from paircaps.votes.kernels.choice import describe_kernels

BATCH = 128
CHILDREN = (64, 256, 1024, 2048, 4096, 16_384, 65_536)
CLASSES = (10, 32, 100, 316, 1000)
FEWER_CHILDREN = 512
"""Children of the layers whose number of classes is varied."""

PLAIN_COPIES = 7
"""Upper bound on the memory of plain votes at the peak, in multiples of the votes themselves."""

CASES = {"plain": (False, "tiles"), "tiles": (True, "tiles"), "kernel": (True, "c")}
"""Whether votes are streamed, and the path of the sums, by the name of the case."""


def bench_scaling(
    seconds: float = 10.0, batch: int = BATCH, largest: int = CHILDREN[-1], say: Say = silent
) -> dict[str, Any]:
    """Measure layers with growing numbers of children, and with growing numbers of classes.

    Args:
        seconds: approximate time of all repeats at one size together.
        batch: images in a batch.
        largest: largest number of children and of classes that is measured.
        say: called with each progress line.
    """
    children = [replace(CAPSNET_LAYER, in_capsules=count) for count in CHILDREN if count <= largest]
    classes = [
        replace(CAPSNET_LAYER, in_capsules=FEWER_CHILDREN, out_capsules=count) for count in CLASSES if count <= largest
    ]
    return {
        "seconds": seconds,
        "batch": batch,
        "largest": largest,
        "children": [_point(shape, batch, seconds, say) for shape in children],
        "classes": [_point(shape, batch, seconds, say) for shape in classes],
        "machine": describe_machine(),
        "kernels": describe_kernels(),
    }


def _point(shape: LayerShape, batch: int, seconds: float, say: Say) -> dict[str, Any]:
    """Time and memory of one layer by each path."""
    say(str(shape))
    fits = PLAIN_COPIES * shape.votes_bytes(batch) < available_memory() / 2
    cases = [name for name, (streaming, _) in CASES.items() if fits or streaming]
    u = shape.random_children(batch)
    runs: dict[str, Callable[[], object]] = {}
    for name in cases:
        streaming, path = CASES[name]
        layer = shape.layer("fm", streaming)
        runs[f"{name} forward"] = inference_pass(layer, u, path)
        runs[f"{name} training"] = training_pass(layer, u, path)
    timings = interleaved(runs, repeats_within(runs, seconds), warm_up=0)
    del runs, u  # before memory is measured in another process
    return {
        "children": shape.in_capsules,
        "classes": shape.out_capsules,
        "votes_bytes": shape.votes_bytes(batch),
        "cases": {
            name: {
                "forward": timings[f"{name} forward"].in_milliseconds(),
                "training": timings[f"{name} training"].in_milliseconds(),
                "extra_bytes": _extra_bytes(shape, batch, *CASES[name]),
            }
            for name in cases
        },
    }


def _extra_bytes(shape: LayerShape, batch: int, streaming: bool, path: str) -> int | None:
    """Peak memory of a forward and backward pass beyond inputs, weights and gradients; None if unknown here."""
    if not can_measure():
        return None
    (peak,) = measure_peaks([layer_job(shape, batch, train=True, streaming=streaming, path=path)])
    return peak.extra


def as_markdown(result: dict[str, Any]) -> str:
    """Format the result as tables."""
    lines = [
        "# FM agreement as layers grow",
        "",
        f"`paircaps bench scaling --seconds {result['seconds']:g} --batch {result['batch']} "
        f"--largest {result['largest']}`",
        "",
        f"A capsule layer alone, vector votes of 8 → 16, {result['batch']} images: medians of repeats taken in turn, "
        "and the peak of a forward and backward pass beyond inputs, weights and their gradients, in another "
        "process. "
        f"The plain path is left out where {PLAIN_COPIES} times its votes are over half of the memory that is free. "
        f"{result['kernels']}. {machine_line(result['machine'])}.",
    ]
    for axis, title in (
        ("children", "Children, for 10 classes"),
        ("classes", f"Classes, for {FEWER_CHILDREN} children"),
    ):
        lines += [
            "",
            f"## {title}",
            "",
            f"| {axis} | votes | forward, ms: plain | tiles | kernel | "
            "forward and backward, ms: plain | tiles | kernel | extra memory: plain | tiles | kernel |",
            f"|{'---|' * 11}",
        ]
        for point in result[axis]:
            cells = [_cell(point, kind, case) for kind in ("forward", "training", "extra_bytes") for case in CASES]
            lines.append(f"| {point[axis]:,} | {as_size(point['votes_bytes'])} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _cell(point: dict[str, Any], kind: str, case: str) -> str:
    """One cell of a table: milliseconds with quartiles, or a size."""
    if case not in point["cases"]:
        return "does not fit"
    value = point["cases"][case][kind]
    if kind == "extra_bytes":
        return "not measured" if value is None else as_size(value)
    return f"{value['median']:,.1f} ({value['low']:,.1f} to {value['high']:,.1f})"
