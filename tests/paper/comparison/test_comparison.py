"""The comparison of routings: what it trains, what it keeps, what it goes on with, and what its page says."""

import json
from dataclasses import replace

import pytest

from paircaps.cli import main
from paircaps.errors import FolderBusyError, PaircapsError, RecipeError
from paircaps.models import count_parameters, create_model
from paircaps.paper import comparison as room
from paircaps.paper.comparison import RoutingComparison, compare_routings, costs, run, trials
from paircaps.paper.comparison.costs import Cost, measure_costs
from paircaps.paper.comparison.design import HEADS, LEARNING_RATES, POOL, Trial, describe
from paircaps.paper.comparison.page import as_markdown, write_page
from paircaps.paper.comparison.records import Records, TrialRecord, failed, read_record, record_path
from paircaps.paper.comparison.results import collect, learns_through, standing
from paircaps.paper.comparison.run import chosen_rate, equal_time_steps

pytestmark = pytest.mark.usefixtures("no_data")

SMALL = RoutingComparison(steps=10, seeds=2, tasks=("glyphs",), routings=("fm", "mean", POOL))
MACHINE = {"cpu": "C", "cores": 2, "threads": 1, "python": "3", "torch": "2", "paircaps": "0", "commit": "abc"}


def record(trial, validation=0.5, test=0.5, **changes):
    return replace(TrialRecord(trial, 1000, validation, test, 1.0, None, "", MACHINE), **changes)


@pytest.fixture
def pretended(monkeypatch):
    """Trainings and measurements that take no time; names of the trials in the order in which they were trained."""
    done = []

    def train(trial, folder, *, quiet):
        done.append(trial.name)
        best = {"fm": 3e-3, "mean": 1e-2, POOL: 1e-3}[trial.routing]
        # the rate that is best on held-out images is the worst one on test images, which choose nothing
        better = trial.lr == best
        outcome = record(trial, 0.9 if better else 0.8, 0.6 + 0.01 * trial.seed if better else 0.7)
        outcome.save(folder)
        return outcome

    step = {"fm": 2.0, "mean": 1.0, POOL: 1.0}
    monkeypatch.setattr(run, "run_trial", train)
    monkeypatch.setattr(costs, "_measured", lambda task, keys: {key: Cost(step[key[1]], 0.1, 10**6) for key in keys})
    return done


def test_every_head_takes_a_routing_and_says_its_size():
    for head in HEADS:
        trial = Trial("affine-mnist", head, "dynamic", 10, 1e-3, 0)
        model = trial.recipe.model
        options = {name: None if value == "none" else value for name, value in model.options.items()}
        built = create_model(model.name, routing=model.routing, image_size=40, **options)
        assert trial.parameters == count_parameters(built)
        assert trial.recipe.train.steps == 10
        assert trial.recipe.run.threads == 1


def test_missing_images_have_stand_ins():
    assert [task.name for task in RoutingComparison().wanted_tasks] == ["affine-glyphs", "glyphs", "multi-glyphs"]
    assert "translated → affine glyphs: is here" in describe(RoutingComparison())
    with pytest.raises(PaircapsError, match="paircaps data get fashion-mnist"):
        compare_routings(RoutingComparison(tasks=("fashion-mnist",)), None or trials.Path("nowhere"), print)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"routings": ("dynamik",)}, "no 'dynamik' in this comparison; there is .*dynamic"),
        ({"tasks": ("cifar10",)}, "no 'cifar10' in this comparison; there is affine-mnist"),
    ],
)
def test_unknown_names_are_refused(wrong, message):
    with pytest.raises(RecipeError, match=message):
        RoutingComparison(**wrong)


def test_held_out_images_choose_the_rate_and_test_images_nothing(pretended, tmp_path):
    done, problems = compare_routings(SMALL, tmp_path, print)
    assert problems == []
    assert done == len(pretended) == len(set(pretended))
    rows = {(row.head, row.routing): row for row in collect(SMALL, tmp_path)}
    assert {name: row.lr for (head, name), row in rows.items() if head in ("own", POOL)} == {
        "fm": 3e-3,
        "mean": 1e-2,
        POOL: 1e-3,
    }
    assert rows["own", "fm"].steps == pytest.approx((60, 61))  # though 70 % were to be had on test images
    # in equal time, fm takes half as many steps as pooling, since each takes twice as long
    assert rows["own", "fm"].time_steps == 5
    assert rows["own", "mean"].time_steps == 10
    assert "glyphs/own/fm/steps-5-lr-0.003-seed-1" in pretended


def test_it_goes_on_where_it_was_stopped(pretended, tmp_path):
    compare_routings(SMALL, tmp_path, print)
    first = list(pretended)
    lost = Trial("glyphs", "shared", "mean", 10, 1e-3, 0)
    record_path(tmp_path, lost).unlink()
    pretended.clear()
    done, _ = compare_routings(SMALL, tmp_path, print)
    assert pretended == [lost.name]
    assert done == len(first)


def test_a_trial_of_another_process_is_left_to_it(pretended, tmp_path, monkeypatch):
    ours = run.run_trial

    def busy(trial, folder, *, quiet):
        if trial.head == "conv":
            raise FolderBusyError("another training is writing to this folder")
        return ours(trial, folder, quiet=quiet)

    monkeypatch.setattr(run, "run_trial", busy)
    said = []
    _, problems = compare_routings(SMALL, tmp_path, said.append)
    assert problems == []
    assert any("conv/fm" in line and "another process is training it" in line for line in said)
    assert not any("/conv/" in name for name in pretended)


def test_a_rate_that_failed_is_not_chosen(tmp_path):
    records = Records(tmp_path)
    outcomes = [Trial("glyphs", "own", "fm", 10, lr, 0) for lr in LEARNING_RATES]
    for trial, value in zip(outcomes[:2], (0.5, 0.4), strict=True):
        record(trial, value).save(tmp_path)
    assert chosen_rate("glyphs", "own", "fm", 10, records) is None  # one is still to be tried
    failed(outcomes[2], "the loss is not finite").save(tmp_path)
    assert chosen_rate("glyphs", "own", "fm", 10, records) == LEARNING_RATES[0]
    for trial in outcomes:
        failed(trial, "the loss is not finite").save(tmp_path)
    assert chosen_rate("glyphs", "own", "fm", 10, records) is None
    page = as_markdown(SMALL, tmp_path, collect(SMALL, tmp_path))
    assert "| own | fm | no rate worked |" in page


def test_a_new_routing_is_timed_beside_pooling(tmp_path, monkeypatch):
    speed = 1.0
    monkeypatch.setattr(
        costs, "_measured", lambda task, keys: {key: Cost(speed * len(key[1]), 0.1, None) for key in keys}
    )
    measure_costs(tmp_path, "glyphs", [("own", "fm"), (POOL, POOL)], print)
    speed = 3.0  # the machine is three times as slow today
    found = measure_costs(tmp_path, "glyphs", [("own", "fm"), ("own", "dynamic"), (POOL, POOL)], print)
    assert found["own", "fm"].step == 2.0
    assert found["own", "dynamic"].step == pytest.approx(7.0)
    assert equal_time_steps(14, ("own", "dynamic"), found) == 8


def test_damaged_records_are_named(tmp_path):
    trial = Trial("glyphs", "own", "fm", 10, 1e-3, 0)
    record(trial).save(tmp_path)
    path = record_path(tmp_path, trial)
    assert read_record(path) == record(trial)
    tree = json.loads(path.read_text())
    for damaged in ("", "[]", "{}", json.dumps({**tree, "test": 7}), json.dumps({**tree, "trial": {"task": "x"}})):
        path.write_text(damaged)
        with pytest.raises(PaircapsError, match="remove it to train it again"):
            read_record(path)
    moved = path.with_name("steps-11-lr-0.001-seed-0.json")
    moved.write_text(json.dumps(tree))
    with pytest.raises(PaircapsError, match="not the record of this trial"):
        read_record(moved)


def test_depth_ends_at_the_first_that_is_not_learnt():
    assert learns_through({}) is None
    assert learns_through({1: 0.5}) == 0
    assert learns_through({1: 0.99, 2: 0.96, 3: 0.5, 6: 0.99}) == 2
    assert learns_through({1: 0.99, 2: None}) == 1


def test_differences_are_said_when_they_are_clear(pretended, tmp_path):
    compare_routings(SMALL, tmp_path, print)
    rows = [row for row in collect(SMALL, tmp_path) if row.head == "own"]
    control = replace(rows[1], steps=(90.0, 90.1, 90.2))
    better, same = replace(rows[0], steps=(95.0, 95.1, 95.2)), replace(rows[0], routing="em", steps=(88.0, 90.0, 92.0))
    found = standing([control, better, same], control, "steps")
    assert (found.above, found.below, found.open) == (("fm",), (), ("em",))
    assert standing([control, replace(better, steps=(95.0,))], control, "steps") is None


def test_the_page_has_every_network_and_what_is_missing(pretended, tmp_path):
    compare_routings(SMALL, tmp_path / "routings", print)
    page, picture = write_page(replace(SMALL, routings=()), tmp_path / "routings")
    text = page.read_text()
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert "| own | fm | 60.50 ± 0.71 (5) |" in text
    assert "| own | dynamic | – |" in text
    assert "commit abc" in text


def test_a_trial_is_a_training_that_leaves_a_record_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(trials, "IMAGES", 400)
    trial = Trial("affine-glyphs", "shared", "fm", 2, 1e-3, 0)
    small = trial.recipe
    monkeypatch.setitem(trial.__dict__, "recipe", replace(small, data=replace(small.data, limit=200)))
    found = trials.run_trial(trial, tmp_path, quiet=True)
    assert read_record(record_path(tmp_path, trial)) == found
    assert found.validation is not None
    assert set(found.r2) == {"x", "y", "rotation", "scale", "shear"}
    assert not (tmp_path / trials.UNFINISHED / trial.name).exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["routings", "table2", "--out", "x"], "give it alone"),
        (["routings", "--epochs", "2", "--out", "x"], "--epochs is not for routings"),
        (["routings", "--short", "--out", "x"], "--short is not for routings"),
        (["routings"], "--out DIR is missing"),
        (["table2", "--steps", "5", "--out", "x"], "--steps is for routings"),
        (["routings", "--only", "dynamik", "--out", "x"], "no 'dynamik' in this comparison"),
    ],
)
def test_wrong_commands(words, message, capsys):
    assert main(["reproduce", *words]) == 2
    assert message in capsys.readouterr().err


def test_the_command(pretended, tmp_path, capsys):
    words = ["--only", "fm", "--data", "glyphs", "--steps", "10", "--seeds", "1", "--out", str(tmp_path)]
    assert main(["reproduce", "routings", "--list"]) == 0
    assert "Every routing in the same networks" in capsys.readouterr().out
    assert main(["reproduce", "routings", *words]) == 0
    assert (tmp_path / room.NAME / "routings.md").is_file()
