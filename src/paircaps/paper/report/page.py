"""A report as one HTML page that needs nothing beside it, and as Markdown with its pictures in files."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from importlib import resources

from paircaps.paper.report.document import Section, Table, TableCell

PICTURES = "pictures"
"""The folder of the pictures that the Markdown shows, beside it."""


def as_html(title: str, intro: Sequence[str], overview: Table, sections: Sequence[Section]) -> str:
    """The page."""
    from jinja2 import Environment, StrictUndefined

    text = (resources.files("paircaps.paper.report") / "page.html").read_text(encoding="utf-8")
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["embedded"] = lambda png: f"data:image/png;base64,{base64.b64encode(png).decode()}"
    return environment.from_string(text).render(title=title, intro=intro, overview=overview, sections=sections)


def as_markdown(title: str, intro: Sequence[str], overview: Table, sections: Sequence[Section]) -> str:
    """The same for people who read it in a repository."""
    lines = [f"# {title}", "", *_paragraphs(intro), *_table(overview), ""]
    for section in sections:
        lines += [f"## {section.title}", "", f"*The paper:* {section.claim}", "", "*Here:*", ""]
        lines += [*(f"- {sentence}" for sentence in section.found), "", *_table(section.grid), ""]
        for picture in section.pictures:
            lines += [f"![{section.name}]({PICTURES}/{picture.name}.png)", "", picture.caption, ""]
        lines += _paragraphs(section.absent)
        if section.runs is not None:
            lines += ["How it was run:", "", *_table(section.runs), ""]
        lines += [*(f"- {line}" for line in section.machines), ""] if section.machines else []
    return "\n".join(lines).rstrip() + "\n"


def _paragraphs(texts: Sequence[str]) -> list[str]:
    return [line for text in texts for line in (text, "")]


def _table(grid: Table) -> list[str]:
    head = " | ".join(_escaped(title) for title in grid.columns)
    return [
        f"| {head} |",
        "|" + "---|" * len(grid.columns),
        *(f"| {' | '.join(_cell(entry) for entry in row)} |" for row in grid.rows),
    ]


def _cell(entry: TableCell) -> str:
    notes = "; ".join(entry.notes)
    return _escaped(f"{entry.text} ({notes})" if notes else entry.text)


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", "<br>")
