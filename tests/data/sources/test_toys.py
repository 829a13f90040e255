"""The dataset of toys: its order, its extras, what is kept of it, and familiar viewpoints."""

import errno
import math
import os
import pickle
import sys
import zlib
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from paircaps.data import load_dataset
from paircaps.data.registry import dataset_metadata
from paircaps.data.sources import toys
from paircaps.data.viewpoints import FAMILIAR, VIEWPOINTS


@pytest.fixture
def few(monkeypatch):
    """A world of one elevation, two azimuths and one lighting, so that all toys are drawn in seconds."""
    monkeypatch.setattr(toys, "ELEVATIONS", (30,))
    monkeypatch.setattr(toys, "AZIMUTHS", (0, 20))
    monkeypatch.setattr(toys, "LIGHTINGS", toys.LIGHTINGS[:1])
    monkeypatch.setattr(toys, "SPLITS", {"train": (4,), "test": (0,)})
    pairs = 2
    monkeypatch.setattr(toys, "_PAIRS", pairs)
    monkeypatch.setattr(toys, "_PIXELS", 2 * pairs * 96 * 96)
    monkeypatch.setattr(toys, "_WORTH_ALL", 3)
    monkeypatch.setitem(toys.TOYS.counts, "train", 2 * pairs * 5)
    monkeypatch.setitem(toys.TOYS.counts, "test", 2 * pairs * 5)


def test_numbers_are_those_of_smallnorb(tmp_path):
    train, test = (load_dataset("toys", split, root=tmp_path) for split in ("train", "test"))
    assert len(train) == len(test) == 48_600
    assert train.classes == ("animal", "human", "airplane", "truck", "car")
    assert train.class_counts().tolist() == [9_720] * 5
    assert set(train.instance.tolist()) == {4, 6, 7, 8, 9}
    assert set(test.instance.tolist()) == {0, 1, 2, 3, 5}
    assert train.azimuth.unique().tolist() == list(range(0, 36, 2))
    assert train.elevation.unique().tolist() == list(range(9))
    assert train.lighting.unique().tolist() == list(range(6))
    assert train.camera.unique().tolist() == [0, 1]
    assert "stand-in for smallNORB" in repr(train)
    metadata = dataset_metadata("toys")
    assert metadata is not None
    assert metadata.stand_in == "smallNORB"
    # every view once
    columns = [train.labels, train.instance, train.elevation, train.azimuth, train.lighting, train.camera]
    assert len(torch.stack(columns, -1).unique(dim=0)) == 48_600


def test_pairs_as_channels_are_the_two_images(tmp_path):
    images = load_dataset("toys", "test", root=tmp_path).batch([10, 11, 40_000, 40_001]).images
    pairs = load_dataset("toys", "test", root=tmp_path, stereo="channels").batch([5, 20_000])
    assert pairs.images.shape == (2, 2, 96, 96)
    assert torch.equal(pairs.images.flatten(0, 1), images[:, 0])
    assert "camera" not in pairs.extras


def test_smaller_images_are_means(tmp_path):
    whole = load_dataset("toys", root=tmp_path).batch([3]).images.float()
    half = load_dataset("toys", root=tmp_path, image_size=48).batch([3]).images
    assert torch.equal(half.float(), torch.nn.functional.avg_pool2d(whole, 2).round())


def test_what_is_kept_is_what_is_drawn(few, tmp_path):
    dataset = load_dataset("toys", "train", root=tmp_path)
    drawn = dataset.batch(range(2)).images
    folder = tmp_path / f"toys-{toys.DRAWING}"
    assert not folder.exists()  # a few are drawn and not kept
    everything = dataset.images
    assert len(list(folder.glob("*.zlib"))) == 5
    assert torch.equal(everything[:2], drawn)
    dates = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    again = load_dataset("toys", "train", root=tmp_path)
    assert torch.equal(again.images, everything)
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == dates


def test_a_kept_picture_is_read_and_not_drawn(few, tmp_path):
    dataset = load_dataset("toys", "train", root=tmp_path)
    dataset.keep()
    path = dataset._path(0)
    path.write_bytes(zlib.compress(bytes([7]) * math.prod((4, 96, 96))))
    assert load_dataset("toys", "train", root=tmp_path).batch([0]).images.unique().tolist() == [7]


@pytest.mark.parametrize("damage", [b"", b"no zlib", "half", "long"])
def test_damaged_files_are_drawn_anew(few, tmp_path, damage):
    dataset = load_dataset("toys", "train", root=tmp_path)
    whole = dataset.images.clone()
    path = dataset._path(1)
    content = path.read_bytes()
    bad = {"half": content[: len(content) // 2], "long": zlib.compress(bytes(10_000_000))}.get(damage, damage)
    path.write_bytes(bad)
    dataset = load_dataset("toys", "train", root=tmp_path)
    assert torch.equal(dataset.batch([4, 5]).images, whole[4:6])
    assert torch.equal(dataset.images, whole)
    assert path.read_bytes() == content, "it is kept again"


def in_the_way(folder, monkeypatch):
    folder.write_text("a file")


def not_to_be_locked(folder, monkeypatch):
    """A folder of another user, or of a disk that is mounted to be read."""
    folder.mkdir()

    def refuse(lock):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), lock.lock_file)

    monkeypatch.setattr("filelock.FileLock.acquire", refuse)


def full(folder, monkeypatch):
    """A disk that is full after one toy."""
    write = toys.write_whole

    def write_one(path, content):
        if list(folder.glob("*.zlib")):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        write(path, content)

    monkeypatch.setattr(toys, "write_whole", write_one)


@pytest.mark.parametrize("spoil", [in_the_way, not_to_be_locked, full], ids=lambda spoil: spoil.__name__)
def test_a_folder_that_cannot_be_written_is_told_once_and_does_not_hurt(few, tmp_path, monkeypatch, spoil):
    expected = load_dataset("toys", "train", root=tmp_path / "other").images
    spoil(tmp_path / f"toys-{toys.DRAWING}", monkeypatch)
    dataset = load_dataset("toys", "train", root=tmp_path)
    with pytest.warns(UserWarning, match=f"toys cannot be kept at .*toys-{toys.DRAWING}: ") as said:
        images = torch.cat([dataset.batch(range(start, start + 4)).images for start in range(0, 20, 4)])
    assert len(said) == 1
    assert torch.equal(images, expected)


def test_whoever_asks_for_many_here_and_there_has_all_kept(few, tmp_path, monkeypatch):
    """Batches in random order have few pictures of each toy; each was drawn anew in every epoch."""
    monkeypatch.setattr(toys, "_WORTH_ALL_TOO", 10)
    dataset = load_dataset("toys", "train", root=tmp_path)
    folder = tmp_path / f"toys-{toys.DRAWING}"
    for start in (0, 1):
        dataset.batch(range(start, 20, 4))
    assert not folder.exists()
    dataset.batch([3])
    assert len(list(folder.glob("*.zlib"))) == 5


def test_in_any_order_a_toy_is_read_once(few, tmp_path, monkeypatch):
    dataset = load_dataset("toys", "train", root=tmp_path, image_size=48)
    dataset.keep()
    read = []
    decompress = zlib.decompressobj
    monkeypatch.setattr(zlib, "decompressobj", lambda: read.append(1) or decompress())
    order = torch.randperm(20, generator=torch.manual_seed(0)).tolist()
    images = torch.cat([dataset.batch([index]).images for index in order])
    assert len(read) == 5
    assert torch.equal(images, dataset.images[order])


def test_drawing_that_is_interrupted_leaves_whole_toys_and_goes_on_there(few, tmp_path, monkeypatch):
    draw, count = toys.draw_toys, []

    def interrupted(views):
        count.append(1)
        if len(count) == 3:
            raise KeyboardInterrupt
        return draw(views)

    monkeypatch.setattr(toys, "draw_toys", interrupted)
    with pytest.raises(KeyboardInterrupt):
        load_dataset("toys", "train", root=tmp_path).keep()
    folder = tmp_path / f"toys-{toys.DRAWING}"
    assert sorted(path.name for path in folder.iterdir()) == [".train.lock", "animal-4.zlib", "human-4.zlib"]
    assert all(len(zlib.decompress(path.read_bytes())) == 4 * 96 * 96 for path in folder.glob("*.zlib"))
    before = len(count)  # another thread may have drawn the next one
    load_dataset("toys", "train", root=tmp_path).keep()
    assert len(count) == before + 3, "two are there, three are drawn"


def test_of_two_that_draw_at_once_the_second_finds_all_done(few, tmp_path, monkeypatch):
    draw, count = toys.draw_toys, []
    monkeypatch.setattr(toys, "draw_toys", lambda views: count.append(1) or draw(views))
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: load_dataset("toys", "train", root=tmp_path).keep(), range(2)))
    assert len(count) == 5


@pytest.mark.parametrize("terminal", [True, False])
def test_drawing_shows_its_progress_on_a_terminal_and_one_line_elsewhere(few, tmp_path, monkeypatch, capsys, terminal):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal, raising=False)
    load_dataset("toys", "train", root=tmp_path).keep()
    said = capsys.readouterr().err
    if terminal:
        assert "toys train: 100%" in said
    else:
        assert said == "drawing 20 images of toys, train\n"


@pytest.mark.parametrize(
    ("viewpoints", "count"), list(zip(VIEWPOINTS, (48_600, 16_200, 32_400, 16_200, 32_400), strict=True))
)
def test_thirds_of_the_viewpoints(tmp_path, viewpoints, count):
    dataset = load_dataset("toys", root=tmp_path, viewpoints=viewpoints)
    assert len(dataset) == count
    if viewpoints != "all":
        what = viewpoints.split("-")[1].removesuffix("s")
        familiar = torch.isin(dataset.extras[what], torch.tensor(FAMILIAR[what]))
        assert familiar.all() if viewpoints.startswith("familiar") else not familiar.any()


def test_familiar_viewpoints_are_those_of_the_paper(tmp_path):
    """Hinton, Sabour and Frosst (2018): azimuths from 300° to 40°, and the three smallest elevations."""
    azimuths, elevations = (load_dataset("toys", viewpoints=f"familiar-{what}s") for what in ("azimuth", "elevation"))
    assert set(azimuths.azimuth.tolist()) == {30, 32, 34, 0, 2, 4}
    assert set(elevations.elevation.tolist()) == {0, 1, 2}
    new = load_dataset("toys", "test", viewpoints="new-azimuths")
    assert set(new.azimuth.tolist()) == set(range(6, 30, 2))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"viewpoints": "new"}, "viewpoints must be one of"),
        ({"stereo": "both"}, "stereo must be one of"),
        ({"image_size": 0}, "image_size"),
        ({"split": "extra"}, "split of toys must be one of"),
    ],
)
def test_wrong_options_are_named(tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        load_dataset("toys", options.pop("split", "train"), root=tmp_path, **options)


def test_toys_that_are_kept_later_are_read_and_the_dataset_can_be_pickled(few, tmp_path):
    """It once remembered that there was nothing to read, and held a cache that no other process could be sent."""
    dataset = load_dataset("toys", "train", root=tmp_path)
    drawn = dataset.batch([0]).images
    dataset.keep()
    path = dataset._path(0)
    path.write_bytes(zlib.compress(bytes([7]) * math.prod((4, 96, 96))))
    assert dataset.batch([0]).images.unique().tolist() == [7]
    path.unlink()
    assert torch.equal(
        pickle.loads(pickle.dumps(load_dataset("toys", "train", root=tmp_path))).batch([0]).images, drawn
    )
