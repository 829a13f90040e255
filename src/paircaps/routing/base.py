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
    require_children,
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


LAYER_SIZES = ("in_capsules", "in_dim", "pose_dim")
"""Names of the sizes of its layer that a routing may ask for; see :attr:`Routing.layer_sizes`."""


def at_every_position(values: Tensor, children: int) -> Tensor:
    """Values of each child with matrices of its own, (in_capsules, ...), for all I children of an image, (I, ...).

    Where positions share their matrices, children lie in one row, position by position with kinds varying fastest, so
    the values of the kinds are repeated.

    Args:
        values: the values, such as parameters of a routing, (in_capsules, ...).
        children: I, the number of children, once or several times as many.
    """
    return values.repeat(children // len(values), *(1,) * (values.dim() - 1))


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

    A routing may ask for sizes of its layer in :attr:`layer_sizes`, and for the child capsules in
    :attr:`reads_children`.

    Args:
        out_capsules: J, the number of parents.
        in_capsules: number of children with matrices of their own, where the routing has parameters for each; None if
            any number will do.
        in_dim: K_in of a child, where the routing reads the children and has parameters for their dimensions, or None.
        pose_dim: K of a vote, where the routing has parameters for its dimensions, or None.
    """

    layer_sizes: ClassVar[tuple[str, ...]] = ()
    """Sizes of its layer that this routing is built from, among ``"in_capsules"``, ``"in_dim"`` and ``"pose_dim"``.

    A layer gives them as keyword arguments, which ``__init__`` hands on to that of this class. ``in_capsules`` counts
    children with matrices of their own. These are all children, or the kinds where positions share matrices, or those
    of a window in a convolutional layer.
    """

    reads_children: ClassVar[bool] = False
    """Whether the child capsules themselves are read.

    :meth:`agree` and :meth:`evidence` then take them, (..., I, K_in), as a third argument. Sums of votes have no
    children beside them, so :attr:`needs` is then ``VoteNeeds.EVERYTHING`` or ``VoteNeeds.IMAGES``.
    """

    child_parameters: ClassVar[tuple[str, ...]] = ()
    """Names of parameters with a row for each child, whose first axis is that of ``in_capsules``.

    Children are a set. One that takes its row along may stand in any other place.
    """

    grid_options: ClassVar[Mapping[str, object]] = {}
    """Options that suit capsules on a grid, most of which see nothing; models with a grid start from them."""

    fold_options: ClassVar[Mapping[str, object]] = {}
    """Further options that suit a layer which folds a fine grid, whose parents hear hundreds of children."""

    preferred_loss: ClassVar[str | None] = None
    """Class loss that ``loss.name = "auto"`` takes where this routing makes the class capsules, one of
    :func:`paircaps.losses.list_losses`; None leaves it to :attr:`bounded`. A model may ask for another one."""

    def __init__(
        self,
        out_capsules: int,
        *,
        in_capsules: int | None = None,
        in_dim: int | None = None,
        pose_dim: int | None = None,
    ) -> None:
        super().__init__()
        sizes = {"in_capsules": in_capsules, "in_dim": in_dim, "pose_dim": pose_dim}
        require_positive(out_capsules=out_capsules, **{name: size for name, size in sizes.items() if size is not None})
        self.out_capsules = out_capsules
        self.in_capsules, self.in_dim, self.pose_dim = in_capsules, in_dim, pose_dim

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

    def forward(self, votes: Tensor, activation: Tensor | None = None, children: Tensor | None = None) -> Capsules:
        """Check the shapes of dense votes, route them by :meth:`agree`, and :meth:`finish` their parents.

        Args:
            votes: one vote of each child for each parent, (..., I, J, K).
            activation: activations of the children, (..., I), for routings that weigh them; None stands for all ones.
            children: the child capsules, (..., I, K_in), for routings that read them; others do without.

        Returns:
            Capsules of (..., J, K), (..., J, K) and (..., J).

        Raises:
            ValueError: if the votes are for another number of parents, or the activations do not fit them.
        """
        return self.finish(self.unfinished(votes, activation, children))

    def unfinished(self, votes: Tensor, activation: Tensor | None = None, children: Tensor | None = None) -> Capsules:
        """What :meth:`forward` does but for :meth:`finish`: parents of some images of a batch, or of all.

        Args:
            votes: as for a call.
            activation: as for a call.
            children: as for a call.
        """
        require_votes(votes)
        self.require_shapes(votes, activation)
        return self.require_capsules("agree", self.agree(votes, activation, *self._read(votes, children)))

    def finish(self, capsules: Capsules) -> Capsules:
        """What is done to the parents of a whole batch, such as batch norm; nothing, unless a subclass says what.

        Parents are here whichever way they were made: by :meth:`agree`, of all images at once or a few at a time, or
        from sums over the votes. A batch norm belongs here and not into :meth:`agree`, which may see some images only.

        Args:
            capsules: parents of all images, of (..., J, K), (..., J, K) and (..., J).
        """
        return capsules

    def _read(self, votes: Tensor, children: Tensor | None) -> tuple[Tensor, ...]:
        """The children, of a shape that was checked, if this routing reads them, or nothing."""
        if not self.reads_children:
            return ()
        if children is None:
            raise ValueError(
                f"{type(self).__name__} reads the child capsules: call routing(votes, activation, children)"
            )
        require_children(children, votes, self.in_dim)
        return (children,)

    def require_shapes(self, votes: Shaped, activation: Tensor | None) -> None:
        """Refuse votes of other sizes than this routing was built for, and activations that are not one for each child.

        Args:
            votes: a tensor of (..., I, J, K), or lazy votes of that shape.
            activation: activations of the children, or None.

        Raises:
            ValueError: if they do not fit; the message has both shapes.
        """
        children, parents, pose_dim = votes.shape[-3:]
        name = type(self).__name__
        if parents != self.out_capsules:
            raise ValueError(
                f"{name} was built for {self.out_capsules} parents, got votes for {parents}: shape {shape_of(votes)}"
            )
        if self.in_capsules is not None and (children == 0 or children % self.in_capsules):
            raise ValueError(
                f"{name} was built for {self.in_capsules} children at each position, got votes of {children}: "
                f"shape {shape_of(votes)}"
            )
        if self.pose_dim not in (None, pose_dim):
            raise ValueError(
                f"{name} was built for poses of {self.pose_dim}, got votes of {pose_dim}: shape {shape_of(votes)}"
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

        A routing that reads the children (:attr:`reads_children`) takes them as a third argument, (..., I, K_in).

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

        A routing that reads the children (:attr:`reads_children`) takes them as a third argument, (..., I, K_in).

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
