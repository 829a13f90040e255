"""Run ``paircaps info``."""

from __future__ import annotations

import argparse
import platform

import torch

from paircaps._utils.extras import EXTRAS, missing_packages
from paircaps._utils.machine import describe_machine
from paircaps._utils.text_tables import column_widths, text_line
from paircaps.votes.kernels.choice import kernels


def run(options: argparse.Namespace) -> int:
    """Print what this machine is and what is installed on it."""
    facts = {
        **describe_machine(),
        "system": platform.platform(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else "none",
        **{f"kernel {kernel.name}": f"{'used' if kernel.runs else 'not used'}: {kernel.why}" for kernel in kernels()},
        **{f"extra {extra}": _state(extra) for extra in EXTRAS},
    }
    rows = [(name, str(value)) for name, value in facts.items()]
    widths = column_widths(rows)
    for row in rows:
        print(text_line(row, widths, left=2))
    return 0


def _state(extra: str) -> str:
    """Whether an extra is installed, or what it lacks."""
    missing = missing_packages(extra)
    return f"lacks {', '.join(missing)}" if missing else "installed"
