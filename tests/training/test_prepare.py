"""A run that is extended is, bit for bit, what a run of that length would have been; or the reason is said."""

import json
import shutil

import pytest
from training.small import OPTIONS, results

from paircaps.errors import RecipeError, TrainingError
from paircaps.training import train
from paircaps.training.recipe_io import merge, parse_setting, recipe_from_tree
from paircaps.training.recipes import read_tree
from paircaps.training.run_folder import RunFolder, checkpoint_path, checkpoint_steps


def recipe(**changed):
    """A recipe of eight steps an epoch; ``train__epochs=3`` changes train.epochs."""
    tree = read_tree("glyphs")
    values = {**OPTIONS, "schedule.name": "constant", "schedule.warm_up": 0.0, "run.keep": 2}
    values |= {key.replace("__", "."): value for key, value in changed.items()}
    for key, value in values.items():
        tree = merge(tree, parse_setting(f"{key}={value}"))
    return recipe_from_tree(tree)


@pytest.fixture(scope="module")
def short(tmp_path_factory):
    """A finished run of two epochs at a constant rate."""
    folder = tmp_path_factory.mktemp("short") / "run"
    train(recipe(), folder)
    return folder


@pytest.fixture
def copied(short, tmp_path):
    return shutil.copytree(short, tmp_path / "run")


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"schedule__name": "drops", "schedule__drops": "[1.5, 2.5]", "schedule__warm_up": 0.5},
        {"schedule__name": "halving", "schedule__every": 0.75},
        {"data__validation": 0.0},
    ],
    ids=["constant", "drops", "halving", "no validation"],
)
def test_an_extended_run_is_what_a_longer_run_would_have_been(tmp_path, changed):
    train(recipe(**changed), tmp_path / "run")
    result = train(recipe(**changed, train__epochs=3), tmp_path / "run", extend=True)
    assert result.resumed_at == result.trained["steps"] // 3 * 2
    train(recipe(**changed, train__epochs=3), tmp_path / "whole")
    assert results(tmp_path / "run") == results(tmp_path / "whole")
    trained = [json.loads((tmp_path / name / "model.json").read_text())["trained"] for name in ("run", "whole")]
    assert trained[0] == trained[1]
    assert RunFolder(tmp_path / "run").read_recipe().train.epochs == 3


@pytest.mark.parametrize(
    ("shorter", "longer"), [({"train__steps": 11}, {"train__steps": 13}), ({"evaluate__every": 4}, {})]
)
def test_a_validation_that_only_the_shorter_run_had_is_undone(tmp_path, shorter, longer):
    """The end of a run is always validated, also in the middle of an epoch or between two validations."""
    train(recipe(**shorter, run__checkpoint_every=5, run__keep=5), tmp_path / "run")
    wanted = recipe(**{**shorter, "train__epochs": 3, **longer}, run__checkpoint_every=5, run__keep=5)
    result = train(wanted, tmp_path / "run", extend=True)
    assert 0 < result.resumed_at < 16
    train(wanted, tmp_path / "whole")
    assert results(tmp_path / "run") == results(tmp_path / "whole")


def test_without_extend_a_longer_recipe_is_refused_with_an_offer(copied):
    before = results(copied)
    with pytest.raises(
        TrainingError, match=r"(?s)run of another length. --extend goes on from its step 16 .*2 there, 3 here"
    ):
        train(recipe(train__epochs=3), copied)
    assert results(copied) == before
    assert train(recipe(), copied).resumed_at is None


def test_a_loss_that_changes_over_a_training_is_refused_too(tmp_path):
    spread = {"loss__name": "spread", "data__limit": 70, "train__batch_size": 16}
    train(recipe(**spread), tmp_path / "run")
    with pytest.raises(TrainingError, match=r"(?s)cannot be extended: .*the spread loss goes by the length"):
        train(recipe(**spread, train__epochs=3), tmp_path / "run", extend=True)


@pytest.mark.parametrize("name", ["linear", "cosine", "one-cycle", "trapezoid"])
def test_a_schedule_whose_past_depends_on_the_length_is_refused(tmp_path, name):
    changed = {"schedule__name": name, "schedule__cool_down": 0.9, "data__limit": 70, "train__batch_size": 16}
    train(recipe(**changed), tmp_path / "run")
    before = results(tmp_path / "run")
    for extend in (False, True):
        with pytest.raises(
            TrainingError, match=f"(?s)cannot be extended: .*schedule {name} goes by the length of the whole"
        ):
            train(recipe(**changed, train__epochs=3), tmp_path / "run", extend=extend)
    assert results(tmp_path / "run") == before


@pytest.mark.parametrize(
    ("changed", "options", "complaint"),
    [
        ({"train__epochs": 1}, {}, "it has 16 steps, and 8 are no more than that"),
        ({"train__epochs": 3, "optimiser__lr": 0.5}, {}, "--extend changes the length alone"),
        ({"train__epochs": 3}, {"fresh": True}, "which --fresh and --hours do not"),
        ({"train__epochs": 3}, {"hours": 1.0}, "which --fresh and --hours do not"),
    ],
)
def test_only_a_greater_length_extends_a_run(copied, changed, options, complaint):
    before = results(copied)
    with pytest.raises((TrainingError, RecipeError), match=complaint):
        train(recipe(**changed), copied, extend=True, **options)
    assert results(copied) == before


def test_a_run_that_would_go_back_behind_its_best_weights_cannot_be_extended(tmp_path):
    train(recipe(train__steps=11, run__checkpoint_every=5), tmp_path / "run")
    # the only validation before the last one, which may have been the best
    shutil.rmtree(checkpoint_path(tmp_path / "run" / "checkpoints", 8), ignore_errors=True)
    longer = recipe(train__steps=13, run__checkpoint_every=5)
    with pytest.raises(TrainingError, match=r"cannot be extended: .*validation before step 10 is gone"):
        train(longer, tmp_path / "run", extend=True)


def test_a_run_whose_checkpoints_are_gone_cannot_be_extended(copied, tmp_path):
    for step in checkpoint_steps(copied / "checkpoints"):
        shutil.rmtree(checkpoint_path(copied / "checkpoints", step))
    with pytest.raises(TrainingError, match="cannot be extended: it has no checkpoint to go on from"):
        train(recipe(train__epochs=3), copied, extend=True)
    with pytest.raises(TrainingError, match="--extend makes a run longer, and none has begun here"):
        train(recipe(train__epochs=3), tmp_path / "empty", extend=True)


def test_the_same_command_again_goes_on_and_does_not_extend_twice(copied):
    longer = recipe(train__epochs=3)
    assert train(longer, copied, extend=True).resumed_at == 16
    assert train(longer, copied, extend=True).resumed_at is None
    assert train(longer, copied).resumed_at is None
