"""Shell completion: the scripts of ``paircaps completion``, and the candidates that they ask the program for."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from paircaps.cli import build_parser
from paircaps.cli.parser import CommandParser, suggestions

Candidate = tuple[str, str]
"""A word, and its help in one line, which may be empty."""

_BASH = """\
_paircaps() {
    local IFS=$'\\n'
    COMPREPLY=($("${1/#\\~/$HOME}" __complete bash "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _paircaps paircaps
"""
_ZSH = """\
#compdef paircaps
_paircaps() {
    local -a lines
    lines=("${(@f)$("${(Q)words[1]/#\\~/$HOME}" __complete zsh "${(@Q)words[2,CURRENT]}" 2>/dev/null)}")
    if [[ -z "${lines[1]}" ]]; then _files; else _describe paircaps lines; fi
}
compdef _paircaps paircaps
"""
_FISH = """\
function __paircaps_candidates
    set -l words (commandline -opc) (commandline -ct)
    $words[1] __complete fish $words[2..-1] 2>/dev/null
end
complete -c paircaps -n 'set -g __paircaps_lines (__paircaps_candidates)
    test -n "$__paircaps_lines"' -f -a '$__paircaps_lines'
"""
SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


def run(options: argparse.Namespace) -> int:
    """Print the script of a shell."""
    print(SCRIPTS[options.shell], end="")
    return 0


def print_candidates(words: Sequence[str]) -> int:
    """Print the candidates for the last word, one line each; nothing where a path may follow.

    Args:
        words: the shell's name, then the words after ``paircaps`` up to the cursor; the last one may be empty.
    """
    shell, *typed = words or ["bash"]
    for name, help_text in candidates(typed, splits_equals=shell == "bash"):
        if shell == "zsh":
            print(name.replace(":", "\\:") + (f":{help_text}" if help_text else ""))
        elif shell == "fish":
            print(f"{name}\t{help_text}" if help_text else name)
        else:
            print(name)
    return 0


def candidates(words: Sequence[str], *, splits_equals: bool = False) -> list[Candidate]:
    """Candidates for the last of the words after ``paircaps``.

    Args:
        words: what was typed, up to the cursor; the last word may be empty.
        splits_equals: whether the shell passes ``--option=value`` as three words, and wants the value alone back.
    """
    *before, current = _join_equals(words) if splits_equals else words or [""]
    may_be_option = "--" not in before
    parser, pending, positional = _walk(build_parser(), before)
    if parser is None:
        return []
    if pending is not None:
        return _starting(current, _values(pending))
    name, equals, value = current.partition("=")
    if name.startswith("--") and equals and may_be_option:
        action = parser._option_string_actions.get(name)
        prefix = "" if splits_equals else f"{name}="
        found = _starting(value, _values(action)) if action else []
        return [(prefix + value, help_text) for value, help_text in found]
    if may_be_option and (current.startswith("-") or positional is None):
        return _starting(current, _options(parser))
    return _starting(current, _values(positional)) if positional is not None else []


def _walk(
    parser: CommandParser, words: Sequence[str]
) -> tuple[CommandParser | None, argparse.Action | None, argparse.Action | None]:
    """Follow the words before the cursor through the parsers.

    Returns:
        The parser of the command that the words lead to, or None if there is no such command; the option whose value
        comes next, if any; the positional argument that comes next, if any.
    """
    pending: argparse.Action | None = None
    taken = 0
    only_positionals = False
    for word in words:
        if pending is not None:
            pending = None
        elif word == "--":
            only_positionals = True
        elif word.startswith("-") and word != "-" and not only_positionals:
            action = parser._option_string_actions.get(word)
            pending = action if action is not None and action.nargs != 0 else None
        else:
            positional = _positional(parser, taken)
            if isinstance(positional, argparse._SubParsersAction):
                if word not in positional.choices:
                    return None, None, None
                parser, taken = _command(positional.choices[word]), 0
            else:
                taken += 1
    return parser, pending, _positional(parser, taken)


def _command(parser: CommandParser) -> CommandParser:
    """The parser of a command with its arguments declared."""
    parser.declare_arguments()
    return parser if parser.stand_in is None else parser.stand_in()


def _positional(parser: CommandParser, taken: int) -> argparse.Action | None:
    """The positional argument after so many; the last one again if it takes several words."""
    actions = parser._get_positional_actions()
    if taken < len(actions):
        return actions[taken]
    return actions[-1] if actions and actions[-1].nargs in ("*", "+") else None


def _options(parser: CommandParser) -> list[Candidate]:
    """Options in their long form, and those that have only a short one."""
    found = []
    for action in parser._get_optional_actions():
        if action.help != argparse.SUPPRESS:
            both = isinstance(action, argparse.BooleanOptionalAction)  # --invert and --no-invert
            for name in action.option_strings if both else action.option_strings[-1:]:
                found.append((name, _one_line(parser, action)))
    return found


def _one_line(parser: CommandParser, action: argparse.Action) -> str:
    return " ".join(parser._get_formatter()._expand_help(action).split()) if action.help else ""


def _values(action: argparse.Action) -> list[Candidate]:
    """Values that an argument can take, as far as they can be listed."""
    if isinstance(action, argparse._SubParsersAction):
        return [(choice.dest, choice.help or "") for choice in action._choices_actions]
    return [(value, "") for value in suggestions(action)]


def _starting(prefix: str, found: list[Candidate]) -> list[Candidate]:
    return [candidate for candidate in found if candidate[0].startswith(prefix)]


def _join_equals(words: Sequence[str]) -> list[str]:
    """The words with ``--option``, ``=`` and ``value`` as one, as bash splits them."""
    joined: list[str] = []
    for word in words:
        after_equals = joined and joined[-1].startswith("--") and joined[-1].endswith("=")
        if joined and (after_equals or (word == "=" and joined[-1].startswith("--"))):
            joined[-1] += word
        else:
            joined.append(word)
    return joined or [""]
