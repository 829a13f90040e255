"""Arguments of ``paircaps bench`` and its subcommands."""

from __future__ import annotations

from paircaps.cli.arguments import add_data_folder, add_output, add_trained_folders, path, whole_number
from paircaps.cli.names import MODELS, ROUTINGS, shipped_recipes
from paircaps.cli.parser import CommandParser, suggest


def declare(parser: CommandParser) -> None:
    """Declare the subcommands of ``bench`` and their arguments."""
    group = parser.add_subparsers(metavar="WHAT", required=True)
    _declare_data(group.add_parser("data", help="images a second of the data loader"))
    _declare_train(group.add_parser("train", help="images a second of the training of every recipe"))
    table1 = group.add_parser("table1", help="the paper's Table 1: milliseconds of a batch, by routing")
    layer = group.add_parser("layer", help="time and memory of a capsule layer, dense and streaming")
    scaling = group.add_parser("scaling", help="time and memory against the number of children and of classes")
    scaling.add_argument(
        "--largest",
        type=whole_number(64),
        default=65_536,
        help="most children or classes to measure (%(default)s)",
    )
    for command, run in ((table1, "run_table1"), (layer, "run_layer"), (scaling, "run_scaling")):
        command.add_argument(
            "--seconds", type=whole_number(1), default=20, help="least seconds of repeats at every size (%(default)s)"
        )
        command.add_argument(
            "--batch", type=whole_number(2), default=128, help="images of a batch, two or more (%(default)s)"
        )
        add_output(command, f"bench:{run}", picture=True)
    _declare_depth(group.add_parser("depth", help="accuracy of every routing against the number of capsule layers"))
    formats = group.add_parser("channels-last", help="training speed in both memory formats of PyTorch")
    formats.add_argument("--repeats", type=whole_number(1), default=9, help="repeats of every case (%(default)s)")
    add_output(formats, "bench:run_channels_last")
    tiles = group.add_parser("tiles", help="speed against the size of a tile, and least size at which streaming wins")
    tiles.add_argument("--repeats", type=whole_number(1), default=15, help="repeats of every case (%(default)s)")
    add_output(tiles, "bench:run_tiles")
    triton = group.add_parser("triton", help="machine code of the kernels for graphics cards, and their least times")
    add_output(triton, "bench:run_triton")
    busy = group.add_parser("busy", help="seconds of a short training alone, and beside busy processes")
    busy.add_argument("--repeats", type=whole_number(1), default=3, help="trainings of every case (%(default)s)")
    add_output(busy, "bench:run_busy")
    _declare_export(group.add_parser("export", help="exported networks of every model: difference, size, speed"))
    _declare_serve(group.add_parser("serve", help="milliseconds until the page of `paircaps serve` has an answer"))


def _declare_data(parser: CommandParser) -> None:
    add_data_folder(parser)
    parser.add_argument(
        "--batches", type=whole_number(1), default=100, help="batches of 128 images in a repeat (%(default)s)"
    )
    parser.add_argument("--repeats", type=whole_number(1), default=9, help="repeats of every case (%(default)s)")
    parser.add_argument(
        "--seed", type=whole_number(0), default=0, help="seed of the order and the augmentation (%(default)s)"
    )
    add_output(parser, "bench:run_data")


def _declare_train(parser: CommandParser) -> None:
    recipes = parser.add_argument(
        "recipes", nargs="*", metavar="RECIPE", help="recipes to time (default: all that come with the package)"
    )
    suggest(recipes, shipped_recipes)
    parser.add_argument("--seconds", type=whole_number(1), default=10, help="seconds of every case (%(default)s)")
    parser.add_argument("--profile", action="store_true", help="show which operators take the time of a step instead")
    add_output(parser, "bench:run_train")


def _declare_export(parser: CommandParser) -> None:
    models = parser.add_argument("models", nargs="*", metavar="MODEL", help="models to export (default: all)")
    suggest(models, MODELS)
    parser.add_argument("--repeats", type=whole_number(1), default=9, help="repeats of every case (%(default)s)")
    parser.add_argument("--no-layers", action="store_true", help="leave out the capsule layers with every routing")
    add_output(parser, "bench:run_export")


def _declare_serve(parser: CommandParser) -> None:
    help_text = "folders of trained networks (default: untrained ones of usual sizes)"
    add_trained_folders(parser, help_text, needed=False)
    parser.add_argument("--repeats", type=whole_number(2), help="repeats of every request (40)")
    parser.add_argument(
        "--soak",
        action="store_true",
        help="measure answers, memory and descriptors over minutes of honest and hostile traffic instead",
    )
    parser.add_argument("--minutes", type=whole_number(1), help="length of the measurement with --soak (20)")
    parser.extra = "serve"
    add_output(parser, "bench:run_serve", picture=True)


def _declare_depth(parser: CommandParser) -> None:
    parser.add_argument(
        "--mnist", type=path, metavar="DIR", help="folder of MNIST's idx files (default: seven-segment digits)"
    )
    parser.add_argument("--steps", type=whole_number(1), default=90, help="steps of every training (%(default)s)")
    parser.add_argument("--seeds", type=whole_number(1), default=3, help="number of seeds, from 0 (%(default)s)")
    parser.add_argument(
        "--hidden", type=whole_number(1), default=32, help="capsules of each layer but the last (%(default)s)"
    )
    routings = parser.add_argument(
        "--routings",
        nargs="+",
        default=["fm", "dynamic", "em"],
        metavar="NAME",
        help="routings (default: fm dynamic em)",
    )
    suggest(routings, ROUTINGS)
    parser.add_argument(
        "--depths",
        nargs="+",
        type=whole_number(1),
        default=[1, 2, 3, 6],
        metavar="N",
        help="numbers of capsule layers (default: 1 2 3 6)",
    )
    parser.add_argument(
        "--pair-start", action="store_true", help="initialise each pair's vote matrix by the size of that matrix alone"
    )
    parser.add_argument("--beta-u", type=float, metavar="X", help="initial β_u of EM routing (default: the library's)")
    add_output(parser, "bench:run_depth")
