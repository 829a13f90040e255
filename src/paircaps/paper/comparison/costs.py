"""What a routing costs in a network: time of a training step and of an image, and memory, all in interleaved rounds."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from paircaps._utils.files import write_whole
from paircaps._utils.machine import describe_machine
from paircaps._utils.words import Say
from paircaps.data.loader import Loader
from paircaps.errors import PaircapsError
from paircaps.losses import Objective
from paircaps.network import Network
from paircaps.paper.comparison.design import BATCH, POOL, Trial
from paircaps.paper.network_size import noise_images
from paircaps.training.assemble import network_spec

COSTS = "costs"
"""Name of the folder of measured costs, in the folder of the comparison."""

ROUNDS = 12
"""Rounds in which the networks take turns."""


@dataclass(frozen=True)
class Cost:
    """What one network costs.

    Args:
        step: milliseconds of a training step of a batch.
        image: milliseconds of an image at inference, in a batch of the same size.
        memory: bytes at the peak of a training step beyond weights and images; None where this cannot be measured.
    """

    step: float
    image: float
    memory: int | None


def read_costs(folder: Path, task: str) -> dict[tuple[str, str], Cost]:
    """Costs on the images of a task that were measured already, by head and routing.

    Args:
        folder: folder of the comparison.
        task: name of the task.
    """
    path = _path(folder, task)
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
        return {(row.pop("head"), row.pop("routing")): Cost(**row) for row in rows}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise PaircapsError(f"{path}: no file of costs ({error}); remove it to measure them again") from None


def measure_costs(
    folder: Path, task: str, networks: Sequence[tuple[str, str]], say: Say
) -> dict[tuple[str, str], Cost]:
    """Measure the costs of networks that have none yet, and keep them.

    All networks take turns in every round. Those that come later, such as a routing that is new, take turns with the
    pooling network, and their times are multiplied by what it took before and takes now.

    Args:
        folder: folder of the comparison.
        task: name of the task.
        networks: head and routing of each.
        say: called with a progress line.
    """
    known = read_costs(folder, task)
    reference = (POOL, POOL)
    missing = [network for network in networks if network not in known and network != reference]
    if not missing and (reference in known or reference not in networks):
        return known
    say(f"{task}: timing {len(missing) + 1} networks in turn ...")
    found = _measured(task, [reference, *missing])
    scale = known[reference].step / found[reference].step if reference in known else 1.0
    scaled = {key: Cost(scale * cost.step, scale * cost.image, cost.memory) for key, cost in found.items()}
    known = {**scaled, **known}
    rows = [{"head": head, "routing": routing, **asdict(cost)} for (head, routing), cost in sorted(known.items())]
    path = _path(folder, task)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, (json.dumps({"rows": rows, "machine": describe_machine()}, indent=2) + "\n").encode())
    return known


def _path(folder: Path, task: str) -> Path:
    return folder / COSTS / f"{task}.json"


def _measured(task: str, networks: Sequence[tuple[str, str]]) -> dict[tuple[str, str], Cost]:
    """Costs of networks, on one thread as they are trained."""
    from paircaps.bench.peak_memory import can_measure, measure_peaks, model_job
    from paircaps.bench.timing import interleaved

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        trials = {network: Trial(task, *network, steps=1, lr=1e-3, seed=0) for network in networks}
        built = {network: _passes(trial) for network, trial in trials.items()}
        steps = interleaved({str(key): step for key, (step, _, _, _) in built.items()}, ROUNDS)
        images = interleaved({str(key): infer for key, (_, infer, _, _) in built.items()}, ROUNDS)
    finally:
        torch.set_num_threads(threads)
    peaks: list[int | None] = [None] * len(networks)
    if can_measure():
        jobs = [model_job(name, arguments, BATCH, train=True) for _, _, name, arguments in built.values()]
        peaks = [peak.extra for peak in measure_peaks(jobs)]
    return {
        key: Cost(1e3 * steps[str(key)].median, 1e3 * images[str(key)].median / BATCH, peak)
        for key, peak in zip(networks, peaks, strict=True)
    }


def _passes(trial: Trial) -> tuple[Callable[[], object], Callable[[], object], str, dict[str, Any]]:
    """A training step and an inference of a batch of noise; name and arguments of the model."""
    from paircaps.bench.train_step import train_step

    recipe = trial.recipe
    torch.manual_seed(0)
    batch = Loader(noise_images(recipe, BATCH), BATCH).batch(0, 0)
    spec = network_spec(recipe, noise_images(recipe, 1))
    step = train_step(recipe, Objective(Network(spec), recipe.loss), batch)
    network = Network(spec).eval()

    @torch.no_grad()
    def infer() -> None:
        network(batch.images)

    return step, infer, spec.model, dict(spec.arguments)
