"""``paircaps bench``: measure it on this machine."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from paircaps.bench import data, layer, pictures, scaling, table1, train
from paircaps.cli.arguments import data_folder, path, whole_number
from paircaps.cli.output import add_output, require_places, show_result
from paircaps.cli.serve import require_serving
from paircaps.paper.inference_times import paper_times
from paircaps.training.recipes import list_recipes, load_recipe


def add_commands(commands: Any) -> None:
    """Declare ``bench`` and its subcommands."""
    bench = commands.add_parser("bench", help="measure speed and memory on this machine")
    group = bench.add_subparsers(metavar="WHAT", required=True)
    loader = group.add_parser("data", parents=[data_folder()], help="images a second out of the loader")
    loader.add_argument("--batches", type=whole_number(1), default=100, help="batches of 128 in a repeat")
    loader.add_argument("--repeats", type=whole_number(1), default=9, help="of every case")
    loader.add_argument("--seed", type=whole_number(0), default=0, help="of order and augmentation")
    add_output(loader, run_data)

    loop = group.add_parser("train", help="images a second of every recipe, and what the loop itself costs")
    loop.add_argument("recipes", nargs="*", metavar="RECIPE", help="all that come with the package unless told")
    loop.add_argument("--seconds", type=whole_number(1), default=10, help="of every case, more or less")
    add_output(loop, run_train)

    inference = group.add_parser("table1", help="the paper's Table 1: milliseconds of a batch, by routing")
    alone = group.add_parser("layer", help="a capsule layer alone: plain and streaming, in time and memory")
    growth = group.add_parser("scaling", help="time and memory against the number of children and of classes")
    for command in (inference, alone, growth):
        command.add_argument(
            "--seconds", type=whole_number(1), default=20, help="of repeats at every size, or more (%(default)s)"
        )
        command.add_argument("--batch", type=whole_number(2), default=128, help="images, two or more (%(default)s)")
    growth.add_argument(
        "--largest",
        type=whole_number(64),
        default=65_536,
        help="children or classes beyond it are left out (%(default)s)",
    )
    page = group.add_parser("serve", help="how long the page of `paircaps serve` waits for an answer")
    page.add_argument(
        "folders", nargs="*", type=path, metavar="DIR", help="trained networks; fresh ones of usual sizes unless told"
    )
    page.add_argument("--repeats", type=whole_number(2), default=40, help="of every question (%(default)s)")
    add_output(page, run_serve)
    _add_depth(group)
    formats = group.add_parser("channels-last", help="training speed in both memory formats of PyTorch")
    formats.add_argument("--repeats", type=whole_number(1), default=9, help="of every case (%(default)s)")
    add_output(formats, run_channels_last)
    tiles = group.add_parser("tiles", help="the size of a tile, and from what size on streaming is faster")
    tiles.add_argument("--repeats", type=whole_number(1), default=15, help="of every case (%(default)s)")
    add_output(tiles, run_tiles)
    add_output(inference, run_table1, picture=True)
    add_output(alone, run_layer, picture=True)
    add_output(growth, run_scaling, picture=True)


def _add_depth(group: Any) -> None:
    command = group.add_parser("depth", help="how many capsule layers each routing learns through")
    command.add_argument(
        "--mnist", type=path, metavar="DIR", help="folder of MNIST's idx files; seven-segment digits unless given"
    )
    command.add_argument("--steps", type=whole_number(1), default=90, help="of Adam in every training (%(default)s)")
    command.add_argument("--seeds", type=whole_number(1), default=3, help="seeds 0 to N − 1 (%(default)s)")
    command.add_argument(
        "--hidden", type=whole_number(1), default=32, help="capsules of each layer but the last (%(default)s)"
    )
    command.add_argument(
        "--routings", nargs="+", default=["fm", "dynamic", "em"], metavar="NAME", help="fm, dynamic and em unless given"
    )
    command.add_argument(
        "--depths",
        nargs="+",
        type=whole_number(1),
        default=[1, 2, 3, 6],
        metavar="N",
        help="numbers of capsule layers, 1 2 3 6 unless given",
    )
    command.add_argument("--pair-start", action="store_true", help="start each pair's vote matrix by its own fans")
    command.add_argument("--beta-u", type=float, metavar="X", help="start of EM's β_u, in place of the library's")
    add_output(command, run_depth)


def run_data(options: argparse.Namespace) -> int:
    """Time the loader."""
    require_places(options.out)
    print(f"timing the loader, {options.repeats} times {options.batches} batches of every case ...", file=sys.stderr)
    result = data.bench_data(options.data_dir, options.batches, options.repeats, options.seed)
    return show_result(result, data.as_markdown, options)


def run_train(options: argparse.Namespace) -> int:
    """Time training."""
    require_places(options.out)
    recipes = {name: load_recipe(name) for name in options.recipes or list_recipes()}
    print(f"timing the loop of {len(recipes)} recipes, {2 * options.seconds} seconds each ...", file=sys.stderr)
    return show_result(train.bench_train(recipes, float(options.seconds)), train.as_markdown, options)


def run_table1(options: argparse.Namespace) -> int:
    """Time inference by routing."""
    require_places(options.out, picture=True)
    result = table1.bench_table1(float(options.seconds), options.batch, _say, paper_times())
    return show_result(result, table1.as_markdown, options, pictures.draw_table1)


def run_layer(options: argparse.Namespace) -> int:
    """Time and weigh capsule layers."""
    require_places(options.out, picture=True)
    result = layer.bench_layer(float(options.seconds), options.batch, say=_say)
    return show_result(result, layer.as_markdown, options, pictures.draw_layer)


def run_scaling(options: argparse.Namespace) -> int:
    """Time and weigh growing layers."""
    require_places(options.out, picture=True)
    result = scaling.bench_scaling(float(options.seconds), options.batch, options.largest, _say)
    return show_result(result, scaling.as_markdown, options, pictures.draw_scaling)


def run_serve(options: argparse.Namespace) -> int:
    """Time answers of a server."""
    require_places(options.out)
    require_serving()
    from paircaps.bench import serve

    return show_result(serve.bench_serve(options.folders, options.repeats, _say), serve.as_markdown, options)


def run_depth(options: argparse.Namespace) -> int:
    """Train networks of growing depth."""
    from paircaps.bench import depth

    require_places(options.out)
    settings = depth.DepthSettings(
        options.steps,
        options.seeds,
        options.hidden,
        options.routings,
        options.depths,
        options.pair_start,
        options.beta_u,
    )
    return show_result(depth.bench_depth(settings, options.mnist, _say), depth.as_markdown, options)


def run_channels_last(options: argparse.Namespace) -> int:
    """Time training in both memory formats."""
    from paircaps.bench import channels_last

    require_places(options.out)
    return show_result(channels_last.bench_channels_last(options.repeats, _say), channels_last.as_markdown, options)


def run_tiles(options: argparse.Namespace) -> int:
    """Time tiles of several sizes."""
    from paircaps.bench import tiles

    require_places(options.out)
    return show_result(tiles.bench_tiles(options.repeats, _say), tiles.as_markdown, options)


def _say(what: str) -> None:
    print(f"measuring {what} ...", file=sys.stderr, flush=True)
