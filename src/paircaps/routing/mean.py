"""No routing: each parent is the average of its votes, squashed. It is the control that every routing has to beat."""

from __future__ import annotations

import torch
from torch import Tensor

from paircaps._utils.precision import full_precision, in_full_precision
from paircaps.functional import Capsules, squash
from paircaps.routing.base import Routing, VoteNeeds
from paircaps.routing.evidence import Evidence, evidence_of_length


@in_full_precision
def mean_of_votes(total: Tensor, children: int) -> Capsules:
    """Parents from the sum of their votes: the average, squashed, whose length is the activation.

        v_j = squash(1/I · Σ_i û_{j|i}),  a_j = ‖v_j‖

    Args:
        total: Σû over the children, (..., J, K).
        children: I, the number of votes in the sum.

    Returns:
        Capsules whose ``s`` and ``pose`` are both v, (..., J, K), and whose activation is ‖v‖, (..., J).
    """
    v = squash(total / children)
    return Capsules(v, v, torch.linalg.vector_norm(v, dim=-1))


@torch.no_grad()
def mean_evidence(votes: Tensor) -> Evidence:
    """Evidence of an average: with s the average, the part of a child in ‖s‖² is ⟨û_i, s⟩ / I."""
    votes = votes.to(full_precision(votes.dtype))
    weighted = votes / votes.shape[-3]
    return evidence_of_length(weighted, mean_of_votes(votes.sum(dim=-3), votes.shape[-3]).activation)


class MeanOfVotes(Routing):
    """No routing at all: each parent is the average of its votes, squashed, ``"mean"`` by name.

    Whatever a routing is for, it has to do better than this at the same number of parameters. Dynamic routing with
    one iteration is the same but for its divisor, which is the number of parents there and that of the votes here.

    It needs only the sum of the votes, which is one matrix product, so it streams at no cost. Activations of the
    children are not read: a vote counts by its length.

    Args:
        out_capsules: J, the number of parents.
    """

    @property
    def bounded(self) -> bool:
        """Always True, since an activation is the length of a squashed vector."""
        return True

    @property
    def needs(self) -> VoteNeeds:
        """The sum of the votes."""
        return VoteNeeds.TOTAL

    def agree(self, votes: Tensor, activation: Tensor | None) -> Capsules:
        """Average of dense votes."""
        return self.agree_on_total(votes.sum(dim=-3), votes.shape[-3])

    def agree_on_total(self, total: Tensor, children: int) -> Capsules:
        """Average from the sum of the votes."""
        return mean_of_votes(total, children)

    def evidence(self, votes: Tensor, activation: Tensor | None = None) -> Evidence:
        """What each child contributed: with s the average, its part in ‖s‖² is ⟨û_i, s⟩ / I; there is no coupling."""
        return mean_evidence(votes)
