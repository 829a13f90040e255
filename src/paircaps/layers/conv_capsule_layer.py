"""Convolutional capsule layer: capsules on a grid to capsules on a grid, window by window."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from paircaps._utils.checks import require_positive, require_shape, require_tensor, shape_of
from paircaps.functional import Capsules
from paircaps.layers.capsule_layer import build_routing, require_streaming
from paircaps.layers.norms import MOMENTUM, create_vote_norm
from paircaps.routing import Evidence, RoutingFactory
from paircaps.votes import Windows, WindowVotes, create_transform


class ConvCapsuleLayer(nn.Module):
    """Capsules over capsules as convolutions are over channels: every parent hears the children in its window.

    All windows have the same vote matrices, one for each place in the window, kind of child and kind of parent. The
    layer takes grids of any height and width.

    >>> layers = nn.Sequential(ConvCapsuleLayer(4, 8, stride=2), ConvCapsuleLayer(8, 16))
    >>> layers(torch.randn(2, 10, 12, 4, 16)).pose.shape
    torch.Size([2, 2, 3, 16, 16])

    Args:
        in_kinds: kinds of children: so many lie at each position.
        out_kinds: kinds of parents.
        kernel_size: rows and columns of a window.
        stride: distance of neighbouring windows.
        padding: rows and columns around the grid that windows may reach into; nobody votes there.
        pose_dim: K, the dimensions of a parent.
        in_dim: K_in, the dimensions of a child; None means ``pose_dim``.
        routing: a registered name, a factory called with ``out_kinds`` and the sizes that it asks for
            (:attr:`paircaps.Routing.layer_sizes`), or a routing that is built already.
        transform: ``"matrix"``, K weights a pair, or ``"vector"``, K_in · K weights a pair.
        vote_norm: batch norm of the votes per pose dimension (``"pose"``), per place, kinds and pose dimension
            (``"vote"``), or None.
        routing_options: options of the routing, if it is built here.
        streaming: whether the votes of the whole batch are avoided; see CapsuleLayer. FM agreement then adds up windows
            without copying them out.
        tile: children in a tile; None takes :func:`paircaps.votes.tile_children`.
        start: size of the first vote matrices, ``"layer"`` or ``"capsule"``; see
            :func:`paircaps.votes.create_transform`.
        norm_momentum: weight of a new batch in the running statistics of the batch norm.
    """

    def __init__(
        self,
        in_kinds: int,
        out_kinds: int,
        kernel_size: int = 3,
        stride: int = 1,
        padding: int = 0,
        pose_dim: int = 16,
        in_dim: int | None = None,
        routing: str | RoutingFactory | nn.Module = "fm",
        transform: str = "matrix",
        vote_norm: str | None = "pose",
        *,
        routing_options: dict[str, object] | None = None,
        streaming: bool | str = "auto",
        tile: int | None = None,
        start: str = "layer",
        norm_momentum: float = MOMENTUM,
    ) -> None:
        super().__init__()
        require_positive(in_kinds=in_kinds, out_kinds=out_kinds)
        self.windows = Windows(kernel_size, stride, padding)
        children = self.windows.places * in_kinds
        self.streaming, self.tile = streaming, require_streaming(streaming, tile, children)
        self.in_kinds, self.out_kinds = in_kinds, out_kinds
        self.pose_dim = pose_dim
        self.in_dim = pose_dim if in_dim is None else in_dim
        self.votes = create_transform(transform, children, out_kinds, self.in_dim, pose_dim, start=start)
        self.norm = create_vote_norm(vote_norm, children, out_kinds, pose_dim, norm_momentum)
        of_layer = {"in_capsules": children, "in_dim": self.in_dim, "pose_dim": pose_dim}
        self.routing = build_routing(routing, out_kinds, routing_options, streaming, of_layer)

    def out_size(self, in_size: tuple[int, int]) -> tuple[int, int]:
        """Height and width of the parents' grid.

        Args:
            in_size: height and width of the children's grid.
        """
        height, width = self.windows.parents(*in_size)
        if height < 1 or width < 1:
            raise ValueError(
                f"a grid of {in_size[0]}×{in_size[1]} capsules is too small for windows of "
                f"{self.windows.side}×{self.windows.side} with padding {self.windows.padding}"
            )
        return height, width

    def forward(self, u: Tensor | Capsules, activation: Tensor | None = None) -> Capsules:
        """Parent capsules of child capsules.

        Args:
            u: child capsules, (..., H, W, in_kinds, K_in), or the output of the layer below.
            activation: activations of the children, (..., H, W, in_kinds), where ``u`` is a tensor; None stands for all
                ones.

        Returns:
            Capsules of (..., H', W', out_kinds, K), the same, and (..., H', W', out_kinds).
        """
        votes, activation = self._lazy_votes(u, activation)
        return votes.route(self.routing, activation)

    def votes_shape(self, u: Tensor | Capsules, activation: Tensor | None = None) -> torch.Size:
        """Shape that the votes of child capsules would have all at once, the last axes children, parents and pose.

        Args:
            u: child capsules, as for a call.
            activation: activations of the children, as for a call.
        """
        return self._lazy_votes(u, activation)[0].shape

    def evidence(self, u: Tensor | Capsules, activation: Tensor | None = None) -> Evidence:
        """Contribution of each child to each parent, for explanations. All votes are held in memory at once.

        Args:
            u: child capsules, as for a call.
            activation: activations of the children, as for a call.

        Returns:
            evidence with shares, and couplings where the routing has them, of (..., H·W·in_kinds, H'·W'·out_kinds),
            zero between a parent and the children outside its window; votes and metric are those of the windows,
            (..., H', W', I, out_kinds, K) and (..., H', W', out_kinds, K).

        Raises:
            PaircapsError: if the routing does not say what children contributed.
        """
        votes, activation = self._lazy_votes(u, activation)
        found = votes.evidence(self.routing, activation)
        size = (votes.u.shape[-4], votes.u.shape[-3])
        share, coupling = (
            None if part is None else self._between_grids(part, size) for part in (found.share, found.coupling)
        )
        assert share is not None
        return Evidence(share, coupling, found.weighted, found.metric)

    def _between_grids(self, values: Tensor, size: tuple[int, int]) -> Tensor:
        """Values of windows, (..., H', W', I, J), between all children and parents, (..., H·W·kinds, H'·W'·J)."""
        rows, columns = self.out_size(size)
        leading = values.shape[:-4]
        values = values.reshape(-1, rows, columns, self.windows.places, self.in_kinds, self.out_kinds)
        between = values.new_zeros(len(values), *size, self.in_kinds, rows, columns, self.out_kinds)
        for place, children, parents in self.windows.shifts(*size, rows=1):
            row = parents[0].start
            for offset, column in enumerate(range(parents[1].start, parents[1].stop)):
                child = children[0].start, children[1].start + offset * self.windows.stride
                between[:, child[0], child[1], :, row, column] = values[:, row, column, place]
        return between.flatten(4).flatten(1, 3).unflatten(0, leading)

    def _lazy_votes(self, u: Tensor | Capsules, activation: Tensor | None) -> tuple[WindowVotes, Tensor | None]:
        """Lazy votes of children whose shape was checked, and the children's activations."""
        if isinstance(u, Capsules):
            if activation is not None:
                raise ValueError("activation was given twice: Capsules carry their own")
            u, activation = u.s, u.activation
        require_tensor("u", u, "(..., height, width, kinds, in_dim)", 4)
        if u.dim() < 4 or tuple(u.shape[-2:]) != (self.in_kinds, self.in_dim):
            raise ValueError(
                f"expected a grid of {self.in_kinds} kinds of child capsules of {self.in_dim}, shape (..., height, "
                f"width, {self.in_kinds}, {self.in_dim}), got {shape_of(u)}"
            )
        self.out_size((u.shape[-4], u.shape[-3]))
        if activation is not None:
            require_shape("activation", activation, u.shape[:-1], f"one value per child for a grid of {shape_of(u)}")
        return WindowVotes(u, self.votes, self.norm, self.windows, self.streaming, self.tile), activation

    def extra_repr(self) -> str:
        """Sizes, for print(model)."""
        windows = f"{self.windows.side}×{self.windows.side} stride={self.windows.stride} padding={self.windows.padding}"
        return f"{self.in_kinds}×{self.in_dim} -> {self.out_kinds}×{self.pose_dim}, windows {windows}"
