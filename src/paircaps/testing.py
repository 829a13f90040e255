"""Checks that a new routing must pass.

Each check takes a routing, called as ``routing(votes, activation)`` on votes of (..., I, J, K), and raises an
AssertionError that says what differs. None of them needs a test framework. A routing that reads the child capsules is
called as ``routing(votes, activation, children)``, and votes have the sizes that it was built for.

>>> from paircaps import FMAgreement
>>> check_routing(FMAgreement(out_capsules=3), out_capsules=3)
"""

from __future__ import annotations

import copy
import itertools
import warnings
from collections.abc import Callable, Iterator, Mapping

import torch
from torch import Tensor, nn
from torch.autograd.gradcheck import GradcheckError

from paircaps.functional import Capsules
from paircaps.routing import Routing
from paircaps.votes import LazyVotes, VectorVotes

__all__ = [
    "assert_capsules",
    "assert_evidence",
    "assert_finite",
    "assert_free_leading_dims",
    "assert_gradients",
    "assert_matches_oracle",
    "assert_permutation_invariant",
    "assert_shortcut",
    "check_routing",
    "hard_votes",
    "random_inputs",
    "random_votes",
    "warn_if_bounded",
]

AnyRouting = Callable[..., Capsules]
"""From votes and activations of the children, and the children for a routing that reads them, to capsules."""

Oracle = Callable[..., Capsules]
"""The same for one image."""

CHILDREN = 5
POSE_DIM = 4
IN_DIM = 6


def check_routing(routing: AnyRouting, out_capsules: int, *, seed: int = 0) -> None:
    """Run every check of this module that needs no oracle, on small inputs.

    It returns nothing if all is well, so that it can be all there is in a test of a routing:

    >>> from paircaps import DynamicRouting
    >>> check_routing(DynamicRouting(out_capsules=3), out_capsules=3)

    Args:
        routing: the routing, in float32 if it is a module; it is copied where a check needs another precision.
        out_capsules: the number of parents that it was built for.
        seed: seed of the random votes.

    Raises:
        AssertionError: if a check fails; the message says which, and what differs.
    """
    assert_capsules(routing, out_capsules, seed=seed)
    assert_permutation_invariant(routing, out_capsules, seed=seed)
    assert_free_leading_dims(routing, out_capsules, seed=seed)
    assert_gradients(routing, out_capsules, seed=seed)
    assert_finite(routing, out_capsules, seed=seed)
    assert_shortcut(routing, out_capsules, seed=seed)
    assert_evidence(routing, out_capsules, seed=seed)
    warn_if_bounded(routing, out_capsules, seed=seed)


def random_votes(
    *leading: int,
    out_capsules: int,
    children: int = CHILDREN,
    pose_dim: int = POSE_DIM,
    dtype: torch.dtype = torch.float64,
    seed: int = 0,
) -> tuple[Tensor, Tensor]:
    """Random votes, normally distributed, and random activations of the children.

    Args:
        leading: axes before those of the votes, such as the number of images.
        out_capsules: J, the number of parents.
        children: I, the number of children.
        pose_dim: K, the dimensions of a vote.
        dtype: precision of both.
        seed: seed of the random numbers.

    Returns:
        votes (..., I, J, K), and activations (..., I) in 0.1..0.9.
    """
    generator = torch.Generator().manual_seed(seed)
    votes = torch.randn(*leading, children, out_capsules, pose_dim, generator=generator, dtype=torch.float64)
    activation = 0.1 + 0.8 * torch.rand(*leading, children, generator=generator, dtype=torch.float64)
    return votes.to(dtype), activation.to(dtype)


def random_inputs(
    routing: AnyRouting,
    *leading: int,
    out_capsules: int,
    children: int | None = None,
    pose_dim: int | None = None,
    dtype: torch.dtype = torch.float64,
    seed: int = 0,
) -> tuple[Tensor, ...]:
    """Random arguments of a routing: votes, activations, and the child capsules if it reads them.

    Args:
        routing: the routing; where it was built for certain sizes, the votes have these.
        leading: axes before those of the votes, such as the number of images.
        out_capsules: J, the number of parents.
        children: I, the number of children, for a routing that takes any.
        pose_dim: K, the dimensions of a vote, for a routing that takes any.
        dtype: precision of all.
        seed: seed of the random numbers.

    Returns:
        votes (..., I, J, K), activations (..., I), and children (..., I, K_in) for a routing that reads them.
    """
    children = children or _size(routing, "in_capsules", CHILDREN)
    pose_dim = pose_dim or _size(routing, "pose_dim", POSE_DIM)
    votes = random_votes(
        *leading, out_capsules=out_capsules, children=children, pose_dim=pose_dim, dtype=dtype, seed=seed
    )
    if not _reads_children(routing):
        return votes
    generator = torch.Generator().manual_seed(seed + 1)
    shape = *leading, children, _size(routing, "in_dim", IN_DIM)
    return *votes, torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)


def _size(routing: AnyRouting, name: str, otherwise: int) -> int:
    """A size that a routing was built for, or another number where any will do."""
    return (getattr(routing, name) or otherwise) if isinstance(routing, Routing) else otherwise


def _reads_children(routing: AnyRouting) -> bool:
    return isinstance(routing, Routing) and routing.reads_children


def in_dtype(routing: AnyRouting, dtype: torch.dtype) -> AnyRouting:
    """A copy of the routing with its parameters in another precision; a plain function is returned as it is."""
    return copy.deepcopy(routing).to(dtype) if isinstance(routing, nn.Module) else routing


def _in_eval_mode(routing: AnyRouting) -> AnyRouting:
    """A copy of a routing in eval mode; a plain function has no modes."""
    return copy.deepcopy(routing).eval() if isinstance(routing, nn.Module) else routing


def _with_children_apart(routing: AnyRouting, seed: int) -> AnyRouting:
    """A copy in float64 whose parameters differ from child to child, which all zeros at the start do not."""
    routing = in_dtype(routing, torch.float64)
    generator = torch.Generator().manual_seed(seed + 2)
    with torch.no_grad():
        for values in _child_parameters(routing):
            values += torch.randn(values.shape, generator=generator, dtype=torch.float64) / 2
    return routing


def _child_parameters(routing: AnyRouting) -> list[nn.Parameter]:
    """Parameters of a routing that have a row for each child, without those that its options leave out."""
    if not isinstance(routing, Routing):
        return []
    named = [getattr(routing, name) for name in routing.child_parameters]
    return [values for values in named if values is not None]


def _in_order(routing: AnyRouting, order: list[int]) -> AnyRouting:
    """A copy of a routing whose rows for each child are in another order."""
    routing = copy.deepcopy(routing)
    for values in _child_parameters(routing):
        values.data = values.data[order]
    return routing


def assert_capsules(routing: AnyRouting, out_capsules: int, *, seed: int = 0) -> None:
    """Check that the result is Capsules, that its parts have the right shapes and the dtype of the votes.

    Args:
        routing: as for :func:`check_routing`.
        out_capsules: as for :func:`check_routing`.
        seed: seed of the random votes.

    Raises:
        AssertionError: if it does not hold.
    """
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        votes, *others = random_inputs(routing, 2, out_capsules=out_capsules, dtype=dtype, seed=seed)
        capsules = in_dtype(routing, dtype)(votes, *others)
        _assert_are_capsules("a routing", capsules)
        poses = (2, out_capsules, votes.shape[-1])
        expected = {"s": poses, "pose": poses, "activation": poses[:-1]}
        for name, shape in expected.items():
            part = getattr(capsules, name)
            if tuple(part.shape) != shape:
                raise AssertionError(f"{name} of votes {tuple(votes.shape)} is {tuple(part.shape)}, not {shape}")
            if part.dtype != dtype:
                raise AssertionError(f"{name} of {dtype} votes is {part.dtype}")


def assert_matches_oracle(
    routing: AnyRouting,
    oracle: Oracle,
    out_capsules: int,
    *,
    children: int | None = None,
    pose_dim: int | None = None,
    seed: int = 0,
    tolerance: float = 1e-10,
) -> None:
    """Check in float64 that the routing equals a plain implementation of the same algorithm, in eval mode.

    Args:
        routing: the routing.
        oracle: function of votes (I, J, K) and activations (I,) of one image that returns its Capsules; a loop
            written straight from the paper is best. It gets the children (I, K_in) too if the routing reads them.
        out_capsules: J, the number of parents.
        children: I, the number of children, for a routing that takes any.
        pose_dim: K, the dimensions of a vote, for a routing that takes any.
        seed: seed of the random votes.
        tolerance: absolute and relative tolerance.
    """
    inputs = random_inputs(routing, 3, out_capsules=out_capsules, children=children, pose_dim=pose_dim, seed=seed)
    actual = _in_eval_mode(in_dtype(routing, torch.float64))(*inputs)
    for index in range(3):
        expected = oracle(*(part[index] for part in inputs))
        _assert_are_capsules("an oracle", expected)
        _assert_equal(_at(actual, index), expected, "the routing differs from its oracle", tolerance)


def assert_permutation_invariant(
    routing: AnyRouting, out_capsules: int, *, seed: int = 0, tolerance: float = 1e-10
) -> None:
    """Check that children are a set: in another order, with all that belongs to them, they make the same parents.

    What belongs to a child is its activation, and its rows of the parameters that the routing names in
    :attr:`paircaps.Routing.child_parameters`.

    Args:
        routing: as for :func:`check_routing`.
        out_capsules: as for :func:`check_routing`.
        seed: seed of the random votes.
        tolerance: absolute and relative tolerance.

    Raises:
        AssertionError: if it does not hold.
    """
    routing = _with_children_apart(routing, seed)
    inputs = random_inputs(routing, 2, out_capsules=out_capsules, seed=seed)
    expected, children = routing(*inputs), inputs[0].shape[1]
    shifted = [*range(1, children), 0]
    swapped = [1, 0, *range(2, children)] if children > 1 else [0]
    for order in (shifted, swapped):  # these two generate every order there is
        actual = _in_order(routing, order)(*(part[:, order] for part in inputs))
        _assert_equal(actual, expected, f"children in the order {order} make other parents", tolerance)


def assert_free_leading_dims(
    routing: AnyRouting, out_capsules: int, *, seed: int = 0, tolerance: float = 1e-10
) -> None:
    """Check that images are independent, whatever axes they are laid out in: none, one, or several.

    A routing is in eval mode here, since those of a training batch may have a batch norm in common.

    Args:
        routing: as for :func:`check_routing`.
        out_capsules: as for :func:`check_routing`.
        seed: seed of the random votes.
        tolerance: absolute and relative tolerance.

    Raises:
        AssertionError: if it does not hold.
    """
    routing = _in_eval_mode(in_dtype(routing, torch.float64))
    inputs = random_inputs(routing, 2, 3, out_capsules=out_capsules, seed=seed)
    together = routing(*inputs)
    for index in itertools.product(range(2), range(3)):
        alone = routing(*(part[index] for part in inputs))
        _assert_equal(_at(together, index), alone, f"image {index} of a batch differs from itself alone", tolerance)


def assert_gradients(routing: AnyRouting, out_capsules: int, *, seed: int = 0) -> None:
    """Check in float64 that gradients for votes, activations, children and parameters are those of finite differences.

    Args:
        routing: as for :func:`check_routing`.
        out_capsules: as for :func:`check_routing`.
        seed: seed of the random votes.

    Raises:
        AssertionError: if it does not hold.
    """
    routing = _with_children_apart(routing, seed)
    inputs = [part.requires_grad_() for part in random_inputs(routing, 2, out_capsules=out_capsules, seed=seed)]
    parameters = list(routing.parameters()) if isinstance(routing, nn.Module) else []

    def outputs(*arguments: Tensor) -> tuple[Tensor, ...]:
        return tuple(routing(*arguments[: len(inputs)]))

    try:
        torch.autograd.gradcheck(outputs, (*inputs, *parameters), raise_exception=True)
    except GradcheckError as error:
        raise AssertionError(f"gradients differ from finite differences: {error}") from error


def assert_shortcut(routing: AnyRouting, out_capsules: int, *, seed: int = 0, tolerance: float = 1e-10) -> None:
    """Check that a routing that declares to need less than all votes makes the same parents of that.

    Args:
        routing: as for :func:`check_routing`.
        out_capsules: as for :func:`check_routing`.
        seed: seed of the random votes.
        tolerance: absolute and relative tolerance.

    Raises:
        AssertionError: if it does not hold.
    """
    if not isinstance(routing, Routing):
        return
    apart = _with_children_apart(routing, seed)
    assert isinstance(apart, Routing)
    votes, activation, *_ = random_inputs(routing, 2, out_capsules=out_capsules, seed=seed)
    children, pose_dim = votes.shape[1], votes.shape[-1]
    generator = torch.Generator().manual_seed(seed)
    in_dim = _size(routing, "in_dim", IN_DIM)
    transform = VectorVotes(children, out_capsules, in_dim, pose_dim).double()
    weight = torch.randn(transform.weight.shape, generator=generator, dtype=torch.float64)
    transform.weight = nn.Parameter(weight, requires_grad=False)
    u = torch.randn(2, children, in_dim, generator=generator, dtype=torch.float64)
    lazy, dense = (LazyVotes(u, transform, nn.Identity(), streaming=streaming) for streaming in (True, False))
    message = f"{type(routing).__name__}: needs = {routing.needs} gives other parents than agree()"
    _assert_equal(lazy.route(apart, activation), dense.route(apart, activation), message, tolerance)


def assert_evidence(routing: AnyRouting, out_capsules: int, *, seed: int = 0) -> None:
    """Check that the shares of the children in a routing's evidence, if it has some, add up to the activations.

    Args:
        routing: as for :func:`check_routing`.
        out_capsules: as for :func:`check_routing`.
        seed: seed of the random votes.

    Raises:
        AssertionError: if it does not hold.
    """
    if not isinstance(routing, Routing) or type(routing).evidence is Routing.evidence:
        return
    inputs = random_inputs(routing, 3, out_capsules=out_capsules, seed=seed)
    apart = _with_children_apart(routing, seed)
    assert isinstance(apart, Routing)
    total = apart.evidence(*inputs).share.sum(dim=-2)
    expected = apart(*inputs).activation
    difference = (total - expected).abs().max().item()
    assert difference < 1e-9 * (1 + expected.abs().max().item()), (
        f"{type(routing).__name__}: shares of the children differ from the activation by {difference:.3g}"
    )


def warn_if_bounded(routing: AnyRouting, out_capsules: int, *, seed: int = 0) -> None:
    """Warn where activations stay in 0..1 for weak, strong, equal and opposite votes, and ``bounded`` is False.

    No number of votes can prove a bound, so this is a warning and not an error.

    Args:
        routing: as for :func:`check_routing`.
        out_capsules: as for :func:`check_routing`.
        seed: seed of the random votes.
    """
    if not isinstance(routing, Routing) or routing.bounded:
        return
    votes, *others = random_inputs(routing, 8, out_capsules=out_capsules, seed=seed)
    equal = torch.ones_like(votes)
    routing = copy.deepcopy(routing).to(votes.dtype)
    with torch.no_grad():
        seen = [
            routing(scale * some, *others).activation
            for some in (votes, equal, -equal)
            for scale in (1e-3, 0.1, 1.0, 10.0, 1e3)
        ]
    if all(bool(((values >= 0) & (values <= 1)).all()) for values in seen):
        warnings.warn(
            f"{type(routing).__name__}: all activations lie in 0..1, and its property bounded is False. If they always "
            'do, return True there: loss.name = "auto" then takes the margin loss, since a softmax of such activations '
            "is never sure",
            stacklevel=3,
        )


def hard_votes(
    out_capsules: int, *, children: int = CHILDREN, pose_dim: int = POSE_DIM, seed: int = 0
) -> Mapping[str, Tensor]:
    """Votes that have broken capsule code before: all zero, all equal, very large, and others.

    Args:
        out_capsules: J, the number of parents.
        children: I, the number of children of most of them; one has a single child, one has two times as many.
        pose_dim: K, the dimensions of most of them; one has a single dimension.
        seed: seed of the random votes.

    Returns:
        votes of two images, (2, I, J, K) in float32, by name.
    """
    sizes = {"children": children, "pose_dim": pose_dim}
    votes, _ = random_votes(2, out_capsules=out_capsules, **sizes, dtype=torch.float32, seed=seed)
    silent = votes.clone()
    silent[:, 0] = 0
    return {
        "all zero": torch.zeros_like(votes),
        "all equal": torch.ones_like(votes),
        "one child": votes[:, :1],
        "one child silent": silent,
        "one pose dimension": votes[..., :1],
        "of scale 1e-20": votes * 1e-20,
        "of scale 1e15": votes * 1e15,
        "of scales 1e-20 and 1e15": torch.cat([votes * 1e-20, votes * 1e15], dim=-3),
    }


def assert_finite(routing: AnyRouting, out_capsules: int, *, seed: int = 0) -> None:
    """Check that values and gradients are finite on hard votes, in float32 and bfloat16.

    Children are all active, half active, and all inactive, and as large as their votes where the routing reads them.
    Hard votes of other sizes than those that the routing was built for are left out.

    Args:
        routing: as for :func:`check_routing`.
        out_capsules: as for :func:`check_routing`.
        seed: seed of the random votes.

    Raises:
        AssertionError: if it does not hold.
    """
    for dtype in (torch.float32, torch.bfloat16):
        in_this = in_dtype(routing, dtype)
        for name, votes in _hard_votes_for(routing, out_capsules, seed):
            for how, activation in _hard_activations(votes):
                where = f"votes {name}, children {how}, {dtype}"
                inputs = votes, activation, *_hard_children(routing, votes, seed)
                _assert_finite_at(in_this, [part.to(dtype) for part in inputs], where, seed)


def _hard_votes_for(routing: AnyRouting, out_capsules: int, seed: int) -> Iterator[tuple[str, Tensor]]:
    """Hard votes by name, without those of sizes that a routing was not built for."""
    children, pose_dim = _size(routing, "in_capsules", CHILDREN), _size(routing, "pose_dim", POSE_DIM)
    for name, votes in hard_votes(out_capsules, children=children, pose_dim=pose_dim, seed=seed).items():
        whole = votes.shape[1] % _size(routing, "in_capsules", 1) == 0
        if whole and votes.shape[-1] == _size(routing, "pose_dim", votes.shape[-1]):
            yield name, votes


def _hard_children(routing: AnyRouting, votes: Tensor, seed: int) -> tuple[Tensor, ...]:
    """Child capsules as large as the largest number of their votes, for a routing that reads them; else nothing."""
    if not _reads_children(routing):
        return ()
    generator = torch.Generator().manual_seed(seed)
    children = torch.randn(*votes.shape[:-2], _size(routing, "in_dim", IN_DIM), generator=generator)
    return (children * votes.abs().amax((-2, -1)).unsqueeze(-1),)


def _hard_activations(votes: Tensor) -> Iterator[tuple[str, Tensor]]:
    ones = torch.ones(votes.shape[:-2])
    yield "all active", ones
    yield "half active", ones / 2
    yield "all inactive", 0 * ones


def _assert_finite_at(routing: AnyRouting, inputs: list[Tensor], where: str, seed: int) -> None:
    inputs = [part.requires_grad_() for part in inputs]
    capsules = routing(*inputs)
    for part, value in zip(Capsules._fields, capsules, strict=True):
        if not value.isfinite().all():
            raise AssertionError(f"{part} is not finite for {where}")
    parameters = list(routing.parameters()) if isinstance(routing, nn.Module) else []
    generator = torch.Generator().manual_seed(seed)
    for part, value in zip(Capsules._fields, capsules, strict=True):
        if not value.requires_grad:
            raise AssertionError(f"{part} has no gradient for {where}")
        direction = torch.randn(value.shape, generator=generator).to(value.dtype)
        gradients = torch.autograd.grad(value, [*inputs, *parameters], direction, retain_graph=True, allow_unused=True)
        if any(gradient is not None and not gradient.isfinite().all() for gradient in gradients):
            raise AssertionError(f"the gradient of {part} is not finite for {where}")


def _assert_are_capsules(who: str, result: object) -> None:
    if not isinstance(result, Capsules):
        raise AssertionError(f"{who} returns Capsules, got {type(result).__name__}")
    for name, part in zip(Capsules._fields, result, strict=True):
        if not isinstance(part, Tensor):
            raise AssertionError(f"{who} returns Capsules of tensors, got {name} as {type(part).__name__}")


def _at(capsules: Capsules, index: int | tuple[int, ...]) -> Capsules:
    return Capsules(*(part[index] for part in capsules))


def _assert_equal(actual: Capsules, expected: Capsules, message: str, tolerance: float) -> None:
    for name, one, other in zip(Capsules._fields, actual, expected, strict=True):
        torch.testing.assert_close(
            one,
            other,
            rtol=tolerance,
            atol=tolerance,
            msg=lambda text, name=name: f"{message}, in {name}: {text}",
        )
