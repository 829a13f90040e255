"""What can be told of a recipe without its data: the shapes of its images, the size of its network."""

from __future__ import annotations

import torch

from paircaps.data.cards import CARDS
from paircaps.data.dataset import Info, StoredDataset
from paircaps.models import count_parameters
from paircaps.network import Network
from paircaps.training.assemble import network_spec
from paircaps.training.recipe import Recipe


def noise_like(recipe: Recipe, count: int) -> StoredDataset:
    """Images as those of a recipe in shape and labels, from nowhere."""
    card = CARDS[recipe.data.name]
    side = recipe.augment.crop_size or recipe.data.options.get("image_size", card.shape[-1])
    generator = torch.Generator().manual_seed(0)
    shape = (count, card.shape[0], side, side)
    images = torch.randint(256, shape, dtype=torch.uint8, generator=generator)  # pyright: ignore[reportCallIssue, reportArgumentType]
    labels = torch.arange(count) % len(card.classes)
    extras = {}
    if recipe.data.name.startswith("multi-"):
        extras = {"second_label": (labels + 1) % len(card.classes), "originals": torch.stack([images, images], 1) / 255}
    return StoredDataset(Info(card.name, "train", card.classes, "noise"), images, labels, extras)


def parameters_of(recipe: Recipe) -> tuple[int, int]:
    """Trainable parameters of a recipe's network, and of its decoder."""
    spec = network_spec(recipe, noise_like(recipe, 1))
    with torch.device("meta"):  # shapes only
        network = Network(spec)
    return count_parameters(network.model), 0 if network.decoder is None else count_parameters(network.decoder)
