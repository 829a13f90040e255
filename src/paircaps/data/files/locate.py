"""Files of published datasets: find or fetch them, and compare them with their published checksums."""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Iterator
from pathlib import Path

from paircaps._utils.extras import require_extra
from paircaps._utils.files import file_size, write_whole
from paircaps.data.errors import DataError, os_data_error
from paircaps.data.files.stream import open_stream
from paircaps.data.metadata import DataFile, Metadata
from paircaps.data.registry import all_metadata, require_metadata, source_metadata

Root = Path | str | None
"""Folder given by hand, to look in first and to download to; None for none."""

VARIABLE = "PAIRCAPS_DATA"
_CHUNK = 1 << 20


def user_cache() -> Path:
    """Folder of the user's cache for downloads."""
    require_extra("finding datasets", "pooch")
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
    """Raise a DataError if a folder given by hand does not exist."""
    if root is not None and not Path(root).expanduser().is_dir():
        raise DataError(f"{root}: {'not a' if Path(root).expanduser().exists() else 'no such'} folder")


def locate(metadata: Metadata, split: str, root: Root = None, download: bool = True) -> list[Path]:
    """Find or fetch the files of a split.

    Args:
        metadata: metadata of the dataset.
        split: one of its splits.
        root: folder to look in first, and to download to.
        download: fetch what is not here; otherwise say what is missing.
    """
    if not download:
        require_folder(root)
    found = find(metadata, split, root)
    if found:
        return found
    wanted = metadata.files[split][-1]
    if not download:
        raise DataError(_missing(metadata, wanted, data_folders(root)))
    return _fetch_all(metadata, wanted, root)


def _fetch_all(metadata: Metadata, files: tuple[DataFile, ...], root: Root) -> list[Path]:
    """Fetch files that are not here; an error names all that failed, for a person has to fetch them all."""
    from paircaps.data.files.download import fetch

    paths, failures = [], []
    for file in files:
        try:
            paths.append(find_file(metadata, file, root) or fetch(metadata, file, root))
        except DataError as error:
            failures += error.lines
    if failures:
        raise DataError(*failures)
    return paths


def find(metadata: Metadata, split: str, root: Root = None) -> list[Path] | None:
    """Paths of the files of a split, if all files of one of its sets are here; otherwise None."""
    for files in metadata.files[split]:
        paths = [find_file(metadata, file, root) for file in files]
        if all(paths):
            return [path for path in paths if path]
    return None


def find_file(metadata: Metadata, file: DataFile, root: Root = None) -> Path | None:
    """Path of a file in the first folder that has it, or None."""
    for path in _candidates(metadata, file, root):
        if _is_there(path) and not _is_of_another(metadata, file, path):
            return path
    return None


def missing_splits(name: str, root: Root = None) -> list[str]:
    """Those of train and test whose files are not here; none for a dataset that needs no files.

    Args:
        name: name of a dataset with metadata.
        root: folder to look in first.
    """
    source = source_metadata(require_metadata(name))
    return [split for split in ("train", "test") if split in source.files and not find(source, split, root)]


def require_published_files(metadata: Metadata, split: str, paths: list[Path]) -> None:
    """Raise a DataError if one of the files of a split, as :func:`locate` returns them, is not the published one."""
    files = [file for alternative in metadata.files[split] for file in alternative]
    for path in paths:
        require_published(path, next(file for file in files if path.name in (file.name, *file.also)))


def require_published(path: Path, file: DataFile) -> None:
    """Raise a DataError for a file that is not the published one, in its bytes or in what it unpacks to."""
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
    """md5 of a file, or of what it unpacks to."""
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
        raise os_data_error("read", path, error) from None
    return md5.hexdigest()


def _candidates(metadata: Metadata, file: DataFile, root: Root) -> Iterator[Path]:
    names = (file.name, *file.also)
    given = Path(root).expanduser() if root is not None else None
    for folder in data_folders(root):
        inside = [folder / name for name in metadata.folders]
        if folder == given:  # which may be the dataset's own
            inside.append(folder)
        yield from (place / name for place in inside for name in names)
    if metadata.system:
        yield from (Path(metadata.system) / name for name in names)


def _is_there(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError as error:
        raise os_data_error("look for", path, error) from None


def _is_of_another(metadata: Metadata, file: DataFile, path: Path) -> bool:
    """True if a file is the published one of another dataset: Fashion-MNIST's files have the names of MNIST's."""
    if path.parent.name in metadata.folders:
        return False
    others = {
        known
        for other in all_metadata()
        for sets in other.files.values()
        for files in sets
        for twin in files
        if twin.name == file.name and other.name != metadata.name
        for known in (twin.md5, twin.content_md5)
    }
    return bool(others) and checksum(path) in others


def _missing(metadata: Metadata, files: tuple[DataFile, ...], folders: list[Path]) -> str:
    names = ", ".join(file.name for file in files)
    looked = ", ".join(str(folder) for folder in folders)
    return f"{metadata.name}: {names} not found in {looked}. `paircaps data get {metadata.name}` fetches it"


def require_first_seen(path: Path, metadata: Metadata) -> str | None:
    """Compare a file that has no published checksum with the one recorded when it was first read.

    Args:
        path: the file.
        metadata: metadata of its dataset.

    Returns:
        the md5 of the file where none is recorded yet, for :func:`record_checksum`; otherwise None.

    Raises:
        DataError: if another checksum is recorded.
    """
    record, seen = _record_of(path, metadata), checksum(path)
    try:
        first = record.read_text().strip() if record.exists() else None
    except OSError as error:
        raise os_data_error("read", record, error) from None
    if first is None:
        return seen
    if first != seen:
        raise DataError(
            f"{path}: its md5 is {seen}, but was {first} when first seen here (there is no published one). If this "
            f"file is right, remove {record}"
        )
    return None


def record_checksum(path: Path, metadata: Metadata, md5: str) -> None:
    """Record the checksum of a file that has no published one, in the user's cache, and warn that this was done."""
    record = _record_of(path, metadata)
    try:
        record.parent.mkdir(parents=True, exist_ok=True)
        write_whole(record, f"{md5}\n".encode())
    except OSError as error:
        warnings.warn(f"the md5 of {path}, {md5}, could not be recorded at {record}: {error.strerror}", stacklevel=2)
        return
    warnings.warn(
        f"no checksum of {path.name} is published: recorded its md5, {md5}, at {record}, and will compare with it",
        stacklevel=2,
    )


def _record_of(path: Path, metadata: Metadata) -> Path:
    return user_cache() / metadata.name / f"{path.name}.md5-first-seen"
