"""Content of a report, before it is HTML or Markdown: sections with findings, tables and pictures."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TableCell:
    """Cell of a table.

    Args:
        text: its content.
        notes: remarks shown below the content, in the same cell.
        is_empty: whether it says only that there is no result; shown in grey.
    """

    text: str
    notes: tuple[str, ...] = ()
    is_empty: bool = False


@dataclass(frozen=True)
class ColumnGroup:
    """Columns under a common title.

    Args:
        title: common title; empty for columns that stand alone.
        columns: title of each column.
    """

    title: str
    columns: tuple[str, ...]


@dataclass(frozen=True)
class Table:
    """A table.

    Args:
        groups: its columns from left to right.
        rows: rows from top to bottom, each with one cell per column.
    """

    groups: tuple[ColumnGroup, ...]
    rows: tuple[tuple[TableCell, ...], ...]

    @property
    def columns(self) -> list[str]:
        """Titles of all columns, each with the title of its group before it."""
        return [
            f"{group.title}: {column}" if group.title and column else group.title or column
            for group in self.groups
            for column in group.columns
        ]


@dataclass(frozen=True)
class Picture:
    """Picture of a section.

    Args:
        name: name of its file, without the ending.
        png: content of the PNG file.
        caption: what it shows.
    """

    name: str
    png: bytes
    caption: str


@dataclass(frozen=True)
class Finding:
    """Sentences on the results on one dataset.

    Args:
        order: the networks with their results, the best one first.
        detail: differences between networks, and whether they are clear.
        verdict: which comparisons agree with the paper and which do not.
        is_empty: whether it says only that there are no results.
    """

    order: str
    detail: str = ""
    verdict: str = ""
    is_empty: bool = False

    def __str__(self) -> str:
        """All sentences."""
        return " ".join(text for text in (self.order, self.detail, self.verdict) if text)

    @property
    def brief(self) -> str:
        """The sentences without the differences."""
        return " ".join(text for text in (self.order, self.verdict) if text)


@dataclass(frozen=True)
class Section:
    """Section of a report: one table or figure of the paper.

    Args:
        name: name of the experiment on the command line.
        title: title in the paper, with its caption.
        claim: what the paper concludes.
        findings: results of the trainings here, one finding per dataset.
        table: the paper's numbers beside those of here.
        pictures: learning curves and reconstructions.
        missing_pictures: why pictures are missing, a sentence each.
        runs: table of how the trainings were run; None if there are none.
        machines: machines on which they were run, one line each.
    """

    name: str
    title: str
    claim: str
    findings: tuple[Finding, ...]
    table: Table
    pictures: tuple[Picture, ...]
    missing_pictures: tuple[str, ...]
    runs: Table | None
    machines: tuple[str, ...]


def empty_cell(reason: str) -> TableCell:
    """Cell without a result.

    Args:
        reason: why there is none.
    """
    return TableCell("–", (reason,), is_empty=True)
