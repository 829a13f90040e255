"""Every gap in the API reference is reported, and paircaps has none."""

import re
import sys

import pytest
from docs.site import ROOT, load_extension

public_names = load_extension("public_names")

GOOD = '''
"""A module."""

from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import NamedTuple

from torch import nn

__all__ = ["LIMIT", "Layer", "Pair", "Kind", "Settings", "run"]

LIMIT = 3
"""Most that is allowed."""


class Layer(nn.Module):
    """A layer."""

    width: int = 3
    """Number of channels."""

    def forward(self, x):
        """The result."""

    @property
    def size(self):
        """Number of values."""

    @cached_property
    def table(self):
        """All values."""

    @classmethod
    def build(cls):
        """A new layer."""

    def _hidden(self):
        pass


class Pair(NamedTuple):
    """Two numbers.

    Attributes:
        left: the first.
        right: the second.
    """

    left: int
    right: int


class Kind(Enum):
    """A kind."""

    ONE = 1
    """The first."""


@dataclass
class Settings:
    """Settings.

    Args:
        depth: number of layers.
    """

    depth: int = 1


def run(count):
    """Run.

    Args:
        count: how often.

    Returns:
        the result, (B,).
    """
'''
NAMES = {f"some_module.{name}" for name in ("LIMIT", "Layer", "Pair", "Kind", "Settings", "run")}


@pytest.fixture
def gaps_of(tmp_path, monkeypatch):
    """Function from the source of a module to the gaps of a reference that has all its names, or the given ones."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # a second source may be as old and as long as the first

    def forget():
        for name in ("some_module", "other_module"):
            sys.modules.pop(name, None)
            public_names.ModuleAnalyzer.cache.pop(("module", name), None)

    def gaps(source, documented=NAMES):
        forget()
        (tmp_path / "some_module.py").write_text(source)
        return list(public_names.gaps(documented, ["some_module"]))

    yield gaps
    forget()


def without(text, replacement=""):
    """The good module without a text that it has once."""
    assert GOOD.count(text) == 1
    return GOOD.replace(text, replacement)


def test_a_module_that_is_described_has_no_gaps(gaps_of):
    assert gaps_of(GOOD) == []


@pytest.mark.parametrize("name", ["LIMIT", "Layer", "run"])
def test_a_public_name_that_is_missing_in_the_reference_is_a_gap(gaps_of, name):
    missing = f"some_module.{name} is public and missing in the API reference (docs/api)"
    assert gaps_of(GOOD, NAMES - {f"some_module.{name}"}) == [missing]


def test_a_name_of_another_module_does_not_stand_for_one_of_the_same_name(gaps_of):
    documented = NAMES - {"some_module.Layer"} | {"paircaps.Layer", "other.Layer"}
    assert gaps_of(GOOD, documented) == ["some_module.Layer is public and missing in the API reference (docs/api)"]


def test_what_two_modules_export_is_described_once(gaps_of, tmp_path):
    (tmp_path / "other_module.py").write_text("from some_module import Layer\n\n__all__ = ['Layer']\n")
    gaps_of(GOOD)
    assert list(public_names.gaps(NAMES, ["some_module", "other_module"])) == []


@pytest.mark.parametrize(
    ("docstring", "name"),
    [
        ('"""A layer."""', "Layer"),
        ('"""A kind."""', "Kind"),
        ('"""The result."""', "Layer.forward"),
        ('"""Number of values."""', "Layer.size"),
        ('"""All values."""', "Layer.table"),
        ('"""A new layer."""', "Layer.build"),
        ('"""Most that is allowed."""', "LIMIT"),
    ],
)
def test_a_missing_docstring_is_a_gap_even_where_a_base_class_or_the_type_has_one(gaps_of, docstring, name):
    assert gaps_of(without(docstring, "...")) == [f"some_module.{name} has no docstring"]


def test_a_function_without_docstring_is_a_gap(gaps_of):
    source = GOOD[: GOOD.index('    """Run.')] + "    return count\n"
    assert gaps_of(source) == ["some_module.run has no docstring"]


@pytest.mark.parametrize(("first_line", "name"), [("Two numbers.", "Pair"), ("Settings.", "Settings")])
def test_a_docstring_that_python_makes_of_the_fields_is_none(gaps_of, first_line, name):
    start = GOOD.index(f'    """{first_line}')
    end = GOOD.index('"""', start + 7) + 3
    assert f"some_module.{name} has no docstring" in gaps_of(GOOD[:start] + GOOD[end:])


@pytest.mark.parametrize(
    ("description", "name"),
    [
        ('"""Number of channels."""', "Layer.width"),
        ('"""The first."""', "Kind.ONE"),
        ("        left: the first.\n", "Pair.left"),
        ("        depth: number of layers.\n", "Settings.depth"),
    ],
)
def test_a_public_attribute_that_is_not_described_is_a_gap(gaps_of, description, name):
    gap = f"some_module.{name} has no docstring, nor a line in that of the class"
    assert gaps_of(without(description)) == [gap]


def test_an_attribute_may_be_described_by_a_base_class(gaps_of):
    wide = '\n\nclass Wide(Layer):\n    """A wide layer."""\n\n    width = 9\n'
    assert gaps_of(GOOD.replace('"Layer",', '"Layer", "Wide",') + wide, NAMES | {"some_module.Wide"}) == []


@pytest.mark.parametrize(
    ("docstring", "name"),
    [
        ("Number of values.", "Layer.size"),
        ("All values.", "Layer.table"),
        ("Number of channels.", "Layer.width"),
        ("The first.", "Kind.ONE"),
        ("Most that is allowed.", "LIMIT"),
    ],
)
def test_an_attribute_whose_docstring_would_be_shown_as_its_type_is_a_gap(gaps_of, docstring, name):
    gap = f"some_module.{name}: what is before the colon in the first line of the docstring would be shown as its type"
    assert gaps_of(without(docstring, "True: it is so.")) == [gap]
    assert gaps_of(without(docstring, "As :class:`some.Layer` and ``a: b`` have it.")) == []


def test_a_result_that_would_be_shown_as_its_type_is_a_gap(gaps_of):
    gap = "some_module.run: what is before the colon in the first line of Returns would be shown as its type"
    assert gaps_of(without("the result, (B,).", "the result: (B,).")) == [gap]


def test_a_module_with_public_names_that_nobody_listed_is_a_gap(tmp_path):
    (tmp_path / "some" / "inner").mkdir(parents=True)
    for path in ("__init__.py", "listed.py", "forgotten.py", "inner/__init__.py"):
        (tmp_path / "some" / path).write_text("__all__ = []\n")
    (tmp_path / "some" / "without.py").write_text("# __all__ is not here\n")
    found = list(public_names.forgotten_modules(tmp_path / "some", ["some", "some.listed"]))
    assert [gap.split()[0] for gap in found] == ["some.forgotten", "some.inner"]


def test_the_reference_has_all_of_paircaps():
    pages = "".join(page.read_text() for page in sorted((ROOT / "docs" / "api").glob("*.md")))
    documented = re.findall(r"^\.\. auto\w+:: (\S+)", pages, flags=re.M)
    assert len(documented) > 100
    assert list(public_names.gaps(set(documented))) == []
    assert list(public_names.forgotten_modules()) == []
