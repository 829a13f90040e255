"""FM agreement: one pass, no iteration, no parameters."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from paircaps._utils.checks import require_bool, require_choice
from paircaps._utils.precision import full_precision
from paircaps.functional import ABSENT, FM_ACTIVATIONS, Capsules, fm_agreement, fm_capsules
from paircaps.routing.base import Routing, VoteNeeds
from paircaps.routing.evidence import Evidence


@torch.no_grad()
def fm_evidence(votes: Tensor, *, normalize: bool, halve: bool, activation: str) -> Evidence:
    """Evidence of FM agreement: the part of a pair (i, k) in a_j is ⟨û_i, û_k⟩ / I.

    A squashed activation is ‖s‖ = ⟨s, s/‖s‖⟩ times a factor, so there the dimensions of a product are weighted by the
    pose. Options are those of :func:`paircaps.functional.fm_agreement`.
    """
    votes = votes.to(full_precision(votes.dtype))
    capsules = fm_agreement(votes, normalize=normalize, halve=halve, activation=activation)
    votes = F.normalize(votes, dim=-1, eps=ABSENT) if normalize else votes
    metric = torch.ones_like(capsules.pose)
    if activation == "squash":
        length = torch.linalg.vector_norm(capsules.s, dim=-1).clamp_min(ABSENT)
        metric = capsules.pose * (capsules.activation / length).unsqueeze(-1)
    of_a_pair = (1 if halve else 2) / votes.shape[-3]
    others = votes.sum(dim=-3, keepdim=True) - votes
    share = torch.einsum("...ijk,...ijk,...jk->...ij", votes, others, metric) * (of_a_pair / 2)
    return Evidence(share, None, votes * of_a_pair**0.5, metric)


class FMAgreement(Routing):
    """FM agreement, the routing of the paper: parents from the products of all pairs of their votes, in one pass.

    This is :func:`paircaps.functional.fm_agreement` as a module, ``"fm"`` by name and the default of every layer.

    Args:
        out_capsules: J, the number of parents.
        normalize: give each vote length one first.
        halve: keep the factor ½ of the paper's text.
        activation: ``"sum"``, the sum of s over its dimensions, which has no bound and is made for cross entropy; or
            ``"squash"``, the length of s after a squash, which lies in 0..1.
    """

    def __init__(
        self, out_capsules: int, *, normalize: bool = True, halve: bool = True, activation: str = "sum"
    ) -> None:
        super().__init__(out_capsules)
        require_bool(normalize=normalize, halve=halve)
        require_choice("activation", activation, FM_ACTIVATIONS)
        self.normalize = normalize
        self.halve = halve
        self.activation = activation

    @property
    def bounded(self) -> bool:
        """Whether activations lie in 0..1, as those of the squash do; the sum has no bound."""
        return self.activation == "squash"

    def agree(self, votes: Tensor, activation: Tensor | None) -> Capsules:
        """FM agreement of dense votes; the children's activations are not used."""
        return fm_agreement(votes, normalize=self.normalize, halve=self.halve, activation=self.activation)

    @property
    def needs(self) -> VoteNeeds:
        """Two sums over the votes are enough."""
        return VoteNeeds.SUMS_OF_UNIT_VOTES if self.normalize else VoteNeeds.SUMS

    def agree_on_sums(self, total: Tensor, squares: Tensor, children: int) -> Capsules:
        """FM agreement from the sums over the votes: Algorithm 1 of the paper from its second line on."""
        return fm_capsules(total, squares, children, halve=self.halve, activation=self.activation)

    def evidence(self, votes: Tensor, activation: Tensor | None = None) -> Evidence:
        """What each child contributed: its part in a_j is ⟨û_i, Σû − û_i⟩ / 2I, half of every pair it is in (E5)."""
        return fm_evidence(votes, normalize=self.normalize, halve=self.halve, activation=self.activation)

    def extra_repr(self) -> str:
        """Options, for print(model)."""
        return f"{super().extra_repr()}, normalize={self.normalize}, halve={self.halve}, activation={self.activation!r}"
