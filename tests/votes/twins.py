"""Two layers that are the same but for streaming, and all that a pass through them gives."""

import itertools

import torch
from torch import nn

from paircaps import CapsuleLayer
from paircaps.votes.layout import TILE_BYTES

LARGE = (8, TILE_BYTES // (4 * 8 * 10 * 16) + 1, 16)
"""Children whose votes for ten parents of 16 fill more than a tile."""

FORMS = list(itertools.product(["matrix", "vector"], ["pose", "vote", None]))


def twins(transform, vote_norm, *, children=97, parents=7, in_dim=16, dtype=torch.float32, **options):
    """A layer that streams, and the same one with dense votes, with weights and statistics that are not the first."""
    sizes = {"in_capsules": children, "out_capsules": parents, "in_dim": in_dim}
    layers = [
        CapsuleLayer(**sizes, transform=transform, vote_norm=vote_norm, routing_options=options, streaming=streaming)
        for streaming in (True, False)
    ]
    if vote_norm is not None:
        for value in (layers[0].norm.weight, layers[0].norm.bias, layers[0].norm.running_mean):
            nn.init.normal_(value)
        nn.init.uniform_(layers[0].norm.running_var, 0.5, 2)
    layers[1].load_state_dict(layers[0].state_dict())
    return [layer.to(dtype) for layer in layers]


def everything(forward, u, layer=None):
    """Capsules, gradients and running statistics after one pass, by name."""
    layer = layer or forward
    u = u.clone().requires_grad_()
    capsules = forward(u)
    generator = torch.Generator().manual_seed(5)
    weights = (torch.randn(part.shape, generator=generator, dtype=torch.float64) for part in capsules)
    loss = sum((part * weight.to(part.dtype)).sum() for part, weight in zip(capsules, weights, strict=True))
    names = [name for name, _ in layer.named_parameters()]
    gradients = torch.autograd.grad(loss, [u, *layer.parameters()])
    found = {**capsules._asdict(), **{f"d {name}": g for name, g in zip(["u", *names], gradients, strict=True)}}
    return {**found, **{name: buffer.clone() for name, buffer in layer.named_buffers()}}
