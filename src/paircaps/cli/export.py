"""Run ``paircaps export``."""

from __future__ import annotations

import argparse
import json
import sys

from paircaps._utils.words import as_size, visible
from paircaps.cli.serve import shipped_digits
from paircaps.export import export_network, export_page
from paircaps.model_files import find_models


def run(options: argparse.Namespace) -> int:
    """Export networks to a file or a page, and print what was written."""
    return _run_page(options) if options.page is not None else _run_file(options)


def _run_file(options: argparse.Namespace) -> int:
    """Export a network, and print how near it is to the original."""
    if len(options.folders) != 1:
        options.refuse(f"a file is of one network: name one DIR, got {len(options.folders)}")
    report = export_network(
        options.folders[0],
        options.out,
        with_decoder=options.with_decoder,
        quantize=options.quantize,
        samples=options.images,
        data_dir=options.data_dir,
    )
    print(json.dumps(report.as_dict(), indent=2) if options.json else "\n".join(map(visible, report.lines())))
    return 0


def _run_page(options: argparse.Namespace) -> int:
    """Write a page, and print its size and how to look at it."""
    for name in ("with_decoder", "quantize"):
        if getattr(options, name):
            options.refuse(f"--{name.replace('_', '-')} is for files: a page has the decoders, and weights in 32 bits")
    found = find_models(options.folders) if options.folders else shipped_digits()
    report = export_page(
        found,
        options.page,
        samples=options.images,
        data_dir=options.data_dir,
        say=lambda line: print(visible(line), file=sys.stderr),
    )
    if options.json:
        print(json.dumps(report.as_dict(), indent=2))
        return 0
    sizes = ", ".join(f"{what} {as_size(size)}" for what, size in report.parts().items())
    print(visible(f"{report.place}: {', '.join(report.networks)}; {as_size(report.total)} ({sizes})"))
    print(visible(f"to look at it: python -m http.server -d {report.place}, then open http://localhost:8000"))
    return 0
