"""Arguments that several commands take. Nothing here imports PyTorch."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Collection
from pathlib import Path

from paircaps._utils.key_value import parse_key_value
from paircaps._utils.shipped import path_or_shipped, shipped_folders
from paircaps.cli.names import DATASETS, FITS
from paircaps.cli.parser import suggest


def add_data_folder(parser: argparse.ArgumentParser) -> None:
    """Declare ``--data-dir``."""
    parser.add_argument(
        "--data-dir", type=path, metavar="DIR", help="folder to search first for datasets; downloads are saved there"
    )


def path(text: str) -> Path:
    """Type of an argument that is a path; ~ is the user's home."""
    if not text:
        raise argparse.ArgumentTypeError("must not be empty")
    return Path(text).expanduser()


def add_trained_folders(parser: argparse.ArgumentParser, help_text: str, *, needed: bool = True) -> None:
    """Declare ``DIR ...``, folders of trained networks or names of networks that come with the project.

    Args:
        parser: parser of the command.
        help_text: what they are, for the help.
        needed: whether one has to be named.
    """
    number, help_text = "+" if needed else "*", f"{help_text}; or a name that `paircaps weights` lists"
    action = parser.add_argument("folders", nargs=number, type=trained_folder, metavar="DIR", help=help_text)
    suggest(action, shipped_folders)


def add_trained_folder(parser: argparse.ArgumentParser) -> None:
    """Declare ``DIR``, the folder of a trained network or the name of one that comes with the project."""
    help_text = "folder of the run: the --out of its training; or a name that `paircaps weights` lists"
    suggest(parser.add_argument("folder", type=trained_folder, metavar="DIR", help=help_text), shipped_folders)


def trained_folder(text: str) -> Path:
    """Type of an argument that is the folder of a trained network; where there is no such path, a name of one."""
    path(text)  # refuses an empty one
    return path_or_shipped(text)


def add_option(parser: argparse.ArgumentParser, what: str, reserved: Collection[str]) -> None:
    """Declare ``--option KEY=VALUE``, which may be given several times.

    Args:
        parser: parser of the command.
        what: what has the option, and an example, for the help: ``"of the model, as streaming=False"``.
        reserved: keys that have arguments of their own.
    """

    def parse(text: str) -> tuple[str, object]:
        try:
            key, value = parse_key_value(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None
        if key in reserved:
            raise argparse.ArgumentTypeError(f"{key} is no option {what.split(',')[0]}; it has an argument of its own")
        return key, value

    help_text = f"option {what}; may be given several times"
    parser.add_argument("--option", action="append", default=[], type=parse, metavar="KEY=VALUE", help=help_text)


def whole_number(least: int, most: int | None = None) -> Callable[[str], int]:
    """Type of an argument that is a whole number within bounds."""

    def parse(text: str) -> int:
        allowed = f"of at least {least}" if most is None else f"from {least} to {most}"
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if value < least or (most is not None and value > most):
            raise argparse.ArgumentTypeError(f"must be a whole number {allowed}, got {text!r}")
        return value

    return parse


def listed(text: str) -> list[str]:
    """Type of an argument that is a list of names with commas between them."""
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise argparse.ArgumentTypeError(f"must be names with commas between them, got {text!r}")
    return names


def listed_numbers(text: str) -> list[int]:
    """Type of an argument that is a list of whole numbers from 1 on with commas between them, each once."""
    numbers = [int(word) if word.strip().isdecimal() else 0 for word in text.split(",")]
    if min(numbers) < 1:
        raise argparse.ArgumentTypeError(f"must be whole numbers from 1 on with commas between them, got {text!r}")
    return list(dict.fromkeys(numbers))


def positive_number(text: str) -> float:
    """Type of an argument that is a number above 0."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"must be a number above 0, got {text!r}")
    return value


def add_fitting(parser: argparse.ArgumentParser) -> None:
    """Declare ``--fit`` and ``--invert``, which replace what the network was trained with."""
    parser.add_argument("--fit", choices=FITS, help="how to fit a picture of another shape (default: as in training)")
    parser.add_argument(
        "--invert",
        action=argparse.BooleanOptionalAction,
        help="exchange dark and light, or do not (default: networks of light digits on dark invert light pictures)",
    )


def add_data(parser: argparse.ArgumentParser, help_text: str) -> None:
    """Declare ``--data NAME``."""
    suggest(parser.add_argument("--data", metavar="NAME", help=help_text), DATASETS)


def add_dataset_option(parser: argparse.ArgumentParser) -> None:
    """Declare ``--option`` of a dataset."""
    add_option(parser, "of a dataset, as image_size=64", ("name", "split", "root"))


def add_output(command: argparse.ArgumentParser, run: str, *, picture: bool = False) -> None:
    """Declare ``--json`` and ``-o``, and the function that runs the command.

    Args:
        command: parser of the command.
        run: ``"module:function"`` in ``paircaps.cli``.
        picture: whether the result can be drawn.
    """
    command.add_argument("--json", action="store_true", help="print JSON in place of tables")
    kinds = "JSON if it ends in .json" + (", a picture in .png" if picture else "") + ", else tables"
    help_text = f"write the result to a file too, {kinds}; may be given several times"
    command.add_argument("-o", "--out", type=path, action="append", default=[], metavar="FILE", help=help_text)
    command.set_defaults(run=run)
