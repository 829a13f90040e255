"""Dynamic routing: coupling by iterated agreement with the parent's mean."""

from __future__ import annotations

from torch import Tensor

from paircaps._checks import require_positive
from paircaps._precision import to_dtype
from paircaps.functional import Capsules, dynamic_routing, uniform_routing
from paircaps.routing.base import Routing
from paircaps.votes import Votes


class DynamicRouting(Routing):
    """:func:`paircaps.functional.dynamic_routing` as a module.

    Args:
        out_capsules: J, the number of parents.
        iterations: r, at least 1.
    """

    def __init__(self, out_capsules: int, *, iterations: int = 3) -> None:
        super().__init__(out_capsules)
        require_positive(iterations=iterations)
        self.iterations = iterations

    @property
    def bounded(self) -> bool:
        """A length that was squashed."""
        return True

    def agree(self, votes: Tensor, activation: Tensor | None) -> Capsules:
        """A child's activation is the length of its capsule, so its votes carry it already."""
        return dynamic_routing(votes, self.iterations)

    @property
    def streams(self) -> bool:
        """A few images at a time, or no votes at all."""
        return True

    @property
    def by_image(self) -> bool:
        """Unless one iteration is all."""
        return self.iterations > 1

    def agree_on(self, votes: Votes, activation: Tensor | None) -> Capsules:
        """With one iteration the coupling is uniform, and the routing one matrix product and a squash."""
        capsules = uniform_routing(votes.total()) if self.iterations == 1 else votes.by_image(self.agree, activation)
        return to_dtype(capsules, votes.dtype)

    def extra_repr(self) -> str:
        """Options, for print(model)."""
        return f"{super().extra_repr()}, iterations={self.iterations}"
