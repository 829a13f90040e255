"""The one error of data that cannot be had or cannot be read."""

from __future__ import annotations

from pathlib import Path

from paircaps.errors import PaircapsError


class DataError(PaircapsError):
    """A dataset, file or folder that cannot be used; the message names it, says why, and what to do about it."""


def cannot(action: str, path: Path | str, error: OSError) -> DataError:
    """The DataError for a refusal of the operating system: no such file, no permission, disk full."""
    return DataError(f"{path}: cannot {action}: {error.strerror or error}")
