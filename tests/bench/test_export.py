"""The table of exported networks."""

import json

import pytest
import torch

from paircaps.bench import export
from paircaps.cli import main

pytest.importorskip("onnxscript")


def test_models_and_layers_are_compared_with_the_originals(monkeypatch):
    monkeypatch.setattr(export, "list_routings", lambda: ["sum"])
    monkeypatch.setattr(export, "LAYERS", {"matrix": export.LAYERS["matrix"]})
    monkeypatch.setattr(export, "IMAGES", 17)
    threads = torch.get_num_threads()
    said = []
    result = export.bench_export(["fast-pool-tiny"], repeats=2, say=said.append)
    assert said == ["fast-pool-tiny", "layers with sum"]
    assert torch.get_num_threads() == threads
    json.dumps(result)
    (row,) = result["models"]
    for ending in export.ENDINGS:
        assert row[ending]["difference"] <= export.LIMIT
        assert row[ending]["bytes"] > 100_000
        assert row[ending]["milliseconds"]["repeats"] == 2
    assert result["layers"][0]["matrix"] <= export.LIMIT
    lines = export.as_markdown(result).splitlines()
    assert any(line.startswith("| fast-pool-tiny | none | 32×32×1 |") for line in lines)
    assert any(line.startswith("| sum | ") for line in lines)
    assert "commit " in "".join(lines)


def test_an_unknown_model_is_refused_before_the_work(capsys):
    assert main(["bench", "export", "no-such-model"]) == 2
    assert "no-such-model" in capsys.readouterr().err
