"""Lazy votes of a convolutional capsule layer: each parent gets the votes of the children in its window."""

from __future__ import annotations

from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from paircaps._utils.precision import in_full_precision
from paircaps.functional import Capsules, row_votes
from paircaps.routing import Routing
from paircaps.votes.fold_norm import FoldingNorm
from paircaps.votes.lazy_votes import LazyVotes, votes_of_images
from paircaps.votes.operators import vote_statistics, vote_sums
from paircaps.votes.tiled_sums import SumArguments
from paircaps.votes.windows import Windows


class WindowVotes(LazyVotes):
    """Votes of the children in each window of a grid, computed when they are needed, as many as are needed.

    Windows are copied out only for a routing that reads the votes themselves, a few images at a time if it can.

    Batch norm has the statistics of what all children of the grid cast for all places of a window. These do not depend
    on stride and padding, and at the border nothing is counted that nobody cast.

    Args:
        u: child capsules on a grid, (..., H, W, kinds, K_in).
        transform: module from the children of one window to votes; their number is side² · kinds.
        norm: batch norm of the votes, or an identity.
        windows: the windows.
        streaming: see :class:`LazyVotes`.
        tile: see :class:`LazyVotes`.
    """

    def __init__(
        self,
        u: Tensor,
        transform: nn.Module,
        norm: nn.Module,
        windows: Windows,
        streaming: bool | str = "auto",
        tile: int | None = None,
    ) -> None:
        super().__init__(u, transform, norm, streaming, tile)
        self.windows = windows
        self.parents = windows.parents(*u.shape[-4:-2])

    @property
    def shape(self) -> torch.Size:
        """Shape of the dense votes, (..., H', W', I, J, K) with the children I of a window."""
        children, parents, _, columns = self.transform.weight.shape
        return torch.Size((*self.u.shape[:-4], *self.parents, children, parents, self.transform.rows * columns))

    @property
    def _images(self) -> int:
        """Number of all windows of all images, which are routed as images are."""
        return self.shape[:-3].numel()

    def _checked(self, routing: Routing, activation: Tensor | None) -> None:
        routing.require_shapes(self, None)  # the layer has compared the activations with the grid

    def _can_couple(self) -> bool:
        return False  # a window has no pass of its own: its children are on a grid

    # --- what a routing may get -----------------------------------------------------------------------------------

    def dense(self) -> Tensor:
        """All votes, (..., H', W', I, J, K); zero for places outside the grid."""
        u = self._flat()
        windows = self.windows.gather(u)
        if self._can_be_reduced():
            scale, shift = self._affine(u)
            votes = row_votes(windows, self.transform.matrices, self.transform.rows)
            votes = votes if scale is None or shift is None else votes * scale + shift
        else:
            votes = self.norm(self.transform(windows))
        return self._unflat(self._only_inside(votes))

    def of_children(self, activation: Tensor | None) -> Tensor | None:
        """Activations of the children of each window, (..., H', W', I): zero for places outside the grid."""
        if activation is None:
            if not self.windows.padding:
                return None
            activation = self.u.new_ones(self.u.shape[:-1])
        return self._unflat(self.windows.gather(activation.reshape(-1, *activation.shape[-3:])))

    def children(self) -> Tensor:
        """Child capsules of each window, (..., H', W', I, K_in): zero for places outside the grid."""
        return self._unflat(self.windows.gather(self._flat()))

    def sums(
        self, *, normalize: bool, softness: Tensor | None = None, weight: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Σ x û and Σ (x û)² over the children of each window, (..., H', W', J, K) each.

        Args:
            normalize: whether each vote is scaled to length one first (E4).
            softness: c of the soft normalisation (E15), or None.
            weight: x, the weight of each child (E14), (..., H, W, kinds), or None for all ones.
        """
        u, rows, matrices = self._flat(), self.transform.rows, self.transform.matrices
        weight = None if weight is None else weight.reshape(u.shape[:-1])
        window = [self.windows.side, self.windows.stride, self.windows.padding]
        total, squares = vote_sums(
            SumArguments(u, matrices, *self._affine(u), rows, normalize, self.tile, softness, weight, window)
        )
        return self._unflat(total), self._unflat(squares)

    def count(self, weight: Tensor | None) -> int | Tensor:
        """Number of children of a window, or the sum of their weights, (..., H', W')."""
        if weight is None:
            return self.shape[-3]
        flat = weight.reshape(-1, 1, *weight.shape[-3:]).sum(-1)  # (B, 1, H, W)
        everyone = flat.new_ones(1, 1, self.windows.side, self.windows.side)
        count = F.conv2d(flat, everyone, stride=self.windows.stride, padding=self.windows.padding)
        return self._unflat(count.squeeze(1))

    def total(self) -> Tensor:
        """Σû over the children of each window, (..., H', W', J, K): a convolution, since votes are linear."""
        if len(getattr(self.norm, "shape", ())) == 3:  # a scale of each vote is another kernel for each row
            return self.sums(normalize=False)[0]
        u = self._flat()
        scale, shift = self._affine(u)
        return self._unflat(
            total_of_windows(u, self.transform.matrices, self.transform.rows, self.windows, scale, shift)
        )

    def _route_piece(self, routing: Routing, u: Tensor, weight: Tensor, activation: Tensor | None) -> Capsules:
        """Route the windows of a few images, which are copied out here, so that the backward pass can do it anew."""
        windows = self.windows.gather(u)
        votes = votes_of_images(windows.flatten(0, 2), weight, self.transform.rows, self.shape[-2])
        votes = self._only_inside(votes.unflatten(0, windows.shape[:3]))
        piece = WindowVotes(u, self.transform, self.norm, self.windows)
        return routing.unfinished(votes, piece.of_children(activation), *piece.children_for(routing))

    # --- helpers --------------------------------------------------------------------------------------------------

    def _flat(self) -> Tensor:
        """Child capsules with one leading axis, (B, H, W, kinds, K_in)."""
        self._require_dtype()
        return self.u.reshape(-1, *self.u.shape[-4:])

    def _unflat(self, values: Tensor) -> Tensor:
        """Values of (B, H', W', ...) with the leading axes of the children."""
        return values.reshape(*self.u.shape[:-4], *values.shape[1:])

    def _only_inside(self, votes: Tensor) -> Tensor:
        """Votes (B, H', W', I, J, K) with zeros for places outside the grid, where batch norm would shift them."""
        if not self.windows.padding:
            return votes
        height, width = self.u.shape[-4:-2]
        inside = self.windows.inside(height, width, votes)
        return votes * inside.repeat_interleave(self.u.shape[-2], -1)[..., None, None]

    def _affine(self, u: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """Scale and shift that batch norm applies to the votes, None without one; in training also its statistics."""
        if isinstance(self.norm, nn.Identity):
            return None, None
        norm, places = cast(FoldingNorm, self.norm), self.windows.places
        per_vote = len(norm.shape) == 3
        # every child of the grid casts a vote for every parent at every place: so many parents, and no windows
        by_kind = (
            self.transform.matrices.unflatten(0, (places, -1)).transpose(0, 1).flatten(1, 2)
        )  # (kinds, k²·J, Q, R)
        children = u.flatten(0, 2)  # (B·H·W, kinds, K_in)
        count = children.shape[0] * (1 if per_vote else by_kind.shape[:2].numel())

        def statistics() -> tuple[Tensor, Tensor]:
            found = vote_statistics(children, by_kind, self.transform.rows, per_vote)
            if not per_vote:
                return found
            mean, variance = (part.unflatten(1, (places, -1)).transpose(0, 1).flatten(0, 1) for part in found)
            return mean, variance

        return norm.fold(statistics, count)


@in_full_precision
def total_of_windows(
    u: Tensor, weight: Tensor, rows: int, windows: Windows, scale: Tensor | None, shift: Tensor | None
) -> Tensor:
    """Σ (g ⊙ u W + h) over the children of each window, (B, H', W', J, K).

    Args:
        u: child capsules on a grid, (B, H, W, kinds, P·Q).
        weight: vote weights, (side² · kinds, J, Q, R).
        rows: P, the rows of a child and of a vote.
        windows: the windows.
        scale: g, the scale of the batch norm, (K,), or None without one.
        shift: h, its shift, (K,).
    """
    kinds, (_, parents, inner, columns) = u.shape[3], weight.shape
    # rows are images, and the values of all kinds channels
    images = (
        u.unflatten(-1, (rows, inner)).permute(0, 4, 3, 5, 1, 2).flatten(2, 3).flatten(0, 1)
    )  # (B·P, kinds·Q, H, W)
    kernel = weight.view(windows.side, windows.side, kinds, parents, inner, columns)
    kernel = kernel.permute(3, 5, 2, 4, 0, 1).flatten(2, 3).flatten(0, 1)  # (J·R, kinds·Q, k, k)
    total = F.conv2d(images, kernel, stride=windows.stride, padding=windows.padding)  # (B·P, J·R, H', W')
    total = total.unflatten(0, (-1, rows)).unflatten(2, (parents, columns)).permute(0, 4, 5, 2, 1, 3).flatten(-2)
    if scale is None or shift is None:
        return total
    height, width = u.shape[1:3]
    children = kinds * windows.inside(height, width, u).sum(-1)  # (H', W')
    return total * scale + children[..., None, None] * shift
