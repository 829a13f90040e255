"""Focus of the agreement: whether the agreement on a class comes from where the object is."""

from __future__ import annotations

import torch
from torch import Tensor

from paircaps.explain.agreement import Agreement, agreement
from paircaps.network import Network

INK = 0.25
"""Brightness, from 0 to 1, from which on a pixel of a bright object on a dark ground belongs to the object."""

_AT_ONCE = 64  # images whose votes are held in memory at the same time


@torch.no_grad()
def focus(network: Network, images: Tensor, labels: Tensor) -> float:
    """Share of the agreement that lies on the object's own pixels, over the share of the picture that they cover.

    1 says that agreement lies anywhere, whether the object is there or not. The share of a position, by its absolute
    value, is spread evenly over the pixels that are nearer to it than to any other position, so the most that can be
    reached depends on how far positions are apart.

    Args:
        network: a trained network whose routing reports what children contributed.
        images: bright objects on a dark ground, as the network takes them, (B, C, H, W).
        labels: class of each object, (B,).

    Returns:
        mean over the images that show an object.

    Raises:
        PaircapsError: if the network has no capsules, or its routing does not report what children contributed.
    """
    ratios = []
    for some, of in zip(images.split(_AT_ONCE), labels.split(_AT_ONCE), strict=True):
        found = agreement(network, some, of, pairs=0)
        on_object = (found.images.amax(dim=1) >= INK).to(found.map)  # (B, H, W)
        shares = shares_of_pixels(found)
        part = (shares * on_object).sum((1, 2)) / shares.sum((1, 2))
        cover = on_object.mean((1, 2))
        seen = (cover > 0) & part.isfinite()
        ratios.append((part / cover)[seen])
    return torch.cat(ratios).double().mean().item()


def shares_of_pixels(found: Agreement) -> Tensor:
    """Absolute share of each pixel: that of the nearest position, divided by the number of pixels it is nearest to.

    Args:
        found: agreement of some images.

    Returns:
        (B, H, W).
    """
    height, width = found.images.shape[-2:]
    spread = found.map.abs()
    for axis, (side, centres) in enumerate(((height, found.rows), (width, found.columns)), start=1):
        middles = torch.arange(side, device=centres.device) + 0.5
        nearest = (middles[:, None] - centres).abs().argmin(dim=1)  # position of each pixel
        pixels = torch.bincount(nearest, minlength=len(centres)).clamp_min(1).to(spread)
        spread = (spread / pixels.view([-1 if d == axis else 1 for d in range(3)])).index_select(axis, nearest)
    return spread
