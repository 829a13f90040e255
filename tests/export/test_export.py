"""Exported files do what the network does, and nothing else is written."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from explain.small import saved, small_network

from paircaps import load
from paircaps.errors import DataError, MissingExtraError, ModelFileError, PaircapsError
from paircaps.export import export_network, onnx_decoder, onnx_graph, quantise, write
from paircaps.export.formats import FORMATS, METADATA_FILE, Onnx
from paircaps.model_files import read_metadata

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

OLD = Path(__file__).parents[1] / "training" / "run_of_be29f46"
"""A finished run on glyphs, which fits them by itself."""


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Files of the old run in every format, and the reports."""
    folder = tmp_path_factory.mktemp("written")
    return folder, {ending: export_network(OLD, folder / f"net{ending}", samples=40) for ending in FORMATS}


@pytest.fixture(scope="module")
def drawing(tmp_path_factory):
    """A network that is no finished training: bounded activations, colour, a crop, and a decoder."""
    network = small_network("dynamic", size=20, crop=16, channels=3, decoder="dense", classes=("a", "b", "ü"))
    return saved(tmp_path_factory.mktemp("drawing") / "network", network, dataset="pets")


@pytest.fixture(scope="module")
def drawn(drawing, tmp_path_factory):
    """Its ONNX files."""
    path = tmp_path_factory.mktemp("drawn") / "x.onnx"
    return path, export_network(drawing, path, with_decoder=True, samples=20)


def answers(path, images):
    names = ["activation", "probability", "pose"]
    return dict(zip(names, onnxruntime.InferenceSession(path).run(names, {"images": images.numpy()}), strict=True))


# --- what is written -------------------------------------------------------------------------------------------------


def test_every_format_is_compared_on_images_of_the_run(written):
    folder, reports = written
    assert sorted(path.name for path in folder.iterdir()) == ["net.json", "net.onnx", "net.pt2", "net.safetensors"]
    for report in reports.values():
        assert (report.source, report.images, report.same) == ("glyphs", 40, 40)
        assert set(report.network) == {"activation", "probability", "pose"}
        assert all(value <= 1e-4 for value in report.network.values())
        assert report.files == {path: path.stat().st_size for path in report.files}
        assert any("greatest difference" in line for line in report.lines())
        json.dumps(report.as_dict())
    assert reports[".safetensors"].network == dict.fromkeys(("activation", "probability", "pose"), 0.0)


@pytest.mark.parametrize("count", [1, 3])
def test_onnx_runtime_answers_as_the_network(written, count):
    network = load(OLD)
    images = torch.rand(count, 1, *network.spec.preparation.size)
    found = answers(written[0] / "net.onnx", images)
    with torch.no_grad():
        capsules = network(images)
    assert found["pose"].shape == (count, 10, network.model.pose_dim)
    np.testing.assert_allclose(found["activation"], capsules.activation, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(found["probability"], network.certainty(capsules.activation), atol=1e-4)
    np.testing.assert_allclose(found["pose"], capsules.pose, atol=1e-3)


def test_a_file_says_what_it_is(drawing, drawn):
    model = onnx.load(drawn[0])
    onnx.checker.check_model(model, full_check=True)
    (entry,) = model.metadata_props
    facts = json.loads(entry.value)
    assert entry.key == "paircaps"
    assert (facts["format"], facts["version"], facts["trained_on"]) == ("paircaps-export", 1, "pets")
    assert (facts["model"], facts["routing"], facts["classes"]) == ("resnet-caps-small", "dynamic", ["a", "b", "ü"])
    assert (facts["preparation"]["size"], facts["preparation"]["crop"]) == ([20, 20], [16, 16])
    assert facts["preparation"]["fitting"]["fit"] == "pad"
    assert (facts["certainty"], facts["decoder"], facts["labels_per_image"]) == ("activation", True, 1)
    assert facts["sha256"] == read_metadata(drawing)["sha256"]
    shapes = {
        value.name: [dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim]
        for value in (*model.graph.input, *model.graph.output)
    }
    assert shapes == {
        "images": ["batch", 3, 20, 20],
        "activation": ["batch", 3],
        "probability": ["batch", 3],
        "pose": ["batch", 3, 16],
    }


def test_no_file_has_paths_of_the_machine_that_wrote_it(written, drawn):
    for path in (*written[0].iterdir(), *drawn[1].files):
        content = path.read_bytes()
        assert b".py" not in content, path.name
        assert str(Path(__file__).parents[2]).encode() not in content, path.name


def test_the_decoder_is_a_graph_of_its_own(drawing, drawn):
    path, report = drawn
    assert [file.name for file in report.files] == ["x.onnx", "x-decoder.onnx"]
    assert report.decoder["image"] <= 1e-4
    network = load(drawing)
    images, label = torch.rand(4, 3, 20, 20), torch.tensor([0, 1, 2, 1])
    pose = answers(path, images)["pose"]
    session = onnxruntime.InferenceSession(path.with_name("x-decoder.onnx"))
    (image,) = session.run(["image"], {"pose": pose, "label": label.numpy()})
    with torch.no_grad():
        wanted = network.reconstruct(images, label)
    assert image.shape == (4, 3, 16, 16)
    np.testing.assert_allclose(image, wanted, atol=1e-4)
    assert np.abs(image[0] - image[1]).max() > 0.01


def test_a_graph_leaves_the_network_as_it_was_and_is_the_same_each_time(drawing, drawn):
    network = load(drawing).train()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    metadata = read_metadata(drawing)
    assert onnx_decoder(network, metadata) == drawn[0].with_name("x-decoder.onnx").read_bytes()
    assert network.training
    assert network.decoder is not None
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())


FRESH = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "paircaps":
            raise ImportError("paircaps is not there")

sys.meta_path.insert(0, Absent())
import json, torch
for path in sys.argv[1:]:
    extra = {"paircaps.json": ""}
    program = torch.export.load(path, extra_files=extra).module()
    found = program(torch.full((3, 1, 28, 28), 0.5))
    facts = json.loads(extra["paircaps.json"])
    print(type(found).__name__, [list(part.shape) for part in found], facts["format"], float(found[0].sum()))
"""


def test_a_program_runs_in_a_process_without_this_library(written, tmp_path):
    rounded = export_network(OLD, tmp_path / "small.pt2", quantize=True, samples=20)
    places = [written[0] / "net.pt2", *rounded.files]
    words = [sys.executable, "-W", "ignore", "-c", FRESH, *map(str, places)]
    done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    with torch.no_grad():
        wanted = float(load(OLD)(torch.full((3, 1, 28, 28), 0.5)).activation.sum())
    for line, tolerance in zip(done.stdout.splitlines(), (1e-4, 0.5), strict=True):
        assert line.startswith("tuple [[3, 10], [3, 10], [3, 10, 4]] paircaps-export ")
        assert float(line.split()[-1]) == pytest.approx(wanted, abs=tolerance)


def test_weights_beside_their_description_load_again(tmp_path):
    export_network(OLD, tmp_path / "model.safetensors", samples=10)
    images = torch.rand(2, 1, 28, 28)
    with torch.no_grad():
        assert torch.equal(load(tmp_path)(images).pose, load(OLD)(images).pose)


def test_masks_are_a_fourth_output(tmp_path):
    folder = saved(tmp_path / "network", small_network(model="unet-twin", decoder="none", size=12, classes=("a", "b")))
    report = export_network(folder, tmp_path / "x.onnx", samples=9)
    assert list(report.network) == ["activation", "probability", "pose", "mask"]
    session = onnxruntime.InferenceSession(tmp_path / "x.onnx")
    assert session.get_outputs()[-1].shape == ["batch", 2, 12, 12]


# --- 8-bit weights ---------------------------------------------------------------------------------------------------


def test_rounded_weights_are_a_quarter_of_the_size(written, tmp_path, monkeypatch):
    monkeypatch.setattr(quantise, "LEAST_VALUES", 64)  # the network is small, and guesses
    monkeypatch.setattr(write, "MOST_LOSS", 5)
    report = export_network(OLD, tmp_path / "x.onnx", quantize=True, samples=20)
    assert report.score.images == 300
    assert abs(report.score.loss) <= 5
    assert "accuracy" in report.lines()[-1]
    assert max(report.network.values()) > 1e-4, "weights were rounded"
    small, large = (weight_bytes(path) for path in (tmp_path / "x.onnx", written[0] / "net.onnx"))
    assert small < 0.4 * large


def weight_bytes(path):
    return sum(onnx.numpy_helper.to_array(tensor).nbytes for tensor in onnx.load(path).graph.initializer)


def test_rounding_that_costs_accuracy_is_refused_with_the_numbers(tmp_path, monkeypatch):
    original = write.Answers(load(OLD))

    def run(self, content, files):
        return lambda images: tuple(part.flip(-1) if content == b"wrong" else part for part in original(images))

    monkeypatch.setattr(Onnx, "network_files", lambda *_: {".onnx": b"right"})
    monkeypatch.setattr(Onnx, "rounded_files", lambda *_: {".onnx": b"wrong"})
    monkeypatch.setattr(Onnx, "run", run)
    with pytest.raises(
        PaircapsError, match=r"cost more than 0.1 points: accuracy \d+.\d\d %, of the original \d\d.\d\d"
    ):
        export_network(OLD, tmp_path / "x.onnx", quantize=True, samples=20)
    assert list(tmp_path.iterdir()) == []


def test_each_slice_has_its_own_scale():
    weight = torch.randn(16, 8, 3, 3) * torch.logspace(-3, 2, 16)[:, None, None, None]
    found = quantise.rounded(weight)
    assert (found.axis, found.values.dtype, found.scale.shape) == (0, torch.int8, (16,))
    error = (found.restored() - weight).abs().amax((1, 2, 3)) / weight.abs().amax((1, 2, 3))
    assert error.max() <= 0.5 / 127 + 1e-6
    other = quantise.rounded(weight.transpose(0, 1).contiguous())
    assert other.axis == 1
    assert torch.equal(quantise.rounded(torch.zeros(64, 64)).restored(), torch.zeros(64, 64))


# --- what is refused -------------------------------------------------------------------------------------------------


def test_a_file_that_answers_otherwise_is_not_written(tmp_path, monkeypatch):
    monkeypatch.setattr(Onnx, "run", lambda *_: lambda images: tuple(1.001 * part for part in original(images)))
    original = write.Answers(load(OLD))
    monkeypatch.setattr(Onnx, "network_files", lambda *_: {".onnx": b"content"})
    with pytest.raises(
        PaircapsError, match=r"not written: the export differs from the network by activation .* allowed"
    ):
        export_network(OLD, tmp_path / "x.onnx", samples=20)
    monkeypatch.setattr(Onnx, "run", lambda *_: lambda images: tuple(torch.nan * part for part in original(images)))
    with pytest.raises(PaircapsError, match="activation nan"):
        export_network(OLD, tmp_path / "x.onnx", samples=20)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("x.tflite", r"x.tflite: ends in .tflite; .onnx, .pt2, .safetensors are there"),
        ("x", r"x: ends in nothing; .onnx, .pt2, .safetensors are there"),
        ("none/x.onnx", r"none/x.onnx: no such folder"),
        ("folder.onnx", r"folder.onnx: is a folder"),
        ("file/x.pt2", r"file/x.pt2: is in a file"),
        ("other.safetensors", r"other.json: would be replaced, and does not describe a network"),
    ],
)
def test_a_place_that_cannot_be_written_is_refused_at_once(tmp_path, monkeypatch, name, said):
    (tmp_path / "folder.onnx").mkdir()
    (tmp_path / "file").write_text("")
    (tmp_path / "other.json").write_text('{"mine": 1}')
    monkeypatch.setattr(write, "load", None)  # nothing is loaded for it
    with pytest.raises(DataError, match=said):
        export_network(OLD, tmp_path / name)


def test_a_folder_that_refuses_files_is_named(tmp_path, monkeypatch):
    def refuse(**_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(write.tempfile, "TemporaryFile", refuse)
    with pytest.raises(DataError, match=f"{tmp_path}: cannot write to this folder: Permission denied"):
        export_network(OLD, tmp_path / "x.pt2")


def test_runs_and_networks_that_cannot_be_exported_are_refused(tmp_path, drawing):
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    with pytest.raises(ModelFileError, match="its training has not finished"):
        export_network(tmp_path / "run", tmp_path / "x.pt2")
    with pytest.raises(PaircapsError, match="trained without a decoder"):
        export_network(OLD, tmp_path / "x.pt2", with_decoder=True)
    with pytest.raises(PaircapsError, match=r"8-bit weights are there for .onnx and .pt2"):
        export_network(OLD, tmp_path / "x.safetensors", quantize=True)
    with pytest.raises(PaircapsError, match=r"has no config.toml to tell the dataset by"):
        export_network(drawing, tmp_path / "x.pt2", quantize=True, samples=9)
    with pytest.raises(ValueError, match="only networks in float32"):
        onnx_graph(small_network(decoder="none").double())
    shutil.copytree(OLD, tmp_path / "damaged")
    (tmp_path / "damaged" / "model.safetensors").write_bytes(b"damaged")
    with pytest.raises(ModelFileError, match="damaged: its checksum"):
        export_network(tmp_path / "damaged", tmp_path / "x.safetensors")
    assert list(tmp_path.glob("x*")) == []


def test_a_missing_package_is_named_with_the_command_that_installs_it(tmp_path, monkeypatch):
    from paircaps._utils import extras

    monkeypatch.setattr(extras, "_is_installed", lambda module: module != "onnxruntime")
    with pytest.raises(MissingExtraError, match=r"needs onnxruntime, .* pip install 'paircaps\[export\]'"):
        export_network(OLD, tmp_path / "x.onnx")
    monkeypatch.setattr(extras, "_is_installed", lambda module: module != "onnxscript")
    with pytest.raises(MissingExtraError, match="needs onnxscript"):
        onnx_graph(small_network(decoder="none"))


def test_what_no_exporter_can_translate_is_a_sentence(monkeypatch):
    network = small_network(decoder="none")
    monkeypatch.setattr(network.model, "forward", lambda images: print(images.sum().item() > 0) or 1 / 0)
    with pytest.raises(PaircapsError, match=r"torch.export cannot translate this network: \w+"):
        onnx_graph(network)


def test_metadata_of_a_program_is_in_the_file(written):
    extra = {METADATA_FILE: ""}
    torch.export.load(written[0] / "net.pt2", extra_files=extra)
    assert json.loads(extra[METADATA_FILE])["classes"] == list("0123456789")
