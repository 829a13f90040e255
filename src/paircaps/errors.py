"""Errors of the user; the command line prints their messages without a traceback."""

from __future__ import annotations

import signal
from pathlib import Path

__all__ = [
    "CheckpointError",
    "DataError",
    "FolderBusyError",
    "MissingExtraError",
    "ModelFileError",
    "PaircapsError",
    "PluginError",
    "RecipeError",
    "Stopped",
    "TrainingError",
]


class PaircapsError(Exception):
    """Base class; the message says what was wrong, with the value, and what is allowed.

    Args:
        lines: lines of the message; most have one. A line break within a line is of a name from outside, and the
            command line shows it escaped.
    """

    def __init__(self, *lines: str) -> None:
        super().__init__(*lines)
        self.lines = lines

    def __str__(self) -> str:
        return "\n".join(self.lines)

    def lines_between(self, before: str = "", after: str = "") -> tuple[str, ...]:
        """Lines of the message, with words before the first and after the last, for an error that says more."""
        lines = list(self.lines)
        lines[0] = f"{before}{lines[0]}"
        lines[-1] += after
        return tuple(lines)


class RecipeError(PaircapsError):
    """A recipe has an unknown key, a bad value, or parts that do not fit together."""


class PluginError(PaircapsError):
    """A plug-in that is not there, or whose import fails."""


class MissingExtraError(PaircapsError, ImportError):
    """A package that an extra of paircaps brings is not installed."""


class ModelFileError(PaircapsError):
    """A saved model is missing, is damaged, or was not written by paircaps."""


class DataError(PaircapsError):
    """A dataset, file or folder cannot be used; the message names it and says why, and what to do about it."""


class CheckpointError(PaircapsError):
    """A checkpoint cannot be read or written."""


class TrainingError(PaircapsError):
    """A training cannot start or cannot go on."""


class FolderBusyError(TrainingError):
    """Another process is training in the same folder."""


class Stopped(Exception):  # noqa: N818 (nothing went wrong)
    """A training was asked to stop, and has saved its state.

    Args:
        number: number of the signal.
        step: step at which the training stopped.
    """

    def __init__(self, number: int, step: int) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name} at step {step:,}; the same command goes on")
        self.code = 128 + number


def os_data_error(action: str, path: Path | str, error: OSError) -> DataError:
    """DataError about a refusal of the operating system: no such file, no permission, disk full."""
    return DataError(f"{path}: cannot {action}: {error.strerror or error}")
