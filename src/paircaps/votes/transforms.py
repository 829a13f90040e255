"""Learned transforms from child capsules to votes."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from paircaps._utils.checks import require_choice, require_positive, square_side
from paircaps.functional import row_votes

COORDINATES = ("add", "learned", None)
"""Values of ``coordinates``: added to two entries of each vote, multiplied by learned weights, or not used."""

STARTS = ("layer", "capsule")
"""Values of ``start``: the first matrices are small by a rule over all children and parents, or over one of each."""

COORDINATE_SCALE = 4.0
"""Value that is added to a vote at the far end of the grid: as much as a vote is long after batch norm, if K is 16."""


class LinearVotes(nn.Module):
    """Base class of votes that are linear in the children: u is read as rows, each of which a matrix multiplies.

    Children that share their matrices lie on a grid, (..., H, W, kinds, K_in). Coordinates make each of them longer, by
    one column of its rows, which holds the row and the column of its position, from 0 to 1: the vote remains a product.
    Batch norm leaves that part of a vote as it is. Where all children share one matrix for each parent, each is a
    position with a single kind.

    Args:
        in_capsules: number of children with matrices of their own: all of them, the kinds that a position has, or one
            where all children have the same.
        out_capsules: J, the number of parents.
        in_dim: K_in of a child.
        pose_dim: K of a parent.
        rows: P, the rows of a child and of a vote.
        shared: whether children at all positions of a grid share these matrices.
        coordinates: ``"add"``, ``"learned"`` or None.
        deviation: standard deviation of the matrices at the start.
    """

    weight: nn.Parameter
    """Matrices of each pair of child and parent, (I or kinds, J, Q, R); a child has P·Q values, a vote P·R."""

    coordinate_weight: Tensor | None
    """Further rows of the matrices, for coordinates, (kinds, J, 1 or 2, R); None without coordinates."""

    unscaled: int
    """Number of these rows and of the further columns of a child, 0, 1 or 2. Batch norm does not scale them."""

    def __init__(
        self,
        in_capsules: int,
        out_capsules: int,
        in_dim: int,
        pose_dim: int,
        *,
        rows: int,
        shared: bool,
        coordinates: str | None,
        deviation: float,
    ) -> None:
        super().__init__()
        self.rows, self.shared, self.coordinates = rows, shared, coordinates
        columns = pose_dim // rows
        self.weight = nn.Parameter(torch.randn(in_capsules, out_capsules, in_dim // rows, columns).mul_(deviation))
        further = _coordinate_rows(rows, columns)
        self.unscaled = 0 if coordinates is None else len(further)
        if coordinates == "add":
            fixed = further.repeat(in_capsules, out_capsules, 1, 1)
            self.register_buffer("coordinate_weight", fixed, persistent=False)
        else:
            start = torch.zeros(in_capsules, out_capsules, *further.shape)
            self.coordinate_weight = nn.Parameter(start) if coordinates == "learned" else None

    @property
    def matrices(self) -> Tensor:
        """Matrices with those of the coordinates, (I or kinds, J, Q', R)."""
        if self.coordinate_weight is None:
            return self.weight
        return torch.cat([self.weight, self.coordinate_weight.to(self.weight.dtype)], dim=2)

    def from_grid(self, grid: Tensor) -> Tensor:
        """Children of a grid in one row, position by position, with their coordinates where votes have them.

        Args:
            grid: (..., H, W, kinds, K_in).

        Returns:
            (..., H·W·kinds, P·Q').
        """
        if self.coordinate_weight is None:
            return grid.flatten(-4, -2)
        height, width = grid.shape[-4:-2]
        further = position_rows(height, width, self.rows, self.unscaled).to(grid)
        further = further[:, :, None].expand(*grid.shape[:-1], *further.shape[-2:])
        return torch.cat([grid.unflatten(-1, (self.rows, -1)), further], dim=-1).flatten(-2).flatten(-4, -2)

    def without_coordinates(self, u: Tensor) -> Tensor:
        """Children (..., I, P·Q') without the columns of their coordinates, (..., I, K_in)."""
        return u.unflatten(-1, (self.rows, -1))[..., : -self.unscaled].flatten(-2) if self.unscaled else u

    def only_coordinates(self, u: Tensor) -> tuple[Tensor, Tensor]:
        """The columns of the coordinates of children (..., I, P·Q'), (..., I, P·1 or P·2), and their weights."""
        assert self.coordinate_weight is not None
        return u.unflatten(-1, (self.rows, -1))[..., -self.unscaled :].flatten(-2), self.coordinate_weight

    def coordinate_votes(self, u: Tensor) -> Tensor | float:
        """Part of the votes that comes from coordinates: (..., I, P·Q') to (..., I, J, K), or 0 without them."""
        return 0.0 if self.coordinate_weight is None else self._cast(*self.only_coordinates(u))

    def forward(self, u: Tensor) -> Tensor:
        """Votes of child capsules but for their coordinates: (..., I, K_in) to (..., I, J, K)."""
        return self._cast(u, self.weight)

    def _cast(self, u: Tensor, matrices: Tensor) -> Tensor:
        if not self.shared:
            return row_votes(u, matrices, self.rows)
        return row_votes(u.unflatten(-2, (-1, len(matrices))), matrices, self.rows).flatten(-4, -3)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> LinearVotes:
        super()._apply(fn, recurse)
        # .to(memory_format=torch.channels_last) takes the four axes for those of a convolution
        for values in (self.weight, self.coordinate_weight):
            if values is not None:
                values.data = values.data.contiguous()
        return self

    def extra_repr(self) -> str:
        """Shape of the weight, for print(model)."""
        among = "children" if len(self.weight) == 1 else "positions"
        shared = f", shared by all {among}" if self.shared else ""
        coordinates = "" if self.coordinates is None else f", coordinates={self.coordinates!r}"
        return f"weight={tuple(self.weight.shape)}{shared}{coordinates}"


def _coordinate_rows(rows: int, columns: int) -> Tensor:
    """Rows of a matrix that add coordinates to two entries of a vote, (1 or 2, R).

    A vote of several rows gets the row of the position at the end of its first row and the column at the end of its
    second, as matrix capsules do. A vote of one row gets them in its first two entries.
    """
    return COORDINATE_SCALE * (torch.eye(2, columns) if rows == 1 else torch.eye(columns)[-1:])


def position_rows(height: int, width: int, rows: int, columns: int) -> Tensor:
    """Row and column of every position of a grid, from 0 to 1, laid out as further columns of a child.

    Args:
        height: rows of the grid.
        width: columns of the grid.
        rows: P, the rows of a child.
        columns: number of further columns: 1, or 2 where a child has one row.

    Returns:
        (H, W, P, columns), with zeros behind the two coordinates.
    """
    sides = ((torch.arange(side) + 0.5) / side for side in (height, width))
    place = torch.stack(torch.meshgrid(*sides, indexing="ij"), -1)  # (H, W, 2)
    return F.pad(place, (0, rows * columns - 2)).view(height, width, rows, columns)


class MatrixVotes(LinearVotes):
    """Votes by a √K × √K matrix for each pair of child and parent: K weights a pair (Algorithm 2).

    Args:
        in_capsules: number of children, or kinds of them where positions share their matrices.
        out_capsules: J, the number of parents.
        in_dim: K_in of a child; must equal ``pose_dim``.
        pose_dim: K of a parent, a square number.
        positions: positions that share these matrices, if any do; their number matters at the start only.
        coordinates: ``"add"``, ``"learned"`` or None.
        start: ``"layer"`` or ``"capsule"``; see :func:`create_transform`.
    """

    def __init__(
        self,
        in_capsules: int,
        out_capsules: int,
        in_dim: int,
        pose_dim: int,
        positions: int | None = None,
        coordinates: str | None = None,
        start: str = "layer",
    ) -> None:
        side = square_side(pose_dim)
        if in_dim != pose_dim:
            raise ValueError(
                f"matrix votes keep the pose dimension, got in_dim={in_dim} and pose_dim={pose_dim}; "
                'transform="vector" takes any pair'
            )
        if coordinates is not None and side < 2:
            raise ValueError(f"coordinates need votes of two entries, got pose_dim={pose_dim}")
        fan = side if start == "capsule" else in_capsules * (positions or 1) * out_capsules * side
        super().__init__(
            in_capsules,
            out_capsules,
            in_dim,
            pose_dim,
            rows=side,
            shared=positions is not None,
            coordinates=coordinates,
            deviation=_glorot_deviation(fan, fan),
        )


class VectorVotes(LinearVotes):
    """Votes by a full K_in × K matrix for each pair of child and parent, as in the first CapsNet.

    Args:
        in_capsules: number of children, or kinds of them where positions share their matrices.
        out_capsules: J, the number of parents.
        in_dim: K_in of a child.
        pose_dim: K of a parent.
        positions: positions that share these matrices, if any do; their number matters at the start only.
        coordinates: ``"add"``, ``"learned"`` or None.
        start: ``"layer"`` or ``"capsule"``; see :func:`create_transform`.
    """

    def __init__(
        self,
        in_capsules: int,
        out_capsules: int,
        in_dim: int,
        pose_dim: int,
        positions: int | None = None,
        coordinates: str | None = None,
        start: str = "layer",
    ) -> None:
        if coordinates is not None and pose_dim < 2:
            raise ValueError(f"coordinates need votes of two entries, got pose_dim={pose_dim}")
        children = in_capsules * (positions or 1)
        fans = (in_dim, pose_dim) if start == "capsule" else (children * in_dim, children * out_capsules * pose_dim)
        super().__init__(
            in_capsules,
            out_capsules,
            in_dim,
            pose_dim,
            rows=1,
            shared=positions is not None,
            coordinates=coordinates,
            deviation=_glorot_deviation(*fans),
        )


TRANSFORMS: dict[str, type[MatrixVotes] | type[VectorVotes]] = {"matrix": MatrixVotes, "vector": VectorVotes}


def create_transform(
    transform: str,
    in_capsules: int,
    out_capsules: int,
    in_dim: int,
    pose_dim: int,
    positions: int | None = None,
    coordinates: str | None = None,
    start: str = "layer",
) -> LinearVotes:
    """Build the learned transform from child capsules to votes.

    >>> transform = create_transform("matrix", 64, 10, in_dim=16, pose_dim=16)
    >>> transform(torch.randn(8, 64, 16)).shape
    torch.Size([8, 64, 10, 16])

    Args:
        transform: ``"matrix"`` for :class:`MatrixVotes`, ``"vector"`` for :class:`VectorVotes`.
        in_capsules: number of children, or kinds of them where positions share their matrices.
        out_capsules: J, the number of parents.
        in_dim: K_in of a child.
        pose_dim: K of a parent.
        positions: positions that share their matrices; None if every child has matrices of its own.
        coordinates: ``"add"``, ``"learned"`` or None; only where positions share their matrices.
        start: size of the first matrices: ``"layer"``, by Glorot and Bengio's rule over the whole layer, as in the
            published runs, or ``"capsule"``, by the same rule over one child and one parent. Where batch norm follows,
            votes are the same; but a step of Adam turns small matrices much further than large ones.
    """
    require_choice("transform", transform, TRANSFORMS)
    require_choice("coordinates", coordinates, COORDINATES)
    require_choice("start", start, STARTS)
    require_positive(in_capsules=in_capsules, out_capsules=out_capsules, pose_dim=pose_dim, in_dim=in_dim)
    return TRANSFORMS[transform](in_capsules, out_capsules, in_dim, pose_dim, positions, coordinates, start)


def _glorot_deviation(fan_in: int, fan_out: int) -> float:
    """Glorot and Bengio's rule over the whole kernel, as the published runs apply it: variance 2 / (fan_in + fan_out).

    Much smaller than the rule for one pair's matrix, and it matters: dynamic routing saturates before its first step
    on votes of length one or more. See LOG.md.
    """
    return (2 / (fan_in + fan_out)) ** 0.5
