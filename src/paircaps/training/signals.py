"""SIGINT, SIGTERM and SIGHUP: the training loop finishes its step and saves a checkpoint before the process ends."""

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

_SIGNALS = tuple(signal.Signals[name] for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
PATIENCE = 8.0
"""Seconds after a signal until the process ends in any case: a step of a large network can take longer."""


class StopSignals:
    """Context manager that stores the first SIGINT, SIGTERM or SIGHUP in ``number``; later ones change nothing.

    SIGHUP is what a closed terminal sends; under ``nohup`` it stays ignored.

    Python runs a signal's handler only between two of its own instructions, and a backward pass is one instruction,
    however long. So a thread listens too, on a socket that the operating system writes to at once, and ends the process
    when the patience is over.

    Args:
        patience: seconds after a signal until the process ends in any case.
    """

    def __init__(self, patience: float = PATIENCE) -> None:
        self.number = 0
        self.patience = patience
        self._before: dict[int, object] = {}

    def __enter__(self) -> StopSignals:
        if threading.current_thread() is not threading.main_thread():  # Python's other threads cannot catch signals
            return self
        self._receiver, self._sender = socket.socketpair()
        self._sender.setblocking(False)
        self._wakeup_before = signal.set_wakeup_fd(self._sender.fileno(), warn_on_full_buffer=False)
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()
        for number in _SIGNALS:
            if number.name == "SIGHUP" and signal.getsignal(number) == signal.SIG_IGN:
                continue
            self._before[number] = signal.signal(number, self._store)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: BaseException | TracebackType | None) -> None:
        if not self._before:
            return
        for number, handler in self._before.items():
            signal.signal(number, handler)  # pyright: ignore[reportArgumentType]
        signal.set_wakeup_fd(self._wakeup_before)
        self._sender.close()  # ends the thread
        self._listener.join()
        self._receiver.close()
        if self.number and kind is None:
            signal.raise_signal(
                self.number
            )  # it came after the block last looked: it is not for a next training to lose

    def _store(self, number: int, frame: FrameType | None) -> None:
        self.number = self.number or number

    def _listen(self) -> None:
        """Wait for a signal, then for the end of the block; end the process if that takes too long."""
        while received := self._receiver.recv(1):
            if received[0] in _SIGNALS:
                break
        else:
            return
        end = time.monotonic() + self.patience
        while (left := end - time.monotonic()) > 0:
            self._receiver.settimeout(left)
            try:
                if not self._receiver.recv(64):
                    return
            except TimeoutError:
                break
        _end_process(received[0])


def _end_process(number: int) -> None:
    """End the process in the middle of a step; checkpoints on the disk are complete, whatever was being written."""
    text = f"paircaps: stopped by {signal.Signals(number).name} in the middle of a step; the newest checkpoint stands\n"
    with contextlib.suppress(OSError):
        os.write(2, text.encode())
    os._exit(128 + number)
