"""Steps that all readers of published datasets share."""

from __future__ import annotations

from pathlib import Path

from paircaps._utils.checks import require_bool, require_choice
from paircaps.data.dataset import Info
from paircaps.data.files.locate import Root, locate, require_published_files
from paircaps.data.metadata import Metadata


def published_files(metadata: Metadata, split: str, root: Root, download: bool, verify: bool) -> list[Path]:
    """Find or fetch the files of a split, and compare their checksums before anything reads them.

    Args:
        metadata: metadata of the dataset.
        split: one of its splits.
        root: folder to look in first, and to download to.
        download: fetch files that are not here.
        verify: refuse files that are not the published ones.
    """
    paths = find_files(metadata, split, root, download, verify)
    if verify:
        require_published_files(metadata, split, paths)
    return paths


def find_files(metadata: Metadata, split: str, root: Root, download: bool, verify: bool) -> list[Path]:
    """Check the arguments of a reader, and find or fetch the files of a split; their checksums are not compared."""
    require_bool(download=download, verify=verify)
    require_choice(f"split of {metadata.name}", split, tuple(metadata.files))
    return locate(metadata, split, root, download)


def published_info(metadata: Metadata, split: str, verified: bool, description: str = "") -> Info:
    """Name, split and classes of a dataset; its note says if the files were not compared with the published ones.

    Args:
        metadata: metadata of the dataset.
        split: one of its splits.
        verified: whether the files are the published ones.
        description: what files that are not verified say of themselves.
    """
    note = "" if verified else "files not compared with the published ones"
    told = f"{description}; {note}" if description and note else note
    return Info(metadata.name, split, metadata.classes, told, metadata.fitting)
