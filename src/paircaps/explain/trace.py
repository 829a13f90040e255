"""Trace of images through a capsule network: the capsules of every layer, and what each child contributed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from paircaps.errors import PaircapsError
from paircaps.functional import Capsules
from paircaps.layers import CapsuleLayer, ConvCapsuleLayer
from paircaps.models import CapsuleModel
from paircaps.network import Network, most_active
from paircaps.routing import Evidence, Routing
from paircaps.routing.evidence import of_parent

_NOTHING = 1e-30


@dataclass(frozen=True)
class Trace:
    """Record of a forward pass, from images to class capsules.

    Args:
        images: images as the model gets them but for standardisation, (B, C, H, W) in 0..1.
        levels: capsules of every layer, from the primary capsules to those of the classes.
        evidence: contributions of children to parents in every capsule layer, the lowest layer first.
        centres: centre of each primary capsule's receptive field, x and y in pixels, (I, 2).
        grid: number of rows and columns of positions that have primary capsules.
    """

    images: Tensor
    levels: tuple[Capsules, ...]
    evidence: tuple[Evidence, ...]
    centres: Tensor
    grid: tuple[int, int]

    @property
    def capsules(self) -> Capsules:
        """Capsules of the classes."""
        return self.levels[-1]

    def shares(self, label: Tensor) -> list[Tensor]:
        """Shares of every capsule in the activation of a class, a tensor (B, I) per layer, the lowest layer first.

        In the layer below the classes, shares are exact. Further down, the share of each parent is divided among its
        children in proportion to the absolute values of their shares in that parent. So the shares of every layer add
        up to the activation, but only the signs of the topmost layer say what is for the class and what is against it.

        Args:
            label: class of each image, (B,).
        """
        top = of_parent(self.evidence[-1].share, label, -1)
        return [shares.squeeze(-1) for shares in self._divided(top.unsqueeze(-1))]

    def maps(self) -> Tensor:
        """Share of every position in the activation of every class, (B, J, rows, columns)."""
        shares = self._divided(self.evidence[-1].share)[0].movedim(-1, 1)  # (B, J, I)
        return self.on_grid(shares).sum(-1)

    def _divided(self, top: Tensor) -> list[Tensor]:
        """Shares of every capsule in the activation of N classes, a tensor (B, I, N) per layer, the lowest layer first.

        Args:
            top: shares of the topmost layer of children, (B, I, N).
        """
        shares = [top]
        for evidence in reversed(self.evidence[:-1]):
            size = evidence.share.abs() + _NOTHING  # a parent whose children have no share divides its own evenly
            part = size / size.sum(dim=-2, keepdim=True)
            shares.insert(0, torch.einsum("bij,bjn->bin", part, shares[0]))
        return shares

    def coupling(self, label: Tensor) -> Tensor | None:
        """Coupling of each primary capsule to a class, (B, I), summed over all paths; None if a layer has no coupling.

        Args:
            label: class of each image, (B,).
        """
        couplings = [evidence.coupling for evidence in self.evidence]
        if any(coupling is None for coupling in couplings):
            return None
        coupled = of_parent(couplings[-1], label, -1)  # pyright: ignore[reportArgumentType]
        for coupling in reversed(couplings[:-1]):
            coupled = torch.einsum("bij,bj->bi", coupling, coupled)
        return coupled

    def on_grid(self, values: Tensor) -> Tensor:
        """Arrange values of primary capsules, (..., I), by position: (..., rows, columns, groups)."""
        return values.unflatten(-1, (*self.grid, -1))

    def places(self, level: int) -> Tensor:
        """Positions of the capsules of a layer in the image, x and y in pixels, (B, I, 2).

        Above the primary capsules, a capsule is at the mean position of its children, weighted by their shares.

        Args:
            level: index of the layer in ``levels``; 0 for the primary capsules.
        """
        batch = len(self.images)
        places = self.centres.to(self.evidence[0].share).expand(batch, -1, -1)
        for evidence in self.evidence[:level]:
            size = evidence.share.abs() + _NOTHING
            places = torch.einsum("bij,bid->bjd", size / size.sum(dim=-2, keepdim=True), places)
        return places


def has_capsules(network: Network) -> bool:
    """True if the network has capsule layers."""
    return any(isinstance(layer, CapsuleLayer | ConvCapsuleLayer) for layer in network.modules())


def has_trace(network: Network) -> bool:
    """True if the network is a stack of capsule layers, which contributions can be followed through."""
    return isinstance(network.model, CapsuleModel)


def why_no_trace(network: Network) -> str:
    """Why a network that is no stack of capsules has no agreement to show."""
    if has_capsules(network):
        return f"{network.spec.model} is no single stack of capsules, so shares in its classes cannot be followed"
    return f"{network.spec.model} has no capsules, so it has no agreement to show"


def routing_without_evidence(network: Network) -> str | None:
    """Class name of a routing in the network that does not report what children contributed; None if all do."""
    for layer in network.modules():
        if isinstance(layer, CapsuleLayer | ConvCapsuleLayer):
            kind = type(layer.routing)
            if not issubclass(kind, Routing) or kind.evidence is Routing.evidence:
                return kind.__name__
    return None


def has_agreement(network: Network) -> bool:
    """True if the agreement of a network can be shown: a stack of capsules whose routings report contributions."""
    return has_trace(network) and routing_without_evidence(network) is None


@torch.no_grad()
def trace(network: Network, images: Tensor) -> Trace:
    """Run a network on images and record every layer.

    Args:
        network: a trained network.
        images: images as the network takes them, (B, C, H, W).

    Raises:
        PaircapsError: if the network is no stack of capsules, or its routing does not say what children contributed.
    """
    model = network.model
    if not isinstance(model, CapsuleModel):
        raise PaircapsError(why_no_trace(network))
    layers = cast(Iterable[CapsuleLayer | ConvCapsuleLayer], model.layers)
    with network.evaluating():
        levels = model.ascend(network.model_input(images))
        evidence = [layer.evidence(below) for layer, below in zip(layers, levels[:-1], strict=True)]
    rows, columns = levels[0].s.shape[1:3]
    return Trace(
        network.prepare(images), tuple(levels), tuple(evidence), model.centres((rows, columns)), (rows, columns)
    )


def choose_classes(capsules: Capsules, label: Tensor | int | None, count: int = 1) -> Tensor:
    """Classes to show, (B,) or (B, count): the given ones, or else the most active ones.

    Args:
        capsules: capsules of the classes.
        label: class of each image, one class for all images, or None for the most active ones.
        count: number of most active classes per image.
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
