"""Augmentation: batched pure functions of images and random numbers.

A step says how many random numbers an image needs (``draws``) and what it does with them (``apply``). Called with a
``torch.Generator`` it draws them itself; a loader gives each image its own, so that the same image is augmented the
same way in every process and after a resume. Steps that only move bytes about keep uint8; the others turn it into 0..1.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from paircaps._utils.checks import height_and_width, require_choice, require_not_negative, require_within, shape_of
from paircaps._utils.images import as_float, middle, standardise
from paircaps.data.randomness import uniform
from paircaps.data.synthetic.poses import PoseRange
from paircaps.data.synthetic.warp import Size, warp, window


class Augmentation(ABC):
    """Base class of augmentations, random changes of images: one step, or several composed.

    A :class:`paircaps.data.Loader` takes one. By itself it is called with images and a generator:

    >>> augment = Compose(Translate(2), Flip())
    >>> augment(torch.rand(8, 1, 28, 28), torch.Generator().manual_seed(0)).shape
    torch.Size([8, 1, 28, 28])

    Attributes:
        draws: number of random numbers that an image needs.
    """

    draws: int = 0

    @abstractmethod
    def apply(self, images: Tensor, noise: Tensor) -> Tensor:
        """Change images by given random numbers.

        Args:
            images: (B, C, H, W), uint8 or floats in 0..1.
            noise: random numbers in 0..1, (B, draws).

        Returns:
            the changed images.
        """

    def noise(self, seed: int, epoch: int, index: Tensor) -> Tensor:
        """Random numbers of images in an epoch of a loader, (B, draws) in [0, 1).

        Args:
            seed: seed of the loader.
            epoch: number of the epoch.
            index: numbers of the images in their dataset, (B,).
        """
        return uniform(seed, epoch, index, self.draws, "augment")

    def __call__(self, images: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Change images (B, C, H, W) by random numbers of a generator."""
        require_batch(images)
        if self.draws and generator is None:
            raise TypeError(f"{self!r} draws random numbers: give it a torch.Generator")
        device = generator.device if generator is not None else images.device
        noise = torch.rand((len(images), self.draws), generator=generator, dtype=torch.float64, device=device)
        return self.apply(images, noise.cpu())


class Compose(Augmentation):
    """Several steps, one after the other.

    Args:
        steps: augmentations, in the order in which they are applied.
    """

    def __init__(self, *steps: Augmentation) -> None:
        for step in steps:
            if not isinstance(step, Augmentation):
                raise TypeError(f"a step must be an Augmentation, got {step!r}")
        self.steps = steps
        standardised = False
        for step in self._flat():
            if standardised and isinstance(step, Brightness | Contrast):
                raise ValueError(f"{step!r} takes images in 0..1: put it before Standardise()")
            standardised |= isinstance(step, Standardise)
        self.draws = sum(step.draws for step in steps)

    def _flat(self) -> Iterator[Augmentation]:
        """All steps, those of inner compositions too."""
        for step in self.steps:
            yield from step._flat() if isinstance(step, Compose) else (step,)

    def __repr__(self) -> str:
        return f"Compose({', '.join(map(repr, self.steps))})"

    def noise(self, seed: int, epoch: int, index: Tensor) -> Tensor:
        """Random numbers of all steps, side by side; a step that has a rule of its own for them follows it."""
        noise = super().noise(seed, epoch, index)
        steps = tuple(self._flat())  # numbers of inner compositions lie side by side too
        for step, own in zip(steps, noise.split([step.draws for step in steps], 1), strict=True):
            if type(step).noise is not Augmentation.noise:
                own.copy_(step.noise(seed, epoch, index))
        return noise

    def apply(self, images: Tensor, noise: Tensor) -> Tensor:
        """Apply each step with its own columns of the noise."""
        for step, own in zip(self.steps, noise.split([step.draws for step in self.steps], 1), strict=True):
            images = step.apply(images, own)
        return images


@dataclass(frozen=True)
class RandomCrop(Augmentation):
    """Crop at a random place, after padding on every side.

    Args:
        padding: pixels added on every side first.
        size: height and width of the window; those of the images without it.
        border: what these pixels show, ``"black"`` or, by reflection at the edge, the image itself (``"reflect"``).
    """

    padding: int = 4
    size: Size | None = None
    border: str = "black"
    draws = 2

    def __post_init__(self) -> None:
        require_not_negative(padding=self.padding)
        require_choice("border", self.border, ("black", "reflect"))
        if self.size is not None:
            height_and_width("size", self.size)

    def apply(self, images: Tensor, noise: Tensor) -> Tensor:
        """Cut a window out of each image."""
        size = _window_size(self, images, self.size, self.padding)
        padded = padded_images(images, self.padding, self.border)
        top = _whole(noise[:, 0], padded.shape[-2] - size[0])
        left = _whole(noise[:, 1], padded.shape[-1] - size[1])
        return window(padded, top, left, size)


@dataclass(frozen=True)
class CentreCrop(Augmentation):
    """Crop of the middle of every image.

    Args:
        size: side of the crop, or (height, width).
    """

    size: Size

    def __post_init__(self) -> None:
        height_and_width("size", self.size)

    def apply(self, images: Tensor, noise: Tensor) -> Tensor:
        """Cut out the middle, (B, C, height, width)."""
        return middle(images, _window_size(self, images, self.size, 0))


@dataclass(frozen=True)
class Flip(Augmentation):
    """Left and right exchanged, with a given probability.

    Args:
        probability: share of the images that are mirrored.
    """

    probability: float = 0.5
    draws = 1

    def __post_init__(self) -> None:
        require_within("probability", self.probability, 0, 1)

    def apply(self, images: Tensor, noise: Tensor) -> Tensor:
        """Mirror some of the images."""
        chosen = (noise[:, 0] < self.probability).to(images.device)
        return torch.where(chosen[:, None, None, None], images.flip(-1), images)


@dataclass(frozen=True)
class AlternatingFlip(Flip):
    """Left and right exchanged in every other epoch of a loader, for half of the images in the even ones.

    In two epochs in a row each image is seen once as it is and once mirrored, where coins would show a quarter of the
    images twice the same way. Called with a generator, outside of a loader's epochs, it is a plain :class:`Flip`.
    """

    def noise(self, seed: int, epoch: int, index: Tensor) -> Tensor:
        """A number for each image, the same in all epochs, moved by one half in the odd ones."""
        return (uniform(seed, 0, index, self.draws, "alternating flip") + epoch % 2 / 2) % 1


@dataclass(frozen=True)
class Cutout(Augmentation):
    """A square at a random place painted in the image's mean colour; at the border a part of it may lie outside.

    Args:
        size: side of the square in pixels.
    """

    size: int = 8
    draws = 2

    def __post_init__(self) -> None:
        require_not_negative(size=self.size)

    def apply(self, images: Tensor, noise: Tensor) -> Tensor:
        """Paint a square of each image; the centre may be any pixel."""
        height, width = images.shape[-2:]
        inside = []
        for column, side in enumerate((height, width)):
            first = _whole(noise[:, column], side - 1) - self.size // 2
            place = torch.arange(side)
            inside.append((place >= first[:, None]) & (place < first[:, None] + self.size))  # (B, side)
        square = (inside[0][:, None, :, None] & inside[1][:, None, None, :]).to(images.device)
        colour = images.float().mean((-2, -1), keepdim=True)
        colour = colour if images.is_floating_point() else colour.round()
        return torch.where(square, colour.to(images.dtype), images)


@dataclass(frozen=True)
class Brightness(Augmentation):
    """Random number added to all pixels of an image; the result is clipped to 0..1.

    Args:
        most: most that is added or subtracted, in 0..1.
    """

    most: float = 0.2
    draws = 1

    def __post_init__(self) -> None:
        require_within("most", self.most, 0, 1)

    def apply(self, images: Tensor, noise: Tensor) -> Tensor:
        """Make images brighter or darker, in 0..1."""
        delta = _spread(noise[:, 0], -self.most, self.most, images)
        return (as_float(images) + delta).clamp(0, 1)


@dataclass(frozen=True)
class Contrast(Augmentation):
    """Distances of pixels from the mean of their channel times a random factor; the result is clipped to 0..1.

    Args:
        least: smallest factor.
        most: largest factor.
    """

    least: float = 0.5
    most: float = 1.5
    draws = 1

    def __post_init__(self) -> None:
        require_within("least", self.least, 0, self.most)

    def apply(self, images: Tensor, noise: Tensor) -> Tensor:
        """Give images more or less contrast, in 0..1."""
        images = as_float(images)
        mean = images.mean((-2, -1), keepdim=True)
        return (mean + (images - mean) * _spread(noise[:, 0], self.least, self.most, images)).clamp(0, 1)


@dataclass(frozen=True)
class Standardise(Augmentation):
    """Every image by itself scaled to mean 0 and standard deviation 1; a constant image becomes 0."""

    def apply(self, images: Tensor, noise: Tensor) -> Tensor:
        """Standardise images; no random number is used."""
        return standardise(images)


@dataclass(frozen=True)
class Translate(Augmentation):
    """Shift by whole pixels, filled with black.

    Args:
        most: most pixels of the shift, to either side and up or down.
    """

    most: int = 4
    draws = 2

    def __post_init__(self) -> None:
        require_not_negative(most=self.most)

    def apply(self, images: Tensor, noise: Tensor) -> Tensor:
        """Shift images: the same as a crop after padding."""
        return RandomCrop(self.most).apply(images, noise)


@dataclass(frozen=True)
class AffineWarp(Augmentation):
    """Random rotation, scale, shear and translation.

    Args:
        rotation: most degrees to either side.
        scale: least and most factor.
        shear: most shear to either side.
        translation: most pixels, to either side and up or down.
    """

    rotation: float = 20.0
    scale: tuple[float, float] = (0.8, 1.2)
    shear: float = 0.2
    translation: float = 0.0
    draws = 5

    def __post_init__(self) -> None:
        require_within("translation", self.translation, 0, 1e6)
        PoseRange(self.rotation, self.scale, self.shear)

    def apply(self, images: Tensor, noise: Tensor) -> Tensor:
        """Warp images; their dtype stays."""
        turned = PoseRange(self.rotation, self.scale, self.shear).draw(noise[:, 2:])
        return warp(images, torch.cat([(2 * noise[:, :2] - 1) * self.translation, turned], -1))


def require_batch(images: object) -> None:
    """Raise an error for anything but images (B, C, H, W) in uint8 or floating point."""
    if not isinstance(images, Tensor):
        raise TypeError(f"images must be a tensor of shape (B, C, H, W), got {type(images).__name__}")
    if images.dim() != 4:
        raise ValueError(f"images must have shape (B, C, H, W), got {shape_of(images)}")
    if images.dtype != torch.uint8 and not images.is_floating_point():
        raise TypeError(f"images must be uint8 or floating point, got {images.dtype}")


def padded_images(images: Tensor, padding: int, border: str) -> Tensor:
    """Images (B, C, H, W) with pixels added on every side.

    Args:
        images: uint8 or floating point.
        padding: pixels on every side.
        border: ``"black"``, or ``"reflect"`` for the image itself, reflected at its edge; then padding must be smaller
            than the image.
    """
    if not padding:
        return images
    if border == "black":
        return F.pad(images, (padding,) * 4)
    height, width = images.shape[-2:]
    if padding >= min(height, width):
        raise ValueError(f"images of {height}×{width} cannot be reflected over {padding} pixels")
    rows, columns = (torch.arange(-padding, side + padding, device=images.device).abs() for side in (height, width))
    rows, columns = (
        torch.where(place < side, place, 2 * (side - 1) - place) for place, side in ((rows, height), (columns, width))
    )
    return images[..., rows[:, None], columns]


def _window_size(step: Augmentation, images: Tensor, size: Size | None, padding: int) -> tuple[int, int]:
    height, width = images.shape[-2:]
    wanted = (height, width) if size is None else height_and_width("size", size)
    if wanted[0] > height + 2 * padding or wanted[1] > width + 2 * padding:
        raise ValueError(f"{step!r} does not fit into images of {height}×{width}")
    return wanted


def _whole(noise: Tensor, most: int) -> Tensor:
    """Whole numbers from 0 to ``most`` from random numbers in [0, 1)."""
    return (noise * (most + 1)).long()


def _spread(noise: Tensor, least: float, most: float, images: Tensor) -> Tensor:
    """Numbers from ``least`` to ``most``, shaped (B, 1, 1, 1) for images (B, C, H, W)."""
    dtype = images.dtype if images.is_floating_point() else torch.float32
    return (least + noise * (most - least)).to(images.device, dtype)[:, None, None, None]
