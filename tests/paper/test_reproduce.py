"""A set of ordinary trainings: skipped when done, made again when a file of it is gone, refused when they would mix."""

import shutil
import signal
from dataclasses import replace

import pytest
from paper.results import finished

from paircaps.data.files.locate import VARIABLE
from paircaps.errors import RecipeError, TrainingError
from paircaps.paper import inference_times as times
from paircaps.paper import reproduce as room
from paircaps.paper import time_budget as planning
from paircaps.paper.experiments import find_experiments
from paircaps.paper.plan import Choice
from paircaps.paper.records import NOT_RUN, read_record
from paircaps.paper.report import write_report
from paircaps.paper.reproduce import reproduce, require_known_choice
from paircaps.paper.time_estimate import TimeEstimate
from paircaps.paper.training_length import Budget, total_steps
from paircaps.training.loop import Training, TrainingResult
from paircaps.training.run_folder import RunFolder, locked_folder
from paircaps.training.signals import Stopped

TINY = Choice(Budget(epochs=1), seeds=1, limit=64, variants=("fm",))

pytestmark = pytest.mark.usefixtures("no_data")


@pytest.fixture
def make(tmp_path):
    """Reproduce experiments in a folder; what was said, and the outcome."""

    def make(*names, choice=TINY, hours=None):
        said = []
        outcome = reproduce(find_experiments(list(names)), tmp_path, choice, hours=hours, say=said.append, quiet=True)
        return said, outcome

    return make


def test_trained_once_and_then_skipped(make, tmp_path):
    said, outcome = make("table3")
    assert "table3: affine-glyphs stands in for affnist" in said
    assert (outcome.done, outcome.missing, outcome.failed) == (1, (), ())
    folder = RunFolder(tmp_path / "runs/table3/affine-glyphs/fm/seed-0")
    before = folder.metrics.read_bytes(), folder.metrics.stat().st_mtime_ns
    said, outcome = make("table3")
    assert "was finished already" in said[-1]
    assert outcome.done == 1
    assert (folder.metrics.read_bytes(), folder.metrics.stat().st_mtime_ns) == before


def test_results_without_their_weights_count(make, tmp_path):
    choice = replace(TINY, variants=("pool",))
    make("table3", choice=choice)
    (tmp_path / "runs/table3/affine-glyphs/pool/seed-0/model.safetensors").unlink()
    assert "was finished already" in make("table3", choice=choice)[0][-1]


@pytest.fixture(scope="module")
def reported(tmp_path_factory):
    """A folder with a finished training and its report."""
    folder = tmp_path_factory.mktemp("reported")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(VARIABLE, raising=False)  # no data, as in all tests of this file
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        reproduce(find_experiments(["table3"]), folder, TINY, say=str, quiet=True)
        write_report(folder)
    return folder


FILES = ["config.toml", "metrics.jsonl", "model.json", "model.safetensors", "timing.jsonl", "checkpoints"]


def damage(path, how):
    if how == "gone":
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    elif how == "empty":
        path.write_bytes(b"")
    else:
        path.write_bytes(path.read_bytes()[:-25])


@pytest.mark.filterwarnings("ignore:.*the model is made again from the checkpoints")
@pytest.mark.parametrize("checkpoints", [True, False], ids=["with checkpoints", "without"])
@pytest.mark.parametrize(
    ("name", "how"),
    [*((name, "gone") for name in FILES), *((name, how) for name in FILES[:4] for how in ("empty", "cut"))],
)
def test_a_lost_or_damaged_file_is_made_again_and_the_report_with_it(reported, tmp_path, name, how, checkpoints):
    out = shutil.copytree(reported, tmp_path / reported.name)
    files = [out / "report.html", out / "report.md", out / "pictures/table4-affine-glyphs.png"]
    before = [file.read_bytes() for file in files]
    folder = out / "runs/table3/affine-glyphs/fm/seed-0"
    if not checkpoints:
        shutil.rmtree(folder / "checkpoints")
    if (folder / name).exists():
        damage(folder / name, how)
    for file in files:
        file.unlink()
    reproduce(find_experiments(["table3"]), out, TINY, say=str, quiet=True)
    write_report(out)
    assert [file.read_bytes() for file in files] == before


def test_a_half_finished_training_is_never_thrown_away(make, tmp_path):
    make("table3")
    folder = tmp_path / "runs/table3/affine-glyphs/fm/seed-0"
    for name in ("model.json", "model.safetensors", "config.toml"):
        (folder / name).unlink()
    saved = sorted(path.name for path in (folder / "checkpoints").iterdir())
    said, _ = make("table3")
    assert "config.toml is gone or damaged, so it is trained again; what is left is in seed-0.aside-1" in " ".join(said)
    assert sorted(path.name for path in (folder.with_name("seed-0.aside-1") / "checkpoints").iterdir()) == saved
    write_report(tmp_path)
    assert "one seed, 0" in (tmp_path / "report.md").read_text(), "and it is no second seed"


def test_a_picture_that_is_gone_is_drawn_again(make, tmp_path):
    make("table3")
    write_report(tmp_path)
    picture = tmp_path / "pictures/table4-affine-glyphs.png"
    before = picture.read_bytes()
    picture.unlink()
    write_report(tmp_path)
    assert picture.read_bytes() == before


def test_a_killed_training_goes_on(make, tmp_path, monkeypatch):
    def killed(training):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Training, "_finish", killed)
        with pytest.raises(KeyboardInterrupt):
            make("table3")
    steps, step = [], Training.step
    monkeypatch.setattr(Training, "step", lambda training, batch: steps.append(batch) or step(training, batch))
    assert make("table3")[1].done == 1
    assert not steps, "its only one was taken before"
    assert make("table3", choice=replace(TINY, seeds=2))[1].done == 2
    assert len(steps) == 1, "of the other seed"


def test_a_training_that_was_stopped_before_its_first_row_goes_on(make, tmp_path, monkeypatch):
    # its metrics.jsonl is empty, which used to be taken for a loss: "its checkpoints are gone", and all began anew
    choice = replace(TINY, budget=Budget(steps=3))
    taken, step = [], Training.step

    def once(training, batch):
        taken.append(training.state.counters.step)
        return step(training, batch) or (signal.SIGINT if len(taken) == 1 else 0)

    monkeypatch.setattr(Training, "step", once)
    with pytest.raises(Stopped):
        make("table3", choice=choice)
    assert not RunFolder(tmp_path / "runs/table3/affine-glyphs/fm/seed-0").metrics.stat().st_size
    said, outcome = make("table3", choice=choice)
    assert outcome.done == 1
    assert not any("aside" in line for line in said)
    assert taken == [0, 1, 2]


def test_missing_data_is_told_and_noted(make, tmp_path):
    said, outcome = make("table2-small", "table3")
    names = ("fashion-mnist", "cifar10", "svhn")
    reasons = {name: f"{name} is not here (paircaps data get {name})" for name in names}
    assert outcome.missing == tuple(f"table2-small: {reason}" for reason in reasons.values())
    for name, reason in reasons.items():
        assert f"table2-small: {reason}" in said
        assert (tmp_path / "runs/table2-small" / name / NOT_RUN).read_text() == f"{reason}\n"
    assert outcome.done == 1, "and the others are run"


def test_other_settings_are_refused_before_anything_is_trained(make, tmp_path):
    make("table3")
    other = Choice(Budget(epochs=2), seeds=2, limit=64, variants=("fm",))
    with pytest.raises(TrainingError, match=r"was begun with other settings.*\n  train\.epochs: 1 there, 2 here"):
        make("table3", choice=other)
    assert not (tmp_path / "runs/table3/affine-glyphs/fm/seed-1").exists()
    assert read_record(tmp_path / "runs/table3/affine-glyphs/fm/seed-0"), "what is there stays"


def test_seeds_that_this_command_does_not_train_must_be_alike_too(make, tmp_path):
    make("table3", choice=replace(TINY, seeds=2))
    shutil.rmtree(tmp_path / "runs/table3/affine-glyphs/fm/seed-0")
    with pytest.raises(
        TrainingError, match=r"seed-1: was begun with other settings.*\n  train\.epochs: 1 there, 2 here$"
    ):
        make("table3", choice=replace(TINY, budget=Budget(epochs=2)))


def test_settings_that_are_refused_bind_nobody(make):
    # they used to stand in the folder, and the right ones were refused for being others
    _, outcome = make("table3", choice=replace(TINY, changes={"train": {"batch_size": 1}}))
    assert outcome.done == 0
    assert "batch" in outcome.failed[0]
    assert make("table3")[1].done == 1


def test_one_failure_does_not_stop_the_others(make, tmp_path, monkeypatch):
    real = room.train

    def train(recipe, folder, **options):
        if recipe.train.seed == 0:
            raise TrainingError("stopped before step 1 changed any weight: the loss is nan\nmore")
        return real(recipe, folder, **options)

    monkeypatch.setattr(room, "train", train)
    _, outcome = make("table3", choice=Choice(Budget(epochs=1), seeds=2, limit=64, variants=("fm",)))
    assert outcome.done == 1
    assert "seed 0: stopped before step 1" in outcome.failed[0]
    write_report(tmp_path)
    assert "seed 0: stopped before step 1 changed any weight: the loss is nan" in (tmp_path / "report.md").read_text()
    monkeypatch.setattr(room, "train", real)
    make("table3", choice=Choice(Budget(epochs=1), seeds=2, limit=64, variants=("fm",)))
    assert not list(tmp_path.rglob(NOT_RUN)), "a later success clears the note"


def test_a_second_process_leaves_a_training_to_the_first(make, tmp_path):
    with locked_folder(tmp_path / "runs/table3/affine-glyphs/fm/seed-0"):
        said, outcome = make("table3")
    assert "another process is training it" in said[-1]
    assert outcome.failed == ()
    assert not (tmp_path / "runs/table3/affine-glyphs/fm/seed-0" / NOT_RUN).exists()


def test_hours_give_every_training_its_length(make, tmp_path, monkeypatch):
    monkeypatch.setattr(
        planning, "measure_training_time", lambda recipe, name: TimeEstimate(total_steps(recipe) / 10, 36.0)
    )
    steps = []

    def train(recipe, folder, **options):
        steps.append(total_steps(recipe))
        return TrainingResult(folder, {"test_accuracy": 0.5}, 0)

    monkeypatch.setattr(room, "train", train)
    make("table3", choice=Choice(seeds=2, variants=("fm",)), hours=0.02 + 0.25 * 2 * 4_000 / 3600)
    assert steps == [10_000, 10_000]


def test_trainings_of_shipped_settings_tell_the_listing_their_speed(make, monkeypatch):
    kept = []
    monkeypatch.setattr(room, "keep_training_speed", lambda name, timing: kept.append((name, timing.name)))
    make("table3")
    make("table5", choice=replace(TINY, changes={"train": {"batch_size": 32}}))
    assert kept == [("table3/fm", "timing.jsonl")]


def test_what_another_process_has_begun_meanwhile_must_be_the_same(make, tmp_path, monkeypatch):
    # settings are looked at before the first training; the last one may begin hours later
    real = room._require_same_settings
    monkeypatch.setattr(room, "_require_same_settings", lambda runs: None if len(runs) > 1 else real(runs))
    finished(tmp_path, "table3", "affine-glyphs", "fm", 1, 0.9, choice=replace(TINY, budget=Budget(epochs=5)))
    _, outcome = make("table3", choice=replace(TINY, seeds=2))
    assert outcome.done == 0
    assert all("seed-1: was begun with other settings" in line for line in outcome.failed)


def test_a_training_that_was_killed_before_its_first_row_begins_anew(make, tmp_path):
    # an empty metrics.jsonl without a checkpoint used to be taken for a loss, and was set aside
    make("table3")
    folder = RunFolder(tmp_path / "runs/table3/affine-glyphs/fm/seed-0")
    shutil.rmtree(folder.checkpoints)
    for path in (folder.model, folder.path / "model.safetensors"):
        path.unlink()
    folder.metrics.write_bytes(b"")
    said, outcome = make("table3")
    assert outcome.done == 1
    assert not any("aside" in line for line in said)


def test_times_are_measured_until_they_are_whole(make, tmp_path, monkeypatch):
    asked = []

    def measure(models, data, seconds):
        asked.append((sorted(models), seconds))
        common = {"median": 1.0, "low": 1.0, "high": 1.0, "repeats": 5, "seconds": seconds}
        return [{"variant": name, **common} for name in models]

    monkeypatch.setattr(times, "time_inference", measure)
    brief = Choice(Budget(epochs=1), data=("fashion-mnist",))
    make("table1", choice=replace(brief, variants=("fm", "pool")))
    assert make("table1", choice=replace(brief, variants=("fm",)))[0][-1].endswith("was measured already")
    make("table1", choice=brief)
    make("table1", choice=Choice(data=("fashion-mnist",)))
    make("table1", choice=Choice(data=("fashion-mnist",)))
    everything = ["dynamic", "dynamic-1", "fm", "pool"]
    assert asked == [(["fm", "pool"], 1.0), (everything, 1.0), (everything, 10.0)]


def test_what_was_measured_well_is_not_measured_in_haste(make, monkeypatch):
    asked = []

    def measure(models, data, seconds):
        asked.append(seconds)
        common = {"median": 1.0, "low": 1.0, "high": 1.0, "repeats": 5, "seconds": seconds}
        return [{"variant": name, **common} for name in models]

    monkeypatch.setattr(times, "time_inference", measure)
    make("table1", choice=Choice(data=("fashion-mnist",), variants=("fm",)))
    make("table1", choice=Choice(Budget(epochs=1), data=("fashion-mnist",)))  # another network, in a brief command
    assert asked == [10.0, 10.0]


def test_a_setting_that_a_timed_network_does_not_take_fails_there_alone(make):
    choice = replace(TINY, changes={"model": {"options": {"blocks": [1, 1, 1]}}})
    _, outcome = make("table1", "table3", choice=choice)
    assert outcome.failed[0].startswith("table1: model: model 'capsnet-light' has no option 'blocks'; it takes ")
    assert outcome.done == 1


def test_times_of_other_networks_are_not_passed_off_as_these(make, tmp_path):
    brief = Choice(Budget(epochs=1), data=("fashion-mnist",), variants=("fm",))
    narrow = replace(brief, changes={"model": {"options": {"filters": 8}}, "train": {"ema": 0.5}})
    assert make("table1", choice=narrow)[1].done == 1
    write_report(tmp_path)
    assert 'measured briefly; model.options = {"filters" = 8})' in (tmp_path / "report.md").read_text()
    _, outcome = make("table1", choice=brief)
    assert "fm was measured with other settings" in outcome.failed[0]


def test_a_real_time(make, tmp_path):
    make("table1", choice=Choice(Budget(epochs=1), data=("fashion-mnist",), variants=("fm",)))
    write_report(tmp_path)
    assert "repeats, measured briefly" in (tmp_path / "report.md").read_text()


def test_an_experiment_without_the_network_is_left_out(make, tmp_path):
    said, outcome = make("fig4", choice=replace(TINY, variants=("em",)))
    assert said == ["fig4: is left out, for it has only fm, fm-runs, dynamic, pool"]
    assert outcome.done == 0
    assert not (tmp_path / "runs").exists()


def test_a_choice_of_nothing_is_refused():
    table2 = find_experiments(["table2"])
    require_known_choice(table2, Choice(data=("cifar10",), variants=("pool",)))
    with pytest.raises(RecipeError, match="--data: no 'mnist' in these experiments; there is cifar10, fashion-mnist"):
        require_known_choice(table2, Choice(data=("mnist",)))
    with pytest.raises(RecipeError, match=r"--only: no 'fm-runs' in .*; there is deepcaps, dynamic, em, fm, fm-w"):
        require_known_choice(table2, Choice(variants=("fm-runs",)))
    with pytest.raises(RecipeError, match=r"--set: data\.folder is not for this: .* named in \$PAIRCAPS_DATA"):
        require_known_choice(table2, Choice(changes={"data": {"folder": "/tmp"}}))


def test_made_up_results_are_like_real_ones(make, tmp_path):
    finished(tmp_path, "table3", "affine-glyphs", "pool", 0, 0.5, choice=TINY)
    assert "was finished already, 50.00 %" in make("table3", choice=replace(TINY, variants=("pool",)))[0][-1]
