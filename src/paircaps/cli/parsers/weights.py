"""Arguments of ``paircaps weights``, ``weights show`` and ``weights add``."""

from __future__ import annotations

from paircaps._utils.shipped import shipped_folders
from paircaps.cli.arguments import path
from paircaps.cli.parser import CommandParser, suggest

_ABOUT = """
List the trained networks that come with the project: data and its licence, accuracy, parameters, commit, recipe and
SHA-256. Every command that takes the folder of a trained network takes their names too.
"""
_ABOUT_ADD = """
Make a finished run one of these networks: a folder with model.safetensors, model.json and a card, README.md. The
network is evaluated again as it is stored, and that number is on the card.
"""
PRECISIONS = ("fp32", "bf16")
"""How weights can be stored; model_files.Precision has the same."""


def declare(parser: CommandParser) -> None:
    """Declare the arguments of ``weights`` and of its subcommands."""
    parser.description = _ABOUT
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.extra, parser.takes_plugins = None, False
    parser.set_defaults(run="weights:print_weights")
    group = parser.add_subparsers(metavar="WHAT", required=False)

    show: CommandParser = group.add_parser("show", help="print the card of a network")
    suggest(show.add_argument("name", metavar="NAME", help="name of the network"), shipped_folders)
    show.extra, show.takes_plugins = None, False
    show.set_defaults(run="weights:show_card")

    add: CommandParser = group.add_parser("add", help="make a finished run one of the project's networks")
    add.description = _ABOUT_ADD
    add.add_argument("folder", type=path, metavar="RUN", help="folder of the run: the --out of its training")
    add.add_argument("--name", required=True, metavar="NAME", help="name of the network, such as digits")
    add.add_argument(
        "--to",
        type=path,
        required=True,
        metavar="DIR",
        help="folder to put it in: src/paircaps/weights for one inside the package, weights for a larger one",
    )
    add.add_argument(
        "--precision",
        choices=PRECISIONS,
        default="fp32",
        help="bf16 stores matrices and filters in half the bytes, and is refused where more than 0.1 points of "
        "accuracy are lost (%(default)s)",
    )
    add.add_argument("--replace", action="store_true", help="write a network of that name anew")
    add.set_defaults(run="weights:add_weights")
