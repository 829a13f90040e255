"""Where the time goes: PyTorch's own profile of a run, operator by operator."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from torch.profiler import ProfilerActivity, profile

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # the profiler tells standard error of its comings and goings

LARGEST = 8
"""Operators that are named; the others are added up."""


def profile_operators(run: Callable[[], object], repeats: int = 5) -> list[dict[str, Any]]:
    """Time spent in each operator itself, the longest first, and in all others together.

    Args:
        run: what is profiled, after one run to warm up.
        repeats: runs that the times are a mean of.
    """
    run()
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        for _ in range(repeats):
            run()
    spent = sorted(((e.key, e.count, e.self_cpu_time_total) for e in seen.key_averages()), key=lambda row: -row[2])
    whole = sum(microseconds for _, _, microseconds in spent)
    rows = [
        *spent[:LARGEST],
        ("all others", sum(n for _, n, _ in spent[LARGEST:]), sum(t for *_, t in spent[LARGEST:])),
    ]
    return [
        {"operator": name, "calls": calls / repeats, "ms": time / 1e3 / repeats, "share": time / whole}
        for name, calls, time in rows
    ]


def as_markdown(rows: list[dict[str, Any]]) -> list[str]:
    """Lines of a table."""
    lines = ["| operator | calls | ms | share |", "|---|---|---|---|"]
    for row in rows:
        lines.append(f"| {row['operator']} | {row['calls']:,.0f} | {row['ms']:,.1f} | {100 * row['share']:.0f} % |")
    return lines
