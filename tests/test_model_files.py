"""A trained network comes back whole, or is refused in words; nothing in its files is ever run."""

import hashlib
import json
import os
import pickle
import resource
import shutil
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest
import torch

import paircaps
from paircaps.errors import ModelFileError
from paircaps.layers import CapsuleLayer, ConvCapsuleLayer, MapCapsuleLayer
from paircaps.model_files import load_without_weights, save_model
from paircaps.models import ImageModel
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


HUGE_BACKGROUND = {"fit": "pad", "background": 10**400, "invert": "never"}


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
        ({"labels_per_image": 11}, "labels_per_image must be at most the number of classes, 3, got 11"),
        ({"preparation": {"size": [20, 20], "crop": [20, 20], "standardise": True}}, "images of (20, 20) for a model"),
        ({"preparation": {"size": [30_000] * 2, "crop": [16, 16], "standardise": True}}, "30000×30000 is too large"),
        (
            {"preparation": {"size": [20, 20], "crop": [16, 16], "standardise": True, "fitting": HUGE_BACKGROUND}},
            "no model that",
        ),
        ({"arguments": {"num_classes": 3, "image_size": 16, "norm_momentum": 10**400}}, "no model that"),
        ({"arguments": {"num_classes": 3, "image_size": 10**30}}, "no model that"),
        ({"arguments": {"num_classes": 3, "image_size": 16, "blocks": [10**9, 1, 1]}}, "a larger network"),
        (
            {"arguments": {"num_classes": 3, "routing": "em", "routing_options": {"iterations": 10**9}}},
            "iterations must be from 1 to 100, got 1000000000",
        ),
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


# --- memory ----------------------------------------------------------------------------------------------------------

PEAKS = """
import json, re, sys
from pathlib import Path
import paircaps, paircaps.errors

def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) / 1024

paircaps.load(sys.argv[1])  # everything is imported
for folder in sys.argv[2:]:
    before = peak()
    try:
        paircaps.load(folder)
        said = ""
    except paircaps.errors.PaircapsError as error:
        said = str(error)
    print(json.dumps([peak() - before, said]))
"""
on_linux = pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="the peak of memory is read from Linux's /proc"
)


def peaks_of_loading(small, *folders):
    """Megabytes that loading takes at most beyond what the process has, and what it says, for each folder."""
    run = subprocess.run([sys.executable, "-c", PEAKS, small, *folders], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return [json.loads(line) for line in run.stdout.splitlines()]


GIANTS = {
    "image": {"image_size": 4000},
    "image of another preparation": {"image_size": 4000},
    "deep": {"blocks": [1_000_000, 1, 1]},
    "wide": {"widths": [16, 16, 40_000]},
    "poses": {"pose_dim": 1 << 14},
}


@on_linux
def test_a_description_of_a_giant_takes_no_memory(saved, tmp_path):
    folder, _ = saved
    for name, change in GIANTS.items():
        giant = shutil.copytree(folder, tmp_path / "giants" / name, ignore=shutil.ignore_patterns("giants"))
        facts = json.loads((giant / "model.json").read_text())
        facts["arguments"] |= change
        if name == "image":
            facts["preparation"] |= {"size": [4000, 4000], "crop": [4000, 4000]}
        (giant / "model.json").write_text(json.dumps(facts))
    giants = [tmp_path / "giants" / name for name in GIANTS]
    for giant, (peak, said) in zip(giants, peaks_of_loading(folder, *giants), strict=True):
        assert str(giant) in said
        assert peak < 100


@on_linux
def test_loading_takes_the_size_of_the_file_and_little_more(saved, tmp_path):
    folder, _ = saved
    large = tmp_path / "large"
    large.mkdir()
    arguments = {"num_classes": 3, "image_size": 56, "filters": 64, "groups": 32, "pose_dim": 96}
    spec = NetworkSpec("capsnet", arguments, ("a", "b", "c"), Preparation((56, 56), (56, 56)))
    save_model(large, Network(spec), {})
    size = (large / "model.safetensors").stat().st_size / 2**20
    assert size > 100
    [(peak, said)] = peaks_of_loading(folder, large)
    assert said == ""
    assert peak < size + 100
    assert peak < 1.5 * size


# --- the same bits ---------------------------------------------------------------------------------------------------


def with_other_values(network):
    """The network with values, running statistics too, that no constructor gives."""
    generator = torch.Generator().manual_seed(5)
    for name, value in network.state_dict().items():
        if value.is_floating_point():
            random = torch.rand(value.shape, generator=generator)
            value.copy_(1 + random if "running_var" in name else 0.1 * (random - 0.5))
        else:
            value.fill_(7)
    return network.eval()


def everything(network):
    """All that a module has beside its state: settings, such as momenta and sizes, by module and name."""
    kinds = (int, float, str, bool, tuple, type(None))
    return {
        (name, key): value
        for name, module in network.named_modules()
        for key, value in vars(module).items()
        if isinstance(value, kinds)
    }


SMALL = ("capsnet-light", "deepcaps-light", "em-capsnet-small", "resnet-caps-grid-small", "resnet-caps-small")
"""A network with each kind of capsule layer."""

MODELS_AND_ROUTINGS = sorted(
    {*((model, "fm") for model in paircaps.list_models()), *product(SMALL, paircaps.list_routings())}
)
"""Every model, and every routing in every kind of capsule layer; pooling twins have no routing."""


def test_every_model_and_every_routing_is_among_the_networks():
    models, routings = zip(*MODELS_AND_ROUTINGS, strict=True)
    assert set(models) == set(paircaps.list_models()) > set(SMALL)
    assert set(routings) == set(paircaps.list_routings())
    kinds = {type(layer) for name in SMALL for layer in paircaps.create_model(name).modules()}
    assert kinds >= {CapsuleLayer, ConvCapsuleLayer, MapCapsuleLayer}


@pytest.mark.parametrize(("model", "routing"), MODELS_AND_ROUTINGS)
def test_every_network_comes_back_bit_for_bit(tmp_path, model, routing):
    decoder = "deconv" if routing == "fm" else "dense"
    arguments = {"num_classes": 3, "in_channels": 1, "image_size": 24, "routing": routing, "norm_momentum": 0.3}
    spec = NetworkSpec(model, arguments, ("a", "b", "c"), Preparation((24, 24), (24, 24)), decoder)
    network = with_other_values(Network(spec))
    save_model(tmp_path, network, {})
    loaded = paircaps.load(tmp_path)
    state = network.state_dict()
    assert list(loaded.state_dict()) == list(state)
    for name, value in loaded.state_dict().items():
        assert value.dtype == state[name].dtype
        assert value.stride() == state[name].stride()
        assert torch.equal(value, state[name]), name
    assert everything(loaded) == everything(network)
    needs = {name: value.requires_grad for name, value in network.named_parameters()}
    assert {name: value.requires_grad for name, value in loaded.named_parameters()} == needs
    images = torch.rand(3, 1, 24, 24, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        assert all(map(torch.equal, loaded(images), network(images)))
        assert torch.equal(loaded.reconstruct(images), network.reconstruct(images))


class OddModel(ImageModel):
    """A model whose constructor needs values, and keeps some that are not saved."""

    def __init__(self, num_classes=3, in_channels=1, image_size=16, routing="fm", *, needs_values=True, width=4):
        super().__init__(num_classes, in_channels, image_size, 1)
        self.pose_dim = width
        self.features = torch.nn.Linear(in_channels * self.image_size[0] * self.image_size[1], width)
        self.classify = torch.nn.Linear(width, num_classes)
        self.register_buffer("scale", torch.linspace(1, 2, width), persistent=False)
        self.offset = torch.tensor([0.5])
        self.tied = self.classify
        if needs_values:
            self.shift = float(torch.arange(4.0).sum().item())
        else:
            self.shift = 6.0

    def capsules(self, images):
        features = self.features(images.flatten(1)) * self.scale + self.offset + self.shift
        pose = features.unsqueeze(-2).expand(-1, self.num_classes, -1)
        return paircaps.Capsules(pose, pose, self.tied(features))


@pytest.fixture
def odd(monkeypatch, tmp_path):
    from paircaps.models.registry import _MODELS, register_model

    monkeypatch.setattr(_MODELS, "_factories", dict(_MODELS._factories))
    register_model("odd", OddModel)

    def save(**options):
        arguments = {"num_classes": 3, "in_channels": 1, "image_size": 16, **options}
        network = Network(NetworkSpec("odd", arguments, ("a", "b", "c"), Preparation((16, 16), (16, 16)))).eval()
        save_model(tmp_path, network, {})
        return tmp_path, network

    return save


@pytest.mark.parametrize("needs_values", [True, False])
def test_a_model_of_a_plug_in_keeps_what_its_constructor_computes(odd, needs_values):
    folder, network = odd(needs_values=needs_values)
    images = torch.rand(2, 1, 16, 16)
    assert torch.equal(paircaps.load(folder)(images).activation, network(images).activation)


@pytest.mark.parametrize("needs_values", [True, False])
def test_a_giant_of_a_plug_in_is_refused_before_it_has_memory(odd, needs_values):
    folder, _ = odd(needs_values=needs_values)
    path = folder / "model.json"
    facts = json.loads(path.read_text())
    facts["arguments"]["width"] = 2_000_000  # 2 GB: more than that, no machine would give
    path.write_text(json.dumps(facts))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    refused(folder)
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024 < 500


def test_half_precision_comes_back_as_the_model_has_it(saved):
    folder, network = saved
    save_model(folder, network.half(), {})
    loaded = paircaps.load(folder)
    assert loaded.model.layers[0].votes.weight.dtype == torch.float32
    assert torch.equal(loaded.model.layers[0].votes.weight, network.model.layers[0].votes.weight.float())
