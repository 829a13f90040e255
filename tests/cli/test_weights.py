"""``paircaps weights`` as typed, and the other commands with the name of a shipped network."""

import json
import os
import shutil
from pathlib import Path

import pytest

from paircaps._utils import shipped
from paircaps.cli import serve
from paircaps.cli.completion import candidates
from paircaps.cli.parsers import weights as parsers
from paircaps.errors import ModelFileError
from paircaps.model_files import Precision
from paircaps.serve.networks import Networks

OLD = Path(__file__).parents[1] / "training" / "run_of_be29f46"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a run, and one for weights."""
    place = tmp_path_factory.mktemp("weights")
    shutil.copytree(OLD, place / "run")
    config = place / "run" / "config.toml"
    config.write_text(config.read_text().replace("limit = 300", "limit = 60"))
    described = json.loads((OLD / "model.json").read_text())
    described["preparation"]["fitting"] = {"fit": "pad", "background": 0, "invert": "light"}
    (place / "run" / "model.json").write_text(json.dumps(described))
    (place / "weights").mkdir()
    return place


@pytest.fixture
def mine(place, monkeypatch, run):
    """The run as shipped weights, which are found by their name."""
    monkeypatch.setenv(shipped.VARIABLE, str(place / "weights"))
    folder = place / "weights" / "mine"
    if not folder.exists():
        words = ["weights", "add", place / "run", "--name", "mine", "--to", place / "weights", "--precision", "bf16"]
        code, said, errors = run(*words)
        assert (code, said.splitlines()[0].split(":")[0]) == (0, str(folder)), errors
    return folder


def test_the_list_has_what_is_known(run, mine):
    code, said, _ = run("weights")
    facts = next(row for row in json.loads(run("weights", "--json")[1]) if row["name"] == "mine")
    assert code == 0
    for words in (
        "mine",
        f"{100 * facts['accuracy']:.2f} %",
        "Bitstream Vera",
        facts["sha256"],
        "recipe glyphs",
        "be29f46",
    ):
        assert words in said
    assert facts["folder"] == str(mine)
    assert (facts["stored"], facts["seed"], facts["images"]) == ("bf16", 0, 60)


def test_a_card_is_shown(run, mine):
    assert run("weights", "show", "mine") == (0, (mine / "README.md").read_text(), "")
    code, _, errors = run("weights", "show", "mien")
    assert (code, "did you mean 'mine'?" in errors) == (1, True)
    code, _, errors = run("weights", "show", "../mine")
    assert (code, "../mine: is no name of weights" in errors) == (1, True)


def test_a_name_stands_for_its_folder_in_every_command(run, mine, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    evaluated = run("evaluate", "mine", "--json")
    assert evaluated[0] == 0
    facts = next(row for row in json.loads(run("weights", "--json")[1]) if row["name"] == "mine")
    assert json.loads(evaluated[1])["accuracy"] == facts["accuracy"], "the number of its card"
    assert json.loads(run("evaluate", mine, "--json")[1]) == json.loads(evaluated[1])
    from PIL import Image

    Image.new("L", (28, 28)).save("black.png")
    assert run("predict", "mine", "black.png")[0] == 0
    assert run("explain", "mine", "black.png", "-o", "out")[0] == 0
    assert run("equivariance", "mine", "--images", "100")[0] == 0


def test_an_unknown_name_is_told(run, mine):
    for words in (
        ("evaluate", "mien"),
        ("predict", "mien", "x.png"),
        ("serve", "mien"),
        ("explain", "mien", "-o", "x"),
    ):
        code, _, errors = run(*words)
        assert code == 1
        assert "mien: no such folder" in errors
        assert "did you mean 'mine'?" in errors


def test_a_folder_of_weights_that_is_not_there_is_told(run, mine, monkeypatch):
    monkeypatch.setenv(shipped.VARIABLE, f"{mine.parent}{os.pathsep}/nowhere")
    code, out, errors = run("weights")
    assert (code, "mine" in out) == (0, True)
    assert errors == "paircaps: note: PAIRCAPS_WEIGHTS names /nowhere, which is no folder\n"


def test_completion_offers_the_names(run, mine):
    assert ("mine", "") in candidates(["evaluate", "mi"], splits_equals=True)
    assert ("mine", "") in candidates(["weights", "show", ""], splits_equals=True)


def test_a_run_that_is_none_is_told(run, place):
    code, _, errors = run("weights", "add", place / "weights", "--name", "x", "--to", place)
    assert (code, "no trained model here" in errors) == (1, True)


def test_both_lists_of_precisions_are_one():
    assert Precision.__args__ == parsers.PRECISIONS


# --- the page --------------------------------------------------------------------------------------------------------


def test_serve_alone_takes_the_shipped_digits(mine, monkeypatch):
    monkeypatch.setattr(shipped, "PACKAGE", Path("/nowhere"))
    with pytest.raises(ModelFileError, match="none of the networks digits, digits-dynamic"):
        serve.shipped_digits()
    monkeypatch.setattr(serve, "DIGITS", ("digits-none", "mine"))
    assert serve.shipped_digits() == {"mine": mine}


def test_the_page_has_ranges_without_images(mine, monkeypatch):
    def none_here(*_):
        raise AssertionError("images were looked for")

    monkeypatch.setattr("paircaps.serve.served.load_sample_images", none_here)
    facts = Networks({"mine": mine}).facts[0]
    assert facts.pose_range_of == "glyphs"
    assert len(facts.pose_low) == 10
