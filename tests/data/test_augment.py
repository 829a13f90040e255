"""Every augmentation against what it should do to one image, and the paper's recipes written out."""

from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F

from paircaps._utils.images import as_float
from paircaps.data import (
    AffineWarp,
    AlternatingFlip,
    Brightness,
    CentreCrop,
    Compose,
    Contrast,
    Cutout,
    Flip,
    Loader,
    RandomCrop,
    Standardise,
    Translate,
)
from paircaps.data.dataset import Info, StoredDataset
from paircaps.data.randomness import uniform

STEPS = {
    "crop": RandomCrop(2),
    "smaller crop": RandomCrop(0, 5),
    "reflected crop": RandomCrop(3, border="reflect"),
    "centre": CentreCrop(4),
    "flip": Flip(),
    "alternating flip": AlternatingFlip(),
    "cutout": Cutout(3),
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


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("padding", [1, 3, 6])
def test_a_reflected_border_is_that_of_torch(padding, dtype):
    batch = images(30, 2, 9, dtype)[:, :, :7]
    noise = torch.rand(30, 2, dtype=torch.float64)
    cut = RandomCrop(padding, border="reflect").apply(batch, noise)
    padded = F.pad(batch.double(), (padding,) * 4, mode="reflect").to(dtype)
    assert cut.dtype == dtype
    assert cut.shape == batch.shape
    for row in range(30):
        top, left = (int(value) for value in (noise[row] * (2 * padding + 1)).floor())
        assert torch.equal(cut[row], padded[row, :, top : top + 7, left : left + 9])


def test_a_reflected_border_of_nothing_is_the_image():
    batch = images()
    assert torch.equal(RandomCrop(0, border="reflect")(batch, generator()), batch)


def test_flip_mirrors_left_and_right_of_half_of_the_images():
    batch = images(400)
    flipped = Flip().apply(batch, torch.rand(400, 1, dtype=torch.float64))
    mirrored = (flipped == batch.flip(-1)).flatten(1).all(1)
    kept = (flipped == batch).flatten(1).all(1)
    assert (mirrored | kept).all()
    assert 150 < mirrored.sum() < 250
    assert torch.equal(Flip(1.0)(batch, generator()), batch.flip(-1))
    assert torch.equal(Flip(0.0)(batch, generator()), batch)


def stored(count=41, side=4):
    """Images whose first pixel is their number, and whose others are black."""
    pixels = torch.zeros(count, 1, side, side, dtype=torch.uint8)
    pixels[:, 0, 0, 0] = torch.arange(count) + 1
    return StoredDataset(Info("d", "train", tuple("01")), pixels, torch.arange(count) % 2)


def mirrored_of(batches, side=4):
    """Whether each image is mirrored, by its number."""
    found = {}
    for batch in batches:
        for image in (255 * batch.images).round().int()[:, 0, 0]:
            assert bool(image[0]) != bool(image[side - 1])
            found[int(image.max()) - 1] = bool(image[side - 1])
    return found


@pytest.mark.parametrize("augment", [AlternatingFlip(), Compose(Brightness(0.0), AlternatingFlip())], ids=repr)
def test_an_alternating_flip_mirrors_every_image_once_in_two_epochs(augment):
    loader = Loader(stored(200), 16, augment, seed=3)
    epochs = [mirrored_of(loader.epoch(epoch)) for epoch in range(4)]
    assert [len(epoch) for epoch in epochs] == [200] * 4
    for first, second in pairwise(epochs):
        assert all(first[number] != second[number] for number in range(200))
    assert 70 < sum(epochs[0].values()) < 130
    other = mirrored_of(Loader(stored(200), 16, augment, seed=4).epoch(0))
    assert other not in epochs


def test_alternating_flips_are_the_same_for_two_processes_and_after_a_resume():
    whole = Loader(stored(), 8, AlternatingFlip(), seed=1)
    shares = [Loader(stored(), 8, AlternatingFlip(), seed=1, rank=rank, world_size=2) for rank in range(2)]
    for epoch in (0, 5):
        expected = mirrored_of(whole.epoch(epoch))
        assert mirrored_of(batch for share in shares for batch in share.epoch(epoch)) == expected
        rest = mirrored_of(whole.epoch(epoch, start=3))
        assert len(rest) == 41 - 24
        assert rest.items() <= expected.items()


def test_an_alternating_flip_with_a_generator_is_a_flip():
    batch = images(20)
    assert torch.equal(AlternatingFlip()(batch, generator()), Flip()(batch, generator()))


INDEX = torch.tensor([4, 0, 17])


@pytest.mark.parametrize("epoch", [0, 1, 6])
def test_only_the_alternating_flip_has_numbers_of_its_own(epoch):
    plain = Compose(RandomCrop(2), Flip(), Brightness(), Contrast())
    alternating = Compose(RandomCrop(2), AlternatingFlip(), Brightness(), Contrast())
    before, after = (steps.noise(7, epoch, INDEX) for steps in (plain, alternating))
    assert torch.equal(before, uniform(7, epoch, INDEX, 5, "augment"))
    others = [0, 1, 3, 4]
    assert torch.equal(after[:, others], before[:, others])
    assert torch.equal(after[:, 2:3], AlternatingFlip().noise(7, epoch, INDEX))
    assert not torch.equal(after, before)


@pytest.mark.parametrize("flip", [Flip(), AlternatingFlip()], ids=["flip", "alternating"])
def test_steps_within_steps_have_the_numbers_that_they_have_side_by_side(flip):
    flat = Compose(RandomCrop(2), flip, Brightness())
    nested = Compose(RandomCrop(2), Compose(flip, Compose(Brightness())))
    assert torch.equal(nested.noise(7, 1, INDEX), flat.noise(7, 1, INDEX))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
@pytest.mark.parametrize("size", [0, 1, 2, 3, 4, 20])
def test_cutout_paints_a_square_in_the_mean_colour(size, dtype):
    batch, noise = images(40, 3, 9, dtype)[:, :, :6], torch.rand(40, 2, dtype=torch.float64)
    found = Cutout(size).apply(batch, noise)
    assert found.dtype == dtype
    for row in range(40):
        middle = [int(noise[row, 0] * 6), int(noise[row, 1] * 9)]
        for channel in range(3):
            mean = batch[row, channel].double().mean()
            colour = mean.round() if dtype == torch.uint8 else mean
            expected = batch[row, channel].double()
            for y in range(6):
                for x in range(9):
                    inside = all(-(size // 2) <= p - m < size - size // 2 for p, m in zip((y, x), middle, strict=True))
                    expected[y, x] = colour if inside else expected[y, x]
            torch.testing.assert_close(found[row, channel].double(), expected, rtol=1e-6, atol=1e-6)


def test_the_middle_of_a_cutout_reaches_every_corner():
    corners = torch.tensor([[0.0, 0.0], [0.0, 0.999], [0.999, 0.0], [0.999, 0.999]], dtype=torch.float64)
    batch = torch.zeros(4, 1, 3, 3)
    batch[:] = torch.arange(9).view(3, 3)
    changed = Cutout(1).apply(batch, corners) != batch
    assert [found.nonzero().flatten().tolist() for found in changed.flatten(1)] == [[0], [2], [6], [8]]


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
        (lambda: RandomCrop(1, border="white"), ValueError, "border must be one of 'black', 'reflect', got 'white'"),
        (
            lambda: RandomCrop(8, border="reflect")(images(), generator()),
            ValueError,
            "images of 8×8 cannot be reflected over 8 pixels",
        ),
        (lambda: Cutout(-1), ValueError, "size must be at least 0, got -1"),
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
