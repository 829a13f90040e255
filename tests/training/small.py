"""A training that takes seconds, with everything switched on: shuffling, augmentation, average, decoder, validation."""

from pathlib import Path

OPTIONS = {
    "train.epochs": 2,
    "train.batch_size": 32,
    "train.log_every": 3,
    "train.ema": 0.9,
    "data.limit": 300,
    "augment.crop_size": 12,
    "augment.flip": "true",
    "augment.contrast": "[0.5,1.5]",
    "loss.decoder": "dense",
    "model.options.widths": "[8,8,8]",
    "model.options.primary_groups": 2,
    "evaluate.settle": 2,
    "run.checkpoint_every": 4,
    "run.threads": 1,
}
WORDS = ["train", "glyphs", *(word for key, value in OPTIONS.items() for word in (f"--{key}", str(value)))]
STEPS = 16  # 270 images, 8 full batches, twice


def command(out, *more):
    return (*WORDS, "--out", str(out), *map(str, more))


def results(folder):
    """Files of a run that must be equal to the bit: weights, optimiser, counters, metrics."""
    folder = Path(folder)
    names = ["metrics.jsonl", "model.safetensors"]
    newest = sorted((folder / "checkpoints").glob("step-*"))[-1]
    names += [str((newest / name).relative_to(folder)) for name in ("state.safetensors", "state.json")]
    return {name: (folder / name).read_bytes() for name in names}


def checkpoints(folder):
    return sorted(path.name for path in (Path(folder) / "checkpoints").glob("*"))
