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


def cast_votes(u, weight, scale=None, shift=None, rows=1, unscaled=0):
    """All votes, (B, I, J, K), of children (B, I, P·Q), whose last ``unscaled`` weights batch norm does not scale."""
    u = u.unflatten(-1, (rows, weight.shape[2]))
    scaled = weight.shape[2] - unscaled
    votes = torch.einsum("bipq,ijqr->bijpr", u[..., :scaled], weight[:, :, :scaled]).flatten(-2)
    if scale is not None:
        votes = votes * scale + shift
    return votes + torch.einsum("bipq,ijqr->bijpr", u[..., scaled:], weight[:, :, scaled:]).flatten(-2)


def vote_sums(votes, softness=None, child_weight=None, normalize=True):
    """The two sums of FM agreement, Σ x û and Σ (x û)², over the children of (B, I, J, K)."""
    if normalize:
        square = votes.square().sum(-1, keepdim=True)
        if softness is not None:
            square = square + softness
        votes = votes / square.clamp(min=1e-24).sqrt()
    if child_weight is not None:
        votes = votes * child_weight[:, :, None, None]
    return votes.sum(1), votes.square().sum(1)


def coupled_sums(votes, agreed):
    """Σ_i softmax_j(⟨v_ij, V_j⟩) v_ij over the children of (B, I, J, K), from V, (B, J, K)."""
    coupling = (votes * agreed.unsqueeze(1)).sum(-1).softmax(-1)
    return (coupling.unsqueeze(-1) * votes).sum(1)
