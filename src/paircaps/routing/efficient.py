"""Self-attention routing: a child turns to the parents for whom its vote agrees with the sum of all votes, at once."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from paircaps._utils.checks import require_shape, require_votes, shape_of
from paircaps._utils.precision import full_precision, in_full_precision
from paircaps.functional import Capsules, squash_exponential
from paircaps.routing.base import Routing, VoteNeeds, at_every_position
from paircaps.routing.evidence import Evidence, evidence_of_length


@in_full_precision
def efficient_routing(votes: Tensor, prior: Tensor | None = None) -> Capsules:
    """Self-attention routing of Efficient-CapsNet: one pass over the votes for their sum, one for the parents.

        c_ij = softmax_j(⟨û_ij, Σ_k û_kj⟩ / √K),  s_j = Σ_i (c_ij + b_ij) û_ij,  v_j = (1 − e^{−‖s_j‖}) s_j / ‖s_j‖

    Args:
        votes: û, (..., I, J, K).
        prior: b, added to the weight of every vote, (I, J); None leaves it out.

    Returns:
        Capsules whose ``s`` and ``pose`` are both v, (..., J, K), and whose activation is ‖v‖, (..., J).
    """
    return _parents((_coupling(votes, prior).unsqueeze(-1) * votes).sum(dim=-3))


@in_full_precision
def efficient_routing_of_sums(total: Tensor, coupled: Callable[[Tensor], Tensor]) -> Capsules:
    """Self-attention routing without a prior and without the votes, from sums over them.

    Args:
        total: Σû over the children, (..., J, K).
        coupled: from V, (..., J, K), to Σ_i softmax_j(⟨û_ij, V_j⟩) û_ij, (..., J, K).

    Returns:
        Capsules, as :func:`efficient_routing` returns them.
    """
    return _parents(coupled(total / math.sqrt(total.shape[-1])))


def _coupling(votes: Tensor, prior: Tensor | None) -> Tensor:
    """Weight of every vote, c + b, (..., I, J)."""
    require_votes(votes)
    agreed = votes.sum(dim=-3) / math.sqrt(votes.shape[-1])
    coupling = torch.einsum("...ijk,...jk->...ij", votes, agreed).softmax(dim=-1)
    if prior is None:
        return coupling
    require_shape("prior", prior, votes.shape[-3:-1], f"one value per child and parent for votes of {shape_of(votes)}")
    return coupling + prior


def _parents(s: Tensor) -> Capsules:
    """Parents from the sums s of their weighted votes."""
    v = squash_exponential(s)
    return Capsules(v, v, torch.linalg.vector_norm(v, dim=-1))


@torch.no_grad()
def efficient_evidence(votes: Tensor, prior: Tensor | None) -> Evidence:
    """Evidence of self-attention routing: with w = c + b, the part of a child in ‖s‖² is ⟨w_i û_i, s⟩."""
    dtype = full_precision(votes.dtype)
    votes, prior = votes.to(dtype), None if prior is None else prior.to(dtype)
    coupling = _coupling(votes, prior)
    return evidence_of_length(coupling.unsqueeze(-1) * votes, efficient_routing(votes, prior).activation, coupling)


class EfficientRouting(Routing):
    """Self-attention routing of Efficient-CapsNet (Mazzia, Salvetti and Chiaberge, 2021), ``"efficient"`` by name.

    A child is divided among the parents by how well its vote agrees with the sum of all votes for each of them. This
    happens once: there are no iterations. A learned prior b_ij, zero at first, is added to the weight of each vote.

    As published, activations of the children are not read: a vote counts by its length, which is that of its child.

    The prior decides how the votes are read. Without it a sum of coupled votes is all that is needed beside the sum of
    the votes, so a kernel walks through the children (``VoteNeeds.COUPLED_SUMS``). With it, votes are summed with
    weights that no such sum has, so they are read a few images at a time (``VoteNeeds.IMAGES``).

    Args:
        out_capsules: J, the number of parents.
        in_capsules: number of children with matrices of their own; a layer gives it. Children that share their matrices
            share their priors too.
        prior: whether to have b, as published; a routing without it has no parameters.
    """

    layer_sizes = ("in_capsules",)
    child_parameters = ("prior",)

    prior: nn.Parameter | None
    """Prior b of each child with matrices of its own, (in_capsules, J), or None."""

    def __init__(self, out_capsules: int, *, in_capsules: int, prior: bool = True) -> None:
        super().__init__(out_capsules, in_capsules=in_capsules)
        self.register_parameter("prior", nn.Parameter(torch.zeros(in_capsules, out_capsules)) if prior else None)

    @property
    def bounded(self) -> bool:
        """Always True, since an activation is the length of a squashed vector."""
        return True

    @property
    def needs(self) -> VoteNeeds:
        """All votes of an image, twice; without a prior, the sum of the votes and one sum of coupled votes."""
        return VoteNeeds.COUPLED_SUMS if self.prior is None else VoteNeeds.IMAGES

    def agree(self, votes: Tensor, activation: Tensor | None) -> Capsules:
        """Self-attention routing of dense votes; a child's activation is the length of its capsule."""
        return efficient_routing(votes, self._prior_of(votes))

    def agree_on_coupled(self, total: Tensor, coupled: Callable[[Tensor], Tensor]) -> Capsules:
        """Self-attention routing without a prior, with one pass over the votes beside their sum."""
        return efficient_routing_of_sums(total, coupled)

    def evidence(self, votes: Tensor, activation: Tensor | None = None) -> Evidence:
        """What each child contributed: with the weight w = c + b of its vote, its part in ‖s‖² is ⟨w_i û_i, s⟩."""
        return efficient_evidence(votes, self._prior_of(votes))

    def _prior_of(self, votes: Tensor) -> Tensor | None:
        """Prior of all children, (I, J)."""
        return None if self.prior is None else at_every_position(self.prior, votes.shape[-3])

    def extra_repr(self) -> str:
        """Options, for print(model)."""
        return f"{super().extra_repr()}, prior={self.prior is not None}"
