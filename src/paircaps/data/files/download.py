"""Download files: checksums compared, mirrors tried in turn, one process at a time, no partial files left."""

from __future__ import annotations

import hashlib
import os
import sys
import threading
import zipfile
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from queue import Empty, Full, Queue
from typing import TYPE_CHECKING
from urllib.parse import urljoin, urlparse

from paircaps._utils.extras import require_extra
from paircaps.data.errors import DataError, os_data_error
from paircaps.data.files.locate import VARIABLE, Root, data_folders
from paircaps.data.metadata import DataFile, Metadata

if TYPE_CHECKING:
    from requests import Response

_TIMEOUT = 30.0  # seconds for the beginning of an answer, and for each chunk after it
_CHUNK = 1 << 16
_REDIRECTS = 5
_UNKNOWN_MOST = 4 << 30  # of a file whose size is not published


def fetch(metadata: Metadata, file: DataFile, root: Root = None) -> Path:
    """Download a file and return where it is now."""
    require_extra("downloading datasets", "filelock", "requests", "tqdm")
    from filelock import FileLock

    with _destination(metadata, root) as folder:
        path, lock = folder / file.name, folder / f".{file.name}.lock"
        try:
            # ranks of one run ask at the same moment: the first one fetches, the others find it done
            with FileLock(lock):
                if not path.exists():
                    _try_each(metadata, file, path)
        except OSError as error:
            raise os_data_error(f"download {file.name} to this folder", folder, error) from None
        finally:
            with suppress(OSError):
                lock.unlink()
    return path


@contextmanager
def _destination(metadata: Metadata, root: Root) -> Iterator[Path]:
    """Dataset's folder in the first data folder that can be written to; a folder given by hand is the only choice.

    Folders that had to be made for it are removed at the end if nothing is in them.
    """
    folders = data_folders(root)[:1] if root is not None else data_folders()
    missing = [folder for folder in folders[:-1] if root is None and not folder.is_dir()]
    if missing:
        raise DataError(f"{metadata.name}: ${VARIABLE} names {missing[0]}, which is no folder: make it first")
    made: list[Path] = []
    try:
        yield _writable(metadata, folders, made)
    finally:
        for folder in made:
            with suppress(OSError):  # there is something in it
                folder.rmdir()


def _writable(metadata: Metadata, folders: list[Path], made: list[Path]) -> Path:
    """Make the dataset's folder in the first of these where that is possible; ``made`` gets what was made."""
    refused: OSError | None = None
    for folder in folders:
        inside = folder / metadata.folders[0]
        try:
            made += [place for place in (inside, *inside.parents) if not place.exists()]
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
    import requests

    reasons: list[str] = []
    # always the same name, of which the lock is held: what a killed process left is replaced
    partial = path.with_name(f".{path.name}.partial")
    try:
        for url in file.urls:
            try:
                _download(url, file, partial)
            except (requests.RequestException, DataError) as error:
                reasons.append(f"{url}: {_brief(error)}")
            else:
                partial.replace(path)
                return
    finally:
        partial.unlink(missing_ok=True)
    checked = f" (md5 {file.md5})" if file.md5 else ""
    by_hand = f"fetch it by hand{checked} and put it at {path}"
    further = (f"    {line}" for line in (*reasons, by_hand))
    raise DataError(f"{metadata.name}: {file.name} could not be downloaded", *further)


def _brief(error: Exception) -> str:
    """Short reason of an error, without the layers of a connection pool's report."""
    text = str(error)
    for layer in ("NameResolutionError", "ConnectTimeout", "ReadTimeout", "Connection refused", "SSLError"):
        if layer in text:
            return {"NameResolutionError": "no such host, or no network"}.get(layer, layer)
    return text or type(error).__name__


def _download(url: str, file: DataFile, partial: Path) -> None:
    """Write what an address sends to a file, and raise a DataError if it is not the published one."""
    from tqdm import tqdm

    shown = sys.stderr.isatty()
    if not shown:
        print(f"downloading {url}", file=sys.stderr)
    most, length, md5 = file.size or _UNKNOWN_MOST, 0, hashlib.md5(usedforsecurity=False)
    with (
        partial.open("wb") as out,
        tqdm(total=file.size, unit="B", unit_scale=True, desc=file.name, disable=not shown) as bar,
        closing(_chunks(url)) as chunks,
    ):
        for chunk in chunks:
            length += len(chunk)
            if length > most:  # a wrong answer must not fill the disk
                raise DataError("sends more than the published size")
            out.write(chunk)
            md5.update(chunk)
            bar.update(len(chunk))
    if file.md5 is None and not zipfile.is_zipfile(partial):
        raise DataError("what came is no zip archive")  # with no checksum to tell, at least that
    if file.md5 is not None and md5.hexdigest() != file.md5:
        raise DataError(
            f"what came is another file: {length:,} bytes with md5 {md5.hexdigest()}, that of {file.name} is {file.md5}"
        )


def _chunks(url: str) -> Generator[bytes, None, None]:
    """Content of an address in chunks of 64 KB, each of which must come in time.

    A timeout of a socket is one of each of its bytes, so a server that sends a byte now and then is waited for without
    end, within the headers too. Therefore another thread receives, and is left behind if it takes too long.
    """
    arrived: Queue[bytes | Exception | None] = Queue(maxsize=4)
    left = threading.Event()
    threading.Thread(target=_receive, args=(url, arrived, left), daemon=True).start()
    # until the head of an answer is there: to connect and to wait have a timeout each, which says more
    seconds, slow = 2 * _TIMEOUT, "has not begun to answer within"
    try:
        while True:
            try:
                item = arrived.get(timeout=seconds)
            except Empty:
                raise DataError(f"{slow} {seconds:g} s") from None
            if item is None:
                return
            if isinstance(item, Exception):
                raise item
            seconds, slow = _TIMEOUT, f"sent less than {_CHUNK >> 10} KB in"
            yield item
    finally:
        left.set()


def _receive(url: str, arrived: Queue[bytes | Exception | None], left: threading.Event) -> None:
    """Put the content of an address into a queue, an empty chunk before it, and None or an error after it."""

    def put(item: bytes | Exception | None) -> bool:
        while not left.is_set():
            with suppress(Full):
                arrived.put(item, timeout=0.1)
                return True
        return False  # nobody waits for it any more

    try:
        with _answer(url) as answer:
            put(b"")
            for chunk in answer.iter_content(_CHUNK):
                if not put(chunk):
                    return
        put(None)
    except Exception as error:
        put(error)


def _answer(url: str) -> Response:
    """Answer of an address, after its redirects; from https to http is refused: anyone on the way could answer."""
    import requests

    for _ in range(_REDIRECTS + 1):
        answer = requests.get(url, timeout=_TIMEOUT, stream=True, allow_redirects=False)
        try:
            answer.raise_for_status()
            if not answer.is_redirect:
                return answer
            target = urljoin(url, answer.headers["location"])
            schemes = urlparse(url).scheme, urlparse(target).scheme
            if schemes[1] != "https" and schemes != ("http", "http"):
                raise DataError(f"leads from {schemes[0]} to {schemes[1]} ({target}), which is refused")
        except BaseException:
            answer.close()
            raise
        answer.close()
        url = target
    raise DataError(f"more than {_REDIRECTS} redirects")
