"""Conversion of TOML files and command lines to recipes, and back.

jsonargparse takes types, choices and help from the dataclasses of a recipe; its errors are translated here to sentences
that name the key and what is allowed. TOML is read by the standard library and written by :func:`to_toml`, because
jsonargparse writes it only with the package toml, a dependency more than these few lines are worth.
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

from paircaps._utils.extras import require_extra
from paircaps._utils.key_value import parse_key_value
from paircaps._utils.text_tables import shortened
from paircaps.errors import RecipeError
from paircaps.training.recipe import NULL, Recipe

RecipeTree = dict[str, Any]
SECTIONS: dict[str, type] = {
    part.name: type(getattr(Recipe(), part.name)) for part in fields(Recipe)
}  # in the order they are written
KEYS = tuple(f"{section}.{part.name}" for section, kind in SECTIONS.items() for part in fields(kind))
_NO_RESULT = "run"
"""Section that may differ between two starts of one run."""

_DECIDED_LATER = ("train.precision", "train.batch_size", "train.epochs", "augment.flip")
"""Keys whose ``auto`` stands for whatever a run began with."""

_DEEPEST, _MOST_BITS = 20, 128
"""Most levels of lists and tables in a recipe, and most bits of a whole number, which then has a float beside it."""

_LONGEST_MESSAGE = 800
"""Most characters of a message that quotes a value."""

_IN_ORDER = "optimiser.rates"
"""The one table whose order counts: the last pattern that matches a weight decides."""


def recipe_from_tree(tree: Mapping[str, Any]) -> Recipe:
    """Build a recipe from sections of keys.

    Args:
        tree: sections by name, each with values by key; what is missing keeps its default.

    Raises:
        RecipeError: if a section or key is unknown or a value is not allowed; the message names it.
    """
    _require_moderate(tree)
    parsed = _check_types(with_present_keys(tree))
    sections = {}
    for name, kind in SECTIONS.items():
        values = {part.name: parsed[f"{name}.{part.name}"] for part in fields(kind)}
        values = {key: _spell_null(value) if isinstance(value, dict) else value for key, value in values.items()}
        try:
            sections[name] = kind(**values)
        except (TypeError, ValueError, OverflowError) as error:
            raise RecipeError(_with_section(name, kind, _shortened(str(error)))) from None
    return Recipe(**sections)


def _require_moderate(value: object, level: int = 0) -> None:
    """Refuse lists and tables that are nested more deeply than any key allows, and numbers that TOML has not."""
    if level > _DEEPEST:
        raise RecipeError(f"lists or tables are nested too deeply, {_DEEPEST} levels at most")
    if isinstance(value, int) and value.bit_length() > _MOST_BITS:
        raise RecipeError(f"a whole number of {value.bit_length():,} bits is too large, {_MOST_BITS} bits at most")
    if isinstance(value, Mapping | list | tuple):
        for inner in value.values() if isinstance(value, Mapping) else value:
            _require_moderate(inner, level + 1)


def with_present_keys(tree: Mapping[str, Any]) -> RecipeTree:
    """A tree of an earlier version with the keys of this one: ``evaluate.mirror`` has become ``evaluate.views``.

    Trees are changed before they are merged: ``mirror`` above ``views`` of a base counts, and the other way round.
    """
    section = tree.get("evaluate")
    if not isinstance(section, Mapping) or not isinstance(section.get("mirror"), bool):
        return dict(tree)
    views = {"views": "flip" if section["mirror"] else "none"}
    return {**tree, "evaluate": views | {key: value for key, value in section.items() if key != "mirror"}}


def with_keys_of_run(tree: Mapping[str, Any]) -> RecipeTree:
    """A tree of a run's ``config.toml``, which has all keys, with those that earlier versions did not write.

    Without ``train.norm_momentum`` their networks had the paper's momentum.
    """
    return merge({"train": {"norm_momentum": 0.01}}, tree)


def _spell_null(options: dict[str, Any]) -> dict[str, Any]:
    """Options with the word NULL for None: TOML, in which recipes are kept, has no null."""
    return {key: NULL if value is None else value for key, value in options.items()}


def _check_types(tree: Mapping[str, Any]) -> Any:
    """Values of all keys as ``section.key``, of the right types, with defaults for those that are missing."""
    for section, values in tree.items():
        if section not in SECTIONS:
            raise RecipeError(
                f"unknown section {section!r}{_suggestion(section, SECTIONS)} Sections: {', '.join(SECTIONS)}"
            )
        if not isinstance(values, Mapping):
            raise RecipeError(f"{section} is a section of keys, got {values!r}")
        for key in values:
            require_key(f"{section}.{key}")
            if isinstance(values[key], str) and not _takes_text(f"{section}.{key}"):
                raise RecipeError(f"{section}.{key} must be {_kind_in_words(f'{section}.{key}')}, got {values[key]!r}")
    try:
        return _tree_parser().parse_object(dict(tree))
    except (argparse.ArgumentError, TypeError, ValueError, OverflowError) as error:
        raise RecipeError(_shortened(in_words(error))) from None


@cache
def _tree_parser() -> Any:
    """The parser of trees; it is kept because building it takes longer than using it."""
    return recipe_parser("recipe")


def require_key(key: str) -> None:
    """Raise an error for a key that no recipe has, with the most similar key and all keys of its section.

    Args:
        key: key as ``section.key``.
    """
    if key in KEYS:
        return
    section = key.split(".")[0]
    if section not in SECTIONS:
        raise RecipeError(f"unknown section in {key!r}{_suggestion(key, KEYS)} Sections: {', '.join(SECTIONS)}")
    known = [part.name for part in fields(SECTIONS[section])]
    raise RecipeError(f"unknown key {key!r}{_suggestion(key, KEYS)} Keys of {section}: {', '.join(known)}")


def recipe_parser(program: str) -> Any:
    """A jsonargparse parser with ``--section.key`` for every key of a recipe.

    Args:
        program: name of the command, for its help.
    """
    require_extra("reading recipes", "jsonargparse", "docstring_parser")
    from jsonargparse import ArgumentParser  # imported here: it takes 0.1 s that only training needs

    parser = ArgumentParser(prog=program, exit_on_error=False, default_env=False)
    for section, kind in SECTIONS.items():
        parser.add_class_arguments(kind, section)
        for action in parser._actions:
            if f"--{section}" in action.option_strings:
                action.help = argparse.SUPPRESS  # --section FILE of jsonargparse is hidden: a recipe is one file
    return parser


def overrides_to_tree(parsed: Any) -> RecipeTree:
    """The keys of a recipe that a command line gave, as a tree."""
    given = parsed.as_dict() if hasattr(parsed, "as_dict") else dict(parsed)
    return {section: given[section] for section in SECTIONS if given.get(section)}


def merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> RecipeTree:
    """Merge two trees; where both have a value, that of ``above`` counts."""
    merged = dict(below)
    for key, value in above.items():
        both = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
        merged[key] = merge(merged[key], value) if both else value
    return merged


def in_words(error: Exception) -> str:
    """Sentence for an error of jsonargparse: the key, what it must be, and the value."""
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
    hint = _hint(key)
    return hint is str or any(get_origin(kind) is Literal for kind in (hint, *get_args(hint)))


def _kind_in_words(key: str) -> str:
    names = {int: "a whole number", float: "a number", bool: "true or false", str: "text", type(None): "null"}

    def say(kind: Any) -> str:
        if get_origin(kind) is Literal:
            words = [str(word) for word in get_args(kind)]
            return words[0] if len(words) == 1 else f"one of {', '.join(words)}"
        if get_origin(kind) is tuple:
            inner = get_args(kind)
            return f"a list of {'numbers' if Ellipsis in inner else f'{len(inner)} numbers'}"
        if get_origin(kind) is dict:
            return 'a table such as {"key": 1}'
        if get_args(kind):
            return " or ".join(say(part) for part in get_args(kind))
        return names.get(kind, str(kind))

    return say(_hint(key))


def parse_toml(text: str, name: str) -> RecipeTree:
    """Parse a TOML text into a tree.

    Args:
        text: the TOML text.
        name: name of the file, for the error message.
    """
    try:
        return with_present_keys(tomllib.loads(text))
    except RecursionError:
        raise RecipeError(f"{name}: lists or tables are nested too deeply") from None
    except ValueError as error:  # TOMLDecodeError, or Python's own of a number with thousands of digits
        raise RecipeError(f"{name}: not TOML: {_shortened(str(error))}") from None


def to_toml(recipe: Recipe) -> str:
    """A recipe as TOML text with every key; keys that are None are left out, because TOML has no null."""
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
    """One line for each key in which two recipes differ; section ``run``, which changes no result, is left out.

    ``auto`` is no difference where it is decided when a run begins: it stands for whatever the other one has.
    """
    return [f"{key}: {before} there, {after} here" for key, (before, after) in differing_values(old, new).items()]


def differing_values(old: Recipe, new: Recipe) -> dict[str, tuple[str, str]]:
    """Keys in which two recipes differ, with the values of both as TOML; see :func:`differences`."""
    return {
        key: values
        for key, values in changed_values(old, new).items()
        if not (key in _DECIDED_LATER and '"auto"' in values)
    }


def changed_values(old: Recipe, new: Recipe) -> dict[str, tuple[str, str]]:
    """Keys in which two recipes differ, with the values of both as TOML."""
    return {
        key: (_toml_or_unset(before), _toml_or_unset(after))
        for (key, before), (_, after) in zip(_values(old), _values(new), strict=True)
        if before != after or (key == _IN_ORDER and json.dumps(before) != json.dumps(after))
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
        if section == _NO_RESULT:
            continue
        part = getattr(recipe, section)
        for key, value in asdict(part).items():
            yield f"{section}.{key}", json.loads(json.dumps(value))  # as JSON, so that tuples and lists are equal


def _toml_or_unset(value: object) -> str:
    return "not set" if value is None else _toml_value(value)


def _suggestion(name: str, known: Sequence[str] | Mapping[str, object]) -> str:
    near = get_close_matches(name, list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else "."


def _shortened(message: str) -> str:
    return shortened(message, _LONGEST_MESSAGE)


def _with_section(section: str, kind: type, message: str) -> str:
    """Error message of a section's own check, with the section in front of the key that it names."""
    named = any(message.startswith(f"{part.name} ") for part in fields(kind))
    return f"{section}.{message}" if named else f"{section}: {message}"
