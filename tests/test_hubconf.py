"""torch.hub loads networks of the project from a checkout."""

from pathlib import Path

import pytest
import torch
from explain.small import small_network

import paircaps
from paircaps._utils.shipped import IN_PACKAGE, IN_REPOSITORY, VARIABLE, shipped_folders
from paircaps.model_files import save_model

ROOT = Path(__file__).parents[1]


def from_hub(name, *arguments, **options):
    return torch.hub.load(str(ROOT), name, *arguments, source="local", **options)


@pytest.fixture
def mine(tmp_path, monkeypatch):
    (tmp_path / "mine").mkdir()
    save_model(tmp_path / "mine", small_network(decoder="none"), {})
    monkeypatch.setenv(VARIABLE, str(tmp_path))


@pytest.mark.usefixtures("mine")
def test_a_network_and_a_model():
    network = from_hub("network", "mine")
    model = from_hub("create_model", "resnet-caps-small", pretrained="mine")
    images = torch.rand(2, 1, 28, 28)
    assert torch.equal(network(images).activation, model.eval()(images).activation)


def test_every_network_has_a_name():
    names = {name.replace("-", "_") for name in (*IN_PACKAGE, *IN_REPOSITORY)}
    source = (ROOT / "hubconf.py").read_text()
    assert all(f"\n{name} = _loader(" in source for name in names)


@pytest.mark.parametrize("name", sorted({*shipped_folders()} & {*IN_PACKAGE, *IN_REPOSITORY}))
def test_a_name_gives_its_network(name):
    assert from_hub(name.replace("-", "_")).origin == paircaps.load(name).origin


def test_one_that_is_not_here_is_told(monkeypatch):
    monkeypatch.setattr("paircaps._utils.shipped.shipped_folders", dict)
    with pytest.raises(paircaps.errors.ModelFileError, match="nothing"):
        from_hub("network", "nothing")
