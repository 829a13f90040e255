"""Arguments of ``paircaps info``."""

from __future__ import annotations

from paircaps.cli.parser import CommandParser

_ABOUT = """
Print versions, processor and installed extras, a line each: what a report of a bug needs.
"""


def declare(parser: CommandParser) -> None:
    """Declare that ``info`` takes no arguments."""
    parser.description = _ABOUT
    parser.extra, parser.takes_plugins = None, False
    parser.set_defaults(run="info:run")
