"""``python -m paircaps``, and the command ``paircaps``: it can be stopped while PyTorch still loads."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType


def main() -> int:
    """Run one command and return its exit code."""
    ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # not where Ctrl-C is ignored, as under nohup
    if ours:
        signal.signal(signal.SIGINT, _leave)
    from paircaps.cli import main as run  # seconds, most of them PyTorch's

    if ours:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    return run()


def _leave(number: int, frame: FrameType | None) -> None:
    """End at once: nothing has been begun, and an exception would end as anything in the middle of an import."""
    os.write(2, b"paircaps: stopped\n")
    os._exit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
