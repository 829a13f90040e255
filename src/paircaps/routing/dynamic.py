"""Dynamic routing: children are coupled to the parents that agree with their votes, in several iterations."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from paircaps._utils.precision import full_precision
from paircaps.functional import (
    Capsules,
    dynamic_coupling,
    dynamic_routing,
    dynamic_routing_of_sums,
    squash,
    uniform_routing,
)
from paircaps.routing.base import Routing, VoteNeeds, require_iterations
from paircaps.routing.evidence import Evidence, evidence_of_length


@torch.no_grad()
def dynamic_evidence(votes: Tensor, iterations: int) -> Evidence:
    """Evidence of dynamic routing: the part of a pair (i, k) in ‖s‖² is ⟨c_i û_i, c_k û_k⟩, i = k included."""
    votes = votes.to(full_precision(votes.dtype))
    coupling = dynamic_coupling(votes, iterations)
    weighted = coupling.unsqueeze(-1) * votes
    activation = torch.linalg.vector_norm(squash(weighted.sum(dim=-3)), dim=-1)
    return evidence_of_length(weighted, activation, coupling)


class DynamicRouting(Routing):
    """Dynamic routing (Sabour, Frosst and Hinton, 2017): children turn to the parents that agree with their votes.

    This is :func:`paircaps.functional.dynamic_routing` as a module, ``"dynamic"`` by name.

    Args:
        out_capsules: J, the number of parents.
        iterations: r, the number of times that the children are divided among the parents; from 1 to 100.
    """

    def __init__(self, out_capsules: int, *, iterations: int = 3) -> None:
        super().__init__(out_capsules)
        require_iterations(iterations)
        self.iterations = iterations

    @property
    def bounded(self) -> bool:
        """Always True, since an activation is the length of a squashed vector."""
        return True

    def agree(self, votes: Tensor, activation: Tensor | None) -> Capsules:
        """Dynamic routing of dense votes; a child's activation is the length of its capsule, so votes contain it."""
        return dynamic_routing(votes, self.iterations)

    @property
    def needs(self) -> VoteNeeds:
        """One iteration needs the sum of the votes alone; each further one needs a sum of votes coupled to parents."""
        return VoteNeeds.TOTAL if self.iterations == 1 else VoteNeeds.COUPLED_SUMS

    def agree_on_total(self, total: Tensor, children: int) -> Capsules:
        """One iteration: the coupling is 1/J for every child, so s is the sum of the votes divided by J, squashed."""
        return uniform_routing(total)

    def agree_on_coupled(self, total: Tensor, coupled: Callable[[Tensor], Tensor]) -> Capsules:
        """Dynamic routing with a pass over the votes for each iteration but the first."""
        return dynamic_routing_of_sums(total, coupled, self.iterations)

    def evidence(self, votes: Tensor, activation: Tensor | None = None) -> Evidence:
        """What each child contributed: with the coupling c of the last iteration, its part in ‖s‖² is ⟨c_i û_i, s⟩."""
        return dynamic_evidence(votes, self.iterations)

    def extra_repr(self) -> str:
        """Options, for print(model)."""
        return f"{super().extra_repr()}, iterations={self.iterations}"
