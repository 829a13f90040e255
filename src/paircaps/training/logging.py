"""Everything a run records and shows while it trains: metrics, timings, TensorBoard events and a progress display.

:class:`RunLog` is what the training loop uses; it owns one :class:`MetricsFile`, :class:`TimingFile`,
:class:`TensorBoardEvents` and :class:`ProgressDisplay`.
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO

from paircaps._utils.extras import extra_imports, require_extra
from paircaps._utils.files import sync_folder
from paircaps._utils.machine import describe_machine
from paircaps._utils.words import visible
from paircaps.errors import TrainingError
from paircaps.training.distributed import Processes
from paircaps.training.run_folder import RunFolder
from paircaps.training.state import Counters, Sums

with extra_imports("training"):
    from tqdm import tqdm

_BAR = "{desc} {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} [{elapsed}<{remaining}{postfix}]"


class RunLog:
    """Log of one start of a run. Only rank 0 writes files.

    Args:
        folder: where the run is.
        counters: position of the run; :meth:`log_steps` resets their window.
        processes: all processes of the training.
        tensorboard: True to write TensorBoard events too.
        display: progress display for the terminal.
    """

    def __init__(
        self, folder: RunFolder, counters: Counters, processes: Processes, tensorboard: bool, display: ProgressDisplay
    ) -> None:
        self.counters, self.display = counters, display
        self.metrics: MetricsFile | None = None
        self._timing: TimingFile | None = None
        with ExitStack() as stack:
            stack.enter_context(closing(display))
            events = folder.events if processes.first and tensorboard else None
            self._events = stack.enter_context(closing(TensorBoardEvents(events, counters.step)))
            if processes.first:
                self.metrics = stack.enter_context(
                    closing(MetricsFile(folder, counters.metrics_bytes, counters.metrics_sha256))
                )
                self._timing = stack.enter_context(closing(TimingFile(folder.timing)))
                self._timing.add(
                    {"start": counters.step, "processes": processes.world_size, "machine": describe_machine()}
                )
            self._files = stack.pop_all()  # all of them were opened: they are closed by close()

    def close(self) -> None:
        """Close all files and the display."""
        self._files.close()

    def log_row(self, kind: str, row: Mapping[str, Any]) -> None:
        """Write one row to ``metrics.jsonl`` and TensorBoard.

        Args:
            kind: ``"step"``, ``"epoch"`` or ``"test"``.
            row: values by name.
        """
        step = self.counters.step
        if self.metrics is not None:
            self.metrics.add({"kind": kind, "step": step, **row})
            self._events.add(kind, step, row)

    def log_steps(self, epoch: float, lr: float, gradient: float) -> None:
        """Write and show the means over the steps since the last such row.

        Args:
            epoch: epochs done, with a fraction.
            lr: learning rate of the last step.
            gradient: norm of the last gradient.
        """
        step, means = self.counters.step, self.counters.window.means()
        self.log_row("step", {"epoch": epoch, **means, "lr": lr, "gradient": _finite(gradient)})
        self.display.print_step(step, means["loss"], means["accuracy"])
        if self._timing is not None:
            self._timing.add({"step": step, "images_per_second": round(self.display.images_per_second(step), 1)})
        self.counters.window = Sums()

    def log_epoch(self, row: Mapping[str, Any]) -> None:
        """Write and show the row of an epoch."""
        self.log_row("epoch", row)
        self.display.print_line(_epoch_line(row))

    def log_end(self) -> None:
        """Write that this start ends here: the time since its last row is part of the training too."""
        if self._timing is not None:
            self._timing.add({"end": self.counters.step})


def _finite(value: float) -> float | None:
    """A number for JSON, which has no infinity; under fp16 a gradient may overflow, and its step is skipped."""
    return value if math.isfinite(value) else None


def _epoch_line(row: Mapping[str, Any]) -> str:
    loss, accuracy = row["train_loss"], 100 * row["train_accuracy"]
    text = f"epoch {round(row['epoch'], 2):g}: training loss {loss:.4f}, accuracy {accuracy:.2f} %"
    if "validation_loss" in row:
        loss, accuracy = row["validation_loss"], 100 * row["validation_accuracy"]
        text += f"; validation loss {loss:.4f}, accuracy {accuracy:.2f} %"
    if "validation_mean_iou" in row:
        text += f", mean IoU {100 * row['validation_mean_iou']:.2f} %"
    return text


# --- files -----------------------------------------------------------------------------------------------------------


class _RowFile:
    """File of JSON objects, one per line, each written to the operating system at once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.open("ab", buffering=0)  # unbuffered: closing it has nothing left to write

    def add(self, row: Mapping[str, object]) -> bytes:
        """Append a row, and return it as it was written."""
        line = (json.dumps(row) + "\n").encode()
        with self._translated_errors():
            if self._file.write(line) != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return line

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        """Turn an error of the operating system into a TrainingError that names the file."""
        try:
            yield
        except OSError as error:
            raise TrainingError(
                f"{self.path}: cannot write a row: {error.strerror}. Checkpoints are as they were"
            ) from error

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class MetricsFile(_RowFile):
    """``metrics.jsonl``: the same bytes for every repetition of a run, however often it is interrupted.

    A resume cuts off the rows written after its checkpoint, so no row appears twice.

    Args:
        folder: folder of the run, locked.
        length: bytes to keep; the rest is cut off.
        sha256: SHA-256 of the bytes to keep, if it is known.
    """

    def __init__(self, folder: RunFolder, length: int, sha256: str = "") -> None:
        path, self._folder = folder.metrics, folder
        super().__init__(path)
        found = self._file.seek(0, os.SEEK_END)
        if found < length:
            self._file.close()
            raise TrainingError(
                f"{path}: has {found:,} bytes, {length:,} when the checkpoint was written: rows are missing. "
                "Put the file back, or start over with --fresh or in another folder"
            )
        with path.open("rb") as kept:
            self._hash = hashlib.sha256(kept.read(length))
        if sha256 and self.sha256 != sha256:
            self._file.close()
            raise TrainingError(
                f"{path}: damaged or changed since the checkpoint was written: the SHA-256 of its first {length:,} "
                f"bytes is {self.sha256}, and was {sha256}. Put the file back, or start over with --fresh or in "
                "another folder"
            )
        self._file.truncate(length)
        sync_folder(path.parent)

    def add(self, row: Mapping[str, object]) -> bytes:
        """Append a row, unless another training may have taken the folder."""
        self._folder.require_held()
        line = super().add(row)
        self._hash.update(line)
        return line

    @property
    def sha256(self) -> str:
        """SHA-256 of the whole file."""
        return self._hash.hexdigest()

    @property
    def length(self) -> int:
        """Length of the file in bytes."""
        return self._file.seek(0, os.SEEK_END)

    def sync(self) -> None:
        """Wait until all rows are on the disk."""
        with self._translated_errors():
            os.fsync(self._file.fileno())


class TimingFile(_RowFile):
    """``timing.jsonl``: when each start of a run began and ended, on which machine, and its speed.

    It differs in every run.
    """

    def add(self, row: Mapping[str, object]) -> bytes:
        """Append a row with the current time."""
        return super().add({"time": round(time.time(), 3), **row})


class TensorBoardEvents:
    """TensorBoard events of a run, if they are wanted.

    Args:
        folder: where the events are written; None for no events.
        step: current step; events after it are discarded.
    """

    def __init__(self, folder: Path | None, step: int) -> None:
        self._writer = None
        if folder is None:
            return
        require_extra("run.tensorboard", "tensorboard", extra="tensorboard")
        from torch.utils.tensorboard.writer import SummaryWriter

        self._writer = SummaryWriter(str(folder), purge_step=step + 1 if step else None)

    def add(self, kind: str, step: int, row: Mapping[str, object]) -> None:
        """Write the floats of a row as scalars named ``kind/name``."""
        if self._writer is None:
            return
        for name, value in row.items():
            if isinstance(value, float):
                self._writer.add_scalar(f"{kind}/{name}", value, step)

    def close(self) -> None:
        """Flush and close."""
        if self._writer is not None:
            self._writer.close()


# --- terminal --------------------------------------------------------------------------------------------------------


class ProgressDisplay:
    """Progress of a run on standard error: a bar in a terminal, plain lines elsewhere.

    Args:
        steps: steps of the whole run.
        done: steps that were done before this start.
        batch_size: images per step.
        quiet: True to show nothing.
        stream: output stream; standard error by default.
    """

    def __init__(self, steps: int, done: int, batch_size: int, quiet: bool, stream: TextIO | None = None) -> None:
        self.steps, self.batch_size = steps, batch_size
        self._stream: TextIO | None = stream or sys.stderr  # None under `2>&-`
        self._quiet = quiet or self._stream is None
        self._begin, self._first = time.perf_counter(), done
        self._bar: tqdm | None = None
        if not quiet and self._stream is not None and self._stream.isatty():
            size = shutil.get_terminal_size((80, 24))  # some terminals report no size, and tqdm then shows nothing
            self._bar = tqdm(
                total=steps,
                initial=done,
                file=self._stream,
                ncols=size.columns,
                nrows=size.lines,
                bar_format=_BAR,
                desc="step",
            )

    def images_per_second(self, step: int) -> float:
        """Mean speed since this start, including validation and checkpoints."""
        return (step - self._first) * self.batch_size / max(1e-9, time.perf_counter() - self._begin)

    def advance_bar(self, loss: float, accuracy: float) -> None:
        """Move the bar by one step; nothing where there is no bar."""
        if self._bar is not None and not self._quiet:
            speed = self.images_per_second(self._bar.n + 1)
            self._bar.set_postfix_str(
                f"loss {loss:.3f}, accuracy {100 * accuracy:.1f} %, {speed:,.0f} images/s", refresh=False
            )
            try:
                self._bar.update()
            except OSError:  # the terminal has gone
                self._quiet = True

    def print_step(self, step: int, loss: float, accuracy: float) -> None:
        """Print loss, accuracy, speed and time left as a line; nothing where there is a bar."""
        if self._bar is None and not self._quiet:
            speed = self.images_per_second(step)
            left = (self.steps - step) * self.batch_size / max(1e-9, speed)
            self.print_line(
                f"step {step:,}/{self.steps:,}  loss {loss:.4f}  accuracy {100 * accuracy:.2f} %  "
                f"{speed:,.0f} images/s  {tqdm.format_interval(left)} left"
            )

    def print_line(self, text: str) -> None:
        """Print a line, above the bar if there is one."""
        if self._quiet:
            return
        text = visible(text, keep="\n")
        try:
            if self._bar is not None:
                self._bar.write(text, file=self._stream)
            else:
                print(text, file=self._stream, flush=True)
        except OSError:  # the reader of the pipe has gone, or the terminal; the training goes on in silence
            self._quiet = True

    def close(self) -> None:
        """Close the bar and leave it on the screen."""
        if self._bar is not None:
            with suppress(OSError):
                self._bar.close()
