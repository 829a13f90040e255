"""Errors of datasets, files and folders."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from paircaps.errors import DataError, os_data_error

__all__ = ["DataError", "os_data_error", "wrong_input_as_data_error"]


@contextmanager
def wrong_input_as_data_error() -> Iterator[None]:
    """Turn a TypeError or ValueError about a name or option that a user typed into a DataError: no traceback."""
    try:
        yield
    except (TypeError, ValueError) as error:
        raise DataError(str(error)) from error
