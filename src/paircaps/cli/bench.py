"""Run ``paircaps bench``: measure speed and memory on this machine."""

from __future__ import annotations

import argparse
import sys

from paircaps._utils.allocator import keep_freed_memory
from paircaps._utils.words import counted
from paircaps.bench import data, layer, plots, scaling, table1, train, train_profile
from paircaps.cli.output import require_places, show_result
from paircaps.errors import RecipeError
from paircaps.models import published_routing
from paircaps.paper.inference_times import paper_times
from paircaps.training.recipes import list_recipes, load_recipe


def run_data(options: argparse.Namespace) -> int:
    """Measure the images a second of the data loader."""
    require_places(options.out)
    print(f"timing the loader, {options.repeats} times {options.batches} batches of every case ...", file=sys.stderr)
    result = data.bench_data(options.data_dir, options.batches, options.repeats, options.seed)
    return show_result(result, data.as_markdown, options)


def run_train(options: argparse.Namespace) -> int:
    """Measure the images a second of training, by recipe, or profile its steps."""
    require_places(options.out)
    recipes = {name: load_recipe(name) for name in options.recipes or list_recipes()}
    keep_freed_memory()  # as in a training
    if options.profile:
        return show_result(train_profile.bench_train_profile(recipes, _say), train_profile.as_markdown, options)
    seconds = f"{4 * options.seconds} seconds or more each"
    print(f"timing the loop of {counted(len(recipes), 'recipe')}, {seconds} ...", file=sys.stderr)
    return show_result(train.bench_train(recipes, float(options.seconds)), train.as_markdown, options)


def run_table1(options: argparse.Namespace) -> int:
    """Measure the inference time of the paper's Table 1, by routing."""
    require_places(options.out, picture=True)
    result = table1.bench_table1(float(options.seconds), options.batch, _say, paper_times())
    return show_result(result, table1.as_markdown, options, plots.draw_table1)


def run_layer(options: argparse.Namespace) -> int:
    """Measure time and memory of capsule layers."""
    require_places(options.out, picture=True)
    result = layer.bench_layer(float(options.seconds), options.batch, say=_say)
    return show_result(result, layer.as_markdown, options, plots.draw_layer)


def run_scaling(options: argparse.Namespace) -> int:
    """Measure time and memory of layers of growing size."""
    require_places(options.out, picture=True)
    result = scaling.bench_scaling(float(options.seconds), options.batch, options.largest, _say)
    return show_result(result, scaling.as_markdown, options, plots.draw_scaling)


def run_serve(options: argparse.Namespace) -> int:
    """Measure the time until a server has answered, alone or under attack."""
    if options.minutes is not None and not options.soak:
        raise RecipeError("--minutes is the length of a soak test: give --soak too")
    if options.repeats is not None and options.soak:
        raise RecipeError("--repeats is not for a soak test: leave --soak or it out")
    require_places(options.out, picture=options.soak)
    from paircaps.bench import serve, serve_soak

    if options.soak:
        result = serve_soak.bench_soak(options.folders, 60.0 * (options.minutes or 20), say=_say)
        return show_result(result, serve_soak.as_markdown, options, serve_soak.draw)
    return show_result(serve.bench_serve(options.folders, options.repeats or 40, _say), serve.as_markdown, options)


def run_export(options: argparse.Namespace) -> int:
    """Export every model, and compare it with the original."""
    from paircaps.bench import export

    require_places(options.out)
    try:
        for name in options.models:
            published_routing(name)
    except ValueError as error:  # no model has that name
        raise RecipeError(str(error)) from None
    result = export.bench_export(options.models, options.repeats, not options.no_layers, _say)
    return show_result(result, export.as_markdown, options)


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


def run_triton(options: argparse.Namespace) -> int:
    """Compile the kernels for graphics cards, and predict their least times."""
    from paircaps.bench import triton

    require_places(options.out)
    return show_result(triton.bench_triton(_say), triton.as_markdown, options)


def run_busy(options: argparse.Namespace) -> int:
    """Time a short training on a quiet and on a busy machine."""
    from paircaps.bench import busy

    require_places(options.out)
    return show_result(busy.bench_busy(options.repeats, _say), busy.as_markdown, options)


def _say(what: str) -> None:
    print(f"measuring {what} ...", file=sys.stderr, flush=True)
