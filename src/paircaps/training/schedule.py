"""The learning rate as a pure function of the step: there is nothing to save for a resume."""

from __future__ import annotations

import math

from paircaps.training.recipe import Schedule

ONE_CYCLE_START = 1 / 25
"""Share of the highest rate that one-cycle starts at."""


def rate(schedule: Schedule, step: int, steps: int, steps_per_epoch: int) -> float:
    """The share of the highest learning rate for a step.

    Args:
        schedule: its kind and numbers.
        step: from 0.
        steps: of the whole run.
        steps_per_epoch: how many make an epoch.
    """
    if schedule.name == "one-cycle":
        return _one_cycle(schedule, step, steps)
    warm_up = schedule.warm_up * steps_per_epoch
    if step < warm_up:
        return (step + 1) / (math.floor(warm_up) + 1)
    epoch = step / steps_per_epoch
    if schedule.name == "drops":
        return schedule.factor ** sum(epoch >= drop for drop in schedule.drops)
    if schedule.name == "halving":
        return schedule.factor ** math.floor(epoch / schedule.every)
    if schedule.name == "cosine":
        return _cosine(1, schedule.final, (step - warm_up) / max(1, steps - warm_up))
    return 1.0


def _one_cycle(schedule: Schedule, step: int, steps: int) -> float:
    rise = schedule.warm_up * steps
    if step < rise:
        return _cosine(ONE_CYCLE_START, 1, step / rise)
    return _cosine(1, schedule.final, (step - rise) / max(1, steps - rise))


def _cosine(start: float, end: float, way: float) -> float:
    """From start to end along half a cosine."""
    return end + (start - end) * (1 + math.cos(math.pi * way)) / 2
