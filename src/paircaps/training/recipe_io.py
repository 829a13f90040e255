"""Recipes as text: TOML files and command lines to the dataclasses of a recipe, and back.

Types, choices and help are those of the dataclasses; jsonargparse reads them. What it refuses is said here in a
sentence that names the key and what it may be.
"""

from __future__ import annotations

import argparse
import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from difflib import get_close_matches
from functools import cache
from typing import Any, Literal, get_args, get_origin, get_type_hints

from paircaps._utils.key_value import parse_key_value
from paircaps.errors import RecipeError
from paircaps.training.recipe import NULL, Recipe

RecipeTree = dict[str, Any]
SECTIONS: dict[str, type] = {
    part.name: type(getattr(Recipe(), part.name)) for part in fields(Recipe)
}  # in the order they are written
KEYS = tuple(f"{section}.{part.name}" for section, kind in SECTIONS.items() for part in fields(kind))
_HOW_NOT_WHAT = "run"
"""The section that may differ between two starts of one run."""


def recipe_from_tree(tree: Mapping[str, Any]) -> Recipe:
    """A recipe from sections of keys; an unknown one, or a bad value, is an error that names it."""
    parsed = _check_types(tree)
    sections = {}
    for name, kind in SECTIONS.items():
        values = {part.name: parsed[f"{name}.{part.name}"] for part in fields(kind)}
        values = {key: _spell_null(value) if isinstance(value, dict) else value for key, value in values.items()}
        try:
            sections[name] = kind(**values)
        except (TypeError, ValueError) as error:
            raise RecipeError(_placed(name, kind, str(error))) from None
    return Recipe(**sections)


def _spell_null(options: dict[str, Any]) -> dict[str, Any]:
    """Options with NULL for None: TOML, in which a recipe is kept, has no null."""
    return {key: NULL if value is None else value for key, value in options.items()}


def _check_types(tree: Mapping[str, Any]) -> Any:
    for section, values in tree.items():
        if section not in SECTIONS:
            raise RecipeError(f"unknown section {section!r}{_near(section, SECTIONS)} Sections: {', '.join(SECTIONS)}")
        if not isinstance(values, Mapping):
            raise RecipeError(f"{section} is a section of keys, got {values!r}")
        for key in values:
            require_key(f"{section}.{key}")
            if isinstance(values[key], str) and not _takes_text(f"{section}.{key}"):
                raise RecipeError(f"{section}.{key} must be {_kind_in_words(f'{section}.{key}')}, got {values[key]!r}")
    try:
        return _tree_parser().parse_object(dict(tree))
    except (argparse.ArgumentError, TypeError, ValueError) as error:
        raise RecipeError(in_words(error)) from None


@cache
def _tree_parser() -> Any:
    """The parser of trees, which takes longer to build than to use."""
    return recipe_parser("recipe")


def require_key(key: str) -> None:
    """Refuse a key that no recipe has, with the nearest one and those of its section."""
    if key in KEYS:
        return
    section = key.split(".")[0]
    if section not in SECTIONS:
        raise RecipeError(f"unknown section in {key!r}{_near(key, KEYS)} Sections: {', '.join(SECTIONS)}")
    known = [part.name for part in fields(SECTIONS[section])]
    raise RecipeError(f"unknown key {key!r}{_near(key, KEYS)} Keys of {section}: {', '.join(known)}")


def recipe_parser(program: str) -> Any:
    """A jsonargparse parser with ``--section.key`` for every key of a recipe."""
    from jsonargparse import ArgumentParser  # 0.1 s that only training needs

    parser = ArgumentParser(prog=program, exit_on_error=False, default_env=False)
    for section, kind in SECTIONS.items():
        parser.add_class_arguments(kind, section)
        for action in parser._actions:
            if f"--{section}" in action.option_strings:
                action.help = argparse.SUPPRESS  # a section from a file of its own: one recipe is one file
    return parser


def overrides_to_tree(parsed: Any) -> RecipeTree:
    """The sections of what a command line gave, and nothing else."""
    given = parsed.as_dict() if hasattr(parsed, "as_dict") else dict(parsed)
    return {section: given[section] for section in SECTIONS if given.get(section)}


def merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> RecipeTree:
    """Two trees as one; where both have a value, that of ``above``."""
    merged = dict(below)
    for key, value in above.items():
        both = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
        merged[key] = merge(merged[key], value) if both else value
    return merged


def in_words(error: Exception) -> str:
    """What jsonargparse says of a bad value, as a sentence."""
    text = str(error)
    found = re.search(r'Parser key "([\w.]+)":\s*(.*)', text, re.DOTALL)
    if not found:
        return " ".join(text.split())
    value = re.search(r"(?:Got|Given) value: (.*)", found[2])
    if found[1] not in KEYS or value is None:
        return f"{found[1]}: {' '.join(found[2].split())}"
    shown = value[1] if re.fullmatch(r"[-+\d.\[{].*", value[1]) else repr(value[1])
    return f"{found[1]} must be {_kind_in_words(found[1])}, got {shown}"


def _hint(key: str) -> Any:
    section, name = key.split(".")[:2]
    return get_type_hints(SECTIONS[section])[name]


def _takes_text(key: str) -> bool:
    return _hint(key) is str or get_origin(_hint(key)) is Literal


def _kind_in_words(key: str) -> str:
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "text", type(None): "null"}

    def say(kind: Any) -> str:
        if get_origin(kind) is Literal:
            return f"one of {', '.join(map(str, get_args(kind)))}"
        if get_origin(kind) is tuple:
            inner = get_args(kind)
            return f"a list of {'numbers' if Ellipsis in inner else f'{len(inner)} numbers'}"
        if get_origin(kind) is dict:
            return 'a table such as {"key": 1}'
        if get_args(kind):
            return " or ".join(say(part) for part in get_args(kind))
        return words.get(kind, str(kind))

    return say(_hint(key))


def parse_toml(text: str, name: str) -> RecipeTree:
    """The tree of a TOML text; ``name`` is for messages."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise RecipeError(f"{name}: not TOML: {error}") from None


def to_toml(recipe: Recipe) -> str:
    """A recipe as TOML, every key of it; what is not set is left out, for TOML has no null."""
    lines = []
    for section in SECTIONS:
        lines.append(f"[{section}]")
        for key, value in asdict(getattr(recipe, section)).items():
            if value is not None:
                lines.append(f"{key} = {_toml_value(value)}")
        lines.append("")
    return "\n".join(lines)


def _toml_value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, Mapping):
        inner = ", ".join(f"{_toml_value(str(key))} = {_toml_value(item)}" for key, item in value.items())
        return f"{{{inner}}}"
    if isinstance(value, Sequence):
        return f"[{', '.join(map(_toml_value, value))}]"
    return repr(value)


def differences(old: Recipe, new: Recipe) -> list[str]:
    """Where two recipes ask for different results, a line each; how they run may differ."""
    return [f"{key}: {before} there, {after} here" for key, (before, after) in changed_values(old, new).items()]


def changed_values(old: Recipe, new: Recipe) -> dict[str, tuple[str, str]]:
    """The same by key: the value of either, as TOML has it."""
    return {
        key: (_toml_or_unset(before), _toml_or_unset(after))
        for (key, before), (_, after) in zip(_values(old), _values(new), strict=True)
        if before != after
    }


def parse_setting(text: str) -> RecipeTree:
    """Parse ``section.key=value`` into a tree; :mod:`paircaps._utils.key_value` has the grammar of values.

    Raises:
        RecipeError: if the text has another form, or no recipe has such a key.
    """
    try:
        key, value = parse_key_value(text, "SECTION.KEY=VALUE")
    except ValueError as error:
        raise RecipeError(str(error)) from None
    parts = key.split(".")
    require_key(".".join(parts[:2]))
    tree: Any = list(value) if isinstance(value, tuple) else value  # TOML, in which recipes are kept, has no tuples
    for part in reversed(parts):
        tree = {part: tree}
    return tree


def _values(recipe: Recipe) -> Iterator[tuple[str, object]]:
    for section in SECTIONS:
        if section == _HOW_NOT_WHAT:
            continue
        part = getattr(recipe, section)
        for key, value in asdict(part).items():
            yield f"{section}.{key}", json.loads(json.dumps(value))  # tuples and lists alike


def _toml_or_unset(value: object) -> str:
    return "not set" if value is None else _toml_value(value)


def _near(name: str, known: Sequence[str] | Mapping[str, object]) -> str:
    near = get_close_matches(name, list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else "."


def _placed(section: str, kind: type, message: str) -> str:
    """A complaint of a section's own check, with the section in front of the key it names."""
    named = any(message.startswith(f"{part.name} ") for part in fields(kind))
    return f"{section}.{message}" if named else f"{section}: {message}"
