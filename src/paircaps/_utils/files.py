"""Files: their size before they are read, and writing whole or not at all."""

from __future__ import annotations

import os
import re
import secrets
import stat
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO

from paircaps.errors import DataError, os_data_error

try:
    import fcntl
except ImportError:  # on Windows
    fcntl = None


def write_whole(path: Path, content: bytes) -> None:
    """Write a file under a temporary name beside it, then rename: a full disk or Ctrl-C leaves the old one, or none.

    What a killed process left beside the file is removed. A lock on each temporary file tells whether its process is
    alive, on whichever machine that is.

    Raises:
        OSError: with the file's name in it.
    """
    if path.exists() and not path.is_file():  # a terminal or a pipe cannot be replaced
        with path.open("wb") as device:
            device.write(content)
        return
    write_together({path: content})


def write_together(files: Mapping[Path, bytes]) -> None:
    """Write several files under temporary names beside them, then rename all: none is written unless all can be.

    Args:
        files: contents of ordinary files, or of new ones.

    Raises:
        OSError: with a file's name in it.
    """
    with ExitStack() as stack:
        partials: dict[Path, Path] = {}
        try:
            for path, content in files.items():
                path = path.resolve()  # the file that a link leads to is replaced, not the link
                _remove_abandoned(path)
                file = stack.enter_context(_locked_partial(path))
                partials[Path(file.name)] = path
                _write_and_sync(file, content)
                if fcntl is None:  # where there are no locks, an open file cannot be renamed either
                    file.close()
            for partial, path in partials.items():
                partial.replace(path)
            for folder in {path.parent for path in partials.values()}:
                sync_folder(folder)
        except BaseException:
            for partial in partials:
                partial.unlink(missing_ok=True)
            raise


def is_partial(name: str, of: str) -> bool:
    """True for the name of a temporary file of :func:`write_whole`.

    Args:
        name: name of any file.
        of: name of the file that was to be written.
    """
    return re.fullmatch(rf"\.{re.escape(of)}\.\d+\.[0-9a-f]{{8}}", name) is not None


@contextmanager
def _locked_partial(path: Path) -> Iterator[IO[bytes]]:
    """A new temporary file beside another, locked until the block ends."""
    while True:
        partial = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
        with partial.open("xb") as file:
            if fcntl is not None:
                with suppress(OSError):  # a file system without locks: what is left there stays
                    fcntl.flock(file, fcntl.LOCK_EX)
                if not os.fstat(file.fileno()).st_nlink:  # taken for abandoned before it was locked
                    continue
            yield file
            return


def _remove_abandoned(path: Path) -> None:
    """Remove temporary files of a file that no process holds any more."""
    if fcntl is None or not path.parent.is_dir():
        return
    for entry in os.scandir(path.parent):
        if is_partial(entry.name, path.name):
            with suppress(OSError), open(entry.path, "rb") as file:  # held by another, or gone by now
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.unlink(entry.path)


def write_synced(path: Path, content: bytes) -> None:
    """Write a new file, and return when it is on the disk."""
    with path.open("xb") as file:
        _write_and_sync(file, content)


def _write_and_sync(file: IO[bytes], content: bytes) -> None:
    file.write(content)
    file.flush()
    os.fsync(file.fileno())


def sync_folder(path: Path) -> None:
    """Return when the names in a folder are on the disk, after a rename for instance."""
    if os.name == "nt":  # there a folder cannot be opened, and needs no such care
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def file_size(path: Path) -> int:
    """Bytes of an ordinary file; a DataError for a pipe or a device, because reading it might never end."""
    try:
        status = path.stat()
    except OSError as error:
        raise os_data_error("read", path, error) from None
    if not stat.S_ISREG(status.st_mode):
        raise DataError(f"{path}: not an ordinary file")
    return status.st_size
