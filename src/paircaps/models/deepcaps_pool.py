"""DeepCapsPool: the convolutions of DeepCaps with average pooling, of the same size as its capsule twin."""

from __future__ import annotations

from functools import partial

from torch import Tensor, nn

from paircaps._utils.checks import require_choice, require_positive, require_sizes
from paircaps.layers.norms import EPS, MOMENTUM
from paircaps.models.deepcaps import CELLS, MINIMUM_SIZE, SIZES, STEP_NORMS, DeepCaps, enlarged, stem
from paircaps.models.pooling import PoolingModel, with_parameters_of_twin
from paircaps.models.registry import register_model
from paircaps.models.resnet import conv


def step(in_channels: int, out_channels: int, stride: int, norm: str | None) -> nn.Sequential:
    """The convolution of a capsule step, and ReLU in place of the squash."""
    layers: list[nn.Module] = [conv(in_channels, out_channels, 3, stride), nn.ReLU()]
    if norm is not None:
        layers.insert(1, nn.BatchNorm2d(out_channels, eps=EPS, momentum=MOMENTUM))
    return nn.Sequential(*layers)


class PoolingCell(nn.Module):
    """The convolutions of a capsule cell: one that halves the grid, and two further ones beside a skip.

    Args:
        in_channels: channels of the input.
        out_channels: channels of every convolution.
        norm: one of ``STEP_NORMS``.
        skip: whether the skip is a convolution; else it hands on what it gets.
    """

    def __init__(self, in_channels: int, out_channels: int, norm: str | None, skip: bool) -> None:
        super().__init__()
        self.down = step(in_channels, out_channels, 2, norm)
        self.first, self.second = (step(out_channels, out_channels, 1, norm) for _ in range(2))
        self.skip = step(out_channels, out_channels, 1, norm) if skip else nn.Identity()

    def forward(self, maps: Tensor) -> Tensor:
        """(B, C_in, H, W) to (B, C_out, ⌈H/2⌉, ⌈W/2⌉)."""
        start = self.down(maps)
        return self.second(self.first(start)) + self.skip(start)


class DeepCapsPool(PoolingModel):
    """Pooling twin of DeepCaps: its convolutions with ReLU, average pooling, a linear layer.

    The skip of the last cell, which is a capsule layer there, hands on what it gets.

    Args:
        num_classes: outputs of the linear layer.
        in_channels: channels of an image.
        image_size: side of an image, or (height, width); at least 8.
        width: channels of the first convolution.
        kinds: kinds of capsules of every cell of the twin, which has ``kinds`` · K channels.
        dims: K of the capsules of each cell of the twin.
        enlarge: factor by which images are enlarged first.
        step_norm: ``"channel"`` for batch norm before every ReLU of a cell, or None.
        head_width: channels of the last convolution, which are the features.
    """

    def __init__(
        self,
        num_classes: int = 10,
        in_channels: int = 1,
        image_size: int | tuple[int, int] = 28,
        *,
        width: int = 128,
        kinds: int = 32,
        dims: tuple[int, int, int, int] = (4, 8, 8, 8),
        enlarge: int = 1,
        step_norm: str | None = None,
        head_width: int = 256,
    ) -> None:
        super().__init__(num_classes, in_channels, image_size, MINIMUM_SIZE)
        require_positive(width=width, kinds=kinds, enlarge=enlarge, head_width=head_width)
        require_sizes("dims", dims, CELLS)
        require_choice("step_norm", step_norm, STEP_NORMS)
        self.pose_dim, self.enlarge = head_width, enlarge
        self.stem = stem(in_channels, width)
        self.cells = nn.Sequential()
        channels = width
        for number, dim in enumerate(dims, 1):
            self.cells.append(PoolingCell(channels, kinds * dim, step_norm, skip=number < CELLS))
            channels = kinds * dim
        self.head = nn.Sequential(conv(channels, head_width, 3), nn.ReLU())
        self.classify = nn.Linear(head_width, num_classes)

    def maps(self, images: Tensor) -> Tensor:
        """Feature maps of images: (B, C, H, W) to (B, head_width, H', W')."""
        return self.head(self.cells(self.stem(enlarged(images, self.enlarge))))


for _ending, _size in SIZES.items():
    _factory = with_parameters_of_twin(
        DeepCapsPool, DeepCaps, common=("width", "kinds", "dims", "enlarge", "step_norm")
    )
    register_model(f"deepcaps-pool{_ending}", partial(_factory, **_size))  # pyright: ignore[reportArgumentType]
