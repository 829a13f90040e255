"""``--hours``: length of the trainings of each study, so that all together take a given time.

The lengths are written into a file, so that the same command continues with them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from paircaps._utils.extras import extra_imports
from paircaps._utils.files import write_whole
from paircaps._utils.words import Say, counted
from paircaps.errors import RecipeError
from paircaps.paper.experiments import Experiment
from paircaps.paper.plan import RUNS, Choice, PlannedRun, plan_runs
from paircaps.paper.run_status import begun_recipe
from paircaps.paper.time_estimate import TimeEstimate, measure_training_time
from paircaps.paper.training_length import Budget, total_steps

with extra_imports("reproducing the paper"):
    from filelock import FileLock

PLAN = "lengths.json"
"""Name of the file with the planned lengths, beside the folders of the trainings."""

Lengths = dict[tuple[str, str], Budget]
"""Lengths of trainings by experiment and dataset."""


def lengths_within(experiments: Sequence[Experiment], choice: Choice, out: Path, hours: float, say: Say) -> Lengths:
    """Lengths with which all trainings together take so many hours.

    A study that has begun keeps its length, and so does one that the same command has planned before; all others get
    the same share of their full length.

    Args:
        experiments: experiments to reproduce.
        choice: what the user asked for.
        out: folder of all results.
        hours: time for all trainings together.
        say: called with each progress line.
    """
    runs = plan_runs(experiments, choice, out)
    lengths = _begun(runs, say)
    (out / RUNS).mkdir(parents=True, exist_ok=True)
    with FileLock(out / RUNS / f".{PLAN}.lock"):  # of two commands started together, the second takes the first's plan
        options = _options_of(experiments, choice, hours)
        plans = _read(out / RUNS / PLAN)
        planned = next((steps for other, steps in plans if other == options), {})
        left = [run for run in runs if _key(run) not in lengths]
        if any("/".join(_key(run)) not in planned for run in left):
            share = _share(left, hours, say)
            planned = {"/".join(_key(run)): max(1, round(share * total_steps(run.recipe))) for run in left}
            _write(out / RUNS / PLAN, [*(plan for plan in plans if plan[0] != options), (options, planned)])
    return lengths | {_key(run): Budget(steps=planned["/".join(_key(run))]) for run in left}


def _key(run: PlannedRun) -> tuple[str, str]:
    """Experiment and dataset of a training."""
    return run.experiment.name, run.study_data.dataset


def _begun(runs: Sequence[PlannedRun], say: Say) -> Lengths:
    """Lengths of the studies of which a training has begun."""
    lengths: Lengths = {}
    for run in runs:
        begun = begun_recipe(run.folder)
        if begun is not None and _key(run) not in lengths:
            epochs, steps = begun.train.decided_epochs, begun.train.steps
            lengths[_key(run)] = Budget(epochs) if steps is None else Budget(steps=steps)
            say(f"{', '.join(_key(run))}: was begun with {counted(total_steps(begun), 'step')} and keeps them")
    return lengths


def _options_of(experiments: Sequence[Experiment], choice: Choice, hours: float) -> dict[str, Any]:
    """Options of a command that its lengths depend on."""
    return {
        "experiments": [experiment.name for experiment in experiments],
        "hours": hours,
        "seeds": choice.seeds,
        "limit": choice.limit,
        "short": choice.short,
        "data": list(choice.data),
        "only": list(choice.variants),
        "set": str(choice.changes),
    }


def _read(path: Path) -> list[tuple[dict[str, Any], dict[str, int]]]:
    """Read the plans: options of each command, and its steps by study; none if the file is damaged."""
    try:
        plans = [
            (plan["asked"], {str(key): int(value) for key, value in plan["steps"].items()})
            for plan in json.loads(path.read_text(encoding="utf-8"))
        ]
        return [(options, steps) for options, steps in plans if min(steps.values(), default=1) > 0]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return []


def _write(path: Path, plans: Sequence[tuple[dict[str, Any], dict[str, int]]]) -> None:
    write_whole(path, json.dumps([{"asked": options, "steps": steps} for options, steps in plans], indent=2).encode())


def _share(runs: Sequence[PlannedRun], hours: float, say: Say) -> float:
    """Share of their own length with which all trainings together take so many hours; a whole length at most."""
    say("measuring how fast training is on this machine ...")
    times: dict[tuple[str, str, str], TimeEstimate] = {}  # seeds of a network take the same time
    keys = [(*_key(run), run.variant.name) for run in runs]
    for key, run in zip(keys, runs, strict=True):
        if key not in times:
            times[key] = measure_training_time(run.recipe, run.step_time_name)
    growing, fixed = sum(times[key].growing for key in keys) / 3600, sum(times[key].fixed for key in keys) / 3600
    if hours <= fixed:
        raise RecipeError(
            f"--hours: the tests at the end of {counted(len(runs), 'training')} alone take about {fixed:.2g} hours"
        )
    share = min(1.0, (hours - fixed) / growing)
    whole = f"{counted(len(runs), 'training')} of full length: about {growing + fixed:.2g} hours"
    say(f"{whole}; taking {100 * share:.3g} % of it")
    return share
