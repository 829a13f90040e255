"""Exported files of every model: greatest difference from the original, size, and time beside that of PyTorch.

Of every routing and kind of capsule layer, the greatest difference alone.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from paircaps._utils.extras import require_extra
from paircaps._utils.machine import describe_machine, machine_line
from paircaps._utils.text_tables import markdown_table
from paircaps._utils.words import Say, as_size
from paircaps.bench.timing import interleaved, silent
from paircaps.data import load_dataset
from paircaps.export.compare import LIMIT, differences, outputs
from paircaps.export.formats import FORMATS, Format, Trained
from paircaps.export.graphs import Answers, output_names, traced
from paircaps.export.onnx_files import as_onnx
from paircaps.layers import CapsuleLayer, ConvCapsuleLayer, MapCapsuleLayer, settle
from paircaps.model_files import load, read_metadata, save_model
from paircaps.models import list_models, published_routing
from paircaps.models.registry import is_pooling_twin
from paircaps.network import Network, NetworkSpec, Preparation
from paircaps.routing import list_routings

ENDINGS = (".onnx", ".pt2")
CLASSES = 10
BATCH = 16
"""Images of a timed batch."""

IMAGES = 64
"""Images that outputs are compared on."""

SIDE = 32
STEREO = ("efficient-capsnet-norb", "efficient-capsnet-pool-norb")
"""Models made for pairs of images of 48×48."""

GRID, POSE_DIM = (4, 4, 4), 16
"""Children and dimensions of the capsule layers alone."""

LAYERS: dict[str, Callable[[str], nn.Module]] = {
    "matrix": lambda routing: CapsuleLayer(GRID, 5, POSE_DIM, routing=routing),
    "vector": lambda routing: CapsuleLayer(GRID, 5, POSE_DIM, routing=routing, transform="vector", vote_norm="vote"),
    "shared by position": lambda routing: CapsuleLayer(
        GRID, 5, POSE_DIM, routing=routing, share="position", coordinates="learned"
    ),
    "shared by all": lambda routing: CapsuleLayer(GRID, 5, POSE_DIM, routing=routing, share="all", vote_norm=None),
    "convolutional": lambda routing: ConvCapsuleLayer(GRID[2], 5, stride=2, pose_dim=POSE_DIM, routing=routing),
    "map": lambda routing: MapCapsuleLayer(GRID[2], GRID[:2], 5, pose_dim=POSE_DIM, routing=routing),
}
"""Every kind of capsule layer by the name of its column."""


def bench_export(
    models: Sequence[str] = (), repeats: int = 9, layers: bool = True, say: Say = silent
) -> dict[str, Any]:
    """Export networks of every model, compare them with the originals, and time both with one thread.

    Args:
        models: names of models; all that are registered if there are none.
        repeats: timed runs of every case.
        layers: whether capsule layers with every routing are compared too.
        say: called with each progress line.
    """
    require_extra("bench export", "onnx", "onnxscript", "onnxruntime", extra="export")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        result = {
            "repeats": repeats,
            "batch": BATCH,
            "images": IMAGES,
            "models": [_bench_model(name, repeats, say) for name in models or list_models()],
            "layers": [_bench_layers(routing, say) for routing in list_routings()] if layers else [],
            "machine": describe_machine(),
        }
    finally:
        torch.set_num_threads(threads)
    return result


# --- models ----------------------------------------------------------------------------------------------------------


def _bench_model(name: str, repeats: int, say: Say) -> dict[str, Any]:
    """Differences, sizes and times of a model of its usual size, with random weights, in all formats."""
    say(name)
    torch.manual_seed(0)
    network, images = _network(name)
    runs = {}
    row: dict[str, Any] = {"model": name, "routing": published_routing(name), "image": list(images.shape[1:])}
    with tempfile.TemporaryDirectory() as folder:
        save_model(Path(folder), network, {})
        trained = Trained(Path(folder), load(folder), read_metadata(Path(folder)))
        answers = Answers(trained.network)
        original = outputs(answers, [images])
        for ending in ENDINGS:
            form: Format = FORMATS[ending]
            files = form.network_files(trained)
            runs[ending] = form.run(files[ending], files)
            found = differences(outputs(runs[ending], [images]), original, output_names(network))
            row[ending] = {"difference": max(found.values()), "outputs": found, "bytes": len(files[ending])}
    batch = images[:BATCH]
    with torch.no_grad():
        cases = {"torch": lambda: answers(batch), **{end: lambda run=run: run(batch) for end, run in runs.items()}}
        timings = interleaved(cases, repeats)
    for case, timing in timings.items():
        row.setdefault(case, {})["milliseconds"] = timing.in_milliseconds()
    return row


def _network(name: str) -> tuple[Network, Tensor]:
    """A network of a model on glyphs, with the statistics of batch norm that its weights lead to, and images."""
    side, channels = (48, 2) if name in STEREO else (SIDE, 1)
    glyphs = load_dataset("glyphs", "test", image_size=side).batch(torch.arange(IMAGES)).images
    images = glyphs.expand(-1, channels, -1, -1) / 255
    arguments = {"num_classes": CLASSES, "in_channels": channels, "image_size": side}
    preparation = Preparation((side, side), (side, side), standardise=True, channels=channels)
    network = Network(NetworkSpec(name, arguments, tuple(map(str, range(CLASSES))), preparation))
    network.fit(images)
    settle(network, [images])  # so that outputs are of the size of trained ones
    return network.eval(), images


# --- layers ----------------------------------------------------------------------------------------------------------


class _SideBySide(nn.Module):
    """Capsule layers that get the same children; poses and activations of all of them."""

    def __init__(self, layers: Iterable[nn.Module]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, children: Tensor, activation: Tensor) -> tuple[Tensor, ...]:
        parents = [layer(children, activation) for layer in self.layers]
        return tuple(part for each in parents for part in (each.pose, each.activation))


def _bench_layers(routing: str, say: Say) -> dict[str, Any]:
    """Greatest difference of every kind of layer with a routing, as ONNX."""
    say(f"layers with {routing}")
    torch.manual_seed(0)
    module = _SideBySide(build(routing) for build in LAYERS.values())
    children, activation = torch.randn(IMAGES, *GRID, POSE_DIM), torch.rand(IMAGES, *GRID)
    module.eval()
    names = [f"{layer} {part}" for layer in LAYERS for part in ("pose", "activation")]
    program = traced(module, {"children": children[:2], "activation": activation[:2]})
    run = FORMATS[".onnx"].run(as_onnx(program, names, {}), {})
    inputs = [children, activation]
    found = differences(outputs(run, inputs), outputs(module, inputs), names)
    return {
        "routing": routing,
        **{layer: max(found[f"{layer} pose"], found[f"{layer} activation"]) for layer in LAYERS},
    }


# --- tables ----------------------------------------------------------------------------------------------------------


def as_markdown(result: dict[str, Any]) -> str:
    """Format the result as tables."""
    lines = [
        "# Exported networks",
        "",
        "`paircaps bench export`",
        "",
        "Every model with random weights, exported as `paircaps export` does it ([how](../../docs/export.md)): "
        f"greatest difference of any output from the original on {result['images']} glyphs, divided by the greatest "
        f"value of that output if it is above 1 ({LIMIT:g} is allowed); size of the file; and milliseconds of a batch "
        f"of {result['batch']} images with one thread, medians of {result['repeats']} repeats taken in turn. "
        f"{machine_line(result['machine'])}.",
        "",
        *markdown_table(_HEADER, [_model_cells(row) for row in result["models"]]),
    ]
    if result["layers"]:
        rows = [[row["routing"], *(_difference(row[layer]) for layer in LAYERS)] for row in result["layers"]]
        lines += [
            "",
            "Capsule layers alone as ONNX, with every routing: greatest difference of poses and activations.",
            "",
            *markdown_table(["routing", *LAYERS], rows),
        ]
    return "\n".join(lines) + "\n"


_HEADER = (
    *("model", "routing", "image", "ONNX: difference", "size", "ms", "pt2: difference", "size", "ms"),
    "PyTorch itself, ms",
)


def _model_cells(row: dict[str, Any]) -> list[str]:
    channels, height, width = row["image"]
    routing = "none" if is_pooling_twin(row["model"]) else row["routing"]
    cells = [row["model"], routing, f"{height}×{width}×{channels}"]
    for ending in ENDINGS:
        of = row[ending]
        cells += [_difference(of["difference"]), as_size(of["bytes"]), f"{of['milliseconds']['median']:.1f}"]
    return [*cells, f"{row['torch']['milliseconds']['median']:.1f}"]


def _difference(value: float) -> str:
    return f"{value:.0e}" if value else "0"
