"""Speed of the data loader, in images a second.

Each case is a number of batches of 128 images made by one process with PyTorch's usual threads; toys are drawn whole,
two of them in each repeat. Where CIFAR10 or MNIST is not on this machine, noise of the same shape takes its place,
which costs the loader the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from paircaps._utils.machine import describe_machine, machine_line
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
from paircaps.data.files.locate import Root, find, user_cache
from paircaps.data.registry import require_metadata
from paircaps.data.sources.toys import TOYS_OF_A_SPLIT, ToyDataset
from paircaps.data.synthetic.dataset import (
    AffineDigits,
    DrawingRule,
    OverlappingDigits,
    SyntheticDataset,
    TranslatedDigits,
)
from paircaps.data.synthetic.noise import noise_dataset
from paircaps.data.synthetic.poses import PoseRange
from paircaps.data.synthetic.toy_views import SIZE

BATCH = 128
GOALS = {"cifar10, crop and flip": 20_000, "multi-mnist pairs": 10_000, "toys, drawn": 1_000}
"""Images a second that the loader should reach on two cores, by case."""


class _Case(NamedTuple):
    """Function that makes images, their number, and where they come from."""

    run: Callable[[], None]
    images: int
    dataset: ImageDataset


def bench_data(root: Root = None, batches: int = 100, repeats: int = 9, seed: int = 0) -> dict[str, object]:
    """Measure images a second of every case.

    Args:
        root: folder of datasets to look in first.
        batches: batches in a repeat.
        repeats: timed repeats of every case.
        seed: of the data order and augmentation.
    """
    cifar, mnist = _stored("cifar10", root), _stored("mnist", root)
    loaders = {
        "cifar10, as it is": Loader(cifar, BATCH, seed=seed),
        "cifar10, crop and flip": _augmented(cifar, seed, RandomCrop(4), Flip()),
        "cifar10, crop, flip, standardise": _augmented(cifar, seed, RandomCrop(4), Flip(), Standardise()),
        "translated-mnist": _synthetic(mnist, TranslatedDigits((40, 40)), seed),
        "affine-mnist": _synthetic(mnist, AffineDigits((40, 40), PoseRange()), seed),
        "multi-mnist pairs": _synthetic(mnist, OverlappingDigits((36, 36)), seed),
    }
    cases = {name: _Case(_run(loader, batches), batches * BATCH, loader.dataset) for name, loader in loaders.items()}
    cases["toys, drawn"] = _toys()
    timings = interleaved({name: case.run for name, case in cases.items()}, repeats)
    rows = []
    for name, timing in timings.items():
        images = cases[name].images
        rate = {"median": images / timing.median, "low": images / timing.high, "high": images / timing.low}
        rows.append({"case": name, "data": _source(cases[name].dataset), "goal": GOALS.get(name), **rate})
    return {
        "batch": BATCH,
        "batches": batches,
        "repeats": repeats,
        "seed": seed,
        "rows": rows,
        "machine": describe_machine(),
    }


def as_markdown(result: dict) -> str:
    """Format the result as a table."""
    lines = [
        "# How fast batches come out of the loader",
        "",
        f"`paircaps bench data --batches {result['batches']} --repeats {result['repeats']} --seed {result['seed']}`",
        "",
        f"Batches of {result['batch']}, images a second, cases interleaved, median and quartiles of "
        f"{result['repeats']} repeats of {result['batches']} batches. {machine_line(result['machine'])}.",
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
    """Training split of a published dataset, or noise of its shape where it is not on this machine."""
    metadata = require_metadata(name)
    if not find(metadata, "train", root):
        return noise_dataset(metadata, metadata.counts["train"])
    dataset = load_dataset(name, "train", root, download=False)
    assert isinstance(dataset, StoredDataset)
    return dataset


def _augmented(dataset: ImageDataset, seed: int, *steps: Augmentation) -> Loader:
    """Loader with several augmentations, one after the other."""
    return Loader(dataset, BATCH, Compose(*steps), seed)


def _synthetic(digits: StoredDataset, drawing: DrawingRule, seed: int) -> Loader:
    """Loader of a synthetic dataset that draws new images in every epoch."""
    return Loader(SyntheticDataset(digits.info, digits, drawing, len(digits), fresh=True), BATCH, seed=seed)


def _toys() -> _Case:
    """Drawing of two whole toys, an animal and a truck."""
    dataset = ToyDataset("train", user_cache(), "images", (SIZE, SIZE))
    toys = (0, 15)

    def run() -> None:
        for _ in dataset.drawn(toys):
            pass

    return _Case(run, len(toys) * len(dataset) // TOYS_OF_A_SPLIT, dataset)


def _source(dataset: ImageDataset) -> str:
    """Origin of the images: a note of the dataset, or its files."""
    return dataset.info.note or "the real files"


def _run(loader: Loader, batches: int) -> Callable[[], None]:
    """Return a function that takes some batches of another epoch in each run."""
    epoch = 0

    def run() -> None:
        nonlocal epoch
        epoch += 1
        for step, _ in enumerate(loader.epoch(epoch), 1):
            if step == batches:
                return

    return run
