"""Keys of a recipe for shell completion, read from the source of its dataclasses.

Importing them imports PyTorch, which takes seconds; reading their source takes milliseconds. The training itself never
uses this: ``tests/cli/test_completion.py`` compares it with the keys that the training has.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from paircaps.cli.names import DATASETS, LOSSES, MODELS, ROUTINGS, shipped_recipes
from paircaps.cli.parser import CommandParser, add_plugin_option, suggest

_PACKAGE = Path(__file__).parent.parent
_NAMES = {
    "model.name": MODELS,
    "model.routing": ("auto", *ROUTINGS),
    "data.name": DATASETS,
    "data.test": DATASETS,
    "loss.name": LOSSES,
}
"""Keys whose values are names, though others are allowed too."""


def train_parser() -> CommandParser:
    """A parser with the arguments of ``paircaps train``, to complete them; jsonargparse parses them."""
    parser = CommandParser(prog="paircaps train")
    suggest(parser.add_argument("recipe", nargs="?", metavar="RECIPE"), shipped_recipes)
    parser.add_argument("--out", metavar="DIR", help="folder of the run")
    parser.add_argument("--hours", metavar="H", help="time that the training may take on this machine")
    parser.add_argument("--fresh", action="store_true", help="remove the run that is in DIR, and start over")
    parser.add_argument("--extend", action="store_true", help="make the run that is in DIR longer")
    parser.add_argument("--quiet", action="store_true", help="show no progress, only the result")
    parser.add_argument("--print-config", action="store_true", help="print the recipe, train nothing")
    add_plugin_option(parser)
    for key, values in recipe_keys().items():
        suggest(parser.add_argument(f"--{key}"), values)
    return parser


def recipe_keys() -> dict[str, tuple[str, ...]]:
    """Every key of a recipe as ``section.key``, with the values that can be offered for it."""
    source = ast.parse((_PACKAGE / "training" / "recipe.py").read_text(encoding="utf-8"))
    keys = {}
    for section, kind in _fields(_find_class(source, "Recipe")):
        for name, annotation in _fields(_find_class(source, ast.unparse(kind))):
            keys[f"{section}.{name}"] = _NAMES.get(f"{section}.{name}", _values(annotation))
    return keys


def _find_class(source: ast.Module, name: str) -> ast.ClassDef:
    """A class of a module, or the one that the module imports from another module of the package."""
    for node in source.body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            return node
        if isinstance(node, ast.ImportFrom) and node.module and any(alias.name == name for alias in node.names):
            path = _PACKAGE.joinpath(*node.module.split(".")[1:])
            file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
            return _find_class(ast.parse(file.read_text(encoding="utf-8")), name)
    raise LookupError(f"no class {name}")


def _fields(kind: ast.ClassDef) -> Iterator[tuple[str, ast.expr]]:
    """Names and annotations of a dataclass's fields."""
    for node in kind.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id, node.annotation


def _values(annotation: ast.expr) -> tuple[str, ...]:
    """Values of ``bool`` and ``Literal[...]``; none of other types."""
    if isinstance(annotation, ast.Name) and annotation.id == "bool":
        return ("true", "false")
    if isinstance(annotation, ast.Subscript) and ast.unparse(annotation.value) == "Literal":
        return tuple(str(value) for value in ast.literal_eval(ast.Tuple(_elements(annotation.slice), ast.Load())))
    return ()


def _elements(node: ast.expr) -> list[ast.expr]:
    return node.elts if isinstance(node, ast.Tuple) else [node]
