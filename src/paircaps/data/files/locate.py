"""Where data is: find it, or fetch it, and see that it is what it should be."""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Iterator
from pathlib import Path

from paircaps._utils.files import write_whole
from paircaps.data.errors import DataError, cannot
from paircaps.data.files.stream import file_size, open_stream
from paircaps.data.metadata import METADATA, DataFile, Metadata

Root = Path | str | None
"""A folder given by hand, to look in first and to download to."""

VARIABLE = "PAIRCAPS_DATA"
_CHUNK = 1 << 20


def user_cache() -> Path:
    """The folder of this user's cache that downloads go to."""
    import pooch

    return Path(pooch.os_cache("paircaps"))


def data_folders(root: Root = None) -> list[Path]:
    """Folders to look in, in this order: the given one, those of $PAIRCAPS_DATA, the user's cache."""
    given = [Path(root).expanduser()] if root is not None else []
    if given and given[0].exists() and not given[0].is_dir():
        raise DataError(f"{root}: not a folder")
    named = [Path(name).expanduser() for name in os.environ.get(VARIABLE, "").split(os.pathsep) if name]
    return [*given, *named, user_cache()]


def require_folder(root: Root) -> None:
    """Refuse a folder given by hand that is not there, where nothing is going to make it."""
    if root is not None and not Path(root).expanduser().is_dir():
        raise DataError(f"{root}: {'not a' if Path(root).expanduser().exists() else 'no such'} folder")


def locate(card: Metadata, split: str, root: Root = None, download: bool = True) -> list[Path]:
    """The files of a split, found or fetched.

    Args:
        card: of the dataset.
        split: of its splits.
        root: a folder to look in first, and to download to.
        download: fetch what is not here; otherwise say what is missing.
    """
    if not download:
        require_folder(root)
    found = find(card, split, root)
    if found:
        return found
    wanted = card.files[split][-1]
    if not download:
        raise DataError(_missing(card, wanted, data_folders(root)))
    return _fetch_all(card, wanted, root)


def _fetch_all(card: Metadata, files: tuple[DataFile, ...], root: Root) -> list[Path]:
    """Fetch what is not here; where several fail, say so of each, for a person has to fetch them all."""
    from paircaps.data.files.download import fetch

    paths, failures = [], []
    for file in files:
        try:
            paths.append(find_file(card, file, root) or fetch(card, file, root))
        except DataError as error:
            failures.append(str(error))
    if failures:
        raise DataError("\n".join(failures))
    return paths


def find(card: Metadata, split: str, root: Root = None) -> list[Path] | None:
    """The files of a split if all of one of its sets are here."""
    for files in card.files[split]:
        paths = [find_file(card, file, root) for file in files]
        if all(paths):
            return [path for path in paths if path]
    return None


def find_file(card: Metadata, file: DataFile, root: Root = None) -> Path | None:
    """Where a file is: the first place that has it."""
    for path in _candidates(card, file, root):
        if _is_there(path) and not _is_of_another(card, file, path):
            return path
    return None


def require_published(path: Path, file: DataFile) -> None:
    """Refuse a file that is not the published one, byte for byte or at least in what it unpacks to."""
    known = file.md5 or file.content_md5
    if known is None:
        return
    seen = checksum(path)
    if seen == file.md5:
        return
    if path.name != file.name and file.content_md5 is None:
        raise DataError(
            f"{path}: cannot be compared with the published {file.name}, of whose content no checksum is published; "
            "keep the file as it was published, or load this one with verify=False"
        )
    if file.content_md5 and checksum(path, content=True, most=file.content_size) == file.content_md5:
        return
    raise DataError(
        f"{path}: damaged, or not the published file: {file_size(path):,} bytes with md5 {seen}, that of {file.name} "
        f"is {known}{f' ({file.size:,} bytes)' if file.size else ''}. "
        "Remove it to have it fetched again, or load it as it is with verify=False"
    )


def checksum(path: Path, content: bool = False, most: int | None = None) -> str:
    """The md5 of a file, or of what it unpacks to."""
    md5 = hashlib.md5(usedforsecurity=False)
    if content:
        with open_stream(path, most) as stream:
            while chunk := stream.some(_CHUNK):
                md5.update(chunk)
        return md5.hexdigest()
    try:
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                md5.update(chunk)
    except OSError as error:
        raise cannot("read", path, error) from None
    return md5.hexdigest()


def _candidates(card: Metadata, file: DataFile, root: Root) -> Iterator[Path]:
    names = (file.name, *file.also)
    given = Path(root).expanduser() if root is not None else None
    for folder in data_folders(root):
        inside = [folder / name for name in card.folders]
        if folder == given:  # which may be the dataset's own
            inside.append(folder)
        yield from (place / name for place in inside for name in names)
    if card.system:
        yield from (Path(card.system) / name for name in names)


def _is_there(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError as error:
        raise cannot("look for", path, error) from None


def _is_of_another(card: Metadata, file: DataFile, path: Path) -> bool:
    """Whether a file is the published one of another dataset: Fashion-MNIST's files have the names of MNIST's."""
    if path.parent.name in card.folders:
        return False
    others = {
        known
        for other in METADATA.values()
        for sets in other.files.values()
        for files in sets
        for twin in files
        if twin.name == file.name and other.name != card.name
        for known in (twin.md5, twin.content_md5)
    }
    return bool(others) and checksum(path) in others


def _missing(card: Metadata, files: tuple[DataFile, ...], folders: list[Path]) -> str:
    names = ", ".join(file.name for file in files)
    looked = ", ".join(str(folder) for folder in folders)
    return f"{card.name}: {names} not found in {looked}. `paircaps data get {card.name}` fetches it"


def remember_checksum(path: Path, card: Metadata) -> None:
    """For a file without a published checksum: record the one first seen, and refuse another one later."""
    record = user_cache() / card.name / f"{path.name}.md5-first-seen"
    seen = checksum(path)
    try:
        first = record.read_text().strip() if record.exists() else None
    except OSError as error:
        raise cannot("read", record, error) from None
    if first is None:
        _record(record, seen, path)
    elif first != seen:
        raise DataError(
            f"{path}: its md5 is {seen}, but was {first} when first seen here (there is no published one). If this "
            f"file is right, remove {record}"
        )


def _record(record: Path, seen: str, path: Path) -> None:
    try:
        record.parent.mkdir(parents=True, exist_ok=True)
        write_whole(record, f"{seen}\n".encode())
    except OSError as error:
        warnings.warn(f"the md5 of {path}, {seen}, could not be recorded at {record}: {error.strerror}", stacklevel=2)
        return
    warnings.warn(
        f"no checksum of {path.name} is published: recorded its md5, {seen}, at {record}, and will compare with it",
        stacklevel=2,
    )
