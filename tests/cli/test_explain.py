"""paircaps explain and paircaps equivariance, as a person uses them."""

import json

import pytest
from explain.small import saved, small_network, stacked_network
from PIL import Image
from serve.pictures import as_file, seven

from paircaps.cli import equivariance, explain
from paircaps.data import load_dataset


@pytest.fixture
def model(tmp_path):
    return saved(tmp_path / "model", small_network(size=28))


@pytest.fixture
def picture(tmp_path):
    path = tmp_path / "seven.png"
    path.write_bytes(as_file(seven()))
    return path


def opened(folder):
    for path in folder.iterdir():
        Image.open(path).verify()
    return sorted(path.name for path in folder.iterdir())


def size(path):
    with Image.open(path) as picture:
        return picture.size


def test_every_view_of_a_picture(run, model, picture, tmp_path):
    code, out, _ = run("explain", model, picture, "-o", tmp_path / "new" / "out")
    assert code == 0
    names = ["agreement.png", "perturb-1.png", "reconstruct.png", "tree-1.png"]
    assert opened(tmp_path / "new" / "out") == names
    assert sorted(line.rpartition("/")[2] for line in out.splitlines()) == names


def test_one_view_of_several_pictures(run, model, picture, tmp_path):
    code, _, _ = run("explain", model, picture, picture, "-o", tmp_path / "out", "--only", "tree", "--class", "3")
    assert code == 0
    assert opened(tmp_path / "out") == ["tree-1.png", "tree-2.png"]


def test_images_of_a_dataset(run, tmp_path):
    model = saved(tmp_path / "model", stacked_network("dynamic", size=28))
    code, _, _ = run("explain", model, "--data", "glyphs", "--count", 2, "-o", tmp_path / "out", "--only", "agreement")
    assert code == 0


def test_what_a_network_cannot_show_is_noted_or_refused(run, picture, tmp_path):
    pool = saved(tmp_path / "pool", small_network(model="resnet-pool-small"))
    code, _, err = run("explain", pool, picture, "-o", tmp_path / "out")
    assert code == 0
    assert "note: no agreement and tree: resnet-pool-small has no capsules" in err
    assert opened(tmp_path / "out") == ["perturb-1.png", "reconstruct.png"]
    code, _, err = run("explain", pool, picture, "-o", tmp_path / "other", "--only", "tree")
    assert code == 1
    assert "tree cannot be drawn: resnet-pool-small has no capsules" in err
    bare = saved(tmp_path / "bare", small_network(model="resnet-pool-small", decoder="none"))
    code, _, err = run("explain", bare, picture, "-o", tmp_path / "other")
    assert code == 1
    assert "nothing can be drawn" in err
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--class", "eleven"], "--class eleven: the network knows 0, 1"),
        (["nowhere.png"], "nowhere.png"),
        (["--data", "cifar9"], "cifar9"),
        (["--data", "affine-glyphs"], "another shape than the network's, 28×28×1"),
        ([], "has no config.toml to tell the dataset by: give --data NAME"),
    ],
)
def test_wrong_words_are_refused_before_anything_is_written(run, model, tmp_path, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    code, _, err = run("explain", model, *words, "-o", tmp_path / "out")
    assert code == 1
    assert message in err
    assert not (tmp_path / "out").exists()


def test_pictures_and_a_dataset_are_not_both_taken(run, model, picture, tmp_path):
    code, _, err = run("explain", model, picture, "--data", "glyphs", "-o", tmp_path / "out")
    assert (code, "not both" in err) == (1, True)


def test_an_output_that_is_something_else_is_refused(run, model, picture, tmp_path):
    (tmp_path / "notes").write_text("mine")
    code, _, err = run("explain", model, picture, "-o", tmp_path / "notes")
    assert (code, "is a file; -o takes a folder, or a file that ends in .png, .svg, .pdf" in err) == (1, True)
    (tmp_path / "folder.svg").mkdir()
    code, _, err = run("explain", model, picture, "-o", tmp_path / "folder.svg", "--only", "tree")
    assert (code, "is a folder; a name that ends in .svg is one for a file" in err) == (1, True)
    before = picture.read_bytes()
    code, _, err = run("explain", model, picture, "-o", picture, "--only", "tree")
    assert (code, "is the picture to explain, which would be overwritten" in err) == (1, True)
    assert picture.read_bytes() == before


@pytest.mark.parametrize(("ending", "start"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")])
def test_a_file_is_written_in_the_format_of_its_ending(run, model, picture, tmp_path, ending, start):
    out = tmp_path / "new" / f"one.{ending}"
    code, printed, _ = run("explain", model, picture, "-o", out, "--only", "agreement", "--width", "640")
    assert (code, printed.strip()) == (0, str(out))
    assert out.read_bytes().startswith(start)


def test_pictures_of_a_folder_have_the_format_that_was_asked_for(run, model, picture, tmp_path):
    out = tmp_path / "out"
    assert run("explain", model, picture, "-o", out, "--format", "svg", "--only", "tree", "--only", "agreement")[0] == 0
    assert sorted(path.name for path in out.iterdir()) == ["agreement.svg", "tree-1.svg"]


@pytest.mark.parametrize(
    ("only", "count"),
    [("reconstruct", 1), ("reconstruct", 3), ("reconstruct", 21), ("perturb", 1), ("agreement", 1), ("agreement", 9)],
)
def test_pictures_are_as_wide_as_asked_and_of_the_shape_of_a_slide(run, model, tmp_path, only, count):
    out = tmp_path / "out"
    words = ("--data", "glyphs", "--count", count, "--only", only, "--width", 480)
    assert run("explain", model, *words, "-o", out)[0] == 0
    assert {size(path) for path in out.iterdir()} == {(480, 270)}


def test_one_image_is_enough_for_one_file(run, model, tmp_path):
    out = tmp_path / "one.png"
    assert run("explain", model, "--data", "glyphs", "-o", out, "--only", "tree", "--width", 480)[0] == 0
    assert size(out) == (480, 270)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "one file cannot take 18 pictures, 1 of reconstruct and 8 of perturb and 1 of agreement and 8 of tree; "),
        (["--only", "tree", "--count", "2"], "cannot take 2 pictures, 2 of tree; name a folder: -o "),
        (["--only", "tree", "--format", "pdf"], "one.png and --format pdf contradict each other"),
        (["--only", "tree", "--dimensions", "3"], "--dimensions chooses rows of perturb, which is not drawn"),
        (["--only", "perturb", "--dimensions", "3,17"], "--dimensions 17: a pose of this network has the dimensions 1"),
        (["--only", "tree", "--classes", "3,x"], "--classes x: the dataset has 0, 1, 2"),
    ],
)
def test_what_one_file_cannot_be_is_refused(run, model, tmp_path, words, message):
    code, _, err = run("explain", model, "--data", "glyphs", "-o", tmp_path / "one.png", *words)
    assert code == 1
    assert message in err
    assert not (tmp_path / "one.png").exists()


@pytest.mark.parametrize(
    "words",
    [["--width", "100"], ["--width", "9cm"], ["--dimensions", "0"], ["--dimensions", "3,,7"], ["--classes", ""]],
)
def test_wrong_numbers_are_refused_by_the_parser(run, model, tmp_path, words):
    code, _, err = run("explain", model, "--data", "glyphs", "-o", tmp_path / "out", *words)
    assert code == 2
    assert f"argument {words[0]}: must be" in err


def test_other_kinds_of_pictures_and_classes_of_files_are_refused(run, model, picture, tmp_path):
    code, _, err = run("explain", model, picture, "-o", tmp_path / "one.jpg")
    assert (code, "pictures are .png, .svg, .pdf, not .jpg" in err) == (1, True)
    code, _, err = run("explain", model, picture, "-o", tmp_path / "out", "--classes", "3")
    assert (code, "--classes chooses images of a dataset" in err) == (1, True)


def test_dimensions_and_classes_choose_what_is_drawn(run, model, tmp_path, monkeypatch):
    calls = spied(monkeypatch, "draw_perturbation")
    words = ("--data", "glyphs", "--only", "perturb", "--dimensions", "7,3,7", "--classes", "8,2", "--count", 3)
    assert run("explain", model, *words, "-o", tmp_path / "out", "--width", 480)[0] == 0
    assert [words["dimensions"] for _, words in calls] == [[6, 2]] * 3
    titles = [positional[2].split(",")[0] for positional, _ in calls]
    assert titles == ["digit 2", "digit 8", "digit 2"]


@pytest.mark.parametrize(
    ("name", "split", "labels", "title"),
    [
        ("glyphs", "test", [3], "digit 3, test image 13"),
        ("glyphs", "train", [3], "digit 3, training image 13"),
        ("multi-glyphs", "test", [3, 5], "digits 3 and 5, test image 13"),
    ],
)
def test_titles_are_for_people(name, split, labels, title):
    assert explain.image_title(load_dataset(name, split), labels, 13) == title


def test_equivariance_of_a_folder_of_networks(run, tmp_path):
    for name in ("one", "two"):
        saved(tmp_path / "runs" / name, small_network(size=40))
    files = [tmp_path / f"equivariance.{kind}" for kind in ("md", "json", "png")]
    outputs = [word for file in files for word in ("-o", file)]
    code, out, err = run("equivariance", tmp_path / "runs", "--data", "affine-glyphs", "--images", 100, *outputs)
    assert code == 0
    assert "warping images for two" in err
    assert files[0].read_text() == out
    result = json.loads(files[1].read_text())
    assert [row["name"] for row in result["networks"]] == ["one", "two"]
    assert result["networks"][0]["r2"] == result["networks"][1]["r2"], "the same network, measured alike"
    assert set(result["networks"][0]["curves"]) == {"x", "y", "rotation", "scale", "shear"}
    Image.open(files[2]).verify()


def test_a_bad_picture_does_not_stop_the_others(run, model, picture, tmp_path):
    (tmp_path / "bad.png").write_text("text")
    code, _, err = run("explain", model, tmp_path / "bad.png", picture, "-o", tmp_path / "out", "--only", "tree")
    assert code == 1
    assert "bad.png: not a PNG" in err
    assert opened(tmp_path / "out") == ["tree-1.png"]


def test_networks_of_different_datasets_are_not_compared(run, tmp_path):
    for name, size in (("one", 40), ("two", 28)):
        folder = saved(tmp_path / "runs" / name, small_network(size=size))
        data = {"one": "affine-glyphs", "two": "glyphs"}[name]
        folder.joinpath("config.toml").write_text(
            f'[model]\nname = "resnet-caps-small"\n[data]\nname = "{data}"\n[train]\nsteps = 1\n'
        )
    code, _, err = run("equivariance", tmp_path / "runs", "--images", 100)
    assert code == 1
    assert "cannot be compared (one: affine-glyphs, 2,000 images of 40×40×1; two: glyphs, " in err


def test_few_images_are_told(run, tmp_path):
    model = saved(tmp_path / "model", small_network(size=40))
    code, _, err = run("equivariance", model, "--data", "affine-glyphs", "--images", 100)
    assert code == 0
    assert "100 images are few for 10 read-outs of 16 numbers each" in err


def test_equivariance_refuses_in_words(run, tmp_path, model):
    (tmp_path / "empty").mkdir()
    code, _, err = run("equivariance", tmp_path / "empty")
    assert code == 1
    assert "no trained model here" in err
    code, _, err = run("equivariance", model, "--data", "affine-glyphs")
    assert code == 1
    assert "another shape" in err
    code, _, err = run("equivariance", model, "-o", tmp_path / "nowhere" / "x.md")
    assert code == 1
    assert "no such folder" in err
    code, _, err = run("equivariance", model, "--images", 5)
    assert code == 2


def spied(monkeypatch, name):
    """Calls of a function of the command, which still does what it does."""
    calls, real = [], getattr(explain, name)
    monkeypatch.setattr(explain, name, lambda *a, **k: calls.append((a, k)) or real(*a, **k))
    return calls


def test_what_is_asked_for_is_what_is_looked_at(run, model, picture, tmp_path, monkeypatch):
    calls = {name: spied(monkeypatch, name) for name in ("tree", "agreement", "reconstruct", "perturb")}
    code, _, _ = run("explain", model, picture, "-o", tmp_path / "out", "--class", "3", "--invert", "--fit", "crop")
    assert code == 0
    for name in ("tree", "agreement", "reconstruct"):
        assert calls[name][0][0][2] == 3
    assert calls["perturb"][0][0][3] == 3
    assert calls["tree"][0][0][1].float().mean() > 128, "light, as it was exchanged"


def test_many_pictures_make_several_sheets(run, model, picture, tmp_path):
    code, _, _ = run("explain", model, *[picture] * 9, "-o", tmp_path / "out", "--only", "agreement")
    assert code == 0
    assert opened(tmp_path / "out") == ["agreement-1.png", "agreement-2.png"]


def test_ranges_of_other_images_are_told(run, model, picture, tmp_path):
    _, _, err = run("explain", model, picture, "-o", tmp_path / "out", "--only", "perturb")
    assert "poses are swept as far as those of glyphs go" in err


def test_a_read_out_is_fitted_on_one_split_and_tested_on_the_other(run, tmp_path, monkeypatch):
    model = saved(tmp_path / "model", small_network(size=40))
    calls, real = [], equivariance.measure_equivariance
    monkeypatch.setattr(equivariance, "measure_equivariance", lambda *a: calls.append(a) or real(*a))
    code, _, _ = run("equivariance", model, "--data", "affine-glyphs", "--images", 100)
    assert code == 0
    (_, _, fit_on, test_on, _, _) = calls[0]
    assert (len(fit_on), len(test_on)) == (160, 60), "sixteen fonts of the one, six of the other"


def test_other_classes_are_refused(run, tmp_path):
    model = saved(tmp_path / "model", small_network(size=40, classes=tuple("abcdefghij")))
    code, _, err = run("equivariance", model, "--data", "affine-glyphs", "--images", 100)
    assert code == 1
    assert "the network knows a, b, c" in err
