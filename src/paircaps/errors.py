"""The errors that a person can mend: the command prints their sentence, no traceback."""

from __future__ import annotations

import signal


class PaircapsError(Exception):
    """Something that cannot be done; the message says what, with the value, and what is allowed."""


class RecipeError(PaircapsError):
    """A recipe with an unknown key, a bad value, or parts that do not fit together."""


class PluginError(PaircapsError):
    """A plug-in that is not there, or whose import fails."""


class ModelFileError(PaircapsError):
    """A saved model that is not there, is damaged, or is none of ours."""


class CheckpointError(PaircapsError):
    """A checkpoint that cannot be read or written."""


class TrainingError(PaircapsError):
    """A training that cannot start or cannot go on."""


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
