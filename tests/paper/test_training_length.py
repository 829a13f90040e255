"""Length of a training; a shorter one keeps the shape of its schedule."""

import pytest

from paircaps.paper.training_length import (
    Budget,
    count_test_images,
    epochs_of,
    images_shown,
    share_of,
    shortened,
    steps_per_epoch,
    total_steps,
    training_images,
)
from paircaps.training.assemble import training_loader
from paircaps.training.datasets import Datasets, load_datasets
from paircaps.training.distributed import Processes
from paircaps.training.recipes import load_recipe
from paircaps.training.schedule import rate

TABLE2 = load_recipe("table2-fashion-mnist")
TABLE3 = load_recipe("table3")
TABLE6 = load_recipe("table6")


def test_the_length_of_the_paper_s_trainings():
    assert steps_per_epoch(TABLE2) == 54_000 // 128
    assert epochs_of(TABLE2) == 163
    assert total_steps(TABLE3) == 40_000
    assert images_shown(TABLE3) == 40_000 * 128


@pytest.mark.parametrize("recipe", [TABLE2, TABLE3, TABLE6], ids=["drops", "constant", "halving"])
@pytest.mark.parametrize("budget", [Budget(epochs=7), Budget(steps=1_240)], ids=["epochs", "steps"])
def test_the_rate_goes_the_same_way_in_less_time(recipe, budget):
    short = shortened(recipe, budget)
    long, steps = total_steps(recipe), total_steps(short)
    assert steps < long / 5
    for way in (0, 0.1, 0.3, 0.45, 0.55, 0.7, 0.8, 0.99):
        there = rate(recipe.schedule, int(way * long), long, steps_per_epoch(recipe))
        here = rate(short.schedule, int(way * steps), steps, steps_per_epoch(short))
        assert here == pytest.approx(there), f"after {way} of the training"


def test_a_warm_up_keeps_its_proportion():
    recipe = load_recipe("table2-fashion-mnist", {"schedule": {"warm_up": 16.3}})
    assert shortened(recipe, Budget(epochs=10)).schedule.warm_up == pytest.approx(1.0)
    cycle = load_recipe("glyphs")
    assert shortened(cycle, Budget(epochs=1)).schedule.warm_up == 0.3, "which is a share already"


def test_steps_are_exact():
    half = shortened(TABLE3, Budget(steps=20_000))
    assert (half.train.steps, half.train.epochs) == (20_000, None)
    assert share_of(half, TABLE3) == 0.5


def test_the_paper_s_length_is_untouched():
    assert shortened(TABLE2, Budget()) is TABLE2
    assert share_of(TABLE2, TABLE2) == 421 / 468, "the paper held no images back"
    assert share_of(TABLE3, TABLE3) == 1


def test_a_limit_counts_as_less_of_the_paper_s_training():
    limited = load_recipe("table2-fashion-mnist", {"data": {"limit": 512}})
    brief = shortened(limited, Budget(epochs=1))
    assert total_steps(brief) == 3
    assert share_of(brief, TABLE2) == pytest.approx(3 / (468 * 163))
    assert brief.schedule.drops == pytest.approx((81 / 163, 122 / 163))


def test_fewer_images_than_a_batch_are_one_step():
    few = load_recipe("table2-fashion-mnist", {"data": {"limit": 64}})
    assert steps_per_epoch(few) == 1
    assert images_shown(shortened(few, Budget(epochs=1))) == 58


def test_a_recipe_that_counts_steps_takes_as_many_of_fewer_images():
    assert total_steps(load_recipe("table3", {"data": {"limit": 64}})) == 40_000


def test_epochs_and_steps_whichever_is_less():
    assert epochs_of(load_recipe("table2-fashion-mnist", {"train": {"steps": 842}})) == 2
    assert epochs_of(load_recipe("table2-fashion-mnist", {"train": {"steps": 10**9}})) == 163


@pytest.mark.parametrize(
    ("name", "options", "images"),
    [
        ("table3", {"length": 1_000}, 900),
        ("table3", {"length": "null"}, 54_000),
        ("table2-svhn", {"extra": True}, 543_949),
        ("table2-svhn", {"extra": False}, 65_931),
        ("table6", {"stereo": "channels"}, 21_870),
        ("table6", {"stereo": "images"}, 43_740),
        ("table3", {"length": "many"}, 54_000),  # which the dataset refuses when it is loaded
    ],
)
def test_options_of_the_data_that_change_the_number_of_images(name, options, images):
    # the budget used to go by the published number, so that the report's share of the paper's length was wrong
    assert training_images(load_recipe(name, {"data": {"options": options}}).data) == images


@pytest.mark.parametrize("options", [{"length": 1_000}, {"length": 64}, {}])
def test_a_training_counts_its_steps_as_the_budget_does(options):
    recipe = load_recipe("glyphs", {"data": {"options": options}, "train": {"epochs": 3, "steps": None}})
    train = load_datasets(recipe.data).train
    assert len(train) == training_images(recipe.data)
    loader = training_loader(recipe, Datasets(train, None, train), Processes(0, 1))
    assert len(loader) == steps_per_epoch(recipe)


def test_fewer_images_are_a_smaller_share_of_the_paper_s_epochs():
    table5 = load_recipe("table5")
    half = load_recipe("table5", {"data": {"options": {"length": 30_000}}})
    assert share_of(half, table5) == pytest.approx(share_of(table5, table5) / 2, rel=0.01)
    assert share_of(load_recipe("table3", {"data": {"options": {"length": 30_000}}}), TABLE3) == 1, "it counts steps"


def test_test_images_by_their_options():
    affine = {"test": "affine-glyphs", "test_options": {"length": 300}}
    assert count_test_images(load_recipe("table3", {"data": affine}).data) == 300
    assert count_test_images(load_recipe("table3", {"data": {**affine, "limit": 64}}).data) == 64
    same = {"options": {"length": 500}, "test_options": {}}
    assert count_test_images(load_recipe("table5", {"data": same}).data) == 500, "options of training count in the test"
    assert count_test_images(load_recipe("table2-svhn", {"data": {"options": {"extra": False}}}).data) == 26_032
