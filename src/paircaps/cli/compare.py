"""Run ``paircaps compare``."""

from __future__ import annotations

import argparse
import json
import shutil
import sys

from paircaps._utils.files import write_whole
from paircaps._utils.words import visible
from paircaps.cli.output import require_places
from paircaps.errors import PaircapsError
from paircaps.training.compare import compare_runs
from paircaps.training.compare.curves import draw_curves
from paircaps.training.compare.tables import as_csv, as_dict, as_markdown
from paircaps.training.compare.terminal import as_text

_ENDINGS = (".md", ".csv", ".json", ".png")
_WIDTH_OF_A_FILE = 200
"""Characters of a line where there is no terminal to fit."""


def run(options: argparse.Namespace) -> int:
    """Print a comparison of runs, and write it to files; the exit code is 1 if a run could not be read."""
    require_places(options.out, endings=_ENDINGS)
    unreadable: list[PaircapsError] = []
    comparisons = compare_runs(options.folders, unreadable)
    if not comparisons:
        raise PaircapsError("; ".join(map(str, unreadable)))
    for error in unreadable:
        print(f"paircaps: left out: {visible(str(error))}", file=sys.stderr)
    as_json = json.dumps(as_dict(comparisons), indent=2, ensure_ascii=False) + "\n"
    makers = {
        ".md": lambda: as_markdown(comparisons).encode(),
        ".csv": lambda: as_csv(comparisons).encode(),
        ".json": lambda: as_json.encode(),
        ".png": lambda: draw_curves(comparisons, options.over),
    }
    contents = {out: makers[out.suffix.lower()]() for out in options.out}
    width = max(shutil.get_terminal_size((_WIDTH_OF_A_FILE, 24)).columns, 60)
    print(as_json if options.json else as_text(comparisons, width), end="")
    for out, content in contents.items():
        write_whole(out, content)
    return 1 if unreadable else 0
