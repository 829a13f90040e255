"""Folders of pictures with masks: what is read, and a sentence that names the file for everything that is wrong."""

import struct
import zlib

import numpy as np
import pytest
import torch
from PIL import Image, ImageFile

from paircaps.data import DataError, load_dataset

SIZE = (20, 10)  # width and height


def save_picture(path, seed=0, size=SIZE):
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(256, size=(size[1], size[0], 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path)


def save_mask(path, index):
    path.parent.mkdir(parents=True, exist_ok=True)
    mask = Image.fromarray(np.asarray(index, dtype=np.uint8), mode="P")
    mask.putpalette([0, 0, 0, 255, 0, 0, 0, 255, 0, 0, 0, 255])
    mask.save(path)


def halves(left=1, right=2, size=SIZE):
    index = np.full((size[1], size[0]), right)
    index[:, : size[0] // 2 - 2] = left
    return index


@pytest.fixture
def cells(tmp_path):
    """Ten pictures and their masks, whose right part is the larger one."""
    for number in range(10):
        save_picture(tmp_path / "cells" / f"{number}{'.png' if number % 2 else '.bmp'}", number)
        save_mask(tmp_path / "masks" / f"{number}.png", halves(number % 2, 1 + number % 2))
    (tmp_path / "masks" / "classes.txt").write_text("cell\nnucleus\n")
    return tmp_path


def load(cells, split="train", **options):
    return load_dataset(cells / "cells", split, masks=cells / "masks", **options)


def test_pictures_and_masks_are_split_together(cells):
    train, test = load(cells), load(cells, "test")
    assert train.classes == ("cell", "nucleus")
    assert (len(train), len(test)) == (8, 2)
    assert train.mask_index.shape == (8, 32, 32)
    assert len(load(cells, "all")) == 10
    assert train.has_masks
    assert train.info.made_for_masks


def test_a_label_is_the_class_with_the_most_pixels(cells):
    whole = load(cells, "all")
    largest = [torch.bincount(index.flatten().long(), minlength=3)[1:].argmax().item() for index in whole.mask_index]
    assert whole.labels.tolist() == largest == [0, 1] * 5


@pytest.mark.parametrize("fit", ["crop", "pad", "stretch"])
def test_a_mask_is_fitted_as_its_picture(tmp_path, fit):
    """The picture is bright exactly where its mask is."""
    index = np.zeros((40, 80), dtype=np.uint8)
    index[10:30, 24:56] = 1
    (tmp_path / "cells").mkdir()
    Image.fromarray(index * 255).save(tmp_path / "cells" / "a.png")
    save_mask(tmp_path / "masks" / "a.png", index)
    dataset = load(tmp_path, "all", classes=["spot"], image_size=20, channels=1, fit=fit)
    bright = dataset.images[0, 0] > 127
    assert 0 < bright.sum() < 400
    assert (bright == (dataset.mask_index[0] == 1)).float().mean() > 0.97


@pytest.mark.parametrize("fit", ["crop", "pad", "stretch"])
def test_a_fitted_mask_has_no_class_between_two(tmp_path, fit):
    """Between classes 1 and 3 lies 2 as a number, and nothing in a picture."""
    index = np.tile(1 + 2 * (np.arange(70) // 7 % 2), (30, 1))
    save_picture(tmp_path / "cells" / "a.png", size=(70, 30))
    save_mask(tmp_path / "masks" / "a.png", index)
    dataset = load(tmp_path, "all", classes=list("abc"), image_size=16, fit=fit)
    assert set(dataset.mask_index.unique().tolist()) - {0} == {1, 3}


def test_folders_of_splits_have_masks_in_folders_of_the_same_name(tmp_path):
    for split, count in (("train", 3), ("test", 2)):
        for number in range(count):
            save_picture(tmp_path / "cells" / split / f"{number}.png", number)
            save_mask(tmp_path / "masks" / split / f"{number}.png", halves())
    sizes = [len(load(tmp_path, split, classes=["a", "b"])) for split in ("train", "test")]
    assert sizes == [3, 2]


def test_masks_may_lie_inside_the_folder_of_pictures(cells):
    (cells / "masks").rename(cells / "cells" / "masks")
    assert len(load_dataset(cells / "cells", "all", masks=cells / "cells" / "masks")) == 10


def wrong_size(cells):
    save_mask(cells / "masks" / "3.png", halves(size=(10, 20)))


def unknown_index(cells):
    save_mask(cells / "masks" / "3.png", halves(3))


def missing(cells):
    (cells / "masks" / "3.png").unlink()


def grey(cells):
    Image.fromarray(halves().astype(np.uint8)).save(cells / "masks" / "3.png")


def cut_off(cells):
    content = (cells / "masks" / "3.png").read_bytes()
    (cells / "masks" / "3.png").write_bytes(content[:-30])


def enormous(cells):
    """A small file of more pixels than Pillow opens."""
    path = cells / "masks" / "3.png"
    save_mask(path, halves())
    content = bytearray(path.read_bytes())
    content[16:24] = struct.pack(">II", 20_000, 20_000)
    content[29:33] = struct.pack(">I", zlib.crc32(content[12:29]))
    path.write_bytes(content)


def no_png(cells):
    save_picture(cells / "masks" / "3.bmp")
    (cells / "masks" / "3.bmp").rename(cells / "masks" / "3.png")


WRONG = {
    wrong_size: "its size is 10×20, that of its picture .*3.png is 20×10",
    unknown_index: "unknown index 3: there are 2 classes, with the indices 1 to 2, and 0 for nothing",
    missing: "no such file, the mask of .*3.png",
    grey: "not an indexed PNG",
    cut_off: "damaged mask",
    enormous: "its size is over 178,956,970 pixels, that of its picture .*3.png is 20×10",
    no_png: "not an indexed PNG",
}


@pytest.mark.parametrize("spoil", WRONG, ids=lambda spoil: spoil.__name__)
def test_a_bad_mask_is_named(cells, spoil):
    spoil(cells)
    with pytest.raises(DataError, match=f"masks/3.png: {WRONG[spoil]}"):
        load(cells)


@pytest.mark.parametrize("spoil", WRONG, ids=lambda spoil: spoil.__name__)
def test_a_bad_mask_can_be_skipped(cells, spoil):
    spoil(cells)
    with pytest.warns(UserWarning, match="masks/3.png"):
        dataset = load(cells, "all", on_error="skip")
    assert len(dataset) == 9
    assert "3.png" in dataset.info.skipped[0]


def test_all_bad_masks_are_named_at_once(cells):
    wrong_size(cells)
    (cells / "masks" / "5.png").unlink()
    with pytest.raises(DataError, match=r"(?s)masks/3.png.*masks/5.png"):
        load(cells)


def test_what_is_missing_as_a_whole_is_said(cells, tmp_path):
    with pytest.raises(DataError, match="elsewhere: no such folder of masks"):
        load_dataset(cells / "cells", masks=cells / "elsewhere")
    (cells / "empty").mkdir()
    with pytest.raises(DataError, match="empty: no picture in it"):
        load_dataset(cells / "empty", masks=cells / "masks")
    (cells / "masks" / "classes.txt").unlink()
    with pytest.raises(DataError, match=r"classes.txt: no such file: it has the name of a class on each line"):
        load(cells)
    with pytest.raises(DataError, match="different names, got a, a"):
        load(cells, classes=["a", "a"])
    with pytest.raises(ValueError, match="classes names the indices of masks, and there are none"):
        load_dataset(cells / "cells", classes=["a"])
    with pytest.raises(ValueError, match="masks must be the path of a folder, got 5"):
        load_dataset(cells / "cells", masks=5)
    with pytest.raises(ValueError, match="classes must be names, that of index 1 first, got 2"):
        load(cells, classes=2)


def test_a_mask_that_is_far_larger_than_its_picture_is_not_decoded(cells, monkeypatch):
    save_mask(cells / "masks" / "3.png", halves(size=(3_000, 3_000)))
    decoded = []
    load_pixels = ImageFile.ImageFile.load
    monkeypatch.setattr(ImageFile.ImageFile, "load", lambda self: decoded.append(self.size) or load_pixels(self))
    with pytest.raises(DataError, match="its size is 3000×3000"):
        load(cells)
    assert SIZE in decoded
    assert (3_000, 3_000) not in decoded


def test_two_pictures_cannot_have_the_same_mask(cells):
    save_picture(cells / "cells" / "3.jpg")
    with pytest.raises(DataError, match=r"masks/3.png: would be the mask of both .*3.jpg and .*3.png"):
        load(cells)


def test_transparent_colours_and_few_bits_change_nothing(cells):
    path = cells / "masks" / "3.png"
    expected = load(cells, "all").mask_index
    with Image.open(path) as mask:
        mask.save(path, transparency=bytes([0, 100, 255]), bits=2)
    with Image.open(path) as mask:
        assert "transparency" in mask.info
    assert torch.equal(load(cells, "all").mask_index, expected)


def test_an_ending_in_capitals_is_found(cells):
    (cells / "masks" / "3.png").rename(cells / "masks" / "3.PNG")
    assert len(load(cells, "all")) == 10


def test_a_list_of_classes_as_windows_writes_it(cells):
    (cells / "masks" / "classes.txt").write_bytes(b"\xef\xbb\xbfcell\r\nnucleus\r\n")
    assert load(cells).classes == ("cell", "nucleus")


def test_masks_without_a_picture_are_passed_over(cells):
    save_mask(cells / "masks" / "99.png", halves())
    assert len(load(cells, "all")) == 10


def test_one_picture_alone_can_be_trained_on_and_not_tested(tmp_path):
    save_picture(tmp_path / "cells" / "a.png")
    save_mask(tmp_path / "masks" / "a.png", halves(1, 1))
    assert len(load(tmp_path, classes=["cell"])) == 1
    with pytest.raises(DataError, match="no picture is in the test split; give more, or folders train/ and test/"):
        load(tmp_path, "test", classes=["cell"])
