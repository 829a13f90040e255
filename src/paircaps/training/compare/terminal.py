"""Tables of compared runs for a terminal of any width."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from typing import Any

from paircaps._utils.text_tables import GAP, column_widths, shortened, text_line
from paircaps._utils.words import visible
from paircaps.training.compare.groups import Comparison, SeedGroup
from paircaps.training.compare.runs import ComparedRun
from paircaps.training.compare.tables import INTRO, UNFINISHED_COLUMNS, ComparedColumn, finished_columns

_SHORTEST_NAME, _WIDEST_NETWORK = 12, 28
"""Fewest characters of a run's name, and most of a network's description."""


def as_text(comparisons: Sequence[Comparison], width: int) -> str:
    """Tables for a terminal, in which groups of one dataset have letters.

    Args:
        comparisons: what to show.
        width: characters of a line; columns that do not fit are left out, and named.
    """
    finished = [group for comparison in comparisons for group in comparison.finished]
    done = [(each.data, _with_letters(each, lambda group: [group] if group.finished else [])) for each in comparisons]
    rest = [(each.data, _with_letters(each, lambda group: group.unfinished)) for each in comparisons]
    tables = [([], finished_columns(finished), done), (["not finished"], UNFINISHED_COLUMNS, rest)]
    lines, left_out = list[str](), dict[str, None]()
    for title, columns, sections in tables:
        sections = [(data, rows) for data, rows in sections if rows]
        if sections:
            table, dropped = _sections_as_text(columns, sections, width)
            lines += [*title, *table, ""]
            left_out |= dict.fromkeys(dropped)
    for comparison in comparisons:
        lines += _differences_as_text(comparison, width)
    notes = [note for comparison in comparisons for note in comparison.notes()]
    if finished:
        notes.insert(0, INTRO)
    if left_out:
        notes.append(f"Too wide for {width} columns: {', '.join(left_out)}; -o FILE.md and -o FILE.csv have them.")
    lines += [line for note in notes for line in textwrap.wrap(note, width, break_on_hyphens=False)]
    return "\n".join(lines) + "\n"


def _letter(number: int) -> str:
    """Letter of a group: A to Z, then AA, AB and so on."""
    before, last = divmod(number, 26)
    return (_letter(before - 1) if before else "") + chr(ord("A") + last)


def _with_letters(
    comparison: Comparison, items_of: Callable[[SeedGroup], Sequence[Any]]
) -> list[tuple[str, SeedGroup | ComparedRun]]:
    """Groups or runs with the letters of their groups; a single group has no letter.

    Args:
        comparison: groups of one dataset.
        items_of: function from a group to the rows that a table has of it.
    """
    letters = map(_letter, range(len(comparison.groups))) if len(comparison.groups) > 1 else [""]
    return [
        (letter, item) for letter, group in zip(letters, comparison.groups, strict=True) for item in items_of(group)
    ]


def _sections_as_text(
    columns: Sequence[ComparedColumn], sections: Sequence[tuple[str, Sequence[tuple[str, Any]]]], width: int
) -> tuple[list[str], list[str]]:
    """A table with a line above the rows of each dataset.

    Args:
        columns: columns of the table; the first one is the name.
        sections: datasets, each with its rows: letter, and group or run.
        width: characters of a line.

    Returns:
        The lines, and the titles of columns that were left out.
    """
    # leave out columns until the rest fits; a long name may be shortened
    letters = max(len(letter) for _, rows in sections for letter, _ in rows)
    indent = len(GAP) + letters + (letters > 0)
    shown = list(columns)
    while True:
        cells = [[[_cell(column, item) for column in shown] for _, item in rows] for _, rows in sections]
        titles = [column.title for column in shown]
        widths = column_widths([titles, *(row for rows in cells for row in rows)])
        excess = indent + sum(widths) + len(GAP) * (len(widths) - 1) - width
        droppable = [column for column in shown if column.drop]
        if excess <= max(0, widths[0] - _SHORTEST_NAME) or not droppable:
            break
        shown.remove(max(droppable, key=lambda column: column.drop))
    widths[0] = max(min(widths[0], _SHORTEST_NAME), widths[0] - max(0, excess))

    # write
    left = sum(title in ("run", "network") for title in titles)  # columns of words
    lines = [" " * indent + text_line(titles, widths, left)]
    for (data, rows), texts in zip(sections, cells, strict=True):
        lines.append(visible(data))
        for (letter, _), (name, *others) in zip(rows, texts, strict=True):
            start = f"{GAP}{letter}".ljust(indent)
            lines.append(start + text_line([shortened(name, widths[0]), *others], widths, left))
    return lines, [column.title for column in columns if column not in shown]


def _cell(column: ComparedColumn, item: Any) -> str:
    text = column.text(item)
    return shortened(text, _WIDEST_NETWORK) if column.title == "network" else text


def _differences_as_text(comparison: Comparison, width: int) -> list[str]:
    """The keys that differ: a column for each group if that fits, else each value with the letters of its groups."""
    if not comparison.differences:
        return []
    letters = [_letter(number) for number in range(len(comparison.groups))]
    rows = [["", *letters], *([GAP + key, *values] for key, values in comparison.differences.items())]
    widths = column_widths(rows)
    lines = [f"what differs on {visible(comparison.data)}"]
    if sum(widths) + len(GAP) * (len(widths) - 1) <= width:
        return [*lines, *(text_line(row, widths, len(row)) for row in rows), ""]
    for key, values in comparison.differences.items():
        start = (GAP + key).ljust(widths[0] + len(GAP))
        lines += textwrap.wrap(
            "; ".join(_values_with_letters(values, letters)),
            width,
            initial_indent=start,
            subsequent_indent=" " * len(start),
            break_on_hyphens=False,
        )
    return [*lines, ""]


def _values_with_letters(values: Sequence[str], letters: Sequence[str]) -> list[str]:
    """Each value once, with the letters of the groups that have it; the most frequent one is that of the others."""
    found: dict[str, list[str]] = {}
    for value, letter in zip(values, letters, strict=True):
        found.setdefault(value, []).append(letter)
    most = max(found, key=lambda value: len(found[value]))
    rare = [f"{value} ({' '.join(who)})" for value, who in found.items() if value != most]
    return [*rare, f"{most} ({'the others' if len(found[most]) > 2 else ' '.join(found[most])})"]
