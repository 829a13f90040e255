"""Curves of compared runs."""

import pytest
from training.compare.conftest import seed

from paircaps.training.compare import compare_runs, curves


@pytest.fixture
def drawn(monkeypatch):
    """Keep figures that are drawn, to look at their lines."""
    kept = []
    monkeypatch.setattr(curves, "as_png", lambda figure: kept.append(figure) or b"png")
    return kept


def panels(figure):
    return [part.axes for part in figure.subfigs]


def test_loss_and_accuracy_lie_side_by_side_in_a_row_for_each_dataset(make_run, drawn):
    runs = [
        make_run("a"),
        make_run("b", {"optimiser": {"lr": 0.5}}),
        make_run("c", {"data": {"name": "mnist"}}, finished=False),
    ]
    curves.draw_curves(compare_runs(runs))
    glyphs, mnist = panels(drawn[0])
    assert [axis.get_ylabel() for axis in glyphs] == ["loss", "accuracy, %"]
    assert {axis.get_xlabel() for axis in (*glyphs, *mnist)} == {"epochs"}
    legend = drawn[0].subfigs[0].legends[0]
    assert [text.get_text() for text in legend.get_texts()] == [
        "lr 0.01: test 50.00 % (one seed)",
        "lr 0.5: test 50.00 % (one seed)",
    ]
    assert drawn[0].subfigs[1].legends[0].get_texts()[0].get_text().endswith("(not finished)")


def test_a_line_is_the_mean_over_seeds_with_a_band(make_run, drawn):
    a, b = make_run("a"), make_run("b", seed(1))
    text = (b / "metrics.jsonl").read_text().replace('"validation_accuracy": 0.1}', '"validation_accuracy": 0.3}')
    (b / "metrics.jsonl").write_text(text)
    curves.draw_curves(compare_runs([a, b]))
    accuracy = panels(drawn[0])[0][1]
    training, held_back = accuracy.lines
    assert list(held_back.get_xdata()) == [1, 2, 3]
    assert list(held_back.get_ydata()) == pytest.approx([100 / 15, 20, 200 / 15])
    assert len(training.get_xdata()) == 12
    corners = accuracy.collections[0].get_paths()[0].vertices
    assert {round(y, 3) for x, y in corners if x == 2} == {10, 30}
    assert "test 50.00 ± 0.00 % (n = 2)" in drawn[0].subfigs[0].legends[0].get_texts()[0].get_text()


def test_an_unfinished_seed_has_a_line_of_its_own(make_run, drawn):
    curves.draw_curves(compare_runs([make_run("a"), make_run("b", seed(1), finished=False)]), "steps")
    lines = panels(drawn[0])[0][1].lines
    assert [len(line.get_xdata()) for line in lines] == [12, 3, 9, 2]
    assert list(lines[3].get_xdata()) == [4, 8]


def test_minutes_are_those_of_the_runs(make_run, drawn):
    curves.draw_curves(compare_runs([make_run("a", times=60), make_run("b", seed(1), times=120)]), "minutes")
    axis = panels(drawn[0])[0][0]
    assert axis.get_xlabel() == "minutes of training"
    assert list(axis.lines[1].get_xdata()) == pytest.approx([1.5 * 2.656, 1.5 * 5.343, 1.5 * 7.931])


def test_a_run_without_rows_is_told(make_run, drawn):
    folder = make_run("a", finished=False)
    (folder / "metrics.jsonl").unlink()
    curves.draw_curves(compare_runs([folder]))
    assert panels(drawn[0])[0][0].texts[0].get_text() == "no rows of metrics yet"


def test_the_steep_beginning_is_cut_off(make_run, drawn):
    folder = make_run("a")
    rows = (folder / "metrics.jsonl").read_text().replace('"loss": 2.30613112449646', '"loss": 900.0')
    (folder / "metrics.jsonl").write_text(rows)
    curves.draw_curves(compare_runs([folder]))
    assert panels(drawn[0])[0][0].get_ylim()[1] < 3


def test_the_picture_is_a_png(make_run):
    assert curves.draw_curves(compare_runs([make_run("a"), make_run("b", seed(1))])).startswith(b"\x89PNG")
