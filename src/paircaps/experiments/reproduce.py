"""Make the paper's tables and figures again, by ordinary trainings that go on where they were stopped."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from paircaps._files import write_whole
from paircaps.errors import FolderBusyError, PaircapsError, TrainingError
from paircaps.experiments.budget import Budget, epochs_of, steps_per_epoch, total_steps
from paircaps.experiments.pace import seconds_of
from paircaps.experiments.paper import Experiment
from paircaps.experiments.plan import (
    Choice,
    Run,
    Source,
    all_sources,
    paper_recipe,
    plan_runs,
    run_recipe,
    study_folder,
    wanted_sources,
    wanted_variants,
)
from paircaps.experiments.records import NOT_RUN, read_record
from paircaps.experiments.times import time_inference
from paircaps.machine import describe_machine
from paircaps.training.folder import RunFolder, clear
from paircaps.training.loop import train
from paircaps.training.recipe_text import differences

Say = Callable[[str], None]
_TIMING_SECONDS = 10.0
_BRIEF_SECONDS = 1.0


@dataclass(frozen=True)
class Outcome:
    """How it went.

    Args:
        done: trainings that are finished now.
        missing: what could not be run for lack of data, a line each.
        failed: what went wrong, a line each.
    """

    done: int
    missing: tuple[str, ...]
    failed: tuple[str, ...]


def reproduce(
    experiments: Sequence[Experiment],
    out: Path,
    choice: Choice,
    *,
    hours: float | None = None,
    say: Say,
    quiet: bool = False,
) -> Outcome:
    """Train what is not there yet.

    Args:
        experiments: to make again.
        out: the folder of all results.
        choice: how much of them.
        hours: that all trainings of the command may take together, by a guess; a run that has begun keeps its length.
        say: told what happens, a line at a time.
        quiet: show no progress within a training.
    """
    missing = _note_missing(experiments, choice, out, say)
    if hours is not None:
        choice = replace(choice, budget=Budget(share=_share(experiments, choice, out, hours, say)))
    runs = plan_runs(experiments, choice, out)
    _require_same(runs)
    failed, done = [], 0
    for experiment in experiments:
        if experiment.kind == "times":
            _time(experiment, choice, out, say)
    for number, run in enumerate(runs, 1):
        where = f"[{number}/{len(runs)}] {name_of(run)}"
        try:
            _train(run, where, say, quiet)
            done += 1
        except FolderBusyError:
            say(f"{where}: another process is training it, and is left to it")
        except TrainingError as error:
            failed.append(f"{name_of(run)}: {error}")
            _write_reason(run.folder, str(error).splitlines()[0])
            say(f"{where}: {error}")
    return Outcome(done, tuple(missing), tuple(failed))


def _require_same(runs: Sequence[Run]) -> None:
    """Refuse to mix: a training that is there must have been begun with these settings."""
    for run in runs:
        folder = RunFolder(run.folder)
        found = differences(folder.read_recipe(), run.recipe) if folder.config.exists() else []
        if found:
            raise TrainingError(
                f"{run.folder}: was begun with other settings. Take those, or another --out. It differs in"
                "\n  " + "\n  ".join(found)
            )


def name_of(run: Run) -> str:
    """A training in words."""
    return f"{run.experiment.name}, {run.source.data}, {run.variant.title}, seed {run.seed}"


def _train(run: Run, where: str, say: Say, quiet: bool) -> None:
    folder = RunFolder(run.folder)
    record = read_record(run.folder) if folder.metrics.exists() else None
    if record is not None:
        say(f"{where}: was finished already, {100 * record.measure('test'):.2f} %")
        return
    _require_consistent(folder, where, say)
    (run.folder / NOT_RUN).unlink(missing_ok=True)
    say(f"{where}: {total_steps(run.recipe):,} steps")
    result = train(run.recipe, run.folder, quiet=quiet)
    say(f"{where}: {100 * result.trained['test_accuracy']:.2f} %")


def _require_consistent(folder: RunFolder, where: str, say: Say) -> None:
    """Remove what is left of a run of which a file is gone: it is trained again, to the same result."""
    there = [path.name for path in folder.everything() if path.exists()]
    finished = folder.model.exists()
    lost = [path.name for path in (folder.config, folder.metrics) if not path.exists()]
    if there and lost and (finished or not folder.config.exists() or folder.checkpoints.exists()):
        say(f"{where}: {' and '.join(lost)} is gone, so it is trained again")
        clear(folder)


def _time(experiment: Experiment, choice: Choice, out: Path, say: Say) -> None:
    """Rows of times, as of a training: a finished file is not measured again."""
    for source in wanted_sources(experiment, choice):
        file = RunFolder(study_folder(out, experiment, source.data)).metrics
        if file.exists():
            say(f"{experiment.name}, {source.data}: was measured already")
            continue
        say(f"{experiment.name}, {source.data}: measuring")
        models = {
            variant.name: run_recipe(experiment, source, variant, 0, choice).model
            for variant in wanted_variants(experiment, choice)
        }
        brief = choice.budget != Budget() or choice.limit is not None
        rows = time_inference(models, source.data, _BRIEF_SECONDS if brief else _TIMING_SECONDS)
        lines = [{"kind": "machine", **describe_machine()}, *({"kind": "time", **row} for row in rows)]
        file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(file, "".join(json.dumps(line) + "\n" for line in lines).encode())


def _note_missing(experiments: Sequence[Experiment], choice: Choice, out: Path, say: Say) -> list[str]:
    """Say what cannot be run, here and in the folder of results."""
    notes = []
    for experiment in experiments:
        for source in wanted_sources(experiment, choice):
            folder = study_folder(out, experiment, source.data)
            if source.missing and experiment.kind != "times":
                _write_reason(folder, f"{source.missing}")
                notes.append(f"{experiment.name}: {source.missing}")
                say(notes[-1])
            else:
                (folder / NOT_RUN).unlink(missing_ok=True)
                if source.is_stand_in:
                    say(f"{experiment.name}: {source.data} stands in for {source.study.data}, which is not here")
    return notes


def _write_reason(folder: Path, reason: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / NOT_RUN, f"{reason}\n".encode())


def _share(experiments: Sequence[Experiment], choice: Choice, out: Path, hours: float, say: Say) -> float:
    """Of the paper's length, that fits into so many hours; that of runs which have begun, if there are any."""
    runs = plan_runs(experiments, choice, out)
    if not runs:
        return 1.0
    for run in runs:
        begun = RunFolder(run.folder)
        if begun.config.exists():
            recipe = begun.read_recipe()
            whole = epochs_of(paper_recipe(run.source.study)) * steps_per_epoch(recipe)
            say(f"{name_of(run)} was begun with {total_steps(recipe):,} steps: the others take the same share")
            return total_steps(recipe) / whole
    say(f"measuring how fast {len(experiments)} experiments are on this machine")
    whole = guess_seconds(runs)
    share = min(1.0, hours * 3600 / whole)
    say(f"all {len(runs)} trainings at the paper's length: about {whole / 3600:,.1f} hours; taking {100 * share:.3g} %")
    return share


def guess_seconds(runs: Sequence[Run]) -> float:
    """Of all trainings together, on this machine; each network of a study is timed once."""
    guesses: dict[tuple[str, str, str], float] = {}
    for run in runs:
        key = (run.experiment.name, run.source.data, run.variant.name)
        if key not in guesses:
            guesses[key] = seconds_of(run.recipe)
    return sum(guesses[run.experiment.name, run.source.data, run.variant.name] for run in runs)


def require_choice(experiments: Sequence[Experiment], choice: Choice) -> None:
    """Refuse a choice that leaves nothing to do.

    Raises:
        PaircapsError: with what there is to choose from.
    """
    data = {source.data for experiment in experiments for source in _every_source(experiment)}
    networks = {variant.name for experiment in experiments for variant in experiment.variants}
    for what, wanted, known in (("data", choice.data, data), ("only", choice.variants, networks)):
        for name in wanted:
            if name not in known:
                raise PaircapsError(f"--{what}: no {name!r} in these experiments; there is {', '.join(sorted(known))}")


def _every_source(experiment: Experiment) -> list[Source]:
    return [source for study in experiment.studies for source in all_sources(study)]
