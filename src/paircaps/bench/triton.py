"""What Triton's kernels of FM agreement are like without a graphics card: their machine code, and their least times.

Both kernels are compiled for cards that need not be there, and the assembler says how many registers they take and
whether they spill any into memory. The least time of a launch follows from its bytes and its operations and from what a
card can do: it is predicted, not measured.
"""

from __future__ import annotations

import importlib.util
import itertools
import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from paircaps._utils.machine import describe_machine, machine_line
from paircaps._utils.words import Say, as_size
from paircaps.bench.layer_shapes import LayerShape, registered_shapes
from paircaps.bench.timing import silent
from paircaps.errors import MissingExtraError, RecipeError
from paircaps.votes.kernels.triton_sums import LAUNCH, Plan, interpreting, options_of
from paircaps.votes.tiled_sums import SumArguments

BATCH = 128
CAPABILITIES = (80, 90)
"""Compute capabilities, ten times: those of an A100 and an H100."""

PREDICTED = ("capsnet", "resnet-caps")
"""Models whose layers get a predicted time: CapsNet, and the network of the paper's Table 2."""

CARD, BANDWIDTH, SPEED = "A100", 1_555e9, 19.5e12
"""A card, the bytes a second of its memory, and its operations a second in float32, a fused pair counted as two."""

SUMS, GRADIENTS = "sums_kernel", "gradients_kernel"


@dataclass(frozen=True)
class MachineCode:
    """What the machine code of a kernel takes.

    Args:
        registers: registers of a thread, of which there are 255.
        stack: bytes of a thread in memory, where spilled registers lie.
        shared: bytes of shared memory of a program.
    """

    registers: int
    stack: int
    shared: int


@dataclass(frozen=True)
class Work:
    """Bytes and operations of a launch with what PyTorch does around it.

    Args:
        launch_bytes: bytes that the launch reads and writes, everything once.
        other_bytes: bytes of transposing its arguments and results, and of adding its ranges up.
        operations: multiplications and additions.
    """

    launch_bytes: int
    other_bytes: int
    operations: int

    @property
    def seconds(self) -> float:
        """The least time on the card, of the launch and around it."""
        return max(self.launch_bytes / BANDWIDTH, self.operations / SPEED) + self.other_bytes / BANDWIDTH


def bench_triton(say: Say = silent) -> dict[str, Any]:
    """Compile the kernels for the layers of all registered models, and predict the least times of some.

    Args:
        say: called with each progress line.
    """
    require_triton()
    import triton

    shapes = registered_shapes()
    predicted = [shape for shape, models in shapes.items() if set(models) & set(PREDICTED)]
    return {
        "triton": triton.__version__,
        "batch": BATCH,
        "code": list(_compiled(shapes, say)),
        "predicted": [_predict(shape) for shape in predicted],
        "machine": describe_machine(),
    }


def require_triton() -> None:
    """Refuse to go on where Triton cannot compile."""
    if importlib.util.find_spec("triton") is None:
        raise MissingExtraError("compiling the kernels needs triton, which is not installed: pip install triton")
    if interpreting():
        raise RecipeError("TRITON_INTERPRET=1 makes Triton interpret its kernels: unset it to compile them")


# --- machine code -----------------------------------------------------------------------------------------------------


def _compiled(shapes: Mapping[LayerShape, Sequence[str]], say: Say) -> Iterator[dict[str, Any]]:
    """What the machine code for layers takes, by kernel, options and compute capability; many layers share theirs."""
    models: dict[str, set[str]] = {}
    jobs: dict[str, SumArguments] = {}
    for shape, names in shapes.items():
        arguments = meta_arguments(shape, BATCH)
        key = str((Plan.of(arguments).gradients_sizes, options_of(arguments)))
        models.setdefault(key, set()).update(names)
        jobs[key] = arguments
    for key, arguments in jobs.items():
        names = sorted(models[key])
        say(f"machine code for {', '.join(names)}")
        for options, job in (("as they are", arguments), ("everything", with_everything(arguments))):
            for kernel, capability in itertools.product((SUMS, GRADIENTS), CAPABILITIES):
                code = asdict(compile_kernel(kernel, job, capability))
                yield {"models": names, "kernel": kernel, "options": options, "capability": capability, **code}


def with_everything(arguments: SumArguments) -> SumArguments:
    """The same with a norm of each vote, soft lengths, and weights of the children."""
    layout = arguments.layout
    scale = arguments.u.new_empty(layout.children, layout.parents, layout.pose_dim)
    softness, child_weight = arguments.u.new_empty(()), arguments.u.new_empty(layout.batch, layout.children)
    return arguments._replace(scale=scale, shift=scale, softness=softness, child_weight=child_weight)


def meta_arguments(shape: LayerShape, batch: int) -> SumArguments:
    """Arguments of the sums of a layer in training, without memory; positions that share weights count as images."""
    with torch.device("meta"):
        votes = shape.layer().votes
        weight = votes.matrices
        kinds, parents, inner, _ = weight.shape
        u = torch.empty(batch * shape.in_capsules // kinds, kinds, votes.rows * inner)
        size = {None: None, "pose": (shape.pose_dim,), "vote": (kinds, parents, shape.pose_dim)}[shape.vote_norm]
        scale = None if size is None else torch.empty(size)
    return SumArguments(u, weight, scale, scale, votes.rows, True, unscaled=votes.unscaled)


def compile_kernel(kernel: str, arguments: SumArguments, capability: int) -> MachineCode:
    """Compile a kernel for a card that need not be there.

    Args:
        kernel: name of the kernel.
        arguments: arguments of the sums, whose sizes and options the machine code is made for.
        capability: compute capability of the card, ten times.
    """
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from paircaps.votes.kernels import triton_code

    plan = Plan.of(arguments)
    constants = {**(plan.sums_sizes if kernel == SUMS else plan.gradients_sizes), **options_of(arguments)}
    function = getattr(triton_code, kernel)
    names = function.arg_names
    kinds = {name: _kind(name, constants) for name in names}
    # as at a launch: memory that PyTorch hands out begins at a multiple of 16 bytes
    aligned: Any = {(i,): [["tt.divisibility", 16]] for i, name in enumerate(names) if kinds[name] == "*fp32"}
    source = ASTSource(fn=function, signature=kinds, constexprs=constants, attrs=aligned)
    compiled = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=LAUNCH)
    registers, stack = _resources(compiled.asm["cubin"])
    return MachineCode(registers, stack, compiled.metadata.shared)


def _kind(name: str, constants: dict[str, Any]) -> str:
    """Type of an argument of a kernel, by its name."""
    if name in constants:
        return "constexpr"
    return "*fp32" if name.endswith("_at") else "i32"


def _resources(machine_code: bytes) -> tuple[int, int]:
    """Registers of a thread, and bytes of its stack, as NVIDIA's tool reads them from machine code."""
    from triton import knobs

    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(machine_code)
        file.flush()
        command = [knobs.nvidia.cuobjdump.path, "-res-usage", file.name]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = re.search(r"REG:(\d+) STACK:(\d+)", text)
    assert found is not None, text
    return int(found[1]), int(found[2])


# --- bytes and operations ---------------------------------------------------------------------------------------------


def _predict(shape: LayerShape) -> dict[str, Any]:
    """Bytes, operations and least times of a layer's two launches, beside the bytes of dense votes."""
    arguments = meta_arguments(shape, BATCH)
    dense = dense_bytes(shape, BATCH)
    works = (sums_work(arguments), gradients_work(arguments))
    rows = {
        name: {**asdict(work), "seconds": work.seconds, "dense_bytes": plain, "dense_seconds": plain / BANDWIDTH}
        for name, work, plain in zip(("forward", "backward"), works, dense, strict=True)
    }
    return {"layer": str(shape), "votes_bytes": shape.votes_bytes(BATCH), **rows}


def sums_work(arguments: SumArguments) -> Work:
    """Bytes and operations of the forward pass.

    For each value of a vote: its square and the sum of squares (2), r (1), Σ (1) and Σ of squares (2), and with batch
    norm g and h (2).
    """
    plan, layout = Plan.of(arguments), arguments.layout
    children, weights, affine = _bytes_of(arguments)
    sums = 4 * 2 * plan.child_ranges * layout.batch * layout.parents * layout.pose_dim
    each = 6 if arguments.scale is None else 8
    return Work(
        children + weights + affine + sums, 2 * children + sums, layout.product_flops + each * layout.votes_bytes // 4
    )


def gradients_work(arguments: SumArguments) -> Work:
    """Bytes and operations of the backward pass.

    The votes again, and two more products. For each value of a vote: its square and the sum of squares (2), r (1),
    2 D û and A (2), ⟨û, dû⟩ (2) and dv (3), and with batch norm g and h (2) and their gradients (4).
    """
    plan, layout = Plan.of(arguments), arguments.layout
    children, weights, affine = _bytes_of(arguments)
    slopes = 4 * 2 * layout.batch * layout.parents * layout.pose_dim
    pairs = 0 if arguments.scale is None else 4 * 2 * layout.children * layout.parents * layout.pose_dim
    of_u, of_pairs = plan.parent_ranges * children, plan.image_ranges * (weights + pairs)
    launch = children + weights + affine + slopes + of_u + of_pairs
    # transposed: children, slopes, gradients of the children; added up: ranges, where there are several
    other = 2 * (children + slopes) + of_u + children + of_pairs
    each = 10 if arguments.scale is None else 16
    return Work(launch, other, 3 * layout.product_flops + each * layout.votes_bytes // 4)


def _bytes_of(arguments: SumArguments) -> tuple[int, int, int]:
    """Bytes of the children, of the weights, and of scale and shift."""
    scale = arguments.scale
    return arguments.u.nbytes, arguments.weight.nbytes, 0 if scale is None else 2 * scale.nbytes


class _Traffic(TorchDispatchMode):
    """Bytes that operations read and write, each its arguments and results once; views are free."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        if not function.is_view:
            flat = tree_leaves((args, kwargs, result))
            # an expanded tensor is read once, whatever its size
            self.bytes += sum(min(t.nbytes, t.untyped_storage().nbytes()) for t in flat if isinstance(t, Tensor))
        return result


def dense_bytes(shape: LayerShape, batch: int) -> tuple[int, int]:
    """Bytes that FM agreement on dense votes reads and writes, forward and backward, operation by operation."""
    with torch.device("meta"):
        layer, u = shape.layer("fm", False), shape.random_children(batch)
    with _Traffic() as forward:
        activation = layer(u).activation
    with _Traffic() as backward:
        activation.sum().backward()
    return forward.bytes, backward.bytes


# --- the page ---------------------------------------------------------------------------------------------------------


def as_markdown(result: dict[str, Any]) -> str:
    """Format the result as two tables."""
    lines = [
        "# The kernels for graphics cards",
        "",
        "`paircaps bench triton`",
        "",
        f"Nothing here was run on a card. Triton {result['triton']}; {machine_line(result['machine'])}.",
        "",
        "Machine code of both kernels for compute capability 8.0 (A100) and 9.0 (H100), for the layers of all models "
        "as they are, and with everything that a layer may ask for: a norm of each vote, soft lengths, and weights of "
        "the children. A thread has 255 registers; what does not fit is spilled to its stack in memory.",
        "",
        "| layers of | kernel | options | capability | registers | stack, bytes | shared memory, bytes |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in result["code"]:
        kind = "forward" if row["kernel"] == SUMS else "backward"
        lines.append(
            f"| {', '.join(row['models'])} | {kind} | {row['options']} | {row['capability'] / 10:.1f} | "
            f"{row['registers']} | {row['stack']} | {row['shared']:,} |"
        )
    lines += [
        "",
        f"**Predicted, not measured**: the least time of {result['batch']} images on an {CARD} with "
        f"{BANDWIDTH / 1e9:,.0f} GB/s and {SPEED / 1e12} TFLOP/s in float32. A launch takes no less than its bytes and "
        "no less than its operations do; the passes of PyTorch around it come on top. Beside it are the bytes that FM "
        "agreement on dense votes reads and writes, and the time they take. Real launches take longer than either.",
        "",
        "| layer | votes | pass | the launch | around it | GFLOP | predicted, µs | dense votes | predicted, µs |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in result["predicted"]:
        for kind in ("forward", "backward"):
            work = row[kind]
            lines.append(
                f"| {row['layer']} | {as_size(row['votes_bytes'])} | {kind} | {as_size(work['launch_bytes'])} | "
                f"{as_size(work['other_bytes'])} | {work['operations'] / 1e9:.2f} | {1e6 * work['seconds']:.0f} | "
                f"{as_size(work['dense_bytes'])} | {1e6 * work['dense_seconds']:.0f} |"
            )
    return "\n".join(lines) + "\n"
