"""Five hundred damaged files for every reader, 2,000 of model.json, each read or refused in words, within 96 MB."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from reference.fuzz import MUTATIONS, READERS

TESTS = Path(__file__).parents[2]


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is capped by Linux's means")
@pytest.mark.parametrize("reader", READERS)
def test_damaged_files_are_read_or_refused_in_words(reader):
    paths = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    count = MUTATIONS.get(reader, 500)
    words = [sys.executable, "-m", "reference.fuzz", reader, str(count)]
    result = subprocess.run(words, capture_output=True, text=True, env=environment, cwd=TESTS)
    assert result.returncode == 0, result.stderr[-3000:]
    good, refused = map(int, result.stdout.split())
    assert good + refused == count
    assert refused > 100
