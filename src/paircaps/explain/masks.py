"""Masks that a segmentation network finds in images, beside the true ones where they are known."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from paircaps._utils.colours import one_colour_each
from paircaps.errors import PaircapsError
from paircaps.explain.trace import choose_classes
from paircaps.network import Network

_SHOWN = 2
"""Classes of an image whose true masks are shown."""


@dataclass(frozen=True)
class FoundMasks:
    """Masks of the most active classes of images.

    Args:
        images: images as the network sees them, (B, C, H, W) in 0..1.
        label: classes whose masks are shown, (B, D): the true ones where they are known, else the most active ones.
        masks: whether each pixel belongs to each of them, (B, D, H, W) of bool.
        true: the masks that there are, (B, D, H, W) of bool; None where that is not known.
        chosen: the most active classes, (B, D).
    """

    images: Tensor
    label: Tensor
    masks: Tensor
    true: Tensor | None
    chosen: Tensor

    @property
    def iou(self) -> Tensor | None:
        """Intersection over union of each image's masks, all classes together, (B,); None without true ones."""
        if self.true is None:
            return None
        both, either = (self.masks & self.true).flatten(1).sum(1), (self.masks | self.true).flatten(1).sum(1)
        return both / either.clamp_min(1)

    def found_in_colours(self) -> Tensor:
        """Found masks of each image in one picture, (B, 3, H, W), a colour each."""
        return one_colour_each(self.masks.float().unsqueeze(2))

    def true_in_colours(self) -> Tensor | None:
        """The same of the true masks; None where they are not known."""
        return None if self.true is None else one_colour_each(self.true.float().unsqueeze(2))


@torch.no_grad()
def find_masks(network: Network, images: Tensor, true: Tensor | None = None, label: Tensor | None = None) -> FoundMasks:
    """Find the masks of images.

    >>> from paircaps.network import Network, NetworkSpec, Preparation
    >>> preparation = Preparation(size=(36, 36), crop=(36, 36))
    >>> spec = NetworkSpec("caps-segment", {"num_classes": 2}, ("cat", "dog"), preparation)
    >>> network = Network(spec)  # or a trained one: paircaps.load(folder)
    >>> find_masks(network, torch.rand(3, 1, 36, 36)).masks.shape
    torch.Size([3, 1, 36, 36])

    Args:
        network: a trained segmentation network.
        images: images as the network takes them, (B, C, H, W).
        true: true masks of all classes, (B, J, H, W) of 0 and 1, as :func:`paircaps.losses.target_masks` gives them.
        label: classes to show, (B, D); None takes the two with the most true pixels or, where that is not known, the
            most active ones, as many as the network was trained to find.

    Raises:
        PaircapsError: if the network gives no masks.
    """
    if not network.has_masks:
        raise PaircapsError(f"{network.spec.model} gives no masks; networks that do are caps-segment and unet-twin")
    with network.evaluating():
        capsules, masks = network.segment(images)
    chosen = _two_axes(choose_classes(capsules, None, network.spec.labels_per_image))
    if label is None and true is not None:
        label = true.flatten(2).sum(-1).topk(min(_SHOWN, true.shape[1])).indices
    shown = chosen if label is None else _two_axes(label.to(chosen.device))
    found = _of_classes(masks > 0, shown)
    there = None if true is None else _of_classes(true > 0, shown)
    return FoundMasks(network.prepare(images), shown, found, there, chosen)


def _two_axes(label: Tensor) -> Tensor:
    return label.unsqueeze(-1) if label.dim() == 1 else label


def _of_classes(masks: Tensor, label: Tensor) -> Tensor:
    """Masks (B, D, H, W) of some classes (B, D), of those of all classes (B, J, H, W)."""
    return masks.gather(1, label[:, :, None, None].expand(-1, -1, *masks.shape[-2:]))
