"""``paircaps serve``."""

from __future__ import annotations

import argparse
import importlib.util

from paircaps.errors import PaircapsError
from paircaps.model_files import find_models

_NEEDED = ("fastapi", "uvicorn", "python_multipart")


def run(options: argparse.Namespace) -> int:
    """Serve until Ctrl-C."""
    require_serving()
    from paircaps.serve.run import serve

    found = find_models(options.folders)

    def ready(address: str) -> None:
        print(f"paircaps: {', '.join(found)} at {address}  (Ctrl-C ends it)", flush=True)

    serve(found, options.host, options.port, options.allow_host, ready)
    return 0


def require_serving() -> None:
    """Refuse to serve where the packages for it are not installed."""
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        names = ", ".join(name.replace("_", "-") for name in missing)
        raise PaircapsError(f"serve needs {names}, which is not installed: pip install 'paircaps[serve]'")
