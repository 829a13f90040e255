"""``paircaps serve``."""

from __future__ import annotations

import argparse
import importlib.util
import ipaddress
import re
from typing import Any

from paircaps.cli.arguments import path, whole_number
from paircaps.errors import PaircapsError
from paircaps.model_files import find_models

_NEEDED = ("fastapi", "uvicorn", "python_multipart")


def add_commands(commands: Any) -> None:
    """Declare ``serve``."""
    parser = commands.add_parser("serve", help="a page to draw on: see what networks see, in a browser")
    parser.add_argument(
        "folders", nargs="+", type=path, metavar="DIR", help="the --out of a training, or a folder of several"
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on; this machine alone unless told")
    parser.add_argument("--port", type=whole_number(0, 65_535), default=8000, help="%(default)s; 0 takes a free one")
    help_text = "a name that the server may be asked by, beside this machine's own; may be given several times"
    parser.add_argument("--allow-host", type=_name, action="append", default=[], metavar="NAME", help=help_text)
    parser.set_defaults(run=run)


def _name(text: str) -> str:
    """A name, or an address of either kind; a port would never match."""
    if re.fullmatch(r"[A-Za-z0-9._-]+", text):
        return text
    try:
        return str(ipaddress.IPv6Address(text.strip("[]")))
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a name or an address without a port, got {text!r}") from None


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
