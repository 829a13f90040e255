import pytest

from paircaps.bench.train import as_markdown, bench_train, stand_in_datasets
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
    assert "| small | 4 | 9 |" in as_markdown(result)


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
