"""Variational Bayes routing: parents are Gaussians of whose parameters only distributions are known."""

from __future__ import annotations

import math
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from paircaps._utils.checks import require_positive, require_votes
from paircaps._utils.precision import full_precision, in_full_precision
from paircaps.functional import ABSENT, Capsules
from paircaps.routing.base import Routing, VoteNeeds, require_iterations
from paircaps.routing.evidence import Evidence

ALPHA = 1.0
"""α₀ of the prior of the parents' proportions, a Dirichlet distribution."""

KAPPA = 1.0
"""κ₀ of the prior of a mean: it counts as so many children that vote for zero."""

PSI = 1.0
"""Ψ₀ of the prior of a precision, a Wishart distribution of K + 1 degrees of freedom: scatter that is always there."""

SHIFT = 6
"""ψ is computed at arguments this much larger, where its series converges to float32's last digits."""

SERIES = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12)
"""Coefficients of 1/x², 1/x⁴, ... that the series of ψ subtracts: B_2n / 2n of Bernoulli's numbers."""


def digamma(x: Tensor) -> Tensor:
    """ψ(x), the derivative of ln Γ(x), for x > 0, by operations that every format of a network knows.

        ψ(x) = ψ(x + 6) − Σ_{n<6} 1/(x + n),  ψ(y) ≈ ln y − 1/2y − Σ B_2n / (2n y^2n)

    Args:
        x: arguments, 1 or more in this routing.
    """
    y = x + SHIFT
    square = y.reciprocal().square()
    series = torch.zeros_like(y)
    for coefficient in reversed(SERIES):
        series = (series + coefficient) * square
    below = sum((x + n).reciprocal() for n in range(SHIFT))
    return y.log() - y.reciprocal() / 2 - series - below


class Posterior(NamedTuple):
    """What is known of the parents.

    Attributes:
        m: mean of a parent's mean, (..., J, K).
        kappa: number of children behind it, (..., J).
        nu: degrees of freedom of the precision, (..., J).
        scatter: P, scatter of the votes in each dimension, (..., J, K).
        deviation: (V − m)², (..., I, J, K).
        log_pi: E ln π, mean of the logarithm of a parent's proportion, (..., J).
        log_precision: L, mean of the logarithm of the determinant of its precision, (..., J).
    """

    m: Tensor
    kappa: Tensor
    nu: Tensor
    scatter: Tensor
    deviation: Tensor
    log_pi: Tensor
    log_precision: Tensor


@in_full_precision
def vb_routing(votes: Tensor, activation: Tensor | None, iterations: int = 3) -> Capsules:
    """Variational Bayes routing with diagonal precisions, before its batch norm.

    With a child's activation a_i, cut off to 0..1, and R its division among the parents, 1/J at first, each round takes
    r = R a and N_j = Σ r, and with α₀ = κ₀ = 1, Ψ₀ = I and ν₀ = K + 1

        α = α₀ + N,  κ = κ₀ + N,  ν = ν₀ + N,  m = Σ r V / κ,  P = Ψ₀ + Σ r (V − m)² + κ₀ m²,
        E ln π = ψ(α) − ψ(Σ_j α),  L = Σ_{k<K} ψ((ν − k)/2) + K ln 2 − Σ ln P,

    and, but for the last, R = softmax_j(E ln π + ½L − ½[K/κ + ν Σ (V − m)²/P]). The activation is the negative entropy
    −e^{E ln π} (½K ln 2πe − ½L). P is that of the publication, Ψ₀ + Σ r (V − μ)² + (N/κ) μ² with the mean μ = Σ r V / N
    of the votes, in a form that does not divide by N.

    Args:
        votes: V, (..., I, J, K).
        activation: activations of the children, (..., I); None stands for children that are certainly there.
        iterations: rounds, at least 1.

    Returns:
        Capsules whose ``s`` and ``pose`` are both m, (..., J, K), and whose activation has no bound, (..., J).
    """
    parents, _ = _vb(votes, activation, iterations)
    K = votes.shape[-1]
    entropy = (K * math.log(2 * math.pi * math.e) - parents.log_precision) / 2
    return Capsules(parents.m, parents.m, -parents.log_pi.exp() * entropy)


def _vb(votes: Tensor, activation: Tensor | None, iterations: int) -> tuple[Posterior, Tensor]:
    """What the last round knows of the parents, and R that it knew it from, (..., I, J)."""
    require_votes(votes)
    require_positive(iterations=iterations)
    R = votes.new_full(votes.shape[:-1], 1 / votes.shape[-2])
    parents = _posterior(votes, _assigned(R, activation))
    for _ in range(1, iterations):
        R = _divide(parents)
        parents = _posterior(votes, _assigned(R, activation))
    return parents, R


def _assigned(R: Tensor, activation: Tensor | None) -> Tensor:
    """The part of each child that a parent gets, r, (..., I, J)."""
    return R if activation is None else R * activation.clamp(0.0, 1.0).unsqueeze(-1)


def _posterior(V: Tensor, r: Tensor) -> Posterior:
    """What is known of parents that get the parts r of the children, (..., I, J)."""
    K = V.shape[-1]
    N = r.sum(dim=-2)
    alpha, kappa, nu = ALPHA + N, KAPPA + N, K + 1 + N
    m = torch.einsum("...ij,...ijk->...jk", r, V) / kappa.unsqueeze(-1)
    deviation = (V - m.unsqueeze(-3)).square()
    scatter = PSI + torch.einsum("...ij,...ijk->...jk", r, deviation) + KAPPA * m.square()
    log_pi = digamma(alpha) - digamma(alpha.sum(dim=-1, keepdim=True))
    below = torch.arange(K, dtype=V.dtype, device=V.device)
    degrees = digamma((nu.unsqueeze(-1) - below) / 2).sum(dim=-1)
    log_precision = degrees + K * math.log(2) - scatter.log().sum(dim=-1)
    return Posterior(m, kappa, nu, scatter, deviation, log_pi, log_precision)


def _divide(parents: Posterior) -> Tensor:
    """Divide each child among the parents by how likely they make its votes: R, (..., I, J)."""
    K = parents.m.shape[-1]
    distance = (parents.deviation / parents.scatter.unsqueeze(-3)).sum(dim=-1)  # (..., I, J)
    of_parent = parents.log_pi + (parents.log_precision - K / parents.kappa) / 2
    return (of_parent.unsqueeze(-2) - parents.nu.unsqueeze(-2) * distance / 2).softmax(dim=-1)


class VBRouting(Routing):
    """Variational Bayes routing (Ribeiro, Leontidis and Kollias, 2020): EM routing with priors, ``"vb"`` by name.

    Parents are Gaussians, as with EM routing. Their proportions, means and precisions are no single values here, but
    distributions with priors, so that no parent collapses onto a single child. This is
    :func:`paircaps.routing.vb.vb_routing` and two batch norms with one statistic for each parent, over images, and over
    positions where there are several; over the dimensions of the pose as well.

    - The pose is m, normalised without learned scale and shift, as published.
    - The activation is σ of the normalised negative entropy. There a scale and a shift are learned. The publication has
      none, and adds learned costs β_a and β_u before the norm instead, which subtracts them again.

    Not built are full covariances, with which the publication compares its diagonal ones.

    A batch norm needs the parents of all images, so it is in :meth:`finish`: the routing itself reads all votes of an
    image twice in every round, and streams a few images at a time, in training too. To train needs two images at least.
    Activations of the children outside of 0..1 are cut off.

    The publication trains with cross entropy of these activations, although they lie in 0..1, and so does
    ``loss.name = "auto"``.

    Args:
        out_capsules: J, the number of parents.
        iterations: rounds, from 1 to 100.
    """

    preferred_loss: ClassVar[str | None] = "cross-entropy"

    def __init__(self, out_capsules: int, *, iterations: int = 3) -> None:
        super().__init__(out_capsules)
        require_iterations(iterations)
        self.iterations = iterations
        self.pose_norm = nn.BatchNorm1d(out_capsules, affine=False)
        self.activation_norm = nn.BatchNorm1d(out_capsules)

    @property
    def bounded(self) -> bool:
        """Always True, since an activation is a probability."""
        return True

    @property
    def needs(self) -> VoteNeeds:
        """All votes of an image, in every round; images are routed independently."""
        return VoteNeeds.IMAGES

    def agree(self, votes: Tensor, activation: Tensor | None) -> Capsules:
        """Variational Bayes routing of dense votes, before its batch norm; children count by their activations."""
        return vb_routing(votes, activation, self.iterations)

    def finish(self, capsules: Capsules) -> Capsules:
        """Batch norm of the poses, and of the activations, with a sigmoid."""
        m = capsules.pose.reshape(-1, *capsules.pose.shape[-2:])
        activation = capsules.activation.reshape(-1, self.out_capsules)
        if self.training and len(m) == 1:
            raise ValueError(
                "vb routing has a batch norm, which needs more than one image to train on, got one; a model that only "
                "predicts belongs in eval mode"
            )
        pose = self.pose_norm(m).reshape(capsules.pose.shape)
        probability = self.activation_norm(activation).sigmoid().reshape(capsules.activation.shape)
        return Capsules(pose, pose, probability)

    def evidence(self, votes: Tensor, activation: Tensor | None = None) -> Evidence:
        """What each child contributed: its part in a_j is its part in all that parent j was assigned."""
        return vb_evidence(votes, activation, self)

    def extra_repr(self) -> str:
        """Options, for print(model)."""
        return f"{super().extra_repr()}, iterations={self.iterations}"


@torch.no_grad()
def vb_evidence(votes: Tensor, activation: Tensor | None, routing: VBRouting) -> Evidence:
    """Evidence of variational Bayes routing: a sigmoid is no sum of parts, so a_j is divided by r / N.

    Args:
        votes: dense, (..., I, J, K).
        activation: activations of the children, (..., I), or None.
        routing: the routing, with its batch norms.
    """
    a_j = routing(votes, activation).activation.to(full_precision(votes.dtype))
    votes = votes.to(full_precision(votes.dtype))
    _, R = _vb(votes, activation, routing.iterations)
    r = _assigned(R, activation)
    part = r / r.sum(dim=-2, keepdim=True).clamp_min(ABSENT)
    weighted = part.unsqueeze(-1) * votes
    return Evidence(part * a_j.unsqueeze(-2), R, weighted, torch.ones_like(weighted[..., 0, :, :]))
