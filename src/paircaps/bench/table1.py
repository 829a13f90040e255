"""The paper's Table 1: milliseconds per batch at inference, by routing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor, nn

from paircaps._utils.machine import describe_machine, machine_line
from paircaps._utils.words import Say
from paircaps.bench.goals import Goal, goals_as_markdown
from paircaps.bench.layer_shapes import inference_pass
from paircaps.bench.profile import as_markdown as profile_as_markdown
from paircaps.bench.profile import profile_operators
from paircaps.bench.timing import Timing, interleaved, ratio, repeats_within, silent
from paircaps.models import CapsNet, create_model
from paircaps.votes.kernels.choice import describe_kernels

BATCH = 128
FLOOR = "floor"
"""Name of the case without votes and routing, which bounds every routing from below."""

ROUTINGS: dict[str, tuple[str, bool | str, dict[str, object]]] = {
    "dynamic(1)": ("dynamic", "auto", {"iterations": 1}),
    "dynamic(3)": ("dynamic", "auto", {"iterations": 3}),
    "dynamic(3), plain": ("dynamic", False, {"iterations": 3}),
    "EM(3)": ("em", "auto", {"iterations": 3}),
    "FM": ("fm", "auto", {}),
    "FM, plain": ("fm", False, {}),
}
"""Routing, streaming mode and routing options of every case; the plain ones hold all votes at once."""

IMAGES = {"CIFAR10": (3, 32), "Fashion-MNIST": (1, 28)}
"""Channels and side in pixels of the images of each dataset."""

MODELS = {"CapsNet light": "capsnet-light", "CapsNet": "capsnet"}


class Floor(nn.Module):
    """A CapsNet without its capsule layer: no votes, no routing.

    Args:
        model: the whole network.
    """

    def __init__(self, model: CapsNet) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor) -> Tensor:
        """Return the primary capsules, (B, H', W', groups, K)."""
        return self.model.primary(self.model.conv(images).relu()).s


def bench_table1(
    seconds: float = 20.0, batch: int = BATCH, say: Say = silent, paper: Mapping[str, Mapping[str, float]] | None = None
) -> dict[str, Any]:
    """Time inference of both widths of CapsNet on both shapes of images.

    Args:
        seconds: approximate time of all repeats of one network together.
        batch: images in a batch.
        say: called with each progress line.
        paper: milliseconds that the paper reports, by the keys of IMAGES and ROUTINGS.
    """
    paper = paper or {}
    tables = [_bench(title, data, batch, seconds, say, paper.get(data, {})) for title in MODELS for data in IMAGES]
    result = {"seconds": seconds, "batch": batch, "tables": tables, "machine": describe_machine()}
    result["kernels"] = describe_kernels()
    return {**result, "goals": [asdict(goal) for goal in _goals(tables)] if batch == BATCH else []}


def _bench(title: str, data: str, batch: int, seconds: float, say: Say, paper: Mapping[str, float]) -> dict[str, Any]:
    """Time one network on one shape of images with every routing."""
    say(f"{title} on images of {data}")
    channels, size = IMAGES[data]
    images = torch.randn(batch, channels, size, size)
    runs: dict[str, Callable[[], object]] = {}
    for name, (routing, streaming, options) in ROUTINGS.items():
        model = create_model(
            MODELS[title], 10, channels, size, routing, streaming=streaming, routing_options=options
        ).eval()
        runs[name] = inference_pass(model, images)
    floor = create_model(MODELS[title], 10, channels, size).eval()
    assert isinstance(floor, CapsNet)
    runs[FLOOR] = inference_pass(Floor(floor), images)
    timings = interleaved(runs, repeats_within(runs, seconds))
    return {
        "model": title,
        "data": data,
        "rows": [_row(name, timings, paper.get(name)) for name in (FLOOR, *ROUTINGS)],
        "profile": profile_operators(runs["FM"]),
    }


def _row(name: str, timings: dict[str, Timing], paper: float | None) -> dict[str, Any]:
    """Milliseconds of one case, and its ratios to the floor and to dynamic routing."""
    over = {other: ratio(timings[name], timings[other]) for other in (FLOOR, "dynamic(3)")}
    return {
        "case": name,
        **timings[name].in_milliseconds(),
        "paper": paper,
        "over_floor": over[FLOOR].median,
        "over_dynamic": over["dynamic(3)"].median,
    }


def _goals(tables: list[dict[str, Any]]) -> list[Goal]:
    """Bounds on FM agreement in CapsNet light."""
    goals = []
    for table in tables:
        if table["model"] != "CapsNet light":
            continue
        fm = next(row for row in table["rows"] if row["case"] == "FM")
        where = f"CapsNet light on {table['data']}, inference"
        goals += [
            Goal(f"{where}, FM / floor", 1.06, fm["over_floor"]),
            Goal(f"{where}, FM / our dynamic(3)", 0.65, fm["over_dynamic"]),
        ]
    return goals


def as_markdown(result: dict[str, Any]) -> str:
    """Format the result as tables."""
    lines = [
        "# Table 1: milliseconds of a batch",
        "",
        f"`paircaps bench table1 --seconds {result['seconds']:g} --batch {result['batch']}`",
        "",
        f"Inference of a batch of {result['batch']} images: medians and quartiles of repeats taken in turn. The floor "
        "is the same network up to its primary capsules: no votes, no routing. Plain routings hold all votes at once, "
        "the others run in their default mode. The paper's figures are of another machine, and its widths are not "
        "known; only the order compares. Ratios are taken round by round; the last column is over our dynamic(3). "
        f"{result['kernels']}. {machine_line(result['machine'])}.",
        "",
        *(goals_as_markdown([Goal(**goal) for goal in result["goals"]]) if result["goals"] else []),
        "",
        _bound(result["tables"]),
    ]
    for table in result["tables"]:
        repeats = table["rows"][0]["repeats"]
        lines += [
            "",
            f"## {table['model']}, {table['data']} ({repeats} repeats)",
            "",
            "| routing | ms | quartiles | paper, ms | over the floor | over dynamic(3) |",
            "|---|---|---|---|---|---|",
        ]
        for row in table["rows"]:
            paper = "" if row["paper"] is None else f"{row['paper']:.2f}"
            lines.append(
                f"| {row['case']} | {row['median']:,.1f} | {row['low']:,.1f} to {row['high']:,.1f} | {paper} | "
                f"{row['over_floor']:.2f} | {row['over_dynamic']:.2f} |"
            )
        lines += ["", "Where the time of FM goes:", "", *profile_as_markdown(table["profile"])]
    return "\n".join(lines) + "\n"


def _bound(tables: list[dict[str, Any]]) -> str:
    """Sentence on the ratio that no routing can go below."""
    floors = [
        f"{row['over_dynamic']:.2f} ({table['model']}, {table['data']})"
        for table in tables
        for row in table["rows"]
        if row["case"] == FLOOR
    ]
    return (
        f"What is left without any votes and routing, over our dynamic(3), bounds every routing: {', '.join(floors)}."
    )
