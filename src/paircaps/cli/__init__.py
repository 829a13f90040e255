"""The command ``paircaps``.

A command is a line of ``COMMANDS``, its arguments in ``parsers/``, and a function that runs it in the file that is
named beside them. Arguments are declared when their command is asked for, and the function's file is imported after
the words are parsed: help, a wrong command and shell completion import no PyTorch and answer at once.

Exit codes: 0 done; 1 could not be done, and a sentence on standard error says why; 2 a wrong command line
or recipe; 129 SIGHUP; 130 Ctrl-C; 143 SIGTERM.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress

import paircaps
from paircaps._utils.extras import require_extra
from paircaps._utils.plugins import load_plugins
from paircaps._utils.words import visible
from paircaps.cli.parser import CommandParser, load_function
from paircaps.errors import PaircapsError, RecipeError, Stopped

COMMANDS = {
    "train": ("train:declare_train", "train a network by a recipe, or continue a training that was stopped"),
    "evaluate": ("evaluate:declare_evaluate", "test trained networks on a dataset"),
    "compare": ("compare:declare", "compare runs: what they reached, what it took, and what differs"),
    "predict": ("evaluate:declare_predict", "classify pictures with a trained network"),
    "explain": ("explain:declare", "draw reconstructions, perturbations, agreement and parse trees of a network"),
    "equivariance": ("equivariance:declare", "measure how well poses follow transformations of the image"),
    "export": ("export:declare", "write a trained network as a file that runs elsewhere: ONNX, torch.export, weights"),
    "serve": ("serve:declare", "open a page in the browser to draw on and watch networks classify"),
    "weights": ("weights:declare", "list the trained networks that come with the project, and show their cards"),
    "demo": ("demo:declare", "compare four capsule networks and a pooling network in a few minutes"),
    "reproduce": ("reproduce:declare_reproduce", "reproduce tables and figures of the paper"),
    "report": ("reproduce:declare_report", "write a page with the paper's results beside reproduced ones"),
    "data": ("data:declare", "list, download, show and check datasets"),
    "estimate": ("estimate:declare", "estimate parameters, operations and memory of a model"),
    "bench": ("bench:declare", "measure speed and memory on this machine"),
    "replay": ("train:declare_replay", "repeat the step at which a training failed, and find the first bad layer"),
    "info": ("info:declare", "print versions, processor and installed extras, for a report of a bug"),
    "completion": ("completion:declare", "print a script for completion in bash, zsh or fish"),
}
"""Every command: the function in ``parsers/`` that declares its arguments, and its help in one line."""

_LINE = "\n"


def main(arguments: Sequence[str] | None = None, loaded: Callable[[], object] = lambda: None) -> int:
    """Run one command and return its exit code.

    Args:
        arguments: words after ``paircaps``; those of the process without it.
        loaded: called when everything is imported, before the command begins its work.
    """
    try:
        _prepare_streams()
        warnings.showwarning = _print_warning
        warnings.filterwarnings("ignore", message="Image size .* exceeds limit")  # Pillow's; an error of ours says more
        options = build_parser().parse_args(arguments)
        _prepare_packages(options)
        run: Callable[[argparse.Namespace], int] = load_function(options.run)
        loaded()
        code = run(options)
        sys.stdout.flush()
    except RecipeError as error:
        return _fail(*error.lines, code=2)
    except PaircapsError as error:
        return _fail(*error.lines)
    except ModuleNotFoundError as error:
        return _fail(_missing_package(error))
    except (Stopped, KeyboardInterrupt) as error:
        return _stopped(error)
    except BrokenPipeError:  # the reader of a pipe, `| head`, has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 0
    except OSError as error:
        return _fail(f"{error.filename + ': ' if error.filename else ''}{error.strerror or error}")
    return code


def build_parser() -> CommandParser:
    """Parser of the command line; each command declares its arguments when it is asked for."""
    parser = CommandParser(prog="paircaps", description="Capsule networks by pairwise agreement.")
    parser.add_argument("--version", action="version", version=f"paircaps {paircaps.__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, (declaration, help_text) in COMMANDS.items():
        command = commands.add_parser(name, help=help_text, add_help=name != "train")  # train's parser has its own
        command.declare = _declares(declaration)
    return parser


def _declares(declaration: str) -> Callable[[CommandParser], None]:
    return lambda parser: load_function(f"parsers.{declaration}")(parser)


def _prepare_packages(options: argparse.Namespace) -> None:
    """See that the packages of the command are installed, and import its plug-ins; train's parser has done both."""
    if getattr(options, "extra", None) is not None:
        require_extra(options.command, extra=options.extra)
    if hasattr(options, "plugin"):
        load_plugins(options.plugin)


def _prepare_streams() -> None:
    """Print a question mark where a terminal has no ×, and open closed streams on the null device.

    Else the first file that is opened would get the number of a closed stream, and what a library writes to it.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115 (open as long as the process)
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _stopped(error: BaseException) -> int:
    """Say why the command stopped: a Ctrl-C after a training has saved its state does not hide that it has."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, Stopped):
            return _fail(str(cause), code=cause.code)
        cause = cause.__context__
    return _fail("stopped", code=130)


def _missing_package(error: ModuleNotFoundError) -> str:
    """The sentence for a package that no check named before it was imported; a module of our own raises again."""
    name = (error.name or "").split(".")[0]
    if name in ("", "paircaps"):
        raise error
    return f"this command needs {name}, which is not installed: pip install 'paircaps[all]'"


def _fail(*lines: str, code: int = 1) -> int:
    with suppress(OSError):  # the terminal is closed, which is why the command ends
        print(f"paircaps: {_LINE.join(map(visible, lines))}", file=sys.stderr)
    return code


def _print_warning(message: Warning | str, *_: object, **__: object) -> None:
    """Print a warning as a sentence, without the line of code it came from."""
    print(f"paircaps: note: {visible(str(message), keep=_LINE)}", file=sys.stderr)
