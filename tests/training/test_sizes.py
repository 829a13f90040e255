"""Trainings whose images grow: ``train.sizes``."""

import json

import pytest
import torch
import torch.nn.functional as F

from paircaps import create_model
from paircaps.errors import RecipeError
from paircaps.training import train
from paircaps.training.loop import Training
from paircaps.training.recipes import load_recipe
from paircaps.training.step import Stepper

SMALL = {"train": {"epochs": 2, "batch_size": 32, "sizes": [16, 28]}, "data": {"limit": 120}, "run": {"threads": 1}}


def recipe(model=None, **sections):
    merged = {name: SMALL.get(name, {}) | sections.get(name, {}) for name in {*SMALL, *sections}}
    return load_recipe("glyphs", {**merged, "model": {"name": "fast-pool-tiny"} | (model or {})})


@pytest.mark.parametrize("model", [{}, {"name": "fast-caps-tiny", "options": {"votes": "shared"}}])
def test_steps_see_resized_images_and_evaluation_whole_ones(monkeypatch, tmp_path, model):
    seen = []
    step = Stepper.__call__
    monkeypatch.setattr(
        Stepper, "__call__", lambda self, batch, *rest: (seen.append(batch.images), step(self, batch, *rest))[1]
    )
    whole = []
    original = Training.resized
    monkeypatch.setattr(Training, "resized", lambda self, batch: (whole.append(batch.images), original(self, batch))[1])
    train(recipe(model), tmp_path / "run")
    assert [images.shape[-1] for images in seen] == [16] * 3 + [28] * 3
    expected = F.interpolate(whole[0], (16, 16), mode="bilinear", antialias=True)
    assert torch.equal(seen[0], expected)
    assert torch.equal(seen[-1], whole[-1])
    assert json.loads((tmp_path / "run" / "model.json").read_text())["trained"]["test_images"] == 120


@pytest.mark.parametrize(
    ("model", "sections", "message"),
    [
        ({"name": "fast-caps-tiny"}, {}, "takes images of 28×28 only"),
        ({"name": "resnet-caps-small"}, {}, "takes images of 28×28 only"),
        ({}, {"loss": {"decoder": "deconv"}}, "a decoder draws images of one size"),
        ({}, {"train": {"sizes": [16, 24]}}, "the last one must be the network's own, 28×28, got 24"),
        ({}, {"train": {"sizes": [4, 28]}}, "must lie between 9, the smallest"),
        ({}, {"train": {"sizes": [32, 28]}}, "must lie between 9"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(tmp_path, model, sections, message):
    with pytest.raises(RecipeError, match=message):
        train(recipe(model, **sections), tmp_path / "run")


@pytest.mark.parametrize("options", [{}, {"hidden_capsules": (6,)}, {"routing": "dynamic"}, {"routing": "em"}])
def test_shared_votes_take_any_size_and_votes_of_positions_do_not(options):
    shared = create_model("fast-caps-tiny", votes="shared", **options)
    assert shared.takes_any_size
    for size in (9, 16, 28, 40):
        assert shared(torch.rand(2, 1, size, size)).activation.shape == (2, 10)
    with pytest.raises(ValueError, match="images must have shape"):
        shared(torch.rand(2, 1, 8, 8))
    by_vote = create_model("fast-caps-tiny", votes="shared", vote_norm="vote", **options)
    assert by_vote(torch.rand(2, 1, 16, 16)).activation.shape == (2, 10)  # a norm of each kind's votes, at any position
    for fixed in ({}, {"votes": "shared", "primary_norm": "capsule"}):
        model = create_model("fast-caps-tiny", **fixed, **options)
        assert not model.takes_any_size
        with pytest.raises(ValueError, match="images must have shape"):
            model(torch.rand(2, 1, 16, 16))
