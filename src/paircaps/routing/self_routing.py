"""Self-routing: every child decides by itself, from its own capsule, which parents it belongs to."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from paircaps._utils.checks import require_child_activation, require_children, require_shape, require_votes, shape_of
from paircaps._utils.precision import full_precision, in_full_precision
from paircaps.functional import ABSENT, Capsules
from paircaps.routing.base import Routing, VoteNeeds, at_every_position
from paircaps.routing.evidence import Evidence


@in_full_precision
def self_routing(votes: Tensor, activation: Tensor | None, children: Tensor, weight: Tensor, bias: Tensor) -> Capsules:
    """Self-routing: children are divided among the parents by a linear layer of their own, in one pass.

        c_ij = softmax_j(R_i u_i + b_i),  a_j = Σ_i c_ij a_i / Σ_i a_i,  pose_j = Σ_i c_ij a_i û_ij / Σ_i c_ij a_i

    Activations of the parents add up to one. Where no child is there, all of them are zero, and a pose is the mean of
    the votes by c alone. Weights of the votes are computed from their logarithms, so that a parent whom all children
    have left still has a pose.

    Args:
        votes: û, (..., I, J, K).
        activation: activations of the children, (..., I); one below 1e-12 is a child that is not there, and None stands
            for all ones.
        children: u, (..., I, K_in).
        weight: R, (I, J, K_in).
        bias: b, (I, J).

    Returns:
        Capsules whose ``s`` and ``pose`` are both the pose, (..., J, K), and whose activation is a_j, (..., J).
    """
    share, _, part = _divide(votes, activation, children, weight, bias)
    pose = torch.einsum("...ij,...ijk->...jk", part, votes)
    return Capsules(pose, pose, share.sum(dim=-2))


def _divide(
    votes: Tensor, activation: Tensor | None, children: Tensor, weight: Tensor, bias: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """What a child gives to a_j, its coupling c, and its part in the pose, (..., I, J) each."""
    # checks
    require_votes(votes)
    require_children(children, votes, weight.shape[-1])
    I, J = votes.shape[-3:-1]
    of_votes = f"for votes of {shape_of(votes)}"
    require_shape("weight", weight, (I, J, children.shape[-1]), f"a row per child and parent {of_votes}")
    require_shape("bias", bias, (I, J), f"one value per child and parent {of_votes}")
    if activation is not None:
        require_child_activation(activation, votes)

    log_c = (torch.einsum("...id,ijd->...ij", children, weight) + bias).log_softmax(dim=-1)
    log_a, somebody = _log_activation(votes, activation)
    c = log_c.exp()
    return somebody * log_a.softmax(dim=-2) * c, c, (log_a + log_c).softmax(dim=-2)


def _log_activation(votes: Tensor, activation: Tensor | None) -> tuple[Tensor, Tensor]:
    """Logarithm of each activation, (..., I, 1), and whether any child is there, 1 or 0, (..., 1, 1).

    It is −∞ for a child that is not there; where none is, all are taken to be, so that their weights are numbers.
    """
    if activation is None:
        return votes.new_zeros(*votes.shape[:-2], 1), votes.new_ones(*votes.shape[:-3], 1, 1)
    is_there = activation > ABSENT
    somebody = is_there.any(dim=-1, keepdim=True)
    log_a = torch.where(is_there, activation, 1.0).log().masked_fill(~is_there & somebody, float("-inf"))
    return log_a.unsqueeze(-1), somebody.unsqueeze(-1).to(votes.dtype)


@torch.no_grad()
def self_evidence(votes: Tensor, activation: Tensor | None, children: Tensor, weight: Tensor, bias: Tensor) -> Evidence:
    """Evidence of self-routing: a_j is a sum over the children, and the part of one is c_ij a_i / Σ a."""
    dtype = full_precision(votes.dtype)
    activation = None if activation is None else activation.to(dtype)
    votes, children, weight, bias = (values.to(dtype) for values in (votes, children, weight, bias))
    share, coupling, part = _divide(votes, activation, children, weight, bias)
    weighted = part.unsqueeze(-1) * votes
    return Evidence(share, coupling, weighted, torch.ones_like(weighted[..., 0, :, :]))


class SelfRouting(Routing):
    """Self-routing (Hahn, Pyeon and Kim, 2019): children do not listen to each other, ``"self"`` by name.

    Every child has a small linear layer of its own, R_i and b_i, that reads the child and divides it among the parents.
    Nothing iterates, and no votes are compared: a parent is as active as the children say that belong to it, and its
    pose is the mean of their votes. In the last layer the activations, and so the accuracy, do not depend on the votes.

    Activations of the parents add up to one, so they are trained as probabilities are, by their negative logarithm
    (``loss.name = "nll"``, which ``"auto"`` takes). R and b are zero at first, as published: every child is divided
    evenly then. Children that share their vote matrices share R and b too.

    It reads the children, so votes are taken a few images at a time (``VoteNeeds.IMAGES``).

    Args:
        out_capsules: J, the number of parents.
        in_capsules: number of children with matrices of their own; a layer gives it.
        in_dim: K_in, the dimensions of a child; a layer gives it.
    """

    layer_sizes = ("in_capsules", "in_dim")
    reads_children = True
    child_parameters = ("weight", "bias")
    preferred_loss: ClassVar[str | None] = "nll"

    def __init__(self, out_capsules: int, *, in_capsules: int, in_dim: int) -> None:
        super().__init__(out_capsules, in_capsules=in_capsules, in_dim=in_dim)
        self.weight = nn.Parameter(torch.zeros(in_capsules, out_capsules, in_dim))
        self.bias = nn.Parameter(torch.zeros(in_capsules, out_capsules))

    @property
    def bounded(self) -> bool:
        """Always True, since activations are probabilities."""
        return True

    @property
    def needs(self) -> VoteNeeds:
        """All votes of an image, with its children beside them; images are routed independently."""
        return VoteNeeds.IMAGES

    # a routing that reads its children takes one argument more than others, which no type of the base class can say

    def agree(self, votes: Tensor, activation: Tensor | None, children: Tensor) -> Capsules:  # pyright: ignore
        """Self-routing of dense votes; children count by their activations."""
        return self_routing(votes, activation, children, *self._layers(votes))

    def evidence(self, votes: Tensor, activation: Tensor | None, children: Tensor) -> Evidence:  # pyright: ignore
        """What each child contributed: its part of the sum that a_j is, c_ij a_i / Σ a."""
        return self_evidence(votes, activation, children, *self._layers(votes))

    def _layers(self, votes: Tensor) -> tuple[Tensor, Tensor]:
        """R and b of all children, (I, J, K_in) and (I, J)."""
        children = votes.shape[-3]
        return at_every_position(self.weight, children), at_every_position(self.bias, children)

    def extra_repr(self) -> str:
        """The numbers of parents and children, for print(model)."""
        return f"{super().extra_repr()}, in_capsules={self.in_capsules}, in_dim={self.in_dim}"
