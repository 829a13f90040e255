"""Argument parsers of the command line, which declare the arguments of a command when that command is asked for."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection, Sequence
from difflib import get_close_matches
from importlib import import_module
from typing import Any, NoReturn, cast

from paircaps._utils.extras import require_extra
from paircaps._utils.words import visible

ROOM = "paircaps.cli"


class CommandParser(argparse.ArgumentParser):
    """Parser of one command.

    Attributes:
        declare: function that adds the arguments to the parser; called once, when they are needed.
        delegate: ``"module:function"`` in ``paircaps.cli`` that parses the words of the command in place of this
            parser, and returns its options; None for most commands.
        extra: extra of paircaps that the command needs; None for one that needs none.
        takes_plugins: whether the command has the option ``--plugin``.
        stand_in: function that returns a parser with the arguments of the delegate, for shell completion.
    """

    declare: Callable[[CommandParser], None] | None = None
    delegate: str | None = None
    extra: str | None = "train"
    takes_plugins: bool = True
    stand_in: Callable[[], CommandParser] | None = None

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:  # pyright: ignore
        """Parse the words of the command, by the delegate if there is one."""
        self.declare_arguments()
        if self.delegate is None:
            return super().parse_known_args(args, namespace)
        require_extra(self.prog.removeprefix("paircaps "))
        parse: Callable[[Sequence[str]], argparse.Namespace] = load_function(self.delegate)
        return parse(args or []), []

    def declare_arguments(self) -> None:
        """Add the arguments of the command, if that has not happened yet."""
        if self.declare is not None:
            declare, self.declare = self.declare, None
            declare(self)
        if not self.get_default("run"):  # a group of commands, which only its members can run
            return
        if self.get_default("command"):  # the options below have been added before
            return
        self.set_defaults(command=self.prog.removeprefix("paircaps "), extra=self.extra)
        if self.takes_plugins:
            add_plugin_option(self)

    def error(self, message: str) -> NoReturn:
        """Print the usage and what is wrong, and end with code 2."""
        super().error(visible(message))

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Refuse a value that is not among the choices, with the nearest choice."""
        if action.choices is None or value in action.choices:
            return
        choices = [str(choice) for choice in action.choices]
        near = get_close_matches(str(value), choices, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise argparse.ArgumentError(action, f"invalid choice: {value!r}{hint} (choose from {', '.join(choices)})")


def add_plugin_option(parser: argparse.ArgumentParser) -> None:
    """Declare ``--plugin MODULE``, which may be given several times."""
    parser.add_argument(
        "--plugin",
        action="append",
        default=[],
        metavar="MODULE",
        help="import a module, or a .py file, that registers routings, models, datasets or recipes of your own; "
        "may be given several times",
    )


def load_function(name: str) -> Callable[..., Any]:
    """Import a function of the command line.

    Args:
        name: ``"module:function"``, the module within ``paircaps.cli``.
    """
    module, _, function = name.partition(":")
    return getattr(import_module(f"{ROOM}.{module}"), function)


def suggest(action: argparse.Action, names: Collection[str] | Callable[[], Collection[str]]) -> argparse.Action:
    """Let shell completion offer names for an argument that takes others too, such as paths.

    Args:
        action: the argument.
        names: the names, or a function that returns them.
    """
    action.suggestions = names  # pyright: ignore[reportAttributeAccessIssue]
    return action


def suggestions(action: argparse.Action) -> list[str]:
    """Names that shell completion offers for an argument: its choices, or those of :func:`suggest`."""
    if action.choices is not None:
        return [str(choice) for choice in action.choices]
    names = cast("Collection[str] | Callable[[], Collection[str]]", getattr(action, "suggestions", ()))
    return list(names() if callable(names) else names)
