"""Arguments of ``paircaps explain``."""

from __future__ import annotations

from paircaps.cli.arguments import add_data, add_data_folder, add_dataset_option, add_fitting, path, whole_number
from paircaps.cli.names import VIEWS
from paircaps.cli.parser import CommandParser

_COUNT = 8


def declare(parser: CommandParser) -> None:
    """Declare the arguments of ``explain``."""
    add_data_folder(parser)
    parser.add_argument("folder", type=path, metavar="DIR", help="folder of the run: the --out of its training")
    help_text = "pictures, folders of them, or - for standard input (default: a few test images of the run)"
    parser.add_argument("files", nargs="*", metavar="FILE", help=help_text)
    parser.add_argument("-o", "--out", type=path, required=True, metavar="OUT", help="folder for the pictures drawn")
    parser.add_argument(
        "--only",
        action="append",
        choices=VIEWS,
        help="draw only this; may be given several times (default: all that the network allows)",
    )
    parser.add_argument(
        "--class", dest="label", metavar="NAME", help="class to explain (default: the most active one of each image)"
    )
    add_data(parser, "take images of this dataset, or folder of pictures")
    parser.add_argument("--split", default="test", help="split of the dataset (default: %(default)s)")
    parser.add_argument(
        "--count", type=whole_number(1, 100), default=_COUNT, help="images to take of a dataset (%(default)s)"
    )
    add_fitting(parser)
    add_dataset_option(parser)
    parser.set_defaults(run="explain:run_explain")
