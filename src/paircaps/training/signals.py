"""SIGINT and SIGTERM as a wish: the loop finishes its step, saves, and only then does the process end."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from types import FrameType, TracebackType

PATIENCE = 8.0
"""Seconds from a signal to the end, whatever is going on: a step of a large network can take longer."""


class Stopped(Exception):  # noqa: N818 (nothing went wrong)
    """A training that was asked to stop, and has saved its state.

    Args:
        number: of the signal.
        step: at which it stopped.
    """

    def __init__(self, number: int, step: int) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name} at step {step:,}; the same command goes on")
        self.code = 128 + number


class StopSignals:
    """Within its block the first SIGINT or SIGTERM is noted in ``number``, and later ones change nothing."""

    def __init__(self) -> None:
        self.number = 0
        self._before: dict[int, object] = {}
        self._alarm: threading.Timer | None = None

    def __enter__(self) -> StopSignals:
        if threading.current_thread() is threading.main_thread():  # others cannot catch signals
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        for number, handler in self._before.items():
            signal.signal(number, handler)  # pyright: ignore[reportArgumentType]

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.number:
            return
        self.number = number
        self._alarm = threading.Timer(PATIENCE, _leave, (number,))
        self._alarm.daemon = True
        self._alarm.start()


def _leave(number: int) -> None:
    """End the process in the middle of a step; the checkpoints on disk are whole, whatever was being written."""
    text = f"paircaps: stopped by {signal.Signals(number).name} in the middle of a step; the newest checkpoint stands\n"
    with contextlib.suppress(OSError):
        os.write(2, text.encode())
    os._exit(128 + number)
