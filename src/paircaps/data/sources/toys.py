"""Toys: metadata, reader and registration of a dataset of drawn toys, a stand-in for smallNORB."""

from __future__ import annotations

import math
import sys
import warnings
import zlib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import torch
from torch import Tensor

from paircaps._utils.checks import height_and_width, require_choice
from paircaps._utils.extras import require_extra
from paircaps._utils.files import file_size, write_whole
from paircaps._utils.images import resized
from paircaps.data.dataset import Batch, ImageDataset, Indices, Info, as_index
from paircaps.data.files.locate import Root, user_cache
from paircaps.data.metadata import Metadata
from paircaps.data.registry import register_dataset
from paircaps.data.synthetic.toy_shapes import CLASSES
from paircaps.data.synthetic.toy_views import AZIMUTHS, ELEVATIONS, LIGHTINGS, SIZE, Views, draw_toys
from paircaps.data.viewpoints import seen_from

DRAWING = 1
"""Number of the way in which toys are drawn, part of the folder in which they are kept: another one is drawn anew."""

SPLITS = {"train": (4, 6, 7, 8, 9), "test": (0, 1, 2, 3, 5)}
"""Toys of each class that a split shows, as in smallNORB; no toy is in both."""

TOYS_OF_A_SPLIT = len(CLASSES) * len(SPLITS["train"])
"""Number of toys in a split."""

STEREO = ("images", "channels")
"""Values of ``stereo``: every pair of pictures as two images of one channel, or as one image of two."""

_PAIRS = len(ELEVATIONS) * len(AZIMUTHS) * len(LIGHTINGS)  # of a toy
_PIXELS = 2 * _PAIRS * SIZE * SIZE  # of a toy
_WORTH_ALL = _PAIRS // 8  # pairs of one toy from which on all toys are drawn and kept
_WORTH_ALL_TOO = 2 * _PAIRS  # pictures drawn here and there from which on the same is done

TOYS = Metadata(
    "toys",
    "drawn toys under known lighting, elevation and azimuth, seen by two cameras",
    {split: 2 * _PAIRS * len(CLASSES) * len(instances) for split, instances in SPLITS.items()},
    (1, SIZE, SIZE),
    CLASSES,
    "as paircaps",
    "made by paircaps; no citation needed",
    base="toys",
    stand_in="smallNORB",
)


class ToyDataset(ImageDataset):
    """Pictures of toys, each a pure function of its index, drawn when they are asked for.

    Whoever asks for many pictures gets all toys of the split drawn once, on all threads, and kept in a folder. Toys
    that were read from there stay in memory, so that pictures can be asked for in any order.
    Extras are those of smallNORB: ``instance``, ``elevation`` (0 to 8: 30° and 5° more each), ``azimuth`` (0 to 34, in
    tens of degrees), ``lighting`` (0 to 5), and ``camera`` (0 left, 1 right) where pairs are parted.

    Args:
        split: ``"train"`` or ``"test"``.
        folder: where drawn toys are kept.
        stereo: ``"images"`` or ``"channels"``.
        size: (height, width) to which the pictures of 96×96 are scaled.
    """

    def __init__(self, split: str, folder: Path, stereo: str, size: tuple[int, int]) -> None:
        require_choice(f"split of {TOYS.name}", split, SPLITS)
        require_choice("stereo", stereo, STEREO)
        self.info = Info(TOYS.name, split, CLASSES, f"a stand-in for {TOYS.stand_in}")
        self.folder, self.stereo, self.size = folder, stereo, size
        self.shape = (1 if stereo == "images" else 2, *size)
        self._read_toys: dict[int, Tensor] = {}  # kept pictures of the toys that were read, (pictures, 1, H, W)
        self._drawn = 0  # pictures that were drawn because they were not kept
        self._cannot_keep = False

    def __len__(self) -> int:
        return TOYS.counts[self.info.split] // self.shape[0]

    def annotations(self, index: Indices, epoch: int = 0) -> Mapping[str, Tensor]:
        """Labels and extras of an index (B,) by name."""
        index = as_index(index, len(self))
        views = self._views(index if self.stereo == "images" else 2 * index)
        extras = views._asdict()
        extras["labels"] = extras.pop("kind")
        extras["azimuth"] = 2 * extras["azimuth"]
        if self.stereo == "channels":
            del extras["camera"]
        return extras

    def batch(self, index: Indices, epoch: int = 0) -> Batch:
        """Images in uint8, labels and extras of an index (B,)."""
        index = as_index(index, len(self))
        both = index if self.stereo == "images" else torch.stack([2 * index, 2 * index + 1], -1).flatten()
        images = self._pictures(both).view(len(index), *self.shape)
        extras = dict(self.annotations(index))
        return Batch(images, extras.pop("labels"), index, extras)

    def to(self, device: torch.device | str) -> ImageDataset:
        """Copy of all pictures on a device."""
        return self.in_memory().to(device) if torch.device(device).type != "cpu" else self

    def keep(self) -> None:
        """Draw all toys of the split that are not kept yet, and keep them; where that cannot be, a warning says so."""
        if self._cannot_keep or not self._missing():
            return
        try:
            self._draw_and_keep()
        except OSError as error:  # a folder that cannot be written, or a full disk: they are drawn when asked for
            self._cannot_keep = True
            warnings.warn(
                f"toys cannot be kept at {self.folder}: {error.strerror}; they are drawn when they are needed",
                stacklevel=2,
            )

    def _draw_and_keep(self) -> None:
        require_extra("drawing all toys", "filelock", "tqdm")
        from filelock import FileLock
        from tqdm import tqdm

        self.folder.mkdir(parents=True, exist_ok=True)
        # ranks of one run ask at the same moment: the first one draws, the others find it done
        with FileLock(self.folder / f".{self.info.split}.lock"):
            missing = self._missing()
            count, shown = 2 * _PAIRS * len(missing), sys.stderr.isatty()
            if count and not shown:
                print(f"drawing {count:,} images of toys, {self.info.split}", file=sys.stderr)
            with tqdm(total=count, desc=f"toys {self.info.split}", unit=" images", disable=not shown) as bar:
                for toy, pictures in zip(missing, self.drawn(missing), strict=True):
                    write_whole(self._path(toy), zlib.compress(pictures.numpy().tobytes(), 1))
                    bar.update(len(pictures))

    def _missing(self) -> list[int]:
        """Numbers of the toys that are not kept."""
        toys = range(len(CLASSES) * len(SPLITS[self.info.split]))
        return [toy for toy in toys if not self._path(toy).exists()]

    def drawn(self, toys: Sequence[int]) -> Iterator[Tensor]:
        """All pictures of some toys, (pictures, 96, 96) each, drawn by as many threads as PyTorch has, one toy each.

        Args:
            toys: numbers of the toys, class by class.
        """
        threads = torch.get_num_threads()
        pool = ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,))
        try:
            yield from pool.map(self._draw, toys)
        finally:
            pool.shutdown(cancel_futures=True)
            torch.set_num_threads(threads)  # a thread of the pool sets the number of some libraries for all

    def _views(self, picture: Tensor) -> Views:
        """Views of pictures by number: the camera changes first, then the lighting, the azimuth and so on."""
        instances = torch.tensor(SPLITS[self.info.split])
        sizes = (len(CLASSES), len(instances), len(ELEVATIONS), len(AZIMUTHS), len(LIGHTINGS), 2)
        views = Views(*torch.unravel_index(picture, sizes))
        return views._replace(instance=instances[views.instance])

    def _pictures(self, picture: Tensor) -> Tensor:
        """Pictures by number, (B, 1, H, W): kept ones are read, a few others drawn."""
        toy = picture // (2 * _PAIRS)
        if len(toy) and (int(torch.bincount(toy).max()) >= _WORTH_ALL or self._drawn >= _WORTH_ALL_TOO):
            self.keep()
        pictures = torch.empty(len(picture), 1, *self.size, dtype=torch.uint8)
        for one in toy.unique().tolist():
            rows = (toy == one).nonzero()[:, 0]
            numbers, kept = picture[rows], self._kept(one)
            if kept is None:
                pictures[rows] = self._scaled(draw_toys(self._views(numbers)))
                self._drawn += len(rows)
            else:
                pictures[rows] = self._scaled(kept[numbers - one * 2 * _PAIRS])
        return pictures

    def _scaled(self, pictures: Tensor) -> Tensor:
        """Pictures (B, 1, ...) in the size of the images."""
        return pictures if pictures.shape[2:] == self.size else resized(pictures, self.size)

    def _draw(self, toy: int) -> Tensor:
        """All pictures of a toy, (pictures, 96, 96)."""
        return draw_toys(self._views(torch.arange(toy * 2 * _PAIRS, (toy + 1) * 2 * _PAIRS)))[:, 0]

    def _path(self, toy: int) -> Path:
        """File of a toy's pictures."""
        instances = SPLITS[self.info.split]
        return self.folder / f"{CLASSES[toy // len(instances)]}-{instances[toy % len(instances)]}.zlib"

    def _kept(self, toy: int) -> Tensor | None:
        """Kept pictures of a toy, (pictures, 1, ...), read once; None if there are none yet, or they are damaged."""
        if toy not in self._read_toys:
            pictures = self._read(toy)
            if pictures is None:
                return None
            # held in the smaller size, of the images or as they are drawn
            self._read_toys[toy] = self._scaled(pictures) if math.prod(self.size) < SIZE * SIZE else pictures
        return self._read_toys[toy]

    def _read(self, toy: int) -> Tensor | None:
        """Kept pictures of a toy, (pictures, 1, 96, 96); None if there are none. A damaged file is removed."""
        path = self._path(toy)
        if not path.is_file():
            return None
        content = b""
        try:
            if file_size(path) <= 2 * _PIXELS:
                content = zlib.decompressobj().decompress(path.read_bytes(), _PIXELS + 1)
        except OSError:
            return None
        except zlib.error:
            content = b""
        if len(content) != _PIXELS:
            with suppress(OSError):  # so that the toy is drawn and kept again
                path.unlink()
            return None
        return torch.frombuffer(bytearray(content), dtype=torch.uint8).view(-1, 1, SIZE, SIZE)


def load_toys(
    split: str,
    root: Root = None,
    stereo: str = "images",
    image_size: int | tuple[int, int] | None = None,
    viewpoints: str = "all",
) -> ImageDataset:
    """Drawn toys of five classes, 25 of them to train on and 25 others to test on.

    Args:
        split: train or test.
        root: folder in which drawn toys are kept; None for the user's cache.
        stereo: ``"images"``, every pair as two images of one channel; ``"channels"``, as one image of two.
        image_size: height and width to scale the 96×96 images down to.
        viewpoints: one of ``paircaps.data.viewpoints.VIEWPOINTS``, such as ``"familiar-azimuths"``.
    """
    size = (SIZE, SIZE) if image_size is None else height_and_width("image_size", image_size)
    folder = (user_cache() if root is None else Path(root).expanduser()) / f"toys-{DRAWING}"
    return seen_from(ToyDataset(split, folder, stereo, size), viewpoints)


register_dataset("toys", load_toys, TOYS)
