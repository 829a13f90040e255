"""Formulas as MathML, which browsers draw by themselves: no script, no font, no network."""

import html

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.util.logging import getLogger
from sphinx.writers.html5 import HTML5Translator


def to_mathml(node: nodes.Element, as_block: bool) -> str:
    """MathML of a formula; where its LaTeX is not understood, a warning and the LaTeX itself.

    Args:
        node: the formula.
        as_block: whether it is on lines of its own.
    """
    try:
        return tex2mathml(node.astext(), as_block=as_block)
    except MathError as error:
        getLogger(__name__).warning("formula %r: %s", node.astext(), error, location=node, type="mathml")
        return f"<code>{html.escape(node.astext())}</code>"


def visit_inline(self: HTML5Translator, node: nodes.math) -> None:
    """Write a formula within a line."""
    self.body.append(to_mathml(node, as_block=False))


def visit_block(self: HTML5Translator, node: nodes.math_block) -> None:
    """Write a formula on lines of its own."""
    self.body.append(f'<div class="math">{to_mathml(node, as_block=True)}</div>')


def depart(self: HTML5Translator, node: nodes.Node) -> None:
    """Nothing follows a formula."""


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the renderer; ``html_math_renderer = "mathml"`` chooses it."""
    app.add_html_math_renderer("mathml", (visit_inline, depart), (visit_block, depart))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
