"""The errors that a person can mend: the command prints their sentence, no traceback."""

from __future__ import annotations


class PaircapsError(Exception):
    """Something that cannot be done; the message says what, with the value, and what is allowed."""


class RecipeError(PaircapsError):
    """A recipe with an unknown key, a bad value, or parts that do not fit together."""


class ModelFileError(PaircapsError):
    """A saved model that is not there, is damaged, or is none of ours."""


class CheckpointError(PaircapsError):
    """A checkpoint that cannot be read or written."""


class TrainingError(PaircapsError):
    """A training that cannot start or cannot go on."""


class FolderBusyError(TrainingError):
    """Another process is training in the same folder."""
