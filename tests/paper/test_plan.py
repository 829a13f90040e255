"""Which trainings an experiment is made of, by the data that is here; and the listing of them."""

import re
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from paircaps.data.registry import require_metadata
from paircaps.models import create_model
from paircaps.paper import plan, step_times
from paircaps.paper.experiments import experiments, find_experiments
from paircaps.paper.network_size import known_multiplications
from paircaps.paper.plan import Choice, available_data, plan_runs, run_recipe
from paircaps.paper.time_estimate import TimeEstimate
from paircaps.paper.training_length import Budget
from paircaps.training.recipe_io import differences, merge
from paircaps.training.recipes import load_recipe, read_tree

PAPER = experiments()


@pytest.fixture
def here(monkeypatch):
    """Pretend that only the files of these datasets are here."""

    def pretend(*names):
        monkeypatch.setattr(
            plan, "missing_splits", lambda name, root=None: [] if name in (*names, "glyphs") else ["train", "test"]
        )

    return pretend


@pytest.mark.parametrize(
    ("names", "data", "is_stand_in"),
    [
        (("mnist", "affnist"), "affnist", False),
        (("mnist",), "affine-mnist", True),
        (("affnist",), "affine-glyphs", True),
        ((), "affine-glyphs", True),
    ],
)
def test_the_best_data_that_is_here(here, names, data, is_stand_in):
    here(*names)
    study_data = available_data(PAPER["table3"].studies[0])
    assert (study_data.dataset, study_data.is_stand_in, study_data.missing) == (data, is_stand_in, "")


def test_what_is_missing_is_told(here):
    here("mnist")
    svhn = next(study for study in PAPER["table2"].studies if study.data == "svhn")
    assert available_data(svhn).missing == "svhn is not here (paircaps data get svhn)"
    assert plan_runs([PAPER["table2"]], Choice(), Path("out")) == []


def test_toys_stand_in_for_smallnorb(here):
    here("toys")
    study_data = available_data(PAPER["table6"].studies[0])
    assert (study_data.dataset, study_data.is_stand_in, study_data.missing) == ("toys", True, "")
    runs = plan_runs([PAPER["table6"]], Choice(), Path("out"))
    assert len(runs) == 27
    assert {run.recipe.data.name for run in runs} == {"toys"}
    grids = [run.recipe.model for run in runs if run.variant.name == "fm-grid"]
    assert {model.name for model in grids} == {"resnet-caps-grid-small"}
    create_model(grids[0].name, 5, 1, 32, **grids[0].options)  # its options are those of its own


def test_a_stand_in_that_is_named_is_taken(here):
    here("mnist")
    (run,) = plan_runs([PAPER["table3"]], Choice(seeds=1, data=("affine-glyphs",), variants=("fm",)), Path("out"))
    assert run.study_data.dataset == run.recipe.data.test == "affine-glyphs"
    (run,) = plan_runs([PAPER["table3"]], Choice(seeds=1, data=("affnist",), variants=("fm",)), Path("out"))
    assert run.study_data.dataset == "affine-mnist", "the best there is, for the paper's own name"


def test_all_networks_of_a_seed_come_before_the_next_seed(here):
    here("mnist")
    runs = plan_runs([PAPER["table3"], PAPER["table5"]], Choice(seeds=2), Path("out"))
    assert [run.seed for run in runs] == [0] * 8 + [1] * 8
    assert runs[0].folder == Path("out/runs/table3/affine-mnist/dynamic/seed-0")
    assert len({run.folder for run in runs}) == len(runs)
    assert len(plan_runs([PAPER["table3"]], Choice(), Path("out"))) == 4 * 3, "three seeds, as in the paper"


def test_a_choice_of_data_and_networks(here):
    here("fashion-mnist", "cifar10")
    runs = plan_runs([PAPER["table2"]], Choice(seeds=1, data=("cifar10",), variants=("fm", "pool")), Path("out"))
    assert [(run.study_data.dataset, run.variant.name) for run in runs] == [("cifar10", "fm"), ("cifar10", "pool")]


@pytest.mark.parametrize("experiment", PAPER.values(), ids=list(PAPER))
def test_networks_of_a_comparison_differ_in_nothing_else(experiment):
    for study in experiment.studies:
        study_data = available_data(study)
        first, *others = (
            run_recipe(experiment, study_data, variant, 1, Choice(Budget(epochs=3), short=True))
            for variant in experiment.networks
        )
        for other in others:
            assert all(line.startswith(("model.", "loss.name")) for line in differences(first, other))
        assert len({repr(recipe.model) for recipe in (first, *others)}) == len(experiment.networks)


@pytest.mark.parametrize("name", ["table2", "table3"])
def test_a_system_published_by_others_has_all_of_its_own_recipe_but_the_data(name):
    experiment = PAPER[name]
    assert not any(variant.is_rival for variant in plan.wanted_variants(experiment, Choice())), "only where it is named"
    assert plan.wanted_variants(experiment, Choice(variants=("hinton",)))[0].title == "Hinton et al."
    for study in experiment.studies:
        study_data = available_data(study)
        ours = run_recipe(experiment, study_data, experiment.networks[0], 0, Choice())
        for rival in experiment.rivals:
            for short in (False, True):
                recipe = run_recipe(experiment, study_data, rival, 0, Choice(short=short))
                published = replace(load_recipe(rival.recipes[study.data]), data=ours.data)
                assert differences(recipe, published) == [], (rival.name, study.data)
                # one that was cropped to 32 pixels did not fit into the 28 of Fashion-MNIST
                assert (recipe.augment.crop_size or 0) <= require_metadata(study.data).shape[1], (
                    rival.name,
                    study.data,
                )


def test_short_settings_change_the_schedule_and_never_mirror_house_numbers():
    table2 = PAPER["table2"]
    for study in table2.studies:
        recipe = run_recipe(table2, available_data(study), table2.networks[0], 0, Choice(short=True))
        assert recipe.schedule.name == "one-cycle"
        assert recipe.optimiser.lr == 0.1
        assert recipe.evaluate.views == ("none" if study.data == "svhn" else "flip")


def test_bounded_activations_have_the_margin_loss():
    # under cross entropy, activations in 0..1 cannot say more than e / (e + 9) = 23 % of one class in ten
    table2 = PAPER["table2"]
    losses = {
        variant.name: run_recipe(table2, available_data(table2.studies[0]), variant, 0, Choice()).loss.name
        for variant in table2.networks
    }
    bounded = {"dynamic", "em"}
    assert losses == {name: "margin" if name in bounded else "cross-entropy" for name in losses}
    assert bounded < set(losses)


def test_the_pooling_twin_takes_the_options_of_its_capsules():
    table6 = PAPER["table6"]
    pool = next(variant for variant in table6.variants if variant.pooled)
    recipe = run_recipe(table6, available_data(table6.studies[0]), pool, 0, Choice())
    assert recipe.model.name == "resnet-pool-small"
    create_model(recipe.model.name, 5, 1, 32, **recipe.model.options)


@pytest.mark.usefixtures("no_data")
def test_data_budget_and_time(monkeypatch):
    monkeypatch.setattr(plan, "training_time", lambda recipe, seconds: TimeEstimate(1700.0, 100.0))
    text = plan.describe_experiments(find_experiments(["table3", "table6", "table1", "table2-small"]))
    assert "affnist: affine-glyphs, which is here, stands in for it" in text
    assert "the paper's budget: 40,000 steps, 3 seeds; all 4 networks here: about 6 hours" in text
    assert "smallnorb: toys, which is here, stands in for it" in text
    assert "120 epochs, 3 seeds; all 9 networks here: about 14 hours" in text
    assert "svhn: svhn is not here (paircaps data get svhn)" in text
    assert "fashion-mnist: needs no images" in text
    assert "(section 4.4)" in text
    assert "in place of eight: accuracy in percent (not in the paper; after Table 2)" in text
    assert "Table 2's budget: 163 epochs" in text


@pytest.mark.usefixtures("no_data")
def test_the_listing_runs_no_training_step_and_says_where_its_times_come_from(monkeypatch):
    def measured(*_):
        raise AssertionError("a listing measures no network")

    monkeypatch.setattr(step_times, "measure_step", measured)
    monkeypatch.setattr(step_times, "train_step", measured, raising=False)
    monkeypatch.setattr("paircaps.bench.train_step.train_step", measured)
    monkeypatch.setattr(step_times, "convolution_rate", lambda device: 1e9)
    wanted = find_experiments(["table5"])
    text = plan.describe_experiments(wanted)
    multiplications = sum(known_multiplications()["table5"].values())
    hours = 100 * 9_000 * 3 * multiplications / 0.6e9 / 3600
    (told,) = re.findall(r"all 4 networks here: about ([\d,]+) hours, estimated\n", text)
    assert 1 < float(told.replace(",", "")) / hours < 1.2, "validation is a small part"
    assert text.splitlines()[-1].startswith(
        "Estimated: from the number of multiplications of a training step, at 0.6 billion a second"
    )
    step_times.keep_step_time("table5/fm", 0.01)
    text = plan.describe_experiments(wanted)
    assert f"hours, 1 of them measured on {date.today()}, the others estimated" in text
    for variant in wanted[0].variants:
        step_times.keep_step_time(f"table5/{variant.name}", 0.01)
    text = plan.describe_experiments(wanted)
    assert f"hours, measured on {date.today()}\n" in text
    assert "Estimated" not in text


@pytest.mark.parametrize("experiment", PAPER.values(), ids=list(PAPER))
def test_the_listing_counts_as_the_trainings_do(experiment):
    for study in experiment.studies:
        for study_data in plan.candidate_data(study):
            quick = plan._length_recipe(merge(read_tree(study.recipe), study_data.changes))
            for variant in experiment.networks:
                recipe = run_recipe(experiment, study_data, variant, 0, Choice())
                assert plan.training_time(quick, 0.5) == plan.training_time(recipe, 0.5)
