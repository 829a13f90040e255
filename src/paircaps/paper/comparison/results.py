"""What the records of the comparison say: accuracies over seeds, costs, and differences that are clear."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from paircaps._utils.summary import Summary, summarise
from paircaps.paper.comparison.costs import Cost, read_costs
from paircaps.paper.comparison.design import DEPTH_TASK, DEPTHS, LEARNING_RATES, POOL, RoutingComparison, Trial
from paircaps.paper.comparison.records import Records, TrialRecord
from paircaps.paper.comparison.run import chosen_rate, equal_steps, equal_time
from paircaps.paper.report.significance import difference

LEARNT = 0.95
"""Accuracy on glyphs from which on a routing counts as learning through a depth."""

CONTROL = "mean"
"""The routing that routes nothing, which the others have to beat."""


@dataclass(frozen=True)
class Row:
    """Results of one network on one task.

    Args:
        task: name of the task.
        head: name of its head.
        routing: name of its routing, or POOL.
        parameters: trainable parameters.
        lr: chosen learning rate; None if none worked, or not all were tried yet.
        tried: number of learning rates that were tried.
        failed: number of these whose loss was not finite.
        steps: percent on test images after equally many steps, by seed.
        time: the same after equal time.
        time_steps: steps that were taken in equal time; None where nothing was trained yet.
        r2: mean of the R² of all poses, over the seeds of ``steps``; None where it was not measured.
        cost: time and memory; None where they were not measured.
    """

    task: str
    head: str
    routing: str
    parameters: int
    lr: float | None
    tried: int
    failed: int
    steps: tuple[float, ...]
    time: tuple[float, ...]
    time_steps: int | None
    r2: float | None
    cost: Cost | None

    def accuracy(self, budget: str) -> Summary | None:
        """Percent on test images over seeds, for the budget ``"steps"`` or ``"time"``; None without a seed."""
        values = self.steps if budget == "steps" else self.time
        return summarise(values) if values else None


def collect(comparison: RoutingComparison, folder: Path) -> list[Row]:
    """Results of all networks on all tasks, finished or not.

    Args:
        comparison: what is compared.
        folder: folder of the comparison.
    """
    records, networks, rows = Records(folder), comparison.networks(), []
    for task in comparison.wanted_tasks:
        costs = read_costs(folder, task.name)
        for head, routing in networks:
            one, key = [(head, routing)], (head, routing)
            first = [Trial(task.name, head, routing, comparison.steps, lr, 0) for lr in LEARNING_RATES]
            tried = _found(records, first)
            steps = _found(records, equal_steps(task.name, one, comparison, records))
            timed = key in costs and (POOL, POOL) in costs
            time = _found(records, equal_time(task.name, one, comparison, records, costs)) if timed else []
            r2 = [fmean(record.r2.values()) for record in steps if record.r2]
            rows.append(
                Row(
                    task.name,
                    head,
                    routing,
                    first[0].parameters,
                    chosen_rate(task.name, head, routing, comparison.steps, records),
                    len(tried),
                    sum(bool(record.failure) for record in tried),
                    _percent(steps),
                    _percent(time),
                    time[0].trial.steps if time else None,
                    fmean(r2) if r2 else None,
                    costs.get(key),
                )
            )
    return rows


def _found(records: Records, trials: Iterable[Trial]) -> list[TrialRecord]:
    """Records of the trials that have one."""
    return [record for trial in trials if (record := records.find(trial)) is not None]


def _percent(records: Iterable[TrialRecord]) -> tuple[float, ...]:
    return tuple(100 * record.test for record in records if record.test is not None)


def depths(comparison: RoutingComparison, folder: Path) -> dict[str, dict[int, float | None]]:
    """Accuracy on glyphs by routing and number of layers, at the rate that is best on held-out images.

    A depth that was not tried with all rates is left out; None stands for a depth at which every rate failed.

    Args:
        comparison: what is compared.
        folder: folder of the comparison.
    """
    records, found = Records(folder), {}
    for routing in comparison.wanted_routings:
        if routing == POOL:
            continue
        found[routing] = {}
        for depth in DEPTHS:
            head = f"depth-{depth}"
            tried = _found(
                records, (Trial(DEPTH_TASK, head, routing, comparison.steps, lr, 0) for lr in LEARNING_RATES)
            )
            if len(tried) == len(LEARNING_RATES):
                good = [record for record in tried if record.validation is not None]
                best = max(good, key=lambda record: record.validation or 0.0, default=None)
                found[routing][depth] = None if best is None else best.test
    return found


def learns_through(accuracies: dict[int, float | None]) -> int | None:
    """Greatest depth up to which all depths are learnt; 0 if not even one layer is, None if nothing was tried."""
    if not accuracies:
        return None
    reached = 0
    for depth in DEPTHS:
        if (accuracies.get(depth) or 0.0) < LEARNT:
            break
        reached = depth
    return reached


@dataclass(frozen=True)
class Standing:
    """How a network stands against another on one task, by Welch's test at 5 %.

    Args:
        above: names of routings that are clearly better than the control.
        below: names of those that are clearly worse.
        open: names of those that cannot be told apart from it.
    """

    above: tuple[str, ...]
    below: tuple[str, ...]
    open: tuple[str, ...]


def standing(rows: Iterable[Row], control: Row, budget: str) -> Standing | None:
    """How routings stand against a control; None until every one has two seeds at least.

    Args:
        rows: their results on the same task.
        control: the results of the control.
        budget: ``"steps"`` or ``"time"``.
    """
    reference = control.accuracy(budget)
    above, below, open_ = [], [], []
    for row in rows:
        accuracy = row.accuracy(budget)
        if row is control or accuracy is None or reference is None:
            continue
        if accuracy.deviation is None or reference.deviation is None:
            return None
        found = difference(accuracy, reference)
        (open_ if not found.is_clear else above if found.points > 0 else below).append(row.routing)
    return Standing(tuple(above), tuple(below), tuple(open_)) if above or below or open_ else None
