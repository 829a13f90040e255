"""DeepCaps: the deep capsule network of Rajasegaran et al. (2019), with any routing."""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from paircaps._utils.checks import require_choice, require_positive, require_sizes
from paircaps.functional import Capsules
from paircaps.layers import CapsuleLayer, MapCapsuleLayer, PrimaryCapsules
from paircaps.layers.norms import EPS, MOMENTUM
from paircaps.models.base import ImageModel
from paircaps.models.registry import register_model
from paircaps.models.stack import is_bounded, loss_of_routing
from paircaps.routing import RoutingFactory

MINIMUM_SIZE = 8
"""Smallest side of an image, so that the third cell has more than one position."""

CELLS = 4
"""Capsule cells, each of which halves the grid."""

STEP_NORMS = ("channel", None)
"""Values of ``step_norm``: batch norm of every channel before the squash, or none, as published."""


def step(in_channels: int, in_size: tuple[int, int], kinds: int, dim: int, stride: int, norm: str | None):
    """Capsule step: a 3×3 convolution of all kinds below and a squash, which is dynamic routing with one iteration."""
    return PrimaryCapsules(in_channels, in_size, kinds, dim, kernel_size=3, stride=stride, padding=1, norm=norm)


def as_maps(capsules: Capsules) -> Tensor:
    """Capsules on a grid, (B, H, W, kinds, K), as feature maps of (B, kinds · K, H, W)."""
    return capsules.s.flatten(-2).movedim(-1, 1)


class CapsuleStep(nn.Module):
    """Capsule step on capsules, at their positions.

    Args:
        in_size: height and width of the grid.
        kinds: kinds of capsules below, and of those that it makes.
        dim: K of both.
        norm: one of ``STEP_NORMS``.
    """

    def __init__(self, in_size: tuple[int, int], kinds: int, dim: int, norm: str | None) -> None:
        super().__init__()
        self.step = step(kinds * dim, in_size, kinds, dim, 1, norm)

    def forward(self, capsules: Capsules) -> Capsules:
        """Capsules of (B, H, W, kinds, K) to the same."""
        return self.step(as_maps(capsules))


class CapsuleCell(nn.Module):
    """Capsule cell: a step that halves the grid, and from there two further steps beside a skip, which are added up.

    Args:
        down: step from feature maps to capsules on half the grid.
        first: first of the two further steps.
        second: second of them.
        skip: module from capsules to capsules, beside these two.
    """

    def __init__(self, down: PrimaryCapsules, first: nn.Module, second: nn.Module, skip: nn.Module) -> None:
        super().__init__()
        self.down, self.first, self.second, self.skip = down, first, second, skip

    def forward(self, maps: Tensor) -> Capsules:
        """Feature maps (B, C, H, W) to capsules of (B, ⌈H/2⌉, ⌈W/2⌉, kinds, K), as active as they are long."""
        start = self.down(maps)
        total = self.second(self.first(start)).s + self.skip(start).s
        return Capsules(total, total, torch.linalg.vector_norm(total, dim=-1))


class DeepCaps(ImageModel):
    """DeepCaps of Rajasegaran et al. (2019): a convolution, four cells of capsule steps, capsules of the classes.

    A step is a convolution between all capsules of neighbouring positions and a squash. In the last cell the skip is a
    layer with a routing, which couples every kind's map to the capsules of all kinds and positions jointly
    (:class:`paircaps.layers.MapCapsuleLayer`). The capsules of the last two cells, of every position, vote for the
    classes.

    Args:
        num_classes: capsules of the last layer.
        in_channels: channels of an image.
        image_size: side of an image, or (height, width); at least 8.
        routing: a registered name, or a factory, for the last cell and for the classes.
        width: channels of the first convolution.
        kinds: kinds of capsules of every cell: so many lie at each position.
        dims: K of the capsules of each cell.
        pose_dim: K of the capsules of the classes.
        enlarge: factor by which images are enlarged first, as the publication does with those of 32×32.
        step_norm: ``"channel"`` for batch norm before every squash, or None, as published.
        vote_norm: batch norm of the votes for the classes, ``"pose"``, ``"vote"`` or None, as published.
        routing_options: options of the routing in the last cell and of that of the classes.
        streaming: whether dense votes for the classes are avoided; see CapsuleLayer.
    """

    def __init__(
        self,
        num_classes: int = 10,
        in_channels: int = 1,
        image_size: int | tuple[int, int] = 28,
        routing: str | RoutingFactory = "dynamic",
        *,
        width: int = 128,
        kinds: int = 32,
        dims: tuple[int, int, int, int] = (4, 8, 8, 8),
        pose_dim: int = 32,
        enlarge: int = 1,
        step_norm: str | None = None,
        vote_norm: str | None = None,
        routing_options: dict[str, object] | None = None,
        streaming: bool | str = "auto",
    ) -> None:
        super().__init__(num_classes, in_channels, image_size, MINIMUM_SIZE)
        require_positive(width=width, kinds=kinds, pose_dim=pose_dim, enlarge=enlarge)
        require_sizes("dims", dims, CELLS)
        require_choice("step_norm", step_norm, STEP_NORMS)
        if dims[-1] != dims[-2]:
            raise ValueError(f"dims of the last two cells must be equal, since both vote for the classes, got {dims}")
        if isinstance(routing, nn.Module):
            raise TypeError(
                f"each capsule layer needs a routing of its own: give a name, a class or a factory, got {routing!r}"
            )
        self.pose_dim, self.enlarge = pose_dim, enlarge
        self.stem = stem(in_channels, width)
        self.cells = nn.ModuleList()
        grids, channels, size = [], width, enlarged_size(self.image_size, enlarge)
        for number, dim in enumerate(dims, 1):
            down = step(channels, size, kinds, dim, 2, step_norm)
            size, channels = down.grid, kinds * dim
            first, second = (CapsuleStep(size, kinds, dim, step_norm) for _ in range(2))
            if number < CELLS:
                skip = CapsuleStep(size, kinds, dim, step_norm)
            else:
                skip = MapCapsuleLayer(
                    kinds, size, kinds, pose_dim=dim, routing=routing, routing_options=routing_options
                )
            self.cells.append(CapsuleCell(down, first, second, skip))
            grids.append(size)
        children = sum(height * width for height, width in grids[-2:]) * kinds
        classes = CapsuleLayer(
            children,
            num_classes,
            pose_dim,
            dims[-1],
            routing=routing,
            transform="vector",
            vote_norm=vote_norm,
            routing_options=routing_options,
            streaming=streaming,
        )
        self.layers = nn.Sequential(classes)

    @property
    def bounded(self) -> bool:
        """Whether activations of the classes' routing lie in 0..1."""
        return is_bounded(self.layers)

    @property
    def wanted_loss(self) -> str | None:
        """Class loss that the model asks for, else the one that the routing of the classes asks for."""
        return self.preferred_loss or loss_of_routing(self.layers)

    def capsules(self, images: Tensor) -> Capsules:
        """(B, C, H, W) to capsules of (B, J, K), (B, J, K) and (B, J)."""
        maps, levels = self.stem(enlarged(images, self.enlarge)), []
        for cell in self.cells:
            levels.append(cell(maps))
            maps = as_maps(levels[-1])
        return self.layers(in_one_row(levels[-1], levels[-2]))


def stem(in_channels: int, width: int) -> nn.Sequential:
    """The first convolution: 3×3, ReLU, and then batch norm."""
    convolution = nn.Conv2d(in_channels, width, 3, padding=1)
    nn.init.kaiming_normal_(convolution.weight, nonlinearity="relu")
    return nn.Sequential(convolution, nn.ReLU(), nn.BatchNorm2d(width, eps=EPS, momentum=MOMENTUM))


def enlarged_size(size: tuple[int, int], factor: int) -> tuple[int, int]:
    """Height and width of images that are enlarged by a factor."""
    return size[0] * factor, size[1] * factor


def enlarged(images: Tensor, factor: int) -> Tensor:
    """Images (B, C, H, W) enlarged by a factor, with pixels between those that there are."""
    if factor == 1:
        return images
    return F.interpolate(images, scale_factor=factor, mode="bilinear")


def in_one_row(*grids: Capsules) -> Capsules:
    """Capsules of several grids, (B, H, W, kinds, K) each, in one row: (B, I, K) and (B, I)."""
    vectors = torch.cat([grid.s.flatten(1, 3) for grid in grids], dim=1)
    return Capsules(vectors, vectors, torch.cat([grid.activation.flatten(1) for grid in grids], dim=1))


SIZES: dict[str, dict[str, object]] = {"": {}, "-light": {"width": 32, "kinds": 8, "step_norm": "channel"}}
"""Sizes by the ending of the model's name: as published, and below a million parameters.

A squash shortens short vectors further, from step to step, and the published network learns slowly at first. Batch norm
keeps those of the light one long."""

for _ending, _size in SIZES.items():
    _factory = partial(DeepCaps, **_size)  # pyright: ignore[reportArgumentType]
    register_model(f"deepcaps{_ending}", _factory, pooling_twin=f"deepcaps-pool{_ending}", routing="dynamic")
