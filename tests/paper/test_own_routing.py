"""Rows for routings that an experiment does not have."""

import pytest
from paper.results import finished

from paircaps.errors import RecipeError
from paircaps.paper.experiments import experiments
from paircaps.paper.own_routing import found_variants, take_own_routings
from paircaps.paper.report.write import write_report

TABLE1, TABLE3 = experiments()["table1"], experiments()["table3"]


def test_a_routing_that_some_experiments_lack_is_a_row_of_those():
    found, only, changes = take_own_routings([TABLE1, TABLE3], [], {"model": {"routing": "em"}, "train": {"ema": 0.9}})
    assert [len(one.rows) - len(before.rows) for one, before in zip(found, (TABLE1, TABLE3), strict=True)] == [1, 0]
    assert found[0].rows[-1].cells == ("em",)
    assert (only, changes) == ([], {"train": {"ema": 0.9}})


def test_options_go_to_the_row_and_only_takes_it_along():
    model = {"routing": "em", "routing_options": {"iterations": 1}, "options": {"blocks": 1}}
    found, only, changes = take_own_routings([TABLE1], ["fm"], {"model": model})
    assert found[0].variants[-1].changes["model"] == {"routing": "em", "routing_options": {"iterations": 1}}
    assert (only, changes) == (["fm", "em"], {"model": {"options": {"blocks": 1}}})
    found, only, _ = take_own_routings([TABLE1], ["em"], {})
    assert (found[0].variants[-1].name, only) == ("em", ["em"])


@pytest.mark.parametrize(
    ("routing", "message"),
    [("nothing", "unknown routing 'nothing'"), (3, "unknown routing 3"), ("fm", "fm is a row of these experiments")],
)
def test_what_cannot_be_a_row_is_refused(routing, message):
    with pytest.raises(RecipeError, match=message):
        take_own_routings([TABLE1], [], {"model": {"routing": routing}})


def run_of_another_routing(out, text):
    """A training of a routing that Table 3 has no row for, with a recipe of any text."""
    folder = finished(out, "table3", "affine-mnist", "fm", 0, 0.91).path
    folder.parent.rename(folder.parent.with_name("mean"))
    (folder.parent.with_name("mean") / folder.name / "config.toml").write_text(text)


def test_a_row_of_another_routing_names_its_options(tmp_path):
    run_of_another_routing(tmp_path, "[model]\nrouting_options = {iterations = 2}\n")
    assert [variant.title for variant in found_variants(tmp_path, TABLE3)] == ["mean, iterations = 2"]


@pytest.mark.parametrize(
    "text",
    ["[", f"a = {'[' * 100_000}", f"a = {'9' * 5_000}", "model = 3", "[model]\nrouting_options = 3"],
    ids=["none", "nested", "digits", "model", "options"],
)
def test_a_row_whose_recipe_cannot_be_read_has_no_options_and_the_report_says_so(tmp_path, text):
    run_of_another_routing(tmp_path, text)
    assert [variant.title for variant in found_variants(tmp_path, TABLE3)] == ["mean"]
    _, report = write_report(tmp_path)
    assert "seed 0: a file of it is damaged" in report.read_text()
