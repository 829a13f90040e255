"""Votes as a routing sees them: dense if it must look at each, sums over the children if those are enough."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from paircaps._utils.precision import HALF, autocast_enabled, in_full_precision
from paircaps.functional import Capsules
from paircaps.votes.fold_norm import FoldingNorm, ScaleAndShift, fold_weights
from paircaps.votes.layout import TILE_BYTES, full_precision, slices, tile_images
from paircaps.votes.operators import vote_statistics, vote_sums
from paircaps.votes.transforms import LinearVotes, MatrixVotes, VectorVotes

LEAST_BATCH = 8
"""Images from which on streaming pays: with fewer, rows of a tile are shorter than a vector register or two."""


FEWEST_PIECES = 4
"""Of a batch, for which routing a few images at a time is faster than all at once."""

Agree = Callable[[Tensor, Tensor | None], Capsules]
"""A routing of dense votes and child activations."""


def same_owner(thing: object, method: str, shortcut: str) -> bool:
    """Whether a shortcut still is one: nobody has overridden the method below the class that has both."""
    kinds = type(thing).__mro__
    owners = [next((kind for kind in kinds if name in vars(kind)), None) for name in (method, shortcut)]
    return owners[0] is owners[1] is not None


def is_watched(module: nn.Module) -> bool:
    """Whether hooks look at what a module takes and returns."""
    return bool(
        module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks
    )


class LazyVotes:
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
        return torch.float32 if autocast_enabled(self.u) and self.u.dtype in HALF else self.u.dtype

    @property
    def foldable(self) -> bool:
        """Whether sums over them may be taken without casting all of them.

        Not if streaming is off, on the way to an export, which must run where this library is not, if somebody put
        another module in the place of the transform or the norm, or if hooks look at what these return.
        """
        if self.streaming is False or torch.compiler.is_exporting() or torch.jit.is_tracing():  # pyright: ignore
            return False
        linear = type(self.transform).forward in (MatrixVotes.forward, VectorVotes.forward)
        folds = isinstance(self.norm, nn.Identity) or same_owner(self.norm, "forward", "fold")
        return linear and folds and not (is_watched(self.transform) or is_watched(self.norm))

    @property
    def walk_pays(self) -> bool:
        """Whether a walk over tiles is better than dense votes, or was asked for."""
        if self.streaming is True:
            return True
        return self._images >= LEAST_BATCH and 4 * self.shape.numel() > TILE_BYTES

    @property
    def _images(self) -> int:
        """B, all leading axes together."""
        return self.u.shape[:-2].numel()

    def dense(self) -> Tensor:
        """All of them, (..., I, J, K)."""
        return self.norm(self.transform(self.u))

    def sums(self, *, normalize: bool) -> tuple[Tensor, Tensor]:
        """Σû and Σû² over the children, (..., J, K) each; see :func:`paircaps.functional.vote_sums`."""
        u, weight, rows = self._flat(), self.transform.weight, self.transform.rows
        scale, shift = self._affine(u)
        total, squares = vote_sums(u, weight, scale, shift, rows, normalize, self.tile)
        return self._unflat(total), self._unflat(squares)

    def by_image(self, agree: Agree, activation: Tensor | None) -> Capsules:
        """A routing that must see all votes of an image, given a few images at a time: they stay in the cache.

        Where streaming was asked for, the backward pass casts them anew, so that those of the whole batch are never
        there; that takes longer, so ``"auto"`` keeps them.

        Args:
            agree: from dense votes, (b, I, J, K), and activations, (b, I) or None, to capsules.
            activation: of the children, (..., I), or None.
        """
        size = tile_images(*self.shape[-3:])
        fast_dense = torch.compiler.is_compiling() or self._images <= FEWEST_PIECES * size
        if self._images == 0 or not self.walk_pays or (fast_dense and self.streaming is not True):
            return agree(self.dense(), activation)
        u = self._flat()
        weight = self._folded(u)
        again = self.streaming is True and torch.is_grad_enabled()

        def route(u: Tensor, weight: Tensor, activation: Tensor | None) -> Capsules:
            return agree(few_votes(u, weight, self.transform.rows, self.shape[-2]), activation)

        parts = []
        rest = activation if activation is None else activation.reshape(-1, activation.shape[-1])
        for images in slices(len(u), size):
            few = u[images], weight, None if rest is None else rest[images]
            parts.append(checkpoint(route, *few, use_reentrant=False) if again else route(*few))
        whole = (torch.cat(part) for part in zip(*parts, strict=True))
        return Capsules(*(self._unflat(part) for part in whole))

    def total(self) -> Tensor:
        """Σû over the children, (..., J, K): one matrix product, for it does not matter which child said what."""
        u, weight, rows = self._flat(), self.transform.weight, self.transform.rows
        scale, shift = self._affine(u)
        return self._unflat(total_vote(u, weight, rows, scale, shift))

    def _flat(self) -> Tensor:
        """(B, I, K_in)."""
        weight = self.transform.weight
        if self.u.dtype != weight.dtype and not autocast_enabled(self.u):
            raise TypeError(f"child capsules are {self.u.dtype} and the vote weights {weight.dtype}; convert one")
        return self.u.reshape(-1, *self.u.shape[-2:])

    def _folded(self, u: Tensor) -> Tensor:
        """All weights with batch norm in them, (I·P, Q', J·R)."""
        scale, shift = self._affine(u)
        rows, weight = self.transform.rows, self.transform.weight
        affine = None if scale is None or shift is None else ScaleAndShift(scale, shift, rows)
        return fold_weights(weight, affine, slice(weight.shape[0]), slice(weight.shape[1]), rows)

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


@in_full_precision
def few_votes(u: Tensor, weight: Tensor, rows: int, parents: int) -> Tensor:
    """Dense votes of a few images from folded weights.

    Args:
        u: children, (b, I, P·Q).
        weight: (I·P, Q or Q + 1, J·R), the last row of Q + 1 being what is added.
        rows: P.
        parents: J.

    Returns:
        votes, (b, I, J, K).
    """
    U = u.to(full_precision(u.dtype)).unflatten(-1, (rows, -1))  # (b, I, P, Q)
    if weight.shape[1] > U.shape[-1]:
        U = F.pad(U, (0, 1), value=1.0)
    columns = U.permute(1, 2, 0, 3).flatten(0, 1)  # (I·P, b, Q')
    votes = torch.bmm(columns, weight).view(-1, rows, len(u), parents, weight.shape[2] // parents)  # (I, P, b, J, R)
    return votes.permute(2, 0, 3, 1, 4).flatten(-2)
