"""Capsule layer: child capsules to votes to parent capsules."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from paircaps._utils.checks import require_choice, require_positive, require_shape, require_tensor, shape_of
from paircaps.functional import Capsules
from paircaps.layers.norms import MOMENTUM, create_vote_norm
from paircaps.routing import Evidence, Routing, RoutingFactory, create_routing, layer_sizes
from paircaps.votes import LazyVotes, create_transform

SHARES = ("position", "all", None)
"""Values of ``share``: vote matrices are the same at all positions, the same for all children, or each child's own."""


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

    Children may lie on a grid, as primary capsules do: (..., H, W, kinds, K_in). ``share="position"`` then lets all
    positions share their vote matrices, so that what was learned at one place is known at all others.

    >>> layer = CapsuleLayer((7, 7, 4), 10, share="position", coordinates="add")
    >>> layer(torch.randn(8, 7, 7, 4, 16)).activation.shape
    torch.Size([8, 10])
    >>> layer(torch.randn(8, 9, 12, 4, 16)).activation.shape  # any other grid
    torch.Size([8, 10])

    With ``share="all"`` there is one matrix for each parent, which all children are multiplied by, on a grid or in a
    row: û_ij = u_i W_j, as in the Aff-CapsNets of Gu and Tresp (2020).

    Args:
        in_capsules: I, the number of children; or (H, W, kinds) if they lie on a grid of (..., H, W, kinds, K_in). A
            layer whose children have matrices of their own takes them in one row, (..., I, K_in), as well.
        out_capsules: J, the number of parents.
        pose_dim: K, the dimensions of a parent.
        in_dim: K_in, the dimensions of a child; None means ``pose_dim``.
        routing: a registered name, a factory called with ``out_capsules`` and the sizes that it asks for
            (:attr:`paircaps.Routing.layer_sizes`), or a routing that is built already.
        transform: ``"matrix"``, K weights a pair, or ``"vector"``, K_in · K weights a pair.
        vote_norm: batch norm of the votes per pose dimension (``"pose"``), per vote (``"vote"``), or None.
        routing_options: options of the routing, if it is built here.
        streaming: whether the votes of the whole batch are avoided: FM agreement sums them tile by tile, dynamic and EM
            routing take a few images at a time. ``"auto"`` does what is fastest, True always avoids them, False never.
        tile: children in a tile; None takes :func:`paircaps.votes.tile_children`.
        share: ``"position"`` gives children of one kind the same vote matrices at all positions of the grid; the layer
            then takes grids of any other height and width too. ``"all"`` gives all children the same ones, and takes
            such grids as well, or a row of I children. None gives every child matrices of its own.
        coordinates: where positions of a grid share their matrices, ``"add"`` adds the row and the column of a child's
            position, from 0 to 4, to two entries of its votes after their batch norm; ``"learned"`` adds them with
            learned weights to all entries; None leaves them out.
        start: size of the first vote matrices, ``"layer"`` or ``"capsule"``; see
            :func:`paircaps.votes.create_transform`.
        norm_momentum: weight of a new batch in the running statistics of the batch norm.
    """

    def __init__(
        self,
        in_capsules: int | tuple[int, int, int],
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
        share: str | None = None,
        coordinates: str | None = None,
        start: str = "layer",
        norm_momentum: float = MOMENTUM,
    ) -> None:
        super().__init__()
        require_choice("share", share, SHARES)
        self.grid = grid_of_capsules("in_capsules", in_capsules) if isinstance(in_capsules, tuple | list) else None
        if self.grid is None and share == "position":
            raise ValueError(
                f"share={share!r} needs children on a grid: in_capsules=(height, width, kinds), got {in_capsules!r}"
            )
        if coordinates is not None and share is None:
            raise ValueError(
                f'coordinates={coordinates!r} needs share="position": else each child has its own matrices'
            )
        if coordinates is not None and self.grid is None:
            raise ValueError(f"coordinates={coordinates!r} needs children on a grid, got in_capsules={in_capsules!r}")
        children: Any = in_capsules if self.grid is None else math.prod(self.grid)
        self.streaming, self.tile, self.share = streaming, require_streaming(streaming, tile, children), share
        self.in_capsules: int = children
        self.out_capsules = out_capsules
        self.pose_dim = pose_dim
        self.in_dim = pose_dim if in_dim is None else in_dim
        require_positive(in_capsules=children)
        voters = children  # children with matrices of their own
        if share is not None:
            voters = self.grid[2] if self.grid is not None and share == "position" else 1
        positions = None if share is None else children // voters
        sizes = (voters, out_capsules, self.in_dim, pose_dim)
        self.votes = create_transform(transform, *sizes, positions, coordinates, start)
        self.norm = create_vote_norm(vote_norm, voters, out_capsules, pose_dim, norm_momentum)
        of_layer = {"in_capsules": voters, "in_dim": self.in_dim, "pose_dim": pose_dim}
        self.routing = build_routing(routing, out_capsules, routing_options, streaming, of_layer)

    def forward(self, u: Tensor | Capsules, activation: Tensor | None = None) -> Capsules:
        """Parent capsules of child capsules.

        Args:
            u: child capsules, (..., I, K_in), or (..., H, W, kinds, K_in) on a grid; or the output of the layer below.
            activation: activations of the children, (..., I), or (..., H, W, kinds) on a grid, where ``u`` is a tensor;
                None stands for all ones.

        Returns:
            Capsules of (..., J, K), (..., J, K) and (..., J).
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
            shares of the children in the activations of the parents, and what they were computed from.

        Raises:
            PaircapsError: if the routing does not say what children contributed.
        """
        votes, activation = self._lazy_votes(u, activation)
        return votes.evidence(self.routing, activation)

    def _lazy_votes(self, u: Tensor | Capsules, activation: Tensor | None) -> tuple[LazyVotes, Tensor | None]:
        """Lazy votes of children whose shape was checked, and the children's activations."""
        if isinstance(u, Capsules):
            if activation is not None:
                raise ValueError("activation was given twice: Capsules carry their own")
            u, activation = u.s, u.activation
        take = self._from_any_grid if self.share and self.grid else self._in_one_row
        u, activation = take(u, activation)
        return LazyVotes(u, self.votes, self.norm, self.streaming, self.tile), activation

    def _from_any_grid(self, u: Tensor, activation: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Children of a grid of any height and width, (..., H, W, kinds, K_in), and their activations, in one row."""
        assert self.grid is not None
        require_tensor("u", u, "(..., height, width, kinds, in_dim)", 4)
        if tuple(u.shape[-2:]) != (self.grid[2], self.in_dim) or 0 in u.shape[-4:-2]:
            raise ValueError(
                f"expected a grid of child capsules of {self.in_dim}, shape (..., height, width, {self.grid[2]}, "
                f"{self.in_dim}), got {shape_of(u)}"
            )
        return self.votes.from_grid(u), _folded(u, activation)[1]

    def _in_one_row(self, u: Tensor, activation: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """A fixed number of children, and their activations, in one row; they may lie on a grid."""
        require_tensor("u", u, "(..., children, in_dim)", 2)
        sizes = tuple(u.shape[-4:-1])
        on_grid = sizes == self.grid or (u.shape[-2] != self.in_capsules and math.prod(sizes) == self.in_capsules)
        if u.dim() >= 4 and on_grid and (self.grid is None or sizes == self.grid):
            u, activation = _folded(u, activation)
        expected = (self.in_capsules, self.in_dim)
        if tuple(u.shape[-2:]) != expected:
            lie = "" if self.grid is None else f", or (..., {str((*self.grid, self.in_dim))[1:]}"
            raise ValueError(
                f"expected {self.in_capsules} child capsules of {self.in_dim}, shape (..., {str(expected)[1:]}{lie}, "
                f"got {shape_of(u)}"
            )
        return u, activation

    def extra_repr(self) -> str:
        """Sizes, for print(model)."""
        chosen = "" if self.streaming == "auto" else f", streaming={self.streaming}"
        chosen += "" if self.tile is None else f", tile={self.tile}"
        children = str(self.in_capsules) if self.grid is None else "×".join(map(str, self.grid))
        return f"{children}×{self.in_dim} -> {self.out_capsules}×{self.pose_dim}{chosen}"


def require_streaming(streaming: object, tile: int | None, children: int) -> int | None:
    """Children in a tile, at most all of them; an error if ``streaming`` is none of its values or has no tiles.

    Args:
        streaming: ``"auto"``, True or False.
        tile: children in a tile, or None.
        children: number of children of a parent.
    """
    if streaming != "auto" and not isinstance(streaming, bool):  # 0 and 1 are not meant
        raise ValueError(f"streaming must be one of 'auto', True, False, got {streaming!r}")
    if tile is None:
        return None
    require_positive(tile=tile)
    if streaming is False:
        raise ValueError(f"tile={tile} is for streaming, which streaming=False turns off")
    return min(tile, children)


def build_routing(
    routing: str | RoutingFactory | nn.Module,
    out_capsules: int,
    options: dict[str, object] | None,
    streaming: bool | str,
    sizes: dict[str, int],
) -> nn.Module:
    """Routing of a layer: built here, or given.

    Args:
        routing: a registered name, a factory, or a routing that is built already.
        out_capsules: J, the number of parents of a child.
        options: options of the routing, if it is built here.
        streaming: True if the routing must do without the votes of the whole batch.
        sizes: sizes of the layer by name, of which a routing gets those that it asks for.
    """
    if not isinstance(routing, nn.Module):
        built = create_routing(routing, out_capsules, **_with_sizes(routing, options or {}, sizes))
    elif options:
        raise ValueError(f"routing_options={options} cannot change a routing that is built already")
    else:
        built = routing
        _require_fit(built, {"out_capsules": out_capsules, **sizes})
    if streaming is True and not (isinstance(built, Routing) and built.streams):
        raise ValueError(
            f"streaming=True needs a routing that can do without the votes of the whole batch; {built!r} "
            'does not say that it can: streaming="auto" gives it all votes'
        )
    return built


def _with_sizes(routing: str | RoutingFactory, options: dict[str, object], sizes: dict[str, int]) -> dict[str, object]:
    """Options of a routing with the sizes of the layer that it asks for."""
    asked = layer_sizes(routing)
    twice = [name for name in asked if name in options]
    if twice:
        raise ValueError(f"routing_options={options}: {', '.join(twice)} cannot be chosen, the layer gives its own")
    return {**options, **{name: sizes[name] for name in asked}}


def _require_fit(routing: nn.Module, sizes: dict[str, int]) -> None:
    """Refuse a routing that was built for other sizes than those of the layer."""
    if not isinstance(routing, Routing):
        return
    for name, size in sizes.items():
        own = getattr(routing, name)
        if own not in (None, size):
            of = f"{size} capsules" if name == "out_capsules" else f"{name}={size}"
            raise ValueError(f"a layer of {of} got a routing built for {own}")


def grid_of_capsules(name: str, grid: object) -> tuple[int, int, int]:
    """Height, width and kinds of a grid, or an error that names the argument."""
    if not isinstance(grid, tuple | list) or len(grid) != 3:
        raise ValueError(f"{name} must be a number of capsules, or (height, width, kinds), got {grid!r}")
    height, width, kinds = grid
    require_positive(**{f"{name}[{i}]": size for i, size in enumerate(grid)})
    return height, width, kinds


def _folded(grid: Tensor, activation: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Capsules of a grid, (..., H, W, kinds, K), and their activations in one row, (..., I, K) and (..., I): views."""
    if activation is not None:
        require_shape("activation", activation, grid.shape[:-1], f"one value per child for a grid of {shape_of(grid)}")
        activation = activation.flatten(-3)
    return grid.flatten(-4, -2), activation
