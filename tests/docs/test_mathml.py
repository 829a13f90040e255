"""Formulas become MathML."""

from types import SimpleNamespace

import pytest
from docs.site import load_extension
from docutils import nodes

mathml = load_extension("mathml")
KINDS = [(mathml.visit_inline, nodes.math), (mathml.visit_block, nodes.math_block)]


def written(visit, node):
    """HTML that a visitor of a formula writes."""
    translator = SimpleNamespace(body=[])
    with pytest.raises(nodes.SkipNode):  # so that the LaTeX itself is not written after it
        visit(translator, node)
    return "".join(translator.body)


@pytest.mark.parametrize(("visit", "kind"), KINDS)
def test_a_formula_becomes_mathml_without_warning(visit, kind, caplog):
    text = r"s_j = \frac{1}{I} \sum_{i<k} u_i"
    found = written(visit, kind(text, text))
    assert "<math" in found
    assert "<mfrac>" in found
    assert "<msub>" in found
    assert "\\" not in found
    assert not caplog.records


def test_a_formula_on_lines_of_its_own_is_displayed_as_a_block():
    inline, block = (written(visit, kind("x", "x")) for visit, kind in KINDS)
    assert 'display="block"' in block
    assert 'display="block"' not in inline


def test_the_index_of_an_accented_letter_stands_beside_it():
    """docutils puts it below: the accented letter becomes one character."""
    accented, plain = (written(mathml.visit_inline, nodes.math(tex, tex)) for tex in (r"\hat u_i", "û_i"))
    assert accented == plain
    assert "<munder>" not in accented


@pytest.mark.parametrize(("visit", "kind"), KINDS)
def test_an_unknown_command_of_latex_is_a_warning_and_shown_as_it_is(visit, kind, caplog):
    text = r"\nosuchcommand x < y"
    found = written(visit, kind(text, text))
    assert r"\nosuchcommand x &lt; y" in found
    assert "nosuchcommand" in caplog.text
    assert [record.levelname for record in caplog.records] == ["WARNING"]
