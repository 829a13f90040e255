"""Arguments of ``paircaps estimate``."""

from __future__ import annotations

from paircaps.cli.arguments import add_option, whole_number
from paircaps.cli.names import MODELS, ROUTINGS
from paircaps.cli.parser import CommandParser, suggest

RESERVED = ("name", "num_classes", "in_channels", "image_size", "routing")
"""Arguments of a model that ``--option`` cannot set."""


def declare(parser: CommandParser) -> None:
    """Declare the arguments of ``estimate``."""
    suggest(parser.add_argument("model", metavar="MODEL", help="name of a model, such as resnet-caps"), MODELS)
    parser.add_argument(
        "--image-size", type=whole_number(1, 16_384), default=32, metavar="N", help="side of an image (%(default)s)"
    )
    parser.add_argument(
        "--classes", type=whole_number(1, 1_000_000), default=10, metavar="C", help="number of classes (%(default)s)"
    )
    parser.add_argument(
        "--batch",
        type=whole_number(2, 1_000_000),
        default=128,
        metavar="B",
        help="images of a batch, two or more (%(default)s)",
    )
    parser.add_argument(
        "--channels", type=whole_number(1, 10_000), default=3, metavar="N", help="channels of an image (%(default)s)"
    )
    help_text = "routing to estimate, auto for the model's own; may be given several times (default: all)"
    routing = parser.add_argument("--routing", action="append", default=[], metavar="NAME", help=help_text)
    suggest(routing, ("auto", *ROUTINGS))
    add_option(parser, "of the model, as streaming=False", RESERVED)
    parser.add_argument("--json", action="store_true", help="print JSON in place of a table")
    parser.extra = None
    parser.set_defaults(run="estimate:run")
