"""Split pictures so that every class gives its share, and copies of one picture stay on one side."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence


def content_hash(content: bytes, seed: int, purpose: str = "") -> float:
    """Hash of a picture's content, a seed and a purpose, as a number in [0, 1)."""
    key = str(seed).encode() + purpose.encode()
    digest = hashlib.blake2b(content, digest_size=8, key=key[:64]).digest()
    return int.from_bytes(digest, "big") / 2**64


def share_of_each_class(labels: Sequence[int], hashes: Sequence[float], share: float) -> list[bool]:
    """Which pictures are on the smaller side of a split: of each class those with the lowest hashes.

    Each class gives ``share`` of its pictures, rounded, and one at least if it has two different ones; one at least
    stays. A picture that is added later moves one other of its class at most.

    Args:
        labels: class of each picture.
        hashes: hash of each picture's content; equal ones are copies, which stay together, also across classes.
        share: share of the pictures, between 0 and 1.
    """
    side: dict[float, bool] = {}
    for label in sorted(set(labels)):
        copies = Counter(content for content, own in zip(hashes, labels, strict=True) if own == label)
        taken = sum(count for content, count in copies.items() if side.get(content))
        undecided = sorted(content for content in copies if content not in side)
        wanted = max(1, round(share * copies.total()))
        # the lowest hashes that fit, or else the fewest copies
        chosen = set()
        for content in undecided:
            if taken + copies[content] <= wanted:
                chosen.add(content)
                taken += copies[content]
        if not taken and undecided:
            chosen = {min(undecided, key=lambda content: (copies[content], content))}
        # one stays
        if chosen and all(content in chosen or side.get(content) for content in copies):
            chosen.remove(max(chosen))
        side |= {content: content in chosen for content in undecided}
    return [side[content] for content in hashes]
