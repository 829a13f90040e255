"""Where the trained networks are that come with the project: their folders by name.

Small ones lie inside the package, larger ones in the folder ``weights`` of the repository. Nothing here imports
PyTorch.
"""

from __future__ import annotations

import os
from difflib import get_close_matches
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "weights"
"""Folder of the networks inside the package."""

CHECKOUT = Path(__file__).parents[3] / "weights"
"""Folder of the larger networks, where the package runs from a checkout of the repository."""

VARIABLE = "PAIRCAPS_WEIGHTS"
"""Environment variable with folders of further networks, separated like those of PATH."""

METADATA = "model.json"
"""File that every folder of a trained network has."""

DIGITS = ("digits", "digits-dynamic", "digits-em", "digits-pool")
"""Networks for handwritten digits, which the page shows where no others are named."""

IN_PACKAGE = (*DIGITS, "glyphs")
"""Names of the networks inside the package."""

IN_REPOSITORY = ("cifar10", "cifar10-pool", "fashion-mnist", "fashion-mnist-pool", "multi-mnist")
"""Names of the networks in the folder ``weights`` of the repository."""


def shipped_folders() -> dict[str, Path]:
    """Folders of all networks that come with the project and are on this machine, by name.

    Of two with one name that of the package counts, then that of the checkout, then those of ``PAIRCAPS_WEIGHTS``.
    """
    found: dict[str, Path] = {}
    for place in _places():
        for file in sorted(place.glob(f"*/{METADATA}")):
            if not file.parent.name.startswith("."):  # one that is being written
                found.setdefault(file.parent.name, file.parent)
    return dict(sorted(found.items()))


def missing_places() -> list[Path]:
    """Folders that the variable names and that are not there."""
    return [place for place in _named_places() if not place.is_dir()]


def _named_places() -> list[Path]:
    return [Path(text).expanduser() for text in os.environ.get(VARIABLE, "").split(os.pathsep) if text]


def _places() -> list[Path]:
    checkout = [CHECKOUT] if (CHECKOUT.parent / "pyproject.toml").is_file() else []
    return [PACKAGE, *checkout, *_named_places()]


def is_name(text: str) -> bool:
    """Whether a text could name a network: a single word, without the parts of a path."""
    return bool(text) and not text.startswith(("~", ".")) and not any(sign in text for sign in ("/", "\\"))


def path_or_shipped(place: Path | str) -> Path:
    """The folder that a text means: a path that exists, else the folder of the network of that name, else the path."""
    path, name = Path(place).expanduser(), str(place).rstrip("/")  # completion of a folder's name adds the last /
    if path.exists() or not is_name(name):
        return path
    return shipped_folders().get(name, path)


def shadowed(path: Path) -> str:
    """End of an error about a folder that is no trained network, if a network has its name; else empty text.

    Args:
        path: the folder, as it was named.
    """
    if str(path) not in shipped_folders():
        return ""
    return f". The network {str(path)!r} that comes with paircaps is taken where no folder or file has its name"


def why_unknown(name: str) -> str:
    """Sentence for a name that no network has: which there are, and which was probably meant.

    Args:
        name: a name; empty text is returned for a path.
    """
    if not is_name(name):
        return ""
    here = sorted(shipped_folders())
    if name in IN_REPOSITORY:
        return (
            f"the weights {name!r} come with the repository, in its folder weights, and not with the package; where "
            f"there is a copy of that folder, {VARIABLE} names it. Here are {', '.join(here) or 'none'}"
        )
    near = get_close_matches(name.lower(), {*here, *IN_REPOSITORY, *IN_PACKAGE} - {name}, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    return f"and no weights of that name come with paircaps{hint} Here are {', '.join(here) or 'none'}"
