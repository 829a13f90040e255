"""Evaluation of a network: accuracy, accuracy of each class, confusion matrix, loss, calibration error, IoU of masks.

A new metric needs four lines, all in this file:

1. in :meth:`EvaluationCounts.__init__`, a counter: what is summed over the images;
2. in :meth:`EvaluationCounts.add`, how a batch is counted (:class:`EvaluatedBatch` has what there is to count);
3. in :class:`Evaluation`, a field with its line in the docstring, and ``field(metadata=_printed(label, format))`` to be
   printed, in the order of the fields;
4. in :func:`_evaluation`, how the metric follows from the counters; None where it makes no sense, such as for images
   with two labels.

``paircaps evaluate``, its ``--json`` and the row of the test in ``metrics.jsonl`` take all fields from there, and
several processes sum all counters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import Field, asdict, dataclass, field, fields, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from paircaps._utils.checks import require_choice
from paircaps.data import Batch, ImageDataset, Loader
from paircaps.data.augment import padded_images
from paircaps.layers.norms import settling
from paircaps.losses import MaskPair, Objective, Outputs, is_right
from paircaps.training.distributed import Processes, synchronise_norms
from paircaps.training.recipe import Evaluate

BINS = 15
"""Number of bins of confidence for the calibration error."""


# --- metrics ---------------------------------------------------------------------------------------------------------


def _printed(label: str, text: str, factor: float = 1, remark: str = "") -> dict[str, Any]:
    """Mark a field as a line of ``paircaps evaluate``, and as a column for several networks.

    Args:
        label: name of the metric on that line.
        text: format of its value, and its unit.
        factor: what the value is multiplied by first, 100 for percent.
        remark: what the line says behind the value.
    """
    return {"label": label, "text": text, "factor": factor, "remark": f" ({remark})" if remark else ""}


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Metrics of a network on a dataset.

    Args:
        images: number of images.
        accuracy: share of images whose label is the most active class; with two labels, whose both are.
        loss: mean loss per image, as in training.
        per_class: accuracy on the images of each class, by its name; None for a class without images.
        confusion: number of images of each class (row) classified as each class (column); None with two labels.
        calibration_error: mean distance of confidence and accuracy over 15 bins of confidence (ECE). Confidence is the
            softmax for networks trained with cross entropy, and the activation for others; None with two labels.
        drawing_error: mean over the images of the squared error of the reconstruction, summed over its pixels. The
            pose is that of the most active class, with two labels those of the labels; None without a decoder.
        plain_accuracy: accuracy on the images alone; None where no other views are averaged anyway.
        mean_iou: mean over the classes of ``iou_per_class``; None of a network without masks.
        iou_per_class: intersection over union of each class by its name: pixels of all images that are in the found
            and in the true mask, divided by those that are in one of the two at least. Masks are those of the images
            alone, found where the logit is above zero. None for a class that is in neither.
    """

    images: int
    accuracy: float = field(metadata=_printed("accuracy", "{:.2f} %", 100))
    loss: float = field(metadata=_printed("loss", "{:.4f}"))
    per_class: dict[str, float | None]
    confusion: list[list[int]] | None
    calibration_error: float | None = field(metadata=_printed("calibration error", "{:.2f} %", 100))
    drawing_error: float | None = field(
        metadata=_printed("drawing error", "{:.2f}", remark="squared, summed over the pixels of an image")
    )
    plain_accuracy: float | None = field(metadata=_printed("without other views", "{:.2f} %", 100))
    mean_iou: float | None = field(default=None, metadata=_printed("mean IoU", "{:.2f} %", 100))
    iou_per_class: dict[str, float | None] | None = None

    @property
    def score(self) -> float:
        """Mean IoU of a network with masks, accuracy of others, by which the best epoch is chosen."""
        return self.accuracy if self.mean_iou is None else self.mean_iou

    def as_dict(self) -> dict[str, object]:
        """All metrics by name, for JSON."""
        return asdict(self)

    def numbers(self) -> dict[str, int | float]:
        """The metrics that are single numbers, by name, for ``metrics.jsonl``."""
        return {name: value for name, value in self.as_dict().items() if isinstance(value, int | float)}

    def lines(self) -> list[str]:
        """One line of text for each printed metric, label and value in columns."""
        width = max(len(part.metadata["label"]) for part in printed_metrics())
        values = [(part.metadata, getattr(self, part.name)) for part in printed_metrics()]
        return [
            f"{how['label']:{width}}  {how['text'].format(how['factor'] * value)}{how['remark']}"
            for how, value in values
            if value is not None
        ]


def printed_metrics() -> list[Field[Any]]:
    """Fields of an evaluation that are printed; their ``metadata`` is that of :func:`_printed`."""
    return [part for part in fields(Evaluation) if "label" in part.metadata]


@dataclass(frozen=True)
class EvaluatedBatch:
    """Outputs of a network for one batch, on the CPU.

    Args:
        activation: (B, J), averaged over all views of each image.
        plain_activation: (B, J), of the images alone.
        labels: (B,) class indices, or (B, D).
        loss: sum of the losses of the images.
        reconstruction_error: sum of the squared errors of the reconstructions; 0 without a decoder.
        certainty: how activations become certainties, ``"softmax"`` or ``"activation"``.
        masks: masks of the images alone, found and true, (B, J, H, W) of bool; None of a network without masks.
    """

    activation: Tensor
    plain_activation: Tensor
    labels: Tensor
    loss: float
    reconstruction_error: float
    certainty: str
    masks: MaskPair | None = None

    @property
    def confidence(self) -> Tensor:
        """Confidence in the most active class, (B,) in 0..1."""
        probability = self.activation.softmax(-1) if self.certainty == "softmax" else self.activation.clamp(0, 1)
        return probability.amax(-1).double()


# --- counting --------------------------------------------------------------------------------------------------------


class EvaluationCounts:
    """Sums over images, from which the metrics follow; every attribute is a float64 tensor.

    Args:
        classes: number of classes, J.
    """

    def __init__(self, classes: int) -> None:
        zeros = partial(torch.zeros, dtype=torch.float64)
        self.images = zeros(())
        self.right = zeros(())  # images whose labels are the most active classes
        self.right_of_plain = zeros(())
        self.loss = zeros(())
        self.reconstruction_error = zeros(())
        self.images_of_class = zeros(classes)  # images that show each class
        self.found_of_class = zeros(classes)  # those of them where it is among the most active classes
        # pixels of all images that are in both the found and the true mask of each class, and in one at least:
        self.intersection_of_class = zeros(classes)
        self.union_of_class = zeros(classes)
        # with one label per image:
        self.confusion = zeros(classes, classes)  # images of each class (row) by most active class (column)
        self.confidence_of_bin = zeros(BINS)  # sum of the confidence of the images in each bin of confidence
        self.right_of_bin = zeros(BINS)  # images in the bin that are right

    def add(self, batch: EvaluatedBatch) -> None:
        """Count the images of a batch."""
        right = is_right(batch.activation, batch.labels)
        self.images += len(batch.labels)
        self.right += right.sum()
        self.loss += batch.loss
        self.reconstruction_error += batch.reconstruction_error
        self.right_of_plain += is_right(batch.plain_activation, batch.labels).sum()
        self._add_classes(batch)
        if batch.masks is not None:
            found, true = batch.masks
            self.intersection_of_class += (found & true).sum((0, 2, 3))
            self.union_of_class += (found | true).sum((0, 2, 3))
        if batch.labels.dim() == 1:
            self._add_confusion(batch)
            self._add_confidence(batch, right)

    def _add_classes(self, batch: EvaluatedBatch) -> None:
        """Count for each class the images that show it, and where it is among the most active classes."""
        labels = batch.labels if batch.labels.dim() == 2 else batch.labels.unsqueeze(-1)  # (B, D)
        chosen = batch.activation.topk(labels.shape[-1]).indices  # (B, D)
        found = (labels.unsqueeze(-1) == chosen.unsqueeze(-2)).any(-1)  # (B, D)
        classes = batch.activation.shape[-1]
        self.images_of_class += torch.bincount(labels.flatten(), minlength=classes)
        self.found_of_class += torch.bincount(labels[found], minlength=classes)

    def _add_confusion(self, batch: EvaluatedBatch) -> None:
        """Count pairs of label and most active class."""
        classes = batch.activation.shape[-1]
        pairs = batch.labels * classes + batch.activation.argmax(-1)
        self.confusion += torch.bincount(pairs, minlength=classes * classes).view(classes, classes)

    def _add_confidence(self, batch: EvaluatedBatch, right: Tensor) -> None:
        """Sum the confidence of the images, and count those that are right, in each bin of confidence."""
        confidence = batch.confidence
        place = (confidence * BINS).long().clamp(0, BINS - 1)  # NaN as a whole number may be negative
        self.confidence_of_bin.index_add_(0, place, confidence)
        self.right_of_bin.index_add_(0, place, right.double())

    def sum_over(self, processes: Processes) -> None:
        """Add the counters of all processes."""
        for counts in vars(self).values():
            processes.sum_tensor(counts)


def _evaluation(counters: EvaluationCounts, objective: Objective, dataset: ImageDataset, views: str) -> Evaluation:
    """The metrics that follow from the counters of all images."""
    images = counters.images.item()
    one_label = dataset.labels_per_image == 1
    has_decoder = objective.network.decoder is not None
    of_class = zip(counters.images_of_class.tolist(), counters.found_of_class.tolist(), strict=True)
    class_accuracies = [found / count if count else None for count, found in of_class]
    # |mean confidence − accuracy| of each bin, weighted by its share of the images
    calibration_error = (counters.confidence_of_bin - counters.right_of_bin).abs().sum().item() / images
    ious = _ious(counters) if objective.network.has_masks else None
    known = [iou for iou in ious or [] if iou is not None]
    return Evaluation(
        images=int(images),
        accuracy=counters.right.item() / images,
        loss=counters.loss.item() / images,
        per_class=dict(zip(dataset.classes, class_accuracies, strict=True)),
        confusion=counters.confusion.long().tolist() if one_label else None,
        calibration_error=calibration_error if one_label else None,
        drawing_error=counters.reconstruction_error.item() / images if has_decoder else None,
        plain_accuracy=counters.right_of_plain.item() / images if views != "none" else None,
        mean_iou=None if ious is None else sum(known) / max(1, len(known)),
        iou_per_class=None if ious is None else dict(zip(dataset.classes, ious, strict=True)),
    )


def _ious(counters: EvaluationCounts) -> list[float | None]:
    """Intersection over union of each class; None for one without pixels."""
    pairs = zip(counters.intersection_of_class.tolist(), counters.union_of_class.tolist(), strict=True)
    return [intersection / union if union else None for intersection, union in pairs]


# --- views of an image -----------------------------------------------------------------------------------------------

Activate = Callable[[Tensor], Tensor]
"""From images (B, C, H, W) to the activations of the classes, (B, J)."""


def _with_mirror_images(activate: Activate, images: Tensor, plain: Tensor) -> Tensor:
    """Mean of the activations of images and of their mirror images; ``plain`` are those of the images."""
    return (plain + activate(images.flip(-1))) / 2


def _with_shifts(activate: Activate, images: Tensor, plain: Tensor) -> Tensor:
    """Half the activations of the images, and a quarter of each when moved by a pixel to either side."""
    padded = padded_images(images, 1, "reflect")
    moved = (padded[..., :-2, :-2], padded[..., 2:, 2:])  # by a pixel down and right, and up and left
    return plain / 2 + sum(activate(_laid_out_like(images, view)) for view in moved) / 4


def _with_mirrored_shifts(activate: Activate, images: Tensor, plain: Tensor) -> Tensor:
    """The mean of both: six views."""

    def both(seen: Tensor) -> Tensor:
        return _with_mirror_images(activate, seen, activate(seen))

    return _with_shifts(both, images, _with_mirror_images(activate, images, plain))


def _laid_out_like(images: Tensor, view: Tensor) -> Tensor:
    """A view of images in their memory format."""
    return torch.empty_like(images).copy_(view)


VIEWS: dict[str, Callable[[Activate, Tensor, Tensor], Tensor]] = {
    "none": lambda activate, images, plain: plain,
    "flip": _with_mirror_images,
    "shift": _with_shifts,
    "flip-shift": _with_mirrored_shifts,
}
"""Activations averaged over views of the images, by the values of ``evaluate.views``."""

VIEW_COUNTS = {"none": 1, "flip": 2, "shift": 3, "flip-shift": 6}
"""Number of views of an image, by the values of ``evaluate.views``."""


# --- evaluating ------------------------------------------------------------------------------------------------------


@torch.no_grad()
def evaluate(
    objective: Objective,
    dataset: ImageDataset,
    *,
    batch_size: int = 256,
    views: str = "none",
    processes: Processes | None = None,
    memory_format: torch.memory_format = torch.contiguous_format,
    between: Callable[[], None] | None = None,
) -> Evaluation:
    """Metrics of a network over all images of a dataset.

    >>> from paircaps.data import load_dataset
    >>> from paircaps.losses import Loss
    >>> from paircaps.network import Network, NetworkSpec, Preparation
    >>> digits = load_dataset("glyphs", "test").limit(64)
    >>> preparation = Preparation(size=(28, 28), crop=(28, 28))
    >>> options = {"num_classes": 10}
    >>> spec = NetworkSpec("resnet-caps-small", options, digits.classes, preparation)
    >>> network = Network(spec).eval()  # or a trained one: paircaps.load(folder)
    >>> metrics = evaluate(Objective(network, Loss()), digits)
    >>> metrics.images, 0 <= metrics.accuracy <= 1
    (64, True)

    Args:
        objective: network in eval mode and its loss, on the device of the dataset.
        dataset: images with the network's classes.
        batch_size: images at a time.
        views: views of each image whose activations are averaged, as :class:`paircaps.training.recipe.Evaluate` has
            them: ``"none"``, ``"flip"``, ``"shift"`` or ``"flip-shift"``.
        processes: all processes, which share the work; None for this one alone.
        memory_format: memory format of the images, such as ``torch.channels_last``.
        between: called before every batch; an exception it raises ends the evaluation.
    """
    require_choice("views", views, VIEWS)
    processes = processes or Processes()
    counters = EvaluationCounts(len(dataset.classes))
    for batch in _batches(objective, dataset, batch_size, processes):
        if between is not None:
            between()
        if len(batch):  # a process may have no share of the last batch
            counters.add(_evaluate_batch(objective, batch, views, memory_format))
    counters.sum_over(processes)
    return _evaluation(counters, objective, dataset, views)


def _batches(objective: Objective, dataset: ImageDataset, batch_size: int, processes: Processes) -> Iterator[Batch]:
    """Share of this process in all batches, with images as the network sees them, in 0..1."""
    size = -(-batch_size // processes.world_size) * processes.world_size  # rounded up to a multiple
    loader = Loader(dataset, size, shuffle=False, rank=processes.rank, world_size=processes.world_size)
    for batch in loader.epoch(0):
        yield replace(batch, images=objective.network.prepare(batch.images))


def _evaluate_batch(
    objective: Objective, batch: Batch, views: str, memory_format: torch.memory_format
) -> EvaluatedBatch:
    """Outputs of the network for a batch.

    With one label the decoder gets the pose of the most active class, as for a new image whose label is unknown; with
    two labels it gets those of the labels, whose images are known one by one.
    """
    network, labels = objective.network, batch.targets
    images = batch.images.contiguous(memory_format=memory_format)
    capsules, found = network.capsules_and_masks(images)
    masks = None if found is None else MaskPair(found, objective.target_masks(labels, batch.mask_source))
    activation = VIEWS[views](lambda seen: network(seen).activation, images, capsules.activation)
    reconstruction = None
    if network.decoder is not None:
        reconstruction = network.decoder(capsules, labels if labels.dim() == 2 else None)
    outputs = Outputs(capsules._replace(activation=activation), masks)
    losses = objective.losses(outputs, labels, reconstruction, batch.reconstruction_target).double()
    return EvaluatedBatch(
        activation=activation.cpu(),
        plain_activation=capsules.activation.cpu(),
        labels=labels.cpu(),
        loss=float(losses.total),
        reconstruction_error=float(losses.squared_error),
        certainty=objective.certainty,
        masks=None if masks is None else MaskPair(*(part.cpu() > 0 for part in masks)),
    )


class Evaluator:
    """Evaluates weights during a training, in a network of its own, so that the training is not disturbed.

    Args:
        objective: a second network of the training's architecture with its loss; its weights are overwritten.
        settings: section ``evaluate`` of the recipe.
        loader: batches of training images, from which the statistics of batch norm are recomputed.
        processes: all processes, which share the work.
        memory_format: of the images.
        between: called before every batch; an exception it raises ends the evaluation.
    """

    def __init__(
        self,
        objective: Objective,
        settings: Evaluate,
        loader: Loader,
        processes: Processes,
        memory_format: torch.memory_format,
        between: Callable[[], None],
    ) -> None:
        self.objective, self.settings, self.loader = objective, settings, loader
        self.processes, self.memory_format, self.between = processes, memory_format, between
        if processes.world_size > 1:
            synchronise_norms(objective)

    def load_weights(self, weights: Mapping[str, Tensor]) -> None:
        """Load weights to evaluate, and recompute batch norm's statistics from the first training batches.

        Args:
            weights: state of a network, by name.
        """
        self.objective.network.load_state_dict(weights)
        if self.settings.settle:
            self._recompute_statistics()
        self.objective.eval()

    def _recompute_statistics(self) -> None:
        """Replace the running statistics of batch norm by the plain mean over ``evaluate.settle`` training batches."""
        if not any(isinstance(part, _BatchNorm) for part in self.objective.modules()):
            return
        with settling(self.objective):
            for _, batch in zip(range(self.settings.settle), self.loader.epoch(0), strict=False):
                self.between()
                images, *others = batch.learned
                self.objective(images.contiguous(memory_format=self.memory_format), *others)

    def evaluate(self, dataset: ImageDataset) -> Evaluation:
        """Metrics of the loaded weights on a dataset."""
        return evaluate(
            self.objective,
            dataset,
            batch_size=self.settings.batch_size,
            views=self.settings.views,
            processes=self.processes,
            memory_format=self.memory_format,
            between=self.between,
        )
