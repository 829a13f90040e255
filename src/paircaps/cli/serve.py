"""Run ``paircaps serve``."""

from __future__ import annotations

import argparse

from paircaps._utils.words import visible
from paircaps.model_files import find_models


def run(options: argparse.Namespace) -> int:
    """Serve the page until Ctrl-C."""
    from paircaps.serve.run import serve

    found = find_models(options.folders)

    def ready(address: str) -> None:
        print(f"paircaps: {visible(', '.join(found))} at {address}  (Ctrl-C ends it)", flush=True)

    serve(found, options.host, options.port, options.allow_host, ready)
    return 0
