"""Where ``paircaps explain`` writes its pictures, and in which format: one file, or a folder of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from paircaps._utils.figures import FORMATS
from paircaps._utils.files import write_whole
from paircaps.errors import PaircapsError

_OTHER_PICTURES = (".jpg", ".jpeg", ".gif", ".bmp", ".webp", ".tif", ".tiff", ".eps", ".ps", ".ppt", ".pptx")
"""Endings of files that people may ask for, and that are not written."""


@dataclass(frozen=True)
class PictureOutput:
    """Files for pictures.

    Args:
        path: a file for the only picture, or a folder.
        is_file: whether it is a file.
        format: png, svg or pdf.
        width: width of each picture in pixels.
    """

    path: Path
    is_file: bool
    format: str
    width: int

    def prepare(self) -> None:
        """Make the folder that the pictures are written to."""
        (self.path.parent if self.is_file else self.path).mkdir(parents=True, exist_ok=True)

    def write(self, name: str, content: bytes) -> Path:
        """Write a picture; returns its file.

        Args:
            name: name of the file in the folder, without its ending.
            content: what ``format`` says.
        """
        path = self.path if self.is_file else self.path / f"{name}.{self.format}"
        write_whole(path, content)
        return path


def choose_output(out: Path, format: str | None, width: int) -> PictureOutput:
    """Decide by the ending of ``-o`` and by ``--format`` what is written.

    Args:
        out: what ``-o`` says: a file if it ends in the name of a format, else a folder.
        format: what ``--format`` says, or None.
        width: width of each picture in pixels.

    Raises:
        PaircapsError: if the two contradict each other, or there is something else of that name.
    """
    ending = out.suffix.lower()
    if ending in _OTHER_PICTURES:
        raise PaircapsError(f"-o {out}: pictures are .{', .'.join(FORMATS)}, not {ending}")
    is_file = ending.removeprefix(".") in FORMATS
    if is_file and format not in (None, ending.removeprefix(".")):
        raise PaircapsError(f"-o {out} and --format {format} contradict each other: leave one of them out")
    if is_file and out.is_dir():
        raise PaircapsError(f"{out}: is a folder; a name that ends in {ending} is one for a file")
    if not is_file and out.exists() and not out.is_dir():
        raise PaircapsError(f"{out}: is a file; -o takes a folder, or a file that ends in .{', .'.join(FORMATS)}")
    return PictureOutput(out, is_file, ending.removeprefix(".") if is_file else format or "png", width)
