"""Heinsen's routing: parents are Gaussians of the votes they use, active by what they use less what they ignore."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from paircaps._utils.checks import require_choice, require_positive, require_shape, require_votes, shape_of
from paircaps._utils.precision import full_precision, in_full_precision
from paircaps.functional import ABSENT, Capsules
from paircaps.routing.base import Routing, VoteNeeds, require_iterations
from paircaps.routing.evidence import Evidence

VARIANCE_FLOOR = 1e-5
"""Added to every variance, as published."""

REACH = 1e4
"""The floor under the variances is that of votes up to this size, and grows with their square beyond."""

HEINSEN_ACTIVATIONS = ("probability", "logit")
"""Values of ``activation``: σ(a_j), or a_j itself."""


@in_full_precision
def heinsen_routing(
    votes: Tensor,
    activation: Tensor | None,
    beta_use: Tensor,
    beta_ign: Tensor,
    iterations: int = 3,
    output: str = "probability",
) -> Capsules:
    """Heinsen's routing: each child divides what it has among the parents, who gain by what they use of it.

    With f the activation of each child, cut off to 0..1, and R the division of each child among the parents, 1/J at
    first, every iteration takes D = f R, then

        a_j = Σ_i β_use D − β_ign (f − D),  μ = Σ D V / Σ D,  σ² = Σ D (V − μ)² / Σ D + 1e-5,

    and, but for the last, R = softmax_j(log σ(a_j) − Σ (V − μ)² / 2σ² − Σ ln σ). R and the weights D / Σ D are computed
    from their logarithms, so that a parent whom all children have left still has a mean. Votes larger than 1e4 are
    measured in units in which they are not.

    Args:
        votes: V, (..., I, J, K).
        activation: activations of the children, (..., I); None stands for children that are certainly there.
        beta_use: gain of a parent by what it uses, (J,).
        beta_ign: loss of a parent by what it ignores, (J,).
        iterations: r, at least 1.
        output: what the activations of the parents are: ``"probability"``, σ(a_j), or ``"logit"``, a_j.

    Returns:
        Capsules whose ``s`` and ``pose`` are both μ, (..., J, K), and whose activation is σ(a_j) or a_j, (..., J).
    """
    mu, a_j, _, _ = _heinsen(votes, activation, beta_use, beta_ign, iterations)
    return Capsules(mu, mu, a_j.sigmoid() if output == "probability" else a_j)


def _heinsen(
    votes: Tensor, activation: Tensor | None, beta_use: Tensor, beta_ign: Tensor, iterations: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """μ and a_j of the last iteration, log R that they were made with, (..., I, J), and log f, (..., I, 1)."""
    # checks
    require_votes(votes)
    require_positive(iterations=iterations)
    J = votes.shape[-2]
    for name, beta in (("beta_use", beta_use), ("beta_ign", beta_ign)):
        require_shape(name, beta, (J,), f"one value per parent for votes of {shape_of(votes)}")

    # a unit of length that divides all votes of an image drops out of R, since every parent's Σ ln σ loses the same
    unit = (votes.detach().abs().amax(dim=(-3, -2, -1)) / REACH).clamp_min(1)[..., None, None, None]
    V = votes / unit

    # iterations, from a uniform division
    log_f = _log_probability(votes, activation).unsqueeze(-1)  # (..., I, 1)
    log_R = votes.new_zeros(votes.shape[:-1]).log_softmax(dim=-1)  # (..., I, J)
    for _ in range(1, iterations):
        a_j = _gain(log_f, log_R, beta_use, beta_ign)
        mu = _mean(V, log_f + log_R)
        log_R = _divide(V, a_j, mu, log_f + log_R)
    return unit.squeeze(-1) * _mean(V, log_f + log_R), _gain(log_f, log_R, beta_use, beta_ign), log_R, log_f


def _log_probability(votes: Tensor, activation: Tensor | None) -> Tensor:
    """Logarithm of the probability of each child, log f, (..., I)."""
    if activation is None:
        return votes.new_zeros(votes.shape[:-2])
    return activation.clamp(ABSENT, 1.0).log()


def _gain(log_f: Tensor, log_R: Tensor, beta_use: Tensor, beta_ign: Tensor) -> Tensor:
    """a_j: what the parents gain by the children they use, less what they lose by those they ignore, (..., J)."""
    used = (log_f + log_R).exp().sum(dim=-2)  # Σ D
    ignored = log_f.exp().sum(dim=-2) - used  # Σ f − D
    return beta_use * used - beta_ign * ignored


def _mean(V: Tensor, log_D: Tensor) -> Tensor:
    """μ: the mean of the votes by their weights D, (..., J, K)."""
    return torch.einsum("...ij,...ijk->...jk", log_D.softmax(dim=-2), V)


def _divide(V: Tensor, a_j: Tensor, mu: Tensor, log_D: Tensor) -> Tensor:
    """Divide each child among the parents by their activations and the likelihoods of its votes: log R, (..., I, J)."""
    deviation = (V - mu.unsqueeze(-3)).square()  # (..., I, J, K)
    variance = torch.einsum("...ij,...ijk->...jk", log_D.softmax(dim=-2), deviation) + VARIANCE_FLOOR
    spread = variance.log().sum(dim=-1) / 2  # Σ ln σ
    distance = (deviation / (2 * variance).unsqueeze(-3)).sum(dim=-1)  # (..., I, J)
    return ((F.logsigmoid(a_j) - spread).unsqueeze(-2) - distance).log_softmax(dim=-1)


@torch.no_grad()
def heinsen_evidence(
    votes: Tensor, activation: Tensor | None, beta_use: Tensor, beta_ign: Tensor, iterations: int, output: str
) -> Evidence:
    """Evidence of Heinsen's routing: a_j is a sum over the children, and the part of one is β_use D − β_ign (f − D).

    A sigmoid is no sum, so σ(a_j) is divided as μ_j is, by D / Σ D.
    """
    dtype = full_precision(votes.dtype)
    activation = None if activation is None else activation.to(dtype)
    votes, beta_use, beta_ign = (part.to(dtype) for part in (votes, beta_use, beta_ign))
    _, a_j, log_R, log_f = _heinsen(votes, activation, beta_use, beta_ign, iterations)
    D, part = (log_f + log_R).exp(), (log_f + log_R).softmax(dim=-2)
    share = beta_use * D - beta_ign * (log_f.exp() - D)
    if output == "probability":
        share = part * a_j.sigmoid().unsqueeze(-2)
    weighted = part.unsqueeze(-1) * votes
    return Evidence(share, log_R.exp(), weighted, torch.ones_like(weighted[..., 0, :, :]))


class HeinsenRouting(Routing):
    """Heinsen's routing (2019): parents gain by the children they use and lose by those they ignore.

    This is :func:`paircaps.routing.heinsen.heinsen_routing` as a module, ``"heinsen"`` by name, that owns β_use and
    β_ign. All votes of an image are read twice in every iteration, so it streams a few images at a time.

    Two things differ from the publication. There, β is one number for each parent and *kind* of child; here it is one
    for each parent, so that the routing need not know how many children there will be. There, activations are logits,
    and the layer above takes f = σ(a) of them; here the layer below takes the σ, and f is the activation itself, as
    with all other routings: 0 is a child that is not there, and what is outside 0..1 is cut off. The parents are the
    same. ``activation="logit"`` leaves the σ out: for a last layer that is trained by cross entropy, as published.

    Args:
        out_capsules: J, the number of parents.
        iterations: r, from 1 to 100.
        activation: ``"probability"``, σ(a_j), which lies in 0..1; or ``"logit"``, a_j itself, which has no bound and is
            made for cross entropy.
        beta_use: initial value of every β_use, the gain by what a parent uses.
        beta_ign: initial value of every β_ign, the loss by what it ignores.
    """

    def __init__(
        self,
        out_capsules: int,
        *,
        iterations: int = 3,
        activation: str = "probability",
        beta_use: float = 0.015625,
        beta_ign: float = 0.015625,
    ) -> None:
        super().__init__(out_capsules)
        require_iterations(iterations)
        require_choice("activation", activation, HEINSEN_ACTIVATIONS)
        self.iterations = iterations
        self.activation = activation
        self.beta_use = nn.Parameter(torch.full((out_capsules,), float(beta_use)))
        self.beta_ign = nn.Parameter(torch.full((out_capsules,), float(beta_ign)))

    @property
    def bounded(self) -> bool:
        """Whether activations lie in 0..1, as probabilities do; logits have no bound."""
        return self.activation == "probability"

    def agree(self, votes: Tensor, activation: Tensor | None) -> Capsules:
        """Heinsen's routing of dense votes; children count by their activations."""
        return heinsen_routing(votes, activation, self.beta_use, self.beta_ign, self.iterations, self.activation)

    @property
    def needs(self) -> VoteNeeds:
        """All votes of an image, in every iteration; images are routed independently."""
        return VoteNeeds.IMAGES

    def evidence(self, votes: Tensor, activation: Tensor | None = None) -> Evidence:
        """What each child contributed: its part of the sum that a_j is; a probability is divided as μ_j is."""
        betas = self.beta_use.detach(), self.beta_ign.detach()
        return heinsen_evidence(votes, activation, *betas, self.iterations, self.activation)

    def extra_repr(self) -> str:
        """Options, for print(model)."""
        return f"{super().extra_repr()}, iterations={self.iterations}, activation={self.activation!r}"
