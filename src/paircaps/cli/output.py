"""Print results, and write them to files: as tables, as JSON, as a picture."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from paircaps._utils.files import write_whole
from paircaps.data.errors import DataError

BenchResult = dict[str, Any]


def require_places(files: list[Path], *, picture: bool = False, endings: Collection[str] = ()) -> None:
    """Refuse files that cannot be written, before the measurement begins.

    Args:
        files: files of ``--out``.
        picture: whether the result can be drawn.
        endings: endings that are allowed; any if none are named, which then gets tables.
    """
    for out in files:
        if endings and out.suffix.lower() not in endings:
            raise DataError(f"{out}: ends in {out.suffix or 'nothing'}; {', '.join(endings)} are there")
        if out.is_dir() or not out.parent.is_dir():
            raise DataError(f"{out}: {'is a folder' if out.is_dir() else 'no such folder'}")
        if out.suffix.lower() == ".png" and not picture and not endings:
            raise DataError(f"{out}: there is no picture of this; .json and .md are there")


def show_result(
    result: BenchResult,
    as_markdown: Callable[[BenchResult], str],
    options: argparse.Namespace,
    draw: Callable[[BenchResult], bytes] | None = None,
) -> int:
    """Print a result, and write it to the files of ``--out``.

    Args:
        result: the measurement, as JSON has it.
        as_markdown: function that turns it into tables.
        options: those of the command: ``json`` and ``out``.
        draw: function that draws it as a PNG file, if there is one.
    """
    as_json, text = json.dumps(result, indent=2) + "\n", as_markdown(result)
    print(as_json if options.json else text, end="")
    for out in options.out:
        suffix = out.suffix.lower()
        if suffix == ".png" and draw is not None:
            write_whole(out, draw(result))
        else:
            write_whole(out, (as_json if options.json or suffix == ".json" else text).encode())
    return 0
