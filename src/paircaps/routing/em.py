"""EM routing: parents as Gaussians fitted to the votes, with two learned costs a parent."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from paircaps._checks import require_positive
from paircaps.functional import Capsules, em_routing
from paircaps.routing.base import Routing


class EMRouting(Routing):
    """:func:`paircaps.functional.em_routing` as a module that owns β_u and β_a.

    Both start at zero. With normalised votes (σ² near one) every parent then starts half active, the state that EM's
    authors ask for, and no class starts ahead of another. The published runs draw β_a from N(−1000, 500²); times
    λ that is a random handicap of 0.7 in the logit of each class, which training hardly takes back.

    Args:
        out_capsules: J, the number of parents.
        iterations: r, at least 1.
    """

    def __init__(self, out_capsules: int, *, iterations: int = 3) -> None:
        super().__init__(out_capsules)
        require_positive(iterations=iterations)
        self.iterations = iterations
        self.beta_u = nn.Parameter(torch.zeros(out_capsules))
        self.beta_a = nn.Parameter(torch.zeros(out_capsules))

    def agree(self, votes: Tensor, activation: Tensor | None) -> Capsules:
        """Children weigh by their activation in the M step."""
        return em_routing(votes, activation, self.beta_u, self.beta_a, self.iterations)

    def extra_repr(self) -> str:
        """Options, for print(model)."""
        return f"{super().extra_repr()}, iterations={self.iterations}"
