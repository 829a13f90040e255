import pytest
from training.subprocesses import Subprocesses


@pytest.fixture(scope="session")
def subprocesses(tmp_path_factory):
    """A process that runs commands without loading torch each time."""
    subprocesses = Subprocesses(tmp_path_factory.mktemp("subprocesses"))
    yield subprocesses
    subprocesses.close()
