"""A training that takes seconds, with everything switched on: shuffling, augmentation, average, decoder, validation."""

from pathlib import Path

OPTIONS = {
    "train.epochs": 2,
    "train.batch_size": 32,
    "train.log_every": 3,
    "train.ema": 0.9,
    "train.precision": "fp32",
    "data.limit": 300,
    "augment.crop_size": 12,
    "augment.flip": "true",
    "augment.contrast": "[0.5,1.5]",
    "loss.decoder": "dense",
    "model.options.widths": "[16,16,8]",
    "model.options.primary_groups": 2,
    "evaluate.settle": 2,
    "run.checkpoint_every": 4,
    "run.threads": 1,
}
FAST_OPTIONS = {key: value for key, value in OPTIONS.items() if not key.startswith("model.")} | {
    "model.name": "fast-caps",
    "model.options.widths": "[8,8,8]",
    "model.options.kinds": 2,
    "augment.crop_padding": 1,
    "augment.crop_border": "reflect",
    "augment.alternate": "true",
    "augment.cutout": 3,
    "loss.label_smoothing": 0.1,
    "optimiser.name": "muon",
    "optimiser.lr": 0.05,
    "optimiser.momentum": 0.6,
    "optimiser.nesterov": "true",
    "optimiser.muon_on": "matrices",
    "optimiser.muon_iterations": 3,
    "optimiser.rescale": "true",
    "optimiser.rest": "adamw",
    "optimiser.rest_lr": 0.003,
    "optimiser.weight_decay": 0.001,
    "optimiser.rates": '{"*.bias": 2.0, "decoder.*": 0.5}',
    "schedule.name": "trapezoid",
    "schedule.warm_up": 0.5,
    "train.norm_momentum": 0.3,
    "train.precision": "bf16",
    "evaluate.views": "flip-shift",
}
"""A training of a fast network, with a whitening stem, Muon and every key for short trainings switched on."""
WORDS = ["train", "glyphs", *(word for key, value in OPTIONS.items() for word in (f"--{key}", str(value)))]
STEPS = 16  # 270 images, 8 full batches, twice


def command(out, *more):
    return (*WORDS, "--out", str(out), *map(str, more))


def fast_command(out, *more):
    words = (word for key, value in FAST_OPTIONS.items() for word in (f"--{key}", str(value)))
    return ("train", "glyphs", *words, "--out", str(out), *map(str, more))


def results(folder):
    """Files of a run that must be equal to the bit: weights, optimiser, counters, metrics."""
    folder = Path(folder)
    names = ["metrics.jsonl", "model.safetensors"]
    newest = sorted((folder / "checkpoints").glob("step-*"))[-1]
    names += [str((newest / name).relative_to(folder)) for name in ("state.safetensors", "state.json")]
    return {name: (folder / name).read_bytes() for name in names}


def checkpoints(folder):
    return sorted(path.name for path in (Path(folder) / "checkpoints").glob("*"))
