"""Cores that a process may use and that are free, and the spinning of OpenMP's threads; without importing PyTorch."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, MutableMapping
from pathlib import Path

SPIN_VARIABLES = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY", "KMP_BLOCKTIME")
"""Variables by which a user chooses how long OpenMP's threads spin; if one is set, it stays as it is."""

SPIN_COUNT = "20000"
"""Turns that a thread spins before it sleeps: some ten microseconds, longer than between two small operations."""

_SAMPLES, _PAUSE = 10, 0.01
"""Number of times that running threads are counted, and the seconds between two of them."""


def limit_spinning(environ: MutableMapping[str, str] = os.environ) -> None:
    """Let OpenMP's threads sleep soon when they have nothing to do, unless the user has chosen otherwise.

    They spin at the end of every parallel operation. On a machine that other processes use too, a spinning thread takes
    the core that the last working thread needs, and training takes several times as long. OpenMP reads the variable
    when it is loaded: call this before PyTorch is imported.

    Args:
        environ: environment variables of the process.
    """
    if not any(name in environ for name in SPIN_VARIABLES):
        environ["GOMP_SPINCOUNT"] = SPIN_COUNT


def allowed_cores(cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """Number of cores that this process may use, by its affinity and the quota of its container; at least one.

    Args:
        cgroup: folder with the limits of the container.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _quota(cgroup)
    return cores if quota is None else max(1, min(cores, math.ceil(quota)))


def _quota(cgroup: Path) -> float | None:
    """Cores that a container may use, by version 2 or 1 of Linux's control groups; None without a limit."""
    try:
        limit, period = (cgroup / "cpu.max").read_text().split()
        return None if limit == "max" else int(limit) / int(period)
    except (OSError, ValueError, ZeroDivisionError):
        pass
    try:
        limit, period = (int((cgroup / "cpu" / f"cpu.cfs_{name}_us").read_text()) for name in ("quota", "period"))
        return None if limit <= 0 or period <= 0 else limit / period
    except (OSError, ValueError):
        return None


def free_cores(running: Callable[[], int | None] | None = None) -> int:
    """Number of allowed cores that no other process computes on at present; at least one.

    Args:
        running: number of threads that run or wait for a core on the whole machine, this one included; None if it
            cannot be known.
    """
    count = running or _running_threads
    samples: list[int] = []
    for number in range(_SAMPLES):
        if number:
            time.sleep(_PAUSE)
        threads = count()
        if threads is None:
            return allowed_cores()
        samples.append(threads - 1)  # without this one
    others = sorted(samples)[len(samples) // 2]
    return max(1, min(allowed_cores(), (os.cpu_count() or 1) - others))


def _running_threads() -> int | None:
    try:
        lines = Path("/proc/stat").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("procs_running"))
    except (OSError, ValueError, StopIteration):
        return None


def has_fast_bfloat16(cpuinfo: Path = Path("/proc/cpuinfo")) -> bool:
    """Whether the processor multiplies bfloat16 by instructions of its own (AVX-512 BF16 or AMX).

    Args:
        cpuinfo: description of the processor.
    """
    try:
        flags = next(line for line in cpuinfo.read_text().splitlines() if line.startswith("flags"))
    except (OSError, StopIteration):
        return False
    return bool({"avx512_bf16", "amx_bf16"} & set(flags.split()))
