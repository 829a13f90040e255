"""What is written and shown of a run while it goes: rows of metrics, timings, TensorBoard, a display."""

from __future__ import annotations

import math
from contextlib import ExitStack, closing
from typing import Any

from paircaps._utils.machine import describe_machine
from paircaps.training.display import Display
from paircaps.training.distributed import Processes
from paircaps.training.run_folder import RunFolder
from paircaps.training.runlog import Events, MetricsFile, TimingFile
from paircaps.training.state import Counters, Sums


class Journal:
    """All of it for one start of a run, until it is closed. Only the first process writes.

    Args:
        folder: of the run.
        counters: where the run stands; they go on, and their window is emptied when it has been logged.
        processes: that train together.
        tensorboard: whether to write events too.
        display: what a person sees.
    """

    def __init__(
        self, folder: RunFolder, counters: Counters, processes: Processes, tensorboard: bool, display: Display
    ) -> None:
        self.counters, self.display = counters, display
        self.metrics: MetricsFile | None = None
        self._timing: TimingFile | None = None
        with ExitStack() as stack:
            stack.enter_context(closing(display))
            events = folder.events if processes.first and tensorboard else None
            self._events = stack.enter_context(closing(Events(events, counters.step)))
            if processes.first:
                self.metrics = stack.enter_context(closing(MetricsFile(folder.metrics, counters.metrics_bytes)))
                self._timing = stack.enter_context(closing(TimingFile(folder.timing)))
                self._timing.add(
                    {"start": counters.step, "processes": processes.world_size, "machine": describe_machine()}
                )
            self._files = stack.pop_all()

    def close(self) -> None:
        """Nothing more is written or shown."""
        self._files.close()

    def row(self, kind: str, row: dict[str, Any]) -> None:
        """A row of metrics: ``step``, ``epoch`` or ``test``."""
        step = self.counters.step
        if self.metrics is not None:
            self.metrics.add({"kind": kind, "step": step, **row})
            self._events.add(kind, step, row)

    def window(self, epoch: float, lr: float, gradient: float) -> None:
        """The means of the steps since the last such row."""
        step, means = self.counters.step, self.counters.window.means()
        self.row("step", {"epoch": epoch, **means, "lr": lr, "gradient": _finite(gradient)})
        self.display.log(step, means["loss"], means["accuracy"])
        if self._timing is not None:
            self._timing.add({"step": step, "images_per_second": round(self.display.speed(step), 1)})
        self.counters.window = Sums()

    def epoch(self, row: dict[str, Any]) -> None:
        """The row of an epoch, and a line of it."""
        self.row("epoch", row)
        self.display.say(_epoch_line(row))


def _finite(value: float) -> float | None:
    """For JSON, which has no infinity: under fp16 a gradient may overflow, and its step is left out."""
    return value if math.isfinite(value) else None


def _epoch_line(row: dict[str, Any]) -> str:
    loss, accuracy = row["train_loss"], 100 * row["train_accuracy"]
    text = f"epoch {round(row['epoch'], 2):g}: training loss {loss:.4f}, accuracy {accuracy:.2f} %"
    if "validation_loss" in row:
        loss, accuracy = row["validation_loss"], 100 * row["validation_accuracy"]
        text += f"; validation loss {loss:.4f}, accuracy {accuracy:.2f} %"
    return text
