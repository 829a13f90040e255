"""Memory that PyTorch frees on a CPU stays with the process, for its next tensor."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Mapping

VARIABLES = ("GLIBC_TUNABLES", "MALLOC_MMAP_MAX_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "LD_PRELOAD")
"""Variables by which a user chooses how memory is allocated; if one is set, nothing is changed here."""

_TRIM_THRESHOLD, _MMAP_MAX = -1, -4
"""Names of two parameters of malloc, as glibc's ``malloc.h`` has them."""

_NEVER = 2**31 - 1


def keep_freed_memory(environ: Mapping[str, str] = os.environ) -> bool:
    """Let the process keep memory that it frees, so that the next training step finds it ready.

    By default glibc gets every tensor above 32 MB from the system, and returns it when it is freed. The system clears
    each page when it is touched first, which takes a tenth of a training step of large batches. Results do not change.
    The process keeps its largest amount of memory to its end, so this is for a process that trains and no more.

    Args:
        environ: environment variables of the process.

    Returns:
        whether the allocator was changed: only that of glibc, and only if the user has chosen nothing.
    """
    if not sys.platform.startswith("linux") or any(environ.get(name) for name in VARIABLES):
        return False
    try:
        change = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another library than glibc
        return False
    return bool(change(_MMAP_MAX, 0)) and bool(change(_TRIM_THRESHOLD, _NEVER))
