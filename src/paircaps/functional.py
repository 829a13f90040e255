"""The paper's equations as pure functions, nothing else.

Axes: ``I`` children, ``J`` parents, ``K`` pose dimensions; every leading axis is free. Numbers such as (E5) are
those of ``docs/equations.md``, which ties each equation to its function and to the test that holds it.

bfloat16 and float16 are computed in float32 inside and returned as they came; see ``_utils/precision.py``. float16 ends
at 65504, so large results overflow as they are returned. In float32, votes may be up to 1e18 in size.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._pytree import _register_namedtuple

from paircaps._utils.checks import (
    require_child_activation,
    require_choice,
    require_positive,
    require_shape,
    require_tensor,
    require_votes,
    shape_of,
    square_side,
)
from paircaps._utils.labels import require_classes
from paircaps._utils.precision import in_full_precision

__all__ = [
    "Capsules",
    "agreement_of_sums",
    "centre_distance",
    "dynamic_coupling",
    "dynamic_routing",
    "dynamic_routing_of_sums",
    "effective_children",
    "em_coupling",
    "em_routing",
    "fm_agreement",
    "fm_capsules",
    "margin_loss",
    "matrix_votes",
    "normalize_votes",
    "pairwise_agreement",
    "reconstruction_loss",
    "row_votes",
    "squash",
    "squash_exponential",
    "uniform_routing",
    "vector_votes",
    "vote_sums",
]

ABSENT = 1e-12
"""Length below which a vector counts as absent: its direction shrinks to zero instead of being noise."""


class Capsules(NamedTuple):
    """Capsules: the output of every capsule layer and model, a named tuple of three tensors.

    A capsule stands for one entity, such as a digit of class j. It has a vector, the pose, that says how the entity
    looks, and a number, the activation, that says whether it is there. Of a model's capsules, the class with the
    highest activation is the prediction.

    >>> import torch
    >>> from paircaps import CapsuleLayer
    >>> layer = CapsuleLayer(in_capsules=64, out_capsules=10)
    >>> capsules = layer(torch.randn(8, 64, 16))
    >>> capsules.pose.shape, capsules.activation.shape
    (torch.Size([8, 10, 16]), torch.Size([8, 10]))

    Attributes:
        s: vectors that the next capsule layer receives, (..., J, K).
        pose: pose of each entity: its position, orientation and other properties, (..., J, K).
        activation: presence of each entity; the higher, the surer, (..., J).
    """

    s: Tensor
    pose: Tensor
    activation: Tensor


# torch.export.save writes the name of a model's result into the file, and torch has no public call for named tuples
_register_namedtuple(Capsules, serialized_type_name="paircaps.Capsules")


# --- vectors -----------------------------------------------------------------------------------------------------


@in_full_precision
def squash(x: Tensor) -> Tensor:
    """Shorten each vector to a length below one and keep its direction (E9).

        squash(x) = ‖x‖² / (1 + ‖x‖²) · x / ‖x‖

    Args:
        x: vectors, (..., K).

    Returns:
        (..., K), each vector of length ‖x‖² / (1 + ‖x‖²).
    """
    require_tensor("x", x, "(..., pose_dim)", 1)
    if x.shape[-1] == 0:
        raise ValueError(f"vectors need at least one dimension, got {shape_of(x)}")
    length = _length(x)
    # ‖x‖² / (1 + ‖x‖²) · x / ‖x‖ = ‖x‖/h · x/h with h² = 1 + ‖x‖²: no square of a large number, no division by zero.
    # torch.hypot does as much, but ONNX has no such operator
    m = length.detach().clamp_min(1)
    h = m * ((1 / m).square() + (length / m).square()).sqrt()
    return (length / h) * (x / h)  # E9


@in_full_precision
def squash_exponential(x: Tensor) -> Tensor:
    """Shorten each vector to a length below one, short ones by less than :func:`squash` does (Mazzia et al., 2021).

        squash(x) = (1 − e^{−‖x‖}) · x / ‖x‖

    A short vector stays almost as it is, where :func:`squash` makes its length ‖x‖²; so gradients do not vanish there.

    Args:
        x: vectors, (..., K).

    Returns:
        (..., K), each vector of length 1 − e^{−‖x‖}.
    """
    require_tensor("x", x, "(..., pose_dim)", 1)
    if x.shape[-1] == 0:
        raise ValueError(f"vectors need at least one dimension, got {shape_of(x)}")
    length = _length(x)
    is_short = length < ABSENT  # there x itself, whose gradient is one at zero too
    divisor = torch.where(is_short, torch.ones_like(length), length)
    return torch.where(is_short, x, -torch.expm1(-divisor) * (x / divisor))


MIDDLE = 0.5
"""Every coordinate of the middle of the unit cube."""


@in_full_precision
def centre_distance(pose: Tensor) -> Tensor:
    """Euclidean distance of poses in the unit cube from its middle, (0.5, …): (..., K) to (...), from 0 to √K / 2.

    Args:
        pose: poses in 0..1, (..., K).
    """
    return torch.linalg.vector_norm(pose - MIDDLE, dim=-1)


def _length(x: Tensor) -> Tensor:
    """‖x‖ of any finite vector, (..., 1): large ones are scaled down first so that their squares do not overflow."""
    peak = x.detach().abs().amax(dim=-1, keepdim=True).clamp_min(1)
    return torch.linalg.vector_norm(x / peak, dim=-1, keepdim=True) * peak


# --- votes -------------------------------------------------------------------------------------------------------


def matrix_votes(u: Tensor, weight: Tensor) -> Tensor:
    """Votes of every child for every parent by a √K × √K matrix product (E2, Algorithm 2).

        û_{j|i} = flatten(U_i W_ij),  U_i = u_i read row by row as a √K × √K matrix

    Args:
        u: child capsules, (..., I, K).
        weight: a matrix for each pair of child and parent, (I, J, √K, √K).

    Returns:
        votes, (..., I, J, K).
    """
    require_tensor("u", u, "(..., children, pose_dim)", 2)
    require_tensor("weight", weight, "(children, parents, side, side)", 4)
    side = square_side(u.shape[-1])
    if weight.dim() != 4 or weight.shape[0] != u.shape[-2] or tuple(weight.shape[2:]) != (side, side):
        raise ValueError(
            f"weight must have shape ({u.shape[-2]}, parents, {side}, {side}) for capsules of {shape_of(u)}, "
            f"got {shape_of(weight)}"
        )
    return row_votes(u, weight, side)  # E2


def vector_votes(u: Tensor, weight: Tensor) -> Tensor:
    """Votes of every child for every parent by a full matrix (E1).

        û_{j|i} = W_ij u_i,  where the weight holds the transpose of W_ij

    Args:
        u: child capsules, (..., I, K_in).
        weight: a matrix for each pair of child and parent, (I, J, K_in, K).

    Returns:
        votes, (..., I, J, K).
    """
    require_tensor("u", u, "(..., children, in_dim)", 2)
    require_tensor("weight", weight, "(children, parents, in_dim, pose_dim)", 4)
    if weight.dim() != 4 or weight.shape[0] != u.shape[-2] or weight.shape[2] != u.shape[-1]:
        raise ValueError(
            f"weight must have shape ({u.shape[-2]}, parents, {u.shape[-1]}, pose_dim) for capsules of "
            f"{shape_of(u)}, got {shape_of(weight)}"
        )
    return row_votes(u, weight, 1)  # E1


def row_votes(u: Tensor, weight: Tensor, rows: int) -> Tensor:
    """Votes of children that are read as rows, each of which is multiplied by the same matrix.

    With as many rows as columns these are :func:`matrix_votes`, with one row :func:`vector_votes`.

    Args:
        u: child capsules, (..., I, P·Q).
        weight: a matrix for each pair of child and parent, (I, J, Q, R).
        rows: P, the rows of a child and of a vote.

    Returns:
        votes, (..., I, J, P·R).
    """
    return torch.einsum("...ipq,ijqr->...ijpr", u.unflatten(-1, (rows, -1)), weight).flatten(-2)


# --- agreement ---------------------------------------------------------------------------------------------------


@in_full_precision
def pairwise_agreement(votes: Tensor, *, halve: bool = True) -> Tensor:
    """Sum of the elementwise products of all pairs of votes, scaled by 1/I (E5).

        s_j = 1/I · Σ_{i<k} û_{j|i} ⊙ û_{j|k} = 1/(2I) · [(Σ_i û_{j|i})² − Σ_i û_{j|i}²]

    The left side is O(I²) and the definition (E13); the right side is what is computed.

    >>> votes = torch.tensor([[[1.0, 0.0]], [[1.0, 0.0]], [[0.0, 1.0]]])  # (3, 1, 2)
    >>> pairwise_agreement(votes)  # two of the three agree, on the first dimension
    tensor([[0.3333, 0.0000]])

    Args:
        votes: votes, (..., I, J, K).
        halve: keep the factor ½ of the text. The published runs lack it, so their activations are twice as large.

    Returns:
        s, (..., J, K).
    """
    require_votes(votes)
    return agreement_of_sums(*vote_sums(votes), votes.shape[-3], halve=halve)


def vote_sums(
    votes: Tensor, *, normalize: bool = False, softness: float | Tensor = 0.0, weight: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Sum of the votes and sum of their squares: all that pairwise agreement needs of them.

    Args:
        votes: votes, (..., I, J, K).
        normalize: give each vote length one first (E4).
        softness: c of the soft normalisation; see :func:`normalize_votes`.
        weight: x, a factor for the votes of each child (E14), (..., I); None stands for all ones.

    Returns:
        Σ x û and Σ (x û)² over the children, (..., J, K) each.
    """
    if normalize:
        votes = normalize_votes(votes, softness)  # E4: Alg. 1, line 1
    if weight is not None:
        votes = votes * weight[..., None, None]  # E14
    return votes.sum(dim=-3), votes.square().sum(dim=-3)


def normalize_votes(votes: Tensor, softness: float | Tensor = 0.0) -> Tensor:
    """Votes of length one (E4), or of a length below one that a long vote comes closer to than a short one (E15).

        û / √(‖û‖² + c)

    Args:
        votes: votes, (..., K).
        softness: c, zero or more. Zero gives every vote length one. A large c divides all votes by √c and so leaves
            their lengths in proportion. A vote of length √c becomes one of length √½.

    Returns:
        (..., K).
    """
    if not isinstance(softness, Tensor) and softness == 0:
        return F.normalize(votes, dim=-1, eps=ABSENT)  # E4
    c = torch.as_tensor(softness).to(votes)
    peak = votes.detach().abs().amax(dim=-1, keepdim=True).clamp_min(1)  # so that squares do not overflow
    scaled = votes / peak
    return scaled / (scaled.square().sum(dim=-1, keepdim=True) + c / peak.square()).sqrt()  # E15


def effective_children(weight: Tensor) -> Tensor:
    """Number of children that vote, when each counts as much as its weight: n = Σ x (E14).

    Args:
        weight: x, the weight of each child, (..., I).

    Returns:
        n, (...).
    """
    return weight.sum(dim=-1)


def agreement_of_sums(total: Tensor, squares: Tensor, children: int | Tensor, *, halve: bool = True) -> Tensor:
    """Pairwise agreement from the sums of the votes (E5).

    Args:
        total: Σû over the children, (..., J, K).
        squares: Σû² over the children, (..., J, K).
        children: I, the number of votes in each sum; of weighted ones n, their effective number, (...).
        halve: keep the factor ½; see :func:`pairwise_agreement`.

    Returns:
        s, (..., J, K).
    """
    if isinstance(children, Tensor):  # nobody votes where the weights are zero, so s is zero too
        children = children.clamp_min(ABSENT)[..., None, None]
    return (total.square() - squares) / (2 * children if halve else children)  # E5: Alg. 1, line 2


FM_ACTIVATIONS = ("sum", "squash")


@in_full_precision
def fm_agreement(
    votes: Tensor,
    weight: Tensor | None = None,
    *,
    normalize: bool = True,
    halve: bool = True,
    activation: str = "sum",
    softness: float | Tensor = 0.0,
    linear: float = 0.0,
    scale: float | Tensor | None = None,
) -> Capsules:
    """FM agreement: parents from the pairwise products of their children's votes, in one pass (Algorithm 1).

    FM stands for factorization machines, which sum the products of all pairs in the same way. Votes that point the same
    way make an active parent; votes that cancel out do not.

    >>> votes = torch.ones(4, 1, 16)  # (I, J, K): 4 children agree on 1 parent
    >>> fm_agreement(votes).activation
    tensor([1.5000])
    >>> votes[2:] *= -1  # two against two
    >>> fm_agreement(votes).activation
    tensor([-0.5000])
    >>> fm_agreement(votes, weight=torch.tensor([1.0, 1.0, 0.0, 0.0])).activation  # two, and nobody against
    tensor([0.5000])

    Args:
        votes: votes, (..., I, J, K).
        weight: x, the weight of each child (E14), (..., I); None stands for all ones, and is Algorithm 1. Weighted
            votes are divided by their effective number Σ x where others are divided by I.
        normalize: give each vote length one first (E4). The published runs of section 4.1 leave it out.
        halve: keep the factor ½ of E5; see :func:`pairwise_agreement`.
        activation: ``"sum"``, a_j = Σ_f s_{j,f} (E7), unbounded, made for cross entropy; or ``"squash"``,
            a_j = ‖squash(s_j)‖, which the published aff-NIST runs use.
        softness: c of the soft normalisation, where ``normalize`` is true; see :func:`normalize_votes`.
        linear: weight of the sum of the votes beside their pairwise products (E16); see :func:`fm_capsules`.
        scale: t of the mean agreement (E17); see :func:`fm_capsules`.

    Returns:
        Capsules of (..., J, K), (..., J, K) and (..., J); the pose is the direction of s (E6).
    """
    require_votes(votes)
    require_choice("activation", activation, FM_ACTIVATIONS)
    if weight is not None:
        require_child_activation(weight, votes)
    sums = vote_sums(votes, normalize=normalize, softness=softness, weight=weight)
    children = votes.shape[-3] if weight is None else effective_children(weight)
    return fm_capsules(*sums, children, halve=halve, activation=activation, linear=linear, scale=scale)


@in_full_precision
def fm_capsules(
    total: Tensor,
    squares: Tensor,
    children: int | Tensor,
    *,
    halve: bool = True,
    activation: str = "sum",
    linear: float = 0.0,
    scale: float | Tensor | None = None,
) -> Capsules:
    """FM agreement from the two sums over the votes: Algorithm 1 from its second line on.

    Args:
        total: Σû over the children, (..., J, K).
        squares: Σû² over the children, (..., J, K).
        children: I, the number of votes in each sum; of weighted ones n, their effective number, (...).
        halve: keep the factor ½ of E5; see :func:`pairwise_agreement`.
        activation: see :func:`fm_agreement`.
        linear: weight of Σû, which is added to the agreement (E16): the linear part of a factorization machine, which
            the paper leaves out. A single vote then counts by itself, for a parent or against it.
        scale: t of the mean agreement, t/n times that of E5 (E17): agreement then does not grow with the number of
            votes, and votes that agree with nobody take away from it. None leaves it as the paper has it.

    Returns:
        Capsules of (..., J, K), (..., J, K) and (..., J).
    """
    s = agreement_of_sums(total, squares, children, halve=halve)  # E5: Alg. 1, line 2
    if scale is not None:
        votes = children.clamp_min(ABSENT)[..., None, None] if isinstance(children, Tensor) else children
        s = s * (scale / votes)  # E17
    if linear:
        s = s + linear * total  # E16
    pose = s / _length(s).clamp_min(ABSENT)  # E6: line 3
    if activation == "squash":
        return Capsules(s, pose, _length(squash(s)).squeeze(-1))
    return Capsules(s, pose, s.sum(dim=-1))  # E7: line 4


@in_full_precision
def dynamic_routing(votes: Tensor, iterations: int = 3, *, none_of_the_above: bool = False) -> Capsules:
    """Dynamic routing between capsules (Sabour, Frosst and Hinton, 2017), with the softmax over parents.

    Args:
        votes: votes, (..., I, J, K).
        iterations: r, at least 1. With one iteration the coupling is 1/J, so s
            is the sum of the votes divided by J, then squashed.
        none_of_the_above: whether the softmax has one more category, whose logit stays zero: a child that agrees with
            no parent turns to it, and away from the parents.

    Returns:
        Capsules whose ``s`` and ``pose`` are both v, (..., J, K), and whose activation is ‖v‖, (..., J).
    """
    v, _ = _dynamic(votes, iterations, none_of_the_above)
    return Capsules(v, v, _length(v).squeeze(-1))


@in_full_precision
def dynamic_coupling(votes: Tensor, iterations: int = 3, *, none_of_the_above: bool = False) -> Tensor:
    """Coupling of dynamic routing in its last iteration: how each child is divided among the parents.

    Args:
        votes: votes, (..., I, J, K).
        iterations: r, at least 1.
        none_of_the_above: as for :func:`dynamic_routing`.

    Returns:
        c, (..., I, J); over the parents it adds up to one, or to less if there is none of the above.
    """
    _, c = _dynamic(votes, iterations, none_of_the_above)
    return votes.new_full(votes.shape[:-1], 1 / (votes.shape[-2] + none_of_the_above)) if c is None else c


def _dynamic(votes: Tensor, iterations: int, none_of_the_above: bool) -> tuple[Tensor, Tensor | None]:
    """Parents v of the last iteration, and its coupling c; None where that is uniform."""
    require_votes(votes)
    require_positive(iterations=iterations)
    # first iteration: b = 0, so the coupling is uniform and the sum of the votes is enough
    v = agreed = uniform_routing(votes.sum(dim=-3), none_of_the_above=none_of_the_above).s
    c = None
    for _ in range(iterations - 1):
        b = torch.einsum("...ijk,...jk->...ij", votes, agreed)  # all updates b += ⟨û, v⟩ so far, at once
        c = F.pad(b, (0, 1)).softmax(dim=-1)[..., :-1] if none_of_the_above else b.softmax(dim=-1)
        v = squash(torch.einsum("...ij,...ijk->...jk", c, votes))
        agreed = agreed + v
    return v, c


def dynamic_routing_of_sums(total: Tensor, coupled: Callable[[Tensor], Tensor], iterations: int = 3) -> Capsules:
    """Dynamic routing without the votes: each iteration but the first asks for one sum over them.

    Args:
        total: Σû over the children, (..., J, K), in full precision.
        coupled: from V, the sum of all outputs so far, (..., J, K), to Σ_i softmax_j(⟨û_ij, V_j⟩) û_ij, (..., J, K).
        iterations: r, at least 1.

    Returns:
        Capsules, as :func:`dynamic_routing` returns them.
    """
    require_positive(iterations=iterations)
    v = agreed = uniform_routing(total).s
    for _ in range(iterations - 1):
        v = squash(coupled(agreed))
        agreed = agreed + v
    return Capsules(v, v, _length(v).squeeze(-1))


@in_full_precision
def uniform_routing(total: Tensor, *, none_of_the_above: bool = False) -> Capsules:
    """Dynamic routing with one iteration, from the sum of the votes: a division by J and a squash.

    Args:
        total: Σû over the children, (..., J, K).
        none_of_the_above: as for :func:`dynamic_routing`; the division is then by J + 1.

    Returns:
        Capsules, as :func:`dynamic_routing` returns them.
    """
    v = squash(total / (total.shape[-2] + none_of_the_above))  # b = 0, so c = softmax_j(0) = 1/J
    return Capsules(v, v, _length(v).squeeze(-1))


EM_EPS = 1e-9
"""Added to sums and activations that EM divides by or takes the logarithm of, and to its variances."""

EM_REACH = 1e4
"""EM's variance floor is EM_EPS up to votes of this size, and grows with their square beyond."""


@in_full_precision
def em_routing(
    votes: Tensor,
    activation: Tensor | None,
    beta_u: Tensor,
    beta_a: Tensor,
    iterations: int = 3,
) -> Capsules:
    """EM routing (Hinton, Sabour and Frosst, 2018): each parent is a Gaussian fitted to the votes it explains.

    ε = 1e-9 is added to every variance and wherever EM divides or takes a logarithm. Where votes exceed 1e4, the least
    variance grows with their square: else the log-likelihood of a parent that no child is assigned to would become
    infinite, and then NaN.

    Args:
        votes: V, (..., I, J, K).
        activation: activations of the children, a_i, (..., I); None stands for all ones.
        beta_u: cost of describing a child by a parent, (J,).
        beta_a: cost of leaving a parent inactive, (J,).
        iterations: r, at least 1.

    Returns:
        Capsules whose ``s`` and ``pose`` are both μ, (..., J, K), and whose activation is a_j, (..., J).
    """
    mu, a_j, _ = _em(votes, activation, beta_u, beta_a, iterations)
    return Capsules(mu, mu, a_j)


@in_full_precision
def em_coupling(
    votes: Tensor, activation: Tensor | None, beta_u: Tensor, beta_a: Tensor, iterations: int = 3
) -> Tensor:
    """Assignment of EM routing in its last M step: how each child is divided among the parents.

    Args:
        votes: V, (..., I, J, K).
        activation: activations of the children, a_i, (..., I); None stands for all ones.
        beta_u: cost of describing a child by a parent, (J,).
        beta_a: cost of leaving a parent inactive, (J,).
        iterations: r, at least 1.

    Returns:
        R, (..., I, J); over the parents it adds up to one.
    """
    return _em(votes, activation, beta_u, beta_a, iterations)[2]


def _em(
    votes: Tensor, activation: Tensor | None, beta_u: Tensor, beta_a: Tensor, iterations: int
) -> tuple[Tensor, Tensor, Tensor]:
    """μ and a_j of the last M step, and the assignment R that it was given."""
    # checks
    require_votes(votes)
    require_positive(iterations=iterations)
    J = votes.shape[-2]
    for name, beta in (("beta_u", beta_u), ("beta_a", beta_a)):
        require_shape(name, beta, (J,), f"one value per parent for votes of {shape_of(votes)}")
    if activation is None:
        activation = votes.new_ones(votes.shape[:-2])
    require_child_activation(activation, votes)

    # floor under the variances: EM_EPS, and more where votes are large
    reach = votes.detach().abs().amax(dim=(-3, -2, -1)) / EM_REACH  # (...)
    floor = EM_EPS * reach.clamp_min(1).square()[..., None, None]  # (..., 1, 1)

    # iterations: M step, E step, ..., M step, from a uniform assignment
    a_i = activation.unsqueeze(-1)  # (..., I, 1)
    R = votes.new_full(votes.shape[:-1], 1 / J)  # (..., I, J)
    for t in range(1, iterations):
        _, a_j, variance, deviation = _m_step(votes, R * a_i, beta_u, beta_a, floor, t)
        R = _e_step(a_j, variance, deviation)
    mu, a_j, _, _ = _m_step(votes, R * a_i, beta_u, beta_a, floor, iterations)
    return mu, a_j, R


def _m_step(
    votes: Tensor, assigned: Tensor, beta_u: Tensor, beta_a: Tensor, floor: Tensor, t: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Fit each parent to the children assigned to it.

    Args:
        votes: V, (..., I, J, K).
        assigned: R a_i, (..., I, J).
        beta_u: (J,).
        beta_a: (J,).
        floor: least variance, (..., 1, 1).
        t: number of the iteration, from 1.

    Returns:
        μ (..., J, K), a_j (..., J), σ² (..., J, K), and (V − μ)² (..., I, J, K), which the E step reads again.
    """
    children, parents = assigned.shape[-2:]
    # Gaussian of each parent
    S = assigned.sum(dim=-2)  # (..., J)
    share = assigned / (S + EM_EPS).unsqueeze(-2)  # (..., I, J)
    mu = torch.einsum("...ij,...ijk->...jk", share, votes)
    deviation = (votes - mu.unsqueeze(-3)).square()
    variance = torch.einsum("...ij,...ijk->...jk", share, deviation) + floor
    # activation: by how much it is cheaper to describe the children by the parent than without it; S is scaled as if
    # there were 100 children for each parent
    cost = (beta_u.unsqueeze(-1) + variance.log() / 2).sum(dim=-1) * S * (100 * parents / children)  # (..., J)
    inverse_temperature = 0.01 * (1 - 0.95**t)  # λ_t
    return mu, torch.sigmoid(inverse_temperature * (beta_a - cost)), variance, deviation


def _e_step(a_j: Tensor, variance: Tensor, deviation: Tensor) -> Tensor:
    """Assign each child among the parents: the softmax of log a_j plus the log-likelihood of its vote, (..., I, J).

    Args:
        a_j: activations of the parents, (..., J).
        variance: σ², (..., J, K).
        deviation: (V − μ)², (..., I, J, K).
    """
    spread = (2 * math.pi * variance).log().sum(dim=-1) / 2  # (..., J)
    # divided before it is summed: 1 / σ² of large votes has no derivative in float32
    distance = (deviation / (2 * variance).unsqueeze(-3)).sum(dim=-1)  # (..., I, J)
    return (((a_j + EM_EPS).log() - spread).unsqueeze(-2) - distance).softmax(dim=-1)


# --- losses ------------------------------------------------------------------------------------------------------

REDUCTIONS = ("mean", "sum", "none")


@in_full_precision
def margin_loss(
    activation: Tensor,
    target: Tensor,
    reduction: str = "mean",
    *,
    over_classes: str = "sum",
    positive_margin: float = 0.9,
    negative_margin: float = 0.1,
    absent_weight: float = 0.5,
) -> Tensor:
    """Margin loss, for images in which any number of classes may be present (E10).

        L_j = T_j max(0, m⁺ − a_j)² + λ (1 − T_j) max(0, a_j − m⁻)²

    It is made for activations in 0..1, as dynamic and EM routing give.

    >>> activation = torch.tensor([[0.95, 0.05, 0.30]])  # one image, three classes
    >>> margin_loss(activation, torch.tensor([0]))  # ½ (0.3 − 0.1)²
    tensor(0.0200)

    Args:
        activation: a, activations of the classes, (..., J).
        target: class indices, (...), or which classes are present, T as 0 and 1, (..., J).
        reduction: ``"mean"`` averages over images, ``"sum"`` adds them up, ``"none"`` gives each L_j, (..., J).
        over_classes: ``"sum"`` as in the text, or ``"mean"`` as in the published runs, where a decoder's loss
            therefore weighs ten times as much beside it. Without a reduction it has no effect.
        positive_margin: m⁺, the activation from which on a class counts as present.
        negative_margin: m⁻, the activation up to which a class counts as absent.
        absent_weight: λ, the weight of absent classes.

    Returns:
        the loss, a number, or (..., J) without a reduction.

    Raises:
        ValueError: if the target has another shape, or a class index that does not exist.
    """
    require_tensor("activation", activation, "(..., classes)", 1)
    require_choice("reduction", reduction, REDUCTIONS)
    require_choice("over_classes", over_classes, ("sum", "mean"))
    T = require_classes(target, activation)
    hit = (positive_margin - activation).clamp_min(0).square()
    miss = (activation - negative_margin).clamp_min(0).square()
    loss = T * hit + absent_weight * (1 - T) * miss  # E10
    if reduction == "none":
        return loss
    per_image = loss.sum(dim=-1) if over_classes == "sum" else loss.mean(dim=-1)
    return per_image.mean() if reduction == "mean" else per_image.sum()


@in_full_precision
def reconstruction_loss(reconstruction: Tensor, image: Tensor, reduction: str = "mean") -> Tensor:
    """Squared error summed over an image's pixels; the paper adds it to the margin loss times 0.0005.

    Args:
        reconstruction: output of a decoder, (..., C, H, W).
        image: image to reconstruct, (..., C, H, W).
        reduction: ``"mean"`` averages over images, ``"sum"`` adds them up, ``"none"`` gives each image's, (...).

    Returns:
        the loss, a number, or (...) without a reduction.
    """
    require_tensor("reconstruction", reconstruction, "(..., channels, height, width)", 3)
    require_choice("reduction", reduction, REDUCTIONS)
    require_shape("image", image, reconstruction.shape, "that of the reconstruction")
    per_image = (reconstruction - image).square().sum(dim=(-3, -2, -1))
    if reduction == "none":
        return per_image
    return per_image.mean() if reduction == "mean" else per_image.sum()
