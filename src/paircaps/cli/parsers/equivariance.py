"""Arguments of ``paircaps equivariance``."""

from __future__ import annotations

from paircaps.cli.arguments import (
    add_data,
    add_data_folder,
    add_dataset_option,
    add_output,
    add_trained_folders,
    whole_number,
)
from paircaps.cli.names import EQUIVARIANCE_IMAGES
from paircaps.cli.parser import CommandParser


def declare(parser: CommandParser) -> None:
    """Declare the arguments of ``equivariance``."""
    add_data_folder(parser)
    add_trained_folders(parser, "the --out of a training, or a folder of several")
    add_data(parser, "images to warp: a dataset, or a folder of pictures (default: those of the training)")
    parser.add_argument(
        "--images",
        type=whole_number(100, 1_000_000),
        default=EQUIVARIANCE_IMAGES,
        help="warped images to fit the read-out on, and as many to test it on (%(default)s)",
    )
    parser.add_argument("--seed", type=whole_number(0), default=0, help="seed of the warps (%(default)s)")
    add_dataset_option(parser)
    add_output(parser, "equivariance:run_equivariance", picture=True)
