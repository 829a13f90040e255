"""``paircaps report``: read a folder of results, and write the report as HTML and as Markdown."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

from paircaps._utils.extras import require_extra
from paircaps._utils.files import write_whole
from paircaps._utils.text_tables import markdown_table
from paircaps._utils.words import counted
from paircaps.errors import PaircapsError, TrainingError
from paircaps.paper.experiments import Experiment, experiments
from paircaps.paper.own_routing import found_variants, with_rows
from paircaps.paper.plan import RUNS
from paircaps.paper.report.document import ColumnGroup, Section, Table, TableCell
from paircaps.paper.report.sections import experiment_section
from paircaps.training.run_folder import find_runs

PICTURES = "pictures"
"""Name of the folder with the pictures that the Markdown shows, beside it."""

TITLE = "The paper, reproduced"
_INTRO = (
    "“An Efficient Agreement Mechanism in CapsNets By Pairwise Product”: its tables and figures beside what came out "
    "here. Numbers in the columns “here” come from the metrics.jsonl of trainings; those in the columns “paper” are "
    "as printed. The ± behind an accuracy is its deviation over seeds, with n − 1; behind a difference it is the "
    "standard error. What was run with less than the paper's training, or on other data, says so in its cell; a "
    "length in percent is that of the images seen, each as often as it was. A tenth of the training images is held "
    "back: it chooses the weights, and the test images are looked at once.",
    "A difference is called clear when chance alone, over so few seeds, exceeds it in less than one case of twenty "
    "(Welch's t test).",
)


def write_report(out: Path) -> list[Path]:
    """Write ``report.html``, ``report.md`` and its pictures into a folder of results.

    Args:
        out: folder of all results, the ``--out`` of ``paircaps reproduce``.

    Returns:
        The two reports, the HTML page first.
    """
    if not (out / RUNS).is_dir():
        problem = f"has no {RUNS}/: no folder of `paircaps reproduce`{_ordinary_runs(out)}"
        if not out.is_dir():
            problem = "is a file, not a folder" if out.exists() else "no such folder"
        raise PaircapsError(f"{out}: {problem}")
    # Read results into sections.
    pictures = out / PICTURES
    sections = [
        experiment_section(with_rows(experiment, found_variants(out, experiment)), out, pictures)
        for experiment in experiments().values()
        if _is_in(experiment, out)
    ]
    if not sections:
        raise PaircapsError(
            f"{out / RUNS}: holds no experiment of the paper; it has {', '.join(experiments())}"
            f"{_ordinary_runs(out / RUNS)}"
        )
    # Render and write everything.
    overview = _overview(sections, out)
    files = {out / "report.html": as_html(TITLE, _INTRO, overview, sections)}
    files[out / "report.md"] = as_markdown(TITLE, _INTRO, overview, sections)
    pictures.mkdir(exist_ok=True)
    for section in sections:
        for picture in section.pictures:
            write_whole(pictures / f"{picture.name}.png", picture.png)
    for path, text in files.items():
        write_whole(path, text.encode())
    return list(files)


def _ordinary_runs(folder: Path) -> str:
    """What to do with a folder that is an ordinary run or holds some; empty for any other."""
    try:
        runs = list(find_runs([folder]).values())
    except TrainingError:
        return ""
    if runs == [folder]:
        return f". It is an ordinary run: `paircaps compare {folder}` shows it"
    return f". It holds {counted(len(runs), 'ordinary run')}: `paircaps compare {folder}/*` compares them"


def _is_in(experiment: Experiment, out: Path) -> bool:
    return (out / RUNS / experiment.name).is_dir()


def _overview(sections: list[Section], out: Path) -> Table:
    """Table with a row for each experiment of the paper, whether it was run or not, and for others that were run."""
    there = {section.name: section for section in sections}
    rows = []
    for experiment in experiments().values():
        section = there.get(experiment.name)
        if section is None and experiment.derived_from:
            continue
        if section is None:
            here = TableCell(f"Not run: paircaps reproduce {experiment.name} --out {out.resolve().name}", is_empty=True)
        else:
            here = TableCell(
                "\n".join(finding.brief for finding in section.findings), is_empty=section.findings[0].is_empty
            )
        rows.append((TableCell(experiment.title), TableCell(experiment.claim), here))
    titles = ("of the paper", "it says", "here")
    return Table(tuple(ColumnGroup("", (title,)) for title in titles), tuple(rows))


def as_html(title: str, intro: Sequence[str], overview: Table, sections: Sequence[Section]) -> str:
    """A report as one HTML page with its pictures embedded.

    Args:
        title: title of the page.
        intro: paragraphs before the first table.
        overview: table of all experiments.
        sections: one for each experiment that was run.
    """
    require_extra("writing a report", "jinja2")
    from jinja2 import Environment, StrictUndefined

    text = (resources.files("paircaps.paper.report") / "page.html").read_text(encoding="utf-8")
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["embedded"] = lambda png: f"data:image/png;base64,{base64.b64encode(png).decode()}"
    return environment.from_string(text).render(title=title, intro=intro, overview=overview, sections=sections)


def as_markdown(title: str, intro: Sequence[str], overview: Table, sections: Sequence[Section]) -> str:
    """A report as Markdown, with its pictures in files; arguments as of :func:`as_html`."""
    lines = [f"# {title}", "", *_paragraphs(intro), *_table_lines(overview), ""]
    for section in sections:
        lines += [f"## {section.title}", "", f"*The paper:* {section.claim}", "", "*Here:*", ""]
        lines += [*(f"- {sentence}" for sentence in section.findings), "", *_table_lines(section.table), ""]
        for picture in section.pictures:
            lines += [f"![{section.name}]({PICTURES}/{picture.name}.png)", "", picture.caption, ""]
        lines += _paragraphs(section.missing_pictures)
        if section.runs is not None:
            lines += ["How it was run:", "", *_table_lines(section.runs), ""]
        lines += [*(f"- {line}" for line in section.machines), ""] if section.machines else []
    return "\n".join(lines).rstrip() + "\n"


def _paragraphs(texts: Sequence[str]) -> list[str]:
    return [line for text in texts for line in (text, "")]


def _table_lines(grid: Table) -> list[str]:
    return markdown_table(grid.columns, [[_cell_text(cell) for cell in row] for row in grid.rows])


def _cell_text(cell: TableCell) -> str:
    notes = "; ".join(cell.notes)
    return f"{cell.text} ({notes})" if notes else cell.text
