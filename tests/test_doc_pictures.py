"""The pictures of docs/capsules.md and docs/architecture.md can be drawn, and show what their captions say."""

import importlib.util
import io
import re
import sys
from pathlib import Path

import pytest
import torch
from explain.small import saved, small_network
from PIL import Image

from paircaps.data import load_dataset
from paircaps.explain import Dimension, upright_images
from paircaps.explain.warps import UprightImages, warp_randomly
from paircaps.functional import fm_agreement

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "paircaps"
SCRIPT = ROOT / "docs" / "pictures" / "draw.py"
MOST_BYTES = 200_000


def load_script():
    specification = importlib.util.spec_from_file_location("doc_pictures", SCRIPT)
    module = sys.modules["doc_pictures"] = importlib.util.module_from_spec(specification)  # dataclasses look there
    specification.loader.exec_module(module)
    return module


draw = load_script()
NAMES = [*draw.OF_A_NETWORK, *draw.OF_NUMBERS]


@pytest.fixture(scope="module")
def untrained():
    """A small network of two digits with random weights, and glyphs for it."""
    base = upright_images(load_dataset("affine-glyphs", "test"))
    two = (base.labels == 2) | (base.labels == 7)
    upright = UprightImages(base.images[two], (base.labels[two] == 7).long(), base.size)
    network = small_network(size=40, classes=("2", "7"), widths=(8, 8, 8), primary_groups=2)
    return draw.Trained(network, warp_randomly(upright, 40, 0, "samples").images, upright)


def drawn(name, untrained):
    return draw.OF_NUMBERS[name]() if name in draw.OF_NUMBERS else draw.OF_A_NETWORK[name](untrained)


@pytest.mark.parametrize("name", NAMES)
def test_every_picture_can_be_drawn(name, untrained):
    picture = Image.open(io.BytesIO(drawn(name, untrained)))
    assert picture.format == "PNG"
    assert picture.width == draw.WIDTH
    shades = picture.convert("RGB").getcolors(maxcolors=2**16)
    assert max(shades)[1] == (255, 255, 255), "the ground is white"
    assert len(shades) > 50


@pytest.mark.parametrize("name", NAMES)
def test_every_picture_is_on_a_page_with_a_text_that_describes_it(name):
    file = draw.FOLDER / draw.file_name(name)
    assert 10_000 < file.stat().st_size < MOST_BYTES
    page = "architecture.md" if name == "architecture" else "capsules.md"
    described = re.search(rf"!\[([^]]+)\]\(pictures/{file.name}\)", (ROOT / "docs" / page).read_text())
    assert described is not None
    assert len(described[1]) > 40


def test_the_script_writes_what_it_is_asked_for(tmp_path, capsys):
    draw.main(["--out", str(tmp_path), "--network", "not needed", "vote", "agreement"])
    written = [tmp_path / "concept-vote.png", tmp_path / "concept-agreement.png"]
    assert sorted(tmp_path.iterdir()) == sorted(written)
    assert capsys.readouterr().out.splitlines() == [str(path) for path in written]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["nose"], "no picture is named nose; there are capsule"), (["--network", "nowhere", "pose"], "nowhere")],
)
def test_what_cannot_be_drawn_is_said_in_one_line(arguments, message, tmp_path, capsys):
    with pytest.raises(SystemExit) as stopped:
        draw.main([*arguments, "--out", str(tmp_path)])
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_network_of_other_classes_is_refused(tmp_path, capsys):
    folder = saved(tmp_path / "network", small_network(size=40, classes=("cat", "dog"), widths=(8, 8, 8)))
    with pytest.raises(SystemExit):
        draw.main(["--network", str(folder), "--out", str(tmp_path), "capsule"])
    assert "no images of its classes" in capsys.readouterr().err


# --- what the captions say ----------------------------------------------------------------------------------------


def test_parts_in_place_vote_for_the_face_as_it_is():
    exact = draw.pose_matrix(draw.FACE) @ draw.pose_matrix(draw.IN_FACE)
    torch.testing.assert_close(draw.face_votes(exact), draw.pose_matrix(draw.FACE).expand(4, 3, 3))
    assert (draw.face_votes(draw.parts_in_place()) - draw.pose_matrix(draw.FACE)).abs().max() < 0.1


def test_parts_in_place_agree_far_more_than_scrambled_ones():
    best = (len(draw.PARTS) - 1) / 2
    assert 0.98 * best < draw.face_agreement(draw.parts_in_place()) <= best
    assert abs(draw.face_agreement(draw.parts_scrambled())) < 0.1 * best


def test_scrambled_parts_are_the_same_parts_of_the_same_size():
    def size(parts):
        return torch.linalg.det(parts[:, :2, :2])

    torch.testing.assert_close(size(draw.parts_scrambled()), size(draw.parts_in_place()), rtol=0.05, atol=0)


@pytest.mark.parametrize("name", draw.ANGLES)
def test_the_table_of_pairs_adds_up_to_the_activation(name):
    votes = draw.plane_votes()[name]
    pairs = draw.pair_products(votes)
    torch.testing.assert_close(torch.triu(pairs, 1).sum(), fm_agreement(votes).activation.squeeze())
    shown = sum(round(100 * float(pairs[i, k])) for i in range(4) for k in range(i + 1, 4))
    assert shown == round(100 * float(fm_agreement(votes).activation)), "as written, with two decimals"
    first, second = votes[0, 0], votes[1, 0]
    torch.testing.assert_close(pairs[0, 1], (first * second).sum() / len(votes))


def test_an_outlier_makes_the_activation_smaller_and_scattered_votes_leave_none():
    agree, outlier, scatter = (float(fm_agreement(votes).activation) for votes in draw.plane_votes().values())
    assert agree > 1.2
    assert 0 < outlier < agree / 2
    assert scatter <= 0


def test_drawn_dimensions_are_of_different_kinds_and_those_that_change_most():
    measured = [
        Dimension(7, 0.9, None, None),
        Dimension(1, 0.8, "x", 0.6),
        Dimension(2, 0.7, "x", 0.9),
        Dimension(3, 0.6, "y", 0.5),
    ]
    chosen = draw.choose_dimensions(measured)
    assert [dimension.index for dimension in chosen] == [1, 3, 7]
    assert [draw.dimension_name(dimension) for dimension in chosen] == [
        "mostly left–right (2)",
        "mostly up–down (4)",
        "dimension 8",
    ]
    assert [dimension.index for dimension in draw.choose_dimensions(measured, 4)] == [1, 3, 7, 2]


def test_dimensions_have_the_names_of_the_page_of_serve():
    words = (SOURCE / "serve" / "page" / "words.js").read_text()
    assert dict(re.findall(r'^  (\w+): \["(mostly [^"]+)"', words, flags=re.M)) == draw.NAMES


# --- the pages ----------------------------------------------------------------------------------------------------


def test_the_rooms_in_the_drawing_are_those_that_exist():
    folders = {f"{path.parent.name}/" for path in SOURCE.glob("*/__init__.py")}  # not weights/, which has no code
    files = {path.name for path in SOURCE.glob("*.py")} - {"__init__.py", "__main__.py"}
    assert {*draw.UPPER_FLOOR, *draw.GROUND_FLOOR} == folders | files


@pytest.mark.parametrize(("title", "floor"), [("ground floor", draw.GROUND_FLOOR), ("upper floor", draw.UPPER_FLOOR)])
def test_each_room_is_on_the_floor_of_the_page(title, floor):
    page = (ROOT / "docs" / "architecture.md").read_text()
    table = page.split(f"| {title} |")[1].split("\n\n")[0]
    assert re.findall(r"^\| `([\w./]+)` \|", table, flags=re.M) == list(floor)


def test_every_file_on_the_path_of_an_image_exists_and_is_named_on_the_page():
    page = (ROOT / "docs" / "architecture.md").read_text().split("## The path of an image")[1]
    for step, file in draw.PATH:
        assert (SOURCE / file).exists(), step
        assert f"`{file}`" in page, step


def test_the_pictures_of_capsules_come_before_the_formula():
    page = (ROOT / "docs" / "capsules.md").read_text()
    assert len(re.findall(r"\]\(pictures/concept-\w+\.png\)", page.split("$$")[0])) == 4
