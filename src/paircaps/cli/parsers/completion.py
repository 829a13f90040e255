"""Arguments of ``paircaps completion``."""

from __future__ import annotations

from paircaps.cli.parser import CommandParser

SHELLS = ("bash", "zsh", "fish")

_ABOUT = """
Print a script that completes commands, options and names of paircaps in a shell. Load it in every new shell:
bash: add  eval "$(paircaps completion bash)"  to ~/.bashrc;
zsh: add  eval "$(paircaps completion zsh)"  to ~/.zshrc, after compinit;
fish: run  paircaps completion fish > ~/.config/fish/completions/paircaps.fish  once.
"""


def declare(parser: CommandParser) -> None:
    """Declare the arguments of ``completion``."""
    parser.description = _ABOUT
    parser.add_argument("shell", choices=SHELLS, metavar="SHELL", help=", ".join(SHELLS))
    parser.extra, parser.takes_plugins = None, False
    parser.set_defaults(run="completion:run")
