"""Evaluation of a network: accuracy, accuracy of each class, confusion matrix, loss and calibration error."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace

import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from paircaps.data import ImageDataset, Loader
from paircaps.functional import reconstruction_loss
from paircaps.losses import Objective, is_right
from paircaps.training.distributed import Processes, synchronise_norms
from paircaps.training.recipe import Evaluate

BINS = 15
"""Of confidence, for the calibration error."""


@dataclass(frozen=True)
class Evaluation:
    """What came out.

    Args:
        images: how many were looked at.
        accuracy: share of them that are right; of two labels, that have both right.
        loss: an image, as in training.
        per_class: accuracy of the images of each class, by name; None for a class without images.
        confusion: images of each class (row) taken for each class (column); None where images have two labels.
        calibration_error: how far confidence and accuracy are apart, on average over 15 bins of confidence (ECE).
            Confidence is the softmax of a network trained with cross entropy, and the activation of others; None
            where images have two labels.
        drawing_error: squared error of a drawing, summed over its pixels, of the most active capsule's pose (of two
            labels, theirs); None without a decoder.
        plain_accuracy: without the mirror images; None where none were taken.
    """

    images: int
    accuracy: float
    loss: float
    per_class: dict[str, float | None]
    confusion: list[list[int]] | None
    calibration_error: float | None
    drawing_error: float | None
    plain_accuracy: float | None = None

    def as_dict(self) -> dict[str, object]:
        """For JSON."""
        return asdict(self)


class _Tally:
    """What is added up, so that the tallies of several processes can be added too."""

    def __init__(self, classes: int) -> None:
        self.totals = torch.zeros(5, dtype=torch.float64)  # images, right, loss, drawing error, right without mirror
        self.found = torch.zeros(2, classes, dtype=torch.float64)  # images with each class; those where it was found
        self.confusion = torch.zeros(classes, classes, dtype=torch.float64)
        self.bins = torch.zeros(3, BINS, dtype=torch.float64)  # images, confidence, right

    def gather(self, processes: Processes) -> None:
        for values in (self.totals, self.found, self.confusion, self.bins):
            processes.sum_tensor(values)


@torch.no_grad()
def evaluate(
    objective: Objective,
    dataset: ImageDataset,
    *,
    batch_size: int = 256,
    mirror: bool = False,
    processes: Processes | None = None,
    memory_format: torch.memory_format = torch.contiguous_format,
    between: Callable[[], None] | None = None,
) -> Evaluation:
    """Look at every image of a dataset once.

    Args:
        objective: a network, in eval mode, and its loss; on the device of the dataset.
        dataset: of the network's classes.
        batch_size: images at a time.
        mirror: take the mean of the activations of each image and of its mirror image.
        processes: that share the work.
        memory_format: of the images.
        between: called before every batch; what it raises ends the evaluation.
    """
    processes = processes or Processes()
    tally = _Tally(len(dataset.classes))
    two_labels = False
    for images, labels, originals in _batches(objective, dataset, batch_size, processes, memory_format):
        if between is not None:
            between()
        if not len(images):
            continue
        two_labels = labels.dim() == 2
        capsules = objective.network(images)
        activation = plain = capsules.activation
        if mirror:
            activation = (activation + objective.network(images.flip(-1)).activation) / 2
        error = 0.0
        if objective.network.decoder is not None:
            chosen = (
                labels if labels.dim() == 2 else None
            )  # at test the most active capsule is drawn; of two, the labels'
            drawn = objective.network.decoder(capsules, chosen)
            error = float(reconstruction_loss(drawn, originals, "sum"))
        loss = float(objective.class_loss(activation, labels)) + objective.decoder_weight * error
        _count(tally, activation.cpu(), labels.cpu(), loss, error, objective.loss_name)
        tally.totals[4] += is_right(plain, labels).sum().cpu()
    tally.gather(processes)
    return _summary(tally, dataset.classes, two_labels, objective.network.decoder is not None, mirror)


def _batches(
    objective: Objective,
    dataset: ImageDataset,
    batch_size: int,
    processes: Processes,
    memory_format: torch.memory_format,
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Images as the network sees them, their labels and what their reconstructions should look like."""
    size = -(-batch_size // processes.world_size) * processes.world_size
    loader = Loader(dataset, size, shuffle=False, rank=processes.rank, world_size=processes.world_size)
    for batch in loader.epoch(0):
        batch = replace(batch, images=objective.network.prepare(batch.images))
        yield batch.images.contiguous(memory_format=memory_format), batch.targets, batch.reconstruction_target


def _count(tally: _Tally, activation: Tensor, labels: Tensor, loss: float, error: float, loss_name: str) -> None:
    right = is_right(activation, labels)
    tally.totals[:4] += torch.tensor([len(labels), int(right.sum()), loss, error], dtype=torch.float64)
    several = labels if labels.dim() == 2 else labels.unsqueeze(-1)  # (B, D)
    chosen = activation.topk(several.shape[-1]).indices
    hit = (several.unsqueeze(-1) == chosen.unsqueeze(-2)).any(-1)  # (B, D)
    classes = activation.shape[-1]
    tally.found[0] += torch.bincount(several.flatten(), minlength=classes)
    tally.found[1] += torch.bincount(several[hit], minlength=classes)
    if labels.dim() == 1:
        pairs = torch.bincount(labels * classes + activation.argmax(-1), minlength=classes * classes)
        tally.confusion += pairs.view(classes, classes)
        sure = activation.softmax(-1) if loss_name == "cross-entropy" else activation.clamp(0, 1)
        confidence = sure.amax(-1).double()
        place = (confidence * BINS).long().clamp(max=BINS - 1)
        for row, values in enumerate((torch.ones_like(confidence), confidence, right.double())):
            tally.bins[row].index_add_(0, place, values)


def _summary(tally: _Tally, classes: tuple[str, ...], two_labels: bool, drawn: bool, mirror: bool) -> Evaluation:
    images, right, loss, error, plain = tally.totals.tolist()
    there, found = tally.found.tolist()
    per_class = {name: hits / count if count else None for name, count, hits in zip(classes, there, found, strict=True)}
    gap = (tally.bins[1] - tally.bins[2]).abs().sum().item() / images
    return Evaluation(
        images=int(images),
        accuracy=right / images,
        loss=loss / images,
        per_class=per_class,
        confusion=None if two_labels else tally.confusion.long().tolist(),
        calibration_error=None if two_labels else gap,
        drawing_error=error / images if drawn else None,
        plain_accuracy=plain / images if mirror else None,
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

    @torch.no_grad()
    def _recompute_statistics(self) -> None:
        norms = [part for part in self.objective.modules() if isinstance(part, _BatchNorm)]
        momenta = [norm.momentum for norm in norms]
        for norm in norms:
            norm.reset_running_stats()
            norm.momentum = None  # a plain mean of all batches
        self.objective.train()
        for _, batch in zip(range(self.settings.settle if norms else 0), self.loader.epoch(0), strict=False):
            self.between()
            images = batch.images.contiguous(memory_format=self.memory_format)
            self.objective(images, batch.targets, batch.reconstruction_target)
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum

    def evaluate(self, dataset: ImageDataset) -> Evaluation:
        """Metrics of the loaded weights on a dataset."""
        return evaluate(
            self.objective,
            dataset,
            batch_size=self.settings.batch_size,
            mirror=self.settings.mirror,
            processes=self.processes,
            memory_format=self.memory_format,
            between=self.between,
        )
