"""The RECIPE of ``paircaps train``: a recipe, or a folder of pictures; and what was probably meant if it is neither."""

from __future__ import annotations

import shlex
import sys
from difflib import get_close_matches
from pathlib import Path

from paircaps._utils.words import visible
from paircaps.cli.names import shipped_recipes
from paircaps.errors import RecipeError
from paircaps.pictures import SUFFIXES
from paircaps.training.recipe_io import RecipeTree, merge
from paircaps.training.recipes import list_recipes, read_tree, with_absolute_paths
from paircaps.training.run_folder import RunFolder

_FOLDER_RECIPE = "folder"
_MOST_LOOKED_AT = 10_000
"""Files of a folder that are looked at to find a picture."""


def read_named_tree(name: str, out: str, overrides: RecipeTree, quiet: bool = False) -> RecipeTree:
    """Sections and keys of the recipe that a command line names, with those that it gives itself.

    A folder of pictures stands for the recipe ``folder`` on them, and a line on stderr says so.

    Args:
        name: name of a recipe, path of a .toml file, or path of a folder of pictures.
        out: ``--out`` of the command; empty if it has none.
        overrides: keys of the command line.
        quiet: whether to leave out that line.

    Raises:
        RecipeError: if there is no such recipe; the message says what was probably meant.
    """
    path = Path(name).expanduser()
    if name not in shipped_recipes() and name not in list_recipes():  # the second imports the plug-ins
        if path.is_dir():
            _require_pictures(path, name)
            if other := overrides.get("data", {}).get("name"):
                raise RecipeError(f"{name} is a folder of pictures, and --data.name {other} another: give one of them")
            command = _folder_command(name, out)
            if not quiet:
                print(f"{visible(str(name))}: a folder of pictures, so this is {command}", file=sys.stderr, flush=True)
            overrides = merge({"data": {"name": _with_slash(name)}}, overrides)
            name = _FOLDER_RECIPE
        elif not path.exists() and (hint := _meant_path(path, "/" in name)):
            raise RecipeError(f"{name}: no such recipe; did you mean {hint}?")
        elif "/" in name and not path.exists():
            known = ", ".join(list_recipes())
            raise RecipeError(f"{name}: no such file or folder. A recipe is a .toml file or one of {known}")
    return merge(read_tree(name), with_absolute_paths(overrides, Path.cwd()))


def _folder_command(name: str, out: str) -> str:
    """The command by which a folder of pictures is trained on; an error without ``--out``."""
    command = f"paircaps train {_FOLDER_RECIPE} --data.name {shlex.quote(_with_slash(name))}"
    if not out:
        place = shlex.quote(f"runs/{Path(name).resolve().name}")
        raise RecipeError(f"--out DIR is missing, the folder of the run: {command} --out {place}")
    return f"{command} --out {shlex.quote(out)}"


def _with_slash(name: str) -> str:
    """A path of a folder as a recipe names it: with a / in it."""
    return name if "/" in name else f"./{name}"


def _require_pictures(folder: Path, name: str) -> None:
    """Raise an error unless a folder has subfolders with pictures; it says what the folder is and what to do."""
    run = RunFolder(folder)
    if run.config.exists() and run.is_begun():
        again = f"paircaps train {shlex.quote(str(run.config))} --out {shlex.quote(name)}"
        raise RecipeError(f"{name}: the folder of a run, and no recipe. To go on with it: {again}")
    entries = sorted(folder.iterdir())
    subfolders = [entry for entry in entries if entry.is_dir() and not entry.name.startswith(".")]
    runs = [str(entry) for entry in subfolders if (entry / run.config.name).exists()]
    if not runs and any(_has_picture(entry) for entry in subfolders):
        return
    recipes = [str(entry) for entry in entries if entry.suffix == ".toml"]
    if runs:
        what = f"it holds runs: {', '.join(runs[:5])}"
    elif any(_is_picture(entry) for entry in entries):
        what = "its pictures lie loose in it; put those of each class into a subfolder of the class's name"
    elif recipes:
        what = f"it holds recipes: {', '.join(recipes[:5])}"
    else:
        what = "a folder of pictures has one subfolder per class with pictures in it"
    raise RecipeError(f"{name}: a folder, and neither a recipe nor a folder of pictures: {what}")


def _has_picture(folder: Path) -> bool:
    """Whether one of the first files in a folder and the folders in it is a picture."""
    return any(_is_picture(path) for path, _ in zip(folder.rglob("*"), range(_MOST_LOOKED_AT), strict=False))


def _is_picture(path: Path) -> bool:
    return path.suffix.lower() in SUFFIXES


def _meant_path(path: Path, is_path: bool) -> str | None:
    """The .toml file, or the file or folder of a similar name, that a path that leads nowhere probably meant.

    Args:
        path: path that leads nowhere.
        is_path: whether it was written as a path; a bare name is rather a misspelt recipe than a misspelt folder.
    """
    beside = path.with_name(f"{path.name}.toml") if path.name else path
    if beside.is_file():
        return _with_slash(str(beside))
    if not is_path or not path.parent.is_dir():
        return None
    known = [entry.name for entry in path.parent.iterdir() if entry.is_dir() or entry.suffix == ".toml"]
    near = get_close_matches(path.name, known, n=1)
    return _with_slash(str(path.with_name(near[0]))) if near else None
