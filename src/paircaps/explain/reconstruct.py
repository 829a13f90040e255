"""Reconstructions of images from the poses of their class capsules."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from paircaps._utils.colours import one_colour_each
from paircaps.errors import PaircapsError
from paircaps.explain.trace import choose_classes
from paircaps.models.decoder import Decoder
from paircaps.network import Network


@dataclass(frozen=True)
class Reconstruction:
    """Images and their reconstructions.

    Args:
        images: images as the network sees them, (B, C, H, W) in 0..1.
        label: class capsules whose poses were decoded, (B, D); D is 1, or 2 for images of two overlapping digits.
        drawings: reconstruction from each of those capsules, (B, D, C, H, W) in 0..1.
        activation: activations of all classes, (B, J).
    """

    images: Tensor
    label: Tensor
    drawings: Tensor
    activation: Tensor

    @property
    def error(self) -> Tensor:
        """Squared error of the sum of an image's drawings, summed over its pixels, (B,)."""
        together = self.drawings.sum(dim=1).clamp(0, 1)
        return (together - self.images).square().flatten(1).sum(dim=1)

    def in_colours(self) -> Tensor:
        """All drawings of each image in one picture, (B, 1 or 3, H, W); several grey ones get a colour each."""
        if self.drawings.shape[1] == 1 or self.drawings.shape[2] != 1:
            return self.drawings.sum(dim=1).clamp(0, 1)
        return one_colour_each(self.drawings)


def require_decoder(network: Network) -> Decoder:
    """The decoder of a network.

    Raises:
        PaircapsError: if the network has none.
    """
    if network.decoder is None:
        raise PaircapsError("this network was trained without a decoder, so it cannot draw: train with --loss.decoder")
    return network.decoder


@torch.no_grad()
def reconstruct(network: Network, images: Tensor, label: Tensor | int | None = None) -> Reconstruction:
    """Reconstruct images from the poses of their most active capsules, or of given ones.

    >>> from paircaps.network import Network, NetworkSpec, Preparation
    >>> preparation = Preparation(size=(28, 28), crop=(28, 28))
    >>> options = {"num_classes": 2}
    >>> classes = ("cat", "dog")
    >>> spec = NetworkSpec("resnet-caps-small", options, classes, preparation, "deconv")
    >>> network = Network(spec)  # or a trained one: paircaps.load(folder)
    >>> reconstruct(network, torch.rand(3, 1, 28, 28)).drawings.shape
    torch.Size([3, 1, 1, 28, 28])

    Args:
        network: a trained network with a decoder.
        images: images as the network takes them, (B, C, H, W).
        label: classes to draw, (B,), (B, D), or one for all; None takes the most active ones, as many as the network
            was trained to find in an image.

    Raises:
        PaircapsError: if the network has no decoder.
    """
    decoder = require_decoder(network)
    with network.evaluating():
        capsules = network(images)
        label = choose_classes(capsules, label, network.spec.labels_per_image)
        label = label.unsqueeze(-1) if label.dim() == 1 else label
        return Reconstruction(network.prepare(images), label, decoder(capsules, label), capsules.activation)
