"""Images, and what a network redraws of them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from paircaps._utils.colours import one_colour_each
from paircaps.errors import PaircapsError
from paircaps.explain.trace import chosen_classes
from paircaps.models.decoder import Decoder
from paircaps.network import Network


@dataclass(frozen=True)
class Reconstruction:
    """Images redrawn.

    Args:
        images: as the network sees them, (B, C, H, W) in 0..1.
        label: the capsules whose poses were drawn, (B, D); D is 1, or 2 where two digits lie over each other.
        drawings: one a capsule, (B, D, C, H, W) in 0..1.
        activation: of all classes, (B, J).
    """

    images: Tensor
    label: Tensor
    drawings: Tensor
    activation: Tensor

    @property
    def error(self) -> Tensor:
        """Squared differences between image and all drawings together, summed over the pixels, (B,)."""
        together = self.drawings.sum(dim=1).clamp(0, 1)
        return (together - self.images).square().flatten(1).sum(dim=1)

    def in_colours(self) -> Tensor:
        """All drawings of an image in one picture: a colour each if they are several and grey, (B, 1 or 3, H, W)."""
        if self.drawings.shape[1] == 1 or self.drawings.shape[2] != 1:
            return self.drawings.sum(dim=1).clamp(0, 1)
        return one_colour_each(self.drawings)


def require_decoder(network: Network) -> Decoder:
    """The decoder of a network.

    Raises:
        PaircapsError: if it has none.
    """
    if network.decoder is None:
        raise PaircapsError("this network was trained without a decoder, so it cannot draw: train with --loss.decoder")
    return network.decoder


@torch.no_grad()
def reconstruct(network: Network, images: Tensor, label: Tensor | int | None = None) -> Reconstruction:
    """Redraw images from the poses of their most active capsules, or of named ones.

    Args:
        network: trained, with a decoder.
        images: (B, C, H, W), as the network takes them.
        label: classes to draw, (B,), (B, D), or one for all; None takes as many as an image shows.
    """
    decoder = require_decoder(network)
    with network.evaluating():
        capsules = network(images)
        label = chosen_classes(capsules, label, network.spec.labels_per_image)
        label = label.unsqueeze(-1) if label.dim() == 1 else label
        return Reconstruction(network.prepare(images), label, decoder(capsules, label), capsules.activation)
