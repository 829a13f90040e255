"""Metadata of a dataset: what it is, its files and their checksums, its licence and citation.

The metadata of each dataset is beside its reader, in :mod:`paircaps.data.sources`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from paircaps.pictures import Fitting

DIGITS = tuple("0123456789")
"""Classes of a dataset of digits."""

ON_DARK = Fitting(invert="light")
"""Fitting to images of light things on dark ground: dark ink on paper is inverted."""


@dataclass(frozen=True)
class DataFile:
    """A published file.

    Args:
        name: file name, as published.
        md5: checksum of the file as published, in hexadecimal; None where none is known.
        content_md5: checksum of what a gzip file unpacks to, by which a file that was packed again is known.
        size: bytes of the file, as published.
        content_size: most bytes that it unpacks to.
        urls: addresses, tried in turn; empty for a file that comes inside another.
        also: other names under which people keep the file.
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
    """Description of a dataset.

    Args:
        name: name of the dataset, as in ``load_dataset(name)``.
        title: what it shows, in one line.
        counts: number of images of each split.
        shape: (C, H, W) of an image.
        classes: names of the classes, in order of their labels.
        licence: terms of use.
        citation: how to cite it.
        files: for each split the sets of files that hold it, any one of which is enough; the last set is downloaded.
        folders: names of its folder inside a data folder; downloads go to the first one.
        system: folder of a Linux distribution's package of it.
        base: name of the dataset that a synthetic one takes its digits from.
        stand_in: what it replaces where that cannot be had.
        fitting: how a picture file must be fitted to look like its images.
    """

    name: str
    title: str
    counts: dict[str, int]
    shape: tuple[int, int, int]
    classes: tuple[str, ...]
    licence: str = "none stated"
    citation: str = "none given"
    files: dict[str, tuple[tuple[DataFile, ...], ...]] = field(default_factory=dict)
    folders: tuple[str, ...] = ()
    system: str | None = None
    base: str | None = None
    stand_in: str | None = None
    fitting: Fitting = field(default_factory=Fitting)
