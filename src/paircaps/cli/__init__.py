"""The command ``paircaps``: one file a group of subcommands, one thin function each.

Exit codes: 0 done; 1 could not be done, and a sentence on standard error says why; 2 a wrong command line
or recipe; 130 Ctrl-C; 143 SIGTERM.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import paircaps
from paircaps.cli import bench, data, demo, equivariance, estimate, evaluate, explain, reproduce, serve, train
from paircaps.errors import PaircapsError, RecipeError
from paircaps.training.signals import Stopped


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    try:
        _speak_any_language()
        warnings.showwarning = _say
        warnings.filterwarnings("ignore", message="Image size .* exceeds limit")  # Pillow's; an error of ours says more
        options = _parser().parse_args(arguments)
        code = options.run(options)
        if sys.stdout is not None:  # as under `>&-`
            sys.stdout.flush()
    except RecipeError as error:
        return _fail(str(error), 2)
    except PaircapsError as error:
        return _fail(str(error))
    except (Stopped, KeyboardInterrupt) as error:
        return _stopped(error)
    except BrokenPipeError:  # the reader of a pipe, `| head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 0
    except OSError as error:
        return _fail(f"{error.filename + ': ' if error.filename else ''}{error.strerror or error}")
    return code


def _parser() -> CommandParser:
    parser = CommandParser(prog="paircaps", description="Capsule networks by pairwise agreement.")
    parser.add_argument("--version", action="version", version=f"paircaps {paircaps.__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for group in (train, evaluate, demo, data, bench, estimate, explain, equivariance, serve, reproduce):
        group.add_commands(commands)
    return parser


class CommandParser(argparse.ArgumentParser):
    """A parser of a command, whose words another one may take over: ``delegate``, from words to options."""

    delegate: Callable[[Sequence[str]], argparse.Namespace] | None = None

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:  # pyright: ignore
        """Leave it to the delegate, if there is one."""
        if self.delegate is None:
            return super().parse_known_args(args, namespace)
        return self.delegate(args or []), []


def _speak_any_language() -> None:
    """Where a terminal has no ×, print a question mark, not a traceback. A closed stream leads nowhere.

    Else the first file that is opened would get its number, and what a library writes to standard error.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _stopped(error: BaseException) -> int:
    """A Ctrl-C while a training that has saved its state is on its way out changes nothing of what is said."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, Stopped):
            return _fail(str(cause), cause.code)
        cause = cause.__context__
    return _fail("stopped", 130)


def _fail(reason: str, code: int = 1) -> int:
    print(f"paircaps: {reason}", file=sys.stderr)
    return code


def _say(message: Warning | str, *_: object, **__: object) -> None:
    """A warning as a sentence, without the line of code it came from."""
    print(f"paircaps: note: {message}", file=sys.stderr)
