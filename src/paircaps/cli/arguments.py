"""Arguments that several commands take."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path


def data_folder() -> argparse.ArgumentParser:
    """A parent parser with ``--data-dir``."""
    parent = argparse.ArgumentParser(add_help=False)
    parent.add_argument("--data-dir", type=Path, metavar="DIR", help="a folder to look in first, and to download to")
    return parent


def whole_number(least: int, most: int | None = None) -> Callable[[str], int]:
    """The type of an argument that is a whole number within bounds."""

    def parse(text: str) -> int:
        allowed = f"of at least {least}" if most is None else f"from {least} to {most}"
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if value < least or (most is not None and value > most):
            raise argparse.ArgumentTypeError(f"must be a whole number {allowed}, got {text!r}")
        return value

    return parse
