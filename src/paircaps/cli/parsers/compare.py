"""Arguments of ``paircaps compare``."""

from __future__ import annotations

from paircaps.cli.arguments import path
from paircaps.cli.names import CURVES_OVER
from paircaps.cli.parser import CommandParser

_ABOUT = """
Compare runs: accuracy as mean and deviation over runs that differ in their seed alone, loss, parameters, steps, time,
and what differs between their recipes; runs that are not finished are listed with what they have so far.
"""


def declare(parser: CommandParser) -> None:
    """Declare the arguments of ``compare``."""
    parser.description = _ABOUT
    parser.add_argument(
        "folders", nargs="+", type=path, metavar="RUN", help="the --out of a training, or a folder of several"
    )
    parser.add_argument(
        "--over", choices=CURVES_OVER, default="epochs", help="what curves are drawn over (default: %(default)s)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON in place of tables")
    parser.add_argument(
        "-o",
        "--out",
        type=path,
        action="append",
        default=[],
        metavar="FILE",
        help="write a file too: tables if it ends in .md, a row for each run in .csv, all of it in .json, "
        "curves in .png; may be given several times",
    )
    parser.set_defaults(run="compare:run")
