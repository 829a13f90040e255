"""Number of capsule layers that each routing learns through.

resnet-caps-small (1,1,1 blocks) is trained with one to six capsule layers for 90 steps of 64 digits. Shown are the mean
loss of the last ten steps and the accuracy on unseen digits, after the statistics of batch norm were computed again.
Of two learning rates the one with the lower loss counts. With MNIST, training uses the first 10,000 training digits and
testing the first 1,000 test digits; without it, seven-segment digits (:mod:`paircaps.bench.toy_task`) are used.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from paircaps._utils.machine import describe_machine, machine_line
from paircaps._utils.words import Say
from paircaps.bench.timing import silent
from paircaps.bench.toy_task import measure_accuracy, segment_digits, train
from paircaps.data import load_dataset
from paircaps.errors import RecipeError
from paircaps.layers import settle
from paircaps.models import create_model
from paircaps.votes import MatrixVotes

# cross entropy on an activation below one cannot fall under 1.46, so dynamic and EM routing get the margin loss
CASES = [("fm", "cross entropy"), ("fm", "margin"), ("dynamic", "margin"), ("em", "margin")]
ROUTINGS = tuple(dict.fromkeys(routing for routing, _ in CASES))
LEARNING_RATES = (1e-3, 3e-3)
BATCH = 64
TRAINED, TESTED = 10_000, 1000
"""Digits that are trained on, and digits that are tested."""

Digits = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class DepthSettings:
    """Settings of the benchmark.

    Args:
        steps: steps of Adam in every training.
        seeds: trainings of every case, with the seeds 0 to seeds − 1.
        hidden: capsules of each layer but the last.
        routings: names of routings, among those of CASES.
        depths: numbers of capsule layers.
        pair_start: whether each pair's vote matrix starts by its own fans, which is larger than the library's start.
        beta_u: start of EM's β_u; None for the library's.
    """

    steps: int = 90
    seeds: int = 3
    hidden: int = 32
    routings: Sequence[str] = ROUTINGS
    depths: Sequence[int] = (1, 2, 3, 6)
    pair_start: bool = False
    beta_u: float | None = None

    def __post_init__(self) -> None:
        """Refuse routings that have no case, and a β_u that is not finite."""
        unknown = [name for name in self.routings if name not in ROUTINGS]
        if unknown:
            raise RecipeError(f"no routing of this benchmark: {', '.join(unknown)}; there are {', '.join(ROUTINGS)}")
        if self.beta_u is not None and not math.isfinite(self.beta_u):
            raise RecipeError(f"beta_u must be finite, got {self.beta_u}")


def bench_depth(settings: DepthSettings | None = None, mnist: Path | None = None, say: Say = silent) -> dict[str, Any]:
    """Train every case at every depth.

    Args:
        settings: what is trained and for how long.
        mnist: folder of MNIST's idx files; None for seven-segment digits.
        say: called with each progress line.
    """
    settings = settings or DepthSettings()
    machine = describe_machine()  # before the run, during which the checkout may change
    digits, unseen = _load_digits(mnist)
    cases = [(*case, depth) for case in CASES if case[0] in settings.routings for depth in settings.depths]
    return {
        **asdict(settings),
        "mnist": mnist is not None,
        "rows": [_row(routing, loss, depth, digits, unseen, settings, say) for routing, loss, depth in cases],
        "machine": machine,
    }


def _load_digits(mnist: Path | None) -> tuple[Digits, Digits]:
    """Digits to train on and unseen ones, each (N, 1, 28, 28) in 0..1 with their classes (N,)."""
    if mnist is None:
        generator = torch.Generator().manual_seed(0)
        return segment_digits(TRAINED, generator), segment_digits(TESTED, generator)
    # load_dataset would search other folders too, but this one was named
    if not (mnist / "train-images-idx3-ubyte.gz").is_file():
        raise RecipeError(f"{mnist}: no train-images-idx3-ubyte.gz in this folder")
    return _mnist_digits(mnist, "train", TRAINED), _mnist_digits(mnist, "test", TESTED)


def _mnist_digits(folder: Path, split: str, count: int) -> Digits:
    dataset = load_dataset("mnist", split, folder, download=False)
    return dataset.images[:count].float() / 255, dataset.labels[:count]


def _row(
    routing: str, loss: str, depth: int, digits: Digits, unseen: Digits, settings: DepthSettings, say: Say
) -> dict[str, Any]:
    """Losses and accuracies of one case over all seeds, at the better learning rate."""
    say(f"{routing} with {loss} loss through {depth} capsule layers")
    runs = {
        lr: [_learn(routing, loss, depth, lr, seed, digits, unseen, settings) for seed in range(settings.seeds)]
        for lr in LEARNING_RATES
    }
    best = min(runs, key=lambda lr: sum(final for final, _ in runs[lr]))
    losses, accuracies = zip(*runs[best], strict=True)
    return {
        "routing": routing,
        "loss": loss,
        "depth": depth,
        "losses": list(losses),
        "accuracies": list(accuracies),
        "learning_rate": best,
    }


def _learn(
    routing: str,
    loss: str,
    depth: int,
    lr: float,
    seed: int,
    digits: Digits,
    unseen: Digits,
    settings: DepthSettings,
) -> tuple[float, float]:
    """Train one network: the mean loss of its last ten steps, and its accuracy on unseen digits."""
    torch.manual_seed(seed)
    hidden = (settings.hidden,) * (depth - 1)
    options = {"beta_u": settings.beta_u} if routing == "em" and settings.beta_u is not None else None
    model = create_model("resnet-caps-small", routing=routing, hidden_capsules=hidden, routing_options=options)
    if settings.pair_start:
        _start_from_pairs(model)
    losses = train(model, *digits, steps=settings.steps, loss=loss, lr=lr, batch=BATCH, seed=seed)
    settle(model, digits[0][:2000].split(128))
    return fmean(losses[-10:]), measure_accuracy(model, *unseen)


def _start_from_pairs(model: torch.nn.Module) -> None:
    """Initialise vote weights again, each pair's matrix by Glorot's rule for its own fans.

    These weights are far larger than those of the library's initialisation.
    """
    for module in model.modules():
        if isinstance(module, MatrixVotes):
            fan_in, fan_out = module.weight.shape[-2:]
            torch.nn.init.normal_(module.weight, std=(2 / (fan_in + fan_out)) ** 0.5)


def as_markdown(result: dict[str, Any]) -> str:
    """Format the result as a table."""
    data = "MNIST digits" if result["mnist"] else "seven-segment digits"
    lines = [
        "# Depth of capsule layers",
        "",
        f"`{_command(result)}`",
        "",
        f"{result['steps']} steps of {BATCH} {data}, {result['hidden']} capsules in each hidden layer, mean (range) "
        f"over {result['seeds']} seeds, Adam at the better of {' and '.join(f'{lr:g}' for lr in LEARNING_RATES)}. "
        f"{machine_line(result['machine'])}.",
        "",
        "| routing | loss | layers | loss of the last ten steps | accuracy, % | learning rate |",
        "|---|---|---|---|---|---|",
    ]
    for row in result["rows"]:
        percent = [100 * accuracy for accuracy in row["accuracies"]]
        lines.append(
            f"| {row['routing']} | {row['loss']} | {row['depth']} | {_mean_and_range(row['losses'], 3)} "
            f"| {_mean_and_range(percent, 1)} | {row['learning_rate']:g} |"
        )
    return "\n".join(lines) + "\n"


def _command(result: dict[str, Any]) -> str:
    """The command that measures the same again."""
    words = ["paircaps bench depth", *(["--mnist DIR"] if result["mnist"] else [])]
    words += [f"--{name} {result[name]}" for name in ("steps", "seeds", "hidden")]
    words += [f"--{name} {' '.join(map(str, result[name]))}" for name in ("routings", "depths")]
    words += ["--pair-start"] if result["pair_start"] else []
    words += [] if result["beta_u"] is None else [f"--beta-u {result['beta_u']:g}"]
    return " ".join(words)


def _mean_and_range(values: Sequence[float], digits: int) -> str:
    return f"{fmean(values):.{digits}f} ({min(values):.{digits}f}–{max(values):.{digits}f})"
