"""Tables of text: aligned columns for a terminal, and Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from paircaps._utils.words import visible

GAP = "  "
"""What stands between two columns in a terminal."""


def column_widths(rows: Sequence[Sequence[str]]) -> list[int]:
    """Width of each column: that of its longest cell."""
    return [max(len(visible(cell)) for cell in column) for column in zip(*rows, strict=True)]


def text_line(cells: Sequence[str], widths: Sequence[int], left: int = 1) -> str:
    """A row of a table for a terminal; control characters in it are shown.

    Args:
        cells: one text for each column.
        widths: widths of the columns.
        left: number of columns, from the first, that are aligned to the left; the others are to the right.
    """
    aligned = (
        f"{visible(cell):<{width}}" if number < left else f"{visible(cell):>{width}}"
        for number, (cell, width) in enumerate(zip(cells, widths, strict=True))
    )
    return GAP.join(aligned).rstrip()


def shortened(text: str, width: int) -> str:
    """A text of at most so many characters; what is left out in its middle shows as one dot character, ``…``."""
    if len(text) <= width:
        return text
    end = (width - 1) // 2
    return f"{text[: width - 1 - end]}…{text[len(text) - end :]}"


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a Markdown table; a bar or a line break in a cell does not end it."""
    return [_markdown_row(header), "|" + "---|" * len(header), *map(_markdown_row, rows)]


def _markdown_row(cells: Sequence[str]) -> str:
    escaped = (cell.replace("|", "\\|").replace("\n", "<br>") for cell in cells)
    return f"| {' | '.join(escaped)} |"
