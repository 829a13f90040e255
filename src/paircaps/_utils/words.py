"""Words around numbers, names from outside, and the type of functions that print progress lines."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable

Say = Callable[[str], object]
"""Function that is called with each progress line."""

_TURNS = ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")
"""Kinds of marks that turn the direction of the writing around, and end that."""


def counted(number: int, what: str) -> str:
    """A number with its noun: ``1 step``, ``2,000 steps``.

    Args:
        number: how many.
        what: noun in the singular.
    """
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def as_size(count: int) -> str:
    """Format a number of bytes in kB, MB, GB or TB."""
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if count >= size:
            return f"{count / size:,.{1 if unit == 'MB' else 2}f} {unit}"
    return f"{count / 1e3:,.0f} kB"


def first_line(error: Exception) -> str:
    """First line of an error's message, or the name of its kind if it has none."""
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__


def visible(text: str, *, keep: str = "") -> str:
    r"""A text from outside, such as the name of a file or a class, whose control characters are shown and do nothing.

    >>> visible("\x1b[31mred\n")
    '\\x1b[31mred\\n'

    Args:
        text: the text.
        keep: characters that stay as they are: ``"\n"`` for messages of several lines.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(_escaped(sign) if sign not in keep and _is_control(sign) else sign for sign in text)


def _is_control(sign: str) -> bool:
    """True for control characters, line separators, halves of characters, and marks that turn the writing around."""
    return unicodedata.category(sign) in ("Cc", "Cs", "Zl", "Zp") or unicodedata.bidirectional(sign) in _TURNS


def _escaped(sign: str) -> str:
    return sign.encode("unicode_escape").decode()
