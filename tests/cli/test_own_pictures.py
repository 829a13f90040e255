"""Pictures of one's own: the same file is the same tensor in training, evaluation, prediction and explanation."""

import argparse
import contextlib
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import paircaps
from paircaps.cli import main
from paircaps.cli.datasets import named_or_own
from paircaps.model_files import save_model
from paircaps.network import Network, NetworkSpec, Preparation
from paircaps.pictures import find_pictures
from paircaps.training.datasets import own_dataset

SIZES = [(40, 21), (17, 50), (33, 33), (64, 24), (90, 31)]
TINY = (
    *("--data.options.image_size", "16", "--model.name", "resnet-pool-small", "--train.epochs", "2"),
    *("--train.batch_size", "8", "--train.norm_momentum", "0.1", "--augment.flip", "false"),
)


def draw(path, size, bright, kind, seed):
    """A picture of noise with a bar at one end, which a crop loses; some are transparent there."""
    noise = np.random.default_rng(seed).integers(0, 90, (size[1], size[0], 3), dtype=np.uint8)
    noise[:, : size[0] // 4] = bright
    picture = Image.fromarray(noise)
    if kind == "transparent":
        picture.putalpha(Image.fromarray((noise[..., 0] > 20).astype(np.uint8) * 255))
    picture.save(path)


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """Pictures of odd sizes and kinds, two classes, train/ and test/."""
    folder = tmp_path_factory.mktemp("own") / "bars"
    for split in ("train", "test"):
        for bright, name in ((60, "dim"), (250, "bright")):
            (folder / split / name).mkdir(parents=True)
            for number, size in enumerate(SIZES * 2):
                kind, suffix = [("plain", ".png"), ("transparent", ".png"), ("plain", ".jpg")][number % 3]
                draw(folder / split / name / f"{number}{suffix}", size, bright, kind, number + 100 * bright)
    return folder


@pytest.fixture(scope="module", params=["crop", "pad", "stretch"])
def trained(request, pictures, tmp_path_factory):
    run = tmp_path_factory.mktemp("runs") / request.param
    threads = torch.get_num_threads()
    words = ("train", "glyphs", "--out", run, "--data.name", pictures, "--data.options.fit", request.param, *TINY)
    assert main([str(word) for word in (*words, "--quiet")]) == 0
    torch.set_num_threads(threads)
    return run


def test_evaluate_and_predict_see_the_same_pictures(run, trained, pictures):
    # earlier, training cropped and prediction padded: 89 of 179 pictures were right in place of 175
    code, out, _ = run("evaluate", trained, "--json")
    evaluated = json.loads(out)
    assert (code, evaluated["images"]) == (0, 20)
    code, out, err = run("predict", trained, pictures / "test", "--json")
    rows = [json.loads(line) for line in out.splitlines()]
    assert (code, err, len(rows)) == (0, "", 20)
    right = [row["class"] == Path(row["file"]).parent.name for row in rows]
    assert sum(right) / len(right) == pytest.approx(evaluated["accuracy"], abs=1e-9)
    with torch.no_grad():
        images = own_dataset(trained).images
        expected = paircaps.load(trained)(images).activation
    torch.testing.assert_close(
        torch.tensor([list(row["activations"].values()) for row in rows]), expected, rtol=1e-4, atol=1e-5
    )


def test_a_folder_to_evaluate_is_fitted_as_that_of_the_training(run, trained, pictures):
    _, own, _ = run("evaluate", trained, "--json")
    code, named, _ = run("evaluate", trained, "--json", "--data", pictures)
    assert code == 0
    for key in ("accuracy", "loss"):
        assert json.loads(named)[key] == pytest.approx(json.loads(own)[key])


def test_an_option_overrides_the_fit_and_says_so(run, trained, pictures):
    own = json.loads((trained / "model.json").read_text())["preparation"]["fitting"]["fit"]
    other = "stretch" if own != "stretch" else "crop"
    wide = pictures / "test" / "bright" / "0.png"
    _, plain, _ = run("predict", trained, wide, "--json")
    _, changed, said = run("predict", trained, wide, "--json", "--fit", other)
    assert json.loads(plain)["activations"] != json.loads(changed)["activations"]
    assert said == f"paircaps: note: fit {other!r}, where the network's own is {own!r}\n"
    _, same, said = run("predict", trained, wide, "--json", "--fit", own)
    assert (same, said) == (plain, "")


def test_a_file_of_an_earlier_version_says_once_that_its_fitting_is_unknown(run, trained, pictures, tmp_path):
    for name in ("model.json", "model.safetensors"):
        (tmp_path / name).write_bytes((trained / name).read_bytes())
    metadata = json.loads((tmp_path / "model.json").read_text())
    for key in ("fitting", "channels"):
        del metadata["preparation"][key]
    del metadata["certainty"]
    (tmp_path / "model.json").write_text(json.dumps(metadata))
    words = [sys.executable, "-m", "paircaps", "predict", tmp_path, pictures / "test", "--json"]
    process = subprocess.run(words, capture_output=True, text=True, check=True)
    assert "the files of resnet-pool-small with classes bright, dim do not say how its pictures" in process.stderr
    assert len(process.stderr.splitlines()) == 1
    _, padded, _ = run("predict", trained, pictures / "test", "--json", "--fit", "pad")
    # transparent pixels were black there, and are white in a folder of pictures
    opaque = [[row for row in lines.splitlines() if ".jpg" in row] for lines in (process.stdout, padded)]
    assert opaque[0] == opaque[1] != []


def test_certainty_comes_first(run, trained, pictures):
    wide = pictures / "test" / "bright" / "0.png"
    _, out, _ = run("predict", trained, wide, "--json")
    row = json.loads(out)
    other = ({"dim", "bright"} - {row["class"]}).pop()
    assert sum(row["certainty"].values()) == pytest.approx(1)
    _, line, _ = run("predict", trained, wide)
    sure, unsure = (f"{100 * row['certainty'][name]:.1f} %" for name in (row["class"], other))
    assert line == f"{wide}: {row['class']} ({sure})  {other} {unsure}\n"


def test_a_folder_without_a_split_is_evaluated_whole(run, trained, pictures):
    # earlier it was a fifth of it, as if it were to be trained on
    code, out, _ = run("evaluate", trained, "--json", "--data", pictures / "test")
    assert (code, json.loads(out)["images"]) == (0, 20)
    code, out, _ = run("evaluate", trained, "--json", "--data", pictures / "test", "--split", "test")
    assert (code, json.loads(out)["images"]) == (0, 4)
    code, _, said = run("evaluate", trained, "--data", pictures, "--split", "all")
    assert code == 1
    assert f"split of {pictures} must be one of 'train', 'test', got 'all'" in said


def test_a_run_is_not_written_among_the_pictures(run, pictures):
    before = sorted(pictures.rglob("*"))
    for out in (pictures, pictures / "runs" / "one"):
        code, _, said = run("train", "folder", "--data.name", pictures, "--out", out)
        assert code == 2
        assert f"--out {out} lies in the folder of pictures {pictures}" in said
    assert sorted(pictures.rglob("*")) == before


def test_a_single_class_is_nothing_to_learn(run, tmp_path):
    (tmp_path / "one" / "a").mkdir(parents=True)
    for number in range(8):
        draw(tmp_path / "one" / "a" / f"{number}.png", (20, 20), 100, "plain", number)
    code, _, said = run("train", "folder", "--data.name", tmp_path / "one", "--out", tmp_path / "run")
    assert code == 2
    assert "has one class alone, 'a': there is nothing to tell apart" in said


def test_a_folder_and_another_dataset_are_one_too_many(run, pictures, tmp_path):
    code, _, said = run("train", f"{pictures}/", "--data.name", "glyphs", "--out", tmp_path / "run")
    assert code == 2
    assert "is a folder of pictures, and --data.name glyphs another: give one of them" in said


def test_a_folder_of_ink_on_paper_is_inverted_alike_by_evaluate_and_predict(trained, tmp_path):
    # `predict` inverted what is light at its edges, `evaluate --data` took it as it was
    for name in ("model.json", "model.safetensors"):
        (tmp_path / name).write_bytes((trained / name).read_bytes())
    metadata = json.loads((tmp_path / "model.json").read_text())
    metadata["preparation"]["fitting"] = {"fit": "pad", "background": 0, "invert": "light"}
    (tmp_path / "model.json").write_text(json.dumps(metadata))
    for label in ("bright", "dim"):
        (tmp_path / "paper" / label).mkdir(parents=True)
        for number in range(3):
            picture = Image.new("RGBA", (30, 18), (240, 240, 240, 255))
            picture.paste((10 * number, 0, 0, 255), (8, 4, 20, 14))
            picture.putpixel((15, 9), (0, 0, 0, 0))
            picture.save(tmp_path / "paper" / label / f"{number}.png")
    network = paircaps.load(tmp_path)
    options = argparse.Namespace(data=str(tmp_path / "paper"), data_dir=None, option=[])
    evaluated = named_or_own(network, tmp_path, options, None)
    predicted = [network.read_picture(source) for source in find_pictures([options.data])]
    assert all(picture.inverted for picture in predicted)
    assert torch.equal(evaluated.images, torch.stack([picture.image for picture in predicted]))


EVIL = "cat\x1b[31m\nred"


@pytest.fixture
def evil(tmp_path):
    """A folder of pictures and a network, both with a class whose name has control characters."""
    folder = tmp_path / "pets"
    for number, name in enumerate((EVIL, "dog")):
        for split in ("train", "test"):
            place = folder / split / name
            place.mkdir(parents=True)
            for index in range(3):
                draw(place / f"{index}\x1b]0;title\x07.png", (16, 16), 200, "plain", 10 * number + index)
    arguments = {"num_classes": 2, "in_channels": 3, "image_size": 16, "routing": "fm"}
    preparation = Preparation((16, 16), (16, 16), channels=3)
    save_model(tmp_path, Network(NetworkSpec("resnet-pool-small", arguments, (EVIL, "dog"), preparation)), {"loss": {}})
    return tmp_path, folder


def test_control_characters_in_names_are_shown_and_do_nothing(evil, capsys):
    run, folder = evil
    pictures = folder / "test" / EVIL
    (pictures / "bad\x1b[1m.png").write_bytes(b"none")
    for words in (
        ("data", "check", f"{folder}/", "--split", "train"),
        ("evaluate", str(run), "--data", f"{folder}/", "--split", "train"),
        ("predict", str(run), str(pictures)),
        ("predict", str(run), str(folder / "nowhere\x1b[1m")),
        ("predict", str(folder / "nowhere\x1b[1m"), "a.png"),
    ):
        main(words)
        said = capsys.readouterr()
        assert not set((said.out + said.err).replace("\n", "")) & {"\x1b", "\x07", "\r"}, words
        assert "\\x1b[" in said.out + said.err, words
        if "nowhere\x1b[1m" not in "".join(words):
            assert "cat\\x1b[31m\\nred" in said.out + said.err


def test_a_name_cannot_begin_a_line_of_an_error(evil, capsys):
    run, folder = evil
    name = "a\x1b[1m\npaircaps: all is well.png"
    shown = "a\\x1b[1m\\npaircaps: all is well.png"
    for words in (
        ("predict", str(run), str(folder / name)),
        ("predict", str(folder / name), "a.png"),
        ("evaluate", str(folder / name)),
        ("evaluate", str(run), "--data", f"{folder / name}/"),
        ("data", "check", f"{folder / name}/"),
        ("data", "check", name),
        ("data", "show", name, "-o", str(folder / "a.png")),
        ("info", name),
        ("train", name, "--out", str(run / "new")),
        ("bench", "serve", str(folder / name)),
    ):
        with contextlib.suppress(SystemExit):
            main(words)
        said = capsys.readouterr()
        assert shown in said.out + said.err, words
        assert "\x1b" not in said.out + said.err, words
        assert not [line for line in (said.out + said.err).splitlines() if line.startswith("paircaps: all")], words


@pytest.mark.filterwarnings("default")  # main prints them
def test_each_damaged_picture_has_a_line_of_its_own_whatever_its_name(evil, capsys):
    run, folder = evil
    for number in range(2):
        (folder / "train" / "dog" / f"bad {number}\n.png").write_bytes(b"none")
    place = folder / "train" / "dog"
    reasons = [f"{place}/bad {number}\\n.png: not a PNG, JPEG, BMP or WebP picture" for number in range(2)]
    for words in (
        ("data", "check", f"{folder}/", "--split", "train"),
        ("evaluate", str(run), "--data", f"{folder}/", "--split", "train"),
        ("data", "show", f"{folder}/", "--split", "train", "-o", str(run / "a.png")),
        ("data", "check", f"{folder}/", "--split", "train", "--option", "on_error=skip"),
    ):
        main(words)
        said = capsys.readouterr()
        lines = (said.out + said.err).splitlines()
        assert sum(line.endswith(reason) for line in lines for reason in reasons) == 2, words


def test_names_in_json_are_exact(evil, capsys):
    run, folder = evil
    assert main(("predict", str(run), str(folder / "train" / EVIL), "--json")) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["file"] for row in rows] == [
        str(folder / "train" / EVIL / f"{index}\x1b]0;title\x07.png") for index in range(3)
    ]
    assert EVIL in rows[0]["activations"]
