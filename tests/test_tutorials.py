"""The tutorials run from start to end, and their text is true of what they print."""

import os
import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

TUTORIALS = Path(__file__).parent.parent / "docs" / "tutorials"
NOTEBOOKS = sorted(TUTORIALS.glob("*.ipynb"))


EXECUTED = os.environ.get("PAIRCAPS_TUTORIALS")
"""Folder of the notebooks as the site's build has just executed them, which takes a minute each; else they run here."""


def run_notebook(name, folder):
    """Run a notebook of the tutorials in a folder, or take it as it was executed.

    Returns:
        The text that each code cell printed, by the cell's id.
    """
    notebook = nbformat.read(TUTORIALS / name, as_version=4)
    if EXECUTED:
        executed = nbformat.read(Path(EXECUTED) / name, as_version=4)
        assert [cell.source for cell in executed.cells] == [cell.source for cell in notebook.cells]
        notebook, folder = executed, TUTORIALS
    else:
        place = {"metadata": {"path": str(folder)}}
        NotebookClient(notebook, timeout=900, kernel_name="python3", resources=place).execute()
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    outputs = [output for cell in cells for output in cell.outputs]
    assert [output.text for output in outputs if output.get("name") == "stderr"] == []
    own = {"ruff.toml", ".ruff_cache", ".ipynb_checkpoints", *(path.name for path in NOTEBOOKS)}
    left = [path.name for path in folder.iterdir() if path.name not in own]
    assert left == [], "a tutorial leaves nothing in the reader's folder"
    return {cell.id: "".join(output.get("text", "") for output in cell.outputs) for cell in cells}


def percentages(text):
    return [float(number) for number in re.findall(r"([\d.]+) ?%", text)]


def test_there_are_tutorials():
    assert [path.name for path in NOTEBOOKS] == ["capsule-layer.ipynb", "own-pictures.ipynb"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_kept_without_outputs(path):
    notebook = nbformat.read(path, as_version=nbformat.NO_CONVERT)
    nbformat.validate(notebook)
    assert (notebook.nbformat, notebook.nbformat_minor) == (4, 5)
    assert notebook.metadata.kernelspec.name == "python3"
    assert notebook.cells[0].source.startswith("# ")
    for cell in notebook.cells:
        assert re.fullmatch(r"[a-z-]+", cell.id), "an id that says what the cell does stays the same when it is edited"
        if cell.cell_type == "code":
            assert (cell.outputs, cell.execution_count) == ([], None), cell.id


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_links_of_a_notebook_lead_somewhere(path):
    notebook = nbformat.read(path, as_version=4)
    text = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    links = re.findall(r"\]\(([^)]+)\)", text)
    assert "../capsules.md" in links
    assert len(links) > 5
    for target in links:
        file, _, anchor = target.partition("#")
        assert (path.parent / file).exists(), target
        if anchor:
            titles = re.findall(r"^#+ (.*)", (path.parent / file).read_text(), flags=re.M)
            assert anchor in [title.lower().replace(" ", "-") for title in titles], target


def test_the_tutorial_of_a_capsule_layer_runs_and_its_text_is_true(tmp_path):
    printed = run_notebook("capsule-layer.ipynb", tmp_path)
    assert "(8, 4, 4, 4, 16)" in printed["capsule-run"]
    assert re.findall(r"\d\.\d\d$", printed["floor"], flags=re.M) == ["1.46", "0.00"]
    assert printed["ask"].split("\n")[:2] == ["fm       cross entropy", "dynamic  margin loss"]
    pooling, capsules = (int(count.replace(",", "")) for count in re.findall(r"[\d,]{4,}", printed["parameters"]))
    assert abs(pooling / capsules - 1) < 0.01
    # both above 90 %, the pooling head ahead; dynamic routing behind, but far from chance
    _, pooling, _, capsules = percentages(printed["accuracy"])
    assert 90 < capsules < pooling
    (dynamic,) = percentages(printed["dynamic"])
    assert 50 < dynamic < capsules
    # poses tell the place better, the features of the pooling network tell rotation and scale better
    poses, features = (
        [float(value) for value in re.findall(r"-?\d\.\d\d", line)] for line in printed["measured"].splitlines()[1:]
    )
    assert min(poses[:2]) > max(features[:2])
    assert max(poses[2:]) < min(features[2:])
    assert printed["state"] == "same accuracy: True\n"


def test_the_tutorial_of_own_pictures_runs_and_its_text_is_true(tmp_path):
    printed = run_notebook("own-pictures.ipynb", tmp_path)
    assert "114 images of 48×48×3, 3 classes" in printed["show"]
    _, test = percentages(printed["run-train"])
    assert test > 80
    assert percentages(printed["evaluate"])[0] == test
    # the new leaves are named, and of the disc the network is less certain
    answer = re.compile(r"new/(\w+)\.png: (\w+) \(([\d.]+) ?%\)")
    found = answer.findall(printed["predict"])
    named = {name: label for name, label, _ in found if name != "disc"}
    assert named == {"clover": "clover", "oak": "oak", "willow": "willow"}
    certain = {name: float(certainty) for name, _, certainty in found}
    assert certain["disc"] == min(certain.values())
    assert printed["python"].startswith(f"oak ({certain['oak']} %)")
    # the exported file says the same, without PyTorch
    assert "leaves.onnx" in printed["run-export"]
    asked = {name: (label, float(certainty)) for name, label, certainty in answer.findall(printed["ask"])}
    assert asked == {name: (name, pytest.approx(certain[name], abs=0.11)) for name in named}
    assert printed["ask"].endswith("with PyTorch: False\n")
    # the damaged picture is named
    assert "broken.png: damaged picture" in printed["refused"]
    assert "exit code 1" in printed["refused"]
