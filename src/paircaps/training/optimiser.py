"""Optimisers of a recipe, and the weights that decay."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from paircaps.training.recipe import Optimiser


def create_optimiser(settings: Optimiser, module: nn.Module) -> torch.optim.Optimizer:
    """Optimiser of all weights of a module; only kernels decay.

    Args:
        settings: section ``optimiser`` of the recipe.
        module: network to train.
    """
    kernels = kernels_of(module)
    others = [parameter for parameter in module.parameters() if all(parameter is not kernel for kernel in kernels)]
    groups = [
        {"params": kernels, "weight_decay": settings.weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]
    groups = [group for group in groups if group["params"]]
    if settings.name == "sgd":
        return torch.optim.SGD(groups, settings.lr, momentum=settings.momentum, nesterov=settings.nesterov)
    kind = torch.optim.Adam if settings.name == "adam" else torch.optim.AdamW
    return kind(groups, settings.lr, betas=(settings.beta1, settings.beta2), eps=settings.eps)


def kernels_of(module: nn.Module) -> list[Tensor]:
    """Weights that decay: kernels of convolutions, votes and linear layers, not biases, norms or EM's costs."""
    in_norms = {id(p) for part in module.modules() if isinstance(part, _BatchNorm) for p in part.parameters()}
    return [p for p in module.parameters() if p.dim() > 1 and id(p) not in in_norms]
