import pytest

from paircaps.data.files.locate import VARIABLE


@pytest.fixture
def no_data(tmp_path_factory, monkeypatch):
    """A machine without any downloaded dataset."""
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
