"""Networks that come with the project: found by name, what their files say is true, and together they are small."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from explain.small import small_network

import paircaps
from paircaps._utils import shipped
from paircaps.data.files.locate import missing_splits
from paircaps.errors import ModelFileError
from paircaps.model_card import model_card
from paircaps.model_files import read_metadata, save_model
from paircaps.pretrained import list_weights, weights_folder
from paircaps.training.datasets import own_dataset
from paircaps.training.evaluation import evaluate
from paircaps.training.recipe_io import differing_values
from paircaps.training.recipes import load_recipe
from paircaps.training.run_folder import RunFolder
from paircaps.training.trained_network import load_objective

ROOT = Path(__file__).parents[1]
OURS = [pytest.param(weights, id=weights.name) for weights in list_weights()]
QUICK = ("digits", "glyphs")
"""Networks that are evaluated here; the others take minutes, and PAIRCAPS_ALL_WEIGHTS asks for them."""


@pytest.fixture
def ship_some(tmp_path, monkeypatch):
    """A function that ships a small network under a name, in a folder that PAIRCAPS_WEIGHTS names."""
    place = tmp_path / "shipped"
    place.mkdir()
    monkeypatch.setenv(shipped.VARIABLE, str(place))

    def ship(name, network=None, **more):
        (place / name).mkdir()
        save_model(place / name, network or small_network(decoder="none"), {"loss": {}}, **more)
        return place / name

    return ship


# --- found by name ---------------------------------------------------------------------------------------------------


def test_a_name_and_its_folder_are_one_network(ship_some):
    folder = ship_some("mine")
    images = torch.rand(2, 1, 28, 28)
    assert torch.equal(paircaps.load("mine")(images).activation, paircaps.load(folder)(images).activation)
    assert weights_folder("mine") == folder


def test_a_path_that_exists_wins(ship_some, tmp_path, monkeypatch):
    ship_some("mine")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    other = small_network(decoder="none", classes=("cat", "dog"))
    save_model(tmp_path / "mine", other, {})
    assert paircaps.load("mine").classes == ("cat", "dog")
    assert len(paircaps.load("./mine").classes) == 2
    (tmp_path / "mine" / "model.json").unlink()
    with pytest.raises(ModelFileError, match="mine: no trained model here"):
        paircaps.load("mine")


def model_of(name):
    return paircaps.create_model("resnet-caps-small", pretrained=name)


@pytest.mark.parametrize("ask", [paircaps.load, weights_folder, model_of])
def test_an_unknown_name_says_what_there_is(ship_some, ask):
    ship_some("my-digits")
    with pytest.raises(ModelFileError) as error:
        ask("my-digit")
    assert "did you mean 'my-digits'?" in str(error.value)
    assert "Here are" in str(error.value)


def test_a_larger_one_that_is_not_here_says_where_it_is(monkeypatch):
    monkeypatch.setattr(shipped, "CHECKOUT", Path("/nowhere/weights"))
    with pytest.raises(ModelFileError, match=r"come with the repository, in its folder weights.*PAIRCAPS_WEIGHTS"):
        paircaps.load("cifar10")


def test_a_path_is_told_as_a_path():
    with pytest.raises(ModelFileError, match=r"^runs/nothing: no such folder$"):
        paircaps.load("runs/nothing")


def test_listing_loads_no_pytorch():
    code = "import sys; from paircaps.pretrained import list_weights; list_weights(); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_weights_that_nobody_shipped_are_told(ship_some):
    folder = ship_some("mine")
    with pytest.raises(ModelFileError, match="does not describe weights as `paircaps weights add` writes them: 'card'"):
        list_weights()
    (folder / "model.json").write_text("{")
    with pytest.raises(ModelFileError, match="not JSON"):
        list_weights()


# --- weights of a model ----------------------------------------------------------------------------------------------


def test_a_model_gets_weights_and_arguments(ship_some):
    network = small_network("em", size=20, channels=3, classes=("a", "b", "c"))
    ship_some("mine", network, precision="bf16")
    model = paircaps.create_model("resnet-caps-small", pretrained="mine", norm_momentum=0.5)
    assert (model.num_classes, model.in_channels, model.image_size) == (3, 3, (20, 20))
    images = torch.rand(2, 3, 20, 20)
    assert torch.equal(model.eval()(images).activation, paircaps.load("mine").model(images).activation)
    assert {value.dtype for value in model.state_dict().values()} == {torch.float32, torch.int64}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            {"name": "capsnet"},
            "are of resnet-caps-small, not of capsnet: create_model('resnet-caps-small', pretrained=",
        ),
        ({"num_classes": 5}, "are for num_classes=10, got num_classes=5; without that argument the model gets theirs"),
        ({"in_channels": 3}, "are for in_channels=1, got in_channels=3"),
        ({"routing": "em"}, "are for routing='fm', got routing='em'"),
        ({"image_size": 40}, "which was built with image_size=40 where the weights have [28, 28]"),
        ({"widths": (8, 8, 8)}, "which was built with widths=(8, 8, 8) where the weights have 'the usual value'"),
    ],
)
def test_what_does_not_fit_is_told(ship_some, arguments, words):
    ship_some("mine")
    with pytest.raises(ValueError, match="the weights 'mine' ") as error:
        paircaps.create_model(**{"name": "resnet-caps-small", "pretrained": "mine", **arguments})
    assert words in str(error.value)


def test_what_fits_may_be_given_again(ship_some):
    ship_some("mine")
    model = paircaps.create_model("resnet-caps-small", 10, 1, 28, "fm", pretrained="mine")
    assert model.image_size == (28, 28)


# --- files that do not belong together --------------------------------------------------------------------------------


def test_weights_beside_the_card_of_others_are_refused(ship_some):
    folder = ship_some("mine")
    card = model_card(read_metadata(folder))
    (folder / "README.md").write_text(card)
    assert paircaps.load("mine").classes
    wrong = card.replace(read_metadata(folder)["sha256"], "0" * 64)
    (folder / "README.md").write_text(wrong)
    for ask in (paircaps.load, model_of):
        with pytest.raises(ModelFileError, match="the card is of weights with the SHA-256 0000"):
            ask("mine")


def test_changed_weights_are_refused(ship_some):
    folder = ship_some("mine")
    content = bytearray((folder / "model.safetensors").read_bytes())
    content[-1] ^= 1
    (folder / "model.safetensors").write_bytes(content)
    for ask in (paircaps.load, model_of):
        with pytest.raises(ModelFileError, match=r"its checksum is not the one in model\.json"):
            ask("mine")


# --- those of the project --------------------------------------------------------------------------------------------


def test_the_names_are_those_of_the_folders():
    package = {folder.name for folder in shipped.PACKAGE.iterdir() if folder.is_dir()}
    assert package <= set(shipped.IN_PACKAGE)
    repository = {folder.name for folder in shipped.CHECKOUT.glob("*") if folder.is_dir()}
    assert repository <= set(shipped.IN_REPOSITORY)


def test_they_are_small():
    def size(place):
        return sum(file.stat().st_size for file in place.rglob("*") if file.is_file())

    assert size(shipped.PACKAGE) < 5e6, "the wheel may have 6 MB"
    assert size(shipped.PACKAGE) + size(shipped.CHECKOUT) < 15e6


@pytest.mark.parametrize("weights", OURS)
def test_what_their_files_say_is_true(weights):
    metadata = read_metadata(weights.folder)
    network = paircaps.load(weights.name)
    assert sorted(file.name for file in weights.folder.iterdir()) == ["README.md", "model.json", "model.safetensors"]
    assert weights.card == model_card(metadata), "made again by `paircaps weights add`"
    assert weights.name == metadata["card"]["name"] == weights.folder.name
    assert weights.parameters == paircaps.count_parameters(network.model)
    assert weights.routing in (None, network.spec.routing)
    assert os.sep not in json.dumps(metadata["trained"]["recipe"]["data"]), "a place of the machine that trained it"
    assert {value.dtype for value in network.state_dict().values()} <= {torch.float32, torch.int64}


@pytest.mark.parametrize("weights", OURS)
def test_their_command_trains_their_recipe(weights):
    words = weights.command.split()
    overrides = {}
    for key, value in zip(words[3::2], words[4::2], strict=True):
        if key != "--out":
            section, name = key.removeprefix("--").split(".")
            kind = value if not value.replace(".", "").isdigit() else json.loads(value)
            overrides.setdefault(section, {})[name] = kind
    found = differing_values(load_recipe(words[2], overrides), RunFolder(weights.folder).read_recipe())
    assert found.keys() <= {"data.split"}


@pytest.mark.parametrize("weights", OURS)
def test_they_reach_the_number_of_their_card(weights):
    if weights.name not in QUICK and not os.environ.get("PAIRCAPS_ALL_WEIGHTS"):
        pytest.skip("takes minutes: with PAIRCAPS_ALL_WEIGHTS=1 it is tested")
    if missing_splits(weights.tested_on):
        pytest.skip(f"needs {weights.tested_on}")
    objective, views = load_objective(weights.folder)
    found = evaluate(objective, own_dataset(weights.folder), views=views)
    assert found.images == weights.images
    assert found.accuracy == weights.accuracy
    assert f"| accuracy | {100 * found.accuracy:.2f} % |" in weights.card


def test_a_checkout_elsewhere_is_not_taken_for_ours(tmp_path, monkeypatch):
    monkeypatch.setattr(shipped, "CHECKOUT", tmp_path / "weights")
    shutil.copytree(ROOT / "tests" / "training" / "run_of_be29f46", tmp_path / "weights" / "foreign")
    assert "foreign" not in shipped.shipped_folders()
    (tmp_path / "pyproject.toml").touch()
    assert "foreign" in shipped.shipped_folders()


# --- what newcomers typed ---------------------------------------------------------------------------------------------


def test_a_name_with_the_slash_of_completion_is_the_name():
    assert shipped.path_or_shipped("glyphs/") == weights_folder("glyphs")


def test_a_folder_that_hides_a_name_says_so(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("glyphs").mkdir()
    with pytest.raises(
        ModelFileError, match=r"no model\.json in it\. The network 'glyphs' that comes with paircaps is "
    ):
        paircaps.load("glyphs")
    with pytest.raises(ModelFileError, match=r"no model\.json in it$"):
        paircaps.load(tmp_path / "glyphs")


def test_pretrained_true_is_asked_for_a_name():
    with pytest.raises(TypeError, match=r"must be the name of a network or a folder, got True; here are .*glyphs"):
        paircaps.create_model("resnet-caps-small", pretrained=True)
