import pytest

from paircaps.bench import train, train_profile
from paircaps.bench.train import as_markdown, bench_train, stand_in_datasets
from paircaps.bench.train_step import train_step
from paircaps.data import Loader
from paircaps.errors import RecipeError
from paircaps.training.assemble import build_objective, choose_device
from paircaps.training.optimiser import HIGHEST_RATE
from paircaps.training.recipe import Data
from paircaps.training.recipes import load_recipe


def test_a_row_for_every_recipe(monkeypatch, tmp_path):
    monkeypatch.setenv("PAIRCAPS_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    recipe = load_recipe("table6", {"train": {"batch_size": 4}})
    result = bench_train({"small": recipe}, seconds=0.01)
    (row,) = result["rows"]
    assert row["ratio"] == pytest.approx(row["median"] / row["bare"])
    assert 0.3 < row["share"] < 1
    assert row["low"] <= row["median"] <= row["high"]
    assert row["data"] == "noise of the same shape"
    assert 0 < row["convolutions"]["low"] <= row["convolutions"]["median"] < 1
    assert row["fp32"]["low"] <= row["fp32"]["median"] <= row["fp32"]["high"]
    text = as_markdown(result)
    assert "| small | 4 | 9 |" in text
    assert len({line.count("|") for line in text.splitlines() if line.startswith("|")}) == 1


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_the_precision_is_that_of_the_machine(precision, monkeypatch, tmp_path):
    monkeypatch.setenv("PAIRCAPS_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(train, "choose_precision", lambda device: precision)
    (row,) = bench_train({"small": load_recipe("table6", {"train": {"batch_size": 4}})}, seconds=0.01)["rows"]
    assert row["precision"] == precision
    assert (row["fp32"]["median"] == row["median"]) == (precision == "fp32")


def test_the_bare_step_knows_weights_by_the_names_of_a_training():
    recipe = load_recipe("table6", {"train": {"batch_size": 4}, "optimiser": {"rates": {"model.*": 0.5}}})
    dataset, _ = stand_in_datasets(recipe.data)
    objective = build_objective(recipe, dataset, choose_device(recipe.run))
    step = train_step(recipe, objective, Loader(dataset.train, 4).batch(0, 0))
    assert {group[HIGHEST_RATE] for group in step.optimiser.param_groups} == {0.5 * recipe.optimiser.lr}


def test_what_the_bare_step_cannot_do_is_refused():
    with pytest.raises(RecipeError, match=r"small: .* without accumulate, ema and sizes"):
        bench_train({"small": load_recipe("table6", {"train": {"ema": 0.9}})})


def test_a_profile_of_every_recipe(monkeypatch, tmp_path):
    monkeypatch.setenv("PAIRCAPS_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    result = train_profile.bench_train_profile({"small": load_recipe("table6", {"train": {"batch_size": 4}})})
    (profile,) = result["profiles"]
    assert len(profile["operators"]) == train_profile.LARGEST + 1
    assert sum(row["share"] for row in profile["operators"]) == pytest.approx(1)
    assert {"aten::convolution_backward", "all others"} <= {row["operator"] for row in profile["operators"]}
    assert "## small" in train_profile.as_markdown(result)


def test_what_stands_in_has_the_same_shape(monkeypatch, tmp_path):
    monkeypatch.setenv("PAIRCAPS_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for name, options, shape in (
        ("smallnorb", {"image_size": 48}, (1, 48, 48)),
        ("svhn", {}, (3, 32, 32)),
        ("multi-mnist", {}, (1, 36, 36)),
    ):
        datasets, _ = stand_in_datasets(Data(name, options=options))
        assert datasets.train.shape == shape
