"""Arguments of ``paircaps serve``."""

from __future__ import annotations

import argparse
import re

from paircaps.cli.arguments import add_trained_folders, whole_number
from paircaps.cli.parser import CommandParser


def declare(parser: CommandParser) -> None:
    """Declare the arguments of ``serve``."""
    help_text = "the --out of a training, or a folder of several (default: the project's networks for digits)"
    add_trained_folders(parser, help_text, needed=False)
    parser.add_argument(
        "--host", default="127.0.0.1", help="address to listen on (default: %(default)s, this machine alone)"
    )
    parser.add_argument(
        "--port", type=whole_number(0, 65_535), default=8000, help="port to listen on; 0 takes a free one (%(default)s)"
    )
    parser.add_argument(
        "--allow-host",
        type=_host_name,
        action="append",
        default=[],
        metavar="NAME",
        help="host name that requests may use, beside this machine's own; may be given several times",
    )
    parser.extra = "serve"
    parser.set_defaults(run="serve:run")


def _host_name(text: str) -> str:
    """Type of a host name, or an address of either kind; one with a port would never match."""
    if re.fullmatch(r"[A-Za-z0-9._-]+", text):
        return text
    import ipaddress  # rarely needed

    try:
        return str(ipaddress.IPv6Address(text.strip("[]")))
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a name or an address without a port, got {text!r}") from None
