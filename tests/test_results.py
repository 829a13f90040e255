"""The results that come with the repository: their report is what is written of them, and the README quotes it."""

import re
import shutil
from pathlib import Path

import pytest

from paircaps.data.here import missing_splits
from paircaps.experiments.report import write_report

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"


@pytest.mark.skipif(bool(missing_splits("mnist")), reason="the pictures of the report are drawn from MNIST")
def test_the_report_is_that_of_the_results(tmp_path):
    shutil.copytree(RESULTS, tmp_path / "results")
    page, text = write_report(tmp_path / "results")
    assert text.read_text() == (RESULTS / "report.md").read_text(), "paircaps report results"
    embedded = re.compile(r'src="data:[^"]*"')  # another Matplotlib may draw another pixel
    assert embedded.sub("", page.read_text()) == embedded.sub("", (RESULTS / "report.html").read_text())


def test_no_weights_are_large():
    large = [path for path in RESULTS.rglob("*") if path.is_file() and path.stat().st_size > 5_000_000]
    assert large == []


def test_accuracies_in_the_readme_are_in_the_report():
    text = (ROOT / "README.md").read_text()
    section = text.split("## The paper, reproduced")[1].split("\n## ")[0]
    numbers = re.findall(r"\d\d\.\d\d(?: ± \d\.\d\d)?", section)
    assert numbers
    report = (RESULTS / "report.md").read_text()
    assert [number for number in numbers if number not in report] == []
