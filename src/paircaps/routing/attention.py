"""Inverted dot-product attention: children turn to the parents whose poses their votes point along."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from paircaps._utils.checks import require_choice, require_positive
from paircaps._utils.precision import full_precision, in_full_precision
from paircaps.functional import Capsules
from paircaps.routing.base import Routing, VoteNeeds, require_iterations
from paircaps.routing.evidence import Evidence

LAYER_EPS = 1e-5
"""Added to the variance of the layer norm, as published."""

ATTENTION_ACTIVATIONS = ("logit", "probability")
"""Values of ``activation``: a_j itself, or σ(a_j)."""


@in_full_precision
def attention_poses(
    total: Tensor, coupled: Callable[[Tensor], Tensor], gain: Tensor, shift: Tensor, iterations: int = 2
) -> Tensor:
    """Poses of inverted dot-product attention, from sums over the votes.

        p_j = LayerNorm(Σ_i r_ij V_ij),  r_ij = 1/J at first, then softmax_j(⟨p_j, V_ij⟩ / √K)

    Args:
        total: ΣV over the children, (..., J, K), in full precision.
        coupled: from P, (..., J, K), to Σ_i softmax_j(⟨V_ij, P_j⟩) V_ij, (..., J, K).
        gain: scale of the layer norm, (K,).
        shift: shift of the layer norm, (K,).
        iterations: rounds, at least 1, the first with r = 1/J included.

    Returns:
        p, (..., J, K).
    """
    require_positive(iterations=iterations)
    J, K = total.shape[-2:]
    p = F.layer_norm(total / J, (K,), gain, shift, LAYER_EPS)
    for _ in range(iterations - 1):
        p = F.layer_norm(coupled(p / math.sqrt(K)), (K,), gain, shift, LAYER_EPS)
    return p


def _scores(votes: Tensor, P: Tensor) -> Tensor:
    """How far each vote points along its parent: ⟨V_ij, P_j⟩, (..., I, J)."""
    return torch.einsum("...ijk,...jk->...ij", votes, P)


@in_full_precision
def _poses_of_votes(votes: Tensor, gain: Tensor, shift: Tensor, iterations: int) -> Tensor:
    """Poses from dense votes, (..., I, J, K)."""

    def coupled(P: Tensor) -> Tensor:
        return torch.einsum("...ij,...ijk->...jk", _scores(votes, P).softmax(dim=-1), votes)

    return attention_poses(votes.sum(dim=-3), coupled, gain, shift, iterations)


class AttentionRouting(Routing):
    """Inverted dot-product attention (Tsai, Srivastava, Goh and Salakhutdinov, 2020): parents compete for children.

    In a transformer's attention a query chooses among keys; here a child, by its votes, chooses among parents. The
    parents of the first round are the sums of all votes; every further round attends to the poses of the one before.
    A layer norm with a learned scale and shift, one for all parents of a layer, gives each pose its length. The routing
    is ``"attention"`` by name.

    As published, activations of the children are not read: a vote counts by its length. The activation of a parent is a
    linear layer of its pose, the same for all parents. It gives a logit, made for cross entropy;
    ``activation="probability"`` takes σ of it, for layers above whose routing weighs children by activations in 0..1.

    Not built is that all layers of a network are updated together, each from the poses of the round before. Here a
    layer finishes its rounds before the one above begins. In a network with a single routed layer there is no
    difference. The publication's dropout of poses is left out as well.

    The first round needs the sum of the votes, and each further one a sum of votes coupled to their parents, which a
    kernel takes without all votes in memory.

    Args:
        out_capsules: J, the number of parents.
        pose_dim: K, at least 2: of a single number, layer norm leaves nothing.
        iterations: rounds, from 1 to 100, with that of the sums counted.
        activation: ``"logit"``, the linear layer's value, which has no bound; or ``"probability"``, its sigmoid.
    """

    layer_sizes = ("pose_dim",)

    def __init__(self, out_capsules: int, *, pose_dim: int, iterations: int = 2, activation: str = "logit") -> None:
        super().__init__(out_capsules, pose_dim=pose_dim)
        if pose_dim < 2:
            raise ValueError(
                f"pose_dim must be at least 2 for attention, whose layer norm divides by the spread of a "
                f"pose, got {pose_dim}"
            )
        require_iterations(iterations)
        require_choice("activation", activation, ATTENTION_ACTIVATIONS)
        self.iterations = iterations
        self.activation = activation
        self.norm = nn.LayerNorm(pose_dim, LAYER_EPS)
        self.score = nn.Linear(pose_dim, 1)

    @property
    def bounded(self) -> bool:
        """Whether activations lie in 0..1, as probabilities do; logits have no bound."""
        return self.activation == "probability"

    @property
    def needs(self) -> VoteNeeds:
        """One round needs the sum of the votes alone; each further one needs a sum of votes coupled to parents."""
        return VoteNeeds.TOTAL if self.iterations == 1 else VoteNeeds.COUPLED_SUMS

    def agree(self, votes: Tensor, activation: Tensor | None) -> Capsules:
        """Attention of dense votes."""
        return self._capsules(_poses_of_votes(votes, self.norm.weight, self.norm.bias, self.iterations))

    def agree_on_total(self, total: Tensor, children: int) -> Capsules:
        """One round, from the sum of the votes."""
        return self.agree_on_coupled(total, lambda P: P)  # of which none is asked for

    def agree_on_coupled(self, total: Tensor, coupled: Callable[[Tensor], Tensor]) -> Capsules:
        """Attention with a pass over the votes for each round but the first."""
        return self._capsules(attention_poses(total, coupled, self.norm.weight, self.norm.bias, self.iterations))

    def _capsules(self, p: Tensor) -> Capsules:
        """Capsules of poses p."""
        return Capsules(p, p, _activation(p, self.score.weight, self.score.bias, self.activation))

    def evidence(self, votes: Tensor, activation: Tensor | None = None) -> Evidence:
        """What each child contributed: its part of the sum that a logit is; a probability is divided by r / Σ r."""
        return attention_evidence(votes, self)

    def extra_repr(self) -> str:
        """Options, for print(model)."""
        return f"{super().extra_repr()}, iterations={self.iterations}, activation={self.activation!r}"


@in_full_precision
def _activation(p: Tensor, weight: Tensor, bias: Tensor, activation: str) -> Tensor:
    """Activations of poses: a linear layer, and a sigmoid where they are probabilities, (..., J)."""
    a = F.linear(p, weight, bias).squeeze(-1)
    return a.sigmoid() if activation == "probability" else a


@torch.no_grad()
def attention_evidence(votes: Tensor, routing: AttentionRouting) -> Evidence:
    """Evidence of inverted dot-product attention.

    With s = Σ r V, a logit is ⟨w, g ⊙ (s − mean s) / σ + h⟩ + b. With σ as the layer norm found it, that is a sum over
    the children: each has its own part of the product, and an equal part of ⟨w, h⟩ + b. A sigmoid is no sum, so a
    probability is divided as the pose is, by r / Σ r. Children whose votes are zero, such as those outside a grid, have
    no part, unless there are no others.

    Args:
        votes: dense, (..., I, J, K).
        routing: the routing, with its parameters.
    """
    dtype = full_precision(votes.dtype)
    norm, score = routing.norm, routing.score
    votes, gain, shift, weight, bias = (
        part.to(dtype) for part in (votes, norm.weight, norm.bias, score.weight[0], score.bias)
    )
    J, K = votes.shape[-2:]
    heard = (votes != 0).flatten(-2).any(dim=-1, keepdim=True)  # (..., I, 1)
    heard = heard | ~heard.any(dim=-2, keepdim=True)
    log_r = votes.new_full(votes.shape[:-1], -math.log(J))
    if routing.iterations > 1:
        p = _poses_of_votes(votes, gain, shift, routing.iterations - 1)
        log_r = _scores(votes, p / math.sqrt(K)).log_softmax(dim=-1)
    weighted = log_r.exp().unsqueeze(-1) * votes
    if routing.activation == "probability":
        share = log_r.masked_fill(~heard, -torch.inf).softmax(dim=-2) * routing.agree(votes, None).activation.unsqueeze(
            -2
        )
    else:
        slope = gain * weight
        sigma = (weighted.sum(dim=-3).var(dim=-1, correction=0) + LAYER_EPS).sqrt()  # (..., J)
        equal = heard.to(dtype) / heard.sum(dim=-2, keepdim=True)
        share = weighted @ (slope - slope.mean()) / sigma.unsqueeze(-2) + equal * (weight @ shift + bias)
    return Evidence(share, log_r.exp(), weighted, torch.ones_like(weighted[..., 0, :, :]))
