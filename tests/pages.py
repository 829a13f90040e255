"""Pages of the repository, and the commands on them."""

import re
import shlex
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCED = re.compile(r"^ *(?P<fence>`{3,}|~{3,})(?P<language>.*?)\n(?P<code>.*?)^ *(?P=fence) *$", flags=re.M | re.S)
"""A block of code with its fences."""

ENDS = ("|", ">", ">>", "<", "&", "&&", "||", ";")
"""Words of a shell with which a command ends."""


def command_lines(text):
    """Words after ``paircaps`` of every command in the blocks of a page that are for a shell or name no language."""
    for match in FENCED.finditer(text):
        if match["language"].strip() not in ("", "sh", "bash", "shell", "console"):
            continue
        for line in match["code"].replace("\\\n", " ").splitlines():
            if "paircaps" not in line:
                continue
            words = shlex.split(line.replace('"$(', "").replace(')"', ""), comments=True)
            while "paircaps" in words:
                words = words[words.index("paircaps") + 1 :]
                yield words[: next((at for at, word in enumerate(words) if word in ENDS), None)]
