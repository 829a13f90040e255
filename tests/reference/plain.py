"""The equations in plain tensor operations, in whatever precision the arguments have. Nothing comes from the library.

The yardstick for half precision: what someone would write down who does not think about rounding.
"""

import math

import torch


def squash(x):
    square = x.square().sum(dim=-1, keepdim=True)
    return square / (1 + square) * x / square.sqrt()


def pairwise_agreement(votes):
    return (votes.sum(dim=-3) ** 2 - (votes**2).sum(dim=-3)) / (2 * votes.shape[-3])


def fm_agreement(votes):
    s = pairwise_agreement(votes / votes.norm(dim=-1, keepdim=True))
    return s, s / s.norm(dim=-1, keepdim=True), s.sum(dim=-1)


def dynamic_routing(votes):
    b = votes.new_zeros(votes.shape[:-1])
    v = votes[..., 0, :, :]
    for _ in range(3):
        v = squash(torch.einsum("...ij,...ijk->...jk", b.softmax(dim=-1), votes))
        b = b + torch.einsum("...ijk,...jk->...ij", votes, v)
    return v, v, v.norm(dim=-1)


def em_routing(votes, activation, beta_u, beta_a):
    I, J, _ = votes.shape[-3:]
    R = torch.full_like(votes[..., 0], 1 / J)
    mu, a = votes[..., 0, :, :], votes[..., 0, :, 0]
    for t in range(1, 4):
        R = (R * activation.unsqueeze(-1)).unsqueeze(-1)
        S = R.sum(dim=-3)
        mu = (R * votes).sum(dim=-3) / (S + 1e-9)
        squares = (votes - mu.unsqueeze(-3)) ** 2
        variance = (R * squares).sum(dim=-3) / (S + 1e-9) + 1e-9
        cost = ((beta_u[:, None] + variance.log() / 2) * S * (100 * J / I)).sum(dim=-1)
        a = torch.sigmoid(0.01 * (1 - 0.95**t) * (beta_a - cost))
        log_p = -(squares / (2 * variance).unsqueeze(-3)) - (2 * math.pi * variance).log().unsqueeze(-3) / 2
        R = ((a + 1e-9).log().unsqueeze(-2) + log_p.sum(dim=-1)).softmax(dim=-1)
    return mu, mu, a


def margin_loss(activation, present):
    hit, miss = (0.9 - activation).relu() ** 2, (activation - 0.1).relu() ** 2
    return (present * hit + 0.5 * (1 - present) * miss).sum(dim=-1).mean()


def reconstruction_loss(drawn, image):
    return ((drawn - image) ** 2).sum(dim=(-3, -2, -1)).mean()
