"""Images that a network knows: its own, if they are here, and never a download."""

import pytest
import torch
from explain.small import saved, small_network

from paircaps.data import load_dataset
from paircaps.data.files import download
from paircaps.explain.sample_images import balanced_indices, load_sample_images, load_upright_images
from paircaps.explain.warps import warp_randomly
from paircaps.training.run_folder import RunFolder

RECIPE = """
[model]
name = "resnet-caps-small"
[data]
name = "{name}"
[train]
steps = 1
"""


@pytest.fixture(autouse=True)
def nowhere(monkeypatch, tmp_path):
    monkeypatch.setenv("PAIRCAPS_DATA", str(tmp_path / "nothing"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def refuse(*arguments, **options):
        raise AssertionError("a download was tried")

    monkeypatch.setattr(download, "fetch", refuse)


def run(tmp_path, network, name=None):
    folder = saved(tmp_path / "run", network)
    if name:
        RunFolder(folder).config.write_text(RECIPE.format(name=name))
    return folder


def test_images_of_the_run_itself(tmp_path):
    found = load_sample_images(small_network(size=40), run(tmp_path, small_network(size=40), "affine-glyphs"), 30)
    images = found.images
    assert (found.source, found.own) == ("affine-glyphs", True)
    own = {bytes(image.numpy()) for image in load_dataset("affine-glyphs", "test").batch(torch.arange(2000)).images}
    assert images.shape == (30, 1, 40, 40)
    assert all(bytes(image.numpy()) in own for image in images)


@pytest.mark.parametrize("name", [None, "mnist", "cifar10", "/no/such/folder"])
def test_glyphs_where_those_are_not_to_be_had(tmp_path, name):
    network = small_network(size=32, channels=3)
    found = load_sample_images(network, run(tmp_path, network, name), 50)
    images = found.images
    assert (found.source, found.own) == ("glyphs", False)
    assert images.shape == (50, 3, 32, 32)
    assert images.dtype == torch.uint8
    assert images.float().std() > 20
    assert network(images).activation.shape == (50, 10)


def test_a_damaged_recipe_does_not_matter(tmp_path):
    folder = run(tmp_path, small_network())
    RunFolder(folder).config.write_text("no [ TOML")
    assert load_sample_images(small_network(), folder, 5).images.shape == (5, 1, 28, 28)


def test_a_few_of_each_class_come_in_turn():
    dataset = load_dataset("affine-glyphs", "test").limit(200)
    chosen = balanced_indices(dataset, 25)
    labels = dataset.labels[torch.tensor(chosen)].tolist()
    assert labels[:20] == list(range(10)) * 2
    assert len(set(chosen)) == 25
    assert chosen[0] == int((dataset.labels == 0).nonzero()[0])


def test_images_to_warp_are_the_upright_digits_of_the_run(tmp_path):
    network = small_network(size=40)
    found = load_upright_images(network, run(tmp_path, network, "affine-glyphs"), 30)
    digits = {bytes(image.numpy()) for image in load_dataset("affine-glyphs", "test").base.digits.images}
    assert (len(found), found.size) == (30, (40, 40))
    assert all(bytes(image.numpy()) in digits for image in found.images)


def test_images_to_warp_are_glyphs_where_those_are_not_to_be_had(tmp_path):
    network = small_network(size=32, channels=3)
    found = load_upright_images(network, run(tmp_path, network, "mnist"), 30)
    assert found.images.shape[:2] == (30, 3)
    assert network(warp_randomly(found, 5, 0, "test").images).activation.shape == (5, 10)


def test_there_is_nothing_to_warp_for_other_classes_than_digits(tmp_path):
    network = small_network(classes=("cat", "dog", "ship"))
    assert load_upright_images(network, run(tmp_path, network), 30) is None
