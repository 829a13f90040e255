"""Check that the API reference has every public name, and that every public name has a docstring.

Public are the names in ``__all__`` of the modules below, and the methods, properties and attributes of public classes
that have no leading underscore. Each gap is a warning, and ``make docs`` fails on warnings.
"""

import inspect
import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from importlib import import_module
from pathlib import Path
from types import ModuleType

from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.pycode import ModuleAnalyzer
from sphinx.util.logging import getLogger

import paircaps

MODULES = [
    "paircaps",
    *("paircaps.functional", "paircaps.layers", "paircaps.votes", "paircaps.routing", "paircaps.models"),
    *("paircaps.network", "paircaps.model_files", "paircaps.pretrained", "paircaps.model_card", "paircaps.hub"),
    *("paircaps.pictures", "paircaps.losses", "paircaps.testing"),
    *("paircaps.data", "paircaps.training", "paircaps.training.recipes", "paircaps.training.recipe"),
    *("paircaps.training.compare", "paircaps.explain", "paircaps.explain.plots", "paircaps.errors"),
    "paircaps.export",
]
"""Modules with public names."""

INTERNAL = [
    *("paircaps.data.errors", "paircaps.data.sources", "paircaps.paper.comparison", "paircaps.paper.report"),
    "paircaps.training.signals",
]
"""Modules whose ``__all__`` is for other modules of the package: users need none of it."""

PACKAGE = Path(paircaps.__file__).parent
MEMBERS = (property, cached_property, classmethod, staticmethod)


def gaps(documented: set[str], modules: Sequence[str] = MODULES) -> Iterator[str]:
    """Sentences that say what the reference or the docstrings lack.

    Args:
        documented: full names of the reference, as ``paircaps.CapsuleLayer``.
        modules: names of the modules with public names.
    """
    names = [name for module in modules for name in public_names(import_module(module))]
    described = {id(value) for full_name, value in names if full_name in documented}
    checked = set()
    for full_name, value in names:
        # what several modules export is described once, under any of its names; of constants each name counts
        elsewhere = can_have_docstring(value) and id(value) in described
        if full_name not in documented and not elsewhere:
            yield f"{full_name} is public and missing in the API reference (docs/api)"
        if can_have_docstring(value):
            if id(value) not in checked:
                checked.add(id(value))
                yield from docstring_gaps(full_name, value)
        else:
            yield from constant_gaps(full_name)


def public_names(module: ModuleType) -> Iterator[tuple[str, object]]:
    """Public names of a module with what they stand for; modules among them have a page of their own."""
    for name in module.__all__:
        value = getattr(module, name)
        if not isinstance(value, ModuleType):
            yield f"{module.__name__}.{name}", value


def can_have_docstring(value: object) -> bool:
    """Whether a value can have a docstring: classes and functions can, constants and aliases of types cannot."""
    return inspect.isclass(value) or inspect.isroutine(value)


def forgotten_modules(folder: Path = PACKAGE, known: Sequence[str] = (*MODULES, *INTERNAL)) -> Iterator[str]:
    """Sentences on modules of a package that have public names and are not known here.

    Args:
        folder: folder of the package.
        known: names of the modules that are known.
    """
    for path in sorted(folder.rglob("*.py")):
        name = ".".join(path.relative_to(folder.parent).with_suffix("").parts).removesuffix(".__init__")
        if re.search(r"^__all__\b", path.read_text(encoding="utf-8"), flags=re.M) and name not in known:
            yield f"{name} has an __all__ and is neither in MODULES nor in INTERNAL of docs/extensions/public_names.py"


# --- docstrings --------------------------------------------------------------------------------------------------


def docstring_gaps(full_name: str, value: object) -> Iterator[str]:
    """What the docstrings of a class with its members, or of a function, lack."""
    text = inspect.cleandoc(value.__doc__ or "")
    generated = inspect.isclass(value) and text.startswith(f"{value.__name__}(")  # by dataclass or NamedTuple
    if not text or generated:
        yield f"{full_name} has no docstring"
    elif not inspect.isclass(value):
        yield from result_gaps(full_name, text)
    if inspect.isclass(value):
        yield from member_gaps(full_name, value)
        yield from attribute_gaps(full_name, value)


def member_gaps(full_name: str, value: type) -> Iterator[str]:
    """Public methods and properties that a class defines without a docstring: that of a base class does not count."""
    for name, member in vars(value).items():
        if name.startswith("_") or not (inspect.isroutine(member) or isinstance(member, MEMBERS)):
            continue
        text = inspect.cleandoc(member.__doc__ or "")
        if not text:
            yield f"{full_name}.{name} has no docstring"
        elif isinstance(member, (property, cached_property)):
            yield from type_gaps(f"{full_name}.{name}", text)
        else:
            yield from result_gaps(f"{full_name}.{name}", text)


def attribute_gaps(full_name: str, value: type) -> Iterator[str]:
    """Public attributes of a class that neither a docstring of theirs nor that of the class or a base describes."""
    for name in public_attributes(value):
        own = [kind for kind in value.__mro__ if package_of(kind) == package_of(value)]
        texts = [text for kind in own for text in attribute_docstring(kind, name)]
        if not texts:
            yield f"{full_name}.{name} has no docstring, nor a line in that of the class"
        for text in texts[:1]:
            yield from type_gaps(f"{full_name}.{name}", text)


def public_attributes(value: type) -> list[str]:
    """Public names that the body of a class annotates or assigns, other than methods, properties and classes."""
    assigned = [
        name
        for name, member in vars(value).items()
        if not (inspect.isroutine(member) or isinstance(member, (*MEMBERS, type)))
    ]
    names = dict.fromkeys([*inspect.get_annotations(value), *assigned])
    return [name for name in names if not name.startswith("_")]


def package_of(kind: type) -> str:
    """Name of the package that a class is from."""
    return kind.__module__.split(".")[0]


def attribute_docstring(kind: type, name: str) -> Iterator[str]:
    """What a class says of an attribute: its docstring, or an empty text where the class's docstring has a line."""
    documented = ModuleAnalyzer.for_module(kind.__module__).find_attr_docs()
    if (kind.__qualname__, name) in documented:
        yield "\n".join(documented[kind.__qualname__, name])
    elif re.search(rf"^ {{4}}{name}: ", inspect.cleandoc(kind.__doc__ or ""), flags=re.M):
        yield ""


def constant_gaps(full_name: str) -> Iterator[str]:
    """What the docstring of a constant lacks; without one the reference would show that of its type."""
    module, name = full_name.rsplit(".", 1)
    text = ModuleAnalyzer.for_module(module).find_attr_docs().get(("", name))
    if text is None:
        yield f"{full_name} has no docstring"
    else:
        yield from type_gaps(full_name, "\n".join(text))


# --- what the reference would misread ----------------------------------------------------------------------------


def type_gaps(full_name: str, text: str) -> Iterator[str]:
    """A sentence if the reference would take the beginning of the docstring of an attribute for its type."""
    if is_read_as_type(text.split("\n")[0]):
        yield f"{full_name}: what is before the colon in the first line of the docstring would be shown as its type"


def result_gaps(full_name: str, text: str) -> Iterator[str]:
    """A sentence if the reference would take the beginning of the section on results for their type."""
    result = re.search(r"^Returns:\n +(.*)", text, flags=re.M)
    if result and is_read_as_type(result[1]):
        yield f"{full_name}: what is before the colon in the first line of Returns would be shown as its type"


def is_read_as_type(line: str) -> bool:
    """Whether a line has a colon outside of code and references: Google's style has a type before it."""
    return ":" in re.sub(r"``.+?``|(?::\w+)*:?`.+?`", "", line)


# --- Sphinx ------------------------------------------------------------------------------------------------------


def check(app: Sphinx, environment: BuildEnvironment) -> None:
    """Warn of each gap."""
    documented = {name for name, *_ in environment.get_domain("py").get_objects()}
    for gap in (*gaps(documented), *forgotten_modules()):
        getLogger(__name__).warning(gap, type="public_names")


def setup(app: Sphinx) -> dict[str, bool]:
    """Check after all pages are read."""
    app.connect("env-check-consistency", check)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
