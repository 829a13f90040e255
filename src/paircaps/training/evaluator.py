"""A network of its own for evaluation, whose statistics can be settled without disturbing the training."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from paircaps.data import ImageDataset, Loader
from paircaps.losses import Objective
from paircaps.training.distributed import Processes, synchronise_norms
from paircaps.training.evaluation import Evaluation, evaluate
from paircaps.training.recipe import Evaluate


class Evaluator:
    """Evaluates weights.

    Args:
        objective: a network of the training's kind, which the judge may change.
        settings: of evaluation.
        loader: of training images, to settle batch norm with.
        processes: that share the work.
        memory_format: of images.
        between: called before every batch; what it raises ends the evaluation.
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

    def take(self, weights: Mapping[str, Tensor]) -> None:
        """Judge these weights from now on, with batch norm's statistics taken anew from the first training batches."""
        self.objective.network.load_state_dict(weights)
        if self.settings.settle:
            self._settle()
        self.objective.eval()

    @torch.no_grad()
    def _settle(self) -> None:
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

    def look_at(self, dataset: ImageDataset) -> Evaluation:
        """How good the weights are on a dataset."""
        return evaluate(
            self.objective,
            dataset,
            batch_size=self.settings.batch_size,
            mirror=self.settings.mirror,
            processes=self.processes,
            memory_format=self.memory_format,
            between=self.between,
        )
