"""Tables of compared runs in a terminal."""

import pytest
from training.compare.conftest import seed

from paircaps.training.compare import compare_runs
from paircaps.training.compare.terminal import as_text


@pytest.fixture
def comparisons(make_run):
    folders = [make_run(f"a-run-with-a-long-name-{number}", seed(number), 0.4 + number / 100) for number in range(3)]
    folders.append(make_run("pool", {"model": {"name": "resnet-pool-small"}, "optimiser": {"lr": 0.5}}))
    folders.append(make_run("later", {"optimiser": {"lr": 0.25}}, finished=False))
    return compare_runs(folders)


@pytest.mark.parametrize("width", [72, 80, 100, 200])
def test_lines_fit_the_terminal(comparisons, width):
    text = as_text(comparisons, width)
    assert max(map(len, text.splitlines())) <= width
    for word in ("accuracy", "loss", "parameters", "steps", "time", "41.00 ± 1.00", "6,016", "2.2776", "7.9 s"):
        assert word in text
    assert ("commit" in text.split("\n")[0]) == (width == 200)
    assert ("Too wide for" in text) == (width < 200)


def test_columns_that_are_left_out_are_named(comparisons):
    text = " ".join(as_text(comparisons, 80).split())
    assert "Too wide for 80 columns: network, seeds, without other views, threads, commit; -o FILE.md" in text


def test_groups_have_letters_that_the_differences_use(comparisons):
    lines = as_text(comparisons, 200).splitlines()
    assert lines[1] == "glyphs"
    assert [line.split()[:2] for line in lines[2:4]] == [["A", "a-run-with-a-long-name-{0,1,2}"], ["B", "pool"]]
    unfinished = lines[lines.index("not finished") + 3].split()
    assert unfinished[:2] == ["C", "later"]
    assert "9 of 12" in lines[lines.index("not finished") + 3]
    at = lines.index("what differs on glyphs")
    assert [line.split() for line in lines[at + 1 : at + 4]] == [
        ["A", "B", "C"],
        ["model.name", "resnet-caps-small", "resnet-pool-small", "resnet-caps-small"],
        ["optimiser.lr", "0.01", "0.5", "0.25"],
    ]


def test_many_groups_share_lines_by_value(make_run):
    folders = [make_run(f"r{number}", {"optimiser": {"lr": 0.1 + number}}) for number in range(30)]
    folders.append(make_run("em", {"model": {"routing": "em"}, "optimiser": {"lr": 0.1}}))
    lines = as_text(compare_runs(folders), 80).splitlines()
    at = lines.index("what differs on glyphs")
    assert lines[at + 1] == "  model.routing  em (AE); fm (the others)"
    assert lines[at + 2].startswith("  optimiser.lr   1.1 (B); 2.1 (C);")
    assert max(map(len, lines)) <= 80


def test_a_single_group_has_no_letter(make_run):
    lines = as_text(compare_runs([make_run("a")]), 100).splitlines()
    assert lines[2].startswith("  a ")
    assert "what differs" not in "\n".join(lines)


def test_unfinished_runs_alone(make_run):
    folder = make_run("a", finished=False)
    (folder / "failure").mkdir()
    text = as_text(compare_runs([folder]), 100)
    assert text.startswith("not finished\n")
    assert "9 of 12, not finite" in text
    assert "Accuracy of the test" not in text
