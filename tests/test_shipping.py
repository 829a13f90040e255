"""A finished run becomes weights with a card: whole or not at all, with the numbers of what is stored."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from explain.small import lively

import paircaps
from paircaps import shipping
from paircaps.errors import PaircapsError
from paircaps.explain.kept_poses import KeptPoses, kept_poses
from paircaps.explain.perturb import DimensionRanges
from paircaps.model_card import model_card
from paircaps.model_files import read_metadata, save_model
from paircaps.network import Network, NetworkSpec
from paircaps.shipping import nearest_recipe, ship
from paircaps.training.evaluation import Evaluation
from paircaps.training.recipe_io import recipe_from_tree
from paircaps.training.recipes import load_recipe
from paircaps.training.run_folder import RunFolder

OLD = Path(__file__).parent / "training" / "run_of_be29f46"


def quiet(line):
    pass


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A finished run of a tiny network on few images, with a decoder that its training had not."""
    folder = tmp_path_factory.mktemp("trained") / "run"
    shutil.copytree(OLD, folder)
    config = folder / "config.toml"
    config.write_text(config.read_text().replace("limit = 300", "limit = 100"))
    network = paircaps.load(folder)
    spec = network.spec
    drawing = Network(NetworkSpec(spec.model, spec.arguments, spec.classes, spec.preparation, "dense"))
    drawing.model.load_state_dict(network.model.state_dict())
    lively(drawing.decoder)
    save_model(folder, drawing, read_metadata(folder)["trained"])
    return folder


@pytest.fixture(scope="module")
def kept(trained, tmp_path_factory):
    """Shipped weights whose poses were measured."""
    return ship(trained, "kept", tmp_path_factory.mktemp("shipped"), quiet).folder


@pytest.fixture(autouse=True)
def _no_measurement(monkeypatch):
    """Poses are measured once, for the fixture above."""
    ranges = DimensionRanges(torch.zeros(10, 4), torch.ones(10, 4))
    monkeypatch.setattr(shipping, "measure_poses", lambda *_: KeptPoses(ranges, "nothing", None))


@pytest.fixture
def run(trained, tmp_path):
    return Path(shutil.copytree(trained, tmp_path / "run"))


def test_a_run_is_shipped_and_gives_its_number_again(run, tmp_path):
    shipped = ship(run, "tiny", tmp_path, quiet, precision="bf16")
    metadata = read_metadata(shipped.folder)
    assert sorted(file.name for file in shipped.folder.iterdir()) == ["README.md", "model.json", "model.safetensors"]
    assert (shipped.folder / "README.md").read_text() == model_card(metadata)
    evaluation = metadata["card"]["evaluation"]
    assert (evaluation["images"], evaluation["data"]) == (100, "glyphs")
    assert evaluation["accuracy"] == shipped.accuracy
    assert metadata["card"]["accuracy_fp32"] == shipped.accuracy_fp32
    assert not (tmp_path / ".tiny").exists()
    assert RunFolder(shipped.folder).read_recipe().data == RunFolder(run).read_recipe().data
    half = (run / "model.safetensors").stat().st_size / 2
    assert half < (shipped.folder / "model.safetensors").stat().st_size < 1.2 * half
    stored, whole = paircaps.load(shipped.folder), paircaps.load(run)
    images = torch.rand(4, 1, 28, 28)
    assert torch.allclose(stored(images).activation, whole(images).activation, atol=0.05)
    assert not torch.equal(stored(images).activation, whole(images).activation)


def test_ranges_of_poses_are_kept(kept, trained):
    network = paircaps.load(kept)
    poses = kept_poses(network, kept)
    assert poses.source == "glyphs"
    assert poses.ranges.low.shape == (10, network.model.pose_dim)
    assert (poses.ranges.low <= poses.ranges.high).all()
    assert [len(dimensions) for dimensions in poses.dimensions] == [4] * 10
    assert kept_poses(network, trained) is None


@pytest.mark.parametrize(
    "change",
    [
        {"low": [[0.0]]},
        {"high": [[float("nan")] * 4] * 10},
        {"low": [["x"] * 4] * 10},
        {"dimensions": [[[9, 0.1, None, None]]] * 10},
        {"dimensions": [[[0, 0.1, 3, None]]] * 10},
        {"dimensions": 5},
        {"measured_on": None, "low": None},
    ],
)
def test_damaged_ranges_are_told(kept, tmp_path, change):
    metadata = read_metadata(kept)
    metadata["poses"] |= change
    (tmp_path / "model.json").write_text(json.dumps(metadata))
    with pytest.raises(PaircapsError, match="its section 'poses' is damaged"):
        kept_poses(paircaps.load(kept), tmp_path)


def test_places_of_the_machine_stay_out(run, tmp_path):
    config = run / "config.toml"
    config.write_text(config.read_text().replace('folder = ""', 'folder = "/home/someone/data"'))
    text = (ship(run, "tiny", tmp_path, quiet).folder / "model.json").read_text()
    assert "someone" not in text


def test_a_folder_of_pictures_keeps_its_name_alone():
    recipe = load_recipe("folder", {"data": {"name": "/home/someone/cats/"}})
    portable = shipping._portable(recipe)
    assert portable["data"]["name"] == "./cats"
    assert shipping._data(recipe_from_tree(portable))["name"] == "./cats"
    assert nearest_recipe(recipe_from_tree(portable))[1]["data.name"] == "./cats"


@pytest.mark.parametrize("name", ["", "Digits", "a/b", "../x", "a--b", "-a", "a b", "ü"])
def test_a_bad_name_is_refused(run, tmp_path, name):
    with pytest.raises(PaircapsError, match="a name has small letters, digits and single hyphens"):
        ship(run, name, tmp_path, quiet)


def test_a_run_that_is_not_finished_is_refused(run, tmp_path):
    (run / "model.json").unlink()
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(PaircapsError, match="its training has not finished"):
        ship(run, "tiny", tmp_path, quiet)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_place_that_is_none_is_told(run, tmp_path):
    with pytest.raises(PaircapsError, match="no such folder"):
        ship(run, "tiny", tmp_path / "nowhere", quiet)
    with pytest.raises(PaircapsError, match=r"which are no files of weights"):
        ship(run, "run", tmp_path, quiet, replace=True)


def test_weights_that_are_there_are_replaced_when_asked(run, tmp_path):
    folder = ship(run, "tiny", tmp_path, quiet).folder
    first = (folder / "model.safetensors").read_bytes()
    with pytest.raises(PaircapsError, match="is there already; --replace writes it anew"):
        ship(run, "tiny", tmp_path, quiet, precision="bf16")
    assert (folder / "model.safetensors").read_bytes() == first
    ship(run, "tiny", tmp_path, quiet, precision="bf16", replace=True)
    assert (folder / "model.safetensors").read_bytes() != first
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["run", "tiny"]


def test_bits_that_cost_accuracy_are_refused_and_nothing_is_written(run, tmp_path, monkeypatch):
    found = iter([0.9, 0.8989])

    def evaluate(*_, **__):
        return Evaluation(
            images=1, accuracy=next(found), loss=1.0, per_class={}, confusion=None, calibration_error=None,
            drawing_error=None, plain_accuracy=None,
        )  # fmt: skip

    monkeypatch.setattr(shipping, "evaluate", evaluate)
    with pytest.raises(PaircapsError, match=r"90\.00 % become 89\.89 %, and more than 0\.1 points are too many"):
        ship(run, "tiny", tmp_path, quiet, precision="bf16")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["run"]


def test_the_nearest_recipe_and_what_was_changed():
    recipe = load_recipe("digits", {"model": {"name": "resnet-pool-small"}, "train": {"seed": 3}})
    assert nearest_recipe(recipe) == ("digits", {"model.name": "resnet-pool-small", "train.seed": "3"})
