"""Run ``paircaps data``: list, download, show and check datasets."""

from __future__ import annotations

import argparse
import json
import shutil
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from paircaps._utils.words import visible
from paircaps.cli.datasets import load_typed_dataset
from paircaps.data.contact_sheet import contact_sheet, require_picture_name, save_picture
from paircaps.data.dataset import ImageDataset
from paircaps.data.errors import DataError, wrong_input_as_data_error
from paircaps.data.files.locate import find, locate, require_folder, require_published_files
from paircaps.data.metadata import Metadata
from paircaps.data.registry import (
    FOLDER,
    all_metadata,
    dataset_metadata,
    folder_path,
    list_datasets,
    offline_options,
    registered_by,
    require_known,
    require_metadata,
    source_metadata,
)

_OPTIONAL = {("svhn", "extra")}
"""Splits that are fetched and checked only when they are asked for by name."""


def print_datasets(options: argparse.Namespace) -> int:
    """Print every dataset: where its files are, its licence and its citation."""
    require_folder(options.data_dir)
    rows = [_described_row(metadata, options.data_dir) for metadata in all_metadata()]
    rows += [_bare_row(name) for name in list_datasets() if dataset_metadata(name) is None and name != FOLDER]
    if options.json:
        print(json.dumps(rows, indent=2, ensure_ascii=False))
        return 0
    width = max(shutil.get_terminal_size((100, 24)).columns, 60)
    for row in rows:
        print(row["name"])
        for line in _lines(row):
            print(textwrap.fill(line, width, initial_indent="    ", subsequent_indent="        "))
    print("\nYour own pictures: give a folder with one subfolder per class in place of a name.")
    return 0


def _lines(row: dict[str, Any]) -> Iterator[str]:
    """Lines below the name of a dataset."""
    if row["title"]:
        counts = " + ".join(f"{count:,} {split}" for split, count in row["images"].items())
        channels, height, width = row["shape"]
        yield f"{row['title']}; {counts} images of {height}×{width}×{channels}"
    if row["stand_in_for"]:
        yield f"a stand-in for {row['stand_in_for']}, which it is not"
    yield row["state"]
    if row["licence"]:
        yield f"licence: {row['licence']}"
    if row["citation"]:
        yield f"cite: {row['citation']}"


def get_datasets(options: argparse.Namespace) -> int:
    """Find or download every file of the datasets named."""
    chosen = [_metadata(name) for name in options.names]
    failures: list[str] = []
    for metadata in chosen:
        source = source_metadata(metadata)
        splits = _splits(source, options.split)
        if not source.files:
            print(f"{metadata.name}: {'made on the fly, ' if metadata.base else ''}nothing to download")
        for split in splits:
            try:
                _get_split(source, split, options.data_dir)
            except DataError as error:
                failures += error.lines
    if failures:
        raise DataError(*failures)
    return 0


def _get_split(metadata: Metadata, split: str, root: Path | None) -> None:
    """Find or fetch the files of a split, and refuse those that are not the published ones."""
    for found in locate(metadata, split, root):
        require_published_files(metadata, split, [found])
        print(visible(str(found)))


def show_dataset(options: argparse.Namespace) -> int:
    """Draw a contact sheet."""
    require_picture_name(options.out)
    metadata = dataset_metadata(options.name)
    split = options.split or (next(iter(metadata.counts)) if metadata else "train")
    dataset = load_typed_dataset(options.name, split, options.data_dir, dict(options.option))
    save_picture(contact_sheet(dataset, options.columns, options.rows, options.seed), options.out)
    print(f"{visible(str(options.out))}: {dataset!r}")
    return 0


def check_datasets(options: argparse.Namespace) -> int:
    """Read whole datasets and print their class counts; a damaged one is reported, and the others are read."""
    code = 0
    for name in options.names:  # a wrong name shows before the work
        if folder_path(name, bare=True) is None:
            _require_dataset(name)
    for name in options.names:
        given = {**offline_options(name), **dict(options.option)}
        for split in [options.split] if options.split else _usual_splits(name):
            try:
                dataset = load_typed_dataset(name, split, options.data_dir, given)
                _read_whole(dataset)
            except DataError as error:
                print(*map(visible, error.lines_between(f"BAD   {name} {split}: ")), sep="\n      ")
                code = 1
            else:
                print(f"good  {dataset!r}: {_counts(dataset)}")
    return code


def _usual_splits(name: str) -> list[str]:
    metadata = dataset_metadata(name)
    if metadata is None:
        return ["train", "test"]
    return _splits(metadata, None) if metadata.files else list(metadata.counts)


def _read_whole(dataset: ImageDataset) -> None:
    """Read every image once; those of a synthetic dataset are drawn."""
    for index in dataset.index_chunks():
        dataset.batch(index)


def _counts(dataset: ImageDataset) -> str:
    counts = dataset.class_counts().tolist()
    return ", ".join(f"{visible(name)} {count:,}" for name, count in zip(dataset.classes, counts, strict=True))


def _described_row(metadata: Metadata, root: Path | None) -> dict[str, Any]:
    """Entry of ``data list`` for a dataset with metadata."""
    source = source_metadata(metadata)
    places = {split: find(source, split, root) for split in _splits(source, None)}
    is_known = metadata.base is not None or source.files
    return {
        "name": metadata.name,
        "title": metadata.title,
        "here": all(places.values()) if is_known else None,
        "state": _state(metadata, source, places),
        "folders": _folders(places),
        "images": metadata.counts,
        "shape": metadata.shape,
        "classes": metadata.classes,
        "licence": metadata.licence,
        "citation": metadata.citation,
        "stand_in_for": metadata.stand_in,
    }


def _bare_row(name: str) -> dict[str, Any]:
    """Entry of ``data list`` for a dataset that was registered without metadata."""
    unknown = ("title", "here", "shape", "classes", "licence", "citation", "stand_in_for")
    state = f"registered by {registered_by(name)}, no metadata"
    return {"name": name, "state": state, "folders": [], "images": {}, **dict.fromkeys(unknown)}


def _folders(places: dict[str, list[Path] | None]) -> list[str]:
    return sorted({str(path.parent) for paths in places.values() for path in paths or []})


def _state(metadata: Metadata, source: Metadata, places: dict[str, list[Path] | None]) -> str:
    """Sentence on where the files of a dataset are, or how to get them."""
    if not source.files:
        synthetic = "made on the fly, always here"
        return synthetic if metadata.base else f"registered by {registered_by(metadata.name)}, which finds its images"
    made = "" if metadata.files else f"made on the fly from {source.name}"
    missing = " and ".join(split for split, paths in places.items() if not paths)
    if missing:
        return f"{made}{made and '; '}not here ({missing}): paircaps data get {source.name}"
    return f"{made}, which is here" if made else f"here: {', '.join(_folders(places))}"


def _metadata(name: str) -> Metadata:
    """Metadata of a dataset that a user typed the name of."""
    _require_dataset(name)
    return require_metadata(name)


def _require_dataset(name: str) -> None:
    """Refuse folders of pictures, and names that nobody registered."""
    if folder_path(name, bare=True) is not None or name == FOLDER:
        raise DataError(f"{name}: no name of a dataset; a folder of pictures is shown and checked by its path")
    with wrong_input_as_data_error():
        require_known(name)


def _splits(metadata: Metadata, wanted: str | None) -> list[str]:
    """Splits to fetch or check: those with files, or the one that was asked for."""
    if wanted is None:
        return [split for split in metadata.files if (metadata.name, split) not in _OPTIONAL]
    if wanted not in metadata.counts:
        raise DataError(f"{metadata.name} has no split {wanted!r}, only {', '.join(metadata.counts)}")
    return [wanted] if metadata.files else []
