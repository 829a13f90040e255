"""The page on the command line has the help of every command."""

import argparse
import re

import pytest
from docs.site import ROOT, load_extension

from paircaps.cli import COMMANDS, build_parser

command_help = load_extension("command_help")


def commands_of(parser):
    """Words of every command of a parser and of those below it."""
    parser.declare_arguments()
    groups = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    below = [(name, inner) for group in groups for name, inner in group.choices.items()]
    return [words for name, inner in below for words in (name, *(f"{name} {rest}" for rest in commands_of(inner)))]


def sections():
    """Level, title and command of every section of the page, in order."""
    page = (ROOT / "docs" / "command-line.md").read_text()
    return re.findall(r"^(#+) ([\w -]+)\n\n```\{command-help\} ([\w -]+)\n```$", page, flags=re.M)


def test_every_command_and_subcommand_has_a_section():
    commands = commands_of(build_parser())
    assert set(COMMANDS) < set(commands)
    assert {"data list", "bench train"} < set(commands)
    assert sorted(command for _, _, command in sections()) == sorted(commands)


def test_a_section_has_the_help_of_its_title_and_subcommands_are_below_their_command():
    latest = ""
    for level, title, command in sections():
        assert title == command
        if level == "##":
            latest = command
        assert level == "#" * (1 + len(command.split()))
        assert command.split()[0] == latest


@pytest.mark.parametrize("command", ["", "train", "data", "bench layer"])
def test_help_is_what_the_command_prints_on_a_terminal_of_any_width(command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    text = command_help.help_of(command)
    assert text.startswith(f"usage: paircaps {command}".strip())
    assert "--help" in text
    monkeypatch.setenv("COLUMNS", "40")
    assert command_help.help_of(command) == text


@pytest.mark.parametrize("command", ["trian", "bench nothing"])
def test_an_unknown_command_is_refused(command):
    with pytest.raises(ValueError, match=f"paircaps {command} --help ended with 2"):
        command_help.help_of(command)


def test_a_section_of_a_lost_command_would_break_the_page(monkeypatch):
    monkeypatch.delitem(COMMANDS, "replay")
    with pytest.raises(ValueError, match="replay"):
        command_help.help_of("replay")
