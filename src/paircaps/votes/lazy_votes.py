"""Lazy votes: the votes of a layer, and the one place that decides how much of them a routing gets.

A routing declares what it needs, a :class:`paircaps.routing.VoteNeeds`. :meth:`LazyVotes.route` hands it dense votes,
two sums over tiles, one total, or dense votes of a few images at a time.
"""

from __future__ import annotations

from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from paircaps._utils.precision import HALF, autocast_enabled, full_precision, in_full_precision, to_dtype
from paircaps.errors import PaircapsError
from paircaps.functional import Capsules, effective_children
from paircaps.routing import Evidence, Routing, VoteNeeds
from paircaps.votes.fold_norm import FoldingNorm, ScaleAndShift, fold_weights
from paircaps.votes.layout import TILE_BYTES, slices, tile_images
from paircaps.votes.operators import can_couple, coupled_sums, vote_statistics, vote_sums
from paircaps.votes.tiled_sums import SumArguments
from paircaps.votes.transforms import LinearVotes

LEAST_BATCH = 8
"""Images from which on streaming pays: with fewer, rows of a tile are shorter than a vector register or two."""

FEWEST_PIECES = 4
"""Pieces of a batch beyond which routing them one after the other is faster than all images at once."""

SHORTCUTS = {
    VoteNeeds.IMAGES: "needs",  # IMAGES has no method of its own: pieces go through agree, so the declaration counts
    VoteNeeds.COUPLED_SUMS: "agree_on_coupled",
    VoteNeeds.SUMS: "agree_on_sums",
    VoteNeeds.SUMS_OF_UNIT_VOTES: "agree_on_sums",
    VoteNeeds.TOTAL: "agree_on_total",
}
"""The attribute of a routing in which it declares or serves each need.

If a subclass overrides ``agree`` and not this attribute, the declaration is that of another algorithm, and void.
"""


class LazyVotes:
    """Votes that are computed when they are needed, as many at a time as are needed.

    :meth:`dense` gives all of them, :meth:`sums` and :meth:`total` sums over them, and :meth:`route` chooses among
    these what a routing needs. A :class:`paircaps.CapsuleLayer` makes them in every call.

    Args:
        u: child capsules, (..., I, K_in).
        transform: module from child capsules to votes.
        norm: batch norm of the votes, or an identity.
        streaming: False always takes dense votes, True never those of the whole batch, ``"auto"`` what is fastest.
        tile: children in a tile; None takes :func:`paircaps.votes.tile_children`.
    """

    def __init__(
        self,
        u: Tensor,
        transform: nn.Module,
        norm: nn.Module,
        streaming: bool | str = "auto",
        tile: int | None = None,
    ) -> None:
        self.u, self.norm = u, norm
        self.transform = cast(LinearVotes, transform)  # only dense() works with a module of another kind
        self.streaming, self.tile = streaming, tile

    @property
    def shape(self) -> torch.Size:
        """Shape of the dense votes, (..., I, J, K)."""
        parents, columns = self.transform.weight.shape[1], self.transform.weight.shape[3]
        return torch.Size((*self.u.shape[:-1], parents, self.transform.rows * columns))

    @property
    def dtype(self) -> torch.dtype:
        """Precision of the routed capsules, which is that of the children, and float32 under autocast."""
        return torch.float32 if autocast_enabled(self.u) and self.u.dtype in HALF else self.u.dtype

    @property
    def _images(self) -> int:
        """B, all leading axes together."""
        return self.u.shape[:-2].numel()

    # --- the decision ---------------------------------------------------------------------------------------------

    def route(self, routing: nn.Module, activation: Tensor | None = None) -> Capsules:
        """Route these votes.

        Args:
            routing: a :class:`Routing`, which gets what it needs; or any other module, which gets dense votes.
            activation: activations of the children, (..., I), or None.

        Returns:
            Capsules of (..., J, K), (..., J, K) and (..., J).
        """
        given = self._choose_for(routing)
        if given is VoteNeeds.EVERYTHING:
            return routing(self.dense(), self.of_children(activation), *self.children_for(routing))
        assert isinstance(routing, Routing)
        self._checked(routing, activation)
        if given is VoteNeeds.IMAGES:
            capsules = self.by_image(routing, activation)
        elif given is VoteNeeds.COUPLED_SUMS:
            capsules = self.coupled(routing)
        elif given is VoteNeeds.TOTAL:
            capsules = routing.agree_on_total(self.total(), self.shape[-3])
        else:
            options = routing.sum_options(activation)
            sums = self.sums(normalize=given is VoteNeeds.SUMS_OF_UNIT_VOTES, **options._asdict())
            capsules = routing.agree_on_sums(*sums, self.count(options.weight))
        capsules = routing.require_capsules(SHORTCUTS[given], capsules)
        return routing.finish(to_dtype(capsules, self.dtype))

    def evidence(self, routing: nn.Module, activation: Tensor | None = None) -> Evidence:
        """What each child contributed to each parent, from dense votes.

        Args:
            routing: a :class:`Routing` that has evidence.
            activation: activations of the children, (..., I), or None.

        Raises:
            PaircapsError: if it is no Routing, or does not say what children contributed.
        """
        if not isinstance(routing, Routing):
            raise PaircapsError(f"{type(routing).__name__} is no Routing: it does not say what children contributed")
        explains = type(routing).evidence is not Routing.evidence  # that of the base class says that there is none
        children = self.children_for(routing) if explains else ()
        return routing.evidence(self.dense(), self.of_children(activation), *children)

    def _checked(self, routing: Routing, activation: Tensor | None) -> None:
        """Raise an error if the votes or the children's activations do not fit a routing."""
        routing.require_shapes(self, activation)

    def _choose_for(self, routing: nn.Module) -> VoteNeeds:
        """What a routing gets: what it needs, or everything, as dense votes.

        Dense votes are necessary

        - where ``streaming=False`` asks for them;
        - in ``torch.export`` and ``torch.jit.trace``, because what is exported must run without this library;
        - if the routing is no :class:`Routing`, has a ``forward`` of its own, needs everything, reads the children and
          declares a need of sums, or overrides ``agree`` below the class that says how to do with less: its ``agree``
          must run;
        - if the transform or the norm is another module than ours, or overrides ``forward``: sums would bypass it;
        - if hooks on the routing, the transform or the norm expect to see votes.

        With ``streaming="auto"`` they are taken also where they are faster: see :meth:`_dense_is_faster`.
        """
        if self.streaming is False or torch.compiler.is_exporting() or torch.jit.is_tracing():  # pyright: ignore
            return VoteNeeds.EVERYTHING
        if not isinstance(routing, Routing) or not _can_do_with_less(routing) or _has_hooks(routing):
            return VoteNeeds.EVERYTHING
        if not self._can_be_reduced():
            return VoteNeeds.EVERYTHING
        needs = routing.needs
        if needs is VoteNeeds.COUPLED_SUMS and not self._can_couple():
            needs = VoteNeeds.IMAGES
        empty = needs is VoteNeeds.IMAGES and self._images == 0  # no piece, so nothing to concatenate
        if empty or (self.streaming is not True and self._dense_is_faster(needs)):
            return VoteNeeds.EVERYTHING
        return needs

    def _can_be_reduced(self) -> bool:
        """Whether votes are a product of children and weights, then a batch norm that folds, and neither has hooks."""
        linear = type(self.transform).forward is LinearVotes.forward
        folds = isinstance(self.norm, nn.Identity) or _belongs_to(self.norm, "forward", "fold")
        return linear and folds and not (_has_hooks(self.transform) or _has_hooks(self.norm))

    def _dense_is_faster(self, needs: VoteNeeds) -> bool:
        """Whether dense votes of the whole batch take less time than just what a routing needs.

        - Against a total: never, because a total is one matrix product.
        - Against sums over tiles: with few images, or if the votes fit one tile.
        - Against a few images at a time: in these two cases; also if the batch has few such pieces, and under
          ``torch.compile``, which would unroll the loop over the pieces.
        """
        if needs is VoteNeeds.TOTAL:
            return False
        if self._images < LEAST_BATCH or 4 * self.shape.numel() <= TILE_BYTES:
            return True
        if needs is not VoteNeeds.IMAGES:
            return False
        return torch.compiler.is_compiling() or self._images <= FEWEST_PIECES * tile_images(*self.shape[-3:])

    # --- what a routing may get -----------------------------------------------------------------------------------

    def dense(self) -> Tensor:
        """All votes, (..., I, J, K)."""
        if not getattr(self.transform, "shared", False):
            return self.norm(self.transform(self.u))
        votes = self.transform(self.transform.without_coordinates(self.u))
        if len(getattr(self.norm, "shape", ())) == 3:  # statistics of each kind, over all positions
            votes = self.norm(votes.unflatten(-3, (-1, len(self.transform.weight)))).flatten(-4, -3)
        else:
            votes = self.norm(votes)
        return votes + self.transform.coordinate_votes(self.u)

    def of_children(self, activation: Tensor | None) -> Tensor | None:
        """Activations of the children beside :meth:`dense`, (..., I)."""
        return activation

    def children_for(self, routing: nn.Module) -> tuple[Tensor, ...]:
        """The child capsules beside :meth:`dense`, (..., I, K_in), for a routing that reads them; else nothing."""
        return (self.children(),) if isinstance(routing, Routing) and routing.reads_children else ()

    def children(self) -> Tensor:
        """The child capsules beside :meth:`dense`, (..., I, K_in), without the coordinates of their positions."""
        return self.transform.without_coordinates(self.u) if getattr(self.transform, "shared", False) else self.u

    def count(self, weight: Tensor | None) -> int | Tensor:
        """Number of children, or the sum of their weights, (...), where they are weighted."""
        return self.shape[-3] if weight is None else effective_children(weight)

    def sums(
        self, *, normalize: bool, softness: Tensor | None = None, weight: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Σ x û and Σ (x û)² over the children, (..., J, K) each, tile by tile, as :func:`functional.vote_sums`.

        Args:
            normalize: whether each vote is scaled to length one first (E4).
            softness: c of the soft normalisation (E15), or None.
            weight: x, the weight of each child (E14), (..., I), or None for all ones.
        """
        u, rows = self._flat(), self.transform.rows
        weight = None if weight is None else weight.reshape(u.shape[:2])
        unscaled, affine = self.transform.unscaled, self._affine(u)
        total, squares = vote_sums(
            SumArguments(
                u, self.transform.matrices, *affine, rows, normalize, self.tile, softness, weight, None, unscaled
            )
        )
        return self._unflat(total), self._unflat(squares)

    def total(self) -> Tensor:
        """Σû over the children, (..., J, K): one matrix product over children and their dimensions together."""
        u, rows, transform = self._flat(), self.transform.rows, self.transform
        scale, shift = self._affine(u)
        total = total_vote(self._by_weights(transform.without_coordinates(u)), transform.weight, rows, scale, shift)
        if transform.unscaled:
            places, weight = transform.only_coordinates(u)
            total = total + total_vote(self._by_weights(places), weight, rows, None, None)
        return self._unflat(total)

    def coupled(self, routing: Routing) -> Capsules:
        """Route by sums of votes that are coupled to their parents, a pass of the kernel each.

        Args:
            routing: a routing that needs no more.
        """
        u = self._flat()
        # batch norm's statistics are taken once, whatever the number of passes
        affine, rows = self._affine(u), self.transform.rows
        arguments = SumArguments(u, self.transform.matrices, *affine, rows, normalize=False)
        children = self._by_weights(u).to(full_precision(u.dtype))
        total = total_vote(children, self.transform.weight, rows, *affine)
        return Capsules(
            *map(self._unflat, routing.agree_on_coupled(total, lambda agreed: coupled_sums(arguments, agreed)))
        )

    def _can_couple(self) -> bool:
        """Whether a kernel takes coupled sums of these votes; not of a grid whose positions share their weights."""
        if getattr(self.transform, "shared", False):
            return False
        return can_couple(SumArguments(self._flat(), self.transform.matrices, None, None, self.transform.rows, False))

    def by_image(self, routing: Routing, activation: Tensor | None) -> Capsules:
        """Route a few images at a time, so that their votes stay in the processor's cache; parents are not finished.

        With ``streaming=True`` the backward pass casts the votes anew (``torch.utils.checkpoint``), so that those of
        the whole batch never exist at once. That takes longer, so ``"auto"`` keeps them.

        Args:
            routing: a routing, which gets dense votes, (b, I, J, K), and what belongs to them.
            activation: activations of the children, (..., I), or None.
        """
        # batch norm's statistics are those of the whole batch: they are folded into the weights before it is divided
        u = self._flat()
        weight = self._folded(u)
        cast_anew = self.streaming is True and torch.is_grad_enabled()
        route = self._route_piece
        pieces = []
        flat_activation = None if activation is None else activation.reshape(u.shape[:-1])
        for images in slices(len(u), max(1, tile_images(*self.shape[-3:]) * len(u) // self._images)):
            piece = routing, u[images], weight, None if flat_activation is None else flat_activation[images]
            pieces.append(checkpoint(route, *piece, use_reentrant=False) if cast_anew else route(*piece))
        whole = (torch.cat(parts) for parts in zip(*pieces, strict=True))
        return Capsules(*(self._unflat(part) for part in whole))

    def _route_piece(self, routing: Routing, u: Tensor, weight: Tensor, activation: Tensor | None) -> Capsules:
        """Route the votes of a few images, from their children, folded weights and the children's activations."""
        votes = votes_of_images(self._positions_as_images(u), weight, self.transform.rows, self.shape[-2])
        piece = LazyVotes(u, self.transform, self.norm)
        votes = votes.reshape(len(u), -1, *votes.shape[2:])
        return routing.unfinished(votes, activation, *piece.children_for(routing))

    # --- helpers --------------------------------------------------------------------------------------------------

    def _flat(self) -> Tensor:
        """Child capsules with one leading axis, (B, I, K_in)."""
        self._require_dtype()
        return self.u.reshape(-1, *self.u.shape[-2:])

    def _require_dtype(self) -> None:
        """Refuse children of another precision than the weights."""
        weight = self.transform.weight
        if self.u.dtype != weight.dtype and not autocast_enabled(self.u):
            raise TypeError(f"child capsules are {self.u.dtype} and the vote weights {weight.dtype}; convert one")

    def _folded(self, u: Tensor) -> Tensor:
        """All weights with batch norm folded into them, (I·P, Q or Q + 1, J·R)."""
        scale, shift = self._affine(u)
        rows, weight = self.transform.rows, self.transform.matrices
        affine = None if scale is None or shift is None else ScaleAndShift(scale, shift, rows)
        every = slice(weight.shape[0]), slice(weight.shape[1])
        return fold_weights(weight, affine, *every, rows, self.transform.unscaled)

    def _unflat(self, values: Tensor) -> Tensor:
        """Values of (B, J, ...) with the leading axes of the children, (..., J, ...)."""
        return values.reshape(*self.u.shape[:-2], *values.shape[1:])

    def _affine(self, u: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """Scale and shift that batch norm applies to the votes, None without one; in training also its statistics."""
        if isinstance(self.norm, nn.Identity):
            return None, None
        norm = cast(FoldingNorm, self.norm)
        per_vote = len(norm.shape) == 3
        weight, u = self.transform.weight, self._positions_as_images(self.transform.without_coordinates(u))
        count = u.shape[0] * (1 if per_vote else weight.shape[:2].numel())
        return norm.fold(lambda: vote_statistics(u, weight, self.transform.rows, per_vote), count)

    def _by_weights(self, u: Tensor) -> Tensor:
        """Children (B, I, D) by position and kind, (B, N, kinds, D); N is 1 where no weights are shared."""
        return u.unflatten(1, (-1, len(self.transform.weight)))

    def _positions_as_images(self, u: Tensor) -> Tensor:
        """Children (B, I, D) with a position for an image, (B · N, kinds, D): they have the same weights there."""
        return self._by_weights(u).flatten(0, 1)


def _belongs_to(thing: object, method: str, shortcut: str) -> bool:
    """Whether a shortcut still computes what a method does: nobody overrides the method below the shortcut's class."""
    kinds = type(thing).__mro__
    owners = [next((kind for kind in kinds if name in vars(kind)), None) for name in (method, shortcut)]
    return owners[0] is not None and owners[1] is not None and kinds.index(owners[1]) <= kinds.index(owners[0])


def _can_do_with_less(routing: Routing) -> bool:
    """Whether a routing declares that it needs less than everything, and its ``agree`` and ``forward`` respect that."""
    shortcut = SHORTCUTS.get(routing.needs)
    if shortcut is None or type(routing).forward is not Routing.forward:
        return False
    if routing.reads_children and routing.needs is not VoteNeeds.IMAGES:  # sums have no children beside them
        return False
    # a need declared without its method counts as well: calling the method of the base class says what is missing
    missing = getattr(type(routing), shortcut) is getattr(Routing, shortcut)
    return missing or _belongs_to(routing, "agree", shortcut)


def _has_hooks(module: nn.Module) -> bool:
    """Whether a module has hooks, which expect its inputs and outputs to exist."""
    return bool(
        module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks
    )


# --- products -----------------------------------------------------------------------------------------------------


@in_full_precision
def total_vote(u: Tensor, weight: Tensor, rows: int, scale: Tensor | None, shift: Tensor | None) -> Tensor:
    """Σ_i (g ⊙ u_i W_i + h) for every parent, (B, J, K).

    Args:
        u: child capsules at N positions that share weights, (B, N, I, P·Q).
        weight: vote weights, (I, J, Q, R).
        rows: P, the rows of a child and of a vote.
        scale: g, the scale of the batch norm, (K,) or (I, J, K), or None without one.
        shift: h, its shift, of the same shape.
    """
    U = u.sum(1).unflatten(-1, (rows, -1))  # votes are linear, so the sum of a kind votes as its children together
    if scale is None or shift is None:
        return torch.einsum("bipq,ijqr->bjpr", U, weight).flatten(-2)
    if scale.dim() == 1:
        total = torch.einsum("bipq,ijqr->bjpr", U, weight).flatten(-2)
        return total * scale + u.shape[1:3].numel() * shift
    folded = weight.unsqueeze(2) * scale.unflatten(-1, (rows, 1, -1))  # (I, J, P, Q, R)
    return torch.einsum("bipq,ijpqr->bjpr", U, folded).flatten(-2) + u.shape[1] * shift.sum(0)


@in_full_precision
def votes_of_images(u: Tensor, weight: Tensor, rows: int, parents: int) -> Tensor:
    """Dense votes of a few images from folded weights.

    Args:
        u: child capsules of b images, (b, I, P·Q).
        weight: folded weights, (I·P, Q or Q + 1, J·R); the last of Q + 1 rows is the shift.
        rows: P, the rows of a child and of a vote.
        parents: J, the number of parents.

    Returns:
        votes, (b, I, J, K).
    """
    U = u.to(full_precision(u.dtype)).unflatten(-1, (rows, -1))  # (b, I, P, Q)
    if weight.shape[1] > U.shape[-1]:
        U = F.pad(U, (0, 1), value=1.0)
    columns = U.permute(1, 2, 0, 3).flatten(0, 1)  # (I·P, b, Q')
    votes = torch.bmm(columns, weight).view(-1, rows, len(u), parents, weight.shape[2] // parents)  # (I, P, b, J, R)
    return votes.permute(2, 0, 3, 1, 4).flatten(-2)
