"""Random numbers that are a pure function of (seed, epoch, index).

A generator that is stepped through gives an image other numbers when the batch before it was another one, so a resumed
run or a second process would see other images. Here every number is a hash of what it is for:

    number = mix(key(seed, epoch, purpose), index, draw)

with the finaliser of SplitMix64 as ``mix``. Nothing has to be saved to continue, and nothing depends on who asks.
"""

from __future__ import annotations

import zlib

import numpy as np
import torch
from torch import Tensor

from paircaps._utils.checks import require_whole

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def uniform(seed: int, epoch: int, index: Tensor, draws: int, purpose: str) -> Tensor:
    """Numbers in [0, 1), (B, draws) in float64, for the images ``index`` (B,); each purpose has its own."""
    bits = _bits(_key(seed, epoch, purpose), index.cpu().numpy(), draws)
    return torch.from_numpy((bits >> np.uint64(11)) * 2.0**-53)


def permutation(seed: int, epoch: int, length: int, purpose: str = "order") -> Tensor:
    """The numbers 0..length−1 in random order."""
    bits = _bits(_key(seed, epoch, purpose), np.arange(length), 1)[:, 0]
    return torch.from_numpy(np.argsort(bits, kind="stable"))


def _key(seed: int, epoch: int, purpose: str) -> np.uint64:
    require_whole(seed=seed, epoch=epoch)
    key = np.zeros(1, np.uint64)
    for value in (int(seed), int(epoch), zlib.crc32(purpose.encode())):
        key = _mix(key + np.uint64(value % 2**64) + _GOLDEN)
    return key[0]


def _bits(key: np.uint64, index: np.ndarray, draws: int) -> np.ndarray:
    """64 random bits for every index and draw, (B, draws)."""
    of_index = _mix(key + (index.astype(np.uint64) + np.uint64(1)) * _GOLDEN)
    of_draw = (np.arange(draws, dtype=np.uint64) + np.uint64(1)) * _GOLDEN
    return _mix(of_index[:, None] + of_draw)


def _mix(x: np.ndarray) -> np.ndarray:
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
