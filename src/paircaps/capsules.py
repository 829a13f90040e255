"""The layers people import: feature maps to capsules, and capsules to capsules."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from paircaps._checks import (
    height_and_width,
    require_choice,
    require_not_negative,
    require_positive,
    require_tensor,
    shape_of,
)
from paircaps.errors import PaircapsError
from paircaps.functional import Capsules, squash
from paircaps.norm import CapsuleNorm
from paircaps.routing import Evidence, Routing, RoutingFactory, create_routing
from paircaps.votes import Votes, create_transform, create_vote_norm, is_watched

PRIMARY_NORMS = ("pose", "capsule", None)


class PrimaryCapsules(nn.Module):
    """Feature maps to the first capsules: a strided convolution, cut into vectors, normalised and squashed.

    A capsule's activation is the length that squash gave it, ‖x‖² / (1 + ‖x‖²).

    Args:
        in_channels: of the feature maps.
        in_size: their side, or (height, width); every position has capsules of its own, so it is fixed.
        groups: capsules at each position.
        pose_dim: K of each.
        kernel_size: of the convolution.
        stride: of the convolution.
        padding: of the convolution, on every side.
        bias: whether the convolution has one.
        norm: batch norm with one statistic a pose dimension (``"pose"``), one for every dimension of every capsule
            (``"capsule"``), or None.
    """

    def __init__(
        self,
        in_channels: int,
        in_size: int | tuple[int, int],
        groups: int = 4,
        pose_dim: int = 16,
        *,
        kernel_size: int = 5,
        stride: int = 2,
        padding: int = 2,
        bias: bool = False,
        norm: str | None = "pose",
    ) -> None:
        super().__init__()
        require_positive(in_channels=in_channels, groups=groups, pose_dim=pose_dim)
        require_positive(kernel_size=kernel_size, stride=stride)
        require_not_negative(padding=padding)
        require_choice("norm", norm, PRIMARY_NORMS)
        in_size = height_and_width("in_size", in_size)
        height, width = ((side + 2 * padding - kernel_size) // stride + 1 for side in in_size)
        if height < 1 or width < 1:
            raise ValueError(
                f"feature maps of {in_size[0]}×{in_size[1]} are too small for primary capsules with a "
                f"{kernel_size}×{kernel_size} kernel and padding {padding}"
            )
        self.in_channels = in_channels
        self.in_size = in_size
        self.groups = groups
        self.pose_dim = pose_dim
        self.grid = (height, width)
        self.out_capsules = height * width * groups
        self.conv = nn.Conv2d(in_channels, groups * pose_dim, kernel_size, stride, padding, bias=bias)
        nn.init.kaiming_normal_(self.conv.weight, nonlinearity="relu")
        if norm is None:
            self.norm = nn.Identity()
        else:
            self.norm = CapsuleNorm((pose_dim,) if norm == "pose" else (self.out_capsules, pose_dim))

    def forward(self, features: Tensor) -> Capsules:
        """(B, C, H, W) to capsules of (B, I, K), position by position, the groups of one position side by side."""
        require_tensor("features", features, "(batch, channels, height, width)", 4)
        expected = (self.in_channels, *self.in_size)
        if features.dim() != 4 or tuple(features.shape[1:]) != expected:
            raise ValueError(f"features must have shape (batch, {str(expected)[1:]}, got {shape_of(features)}")
        x = self.conv(features).unflatten(1, (self.groups, self.pose_dim))  # (B, G, K, H, W)
        x = x.permute(0, 3, 4, 1, 2).flatten(1, 3)  # (B, I, K)
        u = squash(self.norm(x))
        return Capsules(u, u, torch.linalg.vector_norm(u, dim=-1))

    def centres(self, step: float = 1.0, first: float = 0.5) -> Tensor:
        """Middle of what each capsule looks at, (I, 2): x to the right and y down, capsules in their own order.

        Args:
            step: between neighbours among the features, in pixels of the image, say.
            first: where the middle of the first feature is.
        """
        kernel, stride, padding = (self.conv.kernel_size[0], self.conv.stride[0], int(self.conv.padding[0]))
        middle = (kernel - 1) / 2 - padding
        y, x = (first + step * (stride * torch.arange(side) + middle) for side in self.grid)
        positions = torch.stack(torch.meshgrid(x, y, indexing="xy"), -1)  # (height, width, 2)
        return positions.flatten(0, 1).repeat_interleave(self.groups, 0)

    def extra_repr(self) -> str:
        """Number of capsules, for print(model)."""
        return f"{self.grid[0]}×{self.grid[1]}×{self.groups} = {self.out_capsules} capsules of {self.pose_dim}"


class CapsuleLayer(nn.Module):
    """A layer of capsules over another: votes, their batch norm, and a routing.

    Layers chain like ``nn.Linear``: what one returns, the next takes.

    >>> layers = nn.Sequential(CapsuleLayer(64, 16), CapsuleLayer(16, 10))
    >>> layers(torch.randn(8, 64, 16)).activation.shape
    torch.Size([8, 10])

    Args:
        in_capsules: I, the number of children.
        out_capsules: J, the number of parents.
        pose_dim: K of a parent.
        in_dim: K_in of a child; None means ``pose_dim``.
        routing: a registered name, a factory called with ``out_capsules``, or a routing that is built already.
        transform: ``"matrix"``, K weights a pair, or ``"vector"``, K_in · K weights a pair.
        vote_norm: batch norm of the votes per pose dimension (``"pose"``), per vote (``"vote"``), or None.
        routing_options: for the routing, if it is built here.
        streaming: whether the routing does without holding all votes: FM agreement walks them tile by tile, dynamic
            and EM routing take a few images at a time. ``"auto"`` does what is fastest, True never holds those of
            the whole batch, False always does.
        tile: children in a tile; None takes :func:`paircaps.votes.tile_children`.
    """

    def __init__(
        self,
        in_capsules: int,
        out_capsules: int,
        pose_dim: int = 16,
        in_dim: int | None = None,
        routing: str | RoutingFactory | nn.Module = "fm",
        transform: str = "matrix",
        vote_norm: str | None = "pose",
        *,
        routing_options: dict[str, object] | None = None,
        streaming: bool | str = "auto",
        tile: int | None = None,
    ) -> None:
        super().__init__()
        if streaming != "auto" and not isinstance(streaming, bool):  # 0 and 1 are not meant
            raise ValueError(f"streaming must be one of 'auto', True, False, got {streaming!r}")
        if tile is not None:
            require_positive(tile=tile)
            if streaming is False:
                raise ValueError(f"tile={tile} is for streaming, which streaming=False turns off")
            tile = min(tile, in_capsules)
        self.streaming, self.tile = streaming, tile
        self.in_capsules = in_capsules
        self.out_capsules = out_capsules
        self.pose_dim = pose_dim
        self.in_dim = pose_dim if in_dim is None else in_dim
        self.votes = create_transform(transform, in_capsules, out_capsules, self.in_dim, pose_dim)
        self.norm = create_vote_norm(vote_norm, in_capsules, out_capsules, pose_dim)
        if isinstance(routing, nn.Module):
            if isinstance(routing, Routing) and routing.out_capsules != out_capsules:
                raise ValueError(f"a layer of {out_capsules} capsules got a routing built for {routing.out_capsules}")
            if routing_options:
                raise ValueError(f"routing_options={routing_options} cannot change a routing that is built already")
            self.routing = routing
        else:
            self.routing = create_routing(routing, out_capsules, **(routing_options or {}))
        if streaming is True and not (isinstance(self.routing, Routing) and self.routing.streams):
            raise ValueError(
                f"streaming=True needs a routing that can do without the votes of the whole batch; {self.routing!r} "
                'does not say that it can: streaming="auto" gives it all votes'
            )

    def forward(self, u: Tensor | Capsules, activation: Tensor | None = None) -> Capsules:
        """Children to parents.

        Args:
            u: child capsules, (..., I, K_in), or all that the layer below returned.
            activation: of the children, (..., I), where ``u`` is a tensor; None takes all as fully there.

        Returns:
            Capsules of (..., J, K), (..., J, K) and (..., J).
        """
        votes, activation = self._ballot(u, activation)
        return self.routing(votes if self._routes_uncast_votes() else votes.dense(), activation)

    def evidence(self, u: Tensor | Capsules, activation: Tensor | None = None) -> Evidence:
        """What each child contributed to each parent; arguments as of a call. All votes are held at once.

        Raises:
            PaircapsError: if the routing does not say.
        """
        votes, activation = self._ballot(u, activation)
        if not isinstance(self.routing, Routing):
            raise PaircapsError(
                f"{type(self.routing).__name__} is no Routing: it does not say what children contributed"
            )
        return self.routing.evidence(votes.dense(), activation)

    def _ballot(self, u: Tensor | Capsules, activation: Tensor | None) -> tuple[Votes, Tensor | None]:
        """The votes of children whose shape is right, not cast yet, and the children's activations."""
        if isinstance(u, Capsules):
            if activation is not None:
                raise ValueError("activation was given twice: Capsules carry their own")
            u, activation = u.s, u.activation
        require_tensor("u", u, "(..., children, in_dim)", 2)
        if tuple(u.shape[-2:]) != (self.in_capsules, self.in_dim):
            raise ValueError(
                f"expected {self.in_capsules} child capsules of {self.in_dim}, shape (..., {self.in_capsules}, "
                f"{self.in_dim}), got {shape_of(u)}"
            )
        return Votes(u, self.votes, self.norm, self.streaming, self.tile), activation

    def _routes_uncast_votes(self) -> bool:
        """A module of another kind, one with a forward of its own, and hooks that look on expect a tensor."""
        routing = self.routing
        return (
            self.streaming is not False
            and isinstance(routing, Routing)
            and type(routing).forward is Routing.forward
            and not is_watched(routing)
        )

    def extra_repr(self) -> str:
        """Sizes, for print(model)."""
        chosen = "" if self.streaming == "auto" else f", streaming={self.streaming}"
        chosen += "" if self.tile is None else f", tile={self.tile}"
        return f"{self.in_capsules}×{self.in_dim} -> {self.out_capsules}×{self.pose_dim}{chosen}"
