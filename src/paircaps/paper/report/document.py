"""What a report is made of, before it is HTML or Markdown."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TableCell:
    """A cell of a table.

    Args:
        text: its content.
        notes: what has to be known beside it, in the same cell.
        pale: whether it says that there is nothing.
    """

    text: str
    notes: tuple[str, ...] = ()
    pale: bool = False


@dataclass(frozen=True)
class ColumnGroup:
    """Columns under a common title.

    Args:
        title: of them; empty for columns that stand alone.
        columns: their own titles.
    """

    title: str
    columns: tuple[str, ...]


@dataclass(frozen=True)
class Table:
    """A table.

    Args:
        groups: its columns from left to right.
        rows: of as many entries.
    """

    groups: tuple[ColumnGroup, ...]
    rows: tuple[tuple[TableCell, ...], ...]

    @property
    def columns(self) -> list[str]:
        """Titles of all columns, each with that of its group."""
        return [
            f"{group.title}: {column}" if group.title and column else group.title or column
            for group in self.groups
            for column in group.columns
        ]


@dataclass(frozen=True)
class Picture:
    """A picture of a section.

    Args:
        name: of its file, without the ending.
        png: its content.
        caption: what it shows.
    """

    name: str
    png: bytes
    caption: str


@dataclass(frozen=True)
class Finding:
    """What came out on one dataset.

    Args:
        order: the networks, the best one first.
        detail: how far they are apart, and whether that says anything.
        verdict: what of it is as in the paper, and what is not.
        empty: whether it says that there is nothing.
    """

    order: str
    detail: str = ""
    verdict: str = ""
    empty: bool = False

    def __str__(self) -> str:
        """All of it."""
        return " ".join(text for text in (self.order, self.detail, self.verdict) if text)

    @property
    def brief(self) -> str:
        """Without how far they are apart."""
        return " ".join(text for text in (self.order, self.verdict) if text)


@dataclass(frozen=True)
class Section:
    """One table or figure of the paper.

    Args:
        name: as on the command line.
        title: with its caption.
        claim: what the paper says.
        found: what came out here.
        grid: the paper's table and ours.
        pictures: that belong to it.
        absent: why pictures are missing, a sentence each.
        runs: how the trainings were run; None if there is none.
        machines: what they were run on, a line each.
    """

    name: str
    title: str
    claim: str
    found: tuple[Finding, ...]
    grid: Table
    pictures: tuple[Picture, ...]
    absent: tuple[str, ...]
    runs: Table | None
    machines: tuple[str, ...]


def empty_cell(reason: str) -> TableCell:
    """A cell without a result, with the reason."""
    return TableCell("–", (reason,), pale=True)
