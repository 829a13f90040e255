"""What RECIPE of ``paircaps train`` may be, and what is said where it is something else."""

import pytest
from PIL import Image

import paircaps

LOUD = ("--model.options.widths", "[8,8,8]", "--train.steps", "2", "--data.options.image_size", "16")
SMALL = (*LOUD, "--quiet")


@pytest.fixture
def here(monkeypatch, tmp_path):
    """An empty folder to work in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def pictures(here):
    for label, name in enumerate(("cat", "dog")):
        (here / "pictures" / name).mkdir(parents=True)
        for number in range(8):
            Image.new("RGB", (20, 16), (100 * label, 10 * number, 5)).save(here / "pictures" / name / f"{number}.png")
    return here / "pictures"


@pytest.mark.parametrize("name", ["./pictures", "pictures", "pictures/"])
def test_a_folder_of_pictures_is_trained_on_by_the_recipe_folder(run, pictures, name):
    code, out, err = run("train", name, "--out", "run", *LOUD)
    assert code == 0, err
    assert "a folder of pictures, so this is paircaps train folder --data.name " in err
    assert "test " in out
    network = paircaps.load("run")
    assert network.classes == ("cat", "dog")
    assert network.spec.preparation.standardise
    # the command that was said goes on with the same run
    code, out, err = run("train", "folder", "--data.name", "./pictures", "--out", "run", *SMALL)
    assert code == 0, err
    assert "was finished already" in out


def test_quiet_says_the_result_alone(run, pictures):
    code, out, err = run("train", "./pictures", "--out", "run", *SMALL)
    assert (code, err) == (0, "")
    assert out.startswith("run: finished after 2 steps")


def test_without_a_place_the_whole_command_is_said(run, pictures):
    code, out, err = run("train", "./pictures")
    assert (code, out) == (2, "")
    assert err == (
        "paircaps: --out DIR is missing, the folder of the run: "
        "paircaps train folder --data.name ./pictures --out runs/pictures\n"
    )


def test_the_folder_of_a_run_is_known(run, pictures):
    run("train", "./pictures", "--out", "run", *SMALL)
    code, _, err = run("train", "./run", "--out", "other")
    assert code == 2
    assert (
        "./run: the folder of a run, and no recipe. To go on with it: paircaps train run/config.toml --out ./run" in err
    )
    code, out, _ = run("train", "run/config.toml", "--out", "./run", "--quiet")
    assert code == 0
    assert "was finished already" in out
    code, _, err = run("train", ".")
    assert code == 2
    assert ".: a folder, and neither a recipe nor a folder of pictures: it holds runs: run" in err


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("./picture", "./picture: no such recipe; did you mean ./pictures?"),
        ("mine", "mine: no such recipe; did you mean ./mine.toml?"),
        ("./mine", "./mine: no such recipe; did you mean ./mine.toml?"),
        ("./nowhere", "./nowhere: no such file or folder. A recipe is a .toml file or one of aff-affine, aff-"),
        ("glyps", "unknown recipe 'glyps'; did you mean 'glyphs'?"),
        ("pictures/cat", "its pictures lie loose in it; put those of each class into a subfolder"),
        ("./empty", "a folder of pictures has one subfolder per class with pictures in it"),
        ("./some", "it holds recipes: some/one.toml"),
    ],
)
def test_what_was_probably_meant_is_said(run, pictures, here, words, complaint):
    (here / "mine.toml").write_text("")
    (here / "empty" / "a").mkdir(parents=True)
    (here / "some").mkdir()
    (here / "some" / "one.toml").write_text("")
    code, _, err = run("train", words, "--out", "run")
    assert code == 2
    assert complaint in err
    assert not (here / "run").exists()


@pytest.mark.filterwarnings("default")
def test_damaged_pictures_are_skipped_and_listed(run, pictures):
    (pictures / "cat" / "bad.png").write_bytes(b"rubbish")
    code, _, err = run("train", "./pictures", "--out", "run", *SMALL)
    assert code == 1
    assert "bad.png: not a PNG" in err
    code, _, err = run("train", "./pictures", "--out", "run", *SMALL, "--data.on_error", "skip")
    assert code == 0
    assert "1 picture skipped, which cannot be read:\n  " in err
    assert "bad.png: not a PNG" in (pictures.parent / "run" / "skipped.txt").read_text()
    code, out, err = run("data", "check", "./pictures", "--option", "on_error=skip")
    assert code == 0
    assert "bad.png: not a PNG" in err
    assert out.count("good") == 2


def test_a_finished_run_is_extended(run, pictures):
    words = ("train", "./pictures", "--out", "run", *SMALL, "--schedule.name", "constant", "--evaluate.every", "1")
    words += ("--train.steps", "2")  # an epoch
    assert run(*words)[0] == 0
    code, _, err = run(*words, "--train.steps", "3")
    assert code == 1
    assert "holds a run of another length. --extend goes on from its step 2 to the new end" in err
    code, out, err = run(*words, "--train.steps", "3", "--extend")
    assert code == 0, err
    assert "finished after 3 steps" in out
