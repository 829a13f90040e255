"""How fast batches come out of the loader.

Each case is a number of batches of 128 made by one process, with torch's threads as they are. CIFAR10 and MNIST are
read where they are found; elsewhere noise of the same shape takes their place, which costs the loader the same.
"""

from __future__ import annotations

from collections.abc import Callable

from paircaps._utils.machine import describe_machine
from paircaps.bench.timing import interleaved
from paircaps.data import (
    Augmentation,
    Compose,
    Flip,
    ImageDataset,
    Loader,
    RandomCrop,
    Standardise,
    StoredDataset,
    load_dataset,
)
from paircaps.data.files.locate import Root, find
from paircaps.data.registry import require_metadata
from paircaps.data.synthetic.dataset import AffineDigits, Drawing, OverlappingDigits, SyntheticDataset, TranslatedDigits
from paircaps.data.synthetic.noise import noise_dataset
from paircaps.data.synthetic.poses import PoseRange

BATCH = 128
GOALS = {"cifar10, crop and flip": 20_000, "multi-mnist pairs": 10_000}
"""Images a second that the loader must reach on two cores."""


def bench_data(root: Root = None, batches: int = 100, repeats: int = 9, seed: int = 0) -> dict[str, object]:
    """Images a second of every case, and what they were measured on."""
    cifar, mnist = _stored("cifar10", root), _stored("mnist", root)
    loaders = {
        "cifar10, as it is": Loader(cifar, BATCH, seed=seed),
        "cifar10, crop and flip": _augmented(cifar, seed, RandomCrop(4), Flip()),
        "cifar10, crop, flip, standardise": _augmented(cifar, seed, RandomCrop(4), Flip(), Standardise()),
        "translated-mnist": _made(mnist, TranslatedDigits((40, 40)), seed),
        "affine-mnist": _made(mnist, AffineDigits((40, 40), PoseRange()), seed),
        "multi-mnist pairs": _made(mnist, OverlappingDigits((36, 36)), seed),
    }
    timings = interleaved({name: _run(loader, batches) for name, loader in loaders.items()}, repeats)
    rows = []
    for name, timing in timings.items():
        images = batches * BATCH
        rate = {"median": images / timing.median, "low": images / timing.high, "high": images / timing.low}
        rows.append({"case": name, "data": _source(loaders[name].dataset), "goal": GOALS.get(name), **rate})
    return {
        "batch": BATCH,
        "batches": batches,
        "repeats": repeats,
        "seed": seed,
        "rows": rows,
        "machine": describe_machine(),
    }


def as_markdown(result: dict) -> str:
    """The result as a table."""
    machine = "; ".join(f"{key} {value}" for key, value in result["machine"].items())
    lines = [
        "# How fast batches come out of the loader",
        "",
        f"`paircaps bench data --batches {result['batches']} --repeats {result['repeats']} --seed {result['seed']}`",
        "",
        f"Batches of {result['batch']}, images a second, cases interleaved, median and quartiles of "
        f"{result['repeats']} repeats of {result['batches']} batches. {machine}.",
        "",
        "| case | images a second | quartiles | goal | data |",
        "|---|---|---|---|---|",
    ]
    for row in result["rows"]:
        goal = f"{row['goal']:,}" if row["goal"] else ""
        spread = f"{row['low']:,.0f} to {row['high']:,.0f}"
        lines.append(f"| {row['case']} | {row['median']:,.0f} | {spread} | {goal} | {row['data']} |")
    return "\n".join(lines) + "\n"


def _stored(name: str, root: Root) -> StoredDataset:
    metadata = require_metadata(name)
    if not find(metadata, "train", root):
        return noise_dataset(metadata, metadata.counts["train"])
    dataset = load_dataset(name, "train", root, download=False)
    assert isinstance(dataset, StoredDataset)
    return dataset


def _augmented(dataset: ImageDataset, seed: int, *steps: Augmentation) -> Loader:
    return Loader(dataset, BATCH, Compose(*steps), seed)


def _made(digits: StoredDataset, making: Drawing, seed: int) -> Loader:
    return Loader(SyntheticDataset(digits.info, digits, making, len(digits), fresh=True), BATCH, seed=seed)


def _source(dataset: ImageDataset) -> str:
    return dataset.info.note or "the real files"


def _run(loader: Loader, batches: int) -> Callable[[], None]:
    epoch = 0

    def run() -> None:
        nonlocal epoch
        epoch += 1
        for step, _ in enumerate(loader.epoch(epoch), 1):
            if step == batches:
                return

    return run
