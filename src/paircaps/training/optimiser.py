"""Optimisers of a recipe: which weights each one changes, which of them decay, and at what rate."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from paircaps.errors import RecipeError
from paircaps.routing import Routing
from paircaps.training.recipe import Optimiser
from paircaps.votes.transforms import LinearVotes

NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
"""Coefficients of the polynomial a·x + b·x³ + c·x⁵, which moves all singular values in 0..1 towards one."""

HIGHEST_RATE = "highest_lr"
"""Key of a group of parameters: its learning rate where the schedule is at its highest."""


# --- groups of parameters --------------------------------------------------------------------------------------------


def create_optimiser(settings: Optimiser, module: nn.Module) -> torch.optim.Optimizer:
    """Optimiser of all weights of a module that are trained; only kernels decay.

    Args:
        settings: section ``optimiser`` of the recipe.
        module: network to train; weights whose factor in ``rates`` is 0 are frozen, and get no gradient any more.

    Raises:
        RecipeError: if a pattern of ``rates`` matches no parameter.
    """
    named = {name: parameter for name, parameter in module.named_parameters() if parameter.requires_grad}
    _require_matches(settings.rates, named)
    for name in [name for name in named if _factor(name, settings.rates) == 0]:
        named.pop(name).requires_grad_(False)
    if not named:
        raise RecipeError("optimiser.rates: all weights are frozen: at least one needs a factor above 0")
    if settings.name != "muon":
        groups = _groups(named, module, settings, settings.lr)
        return _plain_optimiser(settings.name, groups, settings)
    orthogonal = {id(parameter) for parameter in _orthogonal(module, settings.muon_on)}
    taken = {name: parameter for name, parameter in named.items() if id(parameter) in orthogonal}
    rest = {name: parameter for name, parameter in named.items() if id(parameter) not in orthogonal}
    rest_groups = _groups(rest, module, settings, settings.rest_lr)
    if not taken:  # all filters are frozen
        return _plain_optimiser(settings.rest, rest_groups, settings)
    muon = Muon(
        _groups(taken, module, settings, settings.lr),
        settings.lr,
        momentum=settings.momentum,
        nesterov=settings.nesterov,
        rescale=settings.rescale,
        iterations=settings.muon_iterations,
    )
    return Combined(muon, _plain_optimiser(settings.rest, rest_groups, settings)) if rest else muon


def set_rates(optimiser: torch.optim.Optimizer, share: float) -> None:
    """Set the learning rate of every group.

    Args:
        optimiser: of :func:`create_optimiser`.
        share: rate of the schedule, as a share of the highest.
    """
    for group in optimiser.param_groups:
        group["lr"] = group[HIGHEST_RATE] * share


def _plain_optimiser(name: str, groups: list[dict[str, Any]], settings: Optimiser) -> torch.optim.Optimizer:
    if name == "sgd":
        nesterov = settings.nesterov and settings.name == "sgd"
        return torch.optim.SGD(groups, settings.lr, momentum=settings.momentum, nesterov=nesterov)
    kind = torch.optim.Adam if name == "adam" else torch.optim.AdamW
    return kind(groups, settings.lr, betas=(settings.beta1, settings.beta2), eps=settings.eps)


def _groups(named: Mapping[str, Tensor], module: nn.Module, settings: Optimiser, lr: float) -> list[dict[str, Any]]:
    """Groups of parameters with one rate and one weight decay each, kernels first."""
    kernels, stacks = {id(kernel) for kernel in kernels_of(module)}, {id(stack) for stack in _vote_weights(module)}
    groups: dict[tuple[bool, bool, float], dict[str, Any]] = {}
    for name, parameter in named.items():
        decays, factor = id(parameter) in kernels, _factor(name, settings.rates)
        key = (not decays, id(parameter) in stacks and settings.name == "muon", factor)
        group = groups.setdefault(
            key,
            {
                "params": [],
                "weight_decay": settings.weight_decay if decays else 0.0,
                HIGHEST_RATE: lr * factor,
                "stacked": key[1],
            },
        )
        group["params"].append(parameter)
    return [groups[key] for key in sorted(groups)]


def _factor(name: str, rates: dict[str, float]) -> float:
    """Factor of a parameter's learning rate: that of the last pattern that matches its name, else 1."""
    return next((factor for pattern, factor in reversed(rates.items()) if fnmatchcase(name, pattern)), 1.0)


def _require_matches(rates: dict[str, float], names: Iterable[str]) -> None:
    for pattern in rates:
        if not any(fnmatchcase(name, pattern) for name in names):
            some = ", ".join(sorted(names)[:4])
            raise RecipeError(
                f"optimiser.rates: {pattern!r} matches no weight that is trained; their names are {some}, ..."
            )


def kernels_of(module: nn.Module) -> list[Tensor]:
    """Weights that decay: kernels of convolutions, votes and linear layers, not biases, norms or EM's costs.

    A routing's parameters with a row for each child are judged by that row: a matrix is a kernel, and a vector a bias.
    """
    in_norms = {id(p) for part in module.modules() if isinstance(part, _BatchNorm) for p in part.parameters()}
    of_children = {
        id(getattr(part, name))
        for part in module.modules()
        if isinstance(part, Routing)
        for name in part.child_parameters
    }
    return [p for p in module.parameters() if p.dim() - (id(p) in of_children) > 1 and id(p) not in in_norms]


def _vote_weights(module: nn.Module) -> list[Tensor]:
    return [part.weight for part in module.modules() if isinstance(part, LinearVotes)]


def _orthogonal(module: nn.Module, muon_on: str) -> list[Tensor]:
    """Weights that Muon changes: filters of convolutions, or these and all matrices of votes and linear layers.

    Transposed convolutions are left out: the last one of a decoder draws pixels, whose scale has to be learned.
    """
    filters = [part.weight for part in module.modules() if isinstance(part, nn.Conv2d)]
    if muon_on == "filters":
        return filters
    return [*filters, *_vote_weights(module), *(p.weight for p in module.modules() if isinstance(p, nn.Linear))]


# --- Muon ------------------------------------------------------------------------------------------------------------


class Muon(torch.optim.Optimizer):
    """Momentum whose every update is orthogonalised: all its singular values are brought near one.

    :class:`torch.optim.Muon` takes single matrices only. This one takes filters as well, each as the matrix of
    (output channels, all else), and stacks of matrices, such as the weights of votes; on a single matrix without
    ``rescale`` both do the same.

    Args:
        params: parameters, or groups of them; a group may say ``stacked``: its last two axes are matrices.
        lr: learning rate.
        momentum: decay of the mean of gradients.
        nesterov: whether the gradient itself is added to the mean once more, as Nesterov does.
        rescale: whether each weight is scaled to the norm √rows before its step, so that only its direction is
            learned; otherwise the update is scaled by √(rows / columns) where there are more rows than columns.
        weight_decay: factor of rate times weights that is subtracted from the weights.
        iterations: Newton-Schulz iterations.
    """

    def __init__(
        self,
        params: Any,
        lr: float = 0.02,
        *,
        momentum: float = 0.95,
        nesterov: bool = True,
        rescale: bool = False,
        weight_decay: float = 0.0,
        iterations: int = 5,
    ) -> None:
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "nesterov": nesterov,
            "rescale": rescale,
            "weight_decay": weight_decay,
            "iterations": iterations,
            "stacked": False,
        }
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # pyright: ignore
        """Take a step; parameters without a gradient stay."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._change(parameter, parameter.grad, group)

    def _change(self, parameter: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        """Change one parameter."""
        # momentum
        state = self.state[parameter]
        if not state:
            state["momentum_buffer"] = torch.zeros_like(parameter)
        mean = state["momentum_buffer"].lerp_(gradient, 1 - group["momentum"])
        update = gradient.lerp(mean, group["momentum"]) if group["nesterov"] else mean

        # update
        matrices = update if group["stacked"] else update.reshape(len(update), -1)
        rows, columns = matrices.shape[-2:]
        update = orthogonalised(matrices, group["iterations"]).reshape(parameter.shape).to(parameter.dtype)
        rate, scale = group["lr"], 1.0
        if not group["rescale"]:
            scale = max(1.0, rows / columns) ** 0.5
        elif rate:  # a weight whose rate is zero is frozen, its norm too
            axes = (-2, -1) if group["stacked"] else None
            norm = torch.linalg.vector_norm(parameter, dim=axes, keepdim=True)
            parameter.mul_(rows**0.5 / norm.clamp_min(1e-12))
        parameter.mul_(1 - rate * group["weight_decay"])
        parameter.add_(update, alpha=-rate * scale)


def orthogonalised(matrices: Tensor, iterations: int) -> Tensor:
    """Matrices with the same singular vectors and singular values near one, by Newton-Schulz iterations in bfloat16.

    Args:
        matrices: (..., rows, columns).
        iterations: number of iterations; with five, singular values lie between about 0.7 and 1.2.
    """
    a, b, c = NEWTON_SCHULZ
    x = matrices.bfloat16()
    tall = x.shape[-2] > x.shape[-1]
    x = x.mT if tall else x
    x = x / torch.linalg.matrix_norm(x, keepdim=True).clamp_min(1e-7)  # the largest singular value is one at most
    for _ in range(iterations):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.mT if tall else x


class Combined(torch.optim.Optimizer):
    """Several optimisers of different parameters, as one.

    Args:
        optimisers: optimisers, each with parameters of its own.
    """

    def __init__(self, *optimisers: torch.optim.Optimizer) -> None:
        self.optimisers = optimisers
        groups = [group for optimiser in optimisers for group in optimiser.param_groups]
        super().__init__(groups, {})
        self.state = defaultdict(dict)  # one for all of them: each parameter has a state of its own
        for optimiser in optimisers:
            optimiser.state = self.state
        self.param_groups = groups  # the very groups of the optimisers, so that a rate set here counts there

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # pyright: ignore
        """Take a step of each optimiser."""
        for optimiser in self.optimisers:
            optimiser.step()
