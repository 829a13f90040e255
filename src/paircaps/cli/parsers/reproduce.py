"""Arguments of ``paircaps reproduce`` and ``paircaps report``."""

from __future__ import annotations

from paircaps.cli.arguments import path, positive_number, whole_number
from paircaps.cli.names import ALL_EXPERIMENTS, COMPARISON, DATASETS, EXPERIMENTS
from paircaps.cli.parser import CommandParser, suggest

_ABOUT = """
Reproduce tables and figures of the paper, each by ordinary trainings, and write a report of them. The same command
again continues where it was stopped, and skips what is finished. Trainings without data on this machine are named and
left out.
"""
_ABOUT_REPORT = """
Write report.html, one page that needs no other file, and report.md with its pictures, from the results in the folder.
"""


def declare_reproduce(parser: CommandParser) -> None:
    """Declare the arguments of ``reproduce``."""
    parser.description = _ABOUT
    _declare_choice(parser)
    parser.add_argument("--list", action="store_true", help="list what each needs, and how long it would take here")
    parser.add_argument("--out", type=path, metavar="DIR", help="folder of all results")
    parser.add_argument(
        "--seeds", type=whole_number(1, 1000), metavar="N", help="number of seeds (default: the paper's)"
    )
    lengths = parser.add_mutually_exclusive_group()
    lengths.add_argument(
        "--epochs",
        type=whole_number(1, 1_000_000),
        metavar="N",
        help="epochs of every training (default: the paper's)",
    )
    lengths.add_argument(
        "--hours", type=positive_number, metavar="H", help="hours of all trainings together, estimated beforehand"
    )
    lengths.add_argument(
        "--steps",
        type=whole_number(1, 1_000_000),
        metavar="N",
        help="steps of every training of routings (default: 250)",
    )
    parser.add_argument("--limit", type=whole_number(32), metavar="N", help="most images of each split")
    parser.add_argument(
        "--short",
        action="store_true",
        help="take settings for short trainings: one-cycle, at a higher rate where needed; the report says so",
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="SECTION.KEY=VALUE",
        help="change a setting of every training, as train.ema=0.999; the report says so; may be given several times; "
        "model.routing=NAME trains that routing as one more row",
    )
    parser.add_argument("--quiet", action="store_true", help="show no progress within a training")
    parser.set_defaults(run="reproduce:run_reproduce")


def _declare_choice(parser: CommandParser) -> None:
    """Declare which experiments, datasets and networks are wanted."""
    names = parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help=f"{', '.join((*EXPERIMENTS, ALL_EXPERIMENTS, COMPARISON))}; table3 includes table4; all leaves out "
        f"table2-small, which is not in the paper, and {COMPARISON}, which compares every routing in the same networks",
    )
    suggest(names, (*EXPERIMENTS, ALL_EXPERIMENTS, COMPARISON))
    data = parser.add_argument(
        "--data", action="append", default=[], metavar="NAME", help="only this dataset; may be given several times"
    )
    suggest(data, DATASETS)
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="NETWORK",
        help="only this network, such as fm or pool, or another routing as one more row; may be given several times",
    )


def declare_report(parser: CommandParser) -> None:
    """Declare the arguments of ``report``."""
    parser.description = _ABOUT_REPORT
    parser.add_argument("folder", type=path, metavar="DIR", help="folder of all results: the --out of reproduce")
    parser.set_defaults(run="reproduce:run_report")
