"""Primary capsules: feature maps to the first capsules."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from paircaps._utils.checks import (
    height_and_width,
    require_bool,
    require_choice,
    require_not_negative,
    require_positive,
    require_tensor,
    shape_of,
)
from paircaps.functional import Capsules, squash, squash_exponential
from paircaps.layers.norms import EPS, MOMENTUM, CapsuleNorm

PRIMARY_NORMS = ("pose", "channel", "capsule", None)
"""Values of ``norm``: one statistic per pose dimension, one per channel, one per dimension of every capsule, none."""

PRIMARY_ACTIVATIONS = ("length", "learned", "features")
"""Values of ``activation``: the length of a capsule; a convolution of its values, batch norm and a sigmoid; or a
convolution of the feature maps and a sigmoid."""

SQUASHES = {"square": squash, "exponential": squash_exponential, "relu": torch.relu, None: lambda x: x}
"""Functions by the values of ``squash``: ‖x‖² / (1 + ‖x‖²) long, 1 − e^{−‖x‖} long, without negative numbers, or as
they are."""

SPARSE_START = (2.0, -2.0)
"""Gain and bias of the batch norm of learned activations that begin sparse: about one in six then is above a half."""


class PrimaryCapsules(nn.Module):
    """Feature maps to the first capsules: a strided convolution, cut into vectors, normalised and squashed.

    Capsules lie on a grid, by row, column and kind, until the layer above folds it.

    >>> primary = PrimaryCapsules(in_channels=64, in_size=7)
    >>> primary(torch.randn(8, 64, 7, 7)).pose.shape  # 4 capsules at 4 × 4 positions
    torch.Size([8, 4, 4, 4, 16])
    >>> primary.out_grid  # in_capsules of the layer above
    (4, 4, 4)

    Args:
        in_channels: channels of the feature maps.
        in_size: side of the feature maps, or (height, width); every position has capsules of its own, so it is fixed.
        groups: capsules at each position.
        pose_dim: K, the dimensions of a capsule.
        kernel_size: side of the convolution's kernel, or (height, width).
        stride: stride of the convolution.
        padding: padding of the convolution, on every side.
        bias: whether the convolution has a bias; with ``activation="features"`` both have one, or none.
        norm: batch norm with one statistic per pose dimension (``"pose"``), one for every channel, that is for every
            dimension of every capsule of a position (``"channel"``), one for every dimension of every capsule
            (``"capsule"``), or None.
        squash: function that gives capsules a length below one: ``"square"`` for ‖x‖² / (1 + ‖x‖²), as in the paper,
            ``"exponential"`` for 1 − e^{−‖x‖}. Or None for none, or ``"relu"`` for none and a ReLU of each number.
        depthwise: whether every channel has a convolution of its own; ``in_channels`` is then groups · K.
        activation: ``"length"``, the length of a capsule after the squash, as in the paper;
            ``"learned"``: a 1×1 convolution of each capsule's own values, batch norm and a sigmoid; or
            ``"features"``: a second convolution of the feature maps, of the same kernel, and a sigmoid.
        sparse: whether learned activations begin sparse: most capsules see nothing until they have learned to.
        any_size: whether feature maps of other sizes are taken too; not with a norm of every capsule.
        norm_momentum: weight of a new batch in the running statistics of the batch norm.
    """

    def __init__(
        self,
        in_channels: int,
        in_size: int | tuple[int, int],
        groups: int = 4,
        pose_dim: int = 16,
        *,
        kernel_size: int | tuple[int, int] = 5,
        stride: int = 2,
        padding: int = 2,
        bias: bool = False,
        norm: str | None = "pose",
        squash: str | None = "square",
        depthwise: bool = False,
        activation: str = "length",
        sparse: bool = False,
        any_size: bool = False,
        norm_momentum: float = MOMENTUM,
    ) -> None:
        super().__init__()
        require_positive(in_channels=in_channels, groups=groups, pose_dim=pose_dim)
        kernel = height_and_width("kernel_size", kernel_size)
        require_positive(stride=stride)
        require_not_negative(padding=padding)
        require_choice("norm", norm, PRIMARY_NORMS)
        require_choice("squash", squash, SQUASHES)
        require_choice("activation", activation, PRIMARY_ACTIVATIONS)
        require_bool(sparse=sparse, depthwise=depthwise)
        if depthwise and in_channels != groups * pose_dim:
            raise ValueError(
                f"depthwise=True needs a channel for each value of {groups} capsules of {pose_dim}, "
                f"{groups * pose_dim} in all, got in_channels={in_channels}"
            )
        if sparse and activation != "learned":
            raise ValueError(f'sparse=True is for activation="learned", got {activation!r}')
        if any_size and norm == "capsule":
            raise ValueError("any_size needs a norm that is the same at all positions: 'pose', 'channel' or None")
        in_size = height_and_width("in_size", in_size)
        height, width = ((side + 2 * padding - of) // stride + 1 for side, of in zip(in_size, kernel, strict=True))
        if height < 1 or width < 1:
            raise ValueError(
                f"feature maps of {in_size[0]}×{in_size[1]} are too small for primary capsules with a "
                f"{kernel[0]}×{kernel[1]} kernel and padding {padding}"
            )
        self.in_channels = in_channels
        self.in_size = in_size
        self.any_size = any_size
        self.groups = groups
        self.pose_dim = pose_dim
        self.grid = (height, width)
        self.out_grid = (height, width, groups)
        self.out_capsules = height * width * groups
        self.squash = squash
        apart = in_channels if depthwise else 1
        self.conv = nn.Conv2d(in_channels, groups * pose_dim, kernel, stride, padding, groups=apart, bias=bias)
        nn.init.kaiming_normal_(self.conv.weight, nonlinearity="relu")
        if norm is None:
            self.norm = nn.Identity()
        else:
            counts = {"pose": (), "channel": (groups,), "capsule": (height * width, groups)}
            self.norm = CapsuleNorm((*counts[norm], pose_dim), norm_momentum)
        self.presence = None
        if activation == "learned":
            norm_of_presence = nn.BatchNorm2d(groups, eps=EPS, momentum=norm_momentum)
            self.presence = nn.Sequential(
                nn.Conv2d(groups * pose_dim, groups, 1, groups=groups, bias=False), norm_of_presence, nn.Sigmoid()
            )
            if sparse:
                for values, start in zip(norm_of_presence.parameters(), SPARSE_START, strict=True):  # gain, bias
                    nn.init.constant_(values, start)
        elif activation == "features":
            of_features = nn.Conv2d(in_channels, groups, kernel, stride, padding, bias=bias)
            nn.init.kaiming_normal_(of_features.weight, nonlinearity="relu")
            self.presence = nn.Sequential(of_features, nn.Sigmoid())
        self._presence_reads_features = activation == "features"

    def forward(self, features: Tensor) -> Capsules:
        """Capsules of feature maps.

        Args:
            features: feature maps, (B, C, H, W).

        Returns:
            Capsules on a grid, (B, H', W', groups, K), (B, H', W', groups, K) and (B, H', W', groups).
        """
        require_tensor("features", features, "(batch, channels, height, width)", 4)
        expected = (self.in_channels, *self.in_size)
        checked = slice(1, 2) if self.any_size else slice(1, 4)
        if features.dim() != 4 or features.shape[checked] != expected[: checked.stop - 1]:
            raise ValueError(f"features must have shape (batch, {str(expected)[1:]}, got {shape_of(features)}")
        maps = self.conv(features)
        x = maps.unflatten(1, (self.groups, self.pose_dim))  # (B, G, K, H', W')
        x = x.permute(0, 3, 4, 1, 2)  # (B, H', W', G, K)
        x = self.norm(x.flatten(1, 2)).unflatten(1, x.shape[1:3])  # a norm of each capsule numbers the positions
        u = SQUASHES[self.squash](x)
        if self.presence is None:
            return Capsules(u, u, torch.linalg.vector_norm(u, dim=-1))
        presence = self.presence(features if self._presence_reads_features else maps)
        return Capsules(u, u, presence.movedim(1, -1))

    def centres(self, step: float = 1.0, first: float = 0.5, grid: tuple[int, int] | None = None) -> Tensor:
        """Centre of the receptive field of each capsule.

        Args:
            step: distance of neighbouring features, in the unit wanted, such as pixels of the image.
            first: position of the centre of the first feature.
            grid: rows and columns of capsules; None for those of feature maps of ``in_size``.

        Returns:
            x to the right and y down, (I, 2), position by position, the groups of one position side by side.
        """
        stride, padding = self.conv.stride[0], int(self.conv.padding[0])
        middles = ((side - 1) / 2 - padding for side in self.conv.kernel_size)
        y, x = (
            first + step * (stride * torch.arange(side) + middle)
            for side, middle in zip(grid or self.grid, middles, strict=True)
        )
        positions = torch.stack(torch.meshgrid(x, y, indexing="xy"), -1)  # (height, width, 2)
        return positions.flatten(0, 1).repeat_interleave(self.groups, 0)

    def extra_repr(self) -> str:
        """Number of capsules, for print(model)."""
        return f"{self.grid[0]}×{self.grid[1]}×{self.groups} = {self.out_capsules} capsules of {self.pose_dim}"
