"""Names from outside are shown, and do nothing to a terminal."""

import pytest

from paircaps._utils.words import visible


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("größe 数字 👩‍🚀 café", "größe 数字 👩‍🚀 café"),
        ("\x1b[2J", "\\x1b[2J"),
        ("a\nb\r\tc\x07", "a\\nb\\r\\tc\\x07"),
        ("\x7f\x9b31m", "\\x7f\\x9b31m"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("\u2028\udcff", "\\u2028\\udcff"),
    ],
)
def test_control_characters_are_shown_and_all_others_stay(text, shown):
    assert visible(text) == shown


def test_lines_of_a_message_stay():
    assert visible("one\n  \x1b[1mtwo", keep="\n") == "one\n  \\x1b[1mtwo"
