"""Arguments that several commands take."""

from __future__ import annotations

import argparse
import ast
import math
from collections.abc import Callable, Collection
from pathlib import Path

from paircaps.data import ImageDataset
from paircaps.data.named import load_named
from paircaps.training.datasets import own_dataset


def data_folder() -> argparse.ArgumentParser:
    """A parent parser with ``--data-dir``."""
    parent = argparse.ArgumentParser(add_help=False)
    parent.add_argument("--data-dir", type=path, metavar="DIR", help="a folder to look in first; downloads go there")
    return parent


def path(text: str) -> Path:
    """The type of an argument that is a path, with ~ for one's home."""
    if not text:
        raise argparse.ArgumentTypeError("must not be empty")
    return Path(text).expanduser()


def add_option(parser: argparse.ArgumentParser, what: str, reserved: Collection[str]) -> None:
    """Declare ``--option KEY=VALUE``, which may be given several times.

    Args:
        parser: of the command.
        what: it is an option of, and an example.
        reserved: keys that have arguments of their own.
    """

    def parse(text: str) -> tuple[str, object]:
        key, equals, value = text.partition("=")
        if not equals:
            raise argparse.ArgumentTypeError(f"must be KEY=VALUE, got {text!r}")
        if key in reserved:
            raise argparse.ArgumentTypeError(f"{key} is no option {what.split(',')[0]}; it has an argument of its own")
        try:
            return key, ast.literal_eval(value)
        except (ValueError, SyntaxError):
            return key, value  # text needs no quotes

    help_text = f"{what}; may be given several times"
    parser.add_argument("--option", action="append", default=[], type=parse, metavar="KEY=VALUE", help=help_text)


def whole_number(least: int, most: int | None = None) -> Callable[[str], int]:
    """The type of an argument that is a whole number within bounds."""

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


def positive_number(text: str) -> float:
    """The type of an argument that is a number above 0."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"must be a number above 0, got {text!r}")
    return value


def add_dataset_option(parser: argparse.ArgumentParser) -> None:
    """Declare ``--option`` of a dataset."""
    add_option(parser, "of a dataset, as image_size=64", ("name", "split", "root"))


def named_or_own(folder: Path, options: argparse.Namespace, split: str) -> ImageDataset:
    """The dataset of ``--data``, or the one that the training of a folder tested on, as it was loaded then."""
    given = dict(options.option)
    if options.data is not None:
        return load_named(options.data, split, options.data_dir, given)
    return own_dataset(folder, split, options.data_dir, given)
