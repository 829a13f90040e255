"""Run the comparison: measure costs, and train whatever has no record yet."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import product
from pathlib import Path

from paircaps._utils.words import Say
from paircaps.errors import FolderBusyError, PaircapsError
from paircaps.paper.comparison.costs import Cost, measure_costs
from paircaps.paper.comparison.design import (
    DEPTH_HEADS,
    DEPTH_TASK,
    LEARNING_RATES,
    POOL,
    RoutingComparison,
    Trial,
)
from paircaps.paper.comparison.records import Records
from paircaps.paper.comparison.trials import run_trial

Costs = dict[str, dict[tuple[str, str], Cost]]
"""Costs by task, then by head and routing."""


def compare_routings(
    comparison: RoutingComparison, folder: Path, say: Say, *, quiet: bool = True
) -> tuple[int, list[str]]:
    """Train every trial of the comparison that has no record yet, in the order of :func:`stages`.

    Several processes may do this in one folder at once: a trial that another one trains is left to it.

    Args:
        comparison: what is compared.
        folder: folder of the comparison.
        say: called with each progress line.
        quiet: whether to show no progress within a training.

    Returns:
        number of trials that have a record now, and a line for each that could not be trained.
    """
    folder.mkdir(parents=True, exist_ok=True)
    records = Records(folder)
    for task in comparison.wanted_tasks:
        if task.missing:
            raise PaircapsError(task.missing)
        say(f"comparing on {task.title}")
    costs = {
        task.name: measure_costs(folder, task.name, comparison.networks(), say) for task in comparison.wanted_tasks
    }
    done: set[Trial] = set()
    busy: set[Trial] = set()
    problems: list[str] = []
    for stage in stages(comparison, records, costs):
        trials = list(stage())
        for number, trial in enumerate(trials, 1):
            where = f"[{number}/{len(trials)}] {trial.name}"
            if trial in done or trial in busy:
                continue
            try:
                if records.find(trial) is None:
                    record = run_trial(trial, folder, quiet=quiet)
                    say(f"{where}: {record.failure or f'{100 * (record.test or 0):.2f} %'}")
                done.add(trial)
            except FolderBusyError:
                say(f"{where}: another process is training it")
                busy.add(trial)
            except PaircapsError as error:
                problems.append(f"{trial.name}: {str(error).splitlines()[0]}")
                say(f"{where}: {problems[-1]}")
    return len(done), problems


Stage = Callable[[], Iterable[Trial]]
"""Trials to do next; asked when their turn comes, since later ones depend on the records of earlier ones."""


def stages(comparison: RoutingComparison, records: Records, costs: Costs) -> Iterator[Stage]:
    """Stages of the comparison, the most telling ones first.

    1. Every network with every learning rate, for the same number of steps, which chooses the rate.
    2. Further seeds.
    3. The same time for all, as many seeds.
    4. Depths.

    Args:
        comparison: what is compared.
        records: records so far.
        costs: time of a step of every network.
    """
    tasks, networks = comparison.wanted_tasks, comparison.networks()
    for task in tasks:
        yield lambda task=task: choosing_trials(task.name, networks, comparison.steps)
    for task in tasks:
        yield lambda task=task: equal_steps(task.name, networks, comparison, records)
    for task in tasks:
        yield lambda task=task: equal_time(task.name, networks, comparison, records, costs[task.name])
    yield lambda: depth_trials(comparison)


def choosing_trials(task: str, networks: Sequence[tuple[str, str]], steps: int) -> Iterator[Trial]:
    """Trials of seed 0 with every learning rate."""
    for (head, routing), lr in product(networks, LEARNING_RATES):
        yield Trial(task, head, routing, steps, lr, 0)


def chosen_rate(task: str, head: str, routing: str, steps: int, records: Records) -> float | None:
    """The learning rate with the best accuracy on held-out images; None before all rates were tried, or if all failed.

    Args:
        task: name of the task.
        head: name of the head.
        routing: name of the routing.
        steps: steps of the trials.
        records: records so far.
    """
    tried = [records.find(trial) for trial in choosing_trials(task, [(head, routing)], steps)]
    if any(record is None for record in tried):
        return None
    good = [record for record in tried if record is not None and record.validation is not None]
    return max(good, key=lambda record: record.validation or 0.0).trial.lr if good else None


def equal_steps(
    task: str, networks: Sequence[tuple[str, str]], comparison: RoutingComparison, records: Records
) -> Iterator[Trial]:
    """Trials of all seeds with the chosen rates and as many steps each."""
    for seed, (head, routing) in product(range(comparison.seeds), networks):
        lr = chosen_rate(task, head, routing, comparison.steps, records)
        if lr is not None:
            yield Trial(task, head, routing, comparison.steps, lr, seed)


def equal_time(
    task: str,
    networks: Sequence[tuple[str, str]],
    comparison: RoutingComparison,
    records: Records,
    costs: dict[tuple[str, str], Cost],
) -> Iterator[Trial]:
    """Trials of all seeds with the chosen rates and as many steps as take equal time: :func:`equal_time_steps`."""
    for seed, (head, routing) in product(range(comparison.seeds), networks):
        lr = chosen_rate(task, head, routing, comparison.steps, records)
        if lr is not None:
            yield Trial(task, head, routing, equal_time_steps(comparison.steps, (head, routing), costs), lr, seed)


def equal_time_steps(steps: int, network: tuple[str, str], costs: dict[tuple[str, str], Cost]) -> int:
    """Steps that a network takes while the pooling network takes ``steps``.

    Both were timed in turn, so that a busy machine slowed them alike.

    Args:
        steps: steps of the pooling network.
        network: head and routing.
        costs: measured costs, those of the pooling network among them.
    """
    return max(1, round(steps * costs[POOL, POOL].step / costs[network].step))


def depth_trials(comparison: RoutingComparison) -> Iterator[Trial]:
    """Trials of networks of several capsule layers with every learning rate."""
    routings = [name for name in comparison.wanted_routings if name != POOL]
    for head, routing, lr in product(DEPTH_HEADS, routings, LEARNING_RATES):
        yield Trial(DEPTH_TASK, head, routing, comparison.steps, lr, 0)
