"""Everything at once: every experiment whose data, or its stand-in, is here, and a complete report of it."""

import os
from pathlib import Path

import pytest

from paircaps.cli import main
from paircaps.data.files.locate import VARIABLE
from paircaps.paper.experiments import find_experiments
from paircaps.paper.plan import available_data
from paircaps.paper.records import read_cell
from paircaps.paper.report.sections import experiment_section

EXPERIMENTS = {experiment.name: experiment for experiment in find_experiments(["all"])}


@pytest.fixture(autouse=True)
def _without_house_numbers(monkeypatch):
    """SVHN cropped anew from the full numbers is not the published file: reproducing the paper refuses it."""
    folders = os.environ.get(VARIABLE, "").split(os.pathsep)
    monkeypatch.setenv(VARIABLE, os.pathsep.join(name for name in folders if not (Path(name) / "svhn").is_dir()))


def test_reproduce_all(tmp_path, capsys):
    out = tmp_path / "results"
    words = ["reproduce", "all", "--limit", "32", "--epochs", "1", "--seeds", "1", "--out", str(out), "--quiet"]
    assert main(words) == 0
    said = capsys.readouterr().err
    for experiment in EXPERIMENTS.values():
        for study in experiment.studies:
            if experiment.kind == "times":
                assert (out / "runs" / experiment.name / study.data / "metrics.jsonl").is_file()
                continue
            study_data = available_data(study)
            for variant in experiment.networks:
                cell = read_cell(out, experiment, study, variant)
                assert len(cell.records) == (0 if study_data.missing else 1)
                assert cell.reason == study_data.missing, "what is not there has its reason"
            assert not study_data.missing or f"no data: {experiment.name}: {study_data.missing}" in said
    text = (out / "report.md").read_text()
    for experiment in EXPERIMENTS.values():
        assert f"## {experiment.title}: " in text
    assert "![table3](pictures/table4-affine-" in text
    assert "![table5](pictures/table5-multi-" in text
    pages = {name: (out / name).read_bytes() for name in ("report.html", "report.md")}
    assert main(words) == 0
    assert "was finished already" in capsys.readouterr().err
    assert {name: (out / name).read_bytes() for name in pages} == pages
    assert experiment_section(EXPERIMENTS["table5"], out, out / "pictures").missing_pictures == ()
