"""Words around numbers, and the type of functions that print progress lines."""

from __future__ import annotations

from collections.abc import Callable

Say = Callable[[str], object]
"""Function that is called with each progress line."""


def counted(number: int, what: str) -> str:
    """A number with its noun: ``1 step``, ``2,000 steps``.

    Args:
        number: how many.
        what: noun in the singular.
    """
    return f"{number:,} {what}{'' if number == 1 else 's'}"
