"""Time and memory of capsule layers alone, by every path: a forward pass, and a forward with its backward pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, NamedTuple

import torch

from paircaps._utils.machine import describe_machine, machine_line
from paircaps._utils.processors import allowed_cores
from paircaps._utils.words import Say, as_size
from paircaps.bench.busy import busy_processes
from paircaps.bench.goals import Goal, goals_as_markdown
from paircaps.bench.layer_shapes import (
    CAPSNET_LAYER,
    LayerShape,
    capsule_layers,
    capsule_models,
    inference_pass,
    registered_shapes,
    training_pass,
)
from paircaps.bench.peak_memory import can_measure, layer_job, measure_peaks
from paircaps.bench.profile import as_markdown as profile_as_markdown
from paircaps.bench.profile import profile_operators
from paircaps.bench.timing import Timing, interleaved, ratio, repeats_within, silent
from paircaps.models import create_model
from paircaps.votes.kernels.choice import describe_kernels

BATCH = 128
MANY_CHILDREN = 65_536
"""Children of the layer that shows that streaming memory does not grow."""

MATRIX = 2048
"""Side of the square matrices whose product shows the speed of the machine."""


class Case(NamedTuple):
    """A way to route the votes of a layer.

    Attributes:
        routing: name of the routing.
        streaming: streaming mode of the layer; False holds all votes at once.
        options: options of the routing.
        path: path of the sums, a key of ``votes.kernels.choice.PATHS``.
    """

    routing: str
    streaming: bool | str
    options: dict[str, object]
    path: str = "c"


CASES: dict[str, Case] = {
    "FM, kernel": Case("fm", True, {}),
    "FM, tiles": Case("fm", True, {}, "tiles"),
    "FM, plain": Case("fm", False, {}),
    "dynamic(1)": Case("dynamic", "auto", {"iterations": 1}),
    "dynamic(3), kernel": Case("dynamic", True, {"iterations": 3}),
    "dynamic(3), some images at a time": Case("dynamic", "auto", {"iterations": 3}, "tiles"),
    "dynamic(3), plain": Case("dynamic", False, {"iterations": 3}),
    "EM(3), some images at a time": Case("em", "auto", {"iterations": 3}),
    "EM(3), plain": Case("em", False, {"iterations": 3}),
}
"""All cases, by name; the plain ones hold all votes at once."""

OURS = "FM, kernel"

MANY_CLASSES = LayerShape(64, 1000, 16, 16, "matrix", "pose")
"""A layer with as many parents as ImageNet has classes; its plain votes are half a gigabyte and left out."""

STREAMING_CASES = ("FM, kernel", "FM, tiles", "dynamic(3), kernel")
"""Cases that hold no votes."""

BUSY_CASES = ("FM, kernel", "FM, tiles", "FM, plain", "dynamic(1)", "dynamic(3), kernel")
"""Cases that are timed beside busy processes."""


def bench_layer(
    seconds: float = 20.0,
    batch: int = BATCH,
    shapes: Mapping[LayerShape, Sequence[str]] | None = None,
    models: Sequence[str] | None = None,
    say: Say = silent,
) -> dict[str, Any]:
    """Measure time and memory of capsule layers, and their share in a training step.

    Args:
        seconds: approximate time of all repeats of one layer together.
        batch: images in a batch.
        shapes: sizes of layers, with the names of the models they are from; None for those of all registered models.
        models: names of models whose training steps are timed; None for all registered ones with capsule layers.
        say: called with each progress line.
    """
    shapes = registered_shapes() if shapes is None else shapes
    models = capsule_models() if models is None else models
    result = {
        "seconds": seconds,
        "batch": batch,
        "shapes": [{**_bench_shape(shape, batch, seconds, say), "models": list(of)} for shape, of in shapes.items()],
        "classes": _time_cases(MANY_CLASSES, STREAMING_CASES, batch, seconds, say),
        "busy": _beside_busy_processes(batch, seconds, say),
        "shares": [_share_of_layers(name, batch, seconds, say) for name in models],
        "machine": describe_machine(),
        "kernels": describe_kernels(),
    }
    return {**result, "goals": [asdict(goal) for goal in _goals(result)]}


def _bench_shape(shape: LayerShape, batch: int, seconds: float, say: Say) -> dict[str, Any]:
    """Time, memory and operator profile of one layer with every routing."""
    say(str(shape))
    # time all cases in turn, beside a matrix product that shows the speed of the machine
    u = shape.random_children(batch)
    square = torch.randn(MATRIX, MATRIX)
    runs: dict[str, Callable[[], object]] = {"matrix product": lambda: square @ square}
    for name, case in CASES.items():
        layer = shape.layer(case.routing, case.streaming, **case.options)
        runs[f"{name} forward"] = inference_pass(layer, u, case.path)
        runs[f"{name} training"] = training_pass(layer, u, case.path)
    timings = interleaved(runs, repeats_within(runs, seconds))
    # memory is measured in another process
    extra = _extra_bytes(shape, batch)
    return {
        "shape": asdict(shape),
        "title": str(shape),
        "votes_bytes": shape.votes_bytes(batch),
        "matrix_gflops": 2 * MATRIX**3 / timings["matrix product"].median / 1e9,
        "profile": {kind: profile_operators(runs[f"FM, tiles {kind}"]) for kind in ("forward", "training")},
        "rows": [{**_row(name, shape, batch, timings), "extra_bytes": extra[name]} for name in CASES],
        "ratios": {name: _spread(value) for name, value in _ratios(timings).items()},
    }


def _time_cases(shape: LayerShape, cases: Sequence[str], batch: int, seconds: float, say: Say) -> dict[str, Any]:
    """Time of some cases in one layer, without a product to compare with."""
    say(f"{shape}, {batch} images")
    u = shape.random_children(batch)
    runs: dict[str, Callable[[], object]] = {}
    for name in cases:
        case = CASES[name]
        layer = shape.layer(case.routing, case.streaming, **case.options)
        runs[f"{name} forward"] = inference_pass(layer, u, case.path)
        runs[f"{name} training"] = training_pass(layer, u, case.path)
    timings = interleaved(runs, repeats_within(runs, seconds))
    kinds = ("forward", "training")
    rows = [{"case": name, **{kind: timings[f"{name} {kind}"].in_milliseconds() for kind in kinds}} for name in cases]
    over = {
        f"{kind}, {name}": _spread(ratio(timings[f"{OURS} {kind}"], timings[f"{name} {kind}"]))
        for kind in kinds
        for name in cases
        if name != OURS
    }
    return {"title": str(shape), "rows": rows, "ratios": over}


def _beside_busy_processes(batch: int, seconds: float, say: Say) -> dict[str, Any]:
    """Times of CapsNet's layer while as many processes as there are cores compute without end."""
    count = allowed_cores()
    with busy_processes(count):
        return {"processes": count, **_time_cases(CAPSNET_LAYER, BUSY_CASES, batch, seconds, say)}


def _row(name: str, shape: LayerShape, batch: int, timings: dict[str, Timing]) -> dict[str, Any]:
    """Times and speeds of one case."""
    forward, both = timings[f"{name} forward"], timings[f"{name} training"]
    flops = shape.layout(batch).product_flops
    fastest = 2 * MATRIX**3 / timings["matrix product"].median
    # one product forward, two more backward; the votes that streaming casts a second time do not count
    speeds = {"forward": flops / forward.median, "training": 3 * flops / both.median}
    return {
        "case": name,
        "forward": forward.in_milliseconds(),
        "training": both.in_milliseconds(),
        "speed": {kind: {"gflops": speed / 1e9, "share": speed / fastest} for kind, speed in speeds.items()},
    }


def _extra_bytes(shape: LayerShape, batch: int) -> dict[str, dict[str, int | None]]:
    """Peak memory of every case beyond inputs, weights and their gradients, for inference and training."""
    if not can_measure():
        return {name: {"inference": None, "training": None} for name in CASES}
    jobs = [
        layer_job(
            shape, batch, train=train, routing=case.routing, streaming=case.streaming, path=case.path, **case.options
        )
        for case in CASES.values()
        for train in (False, True)
    ]
    peaks = [peak.extra for peak in measure_peaks(jobs)]
    pairs = zip(peaks[::2], peaks[1::2], strict=True)
    return {name: {"inference": one, "training": other} for name, (one, other) in zip(CASES, pairs, strict=True)}


def _ratios(timings: dict[str, Timing]) -> dict[str, Timing]:
    """Time of FM agreement by the kernel over that of every other case, by pass and case; and of the matrix product."""
    others = {f"{kind}, {other}": (kind, other) for kind in ("forward", "training") for other in CASES if other != OURS}
    ratios = {
        name: ratio(timings[f"{OURS} {kind}"], timings[f"{other} {kind}"]) for name, (kind, other) in others.items()
    }
    product = timings["matrix product"]
    return ratios | {
        f"{kind}, matrix product": ratio(timings[f"{OURS} {kind}"], product) for kind in ("forward", "training")
    }


def _spread(timing: Timing) -> dict[str, float]:
    return {"median": timing.median, "low": timing.low, "high": timing.high}


def _share_of_layers(name: str, batch: int, seconds: float, say: Say) -> dict[str, Any]:
    """Share of the capsule layers in the forward and backward pass of a model with FM agreement."""
    say(f"a training step of {name}")
    model = create_model(name, 10, 3, 32).train()
    images = torch.randn(batch, 3, 32, 32)
    # run the model once to record the input of its first capsule layer
    inputs: list[Any] = []
    layers = capsule_layers(model)
    handle = layers[0].register_forward_pre_hook(lambda _, given: inputs.append(given[0].s.detach()))
    model(images)
    handle.remove()
    stack = torch.nn.Sequential(*layers)
    runs = {"step": training_pass(model, images), "layers": training_pass(stack, inputs[0].requires_grad_())}
    timings = interleaved(runs, repeats_within(runs, seconds))
    return {
        "model": name,
        "step": timings["step"].in_milliseconds(),
        "layers": timings["layers"].in_milliseconds(),
        "share": _spread(ratio(timings["layers"], timings["step"])),
    }


def _goals(result: dict[str, Any]) -> list[Goal]:
    """Goals with measured values; empty for another batch than the one they are stated for."""
    goals: list[Goal] = []
    if result["batch"] != BATCH:
        return goals
    for shape in result["shapes"]:
        if LayerShape(**shape["shape"]) == CAPSNET_LAYER:
            goals += [*_time_goals(shape["ratios"], result["batch"]), *_memory_goals(shape["rows"], result["batch"])]
    many = result["classes"]["ratios"]["training, FM, tiles"]["median"]
    goals.append(Goal(f"{result['classes']['title']}, forward and backward, kernel / tiles", 1 / 4, many))
    for row in result["shares"]:
        if row["model"] == "resnet-caps":
            what = "ResNetCapsules (8,8,8), share of its capsule layers in a training step"
            goals.append(Goal(what, 0.025, row["share"]["median"]))
    return goals


def _time_goals(ratios: dict[str, Any], batch: int) -> list[Goal]:
    """Goals on the time of FM agreement by the kernel in CapsNet's layer."""
    # time of the layer's own products at the rate of the large one, over the time of the large one
    products = CAPSNET_LAYER.layout(batch).product_flops / (2 * MATRIX**3)
    both = "forward and backward"
    bounds = {
        "forward, FM, plain": ("FM forward, kernel / plain", 1 / 12, 1.0),
        "training, FM, plain": (f"FM {both}, kernel / plain", 1 / 30, 1.0),
        "forward, matrix product": ("FM forward / its product at the rate of a large one (30 %)", 1 / 0.3, products),
        "training, matrix product": (f"FM {both} / its products at that rate (35 %)", 1 / 0.35, 3 * products),
        "forward, dynamic(1)": ("forward, FM / dynamic(1), one matrix product", 1.5, 1.0),
        "training, dynamic(1)": (f"{both}, FM / dynamic(1)", 1.3, 1.0),
        "training, dynamic(3), kernel": (f"{both}, FM / the best dynamic(3)", 1 / 4, 1.0),
    }
    return [
        Goal(measure, bound, ratios[name]["median"] / products) for name, (measure, bound, products) in bounds.items()
    ]


def _memory_goals(rows: list[dict[str, Any]], batch: int) -> list[Goal]:
    """Goals on the memory of FM agreement by the kernel in CapsNet's layer."""
    extra = {row["case"]: row["extra_bytes"]["training"] for row in rows}
    ours, tiles, plain = extra[OURS], extra["FM, tiles"], extra["FM, plain"]
    if plain is None:
        return []
    (many,) = measure_peaks(
        [layer_job(replace(CAPSNET_LAYER, in_capsules=MANY_CHILDREN), batch, train=True, streaming=True)]
    )
    growth = f"the same, kernel with {MANY_CHILDREN:,} children / with {CAPSNET_LAYER.in_capsules:,}"
    return [
        Goal("peak extra memory in training, kernel / plain", 1 / 20, ours / plain),
        Goal("the same, kernel / tiles", 1.0, ours / tiles),
        Goal(growth, 1.2, many.extra / ours),
    ]


def as_markdown(result: dict[str, Any]) -> str:
    """Format the result as tables."""
    lines = [
        "# A capsule layer alone",
        "",
        f"`paircaps bench layer --seconds {result['seconds']:g} --batch {result['batch']}`",
        "",
        f"The capsule layers of every registered model on images of CIFAR10's size, {result['batch']} at a time: "
        "milliseconds of a forward pass without gradients and of a forward with its backward pass, medians and "
        "quartiles of repeats taken in turn. GFLOP/s are of the products that make votes and their gradients, each "
        f"counted once; the share is of a {MATRIX} × {MATRIX} matrix product timed in the same rounds. Extra memory is "
        "the peak beyond inputs, weights and their gradients, in another process. Where positions share weights, the "
        "kernel has no pass for dynamic routing, which then takes a few images at a time. Ratios are taken round by "
        f"round. {result['kernels']}. {machine_line(result['machine'])}.",
        "",
        *(goals_as_markdown([Goal(**goal) for goal in result["goals"]]) if result["goals"] else []),
    ]
    for shape in result["shapes"]:
        lines += ["", *_shape_as_markdown(shape)]
    busy = result["busy"]
    lines += ["", f"## {result['classes']['title']}", "", *_times_as_table(result["classes"])]
    lines += ["", f"## {busy['title']}, beside {busy['processes']} busy processes", "", *_times_as_table(busy)]
    lines += _profile_of_full(result["shapes"])
    lines += [
        "",
        "## Capsule layers in a training step",
        "",
        "| model | forward and backward, ms | its capsule layers, ms | share |",
        "|---|---|---|---|",
    ]
    for row in result["shares"]:
        lines.append(
            f"| {row['model']} | {_with_spread(row['step'])} | {_with_spread(row['layers'])} | "
            f"{100 * row['share']['median']:.1f} % |"
        )
    return "\n".join(lines) + "\n"


def _shape_as_markdown(shape: dict[str, Any]) -> list[str]:
    """Format the measurements of one layer as a section."""
    lines = [
        f"## {shape['title']}",
        "",
        f"Of {', '.join(dict.fromkeys(shape['models']))}. All votes together are {as_size(shape['votes_bytes'])}; "
        f"the matrix product ran at {shape['matrix_gflops']:.0f} GFLOP/s; "
        f"{shape['rows'][0]['forward']['repeats']} repeats.",
        "",
        "| | forward, ms | GFLOP/s | forward and backward, ms | GFLOP/s | extra memory: inference, training |",
        "|---|---|---|---|---|---|",
    ]
    for row in shape["rows"]:
        lines.append(
            f"| {row['case']} | {_with_spread(row['forward'])} | {_speed(row['speed']['forward'])} | "
            f"{_with_spread(row['training'])} | {_speed(row['speed']['training'])} | "
            f"{_memory(row['extra_bytes']['inference'])}, {_memory(row['extra_bytes']['training'])} |"
        )
    return lines


def _times_as_table(measured: dict[str, Any]) -> list[str]:
    """Format the times of some cases."""
    lines = ["| | forward, ms | forward and backward, ms | FM by the kernel takes |", "|---|---|---|---|"]
    for row in measured["rows"]:
        over = [measured["ratios"].get(f"{kind}, {row['case']}") for kind in ("forward", "training")]
        ratios = ", ".join(f"{found['median']:.3g}" for found in over if found)
        lines.append(
            f"| {row['case']} | {_with_spread(row['forward'])} | {_with_spread(row['training'])} | "
            f"{f'{ratios} times that' if ratios else ''} |"
        )
    return lines


def _profile_of_full(shapes: list[dict[str, Any]]) -> list[str]:
    """Operator profiles of CapsNet's layer, for which the goals are stated."""
    lines = []
    for shape in shapes:
        if LayerShape(**shape["shape"]) != CAPSNET_LAYER:
            continue
        titles = {"forward": "forward", "training": "forward and backward"}
        for kind, title in titles.items():
            lines += ["", f"## Where the time of tiles goes: {shape['title']}, {title}", ""]
            lines += profile_as_markdown(shape["profile"][kind])
    return lines


def _with_spread(timing: dict[str, float]) -> str:
    return f"{timing['median']:,.1f} ({timing['low']:,.1f} to {timing['high']:,.1f})"


def _speed(speed: dict[str, float]) -> str:
    return f"{speed['gflops']:.1f} ({100 * speed['share']:.1f} %)"


def _memory(value: int | None) -> str:
    return "not measured" if value is None else as_size(value)
