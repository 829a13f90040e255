"""Plug-ins: modules outside this package that register routings, models, datasets or recipes when they are imported.

A plug-in is found in three ways: an installed package names it in an entry point of the group ``paircaps``, the
variable ``PAIRCAPS_PLUGINS`` names it, or a command names it with ``--plugin``. Those of entry points and of the
variable are imported when a registry is asked for a name that it does not know, or for all its names. No file that is
read, such as ``model.json``, causes an import.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import re
import sys
import threading
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from pathlib import Path

from paircaps.errors import PluginError

GROUP = "paircaps"
"""Group of the entry points."""
VARIABLE = "PAIRCAPS_PLUGINS"
"""Environment variable with names of modules and paths of .py files, separated like those of PATH."""

_lock = threading.RLock()
_loaded: set[str] = set()
"""Modules and absolute paths of files that were imported as plug-ins."""
_importing: list[str] = []
"""Plug-ins that are being imported right now, the innermost one last."""
_used: dict[str, None] = {}
"""Plug-ins of which something was built, in that order."""
_scope: ContextVar[dict[str, None] | None] = ContextVar("plug-ins in use", default=None)
"""The same since the scope began, if there is one."""
_searched = False
"""Whether the entry points and the variable have been looked at."""


def load_plugin(name: str) -> None:
    """Import a plug-in, unless it was imported before.

    Args:
        name: a module, or the path of a file (with a ``/`` in it, or ``.py`` at its end).

    Raises:
        PluginError: if there is no such module or file, or importing it fails.
    """
    if not name:
        raise PluginError("a plug-in is a module or the path of a .py file, got an empty name")
    with _lock:
        if _is_path(name):
            _load_file(Path(name).expanduser())
        else:
            _load_module(name)


def load_plugins(names: Sequence[str]) -> None:
    """Import the plug-ins of a command line and of the variable; processes started from now on import them too.

    Raises:
        PluginError: if one of them cannot be imported.
    """
    wanted = [str(Path(name).expanduser().resolve()) if _is_path(name) else name for name in names]
    for name, given in zip(wanted, names, strict=True):
        with _named(f"--plugin {given}"):
            load_plugin(name)
    for name in _of_variable():
        with _named(f"{VARIABLE}={name}"):
            load_plugin(name)
    if wanted:
        os.environ[VARIABLE] = os.pathsep.join(dict.fromkeys((*wanted, *_of_variable())))


def load_installed_plugins() -> None:
    """Import the plug-ins of the variable and of installed packages, once; one that fails is a warning."""
    global _searched
    if _searched or _importing:  # a plug-in that asks for names gets those known so far
        return
    with _lock:
        if _searched:
            return
        _searched = True
        for name in _of_variable():
            with _failure_as_warning(f"{name!r} of {VARIABLE}"):
                load_plugin(name)
        from importlib.metadata import entry_points  # not needed by most processes

        for entry in entry_points(group=GROUP):
            package = entry.dist.name if entry.dist is not None else "unknown"
            with _failure_as_warning(f"{entry.name!r} of the package {package}"):
                load_plugin(entry.module)


def plugin_of(factory: object) -> str | None:
    """The plug-in that a factory belongs to when it is registered; None for one of this package or of a script."""
    if _importing:  # this package itself may be imported by a plug-in, and registers its own names then
        return None if _registering_module().split(".")[0] == "paircaps" else _importing[-1]
    module = getattr(factory, "__module__", None)
    own = not isinstance(module, str) or module.split(".")[0] in ("paircaps", "__main__", "functools")
    return None if own else module


def _registering_module() -> str:
    """The module whose top level runs right now, however deep within its functions."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_name != "<module>":
        frame = frame.f_back
    return "" if frame is None else str(frame.f_globals.get("__name__", ""))


def note_use(plugin: str | None) -> None:
    """Remember that something of a plug-in was built."""
    if plugin is not None:
        for used in (_used, _scope.get()):
            if used is not None:
                used[plugin] = None


def used_plugins() -> list[str]:
    """Plug-ins of which something was built, in the scope of :func:`noting_plugins` if there is one, else ever.

    They are named by their modules, and files by their names without the folder.
    """
    scope = _scope.get()
    return list(_used if scope is None else scope)


@contextlib.contextmanager
def noting_plugins() -> Iterator[None]:
    """Scope of :func:`used_plugins`: what was built before, for another network, does not count in it."""
    token = _scope.set({})
    try:
        yield
    finally:
        _scope.reset(token)


def is_imported(name: str) -> bool:
    """Whether a plug-in, named as :func:`used_plugins` does, has been imported by any means."""
    return name in _used or name in sys.modules or any(name == Path(loaded).name for loaded in _loaded)


def _load_module(name: str) -> None:
    if name in _loaded:
        return
    with _import_as(name):
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name is None or error.name not in _parents(name):  # something that the plug-in imports is missing
                raise
            files = [file for file in (f"{name}.py", name) if Path(file).is_file()]
            hint = f"; for the file of that name write './{files[0]}'" if files else ""
            raise PluginError(f"no module {name!r} is installed{hint}") from None
    _loaded.add(name)


def _load_file(path: Path) -> None:
    path = path.resolve()
    if str(path) in _loaded:
        return
    if not path.is_file():
        raise PluginError(f"{path}: {'is a folder, not a .py file' if path.is_dir() else 'no such file'}")
    name = _module_name(path)
    with _import_as(path.name):
        spec = importlib.util.spec_from_file_location(name, path)
        if spec is None or spec.loader is None:
            raise PluginError(f"{path}: a plug-in is a file that ends in .py")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module  # dataclasses and pickle look there
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
    _loaded.add(str(path))


def _module_name(path: Path) -> str:
    """A name for the module of a file that no other module has."""
    stem = "paircaps_plugin_" + re.sub(r"\W", "_", path.stem)
    names = (stem if number == 1 else f"{stem}_{number}" for number in range(1, len(_loaded) + 2))
    return next(name for name in names if name not in sys.modules)


@contextlib.contextmanager
def _import_as(plugin: str) -> Iterator[None]:
    """Import a plug-in: registrations are noted as its own, prints go to standard error, errors become PluginError."""
    _importing.append(plugin)
    printed = contextlib.redirect_stdout(sys.stderr) if sys.stderr is not None else contextlib.nullcontext()
    try:
        with printed:
            yield
    except PluginError:
        raise
    except (Exception, SystemExit) as error:
        raise PluginError(f"cannot be imported: {type(error).__name__}: {error}{_place(error)}") from error
    finally:
        _importing.pop()


def _place(error: BaseException) -> str:
    """File and line of an error outside of this package and of Python's import system, in brackets."""
    ours = (str(Path(__file__).parent.parent), "<frozen ")
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(ours)]
    frames = [frame for frame in frames if Path(frame.filename).parent.name != "importlib"]
    if not frames or isinstance(error, SyntaxError):  # whose text names the place
        return ""
    return f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})"


@contextlib.contextmanager
def _named(what: str) -> Iterator[None]:
    """Put the name of a plug-in before its error."""
    try:
        yield
    except PluginError as error:
        raise PluginError(f"{what}: {error}") from error.__cause__


@contextlib.contextmanager
def _failure_as_warning(what: str) -> Iterator[None]:
    try:
        yield
    except PluginError as error:
        warnings.warn(f"plug-in {what} is left out: {error}", stacklevel=3)


def _of_variable() -> list[str]:
    return [name for name in os.environ.get(VARIABLE, "").split(os.pathsep) if name]


def _is_path(name: str) -> bool:
    return "/" in name or os.sep in name or name.endswith(".py")


def _parents(name: str) -> set[str]:
    """A module and the packages that it is in."""
    parts = name.split(".")
    return {".".join(parts[:count]) for count in range(1, len(parts) + 1)}
