"""Words around numbers."""

from __future__ import annotations


def counted(number: int, what: str) -> str:
    """``1 step``, ``2,000 steps``."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"
