"""Time and memory of FM agreement as children and classes grow: plain where it still fits, streaming throughout."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from paircaps._utils.machine import describe_machine, machine_line
from paircaps._utils.words import Say
from paircaps.bench.memory import as_size, available_memory
from paircaps.bench.peak import can_measure, layer_job, measure_peaks
from paircaps.bench.shapes import FULL, LayerShape, inference, training
from paircaps.bench.timing import interleaved, repeats_within, silent

BATCH = 128
CHILDREN = (64, 256, 1024, 2048, 4096, 16_384, 65_536)
CLASSES = (10, 32, 100, 316, 1000)
FEWER_CHILDREN = 512
"""Beside many classes."""

PLAIN_COPIES = 7
"""How many times the votes the plain path holds at its peak, to be on the safe side."""

CASES = {"plain": False, "streaming": True}


def bench_scaling(
    seconds: float = 10.0, batch: int = BATCH, largest: int = CHILDREN[-1], say: Say = silent
) -> dict[str, Any]:
    """Measure along both axes.

    Args:
        seconds: that all repeats of one point take together, more or less.
        batch: images.
        largest: number of children, and of classes, that is still measured.
        say: told what is measured now.
    """
    children = [replace(FULL, in_capsules=count) for count in CHILDREN if count <= largest]
    classes = [replace(FULL, in_capsules=FEWER_CHILDREN, out_capsules=count) for count in CLASSES if count <= largest]
    return {
        "seconds": seconds,
        "batch": batch,
        "largest": largest,
        "children": [_point(shape, batch, seconds, say) for shape in children],
        "classes": [_point(shape, batch, seconds, say) for shape in classes],
        "machine": describe_machine(),
    }


def _point(shape: LayerShape, batch: int, seconds: float, say: Say) -> dict[str, Any]:
    say(str(shape))
    fits = PLAIN_COPIES * shape.votes_bytes(batch) < available_memory() / 2
    cases = [name for name in CASES if fits or name == "streaming"]
    u = shape.children(batch)
    runs: dict[str, Callable[[], object]] = {}
    for name in cases:
        layer = shape.layer("fm", CASES[name])
        runs[f"{name} forward"] = inference(layer, u)
        runs[f"{name} training"] = training(layer, u)
    timings = interleaved(runs, repeats_within(runs, seconds), warm_up=0)
    del runs, u
    return {
        "children": shape.in_capsules,
        "classes": shape.out_capsules,
        "votes_bytes": shape.votes_bytes(batch),
        "cases": {
            name: {
                "forward": timings[f"{name} forward"].in_milliseconds(),
                "training": timings[f"{name} training"].in_milliseconds(),
                "extra_bytes": _extra(shape, batch, CASES[name]),
            }
            for name in cases
        },
    }


def _extra(shape: LayerShape, batch: int, streaming: bool) -> int | None:
    if not can_measure():
        return None
    (peak,) = measure_peaks([layer_job(shape, batch, train=True, streaming=streaming)])
    return peak.extra


def as_markdown(result: dict[str, Any]) -> str:
    """The result as tables."""
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
        f"{machine_line(result['machine'])}.",
    ]
    for axis, title in (
        ("children", "Children, for 10 classes"),
        ("classes", f"Classes, for {FEWER_CHILDREN} children"),
    ):
        lines += [
            "",
            f"## {title}",
            "",
            f"| {axis} | votes | forward, ms: plain | streaming | forward and backward, ms: plain | streaming | "
            "extra memory: plain | streaming |",
            "|---|---|---|---|---|---|---|---|",
        ]
        for point in result[axis]:
            cells = [_cell(point, kind, case) for kind in ("forward", "training", "extra_bytes") for case in CASES]
            lines.append(f"| {point[axis]:,} | {as_size(point['votes_bytes'])} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _cell(point: dict[str, Any], kind: str, case: str) -> str:
    if case not in point["cases"]:
        return "does not fit"
    value = point["cases"][case][kind]
    if kind == "extra_bytes":
        return "not measured" if value is None else as_size(value)
    return f"{value['median']:,.1f} ({value['low']:,.1f} to {value['high']:,.1f})"
