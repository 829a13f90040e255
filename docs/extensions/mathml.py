"""Formulas as MathML, which browsers draw by themselves: no script, no font, no network."""

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.writers.html5 import HTML5Translator


def visit_inline(self: HTML5Translator, node: nodes.math) -> None:
    """Write a formula within a line."""
    self.body.append(tex2mathml(node.astext()))


def visit_block(self: HTML5Translator, node: nodes.math_block) -> None:
    """Write a formula on lines of its own."""
    self.body.append(f'<div class="math">{tex2mathml(node.astext(), as_block=True)}</div>')


def depart(self: HTML5Translator, node: nodes.Node) -> None:
    """Nothing follows a formula."""


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the renderer; ``html_math_renderer = "mathml"`` chooses it."""
    app.add_html_math_renderer("mathml", (visit_inline, depart), (visit_block, depart))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
