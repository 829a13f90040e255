"""Capsule layer: child capsules to votes to parent capsules."""

from __future__ import annotations

from torch import Tensor, nn

from paircaps._utils.checks import require_positive, require_tensor, shape_of
from paircaps.errors import PaircapsError
from paircaps.functional import Capsules
from paircaps.layers.norms import MOMENTUM, create_vote_norm
from paircaps.routing import Evidence, Routing, RoutingFactory, create_routing
from paircaps.votes import LazyVotes, create_transform


class CapsuleLayer(nn.Module):
    """Capsule layer: votes of the child capsules, their batch norm, and a routing to parent capsules.

    Each child capsule casts a vote for each parent, its vector times a learned matrix: what it takes the parent's
    pose to be. The routing makes parents of the votes, the more active the better their votes agree.

    Layers chain like ``nn.Linear``: the output of one is the input of the next.

    >>> import torch
    >>> from torch import nn
    >>> layers = nn.Sequential(CapsuleLayer(64, 16), CapsuleLayer(16, 10))
    >>> layers(torch.randn(8, 64, 16)).activation.shape
    torch.Size([8, 10])

    Args:
        in_capsules: I, the number of children.
        out_capsules: J, the number of parents.
        pose_dim: K, the dimensions of a parent.
        in_dim: K_in, the dimensions of a child; None means ``pose_dim``.
        routing: a registered name, a factory called with ``out_capsules``, or a routing that is built already.
        transform: ``"matrix"``, K weights a pair, or ``"vector"``, K_in · K weights a pair.
        vote_norm: batch norm of the votes per pose dimension (``"pose"``), per vote (``"vote"``), or None.
        routing_options: options of the routing, if it is built here.
        streaming: whether the votes of the whole batch are avoided: FM agreement sums them tile by tile, dynamic and EM
            routing take a few images at a time. ``"auto"`` does what is fastest, True always avoids them, False never.
        tile: children in a tile; None takes :func:`paircaps.votes.tile_children`.
        positions: number of positions at which the children lie and that share their vote matrices; children are
            ordered position by position, as PrimaryCapsules orders them. 1 gives every child matrices of its own; with
            more, the layer also takes children of any other number of positions, unless each vote has its own norm.
        norm_momentum: weight of a new batch in the running statistics of the batch norm.
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
        positions: int = 1,
        norm_momentum: float = MOMENTUM,
    ) -> None:
        super().__init__()
        if streaming != "auto" and not isinstance(streaming, bool):  # 0 and 1 are not meant
            raise ValueError(f"streaming must be one of 'auto', True, False, got {streaming!r}")
        if tile is not None:
            require_positive(tile=tile)
            if streaming is False:
                raise ValueError(f"tile={tile} is for streaming, which streaming=False turns off")
            tile = min(tile, in_capsules)
        self.streaming, self.tile, self.positions = streaming, tile, positions
        self.in_capsules = in_capsules
        self.out_capsules = out_capsules
        self.pose_dim = pose_dim
        self.in_dim = pose_dim if in_dim is None else in_dim
        self.votes = create_transform(transform, in_capsules, out_capsules, self.in_dim, pose_dim, positions)
        self.norm = create_vote_norm(vote_norm, in_capsules, out_capsules, pose_dim, norm_momentum)
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
        """Parent capsules of child capsules.

        Args:
            u: child capsules, (..., I, K_in), or the output of the layer below.
            activation: activations of the children, (..., I), where ``u`` is a tensor; None stands for all ones.

        Returns:
            Capsules of (..., J, K), (..., J, K) and (..., J).
        """
        votes, activation = self._lazy_votes(u, activation)
        return votes.route(self.routing, activation)

    def evidence(self, u: Tensor | Capsules, activation: Tensor | None = None) -> Evidence:
        """Contribution of each child to each parent, for explanations. All votes are held in memory at once.

        Args:
            u: child capsules, as for a call.
            activation: activations of the children, as for a call.

        Returns:
            shares of the children in the activations of the parents, and what they were computed from.

        Raises:
            PaircapsError: if the routing does not say what children contributed.
        """
        votes, activation = self._lazy_votes(u, activation)
        if not isinstance(self.routing, Routing):
            raise PaircapsError(
                f"{type(self.routing).__name__} is no Routing: it does not say what children contributed"
            )
        return self.routing.evidence(votes.dense(), activation)

    def _lazy_votes(self, u: Tensor | Capsules, activation: Tensor | None) -> tuple[LazyVotes, Tensor | None]:
        """Lazy votes of children whose shape was checked, and the children's activations."""
        if isinstance(u, Capsules):
            if activation is not None:
                raise ValueError("activation was given twice: Capsules carry their own")
            u, activation = u.s, u.activation
        require_tensor("u", u, "(..., children, in_dim)", 2)
        if u.shape[-1] != self.in_dim or not self._fits(u.shape[-2]):
            raise ValueError(
                f"expected {self.in_capsules} child capsules of {self.in_dim}, shape (..., {self.in_capsules}, "
                f"{self.in_dim}), got {shape_of(u)}"
            )
        return LazyVotes(u, self.votes, self.norm, self.streaming, self.tile), activation

    def _fits(self, children: int) -> bool:
        """Whether the layer has votes for so many children; shared votes are cast from any number of positions."""
        if self.positions == 1 or children == 0:
            return children == self.in_capsules
        return children % (self.in_capsules // self.positions) == 0

    def extra_repr(self) -> str:
        """Sizes, for print(model)."""
        chosen = "" if self.streaming == "auto" else f", streaming={self.streaming}"
        chosen += "" if self.tile is None else f", tile={self.tile}"
        return f"{self.in_capsules}×{self.in_dim} -> {self.out_capsules}×{self.pose_dim}{chosen}"
