"""Every augmentation against what it should do to one image, and the paper's recipes written out."""

import pytest
import torch

from paircaps._utils.images import as_float
from paircaps.data import (
    AffineWarp,
    Brightness,
    CentreCrop,
    Compose,
    Contrast,
    Flip,
    Loader,
    RandomCrop,
    Standardise,
    Translate,
)
from paircaps.data.dataset import Info, StoredDataset

STEPS = {
    "crop": RandomCrop(2),
    "smaller crop": RandomCrop(0, 5),
    "centre": CentreCrop(4),
    "flip": Flip(),
    "brightness": Brightness(0.3),
    "contrast": Contrast(0.5, 1.5),
    "standardise": Standardise(),
    "translate": Translate(3),
    "affine": AffineWarp(30, (0.7, 1.3), 0.3, 2),
    "several": Compose(RandomCrop(2), Flip(), Brightness(), Contrast(), Standardise()),
}


def images(count=6, channels=3, side=8, dtype=torch.uint8):
    pixels = torch.randint(256, (count, channels, side, side), dtype=torch.uint8)
    return pixels if dtype == torch.uint8 else (pixels / 255).to(dtype)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
def test_a_step_is_a_pure_function_of_images_and_generator(step):
    batch = images()
    kept = batch.clone()
    torch.manual_seed(1)
    first = step(batch, generator())
    torch.manual_seed(2)
    again = step(batch, generator())
    assert torch.equal(first, again)
    assert torch.equal(batch, kept)
    if step.draws:
        assert not torch.equal(step(batch, generator(1)), first)
        with pytest.raises(TypeError, match=r"give it a torch\.Generator"):
            step(batch)
    else:
        assert torch.equal(step(batch), first)


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
def test_an_image_is_changed_alike_alone_and_in_a_batch(step):
    batch, noise = images(9), torch.rand(9, step.draws, dtype=torch.float64)
    whole = step.apply(batch, noise)
    for row in range(9):
        torch.testing.assert_close(step.apply(batch[row : row + 1], noise[row : row + 1])[0], whole[row])


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
def test_bytes_and_floats_come_out_the_same(step):
    batch, noise = images(), torch.rand(6, step.draws, dtype=torch.float64)
    from_bytes, from_floats = step.apply(batch, noise), step.apply(as_float(batch), noise)
    assert from_floats.dtype == torch.float32
    torch.testing.assert_close(as_float(from_bytes), from_floats, atol=0.6 / 255, rtol=0)


def test_a_crop_is_a_window_of_the_padded_image():
    batch = images(50, 1)
    noise = torch.rand(50, 2, dtype=torch.float64)
    cut = RandomCrop(2).apply(batch, noise)
    seen = set()
    for row in range(50):
        padded = torch.zeros(12, 12, dtype=torch.uint8)
        padded[2:10, 2:10] = batch[row, 0]
        top, left = (int(value) for value in (noise[row] * 5).floor())
        assert torch.equal(cut[row, 0], padded[top : top + 8, left : left + 8])
        seen.add((top, left))
    assert len(seen) > 15
    assert RandomCrop(0, (3, 5)).apply(batch, noise).shape == (50, 1, 3, 5)
    assert torch.equal(RandomCrop(0).apply(batch, noise), batch)


def test_every_corner_of_a_crop_is_reached():
    corners = torch.tensor([[0.0, 0.0], [0.0, 0.999], [0.999, 0.0], [0.999, 0.999]], dtype=torch.float64)
    batch = torch.zeros(4, 1, 3, 3, dtype=torch.uint8)
    batch[:, :, 1, 1] = 1
    places = RandomCrop(1).apply(batch, corners).flatten(1).argmax(1)
    assert places.tolist() == [8, 6, 2, 0]


def test_flip_mirrors_left_and_right_of_half_of_the_images():
    batch = images(400)
    flipped = Flip().apply(batch, torch.rand(400, 1, dtype=torch.float64))
    mirrored = (flipped == batch.flip(-1)).flatten(1).all(1)
    kept = (flipped == batch).flatten(1).all(1)
    assert (mirrored | kept).all()
    assert 150 < mirrored.sum() < 250
    assert torch.equal(Flip(1.0)(batch, generator()), batch.flip(-1))
    assert torch.equal(Flip(0.0)(batch, generator()), batch)


def test_brightness_and_contrast():
    grey = torch.full((2, 3, 4, 4), 0.5)
    noise = torch.tensor([[0.0], [0.75]], dtype=torch.float64)
    assert Brightness(0.2).apply(grey, noise)[:, 0, 0, 0].tolist() == pytest.approx([0.3, 0.6])
    image = torch.tensor([0.4, 0.6]).expand(2, 1, 4, 2)
    more = Contrast(0.5, 1.5).apply(image, noise)
    assert more[0, 0, 0].tolist() == pytest.approx([0.45, 0.55])
    assert more[1, 0, 0].tolist() == pytest.approx([0.375, 0.625])
    for step in (Brightness(1.0), Contrast(0, 10)):
        changed = step(images(64), generator())
        assert changed.min() >= 0
        assert changed.max() <= 1


def test_contrast_keeps_the_mean_of_each_channel():
    batch = 0.3 + 0.4 * torch.rand(5, 3, 6, 6)
    changed = Contrast(0.5, 1.5)(batch, generator())
    torch.testing.assert_close(changed.mean((2, 3)), batch.mean((2, 3)))


def test_standardised_images_have_mean_zero_and_deviation_one():
    ready = Standardise()(images(7))
    torch.testing.assert_close(ready.mean((1, 2, 3)), torch.zeros(7), atol=1e-5, rtol=0)
    torch.testing.assert_close(ready.var((1, 2, 3), correction=0), torch.ones(7))
    nearly = torch.zeros(1, 1, 10, 10)
    nearly[0, 0, 0, 0] = 0.01  # its deviation, 0.001, is below the floor of 1/√100
    assert Standardise()(nearly).max().item() == pytest.approx(0.0099 / 0.1)
    flat = Standardise()(torch.full((1, 1, 4, 4), 77, dtype=torch.uint8))
    assert torch.equal(flat, torch.zeros(1, 1, 4, 4))


def test_the_centre():
    batch = torch.arange(25).reshape(1, 1, 5, 5).float()
    assert CentreCrop(3)(batch)[0, 0].tolist() == [[6, 7, 8], [11, 12, 13], [16, 17, 18]]
    assert CentreCrop((1, 5))(batch)[0, 0].tolist() == [[10, 11, 12, 13, 14]]


def test_affine_warps_keep_to_their_ranges():
    still = AffineWarp(0, (1, 1), 0, 0)
    batch = images(4)
    assert torch.equal(still(batch, generator()), batch)
    moved = AffineWarp(0, (1.0, 1.0), 0, 2).apply(
        torch.nn.functional.pad(batch, (4,) * 4), torch.tensor([[1.0, 0.0, 0, 0, 0]] * 4)
    )
    assert torch.equal(moved[:, :, 2:10, 6:14], batch)  # two to the right, two up


NOTHING = Compose()
TABLE6 = Compose(RandomCrop(0, 32), Contrast(0.5, 1.5)), Compose(CentreCrop(32))
RECIPES = {
    "fig4": ((3, 32, 32), Compose(Standardise()), 32),
    "fig5, fashion-mnist; table2, svhn": ((1, 28, 28), Compose(RandomCrop(4), Standardise()), 28),
    "fig5, cifar10; table2, cifar10 and fashion-mnist": (
        (3, 32, 32),
        Compose(RandomCrop(4), Flip(), Standardise()),
        32,
    ),
    "table3, table5": ((1, 40, 40), NOTHING, 40),
    "table6, train": ((1, 48, 48), TABLE6[0], 32),
    "table6, test": ((1, 48, 48), TABLE6[1], 32),
}


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_recipe_of_the_paper_can_be_written(recipe):
    shape, augment, side = RECIPES[recipe]
    dataset = StoredDataset(
        Info("d", "train", tuple("01")), torch.randint(256, (20, *shape), dtype=torch.uint8), torch.arange(20) % 2
    )
    batch = Loader(dataset, 8, augment).batch(0, 0)
    assert batch.images.shape == (8, shape[0], side, side)
    assert batch.images.dtype == torch.float32
    standardised = "Standardise" in repr(augment)
    assert (batch.images.min() < 0) == standardised
    assert batch.images.max() <= (100 if standardised else 1)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: RandomCrop(-1), ValueError, "padding must be at least 0, got -1"),
        (lambda: RandomCrop(1.5), TypeError, "padding must be a whole number"),
        (lambda: Flip(1.5), ValueError, "probability must be from 0 to 1, got 1.5"),
        (lambda: Flip("half"), TypeError, "probability must be a number, got 'half'"),
        (lambda: Contrast(2, 1), ValueError, "least must be from 0 to 1, got 2"),
        (lambda: AffineWarp(rotation=300), ValueError, "rotation must be from 0 to 180"),
        (lambda: AffineWarp(scale=2), TypeError, r"scale must be \(least, most\), got 2"),
        (lambda: Compose(Standardise(), Contrast()), ValueError, "takes images in 0..1: put it before"),
        (lambda: Compose(Compose(Standardise()), Flip(), Brightness()), ValueError, "takes images in 0..1"),
        (lambda: RandomCrop(0, "3"), TypeError, "size must be a side or"),
        (lambda: CentreCrop("3"), TypeError, "size must be a side or"),
        (lambda: Compose(Flip), TypeError, "a step must be an Augmentation"),
        (lambda: CentreCrop(9)(images()), ValueError, r"CentreCrop\(size=9\) does not fit into images of 8×8"),
        (lambda: RandomCrop(0, 9)(images(), generator()), ValueError, "does not fit into images of 8×8"),
        (lambda: Flip()(images()[0], generator()), ValueError, r"images must have shape \(B, C, H, W\)"),
        (lambda: Flip()(images().int(), generator()), TypeError, "images must be uint8 or floating point"),
        (lambda: Flip()([1, 2], generator()), TypeError, "images must be a tensor"),
    ],
)
def test_wrong_arguments_are_named(make, error, message):
    with pytest.raises(error, match=message):
        make()


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
def test_an_empty_batch_stays_one(step):
    """The share of a process in a last batch may be empty."""
    changed = step(images(0), generator())
    assert changed.shape[:2] == (0, 3)
    assert changed.shape[2:] == step(images(2), generator()).shape[2:]
