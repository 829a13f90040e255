"""``paircaps data``: what is here, fetch it, look at it, check it."""

from __future__ import annotations

import argparse
import json
import shutil
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from paircaps.data.contact_sheet import contact_sheet, require_picture_name, save_picture
from paircaps.data.dataset import ImageDataset
from paircaps.data.errors import DataError
from paircaps.data.files.locate import find, locate, require_folder, require_published
from paircaps.data.here import source_of
from paircaps.data.metadata import METADATA, Metadata
from paircaps.data.named import is_folder, load_named
from paircaps.data.registry import require_known

_OPTIONAL = {("svhn", "extra")}
"""Splits that are fetched and checked only when they are asked for by name."""


def list_datasets(options: argparse.Namespace) -> int:
    """Print every dataset: whether it is here, where, and under what terms."""
    require_folder(options.data_dir)
    rows = [_row(card, options.data_dir) for card in METADATA.values()]
    if options.json:
        print(json.dumps(rows, indent=2, ensure_ascii=False))
        return 0
    width = max(shutil.get_terminal_size((100, 24)).columns, 60)
    for row in rows:
        print(row["name"])
        for line in _lines(row):
            print(textwrap.fill(line, width, initial_indent="    ", subsequent_indent="        "))
    print("\nYour own pictures: give a folder with one subfolder a class in place of a name.")
    return 0


def _lines(row: dict[str, Any]) -> Iterator[str]:
    """What is said of a dataset below its name."""
    counts = " + ".join(f"{count:,} {split}" for split, count in row["images"].items())
    channels, height, width = row["shape"]
    yield f"{row['title']}; {counts} images of {height}×{width}×{channels}"
    if row["stand_in_for"]:
        yield f"a stand-in for {row['stand_in_for']}, which it is not"
    yield row["state"]
    yield f"licence: {row['licence']}"
    yield f"cite: {row['citation']}"


def get_datasets(options: argparse.Namespace) -> int:
    """Find or download every file of the datasets named."""
    cards = [_card(name) for name in options.names]
    failures: list[str] = []
    for card in cards:
        source = source_of(card)
        splits = _splits(source, options.split)
        if not source.files:
            print(f"{card.name}: made on the fly, nothing to download")
        for split in splits:
            try:
                _get_split(source, split, options.data_dir)
            except DataError as error:
                failures.append(str(error))
    if failures:
        raise DataError("\n".join(failures))
    return 0


def _get_split(card: Metadata, split: str, root: Path | None) -> None:
    """Find or fetch the files of a split, and see that they are the published ones."""
    paths = locate(card, split, root)
    published = {file.name: file for files in card.files[split] for file in files}
    for place in paths:
        known = [file for file in published.values() if place.name in (file.name, *file.also)]
        require_published(place, known[0])
        print(place)


def show_dataset(options: argparse.Namespace) -> int:
    """Draw a contact sheet."""
    require_picture_name(options.out)
    card = METADATA.get(options.name)
    split = options.split or (next(iter(card.counts)) if card else "train")
    dataset = load_named(options.name, split, options.data_dir, dict(options.option))
    save_picture(contact_sheet(dataset, options.columns, options.rows, options.seed), options.out)
    print(f"{options.out}: {dataset!r}")
    return 0


def check_datasets(options: argparse.Namespace) -> int:
    """Read datasets whole; say what is in them, and go on after one that is damaged."""
    code = 0
    cards = [None if is_folder(name) else _card(name) for name in options.names]  # a wrong name shows before the work
    for name, card in zip(options.names, cards, strict=True):
        usual = _splits(card, None) if card and card.files else ["train", "test"]
        own: dict[str, object] = {"download": False} if card else {}
        for split in [options.split] if options.split else usual:
            try:
                dataset = load_named(name, split, options.data_dir, {**own, **dict(options.option)})
                _read_whole(dataset)
            except DataError as error:
                print(f"BAD   {name} {split}: {error}")
                code = 1
            else:
                print(f"good  {dataset!r}: {_counts(dataset)}")
    return code


def _read_whole(dataset: ImageDataset) -> None:
    """Every image once; of a made dataset that is drawing it."""
    for index in dataset.chunks():
        dataset.batch(index)


def _counts(dataset: ImageDataset) -> str:
    counts = dataset.class_counts().tolist()
    return ", ".join(f"{name} {count:,}" for name, count in zip(dataset.classes, counts, strict=True))


def _row(card: Metadata, root: Path | None) -> dict[str, Any]:
    """What `data list` says of a dataset."""
    source = source_of(card)
    places = {split: find(source, split, root) for split in _splits(source, None)}
    return {
        "name": card.name,
        "title": card.title,
        "here": all(places.values()),
        "state": _state(card, source, places),
        "folders": _folders(places),
        "images": card.counts,
        "shape": card.shape,
        "classes": card.classes,
        "licence": card.licence,
        "citation": card.citation,
        "stand_in_for": card.stand_in,
    }


def _folders(places: dict[str, list[Path] | None]) -> list[str]:
    return sorted({str(path.parent) for paths in places.values() for path in paths or []})


def _state(card: Metadata, source: Metadata, places: dict[str, list[Path] | None]) -> str:
    """Whether a dataset is here, in words."""
    if not source.files:
        return "made on the fly, always here"
    made = "" if card.files else f"made on the fly from {source.name}"
    missing = " and ".join(split for split, paths in places.items() if not paths)
    if missing:
        return f"{made}{made and '; '}not here ({missing}): paircaps data get {source.name}"
    return f"{made}, which is here" if made else f"here: {', '.join(_folders(places))}"


def _card(name: str) -> Metadata:
    if is_folder(name) or name == "folder":
        raise DataError(f"{name}: no name of a dataset; a folder of pictures is shown and checked by its path")
    try:
        require_known(name)
    except ValueError as error:
        raise DataError(str(error)) from None
    return METADATA[name]


def _splits(card: Metadata, wanted: str | None) -> list[str]:
    """Splits to fetch or check: those with files, or the one that was asked for."""
    if wanted is None:
        return [split for split in card.files if (card.name, split) not in _OPTIONAL]
    if wanted not in card.counts:
        raise DataError(f"{card.name} has no split {wanted!r}, only {', '.join(card.counts)}")
    return [wanted] if card.files else []
