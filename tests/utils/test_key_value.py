import math

import pytest

from paircaps._utils.key_value import parse_key_value, parse_value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        # TOML
        ("32", 32),
        ("-0.5", -0.5),
        ("1e-3", 0.001),
        ("1_000", 1000),
        ("inf", math.inf),
        ("true", True),
        ("false", False),
        ('"quoted text"', "quoted text"),
        ("'32'", "32"),
        ("[4, 4]", [4, 4]),
        ("{a = 1}", {"a": 1}),
        (" 5 ", 5),
        # Python, where it is not TOML
        ("True", True),
        ("False", False),
        ("None", None),
        ("(32, 32)", (32, 32)),
        ("[True, None]", [True, None]),
        ('{"blocks": [4, 4]}', {"blocks": [4, 4]}),
        (".5", 0.5),
        # plain text
        ("margin", "margin"),
        ("none", "none"),
        ("~/pictures/a b", "~/pictures/a b"),
        ("a=b", "a=b"),
        ("", ""),
        ("007", "007"),
        # neither a recipe nor an option holds these
        ("2024-01-31", "2024-01-31"),
        ("12:30:00", "12:30:00"),
        ("1j", "1j"),
        ("b'x'", "b'x'"),
        ("{1, 2}", "{1, 2}"),
        ("{1: 2}", "{1: 2}"),
        ("1\nother = 2", "1\nother = 2"),
        ("(" * 5000, "(" * 5000),
    ],
)
def test_values(text, value):
    found = parse_value(text)
    assert found == value
    assert type(found) is type(value)


def test_the_first_equals_sign_ends_the_key():
    assert parse_key_value("name=a=b") == ("name", "a=b")
    assert parse_key_value(" size = 32") == ("size", 32)


@pytest.mark.parametrize("text", ["seed", "=3", " = 3", ""])
def test_a_key_and_a_value_are_needed(text):
    with pytest.raises(ValueError, match=r"must be SECTION.KEY=VALUE, got "):
        parse_key_value(text, "SECTION.KEY=VALUE")
