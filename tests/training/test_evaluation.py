import pytest
import torch

from paircaps.data import Info, StoredDataset, load_dataset
from paircaps.losses import Loss, Objective
from paircaps.network import Network, NetworkSpec, Preparation
from paircaps.training.distributed import Processes
from paircaps.training.evaluation import BINS, EvaluatedBatch, Evaluation, EvaluationCounts, evaluate

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
    net = objective(routing)
    metrics = evaluate(net, dataset, batch_size=7)
    activation = net.network(dataset.images).activation.detach()
    guess = activation.argmax(-1)
    right = guess == dataset.labels
    assert metrics.images == 50
    assert metrics.accuracy == right.double().mean().item()
    assert metrics.loss == pytest.approx(net.class_loss(activation, dataset.labels).item() / 50, rel=1e-5)
    for number, name in enumerate(CLASSES):
        own = dataset.labels == number
        assert metrics.per_class[name] == (right[own].double().mean().item() if own.any() else None)
        assert metrics.confusion[number] == [int((own & (guess == other)).sum()) for other in range(4)]
    confidence = (activation.softmax(-1) if routing == "fm" else activation).amax(-1)
    error = 0.0
    for number in range(BINS):
        inside = (confidence >= number / BINS) & ((confidence < (number + 1) / BINS) | (number == BINS - 1))
        if inside.any():
            gap = confidence[inside].double().mean() - right[inside].double().mean()
            error += abs(gap.item()) * inside.sum().item() / 50
    assert metrics.calibration_error == pytest.approx(error, abs=1e-6)
    assert metrics.drawing_error is None


def test_mirrored_evaluation_averages_both_views(dataset):
    net = objective("fm")
    metrics = evaluate(net, dataset, mirror=True)
    views = (dataset.images, dataset.images.flip(-1))
    both = torch.stack([net.network(images).activation for images in views]).mean(0)
    assert metrics.accuracy == (both.argmax(-1) == dataset.labels).double().mean().item()
    assert metrics.loss == pytest.approx(net.class_loss(both, dataset.labels).item() / 50, rel=1e-5)
    plain = net.network(dataset.images).activation.argmax(-1)
    assert (plain != both.argmax(-1)).any(), "so that the next line says something"
    assert metrics.plain_accuracy == (plain == dataset.labels).double().mean().item()
    assert evaluate(net, dataset).plain_accuracy is None


def test_two_labels():
    pairs = load_dataset("multi-glyphs", "test", length=30)
    net = objective("dynamic", "deconv", 2, pairs.classes, 36)
    metrics = evaluate(net, pairs)
    activation = net.network(pairs.images).activation
    top = activation.topk(2).indices.sort(-1).values
    labels = torch.stack([pairs.labels, pairs.second_label], -1)
    assert metrics.accuracy == (top == labels.sort(-1).values).all(-1).double().mean().item()
    assert metrics.confusion is None
    assert metrics.calibration_error is None
    drawn = net.network.decoder(net.network(pairs.images), labels)
    error = (drawn - pairs.originals.float() / 255).square().sum().item() / 30
    assert metrics.drawing_error == pytest.approx(error, rel=1e-4)
    for number, name in enumerate(pairs.classes):
        holds = (labels == number).any(-1)
        assert metrics.per_class[name] == pytest.approx((top[holds] == number).any(-1).double().mean().item())


def counted(activation, labels):
    counts = EvaluationCounts(activation.shape[-1])
    counts.add(EvaluatedBatch(activation, activation, labels, 3.0, 2.0, "margin"))
    return counts


def test_counts_of_several_processes_are_those_of_all_images(monkeypatch):
    """Every counter is summed: one that is forgotten would be right in one process and wrong in two."""
    torch.manual_seed(0)
    activation, labels = torch.rand(40, 4), torch.randint(4, (40,))
    one, other = counted(activation[:15], labels[:15]), counted(activation[15:], labels[15:])
    whole = counted(activation, labels)
    whole.loss, whole.reconstruction_error = whole.loss * 2, whole.reconstruction_error * 2  # two batches
    others = iter(vars(other).values())
    monkeypatch.setattr(Processes, "sum_tensor", lambda self, values: values.add_(next(others)))
    one.sum_over(Processes())
    for name, value in vars(whole).items():
        torch.testing.assert_close(getattr(one, name), value)
        assert value.sum() > 0, name


def test_lines_of_the_metrics_that_there_are():
    metrics = Evaluation(
        images=3,
        accuracy=0.5,
        loss=1.25,
        per_class={"a": 0.5},
        confusion=None,
        calibration_error=None,
        drawing_error=7.0,
        plain_accuracy=None,
    )
    assert metrics.lines() == [
        "accuracy           50.00 %",
        "loss               1.2500",
        "drawing error      7.00 (squared, summed over the pixels of an image)",
    ]
    assert metrics.numbers() == {"images": 3, "accuracy": 0.5, "loss": 1.25, "drawing_error": 7.0}
