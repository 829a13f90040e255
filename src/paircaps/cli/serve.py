"""Run ``paircaps serve``."""

from __future__ import annotations

import argparse
from pathlib import Path

from paircaps._utils.shipped import DIGITS, shipped_folders
from paircaps._utils.words import visible
from paircaps.errors import ModelFileError
from paircaps.model_files import find_models


def run(options: argparse.Namespace) -> int:
    """Serve the page until Ctrl-C."""
    from paircaps.serve.run import serve

    found = find_models(options.folders) if options.folders else shipped_digits()

    def ready(address: str) -> None:
        print(f"paircaps: {visible(', '.join(found))} at {address}  (Ctrl-C ends it)", flush=True)

    serve(found, options.host, options.port, options.allow_host, ready)
    return 0


def shipped_digits() -> dict[str, Path]:
    """Folders of the networks for handwritten digits that come with the project, by name.

    Raises:
        ModelFileError: if there are none.
    """
    folders = shipped_folders()
    found = {name: folders[name] for name in DIGITS if name in folders}
    if not found:
        raise ModelFileError(f"name a folder: none of the networks {', '.join(DIGITS)} is on this machine")
    return found
