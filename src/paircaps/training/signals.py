"""SIGINT and SIGTERM as a wish: the loop finishes its step, saves, and only then does the process end."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
import time
from types import FrameType, TracebackType

from paircaps.errors import Stopped

__all__ = ["PATIENCE", "StopSignals", "Stopped"]

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
PATIENCE = 8.0
"""Seconds from a signal to the end, whatever is going on: a step of a large network can take longer."""


class StopSignals:
    """Within its block the first SIGINT or SIGTERM is noted in ``number``, and later ones change nothing.

    Python runs a signal's handler only between two of its own instructions, and a backward pass is one of them, however
    long. So a thread watches too, which the operating system tells at once, and ends the process when patience does.

    Args:
        patience: seconds from a signal to the end.
    """

    def __init__(self, patience: float = PATIENCE) -> None:
        self.number = 0
        self.patience = patience
        self._before: dict[int, object] = {}

    def __enter__(self) -> StopSignals:
        if threading.current_thread() is not threading.main_thread():  # others cannot catch signals
            return self
        self._ears, self._mouth = socket.socketpair()
        self._mouth.setblocking(False)
        self._wakeup_before = signal.set_wakeup_fd(self._mouth.fileno(), warn_on_full_buffer=False)
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._watcher.start()
        for number in _SIGNALS:
            self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        if not self._before:
            return
        for number, handler in self._before.items():
            signal.signal(number, handler)  # pyright: ignore[reportArgumentType]
        signal.set_wakeup_fd(self._wakeup_before)
        self._mouth.close()  # which ends the watch
        self._watcher.join()
        self._ears.close()

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.number = self.number or number

    def _watch(self) -> None:
        """Wait for a signal, and then for the end of the block, but not for ever."""
        while heard := self._ears.recv(1):
            if heard[0] in _SIGNALS:
                break
        else:
            return
        end = time.monotonic() + self.patience
        while (left := end - time.monotonic()) > 0:
            self._ears.settimeout(left)
            try:
                if not self._ears.recv(64):
                    return
            except TimeoutError:
                break
        _leave(heard[0])


def _leave(number: int) -> None:
    """End the process in the middle of a step; the checkpoints on disk are whole, whatever was being written."""
    text = f"paircaps: stopped by {signal.Signals(number).name} in the middle of a step; the newest checkpoint stands\n"
    with contextlib.suppress(OSError):
        os.write(2, text.encode())
    os._exit(128 + number)
