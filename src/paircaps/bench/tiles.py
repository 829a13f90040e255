"""How large should a tile be, and from what size on does streaming pay? Behind the constants of paircaps.votes.

python benchmarks/tiles.py > results/bench/tiles.md
"""

from __future__ import annotations

from dataclasses import replace

from paircaps._utils.machine import machine_line
from paircaps.bench.memory import as_size
from paircaps.bench.shapes import FULL, LayerShape, inference, training
from paircaps.bench.timing import interleaved, ratio

BATCH = 128
REPEATS = 15
TILES = (4, 8, 16, 32, 48, 64, 128)
BATCHES = (4, 8, 16, 32, 64, 128)
SHAPES = (FULL, replace(FULL, in_capsules=512), LayerShape(64, 32, 16, 16, "matrix", "pose"))


def time_tiles() -> list[str]:
    """Milliseconds of CapsNet's layer by the number of children in a tile."""
    u = FULL.children(BATCH)
    runs = {}
    for tile in TILES:
        layer = FULL.layer("fm", True)
        layer.tile = tile
        runs[f"{tile} forward"], runs[f"{tile} training"] = inference(layer, u), training(layer, u)
    timings = interleaved(runs, REPEATS)
    lines = ["| children in a tile | its votes | forward, ms | forward and backward, ms |", "|---|---|---|---|"]
    for tile in TILES:
        cells = [f"{1e3 * timings[f'{tile} {kind}'].median:.1f}" for kind in ("forward", "training")]
        lines.append(
            f"| {tile} | {as_size(FULL.votes_bytes(BATCH) * tile // FULL.in_capsules)} | {' | '.join(cells)} |"
        )
    return lines


def time_batches() -> list[str]:
    """Streaming over plain, by layer and batch."""
    lines = ["| layer | images | votes | forward | forward and backward |", "|---|---|---|---|---|"]
    for shape in SHAPES:
        for batch in BATCHES:
            u = shape.children(batch)
            runs = {}
            for streaming in (True, False):
                layer = shape.layer("fm", streaming)
                runs[f"{streaming} forward"], runs[f"{streaming} training"] = inference(layer, u), training(layer, u)
            timings = interleaved(runs, REPEATS)
            cells = [
                f"{ratio(timings[f'True {kind}'], timings[f'False {kind}']).median:.2f}"
                for kind in ("forward", "training")
            ]
            lines.append(f"| {shape} | {batch} | {as_size(shape.votes_bytes(batch))} | {' | '.join(cells)} |")
    return lines


def main() -> None:
    """Print the tables."""
    print("# The size of a tile\n")
    print("`python benchmarks/tiles.py`\n")
    print(f"Medians of {REPEATS} repeats taken in turn. {machine_line()}.\n")
    print(f"CapsNet's layer, {FULL}, {BATCH} images:\n")
    print("\n".join(time_tiles()))
    print("\nStreaming over plain, both forced; the plain path is faster above 1:\n")
    print("\n".join(time_batches()))


if __name__ == "__main__":
    main()
