"""Arguments of ``paircaps evaluate`` and ``paircaps predict``."""

from __future__ import annotations

from paircaps.cli.arguments import (
    add_data,
    add_data_folder,
    add_dataset_option,
    add_fitting,
    add_trained_folder,
    add_trained_folders,
    path,
    whole_number,
)
from paircaps.cli.names import TEST_VIEWS
from paircaps.cli.parser import CommandParser

_ABOUT = """
Test a trained network on a dataset: accuracy, loss, calibration, class by class. Several networks share a table, with
mean and deviation over those that differ in their seed alone.
"""


def declare_evaluate(parser: CommandParser) -> None:
    """Declare the arguments of ``evaluate``."""
    parser.description = _ABOUT
    add_data_folder(parser)
    add_trained_folders(parser, "the --out of a training, or a folder of several")
    add_data(parser, "a dataset, or a folder of pictures (default: the test images of the training)")
    parser.add_argument("--split", help="split of the dataset (default: test; of a folder without one, all pictures)")
    parser.add_argument("--limit", type=whole_number(1), help="most images to evaluate, taken at random")
    parser.add_argument("--batch-size", type=whole_number(1), default=256, help="images at a time (%(default)s)")
    parser.add_argument(
        "--views",
        choices=TEST_VIEWS,
        help="views of each image whose activations are averaged (default: as at the end of the training)",
    )
    parser.add_argument(
        "--mirror", dest="views", action="store_const", const="flip", help="short for --views flip: with mirror images"
    )
    parser.add_argument("--json", action="store_true", help="print JSON, one object per line")
    add_dataset_option(parser)
    parser.set_defaults(run="evaluate:run_evaluate")


def declare_predict(parser: CommandParser) -> None:
    """Declare the arguments of ``predict``."""
    add_trained_folder(parser)
    parser.add_argument("files", nargs="+", metavar="FILE", help="pictures, folders of them, or - for standard input")
    add_fitting(parser)
    parser.add_argument(
        "--masks",
        type=path,
        metavar="DIR",
        help="folder for the masks of a segmentation network, NAME-mask.png each: the index of a pixel is its class, "
        "counted from 1, and 0 is nothing; where classes overlap, the more certain one",
    )
    parser.add_argument("--json", action="store_true", help="print JSON, one object per line")
    parser.set_defaults(run="evaluate:run_predict")
