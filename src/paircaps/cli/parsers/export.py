"""Arguments of ``paircaps export``."""

from __future__ import annotations

from paircaps.cli.arguments import add_data_folder, add_trained_folders, path, whole_number
from paircaps.cli.parser import CommandParser

_ABOUT = """
Write a trained network as a file for other programs: an ONNX graph (.onnx), a program of torch.export (.pt2), or plain
weights with their description (.safetensors). The file is run at once against the network on images of the run, the
greatest difference is printed, and beyond 1e-4 nothing is written. Or, with --page, write the drawing page of paircaps
serve as a folder that any web server serves: its networks run in the browser.
"""


def declare(parser: CommandParser) -> None:
    """Declare the arguments of ``export``."""
    parser.description = _ABOUT
    add_data_folder(parser)
    help_text = "folder of the run, the --out of its training; for --page one or more (default: digits)"
    add_trained_folders(parser, help_text, needed=False)
    place = parser.add_mutually_exclusive_group(required=True)
    place.add_argument(
        "-o", "--out", type=path, metavar="FILE", help="file to write, which ends in .onnx, .pt2 or .safetensors"
    )
    place.add_argument("--page", type=path, metavar="OUT", help="folder to write a page to, which needs no server")
    parser.add_argument(
        "--with-decoder",
        action="store_true",
        help="write the decoder too, which draws an image from a pose, to NAME-decoder beside the file",
    )
    parser.add_argument(
        "--quantize",
        action="store_true",
        help="store weights in 8 bits, a quarter of the size; refused if that costs more than 0.1 points of accuracy "
        "on the test images of the run",
    )
    parser.add_argument(
        "--images",
        type=whole_number(1),
        default=256,
        help="images to compare the file and the network on (%(default)s)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run="export:run", refuse=parser.error)
