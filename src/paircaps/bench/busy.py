"""Time of a short training on a quiet machine, and beside processes that keep every core busy.

Each training is a process of its own: OpenMP reads its settings when it is loaded. Quiet and busy ones take turns.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from paircaps._utils.machine import describe_machine, machine_line
from paircaps._utils.processors import SPIN_COUNT, SPIN_VARIABLES, allowed_cores

TRAINING = ("train", "glyphs", "--train.steps", "40", "--train.batch_size", "64", "--data.limit", "1000", "--quiet")
"""Words of the command that is timed."""

GOAL = 3.0
"""Most that the training may take beside busy processes, as a multiple of its quiet time."""

_DEFAULT_SPIN = "300000"
"""Turns that OpenMP's threads spin where nobody sets a bound, in GCC's library, which PyTorch brings along."""

CASES: dict[str, tuple[tuple[str, ...], Mapping[str, str]]] = {
    "as it comes: free cores, bounded spinning": ((), {}),
    "all cores, bounded spinning": (("--run.threads", str(allowed_cores())), {"GOMP_SPINCOUNT": SPIN_COUNT}),
    "all cores, no spinning": (("--run.threads", str(allowed_cores())), {"GOMP_SPINCOUNT": "0"}),
    "all cores, OpenMP's own spinning": (("--run.threads", str(allowed_cores())), {"GOMP_SPINCOUNT": _DEFAULT_SPIN}),
    "one thread": (("--run.threads", "1"), {}),
}
"""More words of the command and environment variables, by the name of the case."""


def bench_busy(repeats: int = 3, say: Callable[[str], None] = lambda what: None) -> dict[str, object]:
    """Time the training in every case, quiet and beside as many busy processes as there are cores.

    Args:
        repeats: trainings of each case and condition.
        say: called with what is measured next.
    """
    times: dict[tuple[str, bool], list[float]] = {(name, busy): [] for name in CASES for busy in (False, True)}
    for repeat in range(repeats):
        for busy in (False, True):
            say(f"round {repeat + 1} of {repeats}, {'beside busy processes' if busy else 'quiet'}")
            with busy_processes(allowed_cores() if busy else 0):
                for name, (words, variables) in CASES.items():
                    times[name, busy].append(_train(words, variables))
    rows = []
    for name in CASES:
        quiet, loaded = (statistics.median(times[name, busy]) for busy in (False, True))
        rows.append({"case": name, "quiet": quiet, "busy": loaded, "ratio": loaded / quiet})
    return {"repeats": repeats, "processes": allowed_cores(), "rows": rows, "machine": describe_machine()}


@contextmanager
def busy_processes(count: int) -> Iterator[None]:
    """Context in which so many processes compute without end."""
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _train(words: tuple[str, ...], variables: Mapping[str, str]) -> float:
    """Seconds of one training in a new process and a new folder."""
    unset = (*SPIN_VARIABLES, "OMP_NUM_THREADS")
    environment = {name: value for name, value in os.environ.items() if name not in unset} | dict(variables)
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "paircaps", *TRAINING, *words, "--out", str(Path(folder) / "run")]
        began = time.perf_counter()
        subprocess.run(command, env=environment, check=True, capture_output=True)
        return time.perf_counter() - began


def as_markdown(result: dict) -> str:
    """Format the result as a table."""
    lines = [
        "# A short training on a busy machine",
        "",
        f"`paircaps bench busy --repeats {result['repeats']}`: seconds of `paircaps {' '.join(TRAINING)}`, its start "
        f"included, alone and beside {result['processes']} processes that compute without end; cases in turn, medians "
        f"of {result['repeats']}. {machine_line(result['machine'])}.",
        "",
        "| threads | quiet | busy | busy / quiet | goal |",
        "|---|---|---|---|---|",
    ]
    for number, row in enumerate(result["rows"]):
        goal = f"{GOAL:g}" if number == 0 else ""
        lines.append(f"| {row['case']} | {row['quiet']:.1f} | {row['busy']:.1f} | {row['ratio']:.1f} | {goal} |")
    return "\n".join(lines) + "\n"
