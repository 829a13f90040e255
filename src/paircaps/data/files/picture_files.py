"""Picture files of a folder: which there are, reading many of them in threads, and what is said of damaged ones."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from paircaps._utils.words import counted, visible
from paircaps.data.errors import DataError, os_data_error
from paircaps.pictures import SUFFIXES, UNREAD, UNREAD_KIND

_NAMED_MOST = 20
_GO_ON = "on_error='skip' goes past such pictures (in a training: --data.on_error skip)"


class LabelledPicture(NamedTuple):
    """A picture file with its class index."""

    path: Path
    label: int


def picture_files(folder: Path, skipped: list[str] | None) -> list[Path]:
    """Pictures in a folder and the folders in it, sorted; those of a kind that is not read are an error, or skipped."""

    def refuse(error: OSError) -> None:
        raise os_data_error("read the folder", error.filename, error)

    found = []
    for place, folders, names in os.walk(folder, onerror=refuse):
        folders[:] = sorted(name for name in folders if not is_hidden(name))
        for path in (Path(place, name) for name in sorted(names) if not is_hidden(name)):
            if path.suffix.lower() in UNREAD:
                reason = f"{path}: {UNREAD_KIND}"
                if skipped is None:
                    raise DataError(f"{reason}; {_GO_ON}")
                skipped.append(reason)
            if path.suffix.lower() in SUFFIXES:
                found.append(path)
    return found


def is_hidden(name: str) -> bool:
    """Whether a file or folder is one that systems make for themselves."""
    return name.startswith(".") or name == "__MACOSX"


def all_good(
    pictures: Sequence[LabelledPicture], results: Sequence[Any], skipped: list[str] | None
) -> tuple[list[LabelledPicture], list[Any]]:
    """Pictures that could be read, and what was read of each; the errors of the others go to ``skipped``.

    Raises:
        DataError: if some could not be read and ``skipped`` is None; it names them.
    """
    bad = [str(result) for result in results if isinstance(result, DataError)]
    if bad and skipped is None:
        raise DataError(*_first_lines(bad), _GO_ON)
    if skipped is not None:
        skipped += bad
    good = [pair for pair in zip(pictures, results, strict=True) if not isinstance(pair[1], DataError)]
    return [picture for picture, _ in good], [result for _, result in good]


def list_skipped(skipped: Sequence[str]) -> str:
    """The pictures that were skipped, one line each, after how many they are."""
    lines = "".join(f"\n  {visible(line)}" for line in _first_lines(skipped))
    return f"{counted(len(skipped), 'picture')} skipped, which cannot be read:{lines}"


def _first_lines(reasons: Sequence[str]) -> list[str]:
    more = [f"and {len(reasons) - _NAMED_MOST} more"] if len(reasons) > _NAMED_MOST else []
    return [*reasons[:_NAMED_MOST], *more]


def in_threads(task: Callable[[Path], Any], pictures: Sequence[LabelledPicture]) -> list[Any]:
    """Run a task for all pictures in threads; results in order, a DataError as the result of a damaged one.

    Decoding and hashing release Python's lock.
    """

    def result(picture: LabelledPicture) -> Any:
        try:
            return task(picture.path)
        except DataError as error:
            return error

    with ThreadPoolExecutor(max_workers=min(8, os.cpu_count() or 1)) as pool:
        try:
            return list(pool.map(result, pictures))
        except BaseException:
            pool.shutdown(cancel_futures=True)  # after Ctrl-C the others need no work
            raise
