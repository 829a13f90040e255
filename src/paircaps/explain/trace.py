"""One look at a network while it looks at images: every layer, and what its children contributed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from paircaps.errors import PaircapsError
from paircaps.functional import Capsules
from paircaps.layers import CapsuleLayer
from paircaps.models import CapsuleModel
from paircaps.network import Network, most_active
from paircaps.routing import Evidence
from paircaps.routing.evidence import of_parent

_NOTHING = 1e-30


@dataclass(frozen=True)
class Look:
    """What happened between images and classes.

    Args:
        images: as the network sees them, before they are standardised, (B, C, H, W) in 0..1.
        levels: capsules of every layer, the primary ones first, those of the classes last.
        evidence: of every capsule layer, the lowest first.
        centres: where in the image each primary capsule looks, x and y in pixels, (I, 2).
        grid: rows and columns of positions that have primary capsules.
    """

    images: Tensor
    levels: tuple[Capsules, ...]
    evidence: tuple[Evidence, ...]
    centres: Tensor
    grid: tuple[int, int]

    @property
    def capsules(self) -> Capsules:
        """Those of the classes."""
        return self.levels[-1]

    def shares(self, label: Tensor) -> list[Tensor]:
        """What each capsule of each layer has of the activation of a class, (B, I), the lowest layer first.

        The layer below the classes has its exact shares. A capsule further down has of each parent's share as much as
        is its part in the size of all shares in that parent; so every layer adds up to the activation. What speaks for
        or against the class is told by the layer below the classes alone.

        Args:
            label: a class an image, (B,).
        """
        shares = [of_parent(self.evidence[-1].share, label, -1)]
        for evidence in reversed(self.evidence[:-1]):
            size = evidence.share.abs() + _NOTHING  # a parent without any share divides its own evenly
            part = size / size.sum(dim=-2, keepdim=True)
            shares.insert(0, torch.einsum("bij,bj->bi", part, shares[0]))
        return shares

    def coupling(self, label: Tensor) -> Tensor | None:
        """How far each primary capsule is coupled to a class, (B, I), over all ways up; None if a layer has none."""
        couplings = [evidence.coupling for evidence in self.evidence]
        if any(coupling is None for coupling in couplings):
            return None
        coupled = of_parent(couplings[-1], label, -1)  # pyright: ignore[reportArgumentType]
        for coupling in reversed(couplings[:-1]):
            coupled = torch.einsum("bij,bj->bi", coupling, coupled)
        return coupled

    def on_grid(self, values: Tensor) -> Tensor:
        """Values of the primary capsules, (B, I), as those of each position, (B, rows, columns, groups)."""
        return values.unflatten(-1, (*self.grid, -1))

    def places(self, level: int) -> Tensor:
        """Where in the image the capsules of a layer are, (B, I, 2): the middle of what they are made of."""
        batch = len(self.images)
        places = self.centres.to(self.evidence[0].share).expand(batch, -1, -1)
        for evidence in self.evidence[:level]:
            size = evidence.share.abs() + _NOTHING
            places = torch.einsum("bij,bid->bjd", size / size.sum(dim=-2, keepdim=True), places)
        return places


def has_capsules(network: Network) -> bool:
    """Whether there is anything to look at but features."""
    return isinstance(network.model, CapsuleModel)


@torch.no_grad()
def look(network: Network, images: Tensor) -> Look:
    """Look at images.

    Args:
        network: trained.
        images: (B, C, H, W), as the network takes them.

    Raises:
        PaircapsError: if the network has no capsules, or its routing does not say what children contributed.
    """
    model = network.model
    if not isinstance(model, CapsuleModel):
        raise PaircapsError(f"{network.spec.model} has no capsules: there is no agreement in it to be seen")
    layers = cast(Iterable[CapsuleLayer], model.layers)
    with network.evaluating():
        levels = model.ascend(network.model_input(images))
        evidence = [layer.evidence(below) for layer, below in zip(layers, levels[:-1], strict=True)]
    return Look(network.prepare(images), tuple(levels), tuple(evidence), model.centres(), model.primary.grid)


def chosen_classes(capsules: Capsules, label: Tensor | int | None, count: int = 1) -> Tensor:
    """Classes to look at, (B,) or (B, count): those that are named, or else the most active ones.

    Args:
        capsules: of the classes.
        label: one an image, one for all of them, or None.
        count: how many of the most active ones.
    """
    batch, classes = capsules.activation.shape
    if label is None:
        return most_active(capsules.activation, count)
    label = torch.as_tensor(label, device=capsules.activation.device)
    if label.is_floating_point():
        raise TypeError(f"label must be a class index, got {label.tolist()}")
    label = label.long()
    if label.dim() == 0:
        label = label.expand(batch)
    if label.shape[:1] != (batch,) or label.dim() > (1 if count == 1 else 2):
        raise ValueError(f"label must be a class, or one for each of {batch} images, got shape {tuple(label.shape)}")
    if label.numel() and not (int(label.min()) >= 0 and int(label.max()) < classes):
        raise ValueError(f"label must be a class from 0 to {classes - 1}, got {label.tolist()}")
    return label
