"""``paircaps export`` as typed."""

import json
from pathlib import Path

import pytest

from paircaps.cli import export as cli_export
from paircaps.export import ExportReport, Score

OLD = Path(__file__).parents[1] / "training" / "run_of_be29f46"


def test_a_file_and_the_greatest_difference_are_printed(run, tmp_path):
    code, said, err = run("export", OLD, "-o", tmp_path / "x.safetensors", "--images", 8)
    assert (code, err) == (0, "")
    first, second, third = said.splitlines()
    assert first.startswith(f"{tmp_path}/x.safetensors: ")
    assert second == f"{tmp_path}/x.json: 1 kB"
    assert third == (
        "greatest difference from the network on 8 images of glyphs: activation 0.0e+00, probability 0.0e+00, "
        "pose 0.0e+00, 0.0001 allowed; the same classes in 8"
    )


def test_json_has_all_of_it(run, tmp_path):
    code, said, _ = run("export", OLD, "-o", tmp_path / "x.safetensors", "--images", 8, "--json")
    facts = json.loads(said)
    assert code == 0
    assert set(facts["files"]) == {f"{tmp_path}/x.safetensors", f"{tmp_path}/x.json"}
    assert (facts["images"], facts["same"], facts["source"], facts["score"]) == (8, 8, "glyphs", None)
    assert facts["network"]["pose"] == 0


def test_options_reach_the_export(run, tmp_path, monkeypatch):
    given = {}

    def export_network(folder, path, **options):
        given.update(options, folder=folder, path=path)
        score = Score("accuracy", 90.0, 89.95, 1000, "glyphs")
        return ExportReport({path: 2_000_000}, {"pose": 0.01}, {"image": 1e-6}, 5, 4, "glyphs", score)

    monkeypatch.setattr(cli_export, "export_network", export_network)
    words = ["--with-decoder", "--quantize", "--images", 5, "--data-dir", tmp_path]
    code, said, _ = run("export", OLD, "-o", tmp_path / "x.onnx", *words)
    assert code == 0
    expected = {"with_decoder": True, "quantize": True, "samples": 5, "data_dir": tmp_path}
    assert given == {**expected, "folder": OLD, "path": tmp_path / "x.onnx"}
    assert said.splitlines()[0].endswith("x.onnx: 2.0 MB")
    assert said.splitlines()[1].endswith("images of glyphs: pose 1.0e-02; the same classes in 4"), (
        "no bound is named for rounded weights"
    )
    assert said.splitlines()[2] == "of the decoder: image 1.0e-06, 0.0001 allowed"
    assert "accuracy 89.95 %, of the original 90.00 %, on 1,000 test images of glyphs, 0.1 points less" in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([OLD, "-o", "x.pb"], "x.pb: ends in .pb; .onnx, .pt2, .safetensors are there"),
        ([OLD, "-o", "nowhere/x.onnx"], "nowhere/x.onnx: no such folder"),
        (["nowhere", "-o", "x.onnx"], "nowhere: no such folder"),
        ([OLD, "-o", "x.pt2", "--with-decoder"], "trained without a decoder"),
    ],
)
def test_what_cannot_be_done_is_a_sentence(run, tmp_path, monkeypatch, words, said):
    monkeypatch.chdir(tmp_path)
    code, out, err = run("export", *words)
    assert (code, out) == (1, "")
    assert err.startswith("paircaps: ")
    assert said in err
    assert list(tmp_path.iterdir()) == []


def test_a_file_to_write_is_asked_for(run):
    code, _, err = run("export", OLD)
    assert code == 2
    assert "one of the arguments -o/--out --page is required" in err
