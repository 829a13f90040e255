"""The paper's numbers are data, and what belongs to each of its tables can be built."""

import re
from pathlib import Path

import pytest

from paircaps.data.registry import list_datasets
from paircaps.errors import RecipeError
from paircaps.paper.experiments import experiments, find_experiments
from paircaps.training.recipes import load_recipe

PAPER = experiments()


def printed(name, variant, column):
    row = next(row for row in PAPER[name].rows if row.variant and row.variant.name == variant)
    quoted = row.paper[column]
    return quoted.mean, quoted.deviation


def test_the_numbers_of_the_paper():
    assert printed("table1", "fm", "cifar10") == (203.34, None)
    assert printed("table2", "fm", "fashion-mnist") == (94.70, 0.17)
    assert printed("table2", "fm", "cifar10") == (93.20, 0.24)
    assert printed("table2", "fm", "svhn") == (96.79, 0.04)
    assert printed("table3", "fm", "affnist") == (93.85, 0.29)
    assert printed("table3", "dynamic", "affnist") == (92.06, 0.71)
    assert printed("table3", "em", "affnist") == (78.29, 2.04)
    assert printed("table5", "fm", "multi-mnist:train") == (95.1, None)
    assert printed("table6", "em-2", "smallnorb") == (93.55, 0.75)


def test_every_rival_row_of_table_2():
    rows = {row.cells[0]: row.paper for row in PAPER["table2"].rows if row.variant in PAPER["table2"].rivals}
    assert list(rows) == ["Sabour et al.", "Hinton et al.", "Nair et al.", "HitNet", "DeepCaps"]
    assert "fashion-mnist" not in rows["Hinton et al."], "the paper has a dash there"
    assert rows["DeepCaps"]["svhn"].mean == 97.16


@pytest.mark.parametrize("experiment", PAPER.values(), ids=list(PAPER))
def test_an_experiment_holds_together(experiment):
    data = {study.data for study in experiment.studies}
    assert {column.data for column in experiment.columns} == data
    assert data <= set(list_datasets())
    assert {key for row in experiment.rows for key in row.paper} <= {column.key for column in experiment.columns}
    assert all(len(row.cells) == len(experiment.labels) for row in experiment.rows)
    assert any(variant.pooled for variant in experiment.variants), "the pooling baseline is beside every capsule row"
    for study in experiment.studies:
        recipe = load_recipe(study.recipe)
        assert study.data in (recipe.data.name, recipe.data.test)


def test_names():
    assert [found.name for found in find_experiments(["all"])] == [name for name in PAPER if name != "table2-small"]
    assert [found.name for found in find_experiments(["table2-small"])] == ["table2-small"], "not in the paper"
    assert [found.name for found in find_experiments(["table4", "fig4", "table3"])] == ["table3", "fig4"]
    with pytest.raises(RecipeError, match="did you mean 'table2'"):
        find_experiments(["tabel2"])


def test_the_paper_s_accuracies_are_written_down_once():
    source = Path(__file__).parents[2] / "src"
    numbers = re.compile(r"93\.85|78\.29|94\.70|203\.34|93\.55")
    holders = {path.name for path in source.rglob("*.py") if numbers.search(path.read_text())}
    assert holders == set(), "code has none; recipes may mention them in a comment"


def test_the_order_of_the_paper_by_its_numbers_or_its_words():
    assert PAPER["table3"].paper_order("affnist", "fm", "em") == 1
    assert PAPER["table3"].paper_order("affnist", "em", "fm") == -1
    assert PAPER["table3"].paper_order("affnist", "fm", "pool") == 0, "which it does not have"
    assert PAPER["table1"].paper_order("cifar10", "fm", "dynamic-1") == 1, "less time is better"
    assert PAPER["table6"].paper_order("smallnorb", "dynamic-1", "em-2") == -1
    assert PAPER["fig4"].paper_order("svhn", "fm-runs", "dynamic") == 1
    assert PAPER["fig5"].paper_order("svhn", "fm", "dynamic") == 0, "about as good"
    assert PAPER["fig5"].paper_order("cifar10", "dynamic", "fm") == -1
    assert PAPER["table2-small"].paper_order("cifar10", "fm", "dynamic") == 0
