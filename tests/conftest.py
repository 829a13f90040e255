import os
import shutil

import pytest
import torch
from forks import Forks

from paircaps.data import registry
from paircaps.votes.kernels import choice
from paircaps.votes.kernels.native import library_problem
from paircaps.votes.kernels.native_build import cache_folders

# Tests whose commands have a cache of their own share the compiled kernel: it takes seven seconds to build.
os.environ.setdefault("PAIRCAPS_CACHE", str(cache_folders()[0]))


@pytest.fixture(autouse=True)
def _seeded():
    """Every test draws the same numbers, alone or among others."""
    torch.manual_seed(0)


@pytest.fixture
def registered_for_one_test(monkeypatch):
    """Datasets that a test registers are forgotten after it."""
    monkeypatch.setattr(registry, "_METADATA", dict(registry._METADATA))
    monkeypatch.setattr(registry._DATASETS, "_factories", dict(registry._DATASETS._factories))


@pytest.fixture
def fresh_compiler():
    """torch.compile keeps eight versions of a function, and every model shares one forward."""
    torch.compiler.reset()
    yield
    torch.compiler.reset()


@pytest.fixture(params=["c", "tiles"])
def path(request):
    """Each path of the sums of votes in turn; without a compiler, the tests of the C kernel are skipped."""
    if request.param == "c" and (problem := library_problem()):
        pytest.skip(f"no C kernel: {problem}")
    with choice.only(request.param):
        yield request.param


@pytest.fixture(scope="session")
def forks(tmp_path_factory):
    """Runs code in processes of its own."""
    forks = Forks(tmp_path_factory.mktemp("forks"))
    yield forks
    forks.close()


@pytest.fixture(scope="module")
def browser():
    """Headless Chromium; tests of pages are skipped where there is none."""
    names = ("chromium", "chromium-browser", "google-chrome")
    chromium = next((found for name in names if (found := shutil.which(name))), None)
    if chromium is None:
        pytest.skip("no Chromium on this machine: tests of pages need one")
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        arguments = ["--no-sandbox"] if os.getuid() == 0 else []  # Chromium wants it so for root
        browser = playwright.chromium.launch(executable_path=chromium, args=arguments)
        yield browser
        browser.close()
