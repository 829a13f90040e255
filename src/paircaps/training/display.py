"""What a person sees of a run: a bar in a terminal, plain lines elsewhere, nothing if they want quiet."""

from __future__ import annotations

import shutil
import sys
import time
from typing import TextIO

from tqdm import tqdm

_BAR = "{desc} {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} [{elapsed}<{remaining}{postfix}]"


class Display:
    """The progress of a run, on standard error.

    Args:
        steps: of the whole run.
        done: of them, when this start of it begins.
        batch_size: images of a step.
        quiet: say nothing.
        stream: to write to.
    """

    def __init__(self, steps: int, done: int, batch_size: int, quiet: bool, stream: TextIO | None = None) -> None:
        self.steps, self.batch_size = steps, batch_size
        self._stream: TextIO | None = stream or sys.stderr  # none under `2>&-`
        self._quiet = quiet or self._stream is None
        self._begin, self._first = time.perf_counter(), done
        self._bar: tqdm | None = None
        if not quiet and self._stream is not None and self._stream.isatty():
            size = shutil.get_terminal_size((80, 24))  # a terminal may not know its own, and tqdm then shows nothing
            self._bar = tqdm(
                total=steps,
                initial=done,
                file=self._stream,
                ncols=size.columns,
                nrows=size.lines,
                bar_format=_BAR,
                desc="step",
            )

    def speed(self, step: int) -> float:
        """Images a second of this start so far, validation and checkpoints included."""
        return (step - self._first) * self.batch_size / max(1e-9, time.perf_counter() - self._begin)

    def step(self, loss: float, accuracy: float) -> None:
        """One step more."""
        if self._bar is not None and not self._quiet:
            self._bar.set_postfix_str(
                f"loss {loss:.3f}, accuracy {100 * accuracy:.1f} %, {self.speed(self._bar.n + 1):,.0f} images/s",
                refresh=False,
            )
            self._bar.update()

    def log(self, step: int, loss: float, accuracy: float) -> None:
        """A plain line, where there is no bar."""
        if self._bar is None and not self._quiet:
            speed = self.speed(step)
            left = (self.steps - step) * self.batch_size / max(1e-9, speed)
            self.say(
                f"step {step:,}/{self.steps:,}  loss {loss:.4f}  accuracy {100 * accuracy:.2f} %  "
                f"{speed:,.0f} images/s  {tqdm.format_interval(left)} left"
            )

    def say(self, text: str) -> None:
        """A line of its own."""
        if self._quiet:
            return
        try:
            if self._bar is not None:
                self._bar.write(text, file=self._stream)
            else:
                print(text, file=self._stream, flush=True)
        except BrokenPipeError:  # whoever read this has gone; the training has not
            self._quiet = True

    def close(self) -> None:
        """The bar is left as it is."""
        if self._bar is not None:
            self._bar.close()
