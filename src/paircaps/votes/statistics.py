"""Mean and variance of all votes without casting them.

Votes are linear in the children. Over the batch, with ū and C the mean and covariance of one row of a child, the votes
u W of that row have the mean ū W and the variances diag(Wᵀ C W). Statistics of a pose dimension, over children and
parents too, add up from these: the variance is the mean variance plus the variance of the means. All terms are
positive, so nothing cancels.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from paircaps._utils.precision import full_precision, without_autocast
from paircaps.votes.layout import Layout, from_columns, slices, sum_precision, to_columns

BLOCK_BYTES = 1 << 20
"""Children, or weights, whichever are more, that are worked on at a time."""


@dataclass(frozen=True)
class Moments:
    """First and second moments of a block of children, and the weights they are voted with.

    Args:
        children: which.
        mean: ū, (T, P, Q).
        centred: u − ū, (T, P, Q, B).
        covariance: C, (T, P, Q, Q).
        weight: (T, 1, Q, J·R).
        spread: C W, (T, P, Q, J·R).
    """

    children: slice
    mean: Tensor
    centred: Tensor
    covariance: Tensor
    weight: Tensor
    spread: Tensor

    @property
    def vote_means(self) -> Tensor:
        """(T, P, J·R)."""
        return torch.matmul(self.mean.unsqueeze(-2), self.weight).squeeze(-2)

    @property
    def vote_variances(self) -> Tensor:
        """(T, P, J·R), without the rounding that would make one negative."""
        return (self.weight * self.spread).sum(2).clamp_min_(0)


def _moments(u: Tensor, weight: Tensor, layout: Layout) -> Iterator[Moments]:
    dtype = full_precision(u.dtype)
    values = layout.rows * layout.inner * max(1, layout.batch, layout.parents * layout.columns)
    for children in slices(layout.children, max(1, BLOCK_BYTES // (4 * values))):
        columns = to_columns(u, children, layout.rows)  # (T, P, Q, B)
        mean = columns.mean(-1)
        centred = columns - mean.unsqueeze(-1)  # not in place: of one image, the columns are the children themselves
        covariance = centred @ centred.transpose(-1, -2) / layout.batch
        block = weight[children].to(dtype).transpose(1, 2).flatten(2).unsqueeze(1)  # (T, 1, Q, J·R)
        yield Moments(children, mean, centred, covariance, block, covariance @ block)


@without_autocast
def moments_of_votes(u: Tensor, weight: Tensor, rows: int, per_vote: bool) -> tuple[Tensor, Tensor]:
    """Mean and variance (divided by the count) of the votes, (I, J, K) each a vote, or (K,) each a pose dimension.

    Args:
        u: children, (B, I, P·Q).
        weight: (I, J, Q, R).
        rows: P.
        per_vote: one statistic a vote, over the batch; or one a pose dimension, over all else.
    """
    layout = Layout.of(u, weight, rows)
    if per_vote:
        return _per_vote(u, weight, layout)
    precise = sum_precision(u)
    first, second, within = torch.zeros((3, layout.rows, layout.columns), dtype=precise, device=u.device)
    for block in _moments(u, weight, layout):
        means = _by_parent(block.vote_means, layout).to(precise)
        first += means.sum((0, 2))
        second += means.square().sum((0, 2))
        within += _by_parent(block.vote_variances, layout).to(precise).sum((0, 2))
    count = layout.children * layout.parents
    mean = first / count
    variance = (within + second) / count - mean.square()
    dtype = full_precision(u.dtype)
    return mean.flatten().to(dtype), variance.clamp_min(0).flatten().to(dtype)


def _per_vote(u: Tensor, weight: Tensor, layout: Layout) -> tuple[Tensor, Tensor]:
    shape = (layout.children, layout.parents, layout.pose_dim)
    mean, variance = (torch.empty(shape, dtype=full_precision(u.dtype), device=u.device) for _ in range(2))
    for block in _moments(u, weight, layout):
        mean[block.children] = _by_parent(block.vote_means, layout).transpose(1, 2).flatten(2)
        variance[block.children] = _by_parent(block.vote_variances, layout).transpose(1, 2).flatten(2)
    return mean, variance


def _by_parent(values: Tensor, layout: Layout) -> Tensor:
    """(T, P, J·R) to (T, P, J, R)."""
    return values.unflatten(-1, (layout.parents, layout.columns))


@without_autocast
def moment_gradients(
    u: Tensor, weight: Tensor, rows: int, mean: Tensor, grad_mean: Tensor, grad_variance: Tensor
) -> tuple[Tensor, Tensor]:
    """Gradients for u and weight from those of the statistics, whose mean is given again."""
    layout = Layout.of(u, weight, rows)
    grad_u, grad_weight = u.new_empty(u.shape), weight.new_empty(weight.shape)
    for block in _moments(u, weight, layout):
        of_mean, of_variance = _of_each_vote(block, layout, mean, grad_mean, grad_variance)  # (T, P, J·R) each
        weighted = block.weight * of_variance.unsqueeze(2)  # (T, P, Q, J·R)
        of_covariance = weighted @ block.weight.transpose(-1, -2)  # (T, P, Q, Q)
        of_child_mean = torch.matmul(block.weight, of_mean.unsqueeze(-1)).squeeze(-1)  # (T, P, Q)
        of_columns = (of_covariance @ block.centred).mul_(2).add_(of_child_mean.unsqueeze(-1)).div_(layout.batch)
        grad_u[:, block.children] = from_columns(of_columns).to(u.dtype)
        spread = (block.spread * of_variance.unsqueeze(2)).mul_(2)
        spread.addcmul_(block.mean.unsqueeze(-1), of_mean.unsqueeze(-2))
        grad_weight[block.children] = _by_parent(spread.sum(1), layout).transpose(1, 2).to(weight.dtype)
    return grad_u, grad_weight


def _of_each_vote(
    block: Moments, layout: Layout, mean: Tensor, grad_mean: Tensor, grad_variance: Tensor
) -> tuple[Tensor, Tensor]:
    """Gradients of the mean and the variance of each vote over the batch."""
    if mean.dim() == 3:
        parts = (part[block.children].unflatten(-1, (layout.rows, -1)) for part in (grad_mean, grad_variance))
        of_mean, of_variance = (part.transpose(1, 2).flatten(2) for part in parts)
        return of_mean, of_variance
    count = layout.children * layout.parents
    mean, grad_mean, grad_variance = (
        part.view(1, layout.rows, 1, layout.columns) for part in (mean, grad_mean / count, grad_variance / count)
    )
    of_mean = grad_mean + 2 * grad_variance * (_by_parent(block.vote_means, layout) - mean)
    return of_mean.flatten(2), grad_variance.expand_as(of_mean).flatten(2)
