"""Time spent in each PyTorch operator, by PyTorch's own profiler."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from torch.profiler import ProfilerActivity, profile

os.environ.setdefault(
    "KINETO_LOG_LEVEL", "99"
)  # otherwise the profiler writes to standard error when it starts and stops

LARGEST = 8
"""Operators with a row of their own, if nothing else is asked for; all others are added up."""


def profile_operators(run: Callable[[], object], repeats: int = 5, largest: int = LARGEST) -> list[dict[str, Any]]:
    """Profile a function: one row per operator, the slowest first, and one row for all others together.

    Args:
        run: function to profile, after one run to warm up.
        repeats: runs over which times are averaged.
        largest: number of operators with a row of their own.
    """
    run()
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        for _ in range(repeats):
            run()
    spent = sorted(((e.key, e.count, e.self_cpu_time_total) for e in profiled.key_averages()), key=lambda row: -row[2])
    total = sum(microseconds for _, _, microseconds in spent)
    rows = [
        *spent[:largest],
        ("all others", sum(n for _, n, _ in spent[largest:]), sum(t for *_, t in spent[largest:])),
    ]
    return [
        {"operator": name, "calls": calls / repeats, "ms": time / 1e3 / repeats, "share": time / total}
        for name, calls, time in rows
    ]


def as_markdown(rows: list[dict[str, Any]]) -> list[str]:
    """Format rows of a profile as the lines of a table."""
    lines = ["| operator | calls | ms | share |", "|---|---|---|---|"]
    for row in rows:
        lines.append(f"| {row['operator']} | {row['calls']:,.0f} | {row['ms']:,.1f} | {100 * row['share']:.0f} % |")
    return lines
