"""A trained network comes back whole, or is refused in words; nothing in its files is ever run."""

import hashlib
import json
import os
import pickle

import pytest
import torch

import paircaps
from paircaps.errors import ModelFileError
from paircaps.model_files import load_without_weights, save_model
from paircaps.network import Network, NetworkSpec, Preparation


@pytest.fixture
def saved(tmp_path):
    torch.manual_seed(3)
    arguments = {"num_classes": 3, "in_channels": 1, "image_size": (16, 16), "routing": "em", "blocks": [1, 1, 1]}
    spec = NetworkSpec("resnet-caps-small", arguments, ("a", "b", "ü"), Preparation((20, 20), (16, 16), True), "dense")
    network = Network(spec).eval()
    save_model(tmp_path, network, {"loss": {}})
    return tmp_path, network


@pytest.mark.parametrize("as_text", [True, False])
def test_a_network_comes_back_ready(saved, as_text):
    folder, network = saved
    loaded = paircaps.load(str(folder) if as_text else folder)
    images = torch.randint(256, (4, 1, 20, 20), dtype=torch.uint8)
    assert not loaded.training
    assert loaded.classes == ("a", "b", "ü")
    assert torch.equal(loaded(images).activation, network(images).activation)
    assert torch.equal(loaded.reconstruct(images), network.reconstruct(images))


def refused(folder, *words):
    with pytest.raises(ModelFileError) as error:
        paircaps.load(folder)
    for word in (str(folder), *words):
        assert word in str(error.value)


class Evil:
    """Unpickled, it leaves a trace."""

    def __reduce__(self):
        return os.mkdir, (os.environ["EVIL"],)


@pytest.mark.parametrize("make", [pickle.dumps, lambda evil: torch_bytes(evil)])
@pytest.mark.parametrize("name", ["model.safetensors", "model.json"])
def test_a_crafted_pickle_never_runs(saved, monkeypatch, name, make):
    folder, _ = saved
    monkeypatch.setenv("EVIL", str(folder / "ran"))
    content = make(Evil())
    (folder / name).write_bytes(content)
    if name == "model.safetensors":  # even with the right checksum
        facts = json.loads((folder / "model.json").read_text())
        facts["sha256"] = hashlib.sha256(content).hexdigest()
        (folder / "model.json").write_text(json.dumps(facts))
    refused(folder)
    assert not (folder / "ran").exists()
    pickle.loads(pickle.dumps(Evil()))
    assert (folder / "ran").exists()  # the trap itself works


def torch_bytes(evil):
    import io

    buffer = io.BytesIO()
    torch.save(evil, buffer)
    return buffer.getvalue()


@pytest.mark.parametrize("change", [lambda c: c[:-8], lambda c: c[:100] + bytes([c[100] ^ 1]) + c[101:], lambda c: b""])
def test_damaged_weights_are_refused(saved, change):
    folder, _ = saved
    path = folder / "model.safetensors"
    path.write_bytes(change(path.read_bytes()))
    refused(folder, "checksum")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"format": "other"}, "no model of paircaps"),
        ({"version": 2}, "version 2"),
        ({"sha256": None}, "no checksum"),
        ({"model": "vgg"}, "unknown model 'vgg'"),
        ({"classes": ["a"]}, "1 classes for a model of 3"),
        ({"classes": None}, "no model that this paircaps can build"),
        ({"preparation": {}}, "'size' is missing"),
        ({"preparation": [1]}, "no model that"),
        ({"arguments": {"num_classes": 3, "image_size": 16, "widths": [16, 32, 32]}}, "not the weights of this model"),
        ({"arguments": {"num_classes": 3, "evil": 1}}, "no option 'evil'"),
        ({"decoder": "none"}, "not the weights of this model"),
        ({"decoder": 5}, "decoder must be one of"),
    ],
)
def test_other_facts_are_refused(saved, change, words):
    folder, _ = saved
    path = folder / "model.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    refused(folder, words)


@pytest.mark.parametrize("text", ["", "[]", "{", "null", "[" * 100_000, "\udcff"])
def test_what_is_no_json_object_is_refused(saved, text):
    folder, _ = saved
    (folder / "model.json").write_text(text, errors="surrogateescape")
    refused(folder)


def test_what_is_not_there_is_said(saved, tmp_path):
    folder, _ = saved
    refused(folder / "nowhere", "no such folder")
    refused(folder / "paircaps-demo" / "fm", "no such folder; `paircaps demo` makes paircaps-demo")
    refused(folder / "model.json", "is a file; a model is loaded by its folder")
    (folder / "model.safetensors").unlink()
    refused(folder, "cannot read: No such file")
    (folder / "model.json").unlink()
    refused(folder, "no model.json in it")
    (folder / "checkpoints").mkdir()
    refused(folder, "has not finished")


def test_a_network_without_its_weights_has_their_shapes(saved):
    folder, whole = saved
    (folder / "model.safetensors").unlink()
    empty = load_without_weights(folder)
    assert {name: value.shape for name, value in empty.state_dict().items()} == {
        name: value.shape for name, value in whole.state_dict().items()
    }
    assert {value.device.type for value in empty.parameters()} == {"meta"}


def test_models_are_found_one_by_one_or_in_the_order_they_were_trained(tmp_path):
    from explain.small import saved, small_network

    from paircaps.model_files import find_models

    network = small_network()
    for number, name in enumerate(("second", "first", "third")):
        folder = saved(tmp_path / "runs" / name, network)
        os.utime(folder / "model.json", (1000 + 10 * number, 1000 + 10 * number))
    (tmp_path / "runs" / "notes").mkdir()
    assert list(find_models([tmp_path / "runs"])) == ["second", "first", "third"]
    assert list(find_models([tmp_path / "runs" / "third", tmp_path / "runs" / "first"])) == ["third", "first"]
    twice = find_models([tmp_path / "runs" / "first", tmp_path / "runs"])
    assert list(twice) == ["first", "second", "third"]
    other = saved(tmp_path / "others" / "first", network)
    assert list(find_models([tmp_path / "runs" / "first", other])) == ["first", "others/first"]
    with pytest.raises(ModelFileError, match="another network of that name"):
        find_models([tmp_path / "runs" / "first", other, saved(tmp_path / "deep" / "others" / "first", network)])
    with pytest.raises(ModelFileError, match="no trained model here"):
        find_models([tmp_path / "runs" / "notes"])
    names = ", ".join(str(tmp_path / "runs" / name) for name in ("second", "first", "third"))
    with pytest.raises(ModelFileError, match=f"no trained model here: it holds trained ones, .*: {names}$"):
        paircaps.load(tmp_path / "runs")
    (tmp_path / "begun" / "one" / "checkpoints").mkdir(parents=True)
    with pytest.raises(ModelFileError, match=r"it holds trainings that have not finished: .*begun/one$"):
        paircaps.load(tmp_path / "begun")
    with pytest.raises(ModelFileError, match="no such folder"):
        find_models([tmp_path / "nowhere"])
