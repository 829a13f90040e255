"""The six published datasets: the real files where they are here, small files in the real format everywhere."""

import dataclasses
import gzip
import hashlib
import zipfile

import numpy as np
import pytest
import torch
from reference.formats import (
    affnist_bytes,
    cifar_bytes,
    mat_bytes,
    svhn_bytes,
    tar_bytes,
    write,
    write_mnist,
    write_smallnorb,
    zip_bytes,
)

from paircaps.data import DataError, load_dataset
from paircaps.data.registry import require_metadata
from paircaps.data.sources import affnist, svhn
from paircaps.data.sources.cifar10 import CIFAR10
from paircaps.data.sources.smallnorb import resized


def random_images(*shape):
    return np.random.default_rng(1).integers(256, size=shape, dtype=np.uint8)


MNIST_COUNTS = {
    "train": [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949],
    "test": [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009],
}


@pytest.mark.parametrize("split", ["train", "test"])
def test_mnist_whole(real, split):
    dataset = real("mnist", split)
    assert dataset.images.shape == (require_metadata("mnist").counts[split], 1, 28, 28)
    assert dataset.class_counts().tolist() == MNIST_COUNTS[split]
    first = {"train": ([5, 0, 4, 1, 9], [18, 18, 126, 136, 175]), "test": ([7, 2, 1, 0, 4], [84, 185, 159, 151, 60])}
    labels, pixels = first[split]
    assert dataset.labels[:5].tolist() == labels
    row, left = {"train": (5, 14), "test": (7, 6)}[split]
    assert dataset.images[0, 0, row, left : left + 5].tolist() == pixels


@pytest.mark.parametrize("split", ["train", "test"])
def test_fashion_mnist_whole(real, split):
    dataset = real("fashion-mnist", split)
    count = require_metadata("fashion-mnist").counts[split]
    assert dataset.images.shape == (count, 1, 28, 28)
    assert dataset.class_counts().tolist() == [count // 10] * 10
    assert dataset.labels[:5].tolist() == {"train": [9, 0, 0, 3, 0], "test": [9, 2, 1, 1, 6]}[split]
    assert dataset.classes[9] == "ankle boot"
    if split == "train":
        assert dataset.images[0, 0, 3, 12:21].tolist() == [1, 0, 0, 13, 73, 0, 0, 1, 4]


@pytest.mark.parametrize("split", ["train", "test"])
def test_cifar10_whole(real, split):
    dataset = real("cifar10", split)
    count = CIFAR10.counts[split]
    assert dataset.images.shape == (count, 3, 32, 32)
    assert dataset.class_counts().tolist() == [count // 10] * 10
    assert dataset.labels[:5].tolist() == {"train": [6, 9, 9, 4, 1], "test": [3, 8, 8, 0, 6]}[split]
    assert dataset.images[0, :, 0, 0].tolist() == {"train": [59, 62, 63], "test": [158, 112, 49]}[split]


SVHN_COUNTS = {
    "train": [4948, 13861, 10585, 8497, 7458, 6882, 5727, 5595, 5045, 4659],
    "test": [1744, 5099, 4149, 2882, 2523, 2384, 1977, 2019, 1660, 1595],
}


@pytest.mark.parametrize("split", ["train", "test"])
def test_svhn_whole(real, split):
    dataset = real("svhn", split, verify=False)  # also where its crops were made anew from the full numbers
    assert dataset.images.shape == (require_metadata("svhn").counts[split], 3, 32, 32)
    assert dataset.class_counts().tolist() == SVHN_COUNTS[split]
    assert dataset.labels[:5].tolist() == {"train": [1, 9, 2, 3, 2], "test": [5, 2, 1, 0, 6]}[split]
    assert dataset.info.note.endswith("files not compared with the published ones")


def test_a_house_number_file_says_what_it_is(tmp_path):
    # digits cropped anew from the full numbers come in the official layout; every result with them has to say so
    content = svhn_bytes(np.zeros((2, 3, 32, 32), np.uint8), np.array([1, 2]))
    text = b"MATLAB 5.0 MAT-file, SVHN re-cropped".ljust(116)
    write(tmp_path / "svhn" / "test_32x32.mat", text + content[116:])
    dataset = load_dataset("svhn", "test", tmp_path, download=False, verify=False)
    assert dataset.info.note == "SVHN re-cropped; files not compared with the published ones"


def test_the_official_cifar_tar_is_read_too(real, tmp_path, monkeypatch):
    """The tar, packed anew from the real batches, gives the very same images."""
    loose = real("cifar10", "test")
    content = cifar_bytes(loose.images.numpy(), loose.labels.numpy())
    write(tmp_path / "cifar10" / "cifar-10-binary.tar.gz", tar_bytes({"cifar-10-batches-bin/test_batch.bin": content}))
    monkeypatch.delenv("PAIRCAPS_DATA")
    packed = load_dataset("cifar10", "test", tmp_path, download=False)
    assert torch.equal(packed.images, loose.images)
    assert torch.equal(packed.labels, loose.labels)


def test_a_regzipped_fashion_mnist_is_known_by_its_content(real, tmp_path, monkeypatch):
    """Debian's package compresses the files anew, so their own checksums differ; the content's do not."""
    from paircaps.data.files.locate import find

    paths = find(require_metadata("fashion-mnist"), "test")
    if paths is None:
        pytest.skip("Fashion-MNIST is not here")
    for path in paths:
        write(tmp_path / "fashion-mnist" / path.name, gzip.decompress(path.read_bytes()), gz=True)
    monkeypatch.delenv("PAIRCAPS_DATA")
    assert len(load_dataset("fashion-mnist", "test", tmp_path, download=False)) == 10_000


def test_one_flipped_bit_in_a_real_file_is_noticed(real, tmp_path, monkeypatch):
    from paircaps.data.files.locate import find

    paths = find(require_metadata("mnist"), "test")
    if paths is None:
        pytest.skip("MNIST is not here")
    contents = {path.name.removesuffix(".gz"): bytearray(gzip.decompress(path.read_bytes())) for path in paths}
    contents["t10k-images-idx3-ubyte"][5_000_000] ^= 4
    for name, content in contents.items():
        write(tmp_path / "mnist" / name, bytes(content))
    monkeypatch.delenv("PAIRCAPS_DATA")
    with pytest.raises(
        DataError, match=r"t10k-images-idx3-ubyte: damaged, or not the published file: 7,840,016 bytes with md5"
    ):
        load_dataset("mnist", "test", tmp_path, download=False)
    assert len(load_dataset("mnist", "test", tmp_path, download=False, verify=False)) == 10_000


@pytest.mark.parametrize("gz", [True, False])
@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
def test_small_idx_files(tmp_path, name, gz):
    images, labels = write_mnist(tmp_path / name, 30, "test", gz)
    dataset = load_dataset(name, "test", tmp_path, verify=False)
    assert dataset.images.dtype == torch.uint8
    assert torch.equal(dataset.images[:, 0], torch.tensor(images))
    assert dataset.labels.tolist() == labels.tolist()


def test_images_and_labels_must_be_as_many(tmp_path):
    write_mnist(tmp_path, 30)
    labels = (tmp_path / "train-labels-idx1-ubyte.gz").read_bytes()
    write_mnist(tmp_path, 20)
    (tmp_path / "train-labels-idx1-ubyte.gz").write_bytes(labels)
    with pytest.raises(DataError, match="mnist train: 20 images but 30 labels"):
        load_dataset("mnist", "train", tmp_path, verify=False)


def test_small_svhn(tmp_path):
    images, labels = random_images(12, 3, 32, 32), np.arange(12) % 10
    for split, more in (("train", 0), ("extra", 1)):
        write(tmp_path / "svhn" / f"{split}_32x32.mat", svhn_bytes(images + more, labels))
    dataset = load_dataset("svhn", "train", tmp_path, verify=False)
    assert torch.equal(dataset.images, torch.tensor(images))
    assert dataset.labels.tolist() == labels.tolist()  # MATLAB's 10 is the digit 0
    both = load_dataset("svhn", "train", tmp_path, verify=False, extra=True)
    assert len(both) == 24
    assert torch.equal(both.images[12:], torch.tensor(images + 1))
    with pytest.raises(ValueError, match="added to the train split"):
        load_dataset("svhn", "test", tmp_path, extra=True)


def test_svhn_of_another_shape_or_label_is_refused(tmp_path):
    images = random_images(4, 3, 32, 32).transpose(2, 3, 1, 0)
    labels = np.ones((4, 1), np.uint8)
    for x, y, message in (
        (images[:16], labels, r"X is \(16, 32, 3, 4\) of uint8"),
        (images.astype(np.float64) / 2, labels, "of float64"),
        (images, labels * 11, "labels must be 1 to 10, got 11"),
        (images, labels[:2], "4 images but 2 labels"),
    ):
        write(tmp_path / "test_32x32.mat", mat_bytes({"X": x, "y": y}))
        with pytest.raises(DataError, match=message):
            load_dataset("svhn", "test", tmp_path, verify=False)


def test_small_smallnorb_as_images(tmp_path):
    pixels, categories, facts = write_smallnorb(tmp_path / "smallnorb")
    dataset = load_dataset("smallnorb", "train", tmp_path, verify=False)
    assert dataset.images.shape == (12, 1, 96, 96)
    assert torch.equal(dataset.images[3, 0], torch.tensor(pixels[1, 1]))
    assert dataset.labels.tolist() == np.repeat(categories, 2).tolist()
    assert dataset.camera.tolist() == [0, 1] * 6
    for column, name in enumerate(("instance", "elevation", "azimuth", "lighting")):
        assert dataset.extras[name].tolist() == np.repeat(facts[:, column], 2).tolist()
    assert dataset.elevation is not None


def test_small_smallnorb_as_channels_and_smaller(tmp_path):
    pixels, categories, _ = write_smallnorb(tmp_path, split="test")
    dataset = load_dataset("smallnorb", "test", tmp_path, verify=False, stereo="channels", image_size=48)
    assert dataset.images.shape == (6, 2, 48, 48)
    assert dataset.labels.tolist() == categories.tolist()
    means = pixels.reshape(6, 2, 48, 2, 48, 2).mean((3, 5))
    assert np.abs(dataset.images.numpy() - means).max() <= 0.5
    with pytest.raises(ValueError, match="stereo must be one of 'images', 'channels', got 'both'"):
        load_dataset("smallnorb", "test", tmp_path, stereo="both")


def test_smallnorb_files_must_belong_together(tmp_path):
    write_smallnorb(tmp_path, pairs=6)
    whole = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    write_smallnorb(tmp_path, pairs=5)
    name = next(name for name in whole if "cat" in name)
    (tmp_path / name).write_bytes(whole[name])
    with pytest.raises(DataError, match=r"do not belong together: \(5, 2, 96, 96\), \(6,\), \(5, 4\)"):
        load_dataset("smallnorb", "train", tmp_path, verify=False)


def test_small_affnist_in_its_zip_and_without(tmp_path):
    images, labels = random_images(7, 40, 40), np.arange(7)
    path = write(tmp_path / "affnist" / "test.mat.zip", affnist_bytes(images, labels))
    dataset = load_dataset("affnist", "test", tmp_path, verify=False)
    assert torch.equal(dataset.images[:, 0], torch.tensor(images))
    assert dataset.labels.tolist() == labels.tolist()
    with zipfile.ZipFile(path) as archive:
        (path.parent / "test.mat").write_bytes(archive.read("test.mat"))
    path.unlink()
    assert torch.equal(load_dataset("affnist", "test", tmp_path, verify=False).images, dataset.images)


def test_the_first_checksum_of_affnist_is_recorded_and_held_to(tmp_path):
    images, labels = random_images(7, 40, 40), np.arange(7)
    path = write(tmp_path / "affnist" / "test.mat.zip", affnist_bytes(images, labels))
    with pytest.warns(UserWarning, match=r"no checksum of test.mat.zip is published: recorded its md5"):
        load_dataset("affnist", "test", tmp_path)
    load_dataset("affnist", "test", tmp_path)
    write(path, affnist_bytes(images, labels[::-1]))
    with pytest.raises(DataError, match=r"but was .* when first seen here"):
        load_dataset("affnist", "test", tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (zip_bytes({"a.txt": b"x"}), "holds 0 .mat files"),
        (zip_bytes({"a.mat": b"x", "b.mat": b"y"}), "holds 2 .mat files"),
        (zip_bytes({"a.mat": mat_bytes({"other": np.eye(2)})}), "no array affNISTdata.image"),
        (zip_bytes({"a.mat": mat_bytes({"affNISTdata": {"image": np.eye(2), "label_int": np.eye(2)}})}), "image is"),
        (b"PK\x03\x04" + bytes(100), "not a readable zip"),
        (affnist_bytes(np.zeros((2, 40, 40)), [3, 9]).replace(b"test.mat", b"test.txt"), "holds 0 .mat files"),
        (zip_bytes({"a.mat": b"x" * 999}, zipfile.ZIP_LZMA), "a.mat is packed by an unusual method"),
    ],
)
def test_affnist_of_another_kind_is_refused(tmp_path, content, message):
    write(tmp_path / "test.mat.zip", content)
    with pytest.raises(DataError, match=message):
        load_dataset("affnist", "test", tmp_path, verify=False)


def test_small_cifar_from_bins_and_tar(tmp_path):
    names = [file.name for file in CIFAR10.files["train"][0]]
    contents = {name: cifar_bytes(random_images(3, 3, 32, 32) + k, [k, 1, 2]) for k, name in enumerate(names)}
    for name, content in contents.items():
        write(tmp_path / "a" / "cifar-10-batches-bin" / name, content)
    write(tmp_path / "b" / "cifar-10-binary.tar.gz", tar_bytes({f"x/{k}": v for k, v in contents.items()}))
    loose, packed = (load_dataset("cifar10", "train", tmp_path / folder, verify=False) for folder in "ab")
    assert loose.labels.tolist() == [0, 1, 2, 1, 1, 2, 2, 1, 2, 3, 1, 2, 4, 1, 2]
    assert torch.equal(loose.images, packed.images)
    with pytest.raises(DataError, match=r"data_batch_1.bin: damaged, or not the published file"):
        load_dataset("cifar10", "train", tmp_path / "a")


@pytest.mark.parametrize("name", ["mnist", "cifar10", "svhn", "smallnorb", "affnist"])
def test_a_split_that_is_not_there_is_named(name):
    with pytest.raises(ValueError, match=f"split of {name} must be .*'test'.*, got 'valid'"):
        load_dataset(name, "valid")


def test_resizing_up_and_down():
    images = torch.arange(16, dtype=torch.uint8).reshape(1, 1, 4, 4)
    assert resized(images, (2, 2)).flatten().tolist() == [2, 4, 10, 12]  # 2.5 and 4.5 go to the even one
    assert resized(images, (8, 6)).shape == (1, 1, 8, 6)


@pytest.mark.parametrize("label", [10.0, -1.0, 2.5, float("nan")])
def test_affnist_labels_are_digits(tmp_path, label):
    fields = {"image": np.zeros((1600, 2), np.uint8), "label_int": np.array([[1.0, label]])}
    write(tmp_path / "test.mat.zip", zip_bytes({"test.mat": mat_bytes({"affNISTdata": fields})}))
    with pytest.raises(DataError, match="labels must be 0 to 9, got"):
        load_dataset("affnist", "test", tmp_path, verify=False)


def test_a_bomb_in_place_of_svhn_is_refused_at_its_header(tmp_path, monkeypatch):
    """Fifty times as many images as are published, all black, in a file of two megabytes."""
    images = np.zeros((32, 32, 3, 500_000), np.uint8)
    bomb = write(tmp_path / "test_32x32.mat", mat_bytes({"X": images, "y": np.ones((500_000, 1), np.uint8)}))
    with pytest.raises(DataError, match="damaged, or not the published file: 1,493,666 bytes with md5"):
        load_dataset("svhn", "test", tmp_path)
    # had it the right checksum, its header would be held to the published size
    (file,) = svhn.SVHN.files["test"][0]
    right = dataclasses.replace(file, md5=hashlib.md5(bomb.read_bytes()).hexdigest())
    monkeypatch.setattr(svhn, "SVHN", dataclasses.replace(svhn.SVHN, files={"test": ((right,),)}))
    with pytest.raises(DataError, match=r"X claims 1,536,000,000 bytes, 79,970,304 at most"):
        load_dataset("svhn", "test", tmp_path)


def fail(*_, **__):
    raise AssertionError("parsed before its checksum was compared")


@pytest.mark.parametrize(
    ("name", "parser", "files"),
    [
        ("mnist", "mnist.read_idx", {"t10k-images-idx3-ubyte.gz": b"x", "t10k-labels-idx1-ubyte.gz": b"y"}),
        ("fashion-mnist", "mnist.read_idx", {"t10k-images-idx3-ubyte.gz": b"x", "t10k-labels-idx1-ubyte.gz": b"y"}),
        ("svhn", "svhn.read_mat", {"test_32x32.mat": b"x"}),
        (
            "smallnorb",
            "smallnorb.read_norb",
            {f"smallnorb-5x01235x9x18x6x2x96x96-testing-{kind}.mat.gz": b"x" for kind in ("dat", "cat", "info")},
        ),
        ("cifar10", None, {"test_batch.bin": b"not a whole number of images"}),
        ("cifar10", None, {"cifar-10-binary.tar.gz": tar_bytes({"x/test_batch.bin": b"not a whole number of images"})}),
    ],
)
def test_a_checksum_is_compared_before_a_file_is_parsed(tmp_path, monkeypatch, name, parser, files):
    """Parsing any of these files would fail in another way."""
    if parser is not None:
        monkeypatch.setattr(f"paircaps.data.sources.{parser}", fail)
    for file, content in files.items():
        write(tmp_path / name / file, content)
    with pytest.raises(DataError, match="damaged, or not the published file"):
        load_dataset(name, "test", tmp_path, download=False)


def test_affnist_is_compared_with_the_first_checksum_before_it_is_parsed(tmp_path, monkeypatch):
    path = write(tmp_path / "affnist" / "test.mat.zip", b"no zip at all")
    with pytest.raises(DataError, match="incomplete or damaged: the header"):
        load_dataset("affnist", "test", tmp_path)  # what cannot be read is not recorded
    write(path, affnist_bytes(random_images(7, 40, 40), np.arange(7)))
    with pytest.warns(UserWarning, match="recorded its md5"):
        load_dataset("affnist", "test", tmp_path)
    write(path, b"no zip at all")
    monkeypatch.setattr(affnist, "read_mat", fail)
    with pytest.raises(DataError, match=r"but was .* when first seen here"):
        load_dataset("affnist", "test", tmp_path)


def test_sizes_beyond_the_memory_are_refused(tmp_path):
    write_smallnorb(tmp_path)
    with pytest.raises(DataError, match=r"12 images of 100000×100000 would take .* GiB of memory"):
        load_dataset("smallnorb", "train", tmp_path, verify=False, image_size=100_000)
