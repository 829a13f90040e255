"""``python -m paircaps``, and the command ``paircaps``: it can be stopped while PyTorch still loads."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

from paircaps._utils.processors import limit_spinning

COMPLETE = "__complete"
"""Hidden command that the scripts of ``paircaps completion`` call: candidates for the last word."""


def main() -> int:
    """Run one command and return its exit code."""
    if sys.argv[1:2] == [COMPLETE]:
        from paircaps.cli.completion import print_candidates

        return print_candidates(sys.argv[2:])
    limit_spinning()  # before PyTorch is imported
    ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # not where Ctrl-C is ignored, as under nohup
    if ours:
        signal.signal(signal.SIGINT, _leave)
    from paircaps.cli import main as run

    def loaded() -> None:
        if ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    return run(loaded=loaded)


def _leave(number: int, frame: FrameType | None) -> None:
    """End at once: nothing has been begun, and an exception in the middle of an import could end in any way."""
    os.write(2, b"paircaps: stopped\n")
    os._exit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
