"""Description of the machine that something was measured on."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Mapping
from pathlib import Path

import torch

import paircaps


def describe_machine() -> dict[str, str | int]:
    """Processor, number of threads, versions and commit, by name."""
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count() or 1,
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "paircaps": paircaps.__version__,
        "commit": commit_of(Path(__file__).parent),
    }


def machine_line(machine: Mapping[str, str | int] | None = None) -> str:
    """Description of a machine in one line of text; None stands for this machine."""
    facts = describe_machine() if machine is None else machine
    return "; ".join(f"{key} {value}" for key, value in facts.items())


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def commit_of(folder: Path) -> str:
    """Short hash of the commit that a folder is checked out from, marked if files in that folder were changed."""

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=True).stdout.strip()

    try:
        changed = git("status", "--porcelain", "--", ".")
        return git("rev-parse", "--short", "HEAD") + (" with changes" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown (not a git checkout)"
