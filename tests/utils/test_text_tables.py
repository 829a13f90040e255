import pytest

from paircaps._utils.text_tables import column_widths, markdown_table, shortened, text_line


def test_columns_are_as_wide_as_their_longest_cell():
    rows = [["run", "accuracy"], ["a long name", "7"]]
    assert column_widths(rows) == [11, 8]
    assert [text_line(row, column_widths(rows)) for row in rows] == ["run          accuracy", "a long name         7"]
    assert text_line(rows[1], [11, 8], left=2) == "a long name  7"


@pytest.mark.parametrize(("width", "text"), [(9, "fm/seed-0"), (8, "fm/s…d-0"), (5, "fm…-0"), (2, "f…")])
def test_a_long_text_loses_its_middle(width, text):
    assert shortened("fm/seed-0", width) == text
    assert len(shortened("fm/seed-0", width)) == width


def test_a_cell_cannot_end_a_row_of_markdown():
    assert markdown_table(["a", "b"], [["x|y", "1\n2"]]) == ["| a | b |", "|---|---|", "| x\\|y | 1<br>2 |"]
