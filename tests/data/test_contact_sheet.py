import dataclasses

import numpy as np
import pytest
import torch
from PIL import Image
from reference.formats import write_smallnorb

from paircaps.data import Batch, DataError, Info, StoredDataset, load_dataset
from paircaps.data.contact_sheet import _two_colours, contact_sheet, save_picture


def coloured(classes=3, per_class=4):
    """Every class has a red of its own, which no letter has, so that a tile tells its class."""
    images = torch.zeros(classes * per_class, 3, 8, 8, dtype=torch.uint8)
    labels = torch.arange(classes * per_class) % classes
    images[:, 0] = (100 + labels).to(torch.uint8)[:, None, None]
    return StoredDataset(Info("reds", "test", tuple(f"class {k}" for k in range(classes))), images, labels)


def where(sheet, label):
    """Pixels of a class, as a mask."""
    return (np.asarray(sheet) == (100 + label, 0, 0)).all(-1)


def test_every_class_has_its_row_of_tiles():
    sheet = contact_sheet(coloured(), columns=3)
    for label in range(3):
        assert where(sheet, label).sum() == 3 * 64 * 64
    rows = [np.argwhere(where(sheet, label))[:, 0] for label in range(3)]
    assert rows[0].max() < rows[1].min() < rows[1].max() < rows[2].min()


def test_more_classes_than_rows_and_fewer_images_than_columns():
    sheet = contact_sheet(coloured(30, 2), columns=5, rows=4)
    assert where(sheet, 3).sum() == 2 * 64 * 64
    assert where(sheet, 4).sum() == 0
    assert sheet.height < 450


def test_another_seed_shows_other_images():
    data = load_dataset("glyphs")
    same, again, other = (np.asarray(contact_sheet(data, seed=seed)) for seed in (0, 0, 1))
    assert np.array_equal(same, again)
    assert not np.array_equal(same, other)


def test_pairs_are_shown_in_two_colours():
    sheet = np.asarray(contact_sheet(load_dataset("multi-glyphs"), columns=4, rows=2)).astype(int)
    orange = (sheet[..., 0] > 200) & (sheet[..., 2] < 80)
    blue = (sheet[..., 2] > 200) & (sheet[..., 0] < 80)
    assert orange.sum() > 500
    assert blue.sum() > 500


def test_stereo_pairs_stand_side_by_side(tmp_path):
    write_smallnorb(tmp_path)
    data = load_dataset("smallnorb", "train", tmp_path, verify=False, stereo="channels")
    wide = contact_sheet(data, columns=2)
    narrow = contact_sheet(load_dataset("smallnorb", "train", tmp_path, verify=False), columns=2)
    assert wide.width > narrow.width


@pytest.mark.parametrize("name", ["a.png", "a.JPG", "a.webp"])
def test_pictures_are_written_whole(tmp_path, name):
    sheet = contact_sheet(coloured())
    save_picture(sheet, tmp_path / name)
    with Image.open(tmp_path / name) as read:
        assert read.size == sheet.size
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_pictures_that_cannot_be_written(tmp_path, without_rights):
    sheet = contact_sheet(coloured())
    (tmp_path / "closed").mkdir(mode=0o555)
    (tmp_path / "old.png").write_bytes(b"old")
    for path, message in (
        (tmp_path / "a.pdf", r"must end in \.png, \.jpg"),
        (tmp_path / "no" / "a.png", "no such folder"),
        (tmp_path / "closed" / "a.png", "cannot write: Permission denied"),
    ):
        with without_rights(), pytest.raises(DataError, match=message):
            save_picture(sheet, path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["closed", "old.png"]


def test_the_first_digit_is_orange_and_rows_are_as_many_as_asked_for():
    digit, nothing = torch.full((1, 1, 2, 2), 255, dtype=torch.uint8), torch.zeros(1, 1, 2, 2, dtype=torch.uint8)
    batch = Batch(digit, torch.tensor([0]), torch.tensor([0]), {"originals": torch.stack([digit, nothing], 1)})
    assert _two_colours(batch)[0, :, 0, 0].tolist() == [255, 150, 40]
    heights = [contact_sheet(load_dataset("multi-glyphs"), 2, rows).height for rows in (4, 5, 8)]
    assert heights[2] - heights[1] == 3 * (heights[1] - heights[0])


def test_classes_without_an_image_have_no_row():
    data = coloured(6, 1).subset([1, 4])
    sheet = contact_sheet(data)
    assert where(sheet, 1).sum() == where(sheet, 4).sum() == 64 * 64
    assert sheet.height < 250


def test_larger_pictures_are_shown_larger():
    images = torch.zeros(1, 1, 400, 400, dtype=torch.uint8)
    data = StoredDataset(Info("large", "train", ("a",)), images, torch.tensor([0]))
    assert (np.asarray(contact_sheet(data)) == 0).all(-1).sum() == 128 * 128


def test_a_note_is_on_the_page():
    """A stand-in is always named one, on its contact sheet too."""
    plain = coloured()
    noted = StoredDataset(dataclasses.replace(plain.info, note="a stand-in"), plain.images, plain.labels)
    assert contact_sheet(noted).height > contact_sheet(plain).height
    assert contact_sheet(coloured(4), rows=3).height > contact_sheet(coloured(3), rows=3).height  # "3 of 4 classes"


def test_another_seed_shows_other_pairs():
    data = load_dataset("multi-glyphs")
    first, second = (np.asarray(contact_sheet(data, 3, 2, seed)) for seed in (0, 1))
    assert not np.array_equal(first, second)
