"""Reproduce the paper's tables and figures by ordinary trainings, which continue where they were stopped."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from paircaps._utils.files import write_whole
from paircaps._utils.words import Say, counted
from paircaps.errors import FolderBusyError, PaircapsError, RecipeError, TrainingError
from paircaps.paper.experiments import Experiment
from paircaps.paper.inference_times import measure_times
from paircaps.paper.plan import (
    RUNS,
    Choice,
    PlannedRun,
    StudyData,
    candidate_data,
    plan_runs,
    study_folder,
    wanted_data,
    wanted_variants,
)
from paircaps.paper.records import NOT_RUN, seed_folders
from paircaps.paper.run_status import begun_recipe, draws_pictures, move_aside, read_status
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
"""Keys that ``--set`` cannot change, because experiments differ in them or have an option for them."""


@dataclass(frozen=True)
class ReproduceSummary:
    """Result of a command ``paircaps reproduce``.

    Args:
        done: number of trainings that are finished or left to another process, and of tables of times.
        missing: experiments whose data is missing, one line each.
        failed: trainings and tables that failed, one line each.
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
    """Run all trainings and measurements of experiments that are not finished yet.

    Args:
        experiments: experiments to reproduce.
        out: folder of all results.
        choice: what the user asked for.
        hours: estimated time for all trainings together; trainings that have begun keep their length.
        say: called with each progress line.
        quiet: show no progress within a training.
    """
    # Refuse what is wrong, and say what is missing, before anything is trained.
    experiments = _with_wanted_networks(experiments, choice, say)
    plan_runs(experiments, choice, out)  # settings that are wrong are refused before anything is written
    if experiments:
        (out / RUNS).mkdir(parents=True, exist_ok=True)  # where that fails, nothing else can be done
    missing = _report_missing_data(experiments, choice, out, say)
    if hours is not None:
        choice = replace(choice, lengths=lengths_within(experiments, choice, out, hours, say))
    runs = plan_runs(experiments, choice, out)
    _require_same_settings(runs)
    # Measure tables of times.
    failed, done = [], 0
    for experiment in experiments:
        if experiment.kind == "times":
            try:
                measure_times(experiment, choice, out, say)
                done += 1
            except PaircapsError as error:
                failed.append(f"{experiment.name}: {error}")
                say(failed[-1])
    # Train; one failure does not stop the others.
    for number, run in enumerate(runs, 1):
        where = f"[{number}/{len(runs)}] {run_title(run)}"
        try:
            _train(run, where, say, quiet)
            done += 1
        except FolderBusyError:
            say(f"{where}: another process is training it, so it is skipped here")
            done += 1
        except PaircapsError as error:
            failed.append(f"{run_title(run)}: {error}")
            say(f"{where}: {error}")
            with suppress(OSError):  # of a full disk for instance; the others may do better
                place = run.folder.relative_to(out).as_posix()
                _write_reason(run.folder, str(error).splitlines()[0].replace(f"{run.folder}", place))
    return ReproduceSummary(done, tuple(missing), tuple(failed))


def _with_wanted_networks(experiments: Sequence[Experiment], choice: Choice, say: Say) -> list[Experiment]:
    """Experiments that have at least one network that was asked for."""
    wanted = []
    for experiment in experiments:
        if wanted_variants(experiment, choice):
            wanted.append(experiment)
        else:
            names = ", ".join(variant.name for variant in experiment.variants)
            say(f"{experiment.name}: is left out, for it has only {names}")
    return wanted


def _require_same_settings(runs: Sequence[PlannedRun]) -> None:
    """Raise a TrainingError if a training of the same network, of any seed, was begun with other settings."""
    for run in runs:
        for folder in seed_folders(run.folder.parent):
            recipe = begun_recipe(folder)
            found = [] if recipe is None else differences(recipe, run.recipe)
            if folder != run.folder:
                found = [line for line in found if not line.startswith("train.seed:")]
            if found:
                raise TrainingError(
                    f"{folder}: was begun with other settings. Take those, or another --out. It differs in",
                    *(f"  {line}" for line in found),
                )


def run_title(run: PlannedRun) -> str:
    """Title of a training, for progress lines."""
    return f"{run.experiment.name}, {run.study_data.dataset}, {run.variant.title}, seed {run.seed}"


def _train(run: PlannedRun, where: str, say: Say, quiet: bool) -> None:
    """Train a run, or continue it; nothing is done if it is finished.

    Args:
        run: training to do.
        where: its number and title, for progress lines.
        say: called with each progress line.
        quiet: show no progress within the training.
    """
    with locked_folder(run.folder) as folder:
        _require_same_settings([run])  # another process may have begun it since
        record, problem = read_status(folder, needs_weights=draws_pictures(run))
        if problem:
            say(f"{where}: {problem}, so it is trained again; what is left is in {move_aside(folder).name}")
    if record is not None:
        (run.folder / NOT_RUN).unlink(missing_ok=True)
        say(f"{where}: was finished already, {100 * record.accuracy('test'):.2f} % in the test")
        return
    say(f"{where}: {counted(total_steps(run.recipe), 'step')}")
    result = train(run.recipe, run.folder, quiet=quiet)
    if run.step_time_name is not None:
        keep_training_speed(run.step_time_name, RunFolder(run.folder).timing)
    (run.folder / NOT_RUN).unlink(missing_ok=True)
    say(f"{where}: {100 * result.trained['test_accuracy']:.2f} % in the test")


def _report_missing_data(experiments: Sequence[Experiment], choice: Choice, out: Path, say: Say) -> list[str]:
    """Report datasets that are missing, by progress lines and in the folder of results; returns the lines."""
    notes = []
    for experiment in experiments:
        for study_data in wanted_data(experiment, choice):
            folder = study_folder(out, experiment, study_data.dataset)
            if study_data.missing and experiment.kind != "times":
                _write_reason(folder, study_data.missing)
                notes.append(f"{experiment.name}: {study_data.missing}")
                say(notes[-1])
            else:
                (folder / NOT_RUN).unlink(missing_ok=True)
                if study_data.is_stand_in:
                    say(f"{experiment.name}: {study_data.dataset} stands in for {study_data.study.data}")
    return notes


def _write_reason(folder: Path, reason: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / NOT_RUN, f"{reason}\n".encode())


def require_known_choice(experiments: Sequence[Experiment], choice: Choice) -> None:
    """Check that the experiments have the datasets and networks of a choice, and that ``--set`` may change its keys.

    Raises:
        RecipeError: if not; the message lists what there is.
    """
    data = {study_data.dataset for experiment in experiments for study_data in _every_dataset(experiment)}
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


def _every_dataset(experiment: Experiment) -> list[StudyData]:
    return [study_data for study in experiment.studies for study_data in candidate_data(study)]
