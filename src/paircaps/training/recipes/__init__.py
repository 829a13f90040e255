"""Recipes by name: those of the package, registered ones, and TOML files."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from paircaps._utils.registry import Registry, unknown_name
from paircaps.data.registry import folder_path
from paircaps.errors import RecipeError
from paircaps.training.recipe import Recipe
from paircaps.training.recipe_io import RecipeTree, merge, parse_toml, recipe_from_tree, with_present_keys

__all__ = [
    "list_recipes",
    "load_recipe",
    "register_recipe",
]

_SHIPPED = resources.files("paircaps.training.recipes")
_BASE = "base"
"""Key of a recipe that names the recipe whose values it changes."""

_MASKS = "masks"
"""Option of a folder of pictures that names the folder of their masks."""


_REGISTERED: Registry[Path | str] = Registry("recipe")


def register_recipe(name: str, recipe: Path | str) -> None:
    """Make a recipe known by name, as plug-ins do.

    Args:
        name: how ``paircaps train NAME`` and a ``base`` name it.
        recipe: TOML text, or the path of a TOML file, which is read when it is asked for.

    Raises:
        ValueError: if the name is taken or looks like a path.
    """
    if name in _shipped_recipes():
        raise ValueError(f"recipe {name!r} comes with paircaps; take another name")
    if _is_path(name):
        raise ValueError(f"the name of a recipe cannot look like a path, got {name!r}")
    path = Path(recipe) if isinstance(recipe, Path) or recipe.endswith(".toml") else None
    _REGISTERED.register(name, lambda: recipe if path is None else path)


def list_recipes() -> list[str]:
    """Names of the recipes that come with the package, and of registered ones."""
    return sorted((*_shipped_recipes(), *_REGISTERED.names()))


def _shipped_recipes() -> list[str]:
    return [entry.name.removesuffix(".toml") for entry in _SHIPPED.iterdir() if entry.name.endswith(".toml")]


def load_recipe(name: str | Path, overrides: Mapping[str, Any] | None = None) -> Recipe:
    """Load a recipe by its name or from a TOML file.

    >>> load_recipe("glyphs", {"train": {"epochs": 3}}).train.epochs
    3

    Args:
        name: one of :func:`list_recipes`, or the path of a TOML file.
        overrides: values to change, as sections of keys: ``{"train": {"epochs": 3}}``.

    Raises:
        RecipeError: if there is no such recipe, or a key or value of it is not allowed.
    """
    return recipe_from_tree(merge(read_tree(name), with_present_keys(overrides or {})))


def read_tree(name: str | Path, seen: tuple[str, ...] = ()) -> RecipeTree:
    """Sections and keys of a recipe, merged over those of the recipe that it is based on.

    Args:
        name: one of :func:`list_recipes`, or the path of a TOML file.
        seen: names of the recipes that are based on this one, to find circles.
    """
    if str(name) in seen:
        raise RecipeError(f"{name}: a recipe cannot be its own base: {' → '.join((*seen, str(name)))}")
    registered = _registered(name)
    if isinstance(registered, Path):  # its relative paths start from its own folder
        return read_tree(registered.absolute(), (*seen, str(name)))
    tree = parse_toml(_read(name) if registered is None else registered, str(name))
    folder = Path(name).expanduser().parent
    base = tree.pop(_BASE, None)
    tree = with_absolute_paths(tree, folder)
    if base is None:
        return tree
    if not isinstance(base, str):
        raise RecipeError(f"{name}: base must be the name of a recipe, got {base!r}")
    if _is_path(base):
        base = str(folder / Path(base).expanduser())
    try:
        below = read_tree(base, (*seen, str(name)))
    except RecipeError as error:
        raise RecipeError(f"{name}: its base: {error}") from None
    return merge(below, tree)


def with_absolute_paths(tree: RecipeTree, folder: Path) -> RecipeTree:
    """Make the paths of section ``data`` absolute, so that a run can be resumed from any folder.

    Args:
        tree: sections of keys.
        folder: folder that relative paths start from: that of the recipe, or the current one for a command line.
    """
    data = tree.get("data")
    if not isinstance(data, Mapping):
        return tree
    paths = {
        key: str((folder / Path(value).expanduser()).resolve()) + ("/" if key != "folder" else "")
        for key, value in data.items()
        if key in ("name", "test", "folder") and isinstance(value, str) and _is_data_path(key, value)
    }
    options = {
        key: {**data[key], _MASKS: str((folder / Path(data[key][_MASKS]).expanduser()).resolve())}
        for key in ("options", "test_options")
        if _has_path_of_masks(data, data.get(key))
    }
    return {**tree, "data": {**data, **paths, **options}}


def _is_data_path(key: str, value: str) -> bool:
    return bool(value) and (key == "folder" or folder_path(value) is not None)


def _has_path_of_masks(data: Mapping[str, Any], options: object) -> bool:
    """Whether options of a dataset name a folder of masks, which a folder of pictures has."""
    if not isinstance(options, Mapping) or not isinstance(value := options.get(_MASKS), str) or not value:
        return False
    return any(isinstance(place, str) and _is_data_path("name", place) for place in (value, data.get("name")))


def _registered(name: str | Path) -> Path | str | None:
    """Path or text of a registered recipe; None for those of the package, for paths and for unknown names."""
    if _is_path(str(name)) or str(name) in _shipped_recipes() or str(name) not in _REGISTERED:
        return None
    return _REGISTERED.factory(str(name))()


def _read(name: str | Path) -> str:
    if str(name) in _shipped_recipes():
        return (_SHIPPED / f"{name}.toml").read_text(encoding="utf-8")
    path = Path(name).expanduser()
    if not _is_path(str(name)):
        hint = f". For the file of that name write './{name}'" if path.is_file() else ", or the path of a .toml file"
        raise RecipeError(f"{unknown_name('recipe', str(name), list_recipes())}{hint}")
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise RecipeError(f"{path}: not a TOML text in UTF-8") from None
    except OSError as error:
        raise RecipeError(f"{path}: cannot read the recipe: {error.strerror or error}") from None


def _is_path(name: str) -> bool:
    return "/" in name or "\\" in name or name.endswith(".toml")
