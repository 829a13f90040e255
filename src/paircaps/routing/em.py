"""EM routing: parents are Gaussians fitted to the votes, with two learned costs for each parent."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from paircaps._utils.precision import full_precision
from paircaps.functional import ABSENT, Capsules, em_coupling, em_routing
from paircaps.routing.base import Routing, VoteNeeds, require_iterations
from paircaps.routing.evidence import Evidence


@torch.no_grad()
def em_evidence(votes: Tensor, activation: Tensor | None, beta_u: Tensor, beta_a: Tensor, iterations: int) -> Evidence:
    """Evidence of EM routing: a sigmoid is no sum of parts, so a_j is divided as μ_j is, by R a_i / Σ R a_i."""
    votes = votes.to(full_precision(votes.dtype))
    coupling = em_coupling(votes, activation, beta_u, beta_a, iterations)
    a_j = em_routing(votes, activation, beta_u, beta_a, iterations).activation
    assigned = coupling if activation is None else coupling * activation.unsqueeze(-1)
    part = assigned / assigned.sum(dim=-2, keepdim=True).clamp_min(ABSENT)
    weighted = part.unsqueeze(-1) * votes
    return Evidence(part * a_j.unsqueeze(-2), coupling, weighted, torch.ones_like(weighted[..., 0, :, :]))


class EMRouting(Routing):
    """EM routing (Hinton, Sabour and Frosst, 2018): each parent is a Gaussian fitted to the votes it explains.

    This is :func:`paircaps.functional.em_routing` as a module, ``"em"`` by name, that owns β_u and β_a.

    EM learns from the first step only if its parents start neither dead nor saturated. A parent starts half active
    where β_a = 0 and β_u = −½ log σ². The default fits votes of standard deviation 0.22, about what a fresh
    CapsuleLayer of 64 to 100 children and 10 parents with vote norm casts; other sizes, and layers without vote norm,
    start elsewhere. The published runs draw β_a from N(−1000, 500²) and β_u near zero. LOG.md has numbers.

    Args:
        out_capsules: J, the number of parents.
        iterations: r, from 1 to 100.
        beta_u: initial value of every β_u, the cost of describing a child by a parent.
        beta_a: initial value of every β_a, the cost of leaving a parent inactive.
    """

    def __init__(self, out_capsules: int, *, iterations: int = 3, beta_u: float = 1.5, beta_a: float = 0.0) -> None:
        super().__init__(out_capsules)
        require_iterations(iterations)
        self.iterations = iterations
        self.beta_u = nn.Parameter(torch.full((out_capsules,), float(beta_u)))
        self.beta_a = nn.Parameter(torch.full((out_capsules,), float(beta_a)))

    @property
    def bounded(self) -> bool:
        """Always True, since an activation is a probability."""
        return True

    def agree(self, votes: Tensor, activation: Tensor | None) -> Capsules:
        """EM routing of dense votes; the M step weights children by their activations."""
        return em_routing(votes, activation, self.beta_u, self.beta_a, self.iterations)

    @property
    def needs(self) -> VoteNeeds:
        """All votes of an image, in every iteration; images are routed independently."""
        return VoteNeeds.IMAGES

    def evidence(self, votes: Tensor, activation: Tensor | None = None) -> Evidence:
        """What each child contributed: its part in a_j is its part in all that parent j was assigned."""
        return em_evidence(votes, activation, self.beta_u.detach(), self.beta_a.detach(), self.iterations)

    def extra_repr(self) -> str:
        """Options, for print(model)."""
        return f"{super().extra_repr()}, iterations={self.iterations}"
