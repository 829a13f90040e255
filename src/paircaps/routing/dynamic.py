"""Dynamic routing: children are coupled to the parents that agree with their votes, in several iterations."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from paircaps._utils.checks import require_bool
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
def dynamic_evidence(votes: Tensor, iterations: int, none_of_the_above: bool = False) -> Evidence:
    """Evidence of dynamic routing: the part of a pair (i, k) in ‖s‖² is ⟨c_i û_i, c_k û_k⟩, i = k included."""
    votes = votes.to(full_precision(votes.dtype))
    coupling = dynamic_coupling(votes, iterations, none_of_the_above=none_of_the_above)
    weighted = coupling.unsqueeze(-1) * votes
    activation = torch.linalg.vector_norm(squash(weighted.sum(dim=-3)), dim=-1)
    return evidence_of_length(weighted, activation, coupling)


class DynamicRouting(Routing):
    """Dynamic routing (Sabour, Frosst and Hinton, 2017): children turn to the parents that agree with their votes.

    This is :func:`paircaps.functional.dynamic_routing` as a module, ``"dynamic"`` by name.

    Args:
        out_capsules: J, the number of parents.
        iterations: r, the number of times that the children are divided among the parents; from 1 to 100.
        none_of_the_above: whether children may also turn to none of the parents, as in the first CapsNet on CIFAR10:
            the softmax has one more category, whose logit stays zero. It is no capsule, and no result shows it.
    """

    def __init__(self, out_capsules: int, *, iterations: int = 3, none_of_the_above: bool = False) -> None:
        super().__init__(out_capsules)
        require_iterations(iterations)
        require_bool(none_of_the_above=none_of_the_above)
        self.iterations, self.none_of_the_above = iterations, none_of_the_above

    @property
    def bounded(self) -> bool:
        """Always True, since an activation is the length of a squashed vector."""
        return True

    def agree(self, votes: Tensor, activation: Tensor | None) -> Capsules:
        """Dynamic routing of dense votes; a child's activation is the length of its capsule, so votes contain it."""
        return dynamic_routing(votes, self.iterations, none_of_the_above=self.none_of_the_above)

    @property
    def needs(self) -> VoteNeeds:
        """One iteration needs the sum of the votes alone; each further one needs a sum of votes coupled to parents.

        Coupled sums divide a child among the parents alone: with none of the above, all votes of an image are needed.
        """
        if self.iterations == 1:
            return VoteNeeds.TOTAL
        return VoteNeeds.IMAGES if self.none_of_the_above else VoteNeeds.COUPLED_SUMS

    def agree_on_total(self, total: Tensor, children: int) -> Capsules:
        """One iteration: the coupling is 1/J for every child, so s is the sum of the votes divided by J, squashed."""
        return uniform_routing(total, none_of_the_above=self.none_of_the_above)

    def agree_on_coupled(self, total: Tensor, coupled: Callable[[Tensor], Tensor]) -> Capsules:
        """Dynamic routing with a pass over the votes for each iteration but the first."""
        return dynamic_routing_of_sums(total, coupled, self.iterations)

    def evidence(self, votes: Tensor, activation: Tensor | None = None) -> Evidence:
        """What each child contributed: with the coupling c of the last iteration, its part in ‖s‖² is ⟨c_i û_i, s⟩."""
        return dynamic_evidence(votes, self.iterations, self.none_of_the_above)

    def extra_repr(self) -> str:
        """Options, for print(model)."""
        other = ", none_of_the_above=True" if self.none_of_the_above else ""
        return f"{super().extra_repr()}, iterations={self.iterations}{other}"
