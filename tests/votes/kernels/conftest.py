import pytest
from votes.kernels.cases import runnable_levels

from paircaps.votes.kernels import native


@pytest.fixture
def compiled_for(monkeypatch):
    """Takes the C kernel that is compiled for some instructions; without a compiler such tests are skipped."""

    def take(level):
        monkeypatch.setattr(native, "instructions", lambda: level)
        if problem := native.library_problem():
            pytest.skip(f"no C kernel: {problem}")

    return take


@pytest.fixture(params=runnable_levels())
def level(request, compiled_for):
    """The C kernel, compiled for each kind of instructions in turn."""
    compiled_for(request.param)
    return request.param


@pytest.fixture
def kernel():
    """The C kernel as it is used here."""
    if problem := native.library_problem():
        pytest.skip(f"no C kernel: {problem}")
