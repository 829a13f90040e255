"""What is shown of Tables 4 and 5."""

import io

import pytest
import torch
from explain.small import saved, small_network
from paper.results import finished, variant_of
from PIL import Image

from paircaps.paper.experiments import experiments
from paircaps.paper.records import read_cell
from paircaps.paper.report.document import Picture
from paircaps.paper.report.reconstructions import (
    choose_columns,
    draw_overlapping_digits,
    draw_single_digits,
    reconstruction_sheet,
)
from paircaps.training.recipes import load_recipe

LABELS = torch.tensor([[1, 2], [3, 4], [5, 6], [7, 8], [9, 0], [1, 3], [2, 4]])
TABLE5 = experiments()["table5"]


def test_right_wrong_and_absent_ones():
    guesses = LABELS.flip(-1)  # the order does not matter
    guesses[1] = torch.tensor([3, 9])
    columns, right = choose_columns(LABELS, guesses, 10)
    assert right == 6
    assert [(kind, index) for kind, index, _ in columns] == [
        *(("right", index) for index in (0, 2, 3, 4)),
        ("wrong", 1),
        *(("absent", index) for index in (5, 6)),
    ]
    assert columns[0][2].tolist() == [1, 2], "right ones are drawn by their labels"
    assert columns[4][2].tolist() == [3, 9], "wrong ones as they were found"
    for _, index, drawn in columns[5:]:
        assert drawn[0] == LABELS[index, 0]
        assert drawn[1] not in (*LABELS[index], *guesses[index])


def test_an_absent_digit_is_not_one_that_was_found():
    columns, _ = choose_columns(torch.tensor([[2, 3]]), torch.tensor([[0, 1]]), 5)
    assert columns[-1][2].tolist() == [2, 4]


def test_a_network_that_is_never_right_has_a_sheet_too():
    columns, right = choose_columns(LABELS, (LABELS + 1) % 10, 10)
    assert right == 0
    assert [kind for kind, _, _ in columns] == ["wrong", "wrong", "absent", "absent"]


@pytest.mark.parametrize(
    ("draw", "recipe", "data", "network"),
    [
        (draw_overlapping_digits, "table5", {"name": "multi-glyphs"}, {"size": 36, "labels": 2}),
        (draw_single_digits, "table3", {"name": "translated-glyphs", "test": "affine-glyphs"}, {"size": 40}),
    ],
)
def test_the_sheets_are_pictures_and_the_same_again(draw, recipe, data, network):
    network = small_network(**network)
    settings = load_recipe(recipe, {"data": data})
    sheet = draw(network, settings)
    with Image.open(io.BytesIO(sheet)) as picture:
        assert picture.width > 900
    assert draw(network, settings) == sheet


def cell_of(out):
    return read_cell(out, TABLE5, TABLE5.studies[0], variant_of(TABLE5, "fm"))


def test_a_picture_is_kept_when_its_weights_are_gone(tmp_path):
    folder = finished(tmp_path, "table5", "multi-glyphs", "fm", 0, 0.5)
    facts = folder.model.read_bytes()
    saved(folder.path, small_network(size=36, labels=2), machine={"commit": "abc"})
    drawn = reconstruction_sheet(cell_of(tmp_path), "apart", tmp_path)
    assert isinstance(drawn, Picture)
    assert drawn.name == "table5-multi-glyphs"
    (tmp_path / f"{drawn.name}.png").write_bytes(drawn.png)
    (folder.path / "model.safetensors").unlink()
    folder.model.write_bytes(facts)
    kept = reconstruction_sheet(cell_of(tmp_path), "apart", tmp_path)
    assert kept.png == drawn.png
    assert kept.caption.endswith("Drawn earlier: its weights or its images are not here now.")
    (tmp_path / f"{drawn.name}.png").write_bytes(b"no picture")
    assert reconstruction_sheet(cell_of(tmp_path), "apart", tmp_path).startswith("No pictures: ")


@pytest.mark.usefixtures("no_data")
def test_a_report_never_downloads(tmp_path, monkeypatch):
    monkeypatch.setattr("paircaps.data.files.download.fetch", lambda *_: pytest.fail("it asked the network"))
    folder = finished(tmp_path, "table5", "multi-mnist", "fm", 0, 0.5)
    saved(folder.path, small_network(size=36, labels=2), machine={"commit": "abc"})
    assert "not found in" in reconstruction_sheet(cell_of(tmp_path), "apart", tmp_path)


def test_no_training_no_picture(tmp_path):
    assert (
        reconstruction_sheet(cell_of(tmp_path), "apart", tmp_path) == "No pictures: FM agreement was not run (not run)."
    )
