"""What can be told of a recipe without its data: the shapes of its images, the size of its network."""

from __future__ import annotations

from typing import cast

import torch

from paircaps.data.dataset import StoredDataset
from paircaps.data.metadata import METADATA
from paircaps.data.synthetic.noise import noise_like
from paircaps.models import count_parameters
from paircaps.network import Network
from paircaps.training.assemble import network_spec
from paircaps.training.recipe import Recipe


def images_like(recipe: Recipe, count: int) -> StoredDataset:
    """Noise as the images of a recipe in shape and labels."""
    side = recipe.augment.crop_size or cast("int | None", recipe.data.options.get("image_size"))
    return noise_like(METADATA[recipe.data.name], count, side)


def parameters_of(recipe: Recipe) -> tuple[int, int]:
    """Trainable parameters of a recipe's network, and of its decoder."""
    spec = network_spec(recipe, images_like(recipe, 1))
    with torch.device("meta"):  # shapes only
        network = Network(spec)
    return count_parameters(network.model), 0 if network.decoder is None else count_parameters(network.decoder)
