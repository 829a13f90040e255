"""The library with torch, numpy and safetensors alone, in an environment that has nothing else."""

import json
import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest

import paircaps

LIBRARIES = ("torch", "numpy", "safetensors")
TOOLS = {"pip", "setuptools", "wheel"}


def closure(names):
    """Installed distributions that some need, with themselves; extras and other platforms are not installed."""
    found, left = {}, list(names)
    while left:
        name = left.pop()
        if name in found:
            continue
        try:
            found[name] = distribution(name)
        except PackageNotFoundError:
            continue
        needs = [need for need in found[name].requires or [] if "extra ==" not in need]
        left += [re.match(r"[A-Za-z0-9._-]+", need)[0].lower() for need in needs]
    return found


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    """Python of an environment with the three libraries and what they themselves need, as links."""
    folder = tmp_path_factory.mktemp("bare")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (site,) = folder.glob("lib/python*/site-packages")
    for name, found in closure(LIBRARIES).items():
        if name in TOOLS:
            continue
        for top in {Path(file).parts[0] for file in found.files or [] if not str(file).startswith("..")}:
            if not (site / top).exists() and top != "__pycache__":
                (site / top).symlink_to(Path(str(found.locate_file(top))))
    (site / "paircaps").symlink_to(Path(paircaps.__file__).parent)
    return folder / "bin" / "python"


def run(bare, *words, code=0):
    done = subprocess.run([bare, "-I", *map(str, words)], capture_output=True, text=True, timeout=300)
    assert "Traceback" not in done.stderr, done.stderr
    assert done.returncode == code, done.stderr
    return done.stdout, done.stderr


def test_there_is_nothing_else(bare):
    absent = ("PIL", "matplotlib", "jsonargparse", "tqdm", "pooch", "requests", "fastapi", "scipy", "pytest")
    code = f"from importlib.util import find_spec; print([name for name in {absent!r} if find_spec(name)])"
    assert run(bare, "-c", code)[0] == "[]\n"


LIBRARY = """
import sys, tempfile
from pathlib import Path

import paircaps
import torch
from paircaps.model_files import save_model
from paircaps.network import Network, NetworkSpec, Preparation

# a layer learns
layer = paircaps.CapsuleLayer(in_capsules=6, out_capsules=3, pose_dim=4)
optimiser = torch.optim.SGD(layer.parameters(), lr=0.1)
before = [p.detach().clone() for p in layer.parameters()]
layer(torch.rand(2, 6, 4)).activation.square().sum().backward()
optimiser.step()
assert any(not torch.equal(old, new) for old, new in zip(before, layer.parameters()))

# every model is built and runs
for name in paircaps.list_models():
    model = paircaps.create_model(name, image_size=32, in_channels=1)
    assert model(torch.rand(2, 1, 32, 32)).activation.shape == (2, 10)

# a network is saved, loaded, asked
arguments = {"num_classes": 3, "in_channels": 1, "image_size": (16, 16), "routing": "fm"}
spec = NetworkSpec("resnet-caps-small", arguments, ("a", "b", "c"), Preparation((16, 16), (16, 16), False), "none", 1)
network = Network(spec).eval()
with tempfile.TemporaryDirectory() as folder:
    save_model(Path(folder), network, {})
    again = paircaps.load(folder)
images = torch.randint(0, 256, (2, 1, 16, 16), dtype=torch.uint8)
assert torch.equal(network.classify(images), again.classify(images))
paircaps.testing.check_routing(paircaps.FMAgreement(3), out_capsules=3)
print("done")
"""


def test_the_library_works(bare):
    assert run(bare, "-c", "import paircaps; paircaps.CapsuleLayer")[1] == ""
    assert run(bare, "-c", LIBRARY)[0] == "done\n"


def test_help_and_version_work(bare):
    assert "usage: paircaps" in run(bare, "-m", "paircaps", "--help")[0]
    assert paircaps.__version__ in run(bare, "-m", "paircaps", "--version")[0]
    assert "| fm |" in run(bare, "-m", "paircaps", "estimate", "resnet-caps-small", "--batch", "2")[0]
    assert "usage: paircaps evaluate" in run(bare, "-m", "paircaps", "evaluate", "--help")[0]
    assert "extra tensorboard  lacks docstring-parser, " in run(bare, "-m", "paircaps", "info")[0]


COMMANDS = [
    ["train", "glyphs", "--out", "x"],
    ["train", "--help"],
    ["replay", "x"],
    ["evaluate", "x"],
    ["predict", "x", "y.png"],
    ["explain", "x", "-o", "y"],
    ["equivariance", "x"],
    ["export", "x", "-o", "y.onnx"],
    ["serve", "x"],
    ["demo", "--out", "x"],
    ["reproduce", "table3", "--out", "x"],
    ["report", "x"],
    ["data", "list"],
    ["data", "check", "glyphs"],
    ["bench", "data"],
    ["bench", "layer", "-o", "a.png"],
    ["bench", "serve"],
]
EVERY_COMMAND = f"""
import contextlib, io, json
from paircaps.cli import main
for words in {COMMANDS!r}:
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        code = main(words)
    print(json.dumps([code, said.getvalue()]))
"""


def test_a_command_says_what_it_needs(bare, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = run(bare, "-c", EVERY_COMMAND)[0].splitlines()  # one process, for PyTorch takes a second to load
    sentence = r"paircaps: {} needs [\w, -]+, which (is|are) not installed: pip install 'paircaps\[(train|serve)\]'\n"
    for words, line in zip(COMMANDS, lines, strict=True):
        code, said = json.loads(line)
        assert (words, code) == (words, 1), said
        assert re.fullmatch(sentence.format(f"{words[0]}.*"), said), words
    assert not list(tmp_path.iterdir())
