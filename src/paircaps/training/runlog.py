"""What a run writes down while it goes: metrics that a resume repeats exactly, and timings that nobody can repeat."""

from __future__ import annotations

import errno
import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from paircaps._utils.files import sync_folder
from paircaps.errors import TrainingError


class _Rows:
    """A file that grows by one JSON object a line, each handed to the operating system at once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.open("ab", buffering=0)  # nothing is left to be written when it is closed

    def add(self, row: Mapping[str, object]) -> None:
        """Write a row."""
        line = (json.dumps(row) + "\n").encode()
        with self._told():
            if self._file.write(line) != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    @contextmanager
    def _told(self) -> Iterator[None]:
        """A refusal of the operating system as a sentence."""
        try:
            yield
        except OSError as error:
            raise TrainingError(
                f"{self.path}: cannot write a row: {error.strerror}. Checkpoints are as they were"
            ) from error

    def close(self) -> None:
        """No more rows."""
        self._file.close()


class MetricsFile(_Rows):
    """``metrics.jsonl``: a JSON object a line. A resume cuts off what came after its checkpoint: no row comes twice.

    Args:
        path: of the file.
        length: bytes of it that count; those after them are cut off.
    """

    def __init__(self, path: Path, length: int) -> None:
        super().__init__(path)
        there = self._file.seek(0, os.SEEK_END)
        if there < length:
            self._file.close()
            raise TrainingError(
                f"{path}: has {there:,} bytes, {length:,} when the checkpoint was written: rows are missing. "
                "Put the file back, or start over with --fresh or in another folder"
            )
        self._file.truncate(length)
        sync_folder(path.parent)

    @property
    def length(self) -> int:
        """In bytes."""
        return self._file.seek(0, os.SEEK_END)

    def sync(self) -> None:
        """Return when all rows are on the disk."""
        with self._told():
            os.fsync(self._file.fileno())


class TimingFile(_Rows):
    """``timing.jsonl``: when each start of a run began, on what machine, and how fast it went."""

    def add(self, row: Mapping[str, object]) -> None:
        """Write a row with the time."""
        super().add({"time": round(time.time(), 3), **row})


class Events:
    """TensorBoard events, if asked for.

    Args:
        folder: to write to; None for no events.
        step: events after this one are cut off.
    """

    def __init__(self, folder: Path | None, step: int) -> None:
        self._writer = None
        if folder is None:
            return
        try:
            from torch.utils.tensorboard.writer import SummaryWriter
        except ImportError:
            raise TrainingError("run.tensorboard needs TensorBoard: pip install 'paircaps[tensorboard]'") from None
        self._writer = SummaryWriter(str(folder), purge_step=step + 1 if step else None)

    def add(self, kind: str, step: int, row: Mapping[str, object]) -> None:
        """The numbers of a row as scalars."""
        if self._writer is None:
            return
        for name, value in row.items():
            if isinstance(value, float):
                self._writer.add_scalar(f"{kind}/{name}", value, step)

    def close(self) -> None:
        """Write what is left."""
        if self._writer is not None:
            self._writer.close()
