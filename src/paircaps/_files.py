"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import secrets
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
    path = path.resolve()  # the file that a link leads to is replaced, not the link
    partial = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        with partial.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
