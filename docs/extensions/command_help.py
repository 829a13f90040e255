"""Directive ``command-help``: what a command prints with ``--help``."""

import contextlib
import io
import os
from unittest import mock

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from paircaps.cli import main


def help_of(command: str) -> str:
    """Text that ``paircaps COMMAND --help`` prints on a terminal of 88 columns."""
    printed = io.StringIO()
    with mock.patch.dict(os.environ, COLUMNS="88"), contextlib.redirect_stdout(printed):
        try:
            code = main([*command.split(), "--help"])
        except SystemExit as stop:
            code = stop.code
    if code:
        raise ValueError(f"paircaps {command} --help ended with {code}")
    return printed.getvalue()


class CommandHelp(SphinxDirective):
    """Literal block with the help of the command that is named in the argument; without one, that of ``paircaps``."""

    optional_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        """The block."""
        text = help_of(" ".join(self.arguments))
        return [nodes.literal_block(text, text, language="text")]


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("command-help", CommandHelp)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
