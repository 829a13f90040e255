"""FM agreement: one pass, no iteration, and no parameters but a learned softness or a scale, where it has one."""

from __future__ import annotations

import math
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

from paircaps._utils.checks import require_bool, require_choice, require_within
from paircaps._utils.precision import full_precision
from paircaps.functional import (
    ABSENT,
    FM_ACTIVATIONS,
    Capsules,
    effective_children,
    fm_agreement,
    fm_capsules,
    normalize_votes,
)
from paircaps.routing.base import Routing, SumOptions, VoteNeeds
from paircaps.routing.evidence import Evidence

MOST_SOFTNESS = 1e12
"""Largest c of the soft normalisation."""

MOST_LINEAR = 1e6
"""Largest weight of the linear part."""

SCALES = (1e-6, 1e6)
"""Least and largest scale of the mean agreement to begin with."""

FM_WEIGHTS = ("activation", None)
"""Values of ``weigh``: votes count as much as their child is active, or all alike."""


@torch.no_grad()
def fm_evidence(
    votes: Tensor,
    weight: Tensor | None = None,
    *,
    normalize: bool,
    halve: bool,
    activation: str,
    softness: float | Tensor = 0.0,
    linear: float = 0.0,
    scale: float | Tensor | None = None,
) -> Evidence:
    """Evidence of FM agreement: the part of a pair (i, k) in a_j is ⟨û_i, û_k⟩ / I; a linear part is that of i alone.

    A squashed activation is ‖s‖ = ⟨s, s/‖s‖⟩ times a factor, so there the dimensions of a product are weighted by the
    pose. Arguments are those of :func:`paircaps.functional.fm_agreement`; weighted votes stand for û, and their
    effective number for I.
    """
    votes = votes.to(full_precision(votes.dtype))
    weight = None if weight is None else weight.to(votes.dtype)
    softness = softness.detach() if isinstance(softness, Tensor) else softness
    options = {"normalize": normalize, "halve": halve, "activation": activation, "linear": linear, "scale": scale}
    capsules = fm_agreement(votes, weight, softness=softness, **options)
    # the votes that are multiplied, and their number
    votes = normalize_votes(votes, softness) if normalize else votes
    children: float | Tensor = votes.shape[-3]
    if weight is not None:
        votes = votes * weight[..., None, None]
        children = effective_children(weight).clamp_min(ABSENT)[..., None, None]
    # weight of each dimension of a product
    metric = torch.ones_like(capsules.pose)
    if activation == "squash":
        length = torch.linalg.vector_norm(capsules.s, dim=-1).clamp_min(ABSENT)
        metric = capsules.pose * (capsules.activation / length).unsqueeze(-1)
    alone = torch.einsum("...ijk,...jk->...ij", votes, metric) * linear
    metric = metric * ((1 if halve else 2) / children)
    if scale is not None:
        metric = metric * (scale / children)
    others = votes.sum(dim=-3, keepdim=True) - votes
    share = torch.einsum("...ijk,...ijk,...jk->...ij", votes, others, metric) / 2
    return Evidence(share + alone, None, votes, metric)


class FMAgreement(Routing):
    """FM agreement, the routing of the paper: parents from the products of all pairs of their votes, in one pass.

    This is :func:`paircaps.functional.fm_agreement` as a module, ``"fm"`` by name and the default of every layer.

    Args:
        out_capsules: J, the number of parents.
        normalize: give each vote length one first.
        halve: keep the factor ½ of the paper's text.
        activation: ``"sum"``, the sum of s over its dimensions, which has no bound and is made for cross entropy; or
            ``"squash"``, the length of s after a squash, which lies in 0..1.
        softness: c of the soft normalisation û / √(‖û‖² + c): votes that are short against √c stay short. Zero gives
            every vote length one, as in the paper.
        learn_softness: whether c is learned; ``softness`` is where it starts, and it stays positive.
        linear: weight of the sum of the votes beside their pairwise products: the linear part of a factorization
            machine, with which a vote counts by itself too. Zero leaves it out, as the paper does.
        weigh: ``"activation"`` multiplies the votes of each child by its activation, and divides by the sum of these
            where the paper divides by I; None lets all votes count alike, as in the paper.
        scale: t of the mean agreement of all pairs of votes, which does not grow with their number (E17); it is
            learned, from this number on. None takes their sum divided by I, as in the paper.
    """

    grid_options = MappingProxyType({"weigh": "activation"})
    fold_options = MappingProxyType({"scale": 30.0})

    def __init__(
        self,
        out_capsules: int,
        *,
        normalize: bool = True,
        halve: bool = True,
        activation: str = "sum",
        softness: float = 0.0,
        learn_softness: bool = False,
        linear: float = 0.0,
        weigh: str | None = None,
        scale: float | None = None,
    ) -> None:
        super().__init__(out_capsules)
        require_bool(normalize=normalize, halve=halve, learn_softness=learn_softness)
        require_choice("activation", activation, FM_ACTIVATIONS)
        require_choice("weigh", weigh, FM_WEIGHTS)
        require_within("softness", softness, 0, MOST_SOFTNESS)
        require_within("linear", linear, 0, MOST_LINEAR)
        if scale is not None:
            require_within("scale", scale, *SCALES)
        if softness and not normalize:
            raise ValueError(f"softness={softness} is for votes that are normalised, which normalize=False turns off")
        if learn_softness and not softness:
            raise ValueError("learn_softness=True needs a softness above zero to start from")
        self.normalize = normalize
        self.halve = halve
        self.activation = activation
        self.linear = float(linear)
        self.weigh = weigh
        self.initial_softness = float(softness)
        self.log_softness = nn.Parameter(torch.tensor(math.log(softness))) if learn_softness else None
        self.initial_scale = scale
        self.log_scale = None if scale is None else nn.Parameter(torch.zeros(()))  # of t over its first value

    @property
    def softness(self) -> float | Tensor:
        """The c of the soft normalisation, a number, or a tensor where it is learned."""
        return self.initial_softness if self.log_softness is None else self.log_softness.exp()

    @property
    def scale(self) -> Tensor | None:
        """The t of the mean agreement, or None where agreement is a sum."""
        if self.initial_scale is None or self.log_scale is None:
            return None
        return self.initial_scale * self.log_scale.exp()

    @property
    def bounded(self) -> bool:
        """Whether activations lie in 0..1, as those of the squash do; the sum has no bound."""
        return self.activation == "squash"

    def agree(self, votes: Tensor, activation: Tensor | None) -> Capsules:
        """FM agreement of dense votes, weighted by the children's activations where ``weigh`` says so."""
        return fm_agreement(votes, self._weight(activation), **self._options())

    def _options(self) -> dict[str, Any]:
        """Options as :func:`paircaps.functional.fm_agreement` takes them."""
        return {"normalize": self.normalize, "softness": self.softness, **self._options_of_sums()}

    def _options_of_sums(self) -> dict[str, Any]:
        """Options as :func:`paircaps.functional.fm_capsules` takes them."""
        return {"halve": self.halve, "activation": self.activation, "linear": self.linear, "scale": self.scale}

    def _weight(self, activation: Tensor | None) -> Tensor | None:
        """Weight of each child, (..., I), or None where all count alike.

        An activation below zero, which FM agreement gives to a capsule whose children disagree, is no weight: such a
        capsule has no say.
        """
        return None if self.weigh is None or activation is None else activation.clamp_min(0)

    @property
    def needs(self) -> VoteNeeds:
        """Two sums over the votes are enough."""
        return VoteNeeds.SUMS_OF_UNIT_VOTES if self.normalize else VoteNeeds.SUMS

    def sum_options(self, activation: Tensor | None) -> SumOptions:
        """Softness and weights of the votes."""
        softness = self.softness
        if not isinstance(softness, Tensor):
            softness = torch.tensor(softness) if softness else None
        return SumOptions(softness, self._weight(activation))

    def agree_on_sums(self, total: Tensor, squares: Tensor, children: int | Tensor) -> Capsules:
        """FM agreement from the sums over the votes: Algorithm 1 of the paper from its second line on."""
        return fm_capsules(total, squares, children, **self._options_of_sums())

    def evidence(self, votes: Tensor, activation: Tensor | None = None) -> Evidence:
        """What each child contributed: its part in a_j is ⟨û_i, Σû − û_i⟩ / 2I, half of every pair it is in (E5)."""
        return fm_evidence(votes, self._weight(activation), **self._options())

    def extra_repr(self) -> str:
        """Options, for print(model)."""
        chosen = (
            f"{super().extra_repr()}, normalize={self.normalize}, halve={self.halve}, activation={self.activation!r}"
        )
        if self.initial_softness:
            softness = self.softness
            value = f"{softness.item():g}, learned" if isinstance(softness, Tensor) else f"{softness:g}"
            chosen += f", softness={value}"
        chosen += f", linear={self.linear:g}" if self.linear else ""
        chosen += f", scale={self.scale.item():g}, learned" if self.scale is not None else ""
        return chosen if self.weigh is None else f"{chosen}, weigh={self.weigh!r}"
