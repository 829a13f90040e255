import pytest
import torch


@pytest.fixture(autouse=True)
def _seeded():
    """Every test draws the same numbers, alone or among others."""
    torch.manual_seed(0)


@pytest.fixture
def fresh_compiler():
    """torch.compile keeps eight versions of a function, and every model shares one forward."""
    torch.compiler.reset()
    yield
    torch.compiler.reset()
