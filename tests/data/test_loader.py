"""Order and augmentation are a pure function of (seed, epoch, index): for any number of processes, after any resume."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from paircaps._utils.images import as_float
from paircaps.data import AffineWarp, Compose, Flip, Loader, RandomCrop, Standardise, load_dataset
from paircaps.data.dataset import Info, StoredDataset
from paircaps.data.randomness import uniform

AUGMENT = Compose(RandomCrop(2), Flip(), AffineWarp(10))


def dataset(length=50):
    pixels = torch.randint(256, (length, 1, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    return StoredDataset(Info("d", "train", tuple("0123456789")), pixels, torch.arange(length) % 10)


def test_every_image_comes_once_an_epoch_in_another_order_each_time():
    loader = Loader(dataset(), 16)
    orders = [torch.cat([batch.index for batch in loader.epoch(epoch)]) for epoch in range(3)]
    for order in orders:
        assert torch.equal(order.sort().values, torch.arange(50))
    assert not torch.equal(orders[0], orders[1])
    assert not torch.equal(orders[0], torch.cat([batch.index for batch in Loader(dataset(), 16, seed=1).epoch(0)]))


def test_batches_carry_images_labels_and_index():
    data = dataset()
    for batch in Loader(data, 16).epoch(0):
        assert batch.images.dtype == torch.float32
        torch.testing.assert_close(batch.images, data.images[batch.index] / 255)
        assert torch.equal(batch.labels, data.labels[batch.index])


@pytest.mark.parametrize(("drop_last", "sizes"), [(False, [16, 16, 16, 2]), (True, [16, 16, 16])])
def test_the_last_batch(drop_last, sizes):
    loader = Loader(dataset(), 16, drop_last=drop_last)
    assert [len(batch) for batch in loader.epoch(0)] == sizes
    assert len(loader) == len(sizes)


def test_without_shuffling_images_come_as_they_are():
    assert torch.equal(Loader(dataset(), 20, shuffle=False).batch(3, 1).index, torch.arange(20, 40))


@settings(max_examples=25, deadline=None)
@given(
    length=st.integers(1, 60),
    batch_size=st.sampled_from([4, 8, 12]),
    world=st.sampled_from([1, 2, 4]),
    epoch=st.integers(0, 5),
    start=st.integers(0, 5),
    seed=st.integers(0, 2**40),
)
def test_processes_and_resumes_see_what_one_process_sees(length, batch_size, world, epoch, start, seed):
    data = dataset(length)
    alone = list(Loader(data, batch_size, AUGMENT, seed).epoch(epoch))
    shares = [Loader(data, batch_size, AUGMENT, seed, rank=rank, world_size=world) for rank in range(world)]
    resumed = [list(loader.epoch(epoch, start)) for loader in shares]
    assert all(len(batches) == max(0, len(alone) - start) for batches in resumed)
    for step, whole in enumerate(alone[start:]):
        together = [batches[step] for batches in resumed]
        assert torch.equal(torch.cat([share.index for share in together]), whole.index)
        assert torch.equal(torch.cat([share.images for share in together]), whole.images)
        one = Loader(data, batch_size, AUGMENT, seed).batch(epoch, start + step)
        assert torch.equal(one.images, whole.images)


def test_an_image_is_augmented_alike_wherever_it_stands_in_the_order():
    data = dataset()
    shuffled, straight = Loader(data, 7, AUGMENT), Loader(data, 50, AUGMENT, shuffle=False)
    whole = straight.batch(2, 0)
    for batch in shuffled.epoch(2):
        assert torch.equal(batch.images, whole.images[batch.index])


def test_augmentation_differs_from_epoch_to_epoch():
    loader = Loader(dataset(), 50, AUGMENT, shuffle=False)
    assert not torch.equal(loader.batch(0, 0).images, loader.batch(1, 0).images)


def test_made_datasets_load_the_same_way():
    data = load_dataset("multi-glyphs", length=64, fresh=True)
    whole = Loader(data, 32, seed=5).batch(3, 1)
    halves = [Loader(data, 32, seed=5, rank=rank, world_size=2).batch(3, 1) for rank in (0, 1)]
    assert torch.equal(torch.cat([half.images for half in halves]), whole.images)
    assert torch.equal(torch.cat([half.originals for half in halves]), whole.originals)
    assert not torch.equal(whole.images, Loader(data, 32, seed=5).batch(2, 1).images)


def test_global_random_state_is_neither_used_nor_changed():
    before = torch.random.get_rng_state()
    first = Loader(dataset(), 16, AUGMENT).batch(0, 0)
    assert torch.equal(torch.random.get_rng_state(), before)
    torch.manual_seed(99)
    assert torch.equal(Loader(dataset(), 16, AUGMENT).batch(0, 0).images, first.images)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"batch_size": 0}, ValueError, "batch_size must be at least 1, got 0"),
        ({"batch_size": 9, "world_size": 2}, ValueError, "batch_size 9 cannot be shared evenly by 2 processes"),
        ({"rank": 2, "world_size": 2}, ValueError, "rank must be below world_size, 2, got 2"),
        ({"batch_size": 64, "drop_last": True}, ValueError, "batch_size 64 is more than the 50 images there are"),
        ({"augment": [Flip()]}, TypeError, r"augment must be a step such as Flip\(\), or Compose"),
        ({"augment": Flip}, TypeError, "augment must be a step"),
        ({"dataset": "mnist"}, TypeError, r"one of load_dataset\(name\), or of wrap_dataset\(yours\), got str"),
        ({"seed": 1.5}, TypeError, "seed must be a whole number, got 1.5"),
        ({"shuffle": "yes"}, TypeError, "shuffle must be True or False"),
    ],
)
def test_wrong_arguments_are_named(options, error, message):
    with pytest.raises(error, match=message):
        Loader(**{"dataset": dataset(), **options})


def test_a_loader_is_asked_for_an_epoch():
    with pytest.raises(TypeError, match=r"for batch in loader.epoch\(0\)"):
        list(Loader(dataset()))


def test_steps_and_epochs_beyond_the_end_are_named():
    with pytest.raises(IndexError, match="step 4 of an epoch of 4 batches"):
        Loader(dataset(), 16).batch(0, 4)
    with pytest.raises(ValueError, match="start must be at least 0, got -2"):
        Loader(dataset(), 16).epoch(0, start=-2)
    with pytest.raises(ValueError, match="epoch must be at least 0"):
        Loader(dataset(), 16).batch(-1, 0)


def test_augmentation_has_numbers_of_its_own():
    """Not those of the order: images early in an epoch would else be cropped at the top."""
    data = dataset()
    batch = Loader(data, 50, AUGMENT, seed=3).batch(4, 0)
    noise = uniform(3, 4, batch.index, AUGMENT.draws, "augment")
    assert torch.equal(batch.images, as_float(AUGMENT.apply(data.images[batch.index], noise)))


def test_originals_are_floats_like_the_images():
    batch = Loader(load_dataset("multi-glyphs", length=8), 8).batch(0, 0)
    torch.testing.assert_close(batch.originals.sum(1).clamp(max=1), batch.images)
    assert batch.second_label.dtype == torch.int64


def test_a_share_of_the_last_batch_may_be_empty():
    for data in (dataset(33), load_dataset("multi-glyphs", length=33), load_dataset("translated-glyphs", length=33)):
        loader = Loader(data, 32, Compose(RandomCrop(2), Standardise()), rank=1, world_size=2)
        assert [len(batch) for batch in loader.epoch(0)] == [16, 0]


def test_fresh_images_come_with_the_epoch_of_the_loader():
    data = load_dataset("glyphs", length=10, fresh=True)
    for dataset_or_part in (data, data.to("cpu"), data.subset(range(10))):
        loader = Loader(dataset_or_part, 10, shuffle=False)
        assert torch.equal(loader.batch(2, 0).images, data.batch(torch.arange(10), 2).images / 255)
        assert not torch.equal(loader.batch(2, 0).images, loader.batch(3, 0).images)
        assert not torch.equal(loader.batch(2, 0).pose, loader.batch(3, 0).pose)
