"""Triton's kernels give what the tiles give: proved in Triton's interpreter, for no test has a graphics card."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from votes.kernels import interpreted

from paircaps.votes.kernels import triton_sums
from paircaps.votes.kernels.triton_sums import Plan, triton_refusal
from paircaps.votes.layout import Layout

NAMES = [name for name, *_ in interpreted.cases()]


@pytest.fixture(scope="module")
def found():
    """Errors of every case, from a process in which Triton interprets."""
    pytest.importorskip("triton", reason="triton is for Linux")
    tests = Path(__file__).parents[2]
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(tests), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "votes.kernels.interpreted"]
    process = subprocess.run(command, env=environment, cwd=tests, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout)


@pytest.mark.parametrize("name", NAMES)
def test_its_rounding_error_is_at_most_twice_that_of_the_tiles(found, name):
    for part, (ours, theirs) in found[name].items():
        assert ours <= 2 * theirs + (1e-4 if part == "softness" else 5e-7), part  # one sum of values that cancel


def test_the_gradient_of_one_child_cancels_exactly(found):
    assert found["one child"] == [0, 0]


# --- what it refuses --------------------------------------------------------------------------------------------------


def test_without_a_graphics_card_it_says_so():
    assert triton_refusal(interpreted.job("vector")) == "Triton's kernels are for CUDA, and the capsules are on cpu"


@pytest.fixture
def interpreting(monkeypatch):
    """As if Triton were there and interpreted, which needs no card."""
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setattr(triton_sums, "_installed", lambda: True)


def test_without_triton_it_says_so(interpreting, monkeypatch):
    monkeypatch.setattr(triton_sums, "_installed", lambda: False)
    assert triton_refusal(interpreted.job("vector")) == "Triton is not installed: pip install triton"


def test_other_precisions_and_sizes_are_refused_in_words(interpreting, monkeypatch):
    fine = interpreted.job("vector")
    assert triton_refusal(fine) is None
    double = fine.with_tensors([None if part is None else part.double() for part in fine.tensors])
    assert triton_refusal(double) == "Triton's kernels compute in float32, and there is float64"
    monkeypatch.setitem(interpreted.ROWS, "wide", (1, 8, 65))
    assert triton_refusal(interpreted.job("wide")) == (
        "votes of 65 dimensions do not fit the registers of a card; those of 64 do"
    )
    assert triton_refusal(interpreted.job("vector", batch=0)) == "there is nothing to add up"
    shared = fine._replace(u=torch.zeros(5, 8, 8))
    assert triton_refusal(shared) == "children that share weights go to the kernels position by position"
    large = fine._replace(u=torch.empty(9, 2**25, 8, device="meta"), weight=torch.empty(2**25, 1, 8, 16, device="meta"))
    assert "a tensor of 4,294,967,296 values is more than" in triton_refusal(large)


# --- how the work is divided ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch", [1, 128, 4096])
@pytest.mark.parametrize("children", [1, 97, 2048])
@pytest.mark.parametrize("parents", [1, 32])
def test_every_child_parent_and_image_is_in_one_range(batch, children, parents):
    plan = Plan(Layout(batch, children, parents, 1, 8, 16))
    assert (plan.child_ranges - 1) * plan.child_step < children <= plan.child_ranges * plan.child_step
    assert (plan.parent_ranges - 1) * plan.parent_step < parents <= plan.parent_ranges * plan.parent_step
    blocks = -(-batch // plan.gradients_block)
    assert (plan.image_ranges - 1) * plan.image_step < blocks <= plan.image_ranges * plan.image_step


def test_scratch_memory_is_a_small_share_of_the_votes():
    for batch, children in ((128, 2048), (128, 65_536), (4096, 2048)):
        layout = Layout(batch, children, 10, 1, 8, 16)
        assert 4 * Plan(layout).largest <= layout.votes_bytes / 8


def test_a_large_layer_keeps_a_card_busy():
    plan = Plan(Layout(128, 2048, 10, 1, 8, 16))
    assert min(plan.sums_programs, plan.gradients_programs) >= triton_sums.PROGRAMS
