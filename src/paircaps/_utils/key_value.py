"""The grammar of ``KEY=VALUE`` on the command line, the same for every option that takes it.

A value is, in this order: a TOML value (``32``, ``0.5``, ``true``, ``"text"``, ``[4, 4]``, ``{a = 1}``), a Python
literal (``True``, ``None``, ``(32, 32)``, ``{"a": 1}``), or plain text, which needs no quotes.
"""

from __future__ import annotations

import ast
import tomllib


def parse_key_value(text: str, form: str = "KEY=VALUE") -> tuple[str, object]:
    """Split ``KEY=VALUE`` and parse the value.

    Args:
        text: what was typed.
        form: what to call the expected form in the error message.

    Raises:
        ValueError: if there is no key or no equals sign.
    """
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ValueError(f"must be {form}, got {text!r}")
    return key.strip(), parse_value(value)


def parse_value(text: str) -> object:
    """The value that a text stands for: a TOML value, else a Python literal, else the text itself."""
    for parse in (_parse_toml, _parse_python):
        try:
            value = parse(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            continue
        if _is_plain(value):
            return value
    return text


def _parse_toml(text: str) -> object:
    table = tomllib.loads(f"value = {text}")
    if len(table) > 1:  # the text has further lines, with keys of their own
        raise ValueError(f"more than one value: {text!r}")
    return table["value"]


def _parse_python(text: str) -> object:
    return ast.literal_eval(text.strip())


def _is_plain(value: object) -> bool:
    """True for what a recipe or an option can hold: not dates, bytes, sets and complex numbers."""
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_plain(item) for key, item in value.items())
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, bool | int | float | str)
