"""A card says what model.json says, and its head is what the Hub reads."""

import pytest
import yaml
from explain.small import saved, small_network

from paircaps.model_card import model_card
from paircaps.model_files import read_metadata

TRAINED = {"dataset": "glyphs", "tested_on": "glyphs", "seed": 3, "steps": 1200, "test_accuracy": 0.9876}
TRAINED |= {"test_loss": 0.1, "test_images": 2000, "machine": {"cpu": "a <b> | `c`", "commit": "abc"}, "loss": {}}


@pytest.fixture
def metadata(tmp_path):
    return read_metadata(saved(tmp_path / "net", small_network(decoder="none"), **TRAINED))


def test_a_card_of_an_ordinary_run(metadata):
    card = model_card(metadata, "mine")
    for words in ("# mine", "98.76 %", "On 2,000 test images of `glyphs`", "seed 3", "| commit | abc |"):
        assert words in card
    assert metadata["sha256"] in card
    assert "a b c" in card, "text from outside makes no table and no tag"
    for title in ("Numbers", "Training", "Data", "Limits", "Not for", "Files"):
        assert f"\n## {title}\n" in card


def test_the_head_is_yaml(metadata):
    metadata["model"] = 'a: "b'
    head = yaml.safe_load(model_card(metadata, "mine").split("---\n")[1])
    assert head["license"] == "mit"
    assert head["library_name"] == "paircaps"
    assert head["tags"][-1] == 'a: "b'
    assert head["model-index"][0]["results"][0]["metrics"] == [{"type": "accuracy", "value": 0.9876}]


def test_the_hub_reads_it(metadata):
    hub = pytest.importorskip("huggingface_hub")
    data = hub.ModelCard(model_card(metadata, "mine")).data
    assert data.eval_results[0].metric_value == 0.9876
    assert data.eval_results[0].dataset_name == "glyphs"


def test_what_is_not_known_is_not_told(metadata):
    metadata["trained"] = {}
    card = model_card(metadata)
    assert "None are recorded." in card
    assert "None" not in card.replace("None are recorded.", "")


def test_a_segmentation_network_has_its_iou(metadata):
    metadata["trained"]["test_mean_iou"] = 0.5
    card = model_card(metadata)
    assert "| mean IoU | 50.00 % |" in card
    assert "pipeline_tag: image-segmentation" in card
