"""Size of a recipe's network, found without its data: trainable parameters, and multiplications of a forward pass."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from importlib import resources
from typing import cast

import torch

from paircaps.data.dataset import StoredDataset
from paircaps.data.loader import Loader
from paircaps.data.registry import require_metadata
from paircaps.data.synthetic.noise import noise_dataset
from paircaps.losses import Objective
from paircaps.models import count_parameters
from paircaps.network import Network
from paircaps.training.assemble import network_spec
from paircaps.training.recipe import Recipe

_COUNTED_IMAGES = 2
"""Images of the pass whose multiplications are counted; the count of one image is the same for any number."""


def noise_images(recipe: Recipe, count: int) -> StoredDataset:
    """Noise with the shape and labels of a recipe's images.

    Args:
        recipe: of a training.
        count: number of images.
    """
    side = recipe.augment.crop_size or cast("int | None", recipe.data.options.get("image_size"))
    metadata = require_metadata(recipe.data.name)
    if recipe.data.options.get("stereo") == "channels":  # smallNORB's pairs as one image of two channels
        metadata = replace(metadata, shape=(2, *metadata.shape[1:]))
    return noise_dataset(metadata, count, side)


def parameters_of(recipe: Recipe) -> tuple[int, int]:
    """Trainable parameters of a recipe's network, and of its decoder."""
    network = _network_of_shapes(recipe)
    return count_parameters(network.model), 0 if network.decoder is None else count_parameters(network.decoder)


def count_multiplications(recipe: Recipe) -> int:
    """Multiplications of one image's forward pass in convolutions and matrix products, those of the decoder included.

    Shapes alone are computed, which takes about a tenth of a second for a large network.
    """
    from paircaps.bench.meta_memory import MetaMemory  # half a second of imports, which the listing does without

    objective = Objective(_network_of_shapes(recipe), recipe.loss).eval()
    batch = Loader(noise_images(recipe, _COUNTED_IMAGES), _COUNTED_IMAGES).batch(0, 0).to(torch.device("meta"))
    with MetaMemory() as counter, torch.no_grad():
        objective(*batch.learned)
    return counter.flops // 2 // _COUNTED_IMAGES  # a multiplication and an addition are two operations


def _network_of_shapes(recipe: Recipe) -> Network:
    """The network of a recipe with tensors that have shapes and no memory."""
    spec = network_spec(recipe, noise_images(recipe, 1))
    with torch.device("meta"):
        return Network(spec)


@cache
def known_multiplications() -> Mapping[str, Mapping[str, int]]:
    """Multiplications of the networks in ``paper.toml``, by recipe and variant: counted once, kept in a file."""
    text = (resources.files("paircaps.paper") / "multiplications.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)
