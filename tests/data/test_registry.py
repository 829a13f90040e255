"""From a name, a path or an object to a dataset, and from a name to its metadata."""

from pathlib import Path

import pytest
import torch

from paircaps.data import (
    DataError,
    Info,
    Metadata,
    StoredDataset,
    dataset_metadata,
    list_datasets,
    load_dataset,
    register_dataset,
    registry,
)
from paircaps.data.registry import all_metadata, folder_path, offline_options, require_metadata, source_metadata


def zeros(split="train", root=None, length=3):
    images = torch.zeros(length, 1, 4, 4, dtype=torch.uint8)
    return StoredDataset(Info("zeros", split, ("a", "b", "c")), images, torch.arange(length) % 3)


ZEROS = Metadata("zeros", "black images", {"train": 3}, (1, 4, 4), ("a", "b", "c"))


@pytest.mark.usefixtures("registered_for_one_test")
def test_a_dataset_can_be_registered():
    register_dataset("test-only", lambda split, root, length=3: zeros(split, root, length))
    assert "test-only" in list_datasets()
    assert len(load_dataset("test-only", length=5)) == 5
    assert dataset_metadata("test-only") is None
    with pytest.raises(DataError, match=f"dataset 'test-only', registered by {__name__}, has no metadata"):
        require_metadata("test-only")


@pytest.mark.usefixtures("registered_for_one_test")
def test_a_dataset_can_be_registered_with_its_metadata():
    register_dataset("zeros", zeros, ZEROS)
    assert dataset_metadata("zeros") is require_metadata("zeros") is ZEROS
    assert all_metadata()[-1] is ZEROS
    assert source_metadata(ZEROS) is ZEROS
    with pytest.raises(ValueError, match="dataset 'ones' was given the metadata of 'zeros'"):
        register_dataset("ones", zeros, ZEROS)
    assert "ones" not in list_datasets()
    with pytest.raises(ValueError, match="dataset 'mnist' is already registered"):
        register_dataset("mnist", zeros)


def test_every_dataset_but_folders_has_metadata():
    assert {metadata.name for metadata in all_metadata()} == set(list_datasets()) - {"folder"}
    assert source_metadata(require_metadata("multi-mnist")) is require_metadata("mnist")
    assert source_metadata(require_metadata("multi-glyphs")) is require_metadata("glyphs")
    assert dataset_metadata("./pets") is None
    with pytest.raises(DataError, match=r"unknown dataset 'mnits'; did you mean 'mnist'\?"):
        require_metadata("mnits")


def test_a_folder_is_told_from_a_name_in_one_place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("pets", "glyphs"):
        (tmp_path / name).mkdir()
    assert folder_path("./pets") == folder_path(Path("pets")) == folder_path("pets", bare=True) == Path("pets")
    assert folder_path("~/pets") == Path.home() / "pets"
    assert folder_path("pets") is None  # a recipe's name does not change its meaning with the folders around it
    assert folder_path("glyphs", bare=True) is None  # a dataset comes before a folder of its name
    assert folder_path("no-such", bare=True) is None
    assert folder_path("", bare=True) is None


def test_objects_are_datasets_too():
    images = zeros()
    assert load_dataset(images) is images
    pairs = torch.utils.data.TensorDataset(torch.rand(4, 3, 8, 8), torch.tensor([0, 1, 1, 0]))
    wrapped = load_dataset(pairs, "test", classes=["cat", "dog"])
    assert (wrapped.info, wrapped.shape) == (Info("TensorDataset", "test", ("cat", "dog")), (3, 8, 8))
    with pytest.raises(TypeError, match="takes no options, got length"):
        load_dataset(images, length=3)
    with pytest.raises(TypeError, match="has no root"):
        load_dataset(images, root=".")
    with pytest.raises(TypeError, match="a dataset to wrap has no option 'colour'; it takes classes"):
        load_dataset(pairs, colour=1)
    with pytest.raises(TypeError, match="a dataset is named by a string, got 5"):
        load_dataset(5)


@pytest.mark.usefixtures("registered_for_one_test")
def test_only_datasets_that_download_are_kept_from_it():
    register_dataset("zeros", zeros, ZEROS)
    assert offline_options("mnist") == offline_options("multi-mnist") == {"download": False}
    assert [offline_options(name) for name in ("zeros", "folder", "./pets", "unknown")] == [{}] * 4


@pytest.mark.usefixtures("registered_for_one_test")
def test_metadata_of_a_plug_in_is_known_before_its_name_is_asked_for(monkeypatch):
    def load_plugins():
        if "zeros" not in registry._METADATA:
            register_dataset("zeros", zeros, ZEROS)

    monkeypatch.setattr("paircaps._utils.registry.load_installed_plugins", load_plugins)
    assert all_metadata()[-1] is ZEROS


@pytest.mark.usefixtures("registered_for_one_test")
def test_metadata_of_a_plug_in_is_found_by_its_name(monkeypatch):
    def load_plugins():
        if "zeros" not in registry._METADATA:
            register_dataset("zeros", zeros, ZEROS)

    monkeypatch.setattr("paircaps._utils.registry.load_installed_plugins", load_plugins)
    assert dataset_metadata("zeros") is ZEROS
