"""The two sums of FM agreement and their gradients on a graphics card: one launch forward, one backward.

The results are those of :mod:`paircaps.votes.tiled_sums`, which explains the mathematics; the kernels themselves are in
:mod:`paircaps.votes.kernels.triton_code`. Votes never reach memory. Each program adds up a range of children (forward),
of images and of parents (backward), in float32; the few results of all ranges lie in scratch memory, and PyTorch adds
them in float64. How the ranges are cut depends on the sizes of the layer alone, so results are the same in every run.
"""

from __future__ import annotations

import importlib.util
import os
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor

from paircaps._utils.precision import HALF, full_precision
from paircaps.functional import ABSENT
from paircaps.votes.layout import Layout, from_columns, sum_precision, to_columns
from paircaps.votes.tiled_sums import SumArguments, SumGradients

PROGRAMS = 2048
"""Programs of a launch to aim at: enough for all processors of a large card, each of which runs a dozen at a time."""

LEAST_CHILDREN, MOST_CHILDREN = 8, 128
"""Children that a program of the forward pass adds up: few take much scratch memory, many lose digits in float32."""

PRODUCTS = 128
"""Multiplications of an image between two sums in a register: few leave room for all else, many wait less."""

LEAST_DOT = 64
"""Weights of a chunk from which their gradient is a product in shared memory."""

MOST_POSE = 64
"""Largest pose, padded to powers of two, whose votes and sums stay in the registers."""

NOT_INSTALLED = "Triton is not installed: pip install triton"

NEWEST_OLD = (8, 0)
"""Least compute capability of the card, that of an A100."""


@dataclass(frozen=True)
class Plan:
    """How the sums of a layer are divided among programs.

    Args:
        layout: sizes of the votes.
        unscaled: number of last rows of the weights that have no scale.
    """

    layout: Layout
    unscaled: int = 0

    @classmethod
    def of(cls, arguments: SumArguments) -> Plan:
        """How the sums of these arguments are divided."""
        return cls(arguments.layout, 0 if arguments.scale is None else arguments.unscaled)

    @property
    def padded(self) -> tuple[int, int]:
        """P and R as powers of two."""
        return _power(self.layout.rows), _power(self.layout.columns)

    @property
    def sums_block(self) -> int:
        """Images of a program of the forward pass: as many as leave registers for their votes and two sums."""
        return max(16, min(64, 1024 // self._pose))

    @property
    def gradients_block(self) -> int:
        """Images that a program of the backward pass holds at a time."""
        return max(16 // self.padded[0], min(32, 512 // self._pose))

    @property
    def _pose(self) -> int:
        return self.padded[0] * self.padded[1]

    @property
    def child_step(self) -> int:
        """Children in a range of the forward pass."""
        programs = _parts(self.layout.batch, self.sums_block) * self.layout.parents
        return min(MOST_CHILDREN, max(LEAST_CHILDREN, self.layout.children * programs // PROGRAMS))

    @property
    def child_ranges(self) -> int:
        """Ranges of children in the forward pass."""
        return _parts(self.layout.children, self.child_step)

    @property
    def sums_programs(self) -> int:
        """Programs of the forward pass."""
        return _parts(self.layout.batch, self.sums_block) * self.layout.parents * self.child_ranges

    @property
    def image_step(self) -> int:
        """Blocks of images in a range of the backward pass: all, unless that leaves too few programs."""
        blocks = _parts(self.layout.batch, self.gradients_block)
        return _parts(blocks, min(blocks, _parts(PROGRAMS, self.layout.children)))

    @property
    def image_ranges(self) -> int:
        """Ranges of images in the backward pass."""
        return _parts(_parts(self.layout.batch, self.gradients_block), self.image_step)

    @property
    def parent_step(self) -> int:
        """Parents in a range of the backward pass: all, unless that leaves too few programs."""
        parents = self.layout.parents
        return _parts(parents, min(parents, _parts(PROGRAMS, self.layout.children * self.image_ranges)))

    @property
    def parent_ranges(self) -> int:
        """Ranges of parents in the backward pass."""
        return _parts(self.layout.parents, self.parent_step)

    @property
    def gradients_programs(self) -> int:
        """Programs of the backward pass."""
        return self.layout.children * self.image_ranges * self.parent_ranges

    @property
    def largest(self) -> int:
        """Values in the largest tensor that a launch reads or writes."""
        layout = self.layout
        votes, matrix = layout.children * layout.parents, layout.inner * layout.columns
        of_sums = 2 * self.child_ranges * layout.batch * layout.parents * layout.pose_dim
        of_u = self.parent_ranges * layout.batch * layout.children * layout.rows * layout.inner
        return max(of_sums, of_u, self.image_ranges * votes * max(matrix, layout.pose_dim))

    @property
    def chunk(self) -> int:
        """Values in a row of a child that are multiplied at a time."""
        return min(_power(self.layout.inner - self.unscaled), max(1, PRODUCTS // self._pose))

    @property
    def held(self) -> bool:
        """Whether all values of a row are multiplied at once, so that the backward pass reads a child once."""
        return self.unscaled == 0 and self.chunk >= self.layout.inner

    @property
    def sums_sizes(self) -> dict[str, int]:
        """Sizes that the machine code of the forward pass is made for."""
        layout = self.layout
        P2, R2 = self.padded
        return {
            "P": layout.rows,
            "Q": layout.inner,
            "R": layout.columns,
            "P2": P2,
            "R2": R2,
            "SCALED": layout.inner - self.unscaled,
            "CHUNK": self.chunk,
            "EXEMPT_CHUNK": min(self.chunk, _power(max(1, self.unscaled))),
            "BLOCK": self.sums_block,
        }

    @property
    def gradients_sizes(self) -> dict[str, Any]:
        """Sizes that the machine code of the backward pass is made for."""
        return {
            **self.sums_sizes,
            "BLOCK": self.gradients_block,
            "HELD": self.held,
            "DOT": self.chunk * self.padded[1] >= LEAST_DOT,
            "INTERPRETED": interpreting(),
        }


def _power(size: int) -> int:
    """The least power of two that is not smaller."""
    return 1 << (size - 1).bit_length()


def _parts(count: int, size: int) -> int:
    """Number of parts of a size in a count, the last of which may be smaller."""
    return -(-count // size)


# --- what it cannot do ------------------------------------------------------------------------------------------------


def triton_refusal(arguments: SumArguments) -> str | None:
    """Why these arguments are nothing for the kernels, in plain words; None if they can be served.

    Args:
        arguments: arguments of the sums.
    """
    device = arguments.u.device
    if not interpreting():
        if device.type != "cuda":
            return f"Triton's kernels are for CUDA, and the capsules are on {device.type}"
        if (problem := card_problem()) is not None:
            return problem
    elif not _installed():
        return NOT_INSTALLED
    if arguments.shared:
        return "children that share weights go to the kernels position by position"
    return _refused_precision(arguments) or _refused_size(arguments.layout)


@cache
def _installed() -> bool:
    return importlib.util.find_spec("triton") is not None


def card_problem() -> str | None:
    """Why no graphics card here can run the kernels, in plain words; None if the current one can."""
    if torch.version.hip is not None:
        return "Triton's kernels are for cards of NVIDIA, and this PyTorch is for those of AMD"
    if not torch.cuda.is_available():
        return "there is no graphics card that PyTorch can use"
    if not _installed():
        return NOT_INSTALLED
    if torch.cuda.get_device_capability() < NEWEST_OLD:
        return f"{torch.cuda.get_device_name()} is older than compute capability 8.0"
    return None


def interpreting() -> bool:
    """Whether Triton interprets its kernels on the processor, as ``TRITON_INTERPRET=1`` asks for; only tests do."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def _refused_precision(arguments: SumArguments) -> str | None:
    """Why tensors of these precisions are not served."""
    given = {tensor.dtype for tensor in arguments.tensors if tensor is not None}
    refused = sorted(str(dtype).removeprefix("torch.") for dtype in given - {torch.float32, *HALF})
    return f"Triton's kernels compute in float32, and there is {refused[0]}" if refused else None


def _refused_size(layout: Layout) -> str | None:
    """Why votes of these sizes are not served."""
    plan = Plan(layout)
    P, R = plan.padded
    if min(layout.batch, layout.children, layout.parents) == 0:
        return "there is nothing to add up"
    if P * R > MOST_POSE:
        return f"votes of {layout.pose_dim} dimensions do not fit the registers of a card; those of {MOST_POSE} do"
    if plan.largest >= 2**31:
        return f"a tensor of {plan.largest:,} values is more than Triton's kernels count, 2³¹"
    return None


# --- forward ----------------------------------------------------------------------------------------------------------


def triton_sums(arguments: SumArguments) -> tuple[Tensor, Tensor]:
    """S = Σ x û and Z = Σ (x û)² over the children, (B, J, K) each, in float32: one launch.

    Args:
        arguments: arguments of the sums, which :func:`triton_refusal` does not refuse.
    """
    code, layout = _code(), arguments.layout
    plan, given = Plan.of(arguments), _Given(arguments)
    shape = (2, plan.child_ranges, layout.parents, layout.pose_dim, layout.batch)
    sums = torch.empty(shape, dtype=torch.float32, device=arguments.u.device)
    with _on(sums):
        code.sums_kernel[(plan.sums_programs,)](
            *given.tensors,
            *sums,
            *(layout.batch, layout.children, layout.parents, plan.child_step),
            **plan.sums_sizes,
            **given.options,
            **LAUNCH,
        )
    total, squares = sums.sum(1, dtype=sum_precision(sums)).to(torch.float32).permute(0, 3, 1, 2).contiguous()
    return total, squares


LAUNCH: dict[str, Any] = {"num_warps": 1, "num_stages": 1, "maxnreg": 255}
"""Options of a launch: one warp, no loads ahead of the loop (other programs compute meanwhile), and all registers there
are: left to choose, the assembler spills a few to fit another program."""


@cache
def _code() -> Any:
    """The file of the kernels, which imports Triton."""
    from paircaps.votes.kernels import triton_code

    return triton_code


def _on(tensor: Tensor) -> Any:
    """Context in which launches go to the card of a tensor."""
    return torch.cuda.device_of(tensor)


class _Given:
    """Tensors of the arguments as the kernels read them, and the options that follow from which are there.

    Args:
        arguments: arguments of the sums.
    """

    def __init__(self, arguments: SumArguments) -> None:
        layout = arguments.layout
        u = to_columns(arguments.u, slice(0, layout.children), arguments.rows)  # (I, P, Q, B)
        weight = arguments.weight.to(torch.float32).contiguous()
        x = arguments.child_weight
        optional = [arguments.scale, arguments.shift, arguments.softness, None if x is None else x.t()]
        # what is missing is never read: any pointer will do
        self.tensors = [u, weight, *(u if part is None else part.to(torch.float32).contiguous() for part in optional)]
        self.options = options_of(arguments)


def options_of(arguments: SumArguments) -> dict[str, Any]:
    """Options that the machine code of both kernels is made for.

    Args:
        arguments: arguments of the sums.
    """
    scale = arguments.scale
    return {
        "NORM": 0 if scale is None else 1 if scale.dim() == 1 else 2,
        "NORMALIZE": arguments.normalize,
        "SOFT": arguments.normalize and arguments.softness is not None,
        "WEIGHTED": arguments.child_weight is not None,
        "SHORTEST": ABSENT,
    }


# --- backward ---------------------------------------------------------------------------------------------------------


def triton_gradients(arguments: SumArguments, grad_sum: Tensor, grad_squares: Tensor) -> SumGradients:
    """Gradients of all tensors among the arguments: one launch.

    Args:
        arguments: arguments of the sums, which :func:`triton_refusal` does not refuse.
        grad_sum: A, the gradient of S, (B, J, K).
        grad_squares: D, the gradient of Z, (B, J, K).
    """
    code, plan, given = _code(), Plan.of(arguments), _Given(arguments)
    layout = arguments.layout
    slope, curve = (part.permute(1, 2, 0).contiguous() for part in (grad_sum.float(), 2 * grad_squares.float()))
    scratch = _Scratch(plan, given.options, slope)
    with _on(slope):
        code.gradients_kernel[(plan.gradients_programs,)](
            *given.tensors,
            *(slope, curve, scratch.u, scratch.weight, scratch.scale, scratch.shift, scratch.along, scratch.soft),
            *(layout.batch, layout.children, layout.parents, plan.parent_step, plan.image_step),
            **plan.gradients_sizes,
            **given.options,
            **LAUNCH,
        )
    return scratch.gradients(arguments)


class _Scratch:
    """Memory that the backward pass writes: gradients of each range of parents, or of images.

    Args:
        plan: how the sums are divided.
        options: options of the kernels, which say what is asked for; the rest is empty.
        like: a tensor on the same card.
    """

    def __init__(self, plan: Plan, options: dict[str, Any], like: Tensor) -> None:
        layout = plan.layout
        pairs = (plan.image_ranges, layout.children, layout.parents)
        images = (plan.parent_ranges, layout.children, layout.batch)
        poses = (*pairs, layout.rows * layout.columns)
        self.u = like.new_empty((plan.parent_ranges, layout.children, layout.rows, layout.inner, layout.batch))
        self.weight = like.new_empty((*pairs, layout.inner, layout.columns))
        self.scale, self.shift = (like.new_empty(poses if options["NORM"] else 0) for _ in range(2))
        self.along = like.new_empty(images if options["WEIGHTED"] else 0)
        self.soft = like.new_empty(images if options["SOFT"] else 0)

    def gradients(self, arguments: SumArguments) -> SumGradients:
        """The gradients of all ranges together, in the shapes and precisions of the arguments."""
        u, weight, scale, shift, softness, child_weight = arguments.tensors
        assert u is not None
        assert weight is not None
        of_soft = None
        if softness is not None:
            precise = sum_precision(self.soft)
            of_soft = (-0.5 * self.soft.sum(dtype=precise)).to(softness.dtype).view_as(softness)
        return SumGradients(
            from_columns(_sum(self.u, 1)).to(u.dtype),
            _sum(self.weight, 1).to(weight.dtype),
            None if scale is None else _of_affine(self.scale, scale),
            None if shift is None else _of_affine(self.shift, shift),
            of_soft,
            None if child_weight is None else _sum(self.along, 1).t().to(child_weight.dtype),
        )


def _sum(values: Tensor, axes: int) -> Tensor:
    """Sum over the first axes, in float64; nothing is copied where a single range was written."""
    if values.shape[:axes].numel() == 1:
        return values.flatten(0, axes - 1)[0]
    return values.sum(tuple(range(axes)), dtype=sum_precision(values)).to(full_precision(values.dtype))


def _of_affine(values: Tensor, like: Tensor) -> Tensor:
    """Gradient of scale or shift, in its own shape, (K,) or (I, J, K), from (ranges, I, J, K)."""
    return _sum(values, 4 - like.dim()).to(like.dtype)
