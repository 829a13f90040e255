"""The results that come with the repository: their report is what is written of them, and the README quotes it."""

import re
import shutil
from pathlib import Path

import pytest

from paircaps.data.files.locate import missing_splits
from paircaps.paper.report import write_report
from paircaps.training.compare import compare_runs
from paircaps.training.compare.tables import as_markdown

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"


@pytest.mark.skipif(bool(missing_splits("mnist")), reason="the pictures of the report are drawn from MNIST")
@pytest.mark.parametrize("folder", [RESULTS, RESULTS / "longer"], ids=lambda folder: folder.name)
def test_the_report_is_that_of_the_results(tmp_path, folder):
    shutil.copytree(folder, tmp_path / folder.name)
    page, text = write_report(tmp_path / folder.name)
    assert text.read_text() == (folder / "report.md").read_text(), f"paircaps report {folder.relative_to(ROOT)}"
    embedded = re.compile(r'src="data:[^"]*"')  # another Matplotlib may draw another pixel
    assert embedded.sub("", page.read_text()) == embedded.sub("", (folder / "report.html").read_text())


@pytest.mark.parametrize("name", ["fast/runs", "fast/minutes", "grid/runs", "segment/runs", "viewpoints/runs"])
def test_the_tables_of_trainings_are_those_of_their_runs(name):
    table = as_markdown(compare_runs([RESULTS / name]))
    assert table == (RESULTS / f"{name}.md").read_text(), f"paircaps compare results/{name}/* -o results/{name}.md"


def test_no_weights_are_large():
    large = [path for path in RESULTS.rglob("*") if path.is_file() and path.stat().st_size > 5_000_000]
    assert large == []


def readme_results():
    """Rows of the table of results in README, without its head, and the text around it."""
    section = (ROOT / "README.md").read_text().split("\n## Results\n")[1].split("\n## ")[0]
    table = [line for line in section.splitlines() if line[:1] == "|"]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table]
    return rows[2:], "\n".join(line for line in section.splitlines() if line not in table)


def test_numbers_in_the_readme_are_in_a_result():
    """A number that is quoted must be in the page of results that the row stands for."""
    pages = {
        "five minutes": "fast/minutes.md",
        "fast": "fast/runs.md",
        "make demo": "bench/demo.md",
        "grid": "grid/runs.md",
        "": "report.md",
    }
    rows, _ = readme_results()
    assert 4 <= len(rows) <= 10
    for task, *here, paper in rows:
        page = next(name for words, name in pages.items() if words in task)
        quoted = re.findall(r"\d\d\.\d+(?: ± \d\.\d\d)?", " ".join(here))
        text = (RESULTS / page).read_text()
        assert quoted, task
        assert [number for number in quoted if number not in text] == [], task
        assert paper == "–" or paper in (RESULTS / "report.md").read_text(), task


def test_numbers_around_the_table_of_the_readme_are_in_a_result():
    _, text = readme_results()
    quoted = re.findall(r"\d\d\.\d+(?: ± \d\.\d\d)?", text)
    found = "".join((RESULTS / page).read_text() for page in ("fast/runs.md", "report.md"))
    assert len(quoted) > 3
    assert [number for number in quoted if number not in found] == []
