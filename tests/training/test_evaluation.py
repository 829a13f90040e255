import pytest
import torch

from paircaps.cli.names import TEST_VIEWS
from paircaps.data import Info, StoredDataset, load_dataset
from paircaps.functional import Capsules
from paircaps.losses import Loss, MaskPair, Objective, Outputs
from paircaps.network import Network, NetworkSpec, Preparation
from paircaps.training.distributed import Processes
from paircaps.training.evaluation import (
    BINS,
    VIEW_COUNTS,
    VIEWS,
    EvaluatedBatch,
    Evaluation,
    EvaluationCounts,
    evaluate,
)

CLASSES = ("a", "b", "c", "never")


def objective(routing="dynamic", decoder="none", labels=1, classes=CLASSES, size=16):
    torch.manual_seed(1)
    arguments = {"num_classes": len(classes), "in_channels": 1, "image_size": size, "routing": routing}
    spec = NetworkSpec(
        "resnet-caps-small", arguments, classes, Preparation((size, size), (size, size)), decoder, labels
    )
    return Objective(Network(spec).eval(), Loss())


def class_loss(objective, activation, labels):
    """The class loss of activations, summed over the images."""
    pose = activation.unsqueeze(-1)
    return objective.losses(Outputs(Capsules(pose, pose, activation)), labels, None, pose).class_loss.item()


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
    assert metrics.loss == pytest.approx(class_loss(net, activation, dataset.labels) / 50, rel=1e-5)
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
    metrics = evaluate(net, dataset, views="flip")
    views = (dataset.images, dataset.images.flip(-1))
    both = torch.stack([net.network(images).activation for images in views]).mean(0)
    assert metrics.accuracy == (both.argmax(-1) == dataset.labels).double().mean().item()
    assert metrics.loss == pytest.approx(class_loss(net, both, dataset.labels) / 50, rel=1e-5)
    plain = net.network(dataset.images).activation.argmax(-1)
    assert (plain != both.argmax(-1)).any(), "so that the next line says something"
    assert metrics.plain_accuracy == (plain == dataset.labels).double().mean().item()
    assert evaluate(net, dataset).plain_accuracy is None


def moved(images, down, right):
    """Images moved by whole pixels, pixel by pixel; what comes in from outside is reflected at the edge."""
    height, width = images.shape[-2:]
    found = torch.empty_like(images)
    for y in range(height):
        for x in range(width):
            row, column = abs(y - down), abs(x - right)
            row, column = min(row, 2 * (height - 1) - row), min(column, 2 * (width - 1) - column)
            found[..., y, x] = images[..., row, column]
    return found


def weighted_views(images, views):
    """All views of images with their weights, which are one together."""
    shifts = [(0, 0, 0.5), (1, 1, 0.25), (-1, -1, 0.25)] if "shift" in views else [(0, 0, 1.0)]
    for down, right, weight in shifts:
        seen = moved(images, down, right)
        if "flip" in views:
            yield seen.flip(-1), weight / 2
            weight /= 2
        yield seen, weight


@pytest.mark.parametrize("views", VIEWS)
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_activations_are_averaged_over_all_views(views, layout):
    net = objective("fm")
    images = torch.randint(256, (50, 1, 16, 16), dtype=torch.uint8, generator=torch.Generator().manual_seed(3))
    labels = torch.arange(50) % 4
    dataset = StoredDataset(Info("noise", "test", CLASSES), images, labels)
    metrics = evaluate(net, dataset, views=views, batch_size=16, memory_format=layout)
    seen = list(weighted_views(images, views))
    assert len(seen) == VIEW_COUNTS[views]
    assert sum(weight for _, weight in seen) == 1
    activation = sum(weight * net.network(view).activation.detach() for view, weight in seen)
    assert metrics.accuracy == (activation.argmax(-1) == labels).double().mean().item()
    assert metrics.loss == pytest.approx(class_loss(net, activation, labels) / 50, rel=1e-5)
    assert (metrics.plain_accuracy is None) == (views == "none")


@pytest.mark.parametrize("views", VIEWS)
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_views_keep_the_memory_format_of_the_images(views, layout):
    images, seen = torch.rand(3, 4, 6, 5).contiguous(memory_format=layout), []

    def activate(view):
        seen.append(view)
        return view.sum((1, 2, 3))[:, None]

    VIEWS[views](activate, images, activate(images))
    assert len(seen) == VIEW_COUNTS[views]
    for view in seen:
        assert view.shape == images.shape
        assert view.is_contiguous(memory_format=layout)


def test_unknown_views_are_refused_with_those_that_there_are(dataset):
    with pytest.raises(ValueError, match="views must be one of 'none', 'flip', 'shift', 'flip-shift', got 'mirror'"):
        evaluate(objective("fm"), dataset, views="mirror")


def test_the_command_line_offers_all_views():
    assert tuple(VIEWS) == tuple(VIEW_COUNTS) == TEST_VIEWS


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
    pixel = activation[..., None, None]  # masks of one pixel
    masks = MaskPair(pixel > 0.5, pixel > 0.3)
    counts.add(EvaluatedBatch(activation, activation, labels, 3.0, 2.0, "margin", masks))
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
        "accuracy             50.00 %",
        "loss                 1.2500",
        "drawing error        7.00 (squared, summed over the pixels of an image)",
    ]
    assert metrics.numbers() == {"images": 3, "accuracy": 0.5, "loss": 1.25, "drawing_error": 7.0}
