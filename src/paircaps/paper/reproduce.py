"""Make the paper's tables and figures again, by ordinary trainings that go on where they were stopped."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from paircaps._utils.files import write_whole
from paircaps._utils.words import counted
from paircaps.errors import FolderBusyError, PaircapsError, RecipeError, TrainingError
from paircaps.paper.experiments import Experiment
from paircaps.paper.inference_times import measure_times
from paircaps.paper.plan import (
    RUNS,
    Choice,
    PlannedRun,
    StudyData,
    all_sources,
    plan_runs,
    study_folder,
    wanted_sources,
    wanted_variants,
)
from paircaps.paper.records import NOT_RUN, seed_folders
from paircaps.paper.run_status import begun_recipe, draws_pictures, examine, set_aside
from paircaps.paper.step_times import keep_training_speed
from paircaps.paper.time_budget import lengths_within
from paircaps.paper.training_length import total_steps
from paircaps.training.loop import train
from paircaps.training.recipe_io import differences
from paircaps.training.run_folder import RunFolder, locked_folder

_OWN_OPTIONS = (
    *("model.name", "model.routing", "model.routing_options", "loss.name"),
    *("data.name", "data.test", "data.limit", "train.seed", "train.epochs", "train.steps"),
)
"""Keys that cannot be set for all trainings alike."""

Say = Callable[[str], None]


@dataclass(frozen=True)
class ReproduceSummary:
    """How it went.

    Args:
        done: trainings that are finished, or left to another process, and tables of times.
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
) -> ReproduceSummary:
    """Train what is not there yet.

    Args:
        experiments: to make again.
        out: the folder of all results.
        choice: how much of them.
        hours: that all trainings of the command may take together, by a guess; a run that has begun keeps its length.
        say: told what happens, a line at a time.
        quiet: show no progress within a training.
    """
    experiments = _with_networks(experiments, choice, say)
    plan_runs(experiments, choice, out)  # settings that are wrong are refused before anything is written
    if experiments:
        (out / RUNS).mkdir(parents=True, exist_ok=True)  # where that fails, nothing else can be done
    missing = _note_missing(experiments, choice, out, say)
    if hours is not None:
        choice = replace(choice, lengths=lengths_within(experiments, choice, out, hours, say))
    runs = plan_runs(experiments, choice, out)
    _require_same(runs)
    failed, done = [], 0
    for experiment in experiments:
        if experiment.kind == "times":
            try:
                measure_times(experiment, choice, out, say)
                done += 1
            except PaircapsError as error:
                failed.append(f"{experiment.name}: {error}")
                say(failed[-1])
    for number, run in enumerate(runs, 1):
        where = f"[{number}/{len(runs)}] {name_of(run)}"
        try:
            _train(run, where, say, quiet)
            done += 1
        except FolderBusyError:
            say(f"{where}: another process is training it, so it is skipped here")
            done += 1
        except PaircapsError as error:
            failed.append(f"{name_of(run)}: {error}")
            say(f"{where}: {error}")
            with suppress(OSError):  # of a full disk for instance; the others may do better
                place = run.folder.relative_to(out).as_posix()
                _write_reason(run.folder, str(error).splitlines()[0].replace(f"{run.folder}", place))
    return ReproduceSummary(done, tuple(missing), tuple(failed))


def _with_networks(experiments: Sequence[Experiment], choice: Choice, say: Say) -> list[Experiment]:
    """Those of which a network was asked for."""
    wanted = []
    for experiment in experiments:
        if wanted_variants(experiment, choice):
            wanted.append(experiment)
        else:
            names = ", ".join(variant.name for variant in experiment.variants)
            say(f"{experiment.name}: is left out, for it has only {names}")
    return wanted


def _require_same(runs: Sequence[PlannedRun]) -> None:
    """Refuse to mix: trainings of a network that are there, of any seed, must have been begun with these settings."""
    for run in runs:
        for folder in seed_folders(run.folder.parent):
            recipe = begun_recipe(folder)
            found = [] if recipe is None else differences(recipe, run.recipe)
            if folder != run.folder:
                found = [line for line in found if not line.startswith("train.seed:")]
            if found:
                raise TrainingError(
                    f"{folder}: was begun with other settings. Take those, or another --out. It differs in"
                    "\n  " + "\n  ".join(found)
                )


def name_of(run: PlannedRun) -> str:
    """A training in words."""
    return f"{run.experiment.name}, {run.source.data}, {run.variant.title}, seed {run.seed}"


def _train(run: PlannedRun, where: str, say: Say, quiet: bool) -> None:
    with locked_folder(run.folder) as folder:
        _require_same([run])  # another process may have begun it since
        record, problem = examine(folder, with_weights=draws_pictures(run))
        if problem:
            say(f"{where}: {problem}, so it is trained again; what is left is in {set_aside(folder).name}")
    if record is not None:
        (run.folder / NOT_RUN).unlink(missing_ok=True)
        say(f"{where}: was finished already, {100 * record.measure('test'):.2f} % in the test")
        return
    say(f"{where}: {counted(total_steps(run.recipe), 'step')}")
    result = train(run.recipe, run.folder, quiet=quiet)
    if run.step_time_name is not None:
        keep_training_speed(run.step_time_name, RunFolder(run.folder).timing)
    (run.folder / NOT_RUN).unlink(missing_ok=True)
    say(f"{where}: {100 * result.trained['test_accuracy']:.2f} % in the test")


def _note_missing(experiments: Sequence[Experiment], choice: Choice, out: Path, say: Say) -> list[str]:
    """Say what cannot be run, here and in the folder of results."""
    notes = []
    for experiment in experiments:
        for source in wanted_sources(experiment, choice):
            folder = study_folder(out, experiment, source.data)
            if source.missing and experiment.kind != "times":
                _write_reason(folder, source.missing)
                notes.append(f"{experiment.name}: {source.missing}")
                say(notes[-1])
            else:
                (folder / NOT_RUN).unlink(missing_ok=True)
                if source.is_stand_in:
                    say(f"{experiment.name}: {source.data} stands in for {source.study.data}")
    return notes


def _write_reason(folder: Path, reason: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / NOT_RUN, f"{reason}\n".encode())


def require_known(experiments: Sequence[Experiment], choice: Choice) -> None:
    """Refuse a choice that leaves nothing to do.

    Raises:
        RecipeError: with what there is to choose from.
    """
    data = {source.data for experiment in experiments for source in _every_source(experiment)}
    networks = {variant.name for experiment in experiments for variant in experiment.variants}
    for what, wanted, known in (("data", choice.data, data), ("only", choice.variants, networks)):
        for name in wanted:
            if name not in known:
                raise RecipeError(f"--{what}: no {name!r} in these experiments; there is {', '.join(sorted(known))}")
    for section, keys in choice.changes.items():
        for key in keys:
            if f"{section}.{key}" == "data.folder":
                raise RecipeError("--set: data.folder is not for this: folders with data are named in $PAIRCAPS_DATA")
            if f"{section}.{key}" in _OWN_OPTIONS:
                raise RecipeError(f"--set: {section}.{key} is what experiments differ in, or has an option of its own")


def _every_source(experiment: Experiment) -> list[StudyData]:
    return [source for study in experiment.studies for source in all_sources(study)]
