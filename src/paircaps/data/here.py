"""Whether a dataset can be read without a download."""

from __future__ import annotations

from pathlib import Path

from paircaps.data.files.locate import find
from paircaps.data.metadata import METADATA, Metadata


def source_of(card: Metadata) -> Metadata:
    """The dataset whose files another one is made of, or itself."""
    return card if card.files else METADATA[str(card.base)]


def missing_splits(name: str, root: Path | None = None) -> list[str]:
    """Those of train and test whose files are not here; none for a dataset that needs no files.

    Args:
        name: of a dataset that comes with the package.
        root: a folder to look in first.
    """
    source = source_of(METADATA[name])
    return [split for split in ("train", "test") if split in source.files and not find(source, split, root)]
