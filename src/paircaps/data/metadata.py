"""What is published where, by whom, under what terms: addresses, checksums, licences, citations. Facts, no code."""

from __future__ import annotations

from dataclasses import dataclass, field

DIGITS = tuple("0123456789")


@dataclass(frozen=True)
class DataFile:
    """A published file.

    Args:
        name: as published.
        md5: of the file as published; none is known of a few.
        content_md5: of what a gzip file unpacks to, so that one packed again is known too.
        size: in bytes, as published.
        content_size: most bytes that it unpacks to.
        urls: addresses, tried in turn; none for a file that comes inside another.
        also: other names under which people keep it.
    """

    name: str
    md5: str | None = None
    content_md5: str | None = None
    size: int | None = None
    content_size: int | None = None
    urls: tuple[str, ...] = ()
    also: tuple[str, ...] = ()


@dataclass(frozen=True)
class Metadata:
    """A dataset as its makers publish it, or as it is made here.

    Args:
        name: as in ``load_dataset(name)``.
        title: one line on what it is.
        counts: images of each split.
        shape: (C, H, W).
        classes: their names.
        licence: what its makers allow.
        citation: how to cite it.
        files: for each split the sets of files that hold it, any one of which will do; the last one is downloaded.
        folders: names under which it lies in a data folder; the first one is used for downloads.
        system: where a Linux distribution's package puts it.
        base: the dataset that a made one takes its digits from.
        stand_in: for what it stands in.
    """

    name: str
    title: str
    counts: dict[str, int]
    shape: tuple[int, int, int]
    classes: tuple[str, ...]
    licence: str
    citation: str
    files: dict[str, tuple[tuple[DataFile, ...], ...]] = field(default_factory=dict)
    folders: tuple[str, ...] = ()
    system: str | None = None
    base: str | None = None
    stand_in: str | None = None


def _idx_files(addresses: tuple[str, ...], sums: dict[str, tuple[str, str, int, int]]) -> dict[str, DataFile]:
    return {
        name: DataFile(
            f"{name}.gz",
            md5=md5,
            content_md5=content,
            size=size,
            content_size=content_size,
            urls=tuple(f"{address}{name}.gz" for address in addresses),
            also=(name, name.replace("-idx", ".idx")),
        )
        for name, (md5, content, size, content_size) in sums.items()
    }


def _idx_splits(files: dict[str, DataFile]) -> dict[str, tuple[tuple[DataFile, ...], ...]]:
    return {
        split: ((files[f"{prefix}-images-idx3-ubyte"], files[f"{prefix}-labels-idx1-ubyte"]),)
        for split, prefix in (("train", "train"), ("test", "t10k"))
    }


_SIZES = {"train-images-idx3-ubyte": 47_040_016, "train-labels-idx1-ubyte": 60_008}
_SIZES |= {"t10k-images-idx3-ubyte": 7_840_016, "t10k-labels-idx1-ubyte": 10_008}


def _sums(*rows: tuple[str, str, int]) -> dict[str, tuple[str, str, int, int]]:
    return {name: (*row, size) for (name, size), row in zip(_SIZES.items(), rows, strict=True)}


MNIST = Metadata(
    "mnist",
    "handwritten digits",
    {"train": 60_000, "test": 10_000},
    (1, 28, 28),
    DIGITS,
    "CC BY-SA 3.0",
    "LeCun, Bottou, Bengio, Haffner: Gradient-based learning applied to document recognition, Proc. IEEE 86(11), 1998",
    _idx_splits(
        _idx_files(
            (
                "https://ossci-datasets.s3.amazonaws.com/mnist/",
                "https://storage.googleapis.com/cvdf-datasets/mnist/",
            ),
            _sums(
                ("f68b3c2dcbeaaa9fbdd348bbdeb94873", "6bbc9ace898e44ae57da46a324031adb", 9_912_422),
                ("d53e105ee54ea40749a09fcbcd1e9432", "a25bea736e30d166cdddb491f175f624", 28_881),
                ("9fb629c4189551a2d022fa330f9573f3", "2646ac647ad5339dbf082846283269ea", 1_648_877),
                ("ec29112dd5afa0611ce80d1b7f02629c", "27ae3e4e09519cfbb04c329615203637", 4_542),
            ),
        )
    ),
    ("mnist", "MNIST", "MNIST/raw"),
)

FASHION_MNIST = Metadata(
    "fashion-mnist",
    "articles of clothing, a harder MNIST",
    {"train": 60_000, "test": 10_000},
    (1, 28, 28),
    ("T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot"),
    "MIT",
    "Xiao, Rasul, Vollgraf: Fashion-MNIST, arXiv:1708.07747, 2017",
    _idx_splits(
        _idx_files(
            ("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",),  # no https; the checksum guards it
            _sums(
                ("8d4fb7e6c68d591d4c3dfef9ec88bf0d", "f4a8712d7a061bf5bd6d2ca38dc4d50a", 26_421_880),
                ("25c81989df183df01b3e8a0aad5dffbe", "9018921c3c673c538a1fc5bad174d6f9", 29_515),
                ("bef4ecab320f06d8554ea6380940ec79", "8181f5470baa50b63fa0f6fddb340f0a", 4_422_102),
                ("bb300cfdad3c16e7a12a480ee83cd310", "15d484375f8d13e6eb1aabb0c3f46965", 5_148),
            ),
        )
    ),
    ("fashion-mnist", "FashionMNIST", "FashionMNIST/raw", "fashion_mnist"),
    system="/usr/share/datasets/fashion-mnist",
)

_CIFAR_BATCHES = {
    "data_batch_1.bin": "5dd7e06a14cb22eb9f671a540d1b7c25",
    "data_batch_2.bin": "5ea93a67294ea407fff1d09f752e9692",
    "data_batch_3.bin": "942cd6a4bcdd0dd3c604fbe906cb4421",
    "data_batch_4.bin": "ae636b3ba5c66a11e91e8cb52e771fcb",
    "data_batch_5.bin": "53f37980c15c3d472c316c40844f3f0d",
    "test_batch.bin": "803d5f7f4d78ea53de84dbe85f74fb6d",
}
_CIFAR_FILES = tuple(DataFile(name, md5=md5, size=30_730_000) for name, md5 in _CIFAR_BATCHES.items())
_CIFAR_TAR = DataFile(
    "cifar-10-binary.tar.gz",
    md5="c32a1d4ab5d03f1284b67883e8d87530",
    size=170_052_171,
    urls=("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",),
)

CIFAR10 = Metadata(
    "cifar10",
    "small colour photographs of ten kinds of things",
    {"train": 50_000, "test": 10_000},
    (3, 32, 32),
    ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
    "none stated",
    "Krizhevsky: Learning multiple layers of features from tiny images, technical report, 2009",
    {"train": (_CIFAR_FILES[:5], (_CIFAR_TAR,)), "test": (_CIFAR_FILES[5:], (_CIFAR_TAR,))},
    ("cifar10", "cifar-10-batches-bin", "cifar10/cifar-10-batches-bin"),
)


def _svhn_file(name: str, size: int, md5: str) -> tuple[tuple[DataFile, ...], ...]:
    url = f"http://ufldl.stanford.edu/housenumbers/{name}"  # no https; the checksum guards it
    return ((DataFile(name, md5=md5, size=size, urls=(url,)),),)


SVHN = Metadata(
    "svhn",
    "house numbers photographed from the street, cropped to one digit",
    {"train": 73_257, "test": 26_032, "extra": 531_131},
    (3, 32, 32),
    DIGITS,
    "non-commercial use only",
    "Netzer et al.: Reading digits in natural images with unsupervised feature learning, NIPS workshop, 2011",
    {
        "train": _svhn_file("train_32x32.mat", 182_040_794, "e26dedcc434d2e4c54c9b2d4a06d8373"),
        "test": _svhn_file("test_32x32.mat", 64_275_384, "eb5a983be6a315427106f1b164d9cef3"),
        "extra": _svhn_file("extra_32x32.mat", 1_329_278_602, "a93ce644f1a588dc4d68dda5feec44a7"),
    },
    ("svhn", "SVHN"),
)


def _norb_files(part: str, size: int, sums: str) -> tuple[tuple[DataFile, ...], ...]:
    pairs, files = 24_300, []
    contents = {"dat": 24 + pairs * 2 * 96 * 96, "cat": 20 + 4 * pairs, "info": 20 + 16 * pairs}
    for (kind, content_size), md5 in zip(contents.items(), sums.split(), strict=True):
        name = f"smallnorb-5x{part}-{kind}.mat"
        url = f"https://cs.nyu.edu/~ylclab/data/norb-v1.0-small/{name}.gz"
        known_size = size if kind == "dat" else None
        files.append(
            DataFile(f"{name}.gz", md5=md5, size=known_size, content_size=content_size, urls=(url,), also=(name,))
        )
    return (tuple(files),)


SMALLNORB = Metadata(
    "smallnorb",
    "toys under known lighting, elevation and azimuth, photographed by two cameras",
    {"train": 48_600, "test": 48_600},
    (1, 96, 96),
    ("animal", "human", "airplane", "truck", "car"),
    "research only",
    "LeCun, Huang, Bottou: Learning methods for generic object recognition with invariance to pose and lighting, "
    "CVPR 2004",
    {
        "train": _norb_files(
            "46789x9x18x6x2x96x96-training",
            131_896_188,
            "66054832f9accfe74a0f4c36a75bc0a2 23c8b86101fbf0904a000b43d3ed2fd9 51dee1210a742582ff607dfd94e332e3",
        ),
        "test": _norb_files(
            "01235x9x18x6x2x96x96-testing",
            130_799_817,
            "e4ad715691ed5a3a5f138751a4ceb071 5aa791cd7e6016cf957ce9bdb93b8603 a9454f3864d7fd4bb3ea7fc3eb84924e",
        ),
    },
    ("smallnorb", "smallNORB", "norb-small"),
)

AFFNIST = Metadata(
    "affnist",
    "MNIST's test digits under 32 affine transformations each",
    {"test": 320_000},
    (1, 40, 40),
    DIGITS,
    "none stated",
    "Tieleman: affNIST, https://www.cs.toronto.edu/~tijmen/affNIST, 2013",
    {
        "test": (
            (
                DataFile(
                    "test.mat.zip",
                    urls=("https://www.cs.toronto.edu/~tijmen/affNIST/32x/transformed/test.mat.zip",),
                    also=("test.mat", "affNIST_test.mat"),
                ),
            ),
        )
    },
    ("affnist", "affNIST", "affNIST/32x/transformed"),
)

_FONTS = "of the fonts: Bitstream Vera, STIX (OFL) and Computer Modern (BaKoMa)"
_OURS = "made by paircaps; no citation needed"


def _made(name: str, title: str, size: int, base: Metadata | None, stand_in: str | None = None) -> Metadata:
    counts = base.counts if base else {"train": 10_000, "test": 2_000}
    licence = f"{base.licence}, as {base.name}" if base else _FONTS
    citation = base.citation if base else _OURS
    base_name = base.name if base else "glyphs"
    return Metadata(name, title, counts, (1, size, size), DIGITS, licence, citation, base=base_name, stand_in=stand_in)


_STAND_IN = "aff-NIST"
GLYPHS = _made("glyphs", "digits of Matplotlib's fonts in many poses: the default, nothing to download", 28, None)
MADE = (
    GLYPHS,
    _made("translated-glyphs", "glyphs placed at random on 40×40", 40, None),
    _made("affine-glyphs", "glyphs turned, scaled, sheared and placed inside 40×40", 40, None),
    _made("multi-glyphs", "two glyphs of different digits over each other", 36, None),
    _made("translated-mnist", "MNIST placed at random on 40×40: Table 3's training set", 40, MNIST),
    _made("affine-mnist", "MNIST turned, scaled, sheared and placed inside 40×40", 40, MNIST, _STAND_IN),
    _made("multi-mnist", "two MNIST digits of different classes over each other: Table 5's set", 36, MNIST),
)

METADATA = {card.name: card for card in (MNIST, FASHION_MNIST, CIFAR10, SVHN, SMALLNORB, AFFNIST, *MADE)}
