import pytest
import torch

from paircaps.data import Info, StoredDataset, load_dataset
from paircaps.losses import Loss, Objective
from paircaps.network import Network, NetworkSpec, Preparation
from paircaps.training.evaluation import BINS, evaluate

CLASSES = ("a", "b", "c", "never")


def objective(routing="dynamic", decoder="none", labels=1, classes=CLASSES, size=16):
    torch.manual_seed(1)
    arguments = {"num_classes": len(classes), "in_channels": 1, "image_size": size, "routing": routing}
    spec = NetworkSpec(
        "resnet-caps-small", arguments, classes, Preparation((size, size), (size, size)), decoder, labels
    )
    return Objective(Network(spec).eval(), Loss())


@pytest.fixture(scope="module")
def dataset():
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(256, (50, 1, 16, 16), dtype=torch.uint8, generator=generator)
    return StoredDataset(Info("noise", "test", CLASSES), images, torch.randint(3, (50,), generator=generator))


@pytest.mark.parametrize("routing", ["fm", "em"])
def test_every_number_against_a_plain_loop(dataset, routing):
    judge = objective(routing)
    seen = evaluate(judge, dataset, batch_size=7)
    activation = judge.network(dataset.images).activation.detach()
    guess = activation.argmax(-1)
    right = guess == dataset.labels
    assert seen.images == 50
    assert seen.accuracy == right.double().mean().item()
    assert seen.loss == pytest.approx(judge.class_loss(activation, dataset.labels).item() / 50, rel=1e-5)
    for number, name in enumerate(CLASSES):
        own = dataset.labels == number
        assert seen.per_class[name] == (right[own].double().mean().item() if own.any() else None)
        assert seen.confusion[number] == [int((own & (guess == other)).sum()) for other in range(4)]
    confidence = (activation.softmax(-1) if routing == "fm" else activation).amax(-1)
    error = 0.0
    for number in range(BINS):
        inside = (confidence >= number / BINS) & ((confidence < (number + 1) / BINS) | (number == BINS - 1))
        if inside.any():
            gap = confidence[inside].double().mean() - right[inside].double().mean()
            error += abs(gap.item()) * inside.sum().item() / 50
    assert seen.calibration_error == pytest.approx(error, abs=1e-6)
    assert seen.drawing_error is None


def test_mirrored_evaluation_averages_both_views(dataset):
    judge = objective("fm")
    seen = evaluate(judge, dataset, mirror=True)
    views = (dataset.images, dataset.images.flip(-1))
    both = torch.stack([judge.network(images).activation for images in views]).mean(0)
    assert seen.accuracy == (both.argmax(-1) == dataset.labels).double().mean().item()
    assert seen.loss == pytest.approx(judge.class_loss(both, dataset.labels).item() / 50, rel=1e-5)
    plain = judge.network(dataset.images).activation.argmax(-1)
    assert (plain != both.argmax(-1)).any(), "so that the next line says something"
    assert seen.plain_accuracy == (plain == dataset.labels).double().mean().item()
    assert evaluate(judge, dataset).plain_accuracy is None


def test_two_labels():
    pairs = load_dataset("multi-glyphs", "test", length=30)
    judge = objective("dynamic", "deconv", 2, pairs.classes, 36)
    seen = evaluate(judge, pairs)
    activation = judge.network(pairs.images).activation
    top = activation.topk(2).indices.sort(-1).values
    labels = torch.stack([pairs.labels, pairs.second_label], -1)
    assert seen.accuracy == (top == labels.sort(-1).values).all(-1).double().mean().item()
    assert seen.confusion is None
    assert seen.calibration_error is None
    drawn = judge.network.decoder(judge.network(pairs.images), labels)
    error = (drawn - pairs.originals.float() / 255).square().sum().item() / 30
    assert seen.drawing_error == pytest.approx(error, rel=1e-4)
    for number, name in enumerate(pairs.classes):
        holds = (labels == number).any(-1)
        assert seen.per_class[name] == pytest.approx((top[holds] == number).any(-1).double().mean().item())
