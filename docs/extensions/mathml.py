"""Formulas as MathML, which browsers draw by themselves: no script, no font, no network."""

import html
import re
import unicodedata

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.util.logging import getLogger
from sphinx.writers.html5 import HTML5Translator

ACCENTS = {"hat": "\u0302", "tilde": "\u0303", "bar": "\u0304"}
"""Commands of TeX for an accent, and the accents as characters that combine with the letter before them."""


def to_mathml(node: nodes.Element, as_block: bool) -> str:
    """MathML of a formula; where its LaTeX is not understood, a warning and the LaTeX itself.

    An accent and its letter become one character if there is one, as û: docutils would put the index of an accented
    letter below it, not beside it.

    Args:
        node: the formula.
        as_block: whether it is on lines of its own.
    """
    tex = re.sub(r"\\(hat|tilde|bar)(?: +|(?=\{))(?:(\w)|\{(\w)\})", _accented, node.astext())
    try:
        return tex2mathml(tex, as_block=as_block)
    except MathError as error:
        getLogger(__name__).warning("formula %r: %s", node.astext(), error, location=node, type="mathml")
        return f"<code>{html.escape(node.astext())}</code>"


def _accented(match: re.Match[str]) -> str:
    letter = unicodedata.normalize("NFC", (match[2] or match[3]) + ACCENTS[match[1]])
    return letter if len(letter) == 1 else match[0]


def visit_inline(self: HTML5Translator, node: nodes.math) -> None:
    """Write a formula within a line, without the TeX that it was written in."""
    self.body.append(to_mathml(node, as_block=False))
    raise nodes.SkipNode


def visit_block(self: HTML5Translator, node: nodes.math_block) -> None:
    """Write a formula on lines of its own, without the TeX that it was written in."""
    self.body.append(f'<div class="math">{to_mathml(node, as_block=True)}</div>')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the renderer; ``html_math_renderer = "mathml"`` chooses it."""
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
