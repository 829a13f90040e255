"""The page of models has a row for every registered model, and says of each what is so."""

import re

import pytest
from docs.site import ROOT

from paircaps.bench.layer_shapes import meta_model
from paircaps.models import count_parameters, is_pooling_twin, list_models, pooling_twin, published_routing
from paircaps.training.recipes import list_recipes, load_recipe

PAGE = (ROOT / "docs" / "models.md").read_text(encoding="utf-8")


def rows(section):
    """Rows of the table of a section of the page: its cells by column."""
    lines = re.split(r"\n## ", PAGE.split(f"\n## {section}\n")[1])[0].splitlines()
    head, _, *body = ([cell.strip(" `") for cell in line.strip("|").split("|")] for line in lines if line[:1] == "|")
    return [dict(zip(head, cells, strict=True)) for cells in body]


CAPSULES, POOLING = rows("Capsule networks"), rows("Pooling twins")


def headings():
    """Anchors of the headings of the page."""
    return {
        re.sub(r"[^\w -]", "", line.lower()).replace(" ", "-") for line in re.findall(r"^#+ (.*)", PAGE, flags=re.M)
    }


def test_every_registered_model_has_a_row():
    assert [row["model"] for row in CAPSULES] == [name for name in list_models() if not is_pooling_twin(name)]
    assert [row["model"] for row in POOLING] == [name for name in list_models() if is_pooling_twin(name)]


@pytest.mark.parametrize("row", [*CAPSULES, *POOLING], ids=lambda row: row["model"])
def test_parameters_are_those_of_the_model(row):
    height, width, channels = map(int, row["input"].split("×"))
    assert height == width
    model = meta_model(row["model"], height, channels, 10)
    assert f"{count_parameters(model):,}" == row["parameters"]


@pytest.mark.parametrize("row", CAPSULES, ids=lambda row: row["model"])
def test_routing_twin_and_recipe_are_those_of_the_model(row):
    assert row["routing"] == published_routing(row["model"])
    assert row["pooling twin"] == pooling_twin(row["model"])
    assert not row["recipe"] or load_recipe(row["recipe"]).model.name == row["model"]
    assert row["recipe"] or row["model"] not in {load_recipe(name).model.name for name in list_recipes()}
    assert re.search(r"#([\w-]+)\)$", row["source"])[1] in headings()


@pytest.mark.parametrize("row", POOLING, ids=lambda row: row["model"])
def test_a_twin_names_the_networks_that_it_is_compared_with(row):
    first, *endings = re.findall(r"[\w-]+", row["of"])
    size = next((size for size in ("-medium", "-small") if first.endswith(size)), "")
    # what begins with a dash is an ending of the first name, and anything else a name
    named = {first, *(first.removesuffix(size) + end if end[0] == "-" else end for end in endings)}
    assert named == {other["model"] for other in CAPSULES if other["pooling twin"] == row["model"]}
