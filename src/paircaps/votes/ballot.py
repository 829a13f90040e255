"""Votes as a routing sees them: dense if it must look at each, sums over the children if those are enough."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from paircaps._precision import HALF, in_full_precision
from paircaps.norm import FoldingNorm
from paircaps.votes.layout import TILE_BYTES
from paircaps.votes.operators import vote_statistics, vote_sums
from paircaps.votes.transforms import LinearVotes

STREAMING = ("auto", True, False)

LEAST_BATCH = 8
"""Images from which on streaming pays: with fewer, rows of a tile are shorter than a vector register or two."""


class Votes:
    """The votes of a layer, which need not exist.

    Args:
        u: child capsules, (..., I, K_in).
        transform: to votes.
        norm: batch norm of the votes, or an identity.
        streaming: whether sums are gathered tile by tile; ``"auto"`` does so where it pays.
        tile: children in a tile; None takes :func:`paircaps.votes.tile_children`.
    """

    def __init__(
        self,
        u: Tensor,
        transform: nn.Module,
        norm: nn.Module,
        streaming: bool | str = "auto",
        tile: int | None = None,
    ) -> None:
        self.u, self.norm = u, norm
        self.transform = cast(LinearVotes, transform)  # if it is foldable
        self.streaming, self.tile = streaming, tile

    @property
    def shape(self) -> torch.Size:
        """(..., I, J, K)."""
        _, parents, _, columns = self.transform.weight.shape
        return torch.Size((*self.u.shape[:-1], parents, self.transform.rows * columns))

    @property
    def dtype(self) -> torch.dtype:
        """Of what a routing makes of them: that of the children, and float32 under autocast."""
        autocast = torch.is_autocast_enabled(self.u.device.type)
        return torch.float32 if autocast and self.u.dtype in HALF else self.u.dtype

    @property
    def foldable(self) -> bool:
        """Whether sums over them may be taken without casting all of them.

        Not if streaming is off, if somebody put another module in the place of the transform or the norm, or if hooks
        look at what these return.
        """
        known = isinstance(self.transform, LinearVotes) and (
            isinstance(self.norm, nn.Identity) or hasattr(self.norm, "fold")
        )
        return (
            self.streaming is not False
            and known
            and not any(
                part._forward_hooks or part._forward_pre_hooks or part._backward_hooks or part._backward_pre_hooks
                for part in (self.transform, self.norm)
            )
        )

    @property
    def walk_pays(self) -> bool:
        """Whether a walk over tiles is better than dense votes, or was asked for."""
        if self.streaming is True:
            return True
        if torch.compiler.is_exporting() or torch.jit.is_tracing():  # pyright: ignore[reportPrivateImportUsage]
            return False  # what is exported must run where this library is not
        batch = self.u.shape[:-2].numel()
        return batch >= LEAST_BATCH and 4 * self.shape.numel() > TILE_BYTES

    def dense(self) -> Tensor:
        """All of them, (..., I, J, K)."""
        return self.norm(self.transform(self.u))

    def sums(self, *, normalize: bool) -> tuple[Tensor, Tensor]:
        """Σû and Σû² over the children, (..., J, K) each; see :func:`paircaps.functional.vote_sums`."""
        u, weight, rows = self._flat(), self.transform.weight, self.transform.rows
        scale, shift = self._affine(u)
        total, squares = vote_sums(u, weight, scale, shift, rows, normalize, self.tile)
        return self._unflat(total), self._unflat(squares)

    def total(self) -> Tensor:
        """Σû over the children, (..., J, K): one matrix product, for it does not matter which child said what."""
        u, weight, rows = self._flat(), self.transform.weight, self.transform.rows
        scale, shift = self._affine(u)
        return self._unflat(total_vote(u, weight, rows, scale, shift))

    def _flat(self) -> Tensor:
        """(B, I, K_in)."""
        weight = self.transform.weight
        if self.u.dtype != weight.dtype and not torch.is_autocast_enabled(self.u.device.type):
            raise TypeError(f"child capsules are {self.u.dtype} and the vote weights {weight.dtype}; convert one")
        return self.u.reshape(-1, *self.u.shape[-2:])

    def _unflat(self, capsules: Tensor) -> Tensor:
        """(B, J, K) with the leading axes as they came."""
        return capsules.reshape(*self.u.shape[:-2], *capsules.shape[1:])

    def _affine(self, u: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """Batch norm as scale and shift of each vote; training statistics are those of this batch."""
        if isinstance(self.norm, nn.Identity):
            return None, None
        norm = cast(FoldingNorm, self.norm)
        per_vote = len(norm.shape) == 3
        children, parents = self.transform.weight.shape[:2]
        count = u.shape[0] * (1 if per_vote else children * parents)
        return norm.fold(lambda: vote_statistics(u, self.transform.weight, self.transform.rows, per_vote), count)


@in_full_precision
def total_vote(u: Tensor, weight: Tensor, rows: int, scale: Tensor | None, shift: Tensor | None) -> Tensor:
    """Σ_i (g ⊙ u_i W_i + h) for every parent, (B, J, K).

    Args:
        u: children, (B, I, P·Q).
        weight: (I, J, Q, R).
        rows: P.
        scale: g, (K,), (I, J, K) or None.
        shift: h, of the same shape.
    """
    U = u.unflatten(-1, (rows, -1))
    if scale is None or shift is None:
        return torch.einsum("bipq,ijqr->bjpr", U, weight).flatten(-2)
    if scale.dim() == 1:
        total = torch.einsum("bipq,ijqr->bjpr", U, weight).flatten(-2)
        return total * scale + u.shape[1] * shift
    folded = weight.unsqueeze(2) * scale.unflatten(-1, (rows, 1, -1))  # (I, J, P, Q, R)
    return torch.einsum("bipq,ijpqr->bjpr", U, folded).flatten(-2) + shift.sum(0)
