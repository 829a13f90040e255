"""The base class of all routings, and the declaration of what a routing needs of the votes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from enum import Enum
from typing import ClassVar, NamedTuple

from torch import Tensor, nn

from paircaps._utils.checks import (
    Shaped,
    require_child_activation,
    require_positive,
    require_votes,
    require_within,
    shape_of,
)
from paircaps.errors import PaircapsError
from paircaps.functional import Capsules
from paircaps.routing.evidence import Evidence

MOST_ITERATIONS = 100
"""Most iterations of a routing: those in use are below ten, and a file of a network must not ask for a billion."""


def require_iterations(iterations: int) -> None:
    """Refuse anything but a whole number from 1 to ``MOST_ITERATIONS``."""
    require_positive(iterations=iterations)
    require_within("iterations", iterations, 1, MOST_ITERATIONS)


class VoteNeeds(Enum):
    """What a routing needs of the votes.

    A routing declares its need in :attr:`Routing.needs`. :meth:`paircaps.votes.LazyVotes.route` decides whether it gets
    just that, or dense votes, which satisfy every need. A new kind of need is a member here, a method of
    :class:`Routing` that takes what was needed, and a branch of ``LazyVotes.route``.
    """

    EVERYTHING = "everything"
    """Dense votes of the whole batch, for :meth:`Routing.agree`."""

    IMAGES = "images"
    """Dense votes of a few images at a time, for :meth:`Routing.agree`; images are routed independently."""

    COUPLED_SUMS = "coupled sums"
    """Σû and Σ_i softmax_j(⟨û_ij, V_j⟩) û_ij for any V, for :meth:`Routing.agree_on_coupled`; where no kernel computes
    these, dense votes of a few images, for :meth:`Routing.agree`."""

    SUMS = "sums"
    """Σû and Σû² over the children, for :meth:`Routing.agree_on_sums`."""

    SUMS_OF_UNIT_VOTES = "sums of unit votes"
    """The same, after each vote was scaled to length one (E4)."""

    TOTAL = "total"
    """Σû over the children, for :meth:`Routing.agree_on_total`."""


class SumOptions(NamedTuple):
    """What is done to the votes before they are summed, for a routing that needs sums; nothing by default.

    Attributes:
        softness: c of the soft normalisation, a tensor of one value; None gives unit votes length one.
        weight: weight of each child, (..., I); None stands for all ones.
    """

    softness: Tensor | None = None
    weight: Tensor | None = None


class Routing(nn.Module, ABC):
    """Base class of routings: modules that make parent capsules of votes.

    A subclass implements :meth:`agree`; shapes are checked here. Register it with
    :func:`paircaps.register_routing` and run :func:`paircaps.testing.check_routing` against it. One that can do with
    less than all votes of a batch declares so in :attr:`needs`.

    >>> import torch
    >>> from paircaps import CapsuleLayer
    >>> class MeanRouting(Routing):
    ...     def agree(self, votes, activation):
    ...         s = votes.mean(dim=-3)  # (..., J, K)
    ...         return Capsules(s, s, torch.linalg.vector_norm(s, dim=-1))
    >>> layer = CapsuleLayer(in_capsules=64, out_capsules=10, routing=MeanRouting)
    >>> layer(torch.randn(8, 64, 16)).activation.shape
    torch.Size([8, 10])

    Args:
        out_capsules: J, the number of parents.
    """

    grid_options: ClassVar[Mapping[str, object]] = {}
    """Options that suit capsules on a grid, most of which see nothing; models with a grid start from them."""

    fold_options: ClassVar[Mapping[str, object]] = {}
    """Further options that suit a layer which folds a fine grid, whose parents hear hundreds of children."""

    def __init__(self, out_capsules: int) -> None:
        super().__init__()
        require_positive(out_capsules=out_capsules)
        self.out_capsules = out_capsules

    @property
    def bounded(self) -> bool:
        """Whether activations lie in 0..1; ``loss.name = "auto"`` then takes the margin loss."""
        return False

    @property
    def needs(self) -> VoteNeeds:
        """What this routing needs of the votes; everything, unless a subclass declares less."""
        return VoteNeeds.EVERYTHING

    @property
    def streams(self) -> bool:
        """Whether the routing can do without the votes of the whole batch."""
        return self.needs is not VoteNeeds.EVERYTHING

    @property
    def by_image(self) -> bool:
        """Whether the routing does without them by taking a few images at a time, at least where no kernel runs."""
        return self.needs in (VoteNeeds.IMAGES, VoteNeeds.COUPLED_SUMS)

    def forward(self, votes: Tensor, activation: Tensor | None = None) -> Capsules:
        """Check the shapes of dense votes and route them by :meth:`agree`.

        Args:
            votes: one vote of each child for each parent, (..., I, J, K).
            activation: activations of the children, (..., I), for routings that weigh them; None stands for all ones.

        Returns:
            Capsules of (..., J, K), (..., J, K) and (..., J).

        Raises:
            ValueError: if the votes are for another number of parents, or the activations do not fit them.
        """
        require_votes(votes)
        self.require_shapes(votes, activation)
        return self.require_capsules("agree", self.agree(votes, activation))

    def require_shapes(self, votes: Shaped, activation: Tensor | None) -> None:
        """Refuse votes for another number of parents, and activations that are not one for each child.

        Args:
            votes: a tensor of (..., I, J, K), or lazy votes of that shape.
            activation: activations of the children, or None.

        Raises:
            ValueError: if they do not fit; the message has both shapes.
        """
        if votes.shape[-2] != self.out_capsules:
            raise ValueError(
                f"{type(self).__name__} was built for {self.out_capsules} parents, got votes for {votes.shape[-2]}: "
                f"shape {shape_of(votes)}"
            )
        if activation is not None:
            require_child_activation(activation, votes)

    def require_capsules(self, method: str, result: object) -> Capsules:
        """Refuse a result that is anything but Capsules.

        Args:
            method: name of the method that returned it, for the message.
            result: what it returned.

        Returns:
            the result itself.

        Raises:
            TypeError: if it is anything but Capsules.
        """
        if not isinstance(result, Capsules):
            raise TypeError(f"{type(self).__name__}.{method} must return Capsules, got {type(result).__name__}")
        return result

    @abstractmethod
    def agree(self, votes: Tensor, activation: Tensor | None) -> Capsules:
        """Route dense votes whose shape was checked: the algorithm itself, and the reference for the methods below.

        Args:
            votes: one vote of each child for each parent, (..., I, J, K).
            activation: activations of the children, (..., I), or None.

        Returns:
            Capsules of (..., J, K), (..., J, K) and (..., J).
        """

    def sum_options(self, activation: Tensor | None) -> SumOptions:
        """What is done to the votes before they are summed, for a routing that needs sums.

        Args:
            activation: activations of the children, (..., I), or None.
        """
        return SumOptions()

    def agree_on_sums(self, total: Tensor, squares: Tensor, children: int | Tensor) -> Capsules:
        """The result of :meth:`agree` from two sums over the votes, for a routing that needs no more.

        Args:
            total: Σû over the children, (..., J, K).
            squares: Σû² over the children, (..., J, K).
            children: I, the number of votes in each sum; where :meth:`sum_options` has weights, their sum, (...).
        """
        raise NotImplementedError(f"{type(self).__name__} declares {self.needs} and has no agree_on_sums()")

    def agree_on_total(self, total: Tensor, children: int) -> Capsules:
        """The result of :meth:`agree` from the sum of the votes, for a routing that needs no more.

        Args:
            total: Σû over the children, (..., J, K).
            children: I, the number of votes in the sum.
        """
        raise NotImplementedError(f"{type(self).__name__} declares {self.needs} and has no agree_on_total()")

    def agree_on_coupled(self, total: Tensor, coupled: Callable[[Tensor], Tensor]) -> Capsules:
        """The result of :meth:`agree` from sums of coupled votes, for a routing that needs no more.

        Args:
            total: Σû over the children, (..., J, K).
            coupled: from V, (..., J, K), to Σ_i softmax_j(⟨û_ij, V_j⟩) û_ij, (..., J, K).
        """
        raise NotImplementedError(f"{type(self).__name__} declares {self.needs} and has no agree_on_coupled()")

    def evidence(self, votes: Tensor, activation: Tensor | None = None) -> Evidence:
        """What each child contributed to each parent; a routing may go without it, and is then not explained.

        Args:
            votes: dense, (..., I, J, K).
            activation: activations of the children, (..., I), or None.

        Raises:
            PaircapsError: if this routing does not implement it.
        """
        raise PaircapsError(f"{type(self).__name__} does not say what children contributed: it has no evidence()")

    def extra_repr(self) -> str:
        """The number of parents, for print(model)."""
        return f"out_capsules={self.out_capsules}"
