"""Check that the site loads nothing from elsewhere: no script, style, font or picture."""

import re
from collections.abc import Iterator
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.util.logging import getLogger

LOADED = re.compile(
    r"""<(?:script|img|iframe|source|video|audio)\b[^>]*\bsrc=["'](?:https?:)?//[^"']*"""
    r"""|<link\b(?![^>]*rel=["']?(?:canonical|license))[^>]*\bhref=["'](?:https?:)?//[^"']*"""
    r"""|(?:url\(|@import\s+)["']?(?:https?:)?//[^"')]*"""
)
"""What a browser fetches from another host while it shows a page; a link that one can follow is not among it."""


def remote_loads(folder: Path) -> Iterator[tuple[str, str]]:
    """Pages and styles of a built site with each address of another host that they load."""
    for path in sorted([*folder.rglob("*.html"), *folder.rglob("*.css")]):
        for match in LOADED.finditer(path.read_text()):
            yield str(path.relative_to(folder)), match[0]


def check(app: Sphinx, error: Exception | None) -> None:
    """Warn of each address after the site is written."""
    if error is None and app.builder.format == "html":
        for page, address in remote_loads(Path(app.outdir)):
            getLogger(__name__).warning("%s loads from elsewhere: %s", page, address, type="offline")


def setup(app: Sphinx) -> dict[str, bool]:
    """Check when the build has ended."""
    app.connect("build-finished", check)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
