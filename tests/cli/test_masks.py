"""Segmentation as typed: train, evaluate, predict, explain."""

import json

import numpy as np
import pytest
from explain.small import saved, small_network
from PIL import Image

from paircaps import load
from paircaps.cli import main
from paircaps.pictures import find_pictures

SHORT = ["--data.limit", "60", "--train.batch_size", "20", "--train.epochs", "1", "--run.threads", "1", "--quiet"]


@pytest.fixture(scope="module")
def segment(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "segment"
    assert main(["train", "segment-glyphs", "--out", str(folder), *SHORT]) == 0
    return folder


@pytest.fixture
def pictures(tmp_path):
    folder = tmp_path / "pictures"
    folder.mkdir()
    for number in range(2):
        pixels = np.random.default_rng(number).integers(256, size=(36, 36), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"p{number}.png")
    return folder


def test_a_training_ends_with_its_iou(run, tmp_path):
    code, said, _ = run("train", "segment-glyphs", "--out", tmp_path / "run", *SHORT)
    assert code == 0
    assert "validation mean IoU " in said
    assert "test mean IoU " in said
    assert ", accuracy " in said


def test_evaluate_prints_iou_of_all_and_of_each_class(run, segment):
    code, said, _ = run("evaluate", segment)
    assert code == 0
    assert "mean IoU" in said
    assert "class by class: accuracy, IoU" in said
    assert len([line for line in said.splitlines() if line.count("%") == 2]) == 10
    facts = json.loads(run("evaluate", segment, "--json")[1])
    assert set(facts["iou_per_class"]) == set("0123456789")
    assert facts["accuracy"] <= 1


def test_predict_writes_the_class_of_each_pixel(run, segment, pictures, tmp_path):
    code, said, errors = run("predict", segment, pictures, "--masks", tmp_path / "masks")
    assert code == 0
    assert len(said.splitlines()) == 2
    assert "p0-mask.png" in errors
    predictions = load(segment).predict(str(pictures))
    for number, prediction in enumerate(predictions):
        with Image.open(tmp_path / "masks" / f"p{number}-mask.png") as mask:
            assert (mask.mode, mask.size) == ("P", (36, 36))
            assert (np.array(mask) == prediction.mask.numpy()).all()


def test_the_more_certain_class_has_the_pixel(segment, pictures):
    network = load(segment)
    prediction = network.predict(str(pictures / "p0.png"))
    logits = network.segment(network.read_picture(next(find_pictures([str(pictures / "p0.png")]))).image[None]).masks[0]
    for row, column in ((0, 0), (10, 17), (20, 20), (35, 35)):
        values = logits[:, row, column].tolist()
        expected = values.index(max(values)) + 1 if max(values) > 0 else 0
        assert prediction.mask[row, column] == expected


def test_without_a_folder_masks_are_not_written_and_a_note_says_so(run, segment, pictures):
    _, _, errors = run("predict", segment, pictures / "p0.png")
    assert "note: --masks DIR writes the masks" in errors


def test_masks_are_refused_where_they_cannot_be(run, segment, pictures, tmp_path):
    classifier = saved(tmp_path / "classifier", small_network(decoder="none"))
    code, _, errors = run("predict", classifier, pictures, "--masks", tmp_path / "masks")
    assert (code, "resnet-caps-small classifies pictures, it gives no masks" in errors) == (1, True)
    code, _, errors = run("predict", segment, pictures, "--masks", pictures / "p0.png")
    assert (code, "is a file; masks are written into a folder" in errors) == (1, True)
    (pictures / "deeper").mkdir()
    (pictures / "deeper" / "p0.png").write_bytes((pictures / "p0.png").read_bytes())
    code, _, errors = run("predict", segment, pictures, "--masks", tmp_path / "twice")
    assert (code, "has the same name" in errors) == (1, True)


def test_a_picture_is_never_overwritten_by_its_mask(run, segment, pictures):
    """A picture called like the mask of another one, in the folder of masks."""
    (pictures / "p1.png").rename(pictures / "p0-mask.png")
    before = (pictures / "p0-mask.png").read_bytes()
    code, _, errors = run("predict", segment, pictures / "p0.png", pictures / "p0-mask.png", "--masks", pictures)
    assert code == 1
    assert "p0-mask.png: is a picture to predict, which would be overwritten" in errors
    assert (pictures / "p0-mask.png").read_bytes() == before


def test_explain_draws_masks_of_images_and_of_pictures(run, segment, pictures, tmp_path):
    code, said, errors = run("explain", segment, "-o", tmp_path / "drawn", "--count", 2, "--width", 640)
    assert code == 0
    assert said.splitlines() == [str(tmp_path / "drawn" / "masks.png")]
    assert "caps-segment is no single stack of capsules" in errors
    assert run("explain", segment, pictures, "-o", tmp_path / "own.png", "--only", "masks", "--width", 640)[0] == 0
    assert (tmp_path / "own.png").read_bytes().startswith(b"\x89PNG")


def test_one_class_is_told_from_what_is_around_it(run, tmp_path, monkeypatch):
    """Own pictures with masks of a single class, and a run that is evaluated from another folder."""
    monkeypatch.chdir(tmp_path)
    for folder in ("cells", "masks"):
        (tmp_path / folder).mkdir()
    for number in range(10):
        index = np.zeros((16, 16), dtype=np.uint8)
        index[number : number + 6, 3:12] = 1
        Image.fromarray(200 * index).save(f"cells/{number}.png")
        mask = Image.fromarray(index)
        mask.putpalette([0, 0, 0, 255, 0, 0])
        mask.save(f"masks/{number}.png")
    (tmp_path / "masks" / "classes.txt").write_text("cell\n")
    options = ("--data.name", "./cells", "--data.options.masks", "./masks", "--data.options.image_size", "16")
    short = ("--train.epochs", "2", "--run.threads", "1", "--quiet")
    code, said, errors = run("train", "segment-folder", *options, "--out", "run", *short)
    assert code == 0, errors
    assert "test mean IoU " in said
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert run("evaluate", "../run")[0] == 0
    assert run("explain", "../run", "-o", "own.png", "--only", "masks", "--count", "2", "--width", "640")[0] == 0
    assert run("predict", "../run", "../cells/0.png", "--masks", "found")[0] == 0
    with Image.open("found/0-mask.png") as mask:
        assert mask.mode == "P"


def test_explain_says_that_a_classifier_has_no_masks(run, tmp_path):
    classifier = saved(tmp_path / "classifier", small_network(decoder="none"))
    code, _, errors = run("explain", classifier, "-o", tmp_path / "drawn", "--only", "masks")
    assert (code, "masks cannot be drawn: resnet-caps-small gives no masks" in errors) == (1, True)
