"""FM agreement: one pass, no iteration, no parameters."""

from __future__ import annotations

from torch import Tensor

from paircaps._checks import require_bool, require_choice
from paircaps._precision import to_dtype
from paircaps.functional import FM_ACTIVATIONS, Capsules, fm_agreement, fm_capsules
from paircaps.routing.base import Routing
from paircaps.votes import Votes


class FMAgreement(Routing):
    """:func:`paircaps.functional.fm_agreement` as a module.

    Args:
        out_capsules: J, the number of parents.
        normalize: give each vote length one first.
        halve: keep the text's factor ½.
        activation: ``"sum"`` or ``"squash"``.
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
        """The sum has no bound, the squash has."""
        return self.activation == "squash"

    def agree(self, votes: Tensor, activation: Tensor | None) -> Capsules:
        """FM reads the votes alone: a child's activation is at most in their length."""
        return fm_agreement(votes, normalize=self.normalize, halve=self.halve, activation=self.activation)

    @property
    def streams(self) -> bool:
        """Two sums over the votes are all it needs."""
        return True

    def agree_on(self, votes: Votes, activation: Tensor | None) -> Capsules:
        """Without ever holding the votes, where that pays."""
        if not votes.walk_pays:
            return self.agree(votes.dense(), activation)
        sums = votes.sums(normalize=self.normalize)
        capsules = fm_capsules(*sums, votes.shape[-3], halve=self.halve, activation=self.activation)
        return to_dtype(capsules, votes.dtype)

    def extra_repr(self) -> str:
        """Options, for print(model)."""
        return f"{super().extra_repr()}, normalize={self.normalize}, halve={self.halve}, activation={self.activation!r}"
