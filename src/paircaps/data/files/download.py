"""Download files: checksums compared, mirrors tried in turn, one process at a time, no partial files left."""

from __future__ import annotations

import os
import sys
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import IO, Any
from urllib.parse import urljoin, urlparse

from paircaps._utils.extras import require_extra
from paircaps.data.errors import DataError, os_data_error
from paircaps.data.files.locate import VARIABLE, Root, data_folders
from paircaps.data.metadata import DataFile, Metadata

_TIMEOUT = 30  # seconds without an answer
_REDIRECTS = 5
_CHUNK = 1 << 16
_UNKNOWN_MOST = 4 << 30  # of a file whose size is not published


def fetch(metadata: Metadata, file: DataFile, root: Root = None) -> Path:
    """Download a file and return where it is now."""
    require_extra("downloading datasets", "filelock", "pooch", "requests")
    from filelock import FileLock

    folder = _destination(metadata, root)
    path, lock = folder / file.name, folder / f".{file.name}.lock"
    try:
        # ranks of one run ask at the same moment: the first one fetches, the others find it done
        with FileLock(lock):
            if not path.exists():
                _try_each(metadata, file, path)
    except OSError as error:
        raise os_data_error(f"download {file.name} to this folder", folder, error) from None
    finally:
        _tidy(folder, lock)
    return path


def _tidy(folder: Path, lock: Path) -> None:
    """Remove the lock, and the folder if it is empty."""
    with suppress(OSError):
        lock.unlink()
        folder.rmdir()


def _destination(metadata: Metadata, root: Root) -> Path:
    """First data folder that can be written to; a folder given by hand is the only choice."""
    folders = data_folders(root)[:1] if root is not None else data_folders()
    missing = [folder for folder in folders[:-1] if root is None and not folder.is_dir()]
    if missing:
        raise DataError(f"{metadata.name}: ${VARIABLE} names {missing[0]}, which is no folder: make it first")
    refused: OSError | None = None
    for folder in folders:
        inside = folder / metadata.folders[0]
        try:
            inside.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            refused = error
        else:
            if os.access(inside, os.W_OK):
                return inside
    where = " or ".join(str(folder) for folder in folders)
    reason = refused.strerror if refused else "no permission to write"
    raise DataError(f"{metadata.name}: cannot be downloaded to {where}: {reason}; give another folder with --data-dir")


def _try_each(metadata: Metadata, file: DataFile, path: Path) -> None:
    """Try each address until one gives the right file."""
    import pooch
    import requests

    reasons: list[str] = []
    known = f"md5:{file.md5}" if file.md5 else None
    pooch.get_logger().setLevel("WARNING")  # it advises on calls of its own functions
    for url in file.urls:
        try:
            pooch.retrieve(url, known, fname=path.name, path=path.parent, downloader=_Downloader(file))
        except (requests.RequestException, ValueError, DataError) as error:
            reasons.append(f"{url}: {_brief(error)}")
        else:
            return
    checked = f" (md5 {file.md5})" if file.md5 else ""
    by_hand = f"fetch it by hand{checked} and put it at {path}"
    raise DataError("\n    ".join([f"{metadata.name}: {file.name} could not be downloaded", *reasons, by_hand]))


def _brief(error: Exception) -> str:
    """Short reason of an error, without the layers of a connection pool's report."""
    text = str(error)
    if "hash" in text and "does not match" in text:
        return "what came has another checksum"
    for layer in ("NameResolutionError", "ConnectTimeout", "ReadTimeout", "Connection refused", "SSLError"):
        if layer in text:
            return {"NameResolutionError": "no such host, or no network"}.get(layer, layer)
    return text or type(error).__name__


class _Downloader:
    """Downloader for pooch that checks redirects and stops at the published size."""

    def __init__(self, file: DataFile) -> None:
        self.file = file
        self.most = file.size or _UNKNOWN_MOST

    def __call__(self, fname: str, action: Any, pooch: Any, *, check_only: bool | None = None) -> None:
        """Write the content of the address ``fname`` to the file ``action``; the names are pooch's."""
        from pooch import HTTPDownloader

        final = final_address(fname)
        bar = sys.stderr.isatty()
        if not bar:
            print(f"downloading {fname}", file=sys.stderr)
        get = HTTPDownloader(progressbar=bar, chunk_size=_CHUNK, timeout=_TIMEOUT, allow_redirects=False)
        with Path(action).open("w+b") as file:
            get(final, _Capped(file, self.most), None)  # pyright: ignore[reportArgumentType]
        if self.file.md5 is None and not zipfile.is_zipfile(action):
            raise DataError("what came is no zip archive")  # with no checksum to tell, at least that


def final_address(url: str) -> str:
    """Address that redirects lead to; one from https to http is refused, since anyone on the way could answer it."""
    import requests

    for _ in range(_REDIRECTS):
        with requests.get(url, timeout=_TIMEOUT, stream=True, allow_redirects=False) as answer:
            answer.raise_for_status()
            if not answer.is_redirect:
                return url
            target = urljoin(url, answer.headers["location"])
        schemes = urlparse(url).scheme, urlparse(target).scheme
        if schemes[1] != "https" and schemes != ("http", "http"):
            raise DataError(f"leads from {schemes[0]} to {schemes[1]} ({target}), which is refused")
        url = target
    raise DataError(f"more than {_REDIRECTS} redirects")


class _Capped:
    """File that cannot grow beyond a given size, so that a wrong answer cannot fill the disk."""

    def __init__(self, file: IO[bytes], most: int) -> None:
        self._file, self._left = file, most

    def write(self, data: bytes) -> int:
        """Write bytes, or raise a DataError if they are too many."""
        self._left -= len(data)
        if self._left < 0:
            raise DataError("sends more than the published size")
        return self._file.write(data)

    def flush(self) -> None:
        """Flush the file."""
        self._file.flush()
