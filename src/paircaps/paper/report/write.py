"""``paircaps report``: read a folder of results, write the page and its twin."""

from __future__ import annotations

from pathlib import Path

from paircaps._utils.files import write_whole
from paircaps.errors import PaircapsError
from paircaps.paper.experiments import Experiment, experiments
from paircaps.paper.plan import RUNS
from paircaps.paper.report.document import ColumnGroup, Section, Table, TableCell
from paircaps.paper.report.page import PICTURES, as_html, as_markdown
from paircaps.paper.report.sections import section_of

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
        out: the ``--out`` of ``paircaps reproduce``.

    Returns:
        The files, the page first.
    """
    if not (out / RUNS).is_dir():
        problem = f"has no {RUNS}/: no folder of `paircaps reproduce`"
        if not out.is_dir():
            problem = "is a file, not a folder" if out.exists() else "no such folder"
        raise PaircapsError(f"{out}: {problem}")
    pictures = out / PICTURES
    sections = [
        section_of(experiment, out, pictures) for experiment in experiments().values() if _is_in(experiment, out)
    ]
    if not sections:
        raise PaircapsError(f"{out / RUNS}: holds no experiment of the paper; it has {', '.join(experiments())}")
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


def _is_in(experiment: Experiment, out: Path) -> bool:
    return (out / RUNS / experiment.name).is_dir()


def _overview(sections: list[Section], out: Path) -> Table:
    """A line an experiment: those of the paper run or not, others if they were."""
    there = {section.name: section for section in sections}
    rows = []
    for experiment in experiments().values():
        section = there.get(experiment.name)
        if section is None and experiment.derived_from:
            continue
        if section is None:
            here = TableCell(f"Not run: paircaps reproduce {experiment.name} --out {out.resolve().name}", pale=True)
        else:
            here = TableCell("\n".join(finding.brief for finding in section.found), pale=section.found[0].empty)
        rows.append((TableCell(experiment.title), TableCell(experiment.claim), here))
    titles = ("of the paper", "it says", "here")
    return Table(tuple(ColumnGroup("", (title,)) for title in titles), tuple(rows))
