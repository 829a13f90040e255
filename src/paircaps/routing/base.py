"""What every routing is: a module that turns votes into parent capsules."""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import Tensor, nn

from paircaps._utils.checks import require_child_activation, require_positive, require_votes, shape_of
from paircaps.errors import PaircapsError
from paircaps.functional import Capsules
from paircaps.routing.evidence import Evidence
from paircaps.votes import LazyVotes, same_owner


class Routing(nn.Module, ABC):
    """Votes to parent capsules.

    A subclass says in :meth:`agree` how; shapes are checked here. Register it with
    :func:`paircaps.register_routing` and run :func:`paircaps.testing.check_routing` against it.

    Args:
        out_capsules: J, the number of parents.
    """

    def __init__(self, out_capsules: int) -> None:
        super().__init__()
        require_positive(out_capsules=out_capsules)
        self.out_capsules = out_capsules

    @property
    def bounded(self) -> bool:
        """Whether activations lie in 0..1, where a margin loss can tell present from absent; a softmax hardly can."""
        return False

    @property
    def streams(self) -> bool:
        """Whether :meth:`agree_on` can do without the votes of the whole batch."""
        return False

    @property
    def by_image(self) -> bool:
        """Whether it does so by taking a few images at a time."""
        return False

    def forward(self, votes: Tensor | LazyVotes, activation: Tensor | None = None) -> Capsules:
        """Route.

        Args:
            votes: (..., I, J, K), cast or not yet.
            activation: of the children, (..., I), for routings that weigh them; None takes all as fully there.

        Returns:
            Capsules of (..., J, K), (..., J, K) and (..., J).
        """
        if isinstance(votes, LazyVotes) and not (votes.foldable and same_owner(self, "agree", "agree_on")):
            votes = votes.dense()
        if not isinstance(votes, LazyVotes):
            require_votes(votes)
        if votes.shape[-2] != self.out_capsules:
            raise ValueError(
                f"{type(self).__name__} was built for {self.out_capsules} parents, got votes for {votes.shape[-2]}: "
                f"shape {shape_of(votes)}"
            )
        if activation is not None:
            require_child_activation(activation, votes)
        agree = self.agree_on if isinstance(votes, LazyVotes) else self.agree
        capsules = agree(votes, activation)  # pyright: ignore[reportArgumentType]
        if not isinstance(capsules, Capsules):
            raise TypeError(f"{type(self).__name__}.agree must return Capsules, got {type(capsules).__name__}")
        return capsules

    @abstractmethod
    def agree(self, votes: Tensor, activation: Tensor | None) -> Capsules:
        """The algorithm itself, on votes whose shape is right."""

    def agree_on(self, votes: LazyVotes, activation: Tensor | None) -> Capsules:
        """The same on votes that are not cast yet; a routing that :attr:`streams` says here how it does without."""
        return self.agree(votes.dense(), activation)

    def evidence(self, votes: Tensor, activation: Tensor | None = None) -> Evidence:
        """What each child contributed to each parent; a routing that can be looked into says so here.

        Args:
            votes: dense, (..., I, J, K).
            activation: of the children, (..., I), or None.

        Raises:
            PaircapsError: if this routing does not say.
        """
        raise PaircapsError(f"{type(self).__name__} does not say what children contributed: it has no evidence()")

    def extra_repr(self) -> str:
        """The number of parents, for print(model)."""
        return f"out_capsules={self.out_capsules}"
