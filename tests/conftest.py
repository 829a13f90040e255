import pytest
import torch


@pytest.fixture(autouse=True)
def _seeded():
    """Every test draws the same numbers, alone or among others."""
    torch.manual_seed(0)
