"""Files: their size before they are read, and writing whole or not at all."""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path

from paircaps.errors import DataError, os_data_error


def write_whole(path: Path, content: bytes) -> None:
    """Write a file under a temporary name beside it, then rename: a full disk or Ctrl-C leaves the old one, or none.

    Raises:
        OSError: with the file's name in it.
    """
    if path.exists() and not path.is_file():  # a terminal or a pipe cannot be replaced
        with path.open("wb") as device:
            device.write(content)
        return
    path = path.resolve()  # the file that a link leads to is replaced, not the link
    partial = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        write_synced(partial, content)
        partial.replace(path)
        sync_folder(path.parent)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def write_synced(path: Path, content: bytes) -> None:
    """Write a new file, and return when it is on the disk."""
    with path.open("xb") as file:
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
