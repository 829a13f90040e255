"""Trainings of segmentation networks: IoU, the best epoch by it, and what does not fit together."""

import json
from dataclasses import replace

import pytest
import torch

from paircaps import load
from paircaps.data import Info, Loader, StoredDataset, load_dataset
from paircaps.data.dataset import MASK_INDEX
from paircaps.errors import RecipeError
from paircaps.losses import Loss, Objective, target_masks
from paircaps.network import Network, NetworkSpec, Preparation
from paircaps.training import train
from paircaps.training.assemble import build_objective
from paircaps.training.datasets import Datasets
from paircaps.training.evaluation import Evaluation, evaluate
from paircaps.training.recipes import load_recipe

SHORT = {"data": {"limit": 60}, "train": {"batch_size": 20, "epochs": 2}, "evaluate": {"settle": 2}}
DIGITS = tuple("0123456789")


def network(model="caps-segment", size=36):
    torch.manual_seed(0)
    arguments = {"num_classes": 10, "image_size": size}
    return Network(NetworkSpec(model, arguments, DIGITS, Preparation((size, size), (size, size)), "none", 2)).eval()


@pytest.fixture(scope="module")
def digits():
    return load_dataset("multi-glyphs", "test").limit(30)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return train(load_recipe("segment-glyphs", SHORT), tmp_path_factory.mktemp("run") / "segment")


def test_iou_against_a_plain_loop(digits):
    made = network()
    with torch.no_grad():
        made.model.read.bias.copy_(torch.linspace(-0.5, 0.5, 40))  # masks of some pixels in most classes
    metrics = evaluate(Objective(made, Loss()), digits, batch_size=7)
    both, either = [0] * 10, [0] * 10
    for batch in Loader(digits, 1, shuffle=False).epoch(0):
        found = made.segment(batch.images).masks[0] > 0
        true = target_masks(batch.targets, batch.originals, 10)[0] > 0
        for label in range(10):
            both[label] += int((found[label] & true[label]).sum())
            either[label] += int((found[label] | true[label]).sum())
    ious = [one / other for one, other in zip(both, either, strict=True)]
    assert 0 < sum(both) < sum(either)
    assert list(metrics.iou_per_class.values()) == pytest.approx(ious)
    assert metrics.mean_iou == pytest.approx(sum(ious) / 10)
    assert metrics.score == metrics.mean_iou
    assert "mean IoU" in "\n".join(metrics.lines())


def test_a_class_without_pixels_has_no_iou_and_counts_nothing():
    index = torch.zeros(4, 12, 12, dtype=torch.uint8)
    index[:, 2:6] = 1
    images = torch.randint(0, 256, (4, 1, 12, 12), dtype=torch.uint8)
    info = Info("cells", "test", ("cell", "never"), made_for_masks=True)
    dataset = StoredDataset(info, images, torch.zeros(4, dtype=torch.long), {MASK_INDEX: index})
    preparation = Preparation((12, 12), (12, 12))
    made = Network(NetworkSpec("unet-twin", {"num_classes": 2, "image_size": 12}, info.classes, preparation)).eval()
    with torch.no_grad():
        made.model.read.bias.fill_(50)
        made.model.read.bias[4:] = -50  # the second class is nowhere
    metrics = evaluate(Objective(made, Loss()), dataset)
    assert metrics.iou_per_class == {"cell": pytest.approx(4 / 12), "never": None}
    assert metrics.mean_iou == pytest.approx(4 / 12)


def test_a_network_without_masks_has_no_iou():
    glyphs = load_dataset("glyphs", "test").limit(20)
    spec = NetworkSpec("resnet-caps-small", {"num_classes": 10}, DIGITS, Preparation((28, 28), (28, 28)))
    metrics = evaluate(Objective(Network(spec).eval(), Loss()), glyphs)
    assert (metrics.mean_iou, metrics.iou_per_class) == (None, None)
    assert metrics.score == metrics.accuracy
    assert "IoU" not in "\n".join(metrics.lines())


def test_a_run_says_its_iou_and_loads(run):
    rows = [json.loads(line) for line in (run.folder / "metrics.jsonl").read_text().splitlines()]
    epochs = [row for row in rows if row["kind"] == "epoch"]
    assert all(0 <= row["validation_mean_iou"] <= 1 for row in epochs)
    assert "mean_iou" in next(row for row in rows if row["kind"] == "test")
    assert run.trained["test_mean_iou"] == pytest.approx(rows[-1]["mean_iou"])
    assert set(run.trained["test_iou_per_class"]) == set(DIGITS)
    assert load(run.folder).segment(torch.rand(1, 1, 36, 36)).masks.shape == (1, 10, 36, 36)


def test_the_best_epoch_is_that_of_the_best_iou(monkeypatch, tmp_path):
    scores = iter([(0.2, 0.9), (0.6, 0.1), (0.4, 0.99), (0.5, 0.5)])  # IoU and accuracy of three validations and a test

    def pretend(*_):
        iou, accuracy = next(scores)
        return replace(NOTHING, mean_iou=iou, accuracy=accuracy)

    monkeypatch.setattr("paircaps.training.evaluation.Evaluator.evaluate", pretend)
    recipe = load_recipe("segment-glyphs", {**SHORT, "train": {"batch_size": 57, "epochs": 3}})
    result = train(recipe, tmp_path / "run")
    assert result.trained["weights_of_step"] == 2
    assert (result.trained["validation_mean_iou"], result.trained["validation_accuracy"]) == (0.6, None)


NOTHING = Evaluation(
    images=1,
    accuracy=0,
    loss=1,
    per_class={},
    confusion=None,
    calibration_error=None,
    drawing_error=None,
    plain_accuracy=None,
    iou_per_class={},
)


def built(recipe, dataset):
    return build_objective(recipe, Datasets(dataset, None, dataset), torch.device("cpu"))


def test_masks_need_images_that_have_them(digits):
    glyphs = load_dataset("glyphs", "test").limit(20)
    with pytest.raises(RecipeError, match=r"caps-segment learns masks, and <glyphs .* has none; multi-mnist and"):
        built(load_recipe("segment-glyphs", {"data": {"name": "glyphs", "options": {}}}), glyphs)
    info = replace(digits.info, made_for_masks=True)
    index = torch.ones(4, 36, 36, dtype=torch.uint8)
    masked = StoredDataset(info, digits.images[:4], digits.labels[:4], {MASK_INDEX: index})
    with pytest.raises(RecipeError, match=r"resnet-caps-small classifies images, and .* has masks in place of classes"):
        built(load_recipe("glyphs"), masked)
    assert built(load_recipe("glyphs"), digits).loss_name == "margin", "two digits may be classified, too"


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"augment": {"rotation": 10}}, "augment: a segmentation network learns masks"),
        ({"train": {"sizes": [20, 36]}}, "train.sizes: a segmentation network learns masks"),
        ({"loss": {"name": "margin"}}, "loss: name: margin is for networks that classify"),
    ],
)
def test_what_would_not_change_the_masks_is_refused(digits, changes, complaint):
    with pytest.raises(RecipeError, match=complaint):
        built(load_recipe("segment-glyphs", changes), digits)
