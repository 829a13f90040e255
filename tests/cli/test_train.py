"""train, evaluate, predict, replay and demo, as a person types them."""

import json
import shutil
import signal
import subprocess
import sys
import tomllib

import pytest
import torch
from PIL import Image
from training.small import WORDS, command

import paircaps
from paircaps.cli import main
from paircaps.data import load_dataset
from paircaps.losses import Loss, Objective
from paircaps.training import evaluate
from paircaps.training.signals import Stopped


@pytest.fixture(autouse=True)
def _own_folders(monkeypatch, tmp_path_factory):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained") / "run"
    threads = torch.get_num_threads()
    assert main(list(command(folder, "--quiet"))) == 0
    torch.set_num_threads(threads)
    return folder


def test_what_a_run_leaves(trained):
    names = {path.name for path in trained.iterdir() if not path.name.startswith(".")}
    assert names == {"config.toml", "metrics.jsonl", "timing.jsonl", "checkpoints", "model.safetensors", "model.json"}
    config = tomllib.loads((trained / "config.toml").read_text())
    assert config["train"]["epochs"] == 2
    assert config["loss"]["decoder_weight"] == 0.0005  # those not given too
    facts = json.loads((trained / "model.json").read_text())
    assert facts["model"] == "resnet-caps-small"
    assert facts["arguments"]["routing"] == "fm"
    assert facts["classes"] == list("0123456789")
    assert facts["preparation"] == {
        "size": [28, 28],
        "crop": [12, 12],
        "standardise": False,
        "channels": 1,
        "fitting": {"fit": "pad", "background": 0, "invert": "light"},
    }
    assert facts["certainty"] == "softmax"
    assert facts["trained"]["machine"]["torch"] == torch.__version__


def test_a_prediction_into_a_closed_stream_is_no_traceback(trained, tmp_path):
    """The width of the terminal was asked of a stream that was not there."""
    Image.new("L", (28, 28)).save(tmp_path / "black.png")
    words = f"{sys.executable} -m paircaps predict {trained} {tmp_path / 'black.png'} >&-"
    closed = subprocess.run(["sh", "-c", words], capture_output=True, text=True)
    assert (closed.returncode, closed.stderr) == (0, "")


def test_a_prediction_onto_a_full_disk_is_said_in_a_sentence(trained, tmp_path):
    Image.new("L", (28, 28)).save(tmp_path / "black.png")
    words = [sys.executable, "-m", "paircaps", "predict", str(trained), str(tmp_path / "black.png")]
    for more in ([], ["--json"]):
        with open("/dev/full", "w") as full:
            done = subprocess.run([*words, *more], stdout=full, stderr=subprocess.PIPE, text=True)
        assert (done.returncode, done.stderr) == (1, "paircaps: No space left on device\n")


def test_load_gives_what_was_tested(trained, run):
    code, out, _ = run("evaluate", trained, "--json")
    seen = json.loads(out)
    facts = json.loads((trained / "model.json").read_text())["trained"]
    assert code == 0
    assert seen["accuracy"] == facts["test_accuracy"]
    assert seen["loss"] == pytest.approx(facts["test_loss"], rel=1e-5)
    test = load_dataset("glyphs", "test").limit(300, 0)
    assert (paircaps.load(trained).classify(test.images) == test.labels).double().mean().item() == seen["accuracy"]


def test_a_quiet_run_says_its_result_alone(run, tmp_path):
    code, out, err = run(*command(tmp_path / "run", "--train.steps", 1, "--quiet"))
    assert (code, err) == (0, "")
    assert "finished after 1 step; validation" in out
    code, out, err = run(*command(tmp_path / "run", "--train.steps", 1))
    assert "was finished already, after 1 step" in out


def test_print_config_trains_nothing_and_is_a_recipe(run, tmp_path):
    code, out, _ = run(*WORDS, "--print-config")
    assert code == 0
    (tmp_path / "mine.toml").write_text(out)
    code, again, _ = run("train", tmp_path / "mine.toml", "--print-config")
    assert again == out
    assert list(tmp_path.iterdir()) == [tmp_path / "mine.toml"]


def test_print_config_refuses_a_length_that_is_measured_later(run):
    code, out, err = run(*WORDS, "--print-config", "--hours", "2")
    assert (code, out) == (2, "")
    assert "--print-config cannot show what --hours chooses" in err


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ([], "RECIPE is missing: one of aff-affine, aff-"),
        (["glyphs"], "--out DIR is missing"),
        (["glyps", "--out", "x"], "did you mean 'glyphs'?"),
        (["glyphs", "--train.epocs", "3"], "unknown key 'train.epocs'; did you mean 'train.epochs'?"),
        (["glyphs", "--tarin.epochs", "3"], "unknown section in 'tarin.epochs'"),
        (
            ["glyphs", "--train.epochs", "three", "--out", "x"],
            "train.epochs must be a whole number or auto or null, got 'three'",
        ),
        (["glyphs", "--train.epochs"], "--train.epochs"),
        (["glyphs", "--run.device", "tpu"], "run.device must be one of auto, cpu, cuda, mps, got 'tpu'"),
        (["glyphs", "--quick"], "--quick"),
        (["glyphs", "--out", "x", "--hours", "0"], "--hours must be a number above 0 and of 10,000 at most, got '0'"),
        (
            ["glyphs", "--out", "x", "--hours", "nan"],
            "--hours must be a number above 0 and of 10,000 at most, got 'nan'",
        ),
        (
            ["glyphs", "--out", "x", "--hours", "two"],
            "--hours must be a number above 0 and of 10,000 at most, got 'two'",
        ),
        (["glyphs", "more", "--out", "x"], "more"),
        (["glyphs", "--data.name", "cats", "--out", "x"], "cats"),
    ],
)
def test_a_wrong_command_line_is_said_in_words(run, monkeypatch, tmp_path, words, complaint):
    monkeypatch.chdir(tmp_path)
    code, out, err = run("train", *words)
    assert code == 2
    assert complaint in err
    assert not out
    assert not list(tmp_path.rglob("model.json"))


def test_a_reader_that_leaves_does_not_end_the_training(tmp_path):
    words = [sys.executable, "-m", "paircaps", *command(tmp_path / "run", "--train.steps", 4, "--train.log_every", 1)]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        process.stderr.readline()
        process.stderr.close()
        assert process.wait(120) == 0
    assert (tmp_path / "run" / "model.json").exists()


def test_a_bar_in_a_terminal_that_does_not_know_its_width(tmp_path):
    import os
    import pty

    ours, theirs = pty.openpty()
    words = [sys.executable, "-m", "paircaps", *command(tmp_path / "run", "--train.steps", 3)]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=theirs) as process:
        os.close(theirs)
        said = b""
        try:
            while part := os.read(ours, 4096):
                said += part
        except OSError:  # the terminal's other end is closed
            pass
        os.close(ours)
        assert process.wait(60) == 0
    assert b"3/3" in said
    assert b"images/s" in said


def test_too_little_memory_is_said_in_words(run, tmp_path):
    code, _, err = run(*command(tmp_path / "run", "--augment.crop_padding", 1_000_000))
    assert code == 1
    assert "not enough memory: a smaller train.batch_size" in err


def test_paths_are_where_the_recipe_is(run, tmp_path, monkeypatch):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "one.toml").write_text('base = "../two.toml"')
    (tmp_path / "two.toml").write_text('base = "glyphs"\n[data]\nname = "./pics"\n')
    monkeypatch.chdir(tmp_path / "sub")
    _, out, _ = run("train", "./one.toml", "--print-config", "--data.test", "../other")
    data = tomllib.loads(out)["data"]
    assert (data["name"], data["test"]) == (f"{tmp_path}/pics/", f"{tmp_path}/other/")
    # a folder of masks as well, whether its own look or that of the pictures says that it is a path
    options = ("--data.options.masks", "masks", "--data.test_options.masks", "../masks")
    _, out, _ = run("train", "./one.toml", "--print-config", "--data.name", "./pics", *options)
    data = tomllib.loads(out)["data"]
    assert data["options"]["masks"] == f"{tmp_path}/sub/masks"
    assert data["test_options"]["masks"] == f"{tmp_path}/masks"
    _, out, _ = run("train", "./one.toml", "--print-config", "--data.name", "mine", "--data.options.masks", "many")
    assert tomllib.loads(out)["data"]["options"]["masks"] == "many", "an option of another dataset"
    (tmp_path / "two.toml").unlink()
    code, _, err = run("train", "./one.toml", "--print-config")
    assert code == 2
    assert "./one.toml: its base: ../two.toml: cannot read the recipe" in err


def test_help_has_every_key(run):
    code, out, _ = run("train", "--help")
    assert code == 0
    for key in ("--train.epochs", "--data.limit", "--model.routing", "--run.checkpoint_every", "--run.threads"):
        assert key in out
    assert "images per step, of all processes together" in " ".join(out.split())


def test_evaluate_in_words(trained, run):
    code, out, _ = run("evaluate", trained, "--limit", 50)
    assert code == 0
    for word in ("accuracy  ", "loss  ", "calibration error", "drawing error", "class by class", "taken for"):
        assert word in out


@pytest.mark.parametrize(
    ("words", "views"),
    [((), "none"), (("--views", "shift"), "shift"), (("--views", "flip"), "flip"), (("--mirror",), "flip")],
)
def test_evaluate_averages_the_views_that_are_asked_for(trained, run, words, views):
    code, out, _ = run("evaluate", trained, "--limit", 30, "--json", *words)
    seen = json.loads(out)
    assert (code, seen["views"]) == (0, views)
    assert (seen["plain_accuracy"] is None) == (views == "none")
    objective = Objective(paircaps.load(trained), Loss(decoder="dense"))
    expected = evaluate(objective, load_dataset("glyphs", "test").limit(300).limit(30), views=views)
    assert seen["loss"] == pytest.approx(expected.loss, rel=1e-5)


@pytest.mark.parametrize(
    ("written", "views"), [({"views": "shift"}, "shift"), ({"mirror": True}, "flip"), ({"mirror": False}, "none")]
)
def test_evaluate_takes_the_views_of_the_training(trained, run, tmp_path, written, views):
    """Earlier versions wrote mirror for flip."""
    folder = tmp_path / "run"
    shutil.copytree(trained, folder)
    facts = json.loads((folder / "model.json").read_text())
    facts["trained"] = {key: value for key, value in facts["trained"].items() if key != "views"} | written
    (folder / "model.json").write_text(json.dumps(facts))
    code, out, _ = run("evaluate", folder, "--limit", 20, "--json")
    assert (code, json.loads(out)["views"]) == (0, views)
    code, out, _ = run("evaluate", folder, "--limit", 20, "--json", "--views", "none")
    assert (code, json.loads(out)["views"]) == (0, "none")


def test_evaluate_on_other_data(trained, run):
    code, out, _ = run(
        "evaluate", trained, "--data", "affine-glyphs", "--option", "image_size=28", "--limit", 40, "--json"
    )
    assert code == 0
    assert json.loads(out)["data"] == "affine-glyphs"
    code, _, err = run("evaluate", trained, "--data", "affine-glyphs")
    assert code == 1
    assert "another shape" in err
    assert "--option image_size=28" in err
    code, _, err = run("evaluate", trained, "--data", "nothing")
    assert code == 1
    assert "unknown dataset 'nothing'" in err


def test_evaluate_wants_the_same_classes(trained, run, tmp_path):
    for split in ("train", "test"):
        for name in ("cat", "dog"):
            (tmp_path / split / name).mkdir(parents=True)
            Image.new("L", (28, 28)).save(tmp_path / split / name / "one.png")
    options = ("--option", "image_size=28", "--option", "channels=1")
    code, _, err = run("evaluate", trained, "--data", tmp_path, *options)
    assert code == 1
    assert "its classes are cat, dog; the network knows 0, 1" in err


def test_predict(trained, run, tmp_path):
    Image.fromarray(load_dataset("glyphs", "test").images[0, 0].numpy()).save(tmp_path / "good.png")
    (tmp_path / "bad.png").write_bytes(b"no picture")
    code, out, err = run("predict", trained, tmp_path / "good.png")
    assert code == 0
    assert out.startswith(f"{tmp_path / 'good.png'}: ")
    assert all(f"{digit} " in out for digit in range(10))
    code, out, err = run("predict", trained, tmp_path, tmp_path / "none.png", "--json")
    assert code == 1
    rows = [json.loads(line) for line in out.splitlines()]
    assert [sorted(row) for row in rows] == [
        ["error", "file"],
        ["activations", "certainty", "class", "file"],
        ["error", "file"],
    ]
    code, out, err = run("predict", trained, tmp_path / "bad.png", tmp_path / "good.png")
    assert code == 1
    assert "bad.png: not a PNG" in err
    assert "good.png" in out


def test_predict_wants_a_trained_network(run, tmp_path):
    code, _, err = run("predict", tmp_path, "x.png")
    assert code == 1
    assert "no trained model here" in err


def test_the_module_is_the_command(tmp_path):
    words = [sys.executable, "-m", "paircaps", *command(tmp_path / "run", "--train.steps", 1)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "step" in done.stderr
    assert "\r" not in done.stderr  # no terminal, so no bar
    assert "finished after 1 step" in done.stdout


def test_your_own_pictures(run, tmp_path):
    for name, level in (("dark", 40), ("light", 200)):
        (tmp_path / "pics" / name).mkdir(parents=True)
        for number in range(12):
            Image.new("RGB", (30, 20), (level, level, number)).save(tmp_path / "pics" / name / f"{number}.png")
    words = [
        "train",
        "glyphs",
        "--data.name",
        f"{tmp_path}/pics",
        "--data.options.image_size",
        "16",
        "--train.steps",
        "2",
    ]
    words += ["--train.batch_size", "8", "--out", tmp_path / "run", "--quiet"]
    code, _, err = run(*words)
    assert code == 0, err
    assert paircaps.load(tmp_path / "run").classes == ("dark", "light")
    code, out, _ = run("predict", tmp_path / "run", tmp_path / "pics")
    assert code == 0
    assert len(out.splitlines()) == 24


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_second_signal_on_the_way_out_leaves_the_word_of_the_first(run, monkeypatch, tmp_path, number, code):
    """Once a dozen of them hid that the state was saved, behind a bare "stopped"."""

    def train_and_be_stopped_twice(*_, **__):
        try:
            raise Stopped(number, 12)
        finally:
            raise KeyboardInterrupt

    monkeypatch.setattr("paircaps.cli.train.train", train_and_be_stopped_twice)
    ended, _, said = run(*command(tmp_path / "run"))
    assert ended == code
    assert said == f"paircaps: stopped by {number.name} at step 12; the same command goes on\n"
