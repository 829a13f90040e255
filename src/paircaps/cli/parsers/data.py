"""Arguments of ``paircaps data list``, ``get``, ``show`` and ``check``."""

from __future__ import annotations

from paircaps.cli.arguments import add_data_folder, add_dataset_option, path, whole_number
from paircaps.cli.names import DATASETS, DOWNLOADS
from paircaps.cli.parser import CommandParser, suggest


def declare(parser: CommandParser) -> None:
    """Declare the subcommands of ``data`` and their arguments."""
    group = parser.add_subparsers(metavar="WHAT", required=True)

    listing = group.add_parser("list", help="list datasets: where they are, their licence and citation")
    listing.add_argument("--json", action="store_true", help="print JSON")
    listing.set_defaults(run="data:print_datasets")

    get = group.add_parser("get", help="download datasets, or print where their files are")
    suggest(get.add_argument("names", nargs="+", metavar="NAME", help=", ".join(DOWNLOADS)), DATASETS)
    get.add_argument("--split", help="only this split, such as extra of svhn")
    get.set_defaults(run="data:get_datasets")

    show = group.add_parser("show", help="draw a labelled contact sheet of a dataset")
    named = show.add_argument("name", metavar="NAME", help="a dataset, or a folder with one subfolder per class")
    suggest(named, DATASETS)
    show.add_argument("-o", "--out", type=path, required=True, metavar="PICTURE", help="a .png, .jpg or .webp file")
    show.add_argument("--split", help="split to draw (default: train, or the first there is)")
    show.add_argument("--columns", type=whole_number(1, 100), default=10, help="images in a row (%(default)s)")
    show.add_argument("--rows", type=whole_number(1, 100), help="most rows (default: 12, or 5 rows of image pairs)")
    show.add_argument("--seed", type=whole_number(0), default=0, help="seed of the choice of images (%(default)s)")
    add_dataset_option(show)
    show.set_defaults(run="data:show_dataset")

    check = group.add_parser("check", help="read whole datasets and verify their checksums")
    named = check.add_argument("names", nargs="+", metavar="NAME", help="a dataset, or a folder of pictures")
    suggest(named, DATASETS)
    check.add_argument("--split", help="only this split")
    add_dataset_option(check)
    check.set_defaults(run="data:check_datasets")

    for command in (listing, get, show, check):
        add_data_folder(command)
