"""Arguments of the sums in every form, and what a path makes of them beside the plain computation in float64."""

from typing import NamedTuple

import torch
from reference import plain

from paircaps.votes.kernels import choice, native_build
from paircaps.votes.tiled_sums import SumArguments, SumGradients

NAMES = ("S", "Z", *(f"d {name}" for name in SumGradients._fields))


def runnable_levels():
    """Instructions that the kernel can be compiled for and this processor can run, the widest first."""
    levels = list(native_build.INSTRUCTIONS)
    return levels[levels.index(native_build.instructions()) :]


class Case(NamedTuple):
    """Sizes and options of the sums, as SumArguments has them.

    Attributes:
        batch: B.
        children: I.
        parents: J.
        rows: P, of a child and of a vote.
        inner: Q, the values in a row of a child.
        columns: R, the values in a row of a vote.
        norm: "pose" for a scale per dimension, "vote" for one per vote, None without.
        normalize: whether votes are made as long as one.
        soft: whether votes are normalised softly.
        weighed: whether children have weights.
        unscaled: last rows of the weights that are not scaled.
        seed: of all values.
    """

    batch: int
    children: int
    parents: int
    rows: int
    inner: int
    columns: int
    norm: str | None = None
    normalize: bool = True
    soft: bool = False
    weighed: bool = False
    unscaled: int = 0
    seed: int = 0

    @property
    def pose_dim(self):
        return self.rows * self.columns

    def arguments(self, dtype=torch.float32):
        """Arguments with random values, the same ones in every precision up to rounding."""
        draw = torch.Generator().manual_seed(self.seed)

        def normal(*shape):
            return torch.randn(*shape, generator=draw).to(dtype)

        pair = (self.children, self.parents)
        of_norm = {None: None, "pose": (self.pose_dim,), "vote": (*pair, self.pose_dim)}[self.norm]
        return SumArguments(
            u=normal(self.batch, self.children, self.rows * self.inner),
            weight=normal(*pair, self.inner, self.columns),
            scale=None if of_norm is None else normal(*of_norm),
            shift=None if of_norm is None else normal(*of_norm),
            rows=self.rows,
            normalize=self.normalize,
            softness=torch.tensor(0.7, dtype=dtype) if self.soft else None,
            child_weight=normal(self.batch, self.children).sigmoid() if self.weighed else None,
            unscaled=self.unscaled,
        )

    def slopes(self, dtype=torch.float32):
        """Gradients of S and Z."""
        draw = torch.Generator().manual_seed(self.seed + 1)
        shape = (self.batch, self.parents, self.pose_dim)
        return tuple(torch.randn(*shape, generator=draw).to(dtype) for _ in range(2))


def by(path, arguments, slopes):
    """Sums and gradients by one path, by name; an argument that is None has no gradient."""
    with choice.only(path):
        assert choice.path_of(arguments) == path, choice.PATHS[path].refusal(arguments)
        found = (*choice.sums_of(arguments), *choice.gradients_of(arguments, *slopes))
    return {name: part for name, part in zip(NAMES, found, strict=True) if part is not None}


class Truth(NamedTuple):
    """What the plain computation finds in float64, by name.

    Attributes:
        values: sums and gradients.
        sizes: what errors of rounding are compared with: the largest value, or for the gradient of a softness, to which
            all votes contribute and mostly cancel, the sum of their absolute contributions.
    """

    values: dict[str, torch.Tensor]
    sizes: dict[str, float]


def in_full(arguments, slopes):
    """Sums and gradients by the plain computation, in float64 and with autograd."""
    tensors = [None if part is None else part.double().requires_grad_() for part in arguments.tensors]
    inputs = list(tensors)
    if arguments.softness is not None:  # one for each vote, so that the contributions are seen
        batch, children, parents = arguments.u.shape[0], *arguments.weight.shape[:2]
        inputs[4] = tensors[4] = tensors[4].detach().expand(batch, children, parents, 1).clone().requires_grad_()
    votes = plain.cast_votes(*inputs[:4], arguments.rows, arguments.unscaled)
    sums = plain.vote_sums(votes, *inputs[4:], arguments.normalize)
    wanted = [part for part in tensors if part is not None]
    gradients = iter(torch.autograd.grad(sums, wanted, [part.double() for part in slopes]))
    found = (*(part.detach() for part in sums), *(None if part is None else next(gradients) for part in tensors))
    values = {name: part for name, part in zip(NAMES, found, strict=True) if part is not None}
    sizes = {name: _largest(part) for name, part in values.items()}
    if arguments.softness is not None:
        sizes["d softness"] = values["d softness"].abs().sum().item()
        values["d softness"] = values["d softness"].sum()
    return Truth(values, sizes)


def coupled(arguments, agreed, slope):
    """Coupled sums and their gradients by the kernel, by name; they know neither softness nor weights of children."""
    arguments = arguments._replace(softness=None, child_weight=None)
    path = choice.coupled_path(arguments)
    sums = path.sums(arguments, agreed)
    of_agreed, gradients = path.gradients(arguments, agreed, slope)
    named = {"sums": sums, "d agreed": of_agreed, **{f"d {name}": part for name, part in gradients._asdict().items()}}
    return {name: part for name, part in named.items() if part is not None}


def coupled_in_full(arguments, agreed, slope, dtype=torch.float64):
    """The same by the plain computation, in any precision."""
    given = {"agreed": agreed, "u": arguments.u, "weight": arguments.weight}
    if arguments.scale is not None:
        given |= {"scale": arguments.scale, "shift": arguments.shift}
    given = {name: part.to(dtype).requires_grad_() for name, part in given.items()}
    of_votes = {name: part for name, part in given.items() if name != "agreed"}
    votes = plain.cast_votes(**of_votes, rows=arguments.rows, unscaled=arguments.unscaled)
    sums = plain.coupled_sums(votes, given["agreed"])
    gradients = torch.autograd.grad(sums, list(given.values()), slope.to(dtype))
    values = {"sums": sums.detach(), **{f"d {name}": part for name, part in zip(given, gradients, strict=True)}}
    return Truth(values, {name: _largest(part) for name, part in values.items()})


def require_as_exact_as_the_tiles(found, tiles, truth, slack=1e-6):
    """Errors are at most twice those of the tiles, and a few units of rounding.

    Args:
        found: sums and gradients by the path on trial.
        tiles: those by the tiles in float32.
        truth: those in float64, as ``in_full`` has them.
        slack: the floor of the error, relative to the size of the values.
    """
    assert found.keys() == tiles.keys() == truth.values.keys()
    for name, value in truth.values.items():
        assert found[name].shape == value.shape, name
        assert found[name].dtype == tiles[name].dtype, name
        ours, theirs = (_largest(part[name].double() - value) for part in (found, tiles))
        allowed = 2 * theirs + slack * truth.sizes[name]
        assert ours <= allowed, f"{name}: an error of {ours:g} where {allowed:g} is allowed"


def _largest(values):
    return values.abs().max().item() if values.numel() else 0.0
