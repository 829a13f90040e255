"""The C kernel on random sizes: a few of those that `python -m reference.kernel_fuzz` tries by the hundred."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from reference.kernel_fuzz import sanitizer
from votes.kernels.cases import runnable_levels

TESTS = Path(__file__).parents[2]


def fuzz(*words):
    paths = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "reference.kernel_fuzz", *words]
    return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=TESTS, check=False)


@pytest.mark.usefixtures("kernel")
def test_random_sizes_and_options():
    done = fuzz("40")
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"40 cases, {', '.join(runnable_levels())}: as they should be\n"


WORDS = {"address": "what is not the kernel's, or not yet written", "thread": "what another thread writes"}


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("kind", WORDS, ids=WORDS.get)
def test_the_kernel_touches_nothing_of(kind):
    if sanitizer(kind) is None:
        pytest.skip("gcc has no such sanitizer here")
    done = fuzz("10", "--sanitize", kind, "--level", runnable_levels()[-1])
    assert done.returncode == 0, done.stdout + done.stderr
    assert "as they should be" in done.stdout
