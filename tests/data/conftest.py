import os
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest

from paircaps.data.errors import DataError
from paircaps.data.files.locate import VARIABLE
from paircaps.data.registry import load_dataset

# what CI points at real files, before the tests below are kept from them
REAL = os.environ.get(VARIABLE)


@pytest.fixture(autouse=True)
def _own_folders(monkeypatch, tmp_path_factory):
    """No test sees, or writes to, the data folders of whoever runs it."""
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture
def real(monkeypatch):
    """Load published files where they are; skip where they are not."""
    if not REAL:
        pytest.skip(f"${VARIABLE} names no folder with the published files")
    monkeypatch.setenv(VARIABLE, REAL)

    def load(name, split, **options):
        try:
            return load_dataset(name, split, download=False, **options)
        except DataError as error:
            if "not found" not in str(error):
                raise
            pytest.skip(str(error))

    return load


@pytest.fixture
def without_rights(tmp_path):
    """A context in which one is a user without rights, for root may read and write everything."""
    temporary = Path(tempfile.gettempdir()).resolve()
    for folder in (tmp_path, *tmp_path.parents):  # pytest's own folders are its user's alone
        if temporary not in folder.parents:
            break
        folder.chmod(0o755)

    @contextmanager
    def act():
        if os.geteuid() != 0:
            yield
            return
        os.seteuid(65534)
        try:
            yield
        finally:
            os.seteuid(0)

    return act
