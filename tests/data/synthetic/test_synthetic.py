"""Datasets made on the fly: what is promised of each, and that seed and index alone decide."""

import os

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from reference.formats import write_mnist

from paircaps.data import DataError, load_dataset
from paircaps.data.dataset import Info, StoredDataset
from paircaps.data.synthetic.dataset import AffineDigits, OverlappingDigits, SyntheticDataset, TranslatedDigits
from paircaps.data.synthetic.glyphs import FONTS, upright_glyphs
from paircaps.data.synthetic.poses import POSE, PoseRange
from paircaps.data.synthetic.warp import ink_boxes, warp

GLYPHS = ["glyphs", "translated-glyphs", "affine-glyphs", "multi-glyphs"]
MNIST = ["translated-mnist", "affine-mnist", "multi-mnist"]
SIZES = {"glyphs": 28, "translated": 40, "affine": 40, "multi": 36}


def load(name, split="train", **options):
    return load_dataset(name, split, **options)


@pytest.fixture
def mnist(tmp_path):
    """Options with which made datasets take their digits from a small MNIST."""
    for split in ("train", "test"):
        write_mnist(tmp_path / "mnist", 40, split)
    return {"root": tmp_path, "verify": False, "length": 200}


@pytest.mark.parametrize("split", ["train", "test"])
@pytest.mark.parametrize("name", GLYPHS + MNIST)
def test_shapes_and_lengths(name, split, mnist):
    dataset = load(name, split, **({} if "glyphs" in name else mnist))
    side = SIZES[name.split("-")[0]]
    assert dataset.shape == (1, side, side)
    assert len(dataset) == ({"train": 10_000, "test": 2_000}[split] if "glyphs" in name else 200)
    batch = dataset.batch(torch.arange(50))
    assert batch.images.shape == (50, 1, side, side)
    assert batch.images.dtype == torch.uint8
    assert batch.labels.dtype == torch.int64
    assert torch.equal(batch.labels, dataset.labels[:50])


@pytest.mark.parametrize("name", GLYPHS + MNIST)
def test_an_image_depends_on_seed_and_index_alone(name, mnist):
    options = {"length": 300} if "glyphs" in name else mnist
    first, again, other = (load(name, seed=seed, **options) for seed in (3, 3, 4))
    index = torch.tensor([7, 150, 8, 7])
    batch, twin = first.batch(index), again.batch(torch.tensor([150]))
    assert torch.equal(batch.images[1], twin.images[0])
    assert torch.equal(batch.images[0], batch.images[3])
    assert torch.equal(first.images[index], batch.images)
    for name_of_fact, value in batch.extras.items():
        assert torch.equal(first.extras[name_of_fact][index], value)
    assert not torch.equal(other.batch(index).images, batch.images)
    assert torch.equal(first.batch(index, epoch=5).images, batch.images)


@pytest.mark.parametrize("name", GLYPHS)
def test_fresh_images_every_epoch_on_request(name):
    dataset = load(name, fresh=True)
    index = torch.arange(20)
    assert not torch.equal(dataset.batch(index, 0).images, dataset.batch(index, 1).images)
    assert torch.equal(dataset.batch(index, 1).images, dataset.batch(index, 1).images)
    assert torch.equal(dataset.batch(index, 0).labels, dataset.batch(index, 1).labels)


def test_fonts_of_the_two_splits_differ_and_have_ten_different_digits():
    assert not set(FONTS["train"]) & set(FONTS["test"])
    for split, fonts in FONTS.items():
        glyphs = upright_glyphs(split)
        assert len(glyphs) == 10 * len(fonts)
        assert (glyphs.images.flatten(1).float().mean(1) > 8).all()
        for font in range(len(fonts)):
            ten = glyphs.images[glyphs.font == font].flatten(1).float()
            assert torch.cdist(ten, ten)[~torch.eye(10, dtype=torch.bool)].min() > 500
        boxes = ink_boxes(glyphs.images)
        assert (boxes.abs() <= 10.5).all()  # 20 pixels, like MNIST's
        assert ((boxes[:, 2:] - boxes[:, :2]).amax(1) >= 19).all()


def test_no_glyph_of_the_test_split_is_one_of_the_train_split():
    train, test = (upright_glyphs(split).images.flatten(1).float() for split in ("train", "test"))
    assert torch.cdist(test, train).min() > 200


def test_a_glyph_lies_in_its_pose():
    """The returned pose, applied to the upright glyph, gives the very image; and all poses are within bounds."""
    dataset = load("glyphs")
    index = torch.arange(320)
    batch, base = dataset.batch(index), upright_glyphs("train").images
    assert torch.equal(warp(base[index % len(base)], batch.pose, 28), batch.images)
    x, y, rotation, scale, shear = dataset.pose.T
    assert POSE == ("x", "y", "rotation", "scale", "shear")
    assert rotation.min() < -29
    assert 29 < rotation.max() <= 30
    assert 0.6 <= scale.min() < 0.61
    assert 0.99 < scale.max() <= 1
    assert shear.abs().max() <= 0.2
    assert x.abs().max() > 5
    assert y.abs().max() > 3


@pytest.mark.parametrize("name", ["glyphs", "affine-glyphs"])
def test_all_ink_is_on_the_canvas(name):
    """Whatever the pose, the digit fits: its ink is that of the same pose on a larger canvas."""
    dataset = load(name)
    index = torch.arange(1000)
    batch, base = dataset.batch(index), upright_glyphs("train").images
    larger = warp(base[index % len(base)], batch.pose, 80).flatten(1).float().sum(1)
    on_canvas = batch.images.flatten(1).float().sum(1)
    assert ((larger - on_canvas) / larger).max() < 0.02


def test_translated_digits_go_everywhere_by_whole_pixels():
    dataset = load("translated-glyphs")
    index = torch.arange(3000)
    batch, base = dataset.batch(index), upright_glyphs("train").images
    shifts = batch.pose[:, :2]
    assert torch.equal(shifts, shifts.round())
    assert shifts.min() == -6
    assert shifts.max() == 6
    counts = torch.bincount((shifts[:, 0] + 6).long(), minlength=13)
    assert (counts - 3000 / 13).abs().max() < 70
    for row in range(5):
        x, y = (int(value) + 6 for value in shifts[row])
        assert torch.equal(batch.images[row, 0, y : y + 28, x : x + 28], base[row, 0])
        assert int(batch.images[row].sum()) == int(base[row].sum())


def test_affine_digits_keep_to_the_stated_ranges(mnist):
    dataset = load("affine-mnist", "test", **mnist | {"length": 5000})
    _, _, rotation, scale, shear = dataset.pose.T
    assert 19.9 < rotation.abs().max() <= 20
    assert 0.8 <= scale.min() < 0.801
    assert 1.199 < scale.max() <= 1.2
    assert 0.199 < shear.abs().max() <= 0.2


def test_the_stand_in_is_always_named_one(mnist):
    dataset = load("affine-mnist", "test", **mnist)
    assert dataset.info.note == "a stand-in for aff-NIST; files not compared with the published ones"
    assert "a stand-in for aff-NIST" in repr(dataset)
    assert "stand-in" not in repr(load("translated-mnist", "test", **mnist))


@pytest.mark.parametrize("name", ["multi-glyphs", "multi-mnist"])
def test_two_different_digits_over_each_other(name, mnist):
    dataset = load(name, **({} if "glyphs" in name else mnist))
    batch = dataset.batch(torch.arange(150))
    assert (batch.labels != batch.second_label).all()
    assert batch.originals.shape == (150, 2, 1, 36, 36)
    total = batch.originals.int().sum(1).clamp(max=255)
    assert torch.equal(total, batch.images.int())
    assert batch.pose.shape == (150, 2, 5)
    assert batch.pose[..., :2].abs().max() == 4
    assert torch.equal(batch.pose, batch.pose.round())


def test_originals_are_the_digits_themselves():
    dataset = load("multi-glyphs")
    batch, base = dataset.batch(torch.arange(30)), upright_glyphs("train")
    for row in range(30):
        for which, digit in enumerate((row % len(base), int(batch.partner[row]))):
            x, y = (int(value) + 4 for value in batch.pose[row, which, :2])
            assert torch.equal(batch.originals[row, which, 0, y : y + 28, x : x + 28], base.images[digit, 0])
        assert base.labels[batch.partner[row]] == batch.second_label[row]


def test_every_other_digit_is_as_likely_a_partner():
    """With unequal classes: partners are drawn over digits, not over classes."""
    labels = torch.tensor([0] * 5 + [1] * 3 + [2] * 2)
    digits = StoredDataset(Info("d", "train", tuple("012")), torch.zeros(10, 1, 4, 4, dtype=torch.uint8), labels)
    dataset = SyntheticDataset(Info("m", "train", tuple("012")), digits, OverlappingDigits((4, 4), 0), 50_000)
    partner = dataset.annotations(torch.arange(50_000))["partner"]
    own = torch.arange(50_000) % 10
    counts = torch.bincount(own * 10 + partner, minlength=100).reshape(10, 10)
    same = labels[:, None] == labels[None]
    assert counts[same].sum() == 0
    expected = 5000 / (~same).sum(1, keepdim=True)
    assert ((counts - expected)[~same].abs() < 5 * expected.expand(10, 10)[~same].sqrt()).all()


def test_one_class_alone_makes_no_pairs():
    digits = StoredDataset(
        Info("d", "train", ("a",)), torch.zeros(3, 1, 4, 4, dtype=torch.uint8), torch.tensor([0, 0, 0])
    )
    with pytest.raises(DataError, match="need two classes"):
        SyntheticDataset(Info("m", "train", ("a",)), digits, OverlappingDigits((4, 4)), 10)


def test_the_papers_six_million_pairs_need_no_memory():
    dataset = load("multi-glyphs", length=6_000_000)
    assert dataset.batch(torch.tensor([5_999_999])).images.shape == (1, 1, 36, 36)
    for bad in (torch.tensor([6_000_000]), torch.tensor([0, -1])):
        with pytest.raises(IndexError, match="images are numbered 0 to 5999999, got"):
            dataset.batch(bad)


def test_more_images_than_there_is_memory_for_are_refused(monkeypatch):
    """110,000 pairs with their originals are 428 MB; a machine of 512 MB keeps room for other things."""
    monkeypatch.setattr(os, "sysconf", {"SC_PHYS_PAGES": 1 << 17, "SC_PAGE_SIZE": 1 << 12}.__getitem__)
    with pytest.raises(DataError, match=r"all 110,000 images of multi-glyphs would take 0.4 GiB of memory"):
        _ = load("multi-glyphs", length=110_000).images
    assert len(load("multi-glyphs", length=1_000).images) == 1_000


def test_what_is_not_known_is_no_reason_to_draw(monkeypatch):
    dataset = load("multi-glyphs", length=5000)
    monkeypatch.setattr(OverlappingDigits, "draw", None)
    assert not hasattr(dataset, "transform")
    assert dataset.second_label.shape == (5000,)
    assert dataset.pose.shape == (5000, 2, 5)
    with pytest.raises(TypeError):
        _ = dataset.originals  # these are images


def test_labels_need_no_drawing(monkeypatch):
    dataset = load("multi-glyphs", length=5000)
    monkeypatch.setattr(OverlappingDigits, "draw", None)
    assert dataset.class_counts().tolist() == [500] * 10


@settings(max_examples=30, deadline=None)
@given(size=st.tuples(st.integers(36, 70), st.integers(36, 70)), seed=st.integers(), index=st.integers(0, 10_000 - 1))
def test_any_canvas_any_seed_any_index(size, seed, index):
    for name in ("translated-glyphs", "affine-glyphs", "multi-glyphs"):
        image = load(name, image_size=size, seed=seed).batch(torch.tensor([index])).images
        assert image.shape == (1, 1, *size)
        assert image.float().sum() > 0


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"image_size": 20}, DataError, "at least 28×28, that of upright-glyphs's images, got 20×20"),
        ({"image_size": "big"}, TypeError, "image_size must be a side or"),
        ({"length": 0}, ValueError, "length must be at least 1, got 0"),
        ({"length": 10**9}, ValueError, "length must be from 1 to 100000000"),
        ({"image_size": 10**6}, ValueError, "image_size must be from 1 to 1024"),
        ({"seed": 1.5}, TypeError, "seed must be a whole number"),
        ({"fresh": 1}, TypeError, "fresh must be True or False"),
        ({"rotations": 5}, TypeError, "dataset 'affine-glyphs' has no option 'rotations'; it takes seed, length"),
        ({"rotation": "much"}, TypeError, "rotation must be a number, got 'much'"),
        ({"scale": (2.0, 1.0)}, ValueError, "the least of scale must be from 0.01 to 1.0, got 2.0"),
        ({"scale": 1.0}, TypeError, "scale must be .least, most., got 1.0"),
        ({"shear": -1}, ValueError, "shear must be from 0"),
    ],
)
def test_wrong_options_are_named(options, error, message):
    with pytest.raises(error, match=message):
        load("affine-glyphs", **options)


def test_made_datasets_can_move_to_a_device():
    dataset = load("affine-glyphs", length=100)
    assert torch.equal(dataset.to("cpu").batch(torch.arange(9)).images, dataset.batch(torch.arange(9)).images)


@pytest.mark.parametrize("size", [36, 37, (41, 38)])
def test_poses_of_shifted_digits_are_true_on_odd_canvases_too(size):
    for name in ("translated-glyphs", "multi-glyphs"):
        batch = load(name, image_size=size).batch(torch.arange(40))
        base = upright_glyphs("train").images
        pose = batch.pose if name == "translated-glyphs" else batch.pose[:, 0]
        alone = batch.images if name == "translated-glyphs" else batch.originals[:, 0]
        assert torch.equal(warp(base[torch.arange(40)], pose, size), alone)


def test_shifts_that_would_cut_digits_off_are_refused():
    with pytest.raises(ValueError, match=r"shift must be at most 4, that digits stay on a canvas of 36×36, got 5"):
        load("multi-glyphs", shift=5)
    assert load("multi-glyphs", image_size=28, shift=0).batch(torch.arange(3)).images.shape == (3, 1, 28, 28)


@pytest.mark.parametrize("name", GLYPHS)
def test_an_empty_batch_is_a_batch(name):
    dataset = load(name)
    batch = dataset.batch(torch.arange(0))
    assert batch.images.shape == (0, *dataset.shape)
    assert len(batch) == 0


def test_images_stay_what_they_were():
    """Results are repeated by seed and index years later; digits of no font, so that no library can change them."""
    y, x = torch.meshgrid(torch.arange(28), torch.arange(28), indexing="ij")
    pixels = torch.stack([(x * k + y * 3) % 256 for k in range(1, 11)])[:, None].to(torch.uint8)
    digits = StoredDataset(Info("d", "train", tuple("0123456789")), pixels, torch.arange(10))
    sums = {}
    for making in (TranslatedDigits((40, 40)), OverlappingDigits((36, 36)), AffineDigits((40, 40), PoseRange())):
        batch = SyntheticDataset(digits.info, digits, making, 1000, seed=5).batch(torch.tensor([0, 7, 999]))
        weights = torch.arange(batch.images[0].numel()) % 101
        sums[type(making).__name__] = (batch.images.flatten(1).long() * weights).sum(1).tolist()
    assert sums["TranslatedDigits"] == [2048611, 5215683, 4728217]
    assert sums["OverlappingDigits"] == [6583384, 8335877, 8501451]
    assert sums["AffineDigits"] == pytest.approx([2423581, 3355921, 4074023], rel=1e-3)  # rounding


def test_a_digit_too_large_for_its_canvas_is_in_the_middle():
    batch = load("glyphs", scale=(4.0, 4.0), rotation=0, shear=0).batch(torch.arange(50))
    box = ink_boxes(upright_glyphs("train").images[:50]) * 4
    middle = (box[:, :2] + box[:, 2:]) / 2 + batch.pose[:, :2]
    torch.testing.assert_close(middle[:, 1], torch.zeros(50))  # all are too tall


def test_made_of_mnist_that_is_not_here(monkeypatch):
    monkeypatch.setattr("requests.get", None)
    with pytest.raises(DataError, match=r"mnist: train-images.* not found in .*`paircaps data get mnist` fetches it"):
        load("multi-mnist", download=False)
