"""What the API reference shows in place of autodoc's own words."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import pytest
from docs.site import load_extension
from docutils import nodes

from paircaps.pictures import Fitting

reference = load_extension("reference")


@dataclass
class Settings:
    options: Mapping[str, int] = field(default_factory=dict)
    fitting: Fitting = field(default_factory=Fitting)
    places: list[int] = field(default_factory=lambda: [1])


class Pair(NamedTuple):
    left: int

    def swap(self):
        """The other way round."""


def shown(value, signature):
    return reference.show_defaults(None, "class", "Settings", value, None, signature, None)


def test_a_default_that_is_made_anew_is_shown_as_code():
    signature = "(options=<factory>, fitting=<factory>, places=<factory>, count=3)"
    assert shown(Settings, signature) == ("(options={}, fitting=Fitting(), places=..., count=3)", None)


@pytest.mark.parametrize(("value", "signature"), [(Pair, "(left)"), (Settings, None)])
def test_other_signatures_are_left_alone(value, signature):
    assert shown(value, signature) is None


def test_fields_of_a_named_tuple_are_left_out_and_its_methods_are_not():
    assert reference.skip_fields(None, "class", "left", Pair.__dict__["left"], False, None) is True
    assert reference.skip_fields(None, "class", "swap", Pair.__dict__["swap"], False, None) is None


def test_types_of_attributes_are_shown_without_modules():
    lines = [
        ":vartype s: torch.Tensor | None",
        ":ivar s: see a.b.",
        ":vartype t: collections.abc.Mapping[str, a.b.Info]",
    ]
    reference.shorten_types(None, "class", "Capsules", None, None, lines)
    assert lines == [":vartype s: Tensor | None", ":ivar s: see a.b.", ":vartype t: Mapping[str, Info]"]


def test_errors_come_after_the_type_of_the_result():
    fields = nodes.field_list()
    for name in ("param x", "raises ValueError", "raises TypeError", "returns", "rtype"):
        fields += nodes.field("", nodes.field_name("", name), nodes.field_body())
    reference.errors_last(None, "py", "function", nodes.container("", fields))
    names = [field[0].astext() for field in fields]
    assert names == ["param x", "returns", "rtype", "raises ValueError", "raises TypeError"]
