"""Arguments of ``paircaps explain``."""

from __future__ import annotations

from paircaps.cli.arguments import (
    add_data,
    add_data_folder,
    add_dataset_option,
    add_fitting,
    add_trained_folder,
    listed,
    listed_numbers,
    path,
    whole_number,
)
from paircaps.cli.names import PICTURE_FORMATS, PICTURE_WIDTH, VIEWS
from paircaps.cli.parser import CommandParser

_NARROWEST, _WIDEST = 320, 7680
"""Bounds of the width of a picture, in pixels."""

_ABOUT = """
Draw what happens inside a trained network, in the shape of a slide. -o takes a folder, or a file that ends in .png,
.svg or .pdf if only one picture is to be drawn.
"""


def declare(parser: CommandParser) -> None:
    """Declare the arguments of ``explain``."""
    parser.description = _ABOUT
    add_data_folder(parser)
    add_trained_folder(parser)
    help_text = "pictures, folders of them, or - for standard input (default: a few test images of the run)"
    parser.add_argument("files", nargs="*", metavar="FILE", help=help_text)
    help_text = "folder for the pictures, or the file of a single one, which ends in .png, .svg or .pdf"
    parser.add_argument("-o", "--out", type=path, required=True, metavar="OUT", help=help_text)
    parser.add_argument("--format", choices=PICTURE_FORMATS, help="format of the pictures in a folder (png)")
    parser.add_argument(
        "--width",
        type=whole_number(_NARROWEST, _WIDEST),
        default=PICTURE_WIDTH,
        metavar="PIXELS",
        help="width of each picture; 144 pixels are an inch of svg and pdf (%(default)s: a slide of 16:9)",
    )
    parser.add_argument(
        "--only",
        action="append",
        choices=VIEWS,
        help="draw only this; may be given several times (default: all that the network allows)",
    )
    parser.add_argument(
        "--class", dest="label", metavar="NAME", help="class to explain (default: the most active one of each image)"
    )
    parser.add_argument(
        "--dimensions",
        type=listed_numbers,
        metavar="N,N",
        help="pose dimensions that perturb shows, numbered as it numbers them, such as 3,7 (default: 16 at most)",
    )
    parser.add_argument(
        "--classes",
        type=listed,
        metavar="NAME,NAME",
        help="take only images of these classes of the dataset, such as 3,7 (default: of all)",
    )
    add_data(parser, "take images of this dataset, or folder of pictures")
    parser.add_argument("--split", help="split of the dataset (default: test; of a folder without one, all pictures)")
    parser.add_argument("--count", type=whole_number(1, 100), help="images to take of a dataset (8; 1 for one file)")
    add_fitting(parser)
    add_dataset_option(parser)
    parser.set_defaults(run="explain:run_explain")
