"""Mean and variance of all votes, computed from the children's moments without casting the votes, and their gradients.

Votes are linear in the children. Over the batch, with ū and C the mean and covariance of one row of a child, the votes
u W of that row have the mean ū W and the variances diag(Wᵀ C W). Statistics of a pose dimension, over children and
parents too, add up from these: the variance is the mean variance plus the variance of the means. All terms are
positive, so nothing cancels.

``torch.var_mean`` would need the votes, as would autograd: hence the gradients by hand. With gradients m of the mean
and g of the variance of each vote, C has the gradient W diag(g) Wᵀ, ū has W m, and W has 2 C W diag(g) + ū mᵀ.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from paircaps._utils.precision import full_precision, without_autocast
from paircaps.votes.layout import Layout, from_columns, slices, sum_precision, to_columns

BLOCK_BYTES = 1 << 20
"""Size of a block of children, or of their weights, whichever is larger: 1 MB."""


@dataclass(frozen=True)
class Moments:
    """First and second moments of a block of children over the batch, and their vote weights.

    Args:
        children: range of the children in the block.
        mean: ū, (T, P, Q).
        centred: u − ū, (T, P, Q, B).
        weight: W, (T, 1, Q, J·R).
        spread: C W with the covariance C, (T, P, Q, J·R).
    """

    children: slice
    mean: Tensor
    centred: Tensor
    weight: Tensor
    spread: Tensor

    @property
    def vote_means(self) -> Tensor:
        """Mean of each vote over the batch, ū W, (T, P, J·R)."""
        return torch.matmul(self.mean.unsqueeze(-2), self.weight).squeeze(-2)

    @property
    def vote_variances(self) -> Tensor:
        """Variance of each vote over the batch, diag(Wᵀ C W), (T, P, J·R); rounding never makes one negative."""
        return (self.weight * self.spread).sum(2).clamp_min_(0)


def _moments(u: Tensor, weight: Tensor, layout: Layout) -> Iterator[Moments]:
    """Moments of all children, a block at a time."""
    dtype = full_precision(u.dtype)
    values = layout.rows * layout.inner * max(1, layout.batch, layout.parents * layout.columns)
    for children in slices(layout.children, max(1, BLOCK_BYTES // (4 * values))):
        columns = to_columns(u, children, layout.rows)  # (T, P, Q, B)
        mean = columns.mean(-1)
        centred = columns - mean.unsqueeze(-1)  # not in place: of one image, the columns are the children themselves
        covariance = centred @ centred.transpose(-1, -2) / layout.batch  # C
        block = weight[children].to(dtype).transpose(1, 2).flatten(2).unsqueeze(1)  # (T, 1, Q, J·R)
        yield Moments(children, mean, centred, block, covariance @ block)


@without_autocast
def moments_of_votes(u: Tensor, weight: Tensor, rows: int, per_vote: bool) -> tuple[Tensor, Tensor]:
    """Mean and variance (divided by the count) of the votes, in full precision.

    Args:
        u: child capsules, (B, I, P·Q).
        weight: vote weights, (I, J, Q, R).
        rows: P, the rows of a child and of a vote.
        per_vote: True for one statistic per vote, over the batch, (I, J, K); False for one per pose dimension, over
            batch, children and parents, (K,).
    """
    layout = Layout.of(u, weight, rows)
    if per_vote:
        return _per_vote(u, weight, layout)
    # sums over children and parents, in double precision
    precise = sum_precision(u)
    sum_of_means, sum_of_squared_means, sum_of_variances = torch.zeros(
        (3, layout.rows, layout.columns), dtype=precise, device=u.device
    )
    for block in _moments(u, weight, layout):
        means = _by_parent(block.vote_means, layout).to(precise)
        sum_of_means += means.sum((0, 2))
        sum_of_squared_means += means.square().sum((0, 2))
        sum_of_variances += _by_parent(block.vote_variances, layout).to(precise).sum((0, 2))
    count = layout.children * layout.parents
    mean = sum_of_means / count
    # mean variance plus variance of the means
    variance = (sum_of_variances + sum_of_squared_means) / count - mean.square()
    dtype = full_precision(u.dtype)
    return mean.flatten().to(dtype), variance.clamp_min(0).flatten().to(dtype)


def _per_vote(u: Tensor, weight: Tensor, layout: Layout) -> tuple[Tensor, Tensor]:
    """Mean and variance of each vote over the batch, (I, J, K)."""
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
    """Gradients of u and weight.

    Args:
        u: child capsules, (B, I, P·Q).
        weight: vote weights, (I, J, Q, R).
        rows: P, the rows of a child and of a vote.
        mean: mean of the votes, as :func:`moments_of_votes` returned it.
        grad_mean: gradient of the mean, of its shape.
        grad_variance: gradient of the variance, of its shape.
    """
    layout = Layout.of(u, weight, rows)
    grad_u, grad_weight = u.new_empty(u.shape), weight.new_empty(weight.shape)
    for block in _moments(u, weight, layout):
        # m and g: gradients of the mean and the variance of each vote
        of_mean, of_variance = _gradients_of_each_vote(block, layout, mean, grad_mean, grad_variance)
        # children: those of C, W diag(g) Wᵀ, and of ū, W m, back to u; C = (u − ū)(u − ū)ᵀ / B and ū = Σu / B
        weighted = block.weight * of_variance.unsqueeze(2)  # (T, P, Q, J·R)
        of_covariance = weighted @ block.weight.transpose(-1, -2)  # (T, P, Q, Q)
        of_child_mean = torch.matmul(block.weight, of_mean.unsqueeze(-1)).squeeze(-1)  # (T, P, Q)
        of_columns = (of_covariance @ block.centred).mul_(2).add_(of_child_mean.unsqueeze(-1)).div_(layout.batch)
        grad_u[:, block.children] = from_columns(of_columns).to(u.dtype)
        # weights: 2 C W diag(g) + ū mᵀ, summed over the rows, which share their weights
        of_weight = (block.spread * of_variance.unsqueeze(2)).mul_(2)
        of_weight.addcmul_(block.mean.unsqueeze(-1), of_mean.unsqueeze(-2))
        grad_weight[block.children] = _by_parent(of_weight.sum(1), layout).transpose(1, 2).to(weight.dtype)
    return grad_u, grad_weight


def _gradients_of_each_vote(
    block: Moments, layout: Layout, mean: Tensor, grad_mean: Tensor, grad_variance: Tensor
) -> tuple[Tensor, Tensor]:
    """Gradients of the mean and the variance of each vote over the batch, (T, P, J·R) each."""
    if mean.dim() == 3:  # the statistics are those of each vote already
        parts = (part[block.children].unflatten(-1, (layout.rows, -1)) for part in (grad_mean, grad_variance))
        of_mean, of_variance = (part.transpose(1, 2).flatten(2) for part in parts)
        return of_mean, of_variance
    count = layout.children * layout.parents
    mean, grad_mean, grad_variance = (
        part.view(1, layout.rows, 1, layout.columns) for part in (mean, grad_mean / count, grad_variance / count)
    )
    # the variance of a pose dimension depends on the means of its votes too: d/dm of mean(m²) − mean(m)²
    of_mean = grad_mean + 2 * grad_variance * (_by_parent(block.vote_means, layout) - mean)
    return of_mean.flatten(2), grad_variance.expand_as(of_mean).flatten(2)
