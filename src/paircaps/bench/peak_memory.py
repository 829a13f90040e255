"""Peak memory of a forward pass, or of a forward and backward pass, measured in a process of its own.

``python -m paircaps.bench.peak_memory`` reads a JSON list of jobs from standard input and prints a list of their bytes.
Linux keeps the highest resident size of a process and can reset it, so only memory that the pass itself takes counts.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from paircaps._utils.registry import call_with_options
from paircaps.bench.layer_shapes import LayerShape, inference_pass, training_pass
from paircaps.errors import PaircapsError
from paircaps.models import create_model

PeakJob = dict[str, Any]
"""Description of a pass to measure, as JSON."""


@dataclass(frozen=True)
class PeakMemory:
    """Memory of a pass.

    Args:
        extra: bytes at the peak beyond inputs, weights and their gradients.
        held: bytes of inputs, weights and their gradients.
    """

    extra: int
    held: int


def can_measure() -> bool:
    """True if this system reports the peak memory of a process and can reset it."""
    return Path("/proc/self/clear_refs").exists()


def layer_job(
    shape: LayerShape,
    batch: int,
    *,
    train: bool,
    routing: str = "fm",
    streaming: bool | str = "auto",
    path: str | None = None,
    **options: object,
) -> PeakJob:
    """Job that measures a capsule layer alone.

    Args:
        shape: sizes of the layer.
        batch: images in the batch.
        train: whether to measure a forward and backward pass, or a forward pass without gradients.
        routing: name of the routing.
        streaming: whether votes are streamed; ``"auto"`` lets the layer decide.
        path: path of the sums, a key of ``votes.kernels.choice.PATHS``; None for the one that is chosen anyway.
        options: options of the routing.
    """
    layer = {"shape": asdict(shape), "routing": routing, "streaming": streaming, "options": options}
    return {"layer": layer, "batch": batch, "train": train, "path": path}


def model_job(name: str, arguments: dict[str, object], batch: int, *, train: bool) -> PeakJob:
    """Job that measures a whole model.

    Args:
        name: name of a registered model.
        arguments: other arguments of :func:`paircaps.create_model`.
        batch: images in the batch.
        train: whether to measure a forward and backward pass, or a forward pass without gradients.
    """
    return {"model": name, "arguments": arguments, "batch": batch, "train": train}


def measure_peaks(jobs: Sequence[PeakJob]) -> list[PeakMemory]:
    """Measure jobs one after the other, in one other process."""
    command = [sys.executable, "-m", "paircaps.bench.peak_memory"]
    # a low threshold makes malloc return freed memory at once; otherwise blocks kept for later would count
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": str(128 << 10)}
    ran = subprocess.run(command, input=json.dumps(jobs), capture_output=True, text=True, check=False, env=environment)
    if ran.returncode:
        reason = (ran.stderr.strip().splitlines() or [f"exit code {ran.returncode}"])[-1]
        raise PaircapsError(f"the process that measures memory failed: {reason}")
    return [PeakMemory(**peak) for peak in json.loads(ran.stdout)]


# --- in the other process ---------------------------------------------------------------------------------------------


def _run(job: PeakJob) -> PeakMemory:
    """Measure one job in this process."""
    module, inputs, small = _build(job)
    prepare = training_pass if job["train"] else inference_pass
    path = job.get("path")
    prepare(*small, path)()  # warm-up: libraries allocate memory of their own on first use
    small[0].zero_grad()
    run = prepare(module, inputs, path)
    before = _resident()
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    run()
    gradients = _gradient_bytes(module, inputs)
    held = sum(part.nbytes for part in (*module.parameters(), *module.buffers(), inputs)) + gradients
    return PeakMemory(max(0, _resident("VmHWM") - before - gradients), held)


def _build(job: PeakJob) -> tuple[nn.Module, Tensor, tuple[nn.Module, Tensor]]:
    """Module to measure, its inputs, and a small module of the same kind with inputs, for the warm-up."""
    if "model" in job:
        arguments = job["arguments"]
        model = call_with_options(job["model"], create_model, {"name": job["model"]}, arguments)
        size = (arguments["in_channels"], *model.image_size)
        return model, torch.randn(job["batch"], *size), (model, torch.randn(2, *size))
    spec = job["layer"]
    shape = LayerShape(**spec["shape"])
    little = LayerShape(**{**spec["shape"], "in_capsules": 8})

    def build(shape: LayerShape) -> nn.Module:
        return shape.layer(spec["routing"], spec["streaming"], **spec["options"])

    return build(shape), shape.random_children(job["batch"]), (build(little), little.random_children(4))


def _gradient_bytes(module: nn.Module, inputs: Tensor) -> int:
    """Bytes of all gradients of weights and inputs."""
    parts = [*module.parameters(), inputs]
    return sum(part.grad.nbytes for part in parts if part.grad is not None)


def _resident(which: str = "VmRSS") -> int:
    """Resident memory of this process in bytes; its peak with ``"VmHWM"``."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(which + ":"):
            return 1024 * int(line.split()[1])
    raise PaircapsError(f"/proc/self/status has no {which}")


def _end_with(parent: int) -> None:
    """End this process when its parent has ended, since nobody would read the result."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


def main() -> None:
    """Measure the jobs on standard input and print their results."""
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    print(json.dumps([asdict(_run(job)) for job in json.load(sys.stdin)]))


if __name__ == "__main__":
    main()
