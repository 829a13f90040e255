"""Tables of compared runs in files."""

import csv
import io
import json

import pytest
from training.compare.conftest import seed

from paircaps.training.compare import compare_runs
from paircaps.training.compare.tables import as_csv, as_dict, as_markdown


@pytest.fixture
def comparisons(make_run):
    """Two seeds of one recipe with a third unfinished, a pooling network, and a run on another dataset."""
    return compare_runs(
        [
            make_run("fm-0", seed(0), 0.40, times=10),
            make_run("fm-1", seed(1), 0.42, times=12),
            make_run("fm-2", seed(2), finished=False),
            make_run("pool", {"model": {"name": "resnet-pool-small"}, "evaluate": {"mirror": False}}, 0.5, times=0.5),
            make_run("mnist", {"data": {"name": "mnist"}}, finished=False),
        ]
    )


def cells(text, start):
    line = next(line for line in text.splitlines() if line.startswith(f"| {start} |"))
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_markdown_has_a_row_for_each_group(comparisons):
    text = as_markdown(comparisons)
    titles = dict(zip(cells(text, "data"), cells(text, "glyphs | fm-{0,1}"), strict=True))
    assert titles == {
        "data": "glyphs",
        "run": "fm-{0,1}",
        "network": "resnet-caps-small, fm, blocks [1, 1, 1], widths [8, 8, 8], primary_groups 1, pose_dim 4",
        "parameters": "6,016",
        "n": "2",
        "seeds": "0, 1",
        "accuracy": "41.00 ± 1.41",
        "without other views": "15.33 ± 0.00",
        "validation": "13.33",
        "loss": "2.2776",
        "steps": "12",
        "time": "79–95 s",
        "threads": "1",
        "commit": "be29f46",
    }
    assert cells(text, "glyphs | pool")[2].startswith("resnet-pool-small, blocks"), "without a routing that it has not"
    assert cells(text, "glyphs | pool")[11] == "4.0 s"


def test_markdown_lists_what_is_not_finished_and_what_differs(comparisons):
    text = as_markdown(comparisons)
    unfinished = text.split("Not finished:")[1]
    assert cells(unfinished, "glyphs | fm-2")[3:7] == ["2", "9 of 12", "10.00", "2.3176"]
    assert cells(unfinished, "mnist | mnist")[4] == "9 of 12"
    assert "What differs on glyphs:" in text
    assert "What differs on mnist" not in text
    assert cells(text, "`model.name`") == ["`model.name`", "resnet-caps-small", "resnet-pool-small"]


def test_a_bar_in_a_name_does_not_end_its_cell(make_run):
    assert "| glyphs | a\\|b |" in as_markdown(compare_runs([make_run("a|b")]))


def test_csv_has_a_row_for_each_run(comparisons):
    rows = {row["run"]: row for row in csv.DictReader(io.StringIO(as_csv(comparisons)))}
    assert list(rows) == ["fm-0", "fm-1", "fm-2", "pool", "mnist"]
    first = rows["fm-0"]
    assert [first[name] for name in ("data", "finished", "seed", "accuracy")] == ["glyphs", "True", "0", "0.4"]
    assert [first[name] for name in ("steps", "group", "n")] == ["12", "fm-{0,1}", "2"]
    assert float(first["seconds"]) == pytest.approx(79.31)
    assert float(first["mean_accuracy"]) == pytest.approx(0.41)
    assert float(first["deviation"]) == pytest.approx(0.0002**0.5)
    assert (rows["fm-2"]["accuracy"], rows["fm-2"]["finished"], rows["fm-2"]["steps_done"]) == ("", "False", "9")
    assert (rows["pool"]["deviation"], rows["pool"]["n"]) == ("", "1"), "one seed has none"
    assert [row["model.name"] for row in rows.values()][2:4] == ["resnet-caps-small", "resnet-pool-small"]
    assert [row["data.name"] for row in rows.values()] == [*["glyphs"] * 4, "mnist"]


def test_json_has_all_of_it(comparisons):
    result = json.loads(json.dumps(as_dict(comparisons)))
    glyphs, mnist = result["datasets"]
    fm, pool = glyphs["groups"]
    assert fm["accuracy"] == {"mean": pytest.approx(0.41), "deviation": pytest.approx(0.0002**0.5), "seeds": 2}
    assert pool["accuracy"]["deviation"] is None
    assert [run["finished"] for run in fm["runs"]] == [True, True, False]
    second = fm["runs"][0]["validations"][1]
    assert second.pop("seconds") == pytest.approx(53.43)
    assert second == {"step": 8, "epoch": 2.0, "validation_loss": 2.3175867716471354, "validation_accuracy": 0.1}
    assert glyphs["differences"]["model.name"] == ["resnet-caps-small", "resnet-pool-small"]
    assert mnist["groups"][0]["accuracy"] is None


@pytest.mark.parametrize(
    ("times", "shown"), [(1, "7.9 s"), (10, "79 s"), (20, "2.6 min"), (100, "13 min"), (2000, "4.4 h")]
)
def test_times_have_a_unit_that_suits_them(make_run, times, shown):
    assert cells(as_markdown(compare_runs([make_run("a", times=times)])), "glyphs | a")[11] == shown
