"""Errors of datasets, files and folders."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from paircaps.errors import PaircapsError


class DataError(PaircapsError):
    """A dataset, file or folder cannot be used; the message names it and says why, and what to do about it."""


def os_data_error(action: str, path: Path | str, error: OSError) -> DataError:
    """DataError about a refusal of the operating system: no such file, no permission, disk full."""
    return DataError(f"{path}: cannot {action}: {error.strerror or error}")


@contextmanager
def wrong_input_as_data_error() -> Iterator[None]:
    """Turn a TypeError or ValueError about a name or option that a user typed into a DataError: no traceback."""
    try:
        yield
    except (TypeError, ValueError) as error:
        raise DataError(str(error)) from error
