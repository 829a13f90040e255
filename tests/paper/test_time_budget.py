"""So many hours, shared by all trainings: planned once, and kept by whatever goes on."""

import json
from dataclasses import replace

import pytest

from paircaps.errors import RecipeError
from paircaps.paper import time_budget as room
from paircaps.paper.experiments import find_experiments
from paircaps.paper.plan import Choice, plan_runs
from paircaps.paper.time_budget import PLAN, lengths_within
from paircaps.paper.time_estimate import TimeEstimate
from paircaps.paper.training_length import Budget, total_steps
from paircaps.training.recipe_io import to_toml
from paircaps.training.run_folder import RunFolder

pytestmark = pytest.mark.usefixtures("no_data")
FM = Choice(seeds=1, limit=3_000, variants=("fm",))
BOTH = ("table3", "table5")


@pytest.fixture
def machine(monkeypatch):
    """A machine whose speed can be set; and how often it was measured."""

    class Machine:
        seconds_a_step, measured = 0.1, 0

        def training_time(self, recipe, name):
            self.measured += 1
            return TimeEstimate(total_steps(recipe) * self.seconds_a_step, 36.0)

    machine = Machine()
    monkeypatch.setattr(room, "measure_training_time", machine.training_time)
    return machine


@pytest.fixture
def plan(tmp_path, machine):
    """Plan experiments; steps by experiment, and what was said."""

    def plan(*names, choice=FM, hours=1.0):
        said = []
        lengths = lengths_within(find_experiments(list(names)), choice, tmp_path, hours, said.append)
        runs = plan_runs(find_experiments(list(names)), replace(choice, lengths=lengths), tmp_path)
        return {run.experiment.name: total_steps(run.recipe) for run in runs}, said

    return plan


def begin(out, name, choice):
    """Leave behind what a training has written when it begins."""
    for run in plan_runs(find_experiments([name]), choice, out):
        run.folder.mkdir(parents=True)
        RunFolder(run.folder).config.write_text(to_toml(run.recipe))
        RunFolder(run.folder).timing.write_text('{"start": 0}\n')


def test_hours_are_a_share_of_the_paper_s_length(plan):
    choice = Choice(seeds=2, variants=("fm", "pool"))
    steps, said = plan("table3", choice=choice, hours=0.04 + 0.25 * 4 * 4_000 / 3600)
    assert steps == {"table3": 10_000}, "a quarter, and the tests"
    assert "4 trainings of full length: about 4.5 hours; taking 25 % of it" in said


def test_the_same_command_keeps_its_plan_whatever_the_machine_does_meanwhile(plan, machine, tmp_path):
    # only what had begun used to keep its length: killed in its first study, a command gave the second one another
    first, _ = plan(*BOTH)
    begin(tmp_path, "table3", replace(FM, budget=Budget(steps=first["table3"])))
    machine.seconds_a_step, machine.measured = 0.01, 0
    again, said = plan(*BOTH)
    assert again == first
    assert machine.measured == 0
    assert said == [f"table3, affine-glyphs: was begun with {first['table3']:,} steps and keeps them"]


@pytest.mark.parametrize(
    "other",
    [{"hours": 0.5}, {"choice": replace(FM, seeds=2)}, {"choice": replace(FM, changes={"train": {"batch_size": 64}})}],
)
def test_another_command_makes_a_plan_of_its_own(plan, machine, other):
    plan("table3")
    machine.measured = 0
    plan("table3", **other)
    assert machine.measured == 1


def test_a_plan_outlives_those_of_other_commands(plan, machine):
    first, _ = plan("table3")
    plan("table5", hours=2.0)
    machine.seconds_a_step *= 1.2
    assert plan("table3")[0] == first, "also when nothing of it is left but the plan"


@pytest.mark.parametrize("hours", [0.2, 0.25, 0.3, 0.37, 0.4, 0.5])
def test_more_seeds_have_the_length_of_the_first(plan, tmp_path, hours):
    # the share of one study, rounded to its steps, used to give another study other steps than it had begun with
    first, _ = plan(*BOTH, hours=hours)
    for name, steps in first.items():
        begin(tmp_path, name, replace(FM, budget=Budget(steps=steps)))
    assert plan(*BOTH, choice=replace(FM, seeds=2), hours=7)[0] == first


def test_hours_go_on_with_what_was_begun_by_epochs(plan, tmp_path):
    begin(tmp_path, "table3", Choice(Budget(epochs=2), seeds=1, variants=("fm",)))
    assert plan("table3", choice=Choice(seeds=2, variants=("fm",)), hours=5)[0] == {"table3": 140}


@pytest.mark.parametrize("text", ["", "{", "[]", '{"asked": 1}', "with steps of none", "with steps that are no number"])
def test_a_damaged_plan_is_made_again(plan, tmp_path, text):
    first, _ = plan("table3")
    path = tmp_path / "runs" / PLAN
    good = json.loads(path.read_text())
    if text.startswith("with"):
        steps = 0 if text.endswith("none") else "many"
        text = json.dumps([{**plan, "steps": dict.fromkeys(plan["steps"], steps)} for plan in good])
    path.write_text(text)
    assert plan("table3")[0] == first
    assert json.loads(path.read_text()) == good


def test_less_time_than_the_tests_take(plan):
    with pytest.raises(RecipeError, match=r"--hours: the tests at the end of 1 training alone take about 0\.01 hours"):
        plan("table3", hours=0.001)
