import pytest
from training.nursery import Nursery


@pytest.fixture(scope="session")
def nursery(tmp_path_factory):
    """A process that runs commands without loading torch each time."""
    nursery = Nursery(tmp_path_factory.mktemp("nursery"))
    yield nursery
    nursery.close()
