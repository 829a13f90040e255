"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def write_whole(path: Path, content: bytes) -> None:
    """Write a file under a temporary name beside it, then rename: a full disk or Ctrl-C leaves the old one, or none.

    Raises:
        OSError: with the file's name in it.
    """
    if path.exists() and not path.is_file():  # a terminal or a pipe cannot be replaced
        with path.open("wb") as device:
            device.write(content)
        return
    handle, partial = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(partial, 0o666 & ~_umask())  # mkstemp's files are the owner's alone
        os.replace(partial, path)
    except BaseException:
        Path(partial).unlink(missing_ok=True)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
