"""Learned transforms from child capsules to votes."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from paircaps._utils.checks import require_choice, require_positive, square_side
from paircaps.functional import matrix_votes, vector_votes


class LinearVotes(nn.Module):
    """Base class of votes that are linear in the children: u is read as rows, each of which a matrix multiplies."""

    rows: int
    """P, the rows of a child and of a vote."""

    positions: int = 1
    """Number of positions that share their matrices; 1 if every child has matrices of its own.

    Votes that are shared can be cast from any other number of positions too.
    """

    weight: nn.Parameter
    """Matrices of each pair of child and parent, (I / positions, J, Q, R); a child has P·Q values, a vote P·R."""

    def weights(self, children: int) -> Tensor:
        """Matrices of any number of children, those of shared positions repeated.

        Args:
            children: I, the number of children, which are ordered position by position.

        Returns:
            (I, J, Q, R).
        """
        return self.weight if self.positions == 1 else self.weight.repeat(children // len(self.weight), 1, 1, 1)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> LinearVotes:
        super()._apply(fn, recurse)
        # .to(memory_format=torch.channels_last) takes the four axes for those of a convolution
        self.weight.data = self.weight.data.contiguous()
        return self

    def extra_repr(self) -> str:
        """Shape of the weight, for print(model)."""
        shared = "" if self.positions == 1 else f", shared by {self.positions} positions"
        return f"weight={tuple(self.weight.shape)}{shared}"


class MatrixVotes(LinearVotes):
    """Votes by a √K × √K matrix for each pair of child and parent: K weights a pair (Algorithm 2).

    Args:
        in_capsules: I, the number of children.
        out_capsules: J, the number of parents.
        in_dim: K_in of a child; must equal ``pose_dim``.
        pose_dim: K of a parent, a square number.
        positions: number of positions that share their matrices, which divides ``in_capsules``.
    """

    def __init__(self, in_capsules: int, out_capsules: int, in_dim: int, pose_dim: int, positions: int = 1) -> None:
        super().__init__()
        side = square_side(pose_dim)
        if in_dim != pose_dim:
            raise ValueError(
                f"matrix votes keep the pose dimension, got in_dim={in_dim} and pose_dim={pose_dim}; "
                'transform="vector" takes any pair'
            )
        self.rows, self.positions = side, positions
        fan = in_capsules * out_capsules * side
        self.weight = nn.Parameter(_glorot_normal((in_capsules // positions, out_capsules, side, side), fan, fan))

    def forward(self, u: Tensor) -> Tensor:
        """Votes of child capsules: (..., I, K) to (..., I, J, K)."""
        return matrix_votes(u, self.weights(u.shape[-2]))


class VectorVotes(LinearVotes):
    """Votes by a full K_in × K matrix for each pair of child and parent, as in the first CapsNet.

    Args:
        in_capsules: I, the number of children.
        out_capsules: J, the number of parents.
        in_dim: K_in of a child.
        pose_dim: K of a parent.
        positions: number of positions that share their matrices, which divides ``in_capsules``.
    """

    def __init__(self, in_capsules: int, out_capsules: int, in_dim: int, pose_dim: int, positions: int = 1) -> None:
        super().__init__()
        self.rows, self.positions = 1, positions
        fan_in, fan_out = in_capsules * in_dim, in_capsules * out_capsules * pose_dim
        shape = (in_capsules // positions, out_capsules, in_dim, pose_dim)
        self.weight = nn.Parameter(_glorot_normal(shape, fan_in, fan_out))

    def forward(self, u: Tensor) -> Tensor:
        """Votes of child capsules: (..., I, K_in) to (..., I, J, K)."""
        return vector_votes(u, self.weights(u.shape[-2]))


TRANSFORMS: dict[str, Callable[[int, int, int, int, int], nn.Module]] = {
    "matrix": MatrixVotes,
    "vector": VectorVotes,
}


def create_transform(
    transform: str, in_capsules: int, out_capsules: int, in_dim: int, pose_dim: int, positions: int = 1
) -> nn.Module:
    """Build the learned transform from child capsules to votes.

    >>> transform = create_transform("matrix", 64, 10, in_dim=16, pose_dim=16)
    >>> transform(torch.randn(8, 64, 16)).shape
    torch.Size([8, 64, 10, 16])

    Args:
        transform: ``"matrix"`` for :class:`MatrixVotes`, ``"vector"`` for :class:`VectorVotes`.
        in_capsules: I, the number of children.
        out_capsules: J, the number of parents.
        in_dim: K_in of a child.
        pose_dim: K of a parent.
        positions: number of positions that share their matrices; 1 if every child has matrices of its own.
    """
    require_choice("transform", transform, TRANSFORMS)
    require_positive(in_capsules=in_capsules, out_capsules=out_capsules, pose_dim=pose_dim, in_dim=in_dim)
    require_positive(positions=positions)
    if in_capsules % positions:
        raise ValueError(f"{in_capsules} children do not lie at {positions} positions, as many at each")
    return TRANSFORMS[transform](in_capsules, out_capsules, in_dim, pose_dim, positions)


def _glorot_normal(shape: tuple[int, int, int, int], fan_in: int, fan_out: int) -> Tensor:
    """Glorot and Bengio's rule over the whole kernel, as the published runs apply it: variance 2 / (fan_in + fan_out).

    Much smaller than the rule for one pair's matrix, and it matters: dynamic routing saturates before its first step
    on votes of length one or more. See LOG.md.
    """
    return torch.randn(shape).mul_((2 / (fan_in + fan_out)) ** 0.5)
