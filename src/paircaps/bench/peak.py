"""Peak memory of a forward pass, or of one forward and backward, in a process of its own.

Run as ``python -m paircaps.bench.peak`` with a JSON list of jobs on standard input, it prints a list of their bytes.
The kernel keeps a process's highest resident size and can be told to forget it: what was there before does not count.
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
from paircaps.bench.shapes import LayerShape, inference, training
from paircaps.errors import PaircapsError
from paircaps.models import create_model

PeakJob = dict[str, Any]
"""What to measure, as JSON."""


@dataclass(frozen=True)
class Peak:
    """Bytes of a pass.

    Args:
        extra: at its height, beyond inputs, weights and what gradients they end up with.
        held: inputs, weights and their gradients.
    """

    extra: int
    held: int


def can_measure() -> bool:
    """Whether this system tells a process's peak."""
    return Path("/proc/self/clear_refs").exists()


def layer_job(
    shape: LayerShape,
    batch: int,
    *,
    train: bool,
    routing: str = "fm",
    streaming: bool | str = "auto",
    **options: object,
) -> PeakJob:
    """To measure a capsule layer alone."""
    layer = {"shape": asdict(shape), "routing": routing, "streaming": streaming, "options": options}
    return {"layer": layer, "batch": batch, "train": train}


def model_job(name: str, arguments: dict[str, object], batch: int, *, train: bool) -> PeakJob:
    """To measure a whole model; ``arguments`` are those of :func:`paircaps.create_model`."""
    return {"model": name, "arguments": arguments, "batch": batch, "train": train}


def measure_peaks(jobs: Sequence[PeakJob]) -> list[Peak]:
    """Measure one after the other, in one other process."""
    words = [sys.executable, "-m", "paircaps.bench.peak"]
    # memory that is freed goes back at once, and is not kept for the next tensor of another size
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": str(128 << 10)}
    ran = subprocess.run(words, input=json.dumps(jobs), capture_output=True, text=True, check=False, env=environment)
    if ran.returncode:
        reason = (ran.stderr.strip().splitlines() or [f"exit code {ran.returncode}"])[-1]
        raise PaircapsError(f"the process that measures memory failed: {reason}")
    return [Peak(**peak) for peak in json.loads(ran.stdout)]


# --- in the other process ---------------------------------------------------------------------------------------------


def _run(job: PeakJob) -> Peak:
    module, inputs, small = _build(job)
    prepare = training if job["train"] else inference
    prepare(*small)()  # libraries take room of their own, once
    small[0].zero_grad()
    run = prepare(module, inputs)
    before = _resident()
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    run()
    gradients = _gradient_bytes(module, inputs)
    held = sum(part.nbytes for part in (*module.parameters(), *module.buffers(), inputs)) + gradients
    return Peak(max(0, _resident("VmHWM") - before - gradients), held)


def _build(job: PeakJob) -> tuple[nn.Module, Tensor, tuple[nn.Module, Tensor]]:
    """What is measured, its inputs, and a small one of the same kind."""
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

    return build(shape), shape.children(job["batch"]), (build(little), little.children(4))


def _gradient_bytes(module: nn.Module, inputs: Tensor) -> int:
    parts = [*module.parameters(), inputs]
    return sum(part.grad.nbytes for part in parts if part.grad is not None)


def _resident(which: str = "VmRSS") -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(which + ":"):
            return 1024 * int(line.split()[1])
    raise PaircapsError(f"/proc/self/status has no {which}")


def _end_with(parent: int) -> None:
    """End when the process that asked is gone: nobody would read the answer."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


def main() -> None:
    """Measure what standard input asks for."""
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    print(json.dumps([asdict(_run(job)) for job in json.load(sys.stdin)]))


if __name__ == "__main__":
    main()
