import copy
import pickle

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader

from paircaps.data import DataError, Info, StoredDataset, load_dataset, wrap_dataset

INFO = Info("d", "train", tuple("abc"))
INDEX = torch.zeros(3, dtype=torch.long)


def stored(length=9, **extras):
    pixels = torch.arange(length * 16, dtype=torch.uint8).reshape(length, 1, 4, 4)
    return StoredDataset(INFO, pixels, torch.arange(length) % 3, extras)


def test_facts_are_attributes():
    data = stored(pose=torch.rand(9, 5))
    assert torch.equal(data.pose, data.extras["pose"])
    assert torch.equal(data.batch(torch.tensor([4, 2])).pose, data.pose[[4, 2]])
    with pytest.raises(AttributeError, match="StoredDataset has no 'poses'; known of these images: pose"):
        _ = data.poses
    with pytest.raises(AttributeError, match="Batch has no 'azimuth'"):
        _ = data.batch(torch.tensor([0])).azimuth


def test_an_extra_must_not_hide_what_a_dataset_has():
    with pytest.raises(ValueError, match="an extra cannot be called 'images'"):
        stored(images=torch.zeros(9))


def test_a_dataset_is_a_torch_dataset():
    data = stored()
    image, label = data[-1]
    assert torch.equal(image, data.images[8] / 255)
    assert label == 2
    assert len(list(data)) == 9
    for several in (slice(0, 3), [1, 2], "1"):
        with pytest.raises(TypeError, match=r"an image has a whole number, got .* several are had by batch"):
            data[several]
    with pytest.raises(IndexError, match="index 9 of a dataset of 9 images"):
        data[9]
    images, labels = next(iter(DataLoader(load_dataset("glyphs"), batch_size=4)))
    assert images.shape == (4, 1, 28, 28)
    assert images.dtype == torch.float32, "as a model takes them"
    assert torch.equal((255 * images).round().byte(), load_dataset("glyphs").batch(range(4)).images)
    assert labels.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("name", ["glyphs", "multi-glyphs"])
def test_a_dataset_can_be_sent_to_another_process(name):
    data = load_dataset(name, length=20).subset([3, 9])
    twin = pickle.loads(pickle.dumps(data))
    assert torch.equal(twin.images, data.images)
    assert torch.equal(copy.deepcopy(data).pose, data.pose)


def test_subsets_keep_what_is_known_of_each_image():
    data = stored(pose=torch.rand(9, 5))
    part = data.subset(torch.tensor([7, 1, 3]))
    assert torch.equal(part.images, data.images[[7, 1, 3]])
    assert torch.equal(part.labels, data.labels[[7, 1, 3]])
    assert torch.equal(part.pose, data.pose[[7, 1, 3]])
    assert torch.equal(part.batch(torch.tensor([2, 0])).images, data.images[[3, 7]])
    assert part.batch(torch.tensor([2, 0])).index.tolist() == [2, 0]
    assert torch.equal(part.to("cpu").subset(torch.tensor([1])).images, data.images[[1]])
    assert torch.equal(data.subset(range(2, 4)).images, data.images[2:4])
    made = load_dataset("glyphs", length=50)
    assert torch.equal(made.subset(torch.tensor([30, 2])).images, made.images[[30, 2]])
    for bad in ([9], torch.tensor([0, -1])):
        with pytest.raises(IndexError, match=r"images are numbered 0 to 8, got (9|-1)"):
            data.subset(bad)
        with pytest.raises(IndexError, match="images are numbered"):
            data.batch(bad)
    with pytest.raises(IndexError, match="images are numbered 0 to 2, got -1"):
        part.batch([-1])
    with pytest.raises(ValueError, match="one image at least"):
        data.subset([])


def test_images_are_chosen_by_numbers_or_by_a_mask():
    """A mask that is read as numbers gives images 0 and 1, over and over."""
    data = stored()
    assert data.subset(data.labels == 2).labels.tolist() == [2, 2, 2]
    assert torch.equal(data.batch([4, 2]).images, data.images[[4, 2]])
    assert len(load_dataset("glyphs").batch([5, 6])) == 2
    for bad in ([True, False], [0.5, 1.7], [[1]], torch.tensor(3)):
        with pytest.raises(TypeError, match=r"whole numbers \(B,\) or a mask \(9,\), got"):
            data.subset(bad)


def test_a_limit_takes_images_of_all_classes():
    """A folder's images come class by class: the first hundred would be of one class."""
    data = StoredDataset(INFO, torch.zeros(300, 1, 2, 2, dtype=torch.uint8), torch.arange(300) // 100)
    part = data.limit(60)
    assert len(part) == 60
    assert part.class_counts().min() > 10
    assert torch.equal(part.labels, data.limit(60).labels)
    assert (part.index.diff() > 0).all()  # in the dataset's own order
    assert not torch.equal(part.index, data.limit(60, seed=1).index)
    assert data.limit(None) is data
    assert data.limit(1000) is data
    with pytest.raises(TypeError, match="limit must be a whole number"):
        data.limit("3")
    with pytest.raises(ValueError, match="limit must be at least 1"):
        data.limit(0)


@pytest.mark.parametrize(
    ("images", "labels", "error", "message"),
    [
        (torch.zeros(2, 1, 4, 4), INDEX[:2], TypeError, "in uint8"),
        (torch.zeros(2, 4, 4, dtype=torch.uint8), INDEX[:2], TypeError, r"\(N, C, H, W\)"),
        (torch.zeros(2, 1, 4, 4, dtype=torch.uint8), INDEX, DataError, "2 images but 3 labels"),
        (torch.zeros(0, 1, 4, 4, dtype=torch.uint8), INDEX[:0], DataError, "no image at all"),
        (
            torch.zeros(2, 1, 4, 4, dtype=torch.uint8),
            torch.tensor([0, 3]),
            DataError,
            "label 3, but classes are 0 to 2",
        ),
        (torch.zeros(2, 1, 4, 4, dtype=torch.uint8), torch.tensor([0, -1]), DataError, "label -1"),
        (
            torch.zeros(2, 1, 4, 4, dtype=torch.uint8),
            torch.tensor([0, 0.9]),
            TypeError,
            "in torch.float32",
        ),
        (torch.zeros(2, 1, 4, 4, dtype=torch.uint8), INDEX[:2, None], TypeError, r"class indices, got \(2, 1\)"),
    ],
)
def test_tensors_that_do_not_belong_together_are_refused(images, labels, error, message):
    with pytest.raises(error, match=message):
        StoredDataset(INFO, images, labels)


def test_unknown_names_and_options_are_errors_that_list_the_known():
    with pytest.raises(ValueError, match=r"unknown dataset 'mnits'; did you mean 'mnist'\? Known: affine-glyphs, "):
        load_dataset("mnits")
    with pytest.raises(TypeError, match="dataset 'mnist' has no option 'seed'; it takes download, verify"):
        load_dataset("mnist", seed=1)
    with pytest.raises(TypeError, match="split must be a name"):
        load_dataset("glyphs", 1)
    with pytest.raises(ValueError, match="split of glyphs must be one of 'train', 'test', got 'val'"):
        load_dataset("glyphs", "val")
    with pytest.raises(TypeError, match="download must be True or False, got 'no'"):
        load_dataset("mnist", download="no")


class Pairs(torch.utils.data.Dataset):
    def __init__(self, *items):
        self.items = items

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        return self.items[index]


def test_any_torch_dataset_can_be_wrapped():
    pixels = np.random.default_rng(0).integers(256, size=(5, 4, 3), dtype=np.uint8)
    tensor = torch.tensor(pixels).permute(2, 0, 1)
    data = wrap_dataset(
        Pairs((pixels, 0), (Image.fromarray(pixels), 2), (tensor, torch.tensor(1)), (tensor / 255, np.int64(1)))
    )
    assert data.images.shape == (4, 3, 5, 4)
    assert (data.images == tensor).all()
    assert data.labels.tolist() == [0, 2, 1, 1]
    assert data.classes == ("0", "1", "2")
    palette = Image.fromarray(pixels).quantize(200)
    assert (wrap_dataset(Pairs((palette, 0))).images[0].int() - tensor).abs().max() < 40
    nearly_white = wrap_dataset(Pairs((torch.full((1, 2, 2), 0.999), 0)))
    assert nearly_white.images.unique().tolist() == [255]
    assert wrap_dataset(Pairs((Image.new("LA", (4, 4)), 0))).shape == (1, 4, 4)
    clear = Image.new("RGBA", (4, 4), (9, 9, 9, 0))
    assert (wrap_dataset(Pairs((clear, 0))).images == 255).all()
    assert wrap_dataset(Pairs((Image.new("1", (4, 4), 1), 0))).images.unique().tolist() == [255]
    grey = wrap_dataset(Pairs((pixels[..., 0], 0)), classes=["a", "b"], name="mine", split="test")
    assert grey.images.shape == (1, 1, 5, 4)
    assert repr(grey) == "<mine test: 1 images of 5×4×1, 2 classes>"


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ([], "is empty"),
        ([(torch.zeros(1, 4, 4), 0), (torch.zeros(1, 5, 4), 0)], r"image 1 is \(1, 5, 4\), image 0 \(1, 4, 4\)"),
        ([(torch.zeros(1, 4, 4), 0), (torch.zeros(3, 4, 4), 0)], r"image 1 is \(3, 4, 4\), image 0"),
        ([(torch.full((1, 4, 4), 2.5), 0)], "floats in 0..1: wrap it before it is normalised"),
        ([(torch.full((1, 4, 4), float("nan")), 0)], "floats in 0..1"),
        ([(torch.zeros(1, 4, 4), "cat")], "label 0 must be a whole number, got 'cat'"),
        ([(torch.zeros(1, 4, 4), 1.0)], "label 0 must be a whole number"),
        ([torch.zeros(1, 4, 4)], r"item 0 must be \(image, label\), got Tensor"),
        ([(torch.zeros(2, 1, 4, 4), 0)], r"must have axes \(C, H, W\)"),
        ([(torch.zeros(1, 4, 4), -1)], "label -1"),
        ([(torch.zeros(1, 4, 4), 10**9)], "label 1000000000: give the classes if there are so many"),
        ([(torch.zeros(1, 4, 4), 2**70)], "must be a whole number, got 1180591620717411303424"),
        ([(torch.zeros(0, 4, 4), 0)], "must have axes"),
        ([(np.zeros((0, 4)), 0)], "must be an array"),
        ([(Image.new("F", (4, 4)), 0)], "a picture of mode F"),
        ([("a word", 0)], "must be an array .* of numbers, got str"),
    ],
)
def test_datasets_that_cannot_be_wrapped_are_named(items, message):
    with pytest.raises(DataError, match=message):
        wrap_dataset(Pairs(*items))
    with pytest.raises(TypeError, match="classes must be a list of names, got 'cat'"):
        wrap_dataset(Pairs(*items), classes="cat")
    with pytest.raises(TypeError, match="needs a length, generator has none"):
        wrap_dataset(item for item in items)


def test_targets_are_the_labels_of_a_batch_or_pairs_of_them():
    one, two = (load_dataset(name, length=6, image_size=36) for name in ("glyphs", "multi-glyphs"))
    assert (one.labels_per_image, two.labels_per_image, two.subset([1]).labels_per_image) == (1, 2, 2)
    assert torch.equal(one.batch([0, 5]).targets, one.labels[[0, 5]])
    batch = two.batch([0, 5])
    assert batch.targets.T.tolist() == [batch.labels.tolist(), batch.second_label.tolist()]


def test_a_reconstruction_should_look_like_the_image_or_like_each_digit_alone():
    one, two = (load_dataset(name, length=6, image_size=36).batch([0, 5]) for name in ("glyphs", "multi-glyphs"))
    assert one.reconstruction_target is one.images
    assert torch.equal(two.reconstruction_target, two.originals)
    assert two.reconstruction_target.shape == (2, 2, 1, 36, 36)


def test_an_image_of_a_part_has_the_index_of_the_whole():
    data = load_dataset("glyphs", "test")
    few = data.limit(200).subset([7, 3])
    assert [few.original_index(index) for index in (0, 1)] != [7, 3]
    for index in (0, 1):
        assert torch.equal(few[index][0], data[few.original_index(index)][0])
    assert data.original_index(12) == 12
