"""Run ``paircaps export``."""

from __future__ import annotations

import argparse
import json

from paircaps._utils.words import visible
from paircaps.export import export_network


def run(options: argparse.Namespace) -> int:
    """Export a network, and print what was written and how near it is to the original."""
    report = export_network(
        options.folder,
        options.out,
        with_decoder=options.with_decoder,
        quantize=options.quantize,
        samples=options.images,
        data_dir=options.data_dir,
    )
    print(json.dumps(report.as_dict(), indent=2) if options.json else "\n".join(map(visible, report.lines())))
    return 0
