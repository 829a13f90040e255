"""The scripts of examples/ are short, say what they show, do it, and refuse wrong input in a sentence."""

import ast
import csv
import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from pages import ROOT
from PIL import Image

import paircaps
from paircaps.model_files import save_model
from paircaps.network import Network, NetworkSpec, Preparation
from paircaps.pictures import Fitting

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
SIZE = (20, 24)


@pytest.fixture
def example(forks):
    """Run an example as a program: exit code, output, errors."""

    def run(name, *words):
        code = f"import runpy, sys\nsys.argv = {[name, *map(str, words)]!r}\n"
        path = str(ROOT / "examples" / name)
        return forks.run(f"{code}runpy.run_path({path!r}, run_name='__main__')")

    return run


@pytest.fixture(scope="module")
def networks(tmp_path_factory):
    """Folder with a folder for each network: of colours and of grey pictures, each way of fitting them once."""
    folder = tmp_path_factory.mktemp("networks")
    for fitting in (Fitting("pad", 255), Fitting("crop", 0, "always"), Fitting("stretch", 30, "light")):
        channels = 1 if fitting.invert == "light" else 3
        preparation = Preparation(SIZE, (16, 16), standardise=True, channels=channels, fitting=fitting)
        options = {"num_classes": 3, "in_channels": channels, "image_size": 16, "widths": (8, 8, 8)}
        torch.manual_seed(0)
        network = Network(NetworkSpec("resnet-caps-small", options, ("cat", "dog", "ünï"), preparation))
        network.fit(torch.rand(8, channels, 16, 16))
        (folder / fitting.fit).mkdir()
        save_model(folder / fitting.fit, network.eval(), {"dataset": "noise"})
    return folder


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """Pictures of every kind in two subfolders, one of them damaged."""
    folder = tmp_path_factory.mktemp("pictures")
    for name in ("light", "dark"):
        (folder / name).mkdir()
    numbers = np.random.default_rng(0)
    colours = Image.fromarray(numbers.integers(0, 200, (40, 21, 3), dtype=np.uint8))
    colours.save(folder / "dark" / "colour.png")
    colours.convert("L").point(lambda level: 255 - level).save(folder / "light" / "grey.bmp")
    large = Image.fromarray(numbers.integers(90, 255, (16, 9, 3), dtype=np.uint8)).resize((900, 1200))
    turned = Image.Exif()
    turned[0x0112] = 6
    large.save(folder / "light" / "large.jpg", exif=turned)  # more than a million pixels, on its side
    colours.putalpha(colours.convert("L").point(lambda level: 255 * (level > 90)))
    colours.save(folder / "dark" / "transparent.webp", lossless=True)
    colours.convert("RGB").quantize(8).save(folder / "dark" / "palette.png")
    whole = (folder / "dark" / "colour.png").read_bytes()
    (folder / "dark" / "broken.png").write_bytes(whole[: len(whole) // 2])
    return folder


def good(pictures):
    return sorted(path for path in pictures.rglob("*.*") if path.name != "broken.png")


def test_there_are_examples():
    assert [path.stem for path in EXAMPLES] == ["capsule_head", "onnx_without_torch", "predict_folder"]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_short_and_says_its_command(path):
    text = path.read_text()
    assert len(text.splitlines()) <= 60
    assert f"    python examples/{path.name}" in ast.get_docstring(ast.parse(text))


def test_a_capsule_head_learns_in_a_loop_of_ones_own(example):
    code, printed, errors = example("capsule_head.py", "--steps", 60)
    assert (code, errors) == (0, "")
    *losses, accuracy = printed.splitlines()
    first, last = (float(line.split()[-1]) for line in losses)
    assert last < first < 1.5
    assert float(accuracy.removeprefix("accuracy ").removesuffix("%")) > 50  # 70 were seen; 10 are chance


@pytest.mark.parametrize(
    ("steps", "said"),
    [("0", "--steps must be 1 or more, got 0"), ("many", "argument --steps: invalid int value: 'many'")],
)
def test_a_capsule_head_refuses_wrong_steps(example, steps, said):
    code, _, errors = example("capsule_head.py", "--steps", steps)
    assert code == 2
    assert errors.endswith(f"error: {said}\n")


def test_a_folder_becomes_a_table(example, networks, pictures, tmp_path):
    code, printed, errors = example("predict_folder.py", networks / "pad", pictures, tmp_path / "answers.csv")
    assert (code, errors) == (1, "")  # one of them is damaged
    assert printed == f"{tmp_path}/answers.csv: 5 pictures classified, 1 could not be read\n"
    with (tmp_path / "answers.csv").open(newline="", encoding="utf-8") as file:
        rows = {row["file"]: row for row in csv.DictReader(file)}
    network = paircaps.load(networks / "pad")
    for path in good(pictures):
        answer = network.predict(path)
        row = rows.pop(str(path))
        assert (row["class"], row["error"]) == (answer.label, "")
        assert float(row["certainty"]) == pytest.approx(answer.certainty, abs=1e-4)
    (broken,) = rows.values()
    assert (broken["class"], broken["certainty"]) == ("", "")
    assert "broken.png: damaged picture" in broken["error"]


def test_a_table_is_not_written_where_something_is_missing(example, networks, pictures, tmp_path):
    table = tmp_path / "answers.csv"
    nowhere = tmp_path / "nowhere"
    for words, said in (
        ((networks / "pad", nowhere, table), f"{nowhere}: not a folder of pictures"),
        ((nowhere, pictures, table), f"{nowhere}: no such folder"),
        ((networks / "pad", pictures, nowhere / "answers.csv"), f"{nowhere}/answers.csv: No such file or directory"),
    ):
        code, printed, errors = example("predict_folder.py", *words)
        assert (code, printed, errors) == (1, "", f"{said}\n")
    assert not table.exists()


# --- ONNX without PyTorch ---------------------------------------------------------------------------------------------

PLAIN = """
import contextlib, io, json, runpy, sys
said = []
for network, picture in json.loads(sys.argv[1]):
    sys.argv = ["onnx_without_torch.py", network, picture]
    out, error = io.StringIO(), ""
    with contextlib.redirect_stdout(out):
        try:
            runpy.run_path("examples/onnx_without_torch.py", run_name="__main__")
        except SystemExit as stop:
            error = stop.code
    said.append((out.getvalue(), error))
print(json.dumps({"said": said, "loaded": [name for name in ("torch", "paircaps") if name in sys.modules]}))
"""
"""Runs the example for several pictures in one process, and says what it had to load."""


@pytest.fixture(scope="module")
def exported(networks):
    """An ONNX file for each network; those of the same weights have the same graph, and are translated once."""
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    from paircaps.export import onnx_graph

    for name in ("pad", "stretch"):
        (networks / f"{name}.onnx").write_bytes(onnx_graph(paircaps.load(networks / name)))
    other = onnx.load(networks / "pad.onnx")
    (metadata,) = [found for found in other.metadata_props if found.key == "paircaps"]
    fitting = json.loads((networks / "crop" / "model.json").read_text())["preparation"]["fitting"]
    about = json.loads(metadata.value)
    about["preparation"]["fitting"] = fitting
    metadata.value = json.dumps(about)
    onnx.save(other, networks / "crop.onnx")
    return networks


def run_plain(pairs):
    """What the example prints and says for pairs of an ONNX file and a picture, in a process without PyTorch."""
    words = [sys.executable, "-c", PLAIN, json.dumps([[str(network), str(picture)] for network, picture in pairs])]
    process = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, check=True)
    found = json.loads(process.stdout)
    assert found["loaded"] == []
    return found["said"]


def test_an_exported_network_answers_without_pytorch_as_it_does_with(exported, pictures):
    pairs = [(file, picture) for file in sorted(exported.glob("*.onnx")) for picture in good(pictures)]
    assert len(pairs) == 15
    for (file, picture), (printed, error) in zip(pairs, run_plain(pairs), strict=True):
        expected = paircaps.load(file.with_suffix("")).predict(picture).certainties
        seen = {name: float(number) for name, number in (line.split(": ") for line in printed.splitlines())}
        assert error == ""
        assert seen == pytest.approx(expected, abs=1e-4), (file.name, picture.name)
        assert list(seen) == sorted(seen, key=lambda name: -expected[name])


def test_wrong_files_are_refused_without_pytorch(exported, pictures, tmp_path):
    import onnx

    foreign = onnx.load(exported / "pad.onnx")
    del foreign.metadata_props[:]
    onnx.save(foreign, tmp_path / "foreign.onnx")
    picture, network = pictures / "light" / "grey.bmp", exported / "pad.onnx"
    deep = tmp_path / "deep.png"
    Image.fromarray(np.full((9, 9), 40_000, dtype=np.uint16)).save(deep)
    pairs = {
        (tmp_path / "foreign.onnx", picture): "foreign.onnx: not written by paircaps export: 'paircaps' is missing",
        (picture, picture): f"cannot classify {picture} by {picture}: ",
        (tmp_path / "none.onnx", picture): "none.onnx",
        (network, pictures / "dark" / "broken.png"): "image file is truncated",
        (network, tmp_path / "none.png"): "No such file or directory",
        (network, deep): "sixteen bits a colour; convert the picture to eight",
    }
    for (printed, error), said in zip(run_plain(pairs), pairs.values(), strict=True):
        assert printed == ""
        assert said in error
