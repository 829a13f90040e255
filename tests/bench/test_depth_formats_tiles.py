"""Benchmarks of depth, memory formats and tiles."""

import math

import pytest

from paircaps.bench import channels_last, depth, tiles
from paircaps.bench.layer_shapes import LayerShape
from paircaps.errors import RecipeError

LITTLE = depth.DepthSettings(steps=2, seeds=2, hidden=4, routings=["em"], depths=[2])


def test_bench_depth(monkeypatch):
    monkeypatch.setattr(depth, "TRAINED", 64)
    monkeypatch.setattr(depth, "TESTED", 20)
    lines = []
    result = depth.bench_depth(LITTLE, say=lines.append)
    (row,) = result["rows"]
    assert (row["routing"], row["loss"], row["depth"]) == ("em", "margin", 2)
    assert len(row["losses"]) == len(row["accuracies"]) == 2
    assert row["learning_rate"] in depth.LEARNING_RATES
    assert lines == ["em with margin loss through 2 capsule layers"]
    text = depth.as_markdown(result)
    assert "`paircaps bench depth --steps 2 --seeds 2 --hidden 4 --routings em --depths 2`" in text
    assert "2 steps of 64 seven-segment digits" in text
    assert "| em | margin | 2 | " in text


def test_depth_starts_as_it_is_told(monkeypatch):
    started = []
    monkeypatch.setattr(depth, "TRAINED", 64)
    monkeypatch.setattr(depth, "TESTED", 20)
    monkeypatch.setattr(depth, "train", lambda model, *_, **__: started.append(model) or [0.0])
    plain = depth.DepthSettings(seeds=1, routings=["em"], depths=[1])
    depth.bench_depth(plain)
    larger = depth.DepthSettings(seeds=1, routings=["em"], depths=[1], pair_start=True, beta_u=0.25)
    result = depth.bench_depth(larger)
    stds = [dict(model.named_parameters())["layers.0.votes.weight"].std() for model in started]
    assert stds[2] > 3 * stds[0]
    assert {value.item() for value in started[2].layers[0].routing.beta_u.flatten()} == {0.25}
    assert "--pair-start --beta-u 0.25`" in depth.as_markdown(result)


def test_depth_of_mnist_is_of_the_folder_that_was_named(tmp_path):
    with pytest.raises(RecipeError, match=r"no train-images-idx3-ubyte\.gz in this folder"):
        depth.bench_depth(LITTLE, tmp_path)


def test_depth_refuses_what_it_cannot_measure():
    with pytest.raises(RecipeError, match="no routing of this benchmark: other; there are fm, dynamic, em"):
        depth.DepthSettings(routings=["fm", "other"])
    with pytest.raises(RecipeError, match="beta_u must be finite, got nan"):
        depth.DepthSettings(beta_u=math.nan)


def test_bench_channels_last(monkeypatch):
    monkeypatch.setattr(channels_last, "CASES", (("resnet-caps-small", 28, 4),))
    formats = []
    step = channels_last.train_step

    def spy(recipe, objective, batch):
        formats.append(recipe.train.channels_last)
        return step(recipe, objective, batch)

    monkeypatch.setattr(channels_last, "train_step", spy)
    result = channels_last.bench_channels_last(repeats=2)
    (row,) = result["rows"]
    assert formats == [False, True]
    assert row["contiguous"] > 0 < row["channels_last"]
    text = channels_last.as_markdown(result)
    assert "`paircaps bench channels-last --repeats 2`" in text
    assert "| resnet-caps-small | 28×28 | 4 | " in text


def test_bench_tiles(monkeypatch):
    small = LayerShape(20, 3, 8, 16, "vector", None)
    monkeypatch.setattr(tiles, "CAPSNET_LAYER", small)
    monkeypatch.setattr(tiles, "SHAPES", (small,))
    monkeypatch.setattr(tiles, "TILES", (2, 10))
    monkeypatch.setattr(tiles, "BATCHES", (4,))
    result = tiles.bench_tiles(repeats=2)
    assert [row["tile"] for row in result["tiles"]] == [2, 10]
    assert result["tiles"][1]["votes_bytes"] == small.votes_bytes(tiles.BATCH) // 2
    (row,) = result["batches"]
    assert (row["batch"], row["votes_bytes"]) == (4, small.votes_bytes(4))
    assert all(row[f"{path} {kind}"] > 0 for path in ("tiles", "kernel") for kind in ("forward", "training"))
    text = tiles.as_markdown(result)
    assert "`paircaps bench tiles --repeats 2`" in text
    assert "| 20×8 → 3×16 vector, no norm | 4 | 15 kB |" in text
