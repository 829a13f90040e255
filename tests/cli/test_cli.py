"""The command as a person types it: exit codes, sentences on standard error, no traceback ever."""

import dataclasses
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from PIL import Image
from reference.formats import write, write_mnist

from paircaps.data import Info, Metadata, StoredDataset, register_dataset, registry
from paircaps.data.files.locate import VARIABLE
from paircaps.data.registry import require_metadata
from paircaps.data.synthetic.dataset import AffineDigits, OverlappingDigits
from paircaps.routing import list_routings


@pytest.fixture(autouse=True)
def _own_folders(monkeypatch, tmp_path_factory):
    """No test sees, or writes to, the data folders of whoever runs it."""
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
    monkeypatch.setenv("COLUMNS", "100")


def published(metadata, folder):
    """The metadata, had its files been published as they are in a folder."""
    sets = {
        split: tuple(
            tuple(
                dataclasses.replace(file, md5=hashlib.md5((folder / file.name).read_bytes()).hexdigest())
                for file in files
            )
            for files in alternatives
        )
        for split, alternatives in metadata.files.items()
    }
    return dataclasses.replace(metadata, files=sets)


def start(*words, **options):
    """The same in a process of its own."""
    words = [sys.executable, "-m", "paircaps", *map(str, words)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


def test_list_says_what_is_here_where_and_under_what_terms(run, tmp_path):
    for split in ("train", "test"):
        write_mnist(tmp_path / "mnist", split=split)
    code, out, _ = run("data", "list", "--data-dir", tmp_path)
    assert code == 0
    assert max(map(len, out.splitlines())) <= 100
    blocks = dict(block.split("\n", 1) for block in _blocks(out))
    assert f"here: {tmp_path}/mnist" in blocks["mnist"]
    assert "CC BY-SA 3.0" in blocks["mnist"]
    assert "LeCun" in blocks["mnist"]
    assert "not here (train and test): paircaps data get svhn" in blocks["svhn"]
    assert "made on the fly, always here" in blocks["glyphs"]
    assert "made on the fly from mnist, which is here" in blocks["multi-mnist"]
    assert "a stand-in for aff-NIST, which it is not" in blocks["affine-mnist"]


def _blocks(out):
    lines, block = out.splitlines(), []
    for line in lines:
        if line and not line.startswith(" ") and block:
            yield "\n".join(block)
            block = []
        block.append(line)


def test_list_as_json(run):
    code, out, _ = run("data", "list", "--json")
    assert code == 0
    rows = {row["name"]: row for row in json.loads(out)}
    assert rows["glyphs"]["here"] is True
    assert rows["cifar10"]["here"] is False
    assert rows["affine-mnist"]["stand_in_for"] == "aff-NIST"
    assert all(row["licence"] and row["citation"] for row in rows.values())


@pytest.mark.usefixtures("registered_for_one_test")
def test_list_knows_what_a_user_registered(run):
    def stripes(split, root, count=4):
        return StoredDataset(
            Info("x", split, ("a", "b")), torch.zeros(count, 1, 8, 8, dtype=torch.uint8), torch.arange(count) % 2
        )

    described = Metadata("stripes", "two kinds of stripes", {"train": 4}, (1, 8, 8), ("a", "b"), "CC0", "Nobody, 2020")
    register_dataset("stripes", stripes, described)
    register_dataset("nameless", stripes)
    code, out, _ = run("data", "list")
    assert code == 0
    blocks = dict(block.split("\n", 1) for block in _blocks(out))
    assert "two kinds of stripes; 4 train images of 8×8×1" in blocks["stripes"]
    assert f"registered by {__name__}, which finds its images" in blocks["stripes"]
    assert "cite: Nobody, 2020" in blocks["stripes"]
    assert blocks["nameless"].strip() == f"registered by {__name__}, no metadata"
    assert "folder" not in blocks  # it is told of in the last line
    rows = {row["name"]: row for row in json.loads(run("data", "list", "--json")[1])}
    assert (rows["stripes"]["images"], rows["stripes"]["licence"]) == ({"train": 4}, "CC0")
    assert rows["stripes"]["here"] is None
    assert (rows["nameless"]["state"], rows["nameless"]["shape"]) == (f"registered by {__name__}, no metadata", None)
    assert set(rows["nameless"]) == set(rows["mnist"])


@pytest.mark.usefixtures("registered_for_one_test")
def test_what_a_user_registered_is_fetched_shown_and_checked(run, tmp_path):
    def stripes(split, root, count=4):
        return StoredDataset(
            Info("x", split, ("a", "b")), torch.zeros(count, 1, 8, 8, dtype=torch.uint8), torch.arange(count) % 2
        )

    register_dataset("stripes", stripes, Metadata("stripes", "stripes", {"train": 4}, (1, 8, 8), ("a", "b")))
    register_dataset("nameless", stripes)
    assert run("data", "get", "stripes")[1] == "stripes: nothing to download\n"
    code, _, errors = run("data", "get", "nameless")
    assert (code, f"dataset 'nameless', registered by {__name__}, has no metadata" in errors) == (1, True)
    for name in ("stripes", "nameless"):
        assert run("data", "show", name, "-o", tmp_path / "a.png")[0] == 0
        code, out, _ = run("data", "check", name, "--option", "count=6")
        assert (code, "good  <x train: 6 images of 8×8×1, 2 classes>: a 3, b 3" in out) == (0, True)


@pytest.mark.parametrize("name", ["glyphs", "multi-glyphs", "translated-glyphs", "affine-glyphs"])
def test_show_draws_a_sheet(run, tmp_path, name):
    code, out, _ = run("data", "show", name, "-o", tmp_path / "a.png", "--split", "test", "--columns", 3)
    assert code == 0
    assert f"a.png: <{name} test: 2,000 images" in out
    with Image.open(tmp_path / "a.png") as sheet:
        assert sheet.width > 150


def test_show_takes_a_seed(run, tmp_path):
    for seed in (0, 1):
        run("data", "show", "glyphs", "-o", tmp_path / f"{seed}.png", "--seed", seed, "--columns", 3)
    assert (tmp_path / "0.png").read_bytes() != (tmp_path / "1.png").read_bytes()


def test_large_canvases_are_drawn_a_few_at_a_time(run, monkeypatch):
    drawn = []
    monkeypatch.setattr(AffineDigits, "draw", lambda self, base, row, plan: drawn.append(len(row)) or {"images": row})
    run("data", "check", "glyphs", "--split", "test", "--option", "image_size=1000", "--option", "length=50")
    assert max(drawn) * 1000 * 1000 <= 1 << 22


def test_show_takes_a_folder_and_options(run, tmp_path, monkeypatch):
    for label, shade in (("dark", 0), ("light", 255)):
        for number in range(12):
            (tmp_path / "pics" / label).mkdir(parents=True, exist_ok=True)
            Image.new("L", (20 + number, 20), shade).save(tmp_path / "pics" / label / f"{number}.png")
    monkeypatch.chdir(tmp_path)
    code, out, _ = run(
        "data",
        "show",
        "pics",
        "-o",
        "a.png",
        "--option",
        "image_size=(24, 20)",
        "--option",
        "fit=pad",
        "--option",
        "channels=1",
    )
    assert code == 0
    assert "images of 24×20×1, 2 classes" in out


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["data", "show", "mnits", "-o", "a.png"], 1, "unknown dataset 'mnits'; did you mean 'mnist'?"),
        (["data", "show", "glyphs", "-o", "a.pdf"], 1, "a.pdf: the name of a picture must end in .png"),
        (["data", "show", "glyphs", "-o", "no/a.png"], 1, "no/a.png: no such folder: no"),
        (["data", "show", "glyphs", "-o", "a.png", "--split", "val"], 1, "split of glyphs must be one of"),
        (
            ["data", "show", "glyphs", "-o", "a.png", "--option", "colour=red"],
            1,
            "has no option 'colour'",
        ),
        (["data", "show", "glyphs", "-o", "a.png", "--option", "seed"], 2, "must be KEY=VALUE, got 'seed'"),
        (
            ["data", "show", "glyphs", "-o", "a.png", "--columns", "0"],
            2,
            "from 1 to 100, got '0'",
        ),
        (["data", "show", "glyphs"], 2, "the following arguments are required: -o/--out"),
        (["data", "show", "glyphs", "-o", "a.png", "--option", "root=/tmp"], 2, "root is no option of a dataset"),
        (
            ["data", "show", "glyphs", "-o", "a.png", "--option", "image_size=1000000"],
            1,
            "must be from 1 to 1024",
        ),
        (["data", "show", "glyphs", "-o", "a.png", "--option", f"length={10**22}"], 1, "length must be from 1 to"),
        (
            ["data", "show", "affnist", "-o", "a.png", "--option", "download=False"],
            1,
            "test.mat.zip not found",
        ),
        (["bench", "data", "-o", "."], 1, ".: is a folder"),
        (["bench", "data", "-o", "a.png"], 1, "a.png: there is no picture of this"),
        (["bench", "layer", "-o", "a.md", "-o", "no/a.png"], 1, "no/a.png: no such folder"),
        (["bench", "table1", "--batch", "1"], 2, "must be a whole number of at least 2, got '1'"),
        (["bench", "scaling", "--largest", "63"], 2, "must be a whole number of at least 64, got '63'"),
        (["bench", "speed"], 2, "invalid choice: 'speed'"),
        (["bench", "serve", "--minutes", "5"], 2, "--minutes is the length of a soak test: give --soak too"),
        (["bench", "serve", "--soak", "--repeats", "5"], 2, "--repeats is not for a soak test: leave --soak or it out"),
        (["estimate", "capsnet", "--image-size", "16385"], 2, "must be a whole number from 1 to 16384, got '16385'"),
        (
            ["estimate", "resnet-caps-small", "--image-size", "16384", "--batch", "1000000", "--channels", "10000"],
            2,
            "no computer has that much memory",
        ),
        (["estimate", "resnet"], 2, "unknown model 'resnet'; did you mean"),
        (["estimate", "capsnet", "--image-size", "16"], 2, "an image of 16×16 is too small for CapsNet"),
        (["estimate", "capsnet", "--routing", "emm"], 2, "unknown routing 'emm'; did you mean 'em'?"),
        (["estimate", "capsnet", "--option", "depth=3"], 2, "has no option 'depth'; it takes filters"),
        (["estimate", "capsnet", "--option", "routing=em"], 2, "routing is no option of the model"),
        (["estimate", "capsnet", "--option", "streaming=7"], 2, "streaming must be one of 'auto', True, False, got 7"),
        (["data", "check", "glyphs", "nope"], 1, "unknown dataset 'nope'"),
        (["data", "show", "./nope", "-o", "a.png"], 1, "nope: cannot read the folder: No such file"),
        (["bench", "data", "-o", "no/a.md"], 1, "no/a.md: no such folder"),
        (["data", "show", "", "-o", "a.png"], 1, "unknown dataset ''"),
        (["data", "show", "folder", "-o", "a.png"], 1, "a folder of pictures is named by its path"),
        (["data", "get", "glyphs", "--split", "nonsense"], 1, "glyphs has no split 'nonsense', only train, test"),
        (["data", "get", "."], 1, "a folder of pictures is shown and checked by its path"),
        (["data", "list", "--data-dir", "no"], 1, "no: no such folder"),
        (["data", "get", "imagenet"], 1, "unknown dataset 'imagenet'. Known: affine-glyphs"),
        (["data", "get", "svhn", "--split", "valid"], 1, "svhn has no split 'valid', only train, test, extra"),
        (["data", "check", "nope"], 1, "unknown dataset 'nope'. Known: affine-glyphs"),
        (["data"], 2, "the following arguments are required: WHAT"),
        ([], 2, "the following arguments are required: COMMAND"),
        (["bench", "data", "--repeats", "none"], 2, "must be a whole number of at least 1, got 'none'"),
    ],
)
def test_wrong_words_are_answered_in_words(run, tmp_path, monkeypatch, words, code, message):
    monkeypatch.chdir(tmp_path)
    got, _, errors = run(*words)
    assert got == code
    assert message in errors
    assert list(tmp_path.iterdir()) == []


def test_get_says_where_things_are(run, tmp_path, monkeypatch):
    for split in ("train", "test"):
        write_mnist(tmp_path / "mnist", split=split)
    code, out, errors = run("data", "get", "mnist", "--data-dir", tmp_path)
    assert code == 1
    assert errors.count("damaged, or not the published file") == 2  # the first of each split
    monkeypatch.setitem(registry._METADATA, "mnist", published(require_metadata("mnist"), tmp_path / "mnist"))
    code, out, _ = run("data", "get", "multi-mnist", "glyphs", "--data-dir", tmp_path)
    assert code == 0
    assert out.count(str(tmp_path / "mnist")) == 4
    assert "glyphs: made on the fly, nothing to download" in out


def test_check_reads_everything_and_goes_on_after_a_bad_one(run, tmp_path):
    for split in ("train", "test"):
        write_mnist(tmp_path / "mnist", split=split)
    write(tmp_path / "svhn" / "train_32x32.mat", b"rubbish")
    code, out, _ = run("data", "check", "svhn", "mnist", "glyphs", "--data-dir", tmp_path)
    assert code == 1
    assert f"BAD   svhn train: {tmp_path}/svhn/train_32x32.mat: damaged, or not the published file" in out
    assert "BAD   svhn test: svhn: test_32x32.mat not found" in out
    assert "BAD   mnist train:" in out  # not the published files
    assert "good  <glyphs test: 2,000 images of 28×28×1, 10 classes>: 0 200, 1 200" in out


def test_bench_data_measures_and_writes(run, tmp_path, monkeypatch):
    monkeypatch.setattr("paircaps.bench.data.ToyDataset.drawn", lambda self, toys: ())  # two seconds a repeat
    code, out, _ = run("bench", "data", "--batches", 2, "--repeats", 2, "-o", tmp_path / "a.md")
    assert code == 0
    assert "| multi-mnist pairs |" in out
    assert "noise of the same shape" in out
    assert (tmp_path / "a.md").read_text() == out
    code, out, _ = run("bench", "data", "--batches", 1, "--repeats", 1, "--json")
    result = json.loads(out)
    assert {"cpu", "threads", "torch", "commit"} <= set(result["machine"])
    assert all(row["median"] > 0 for row in result["rows"])


def test_bench_scaling_prints_and_writes_all_kinds(run, tmp_path, monkeypatch):
    monkeypatch.setattr("paircaps.bench.scaling.CHILDREN", (8,))
    monkeypatch.setattr("paircaps.bench.scaling.CLASSES", (2,))
    monkeypatch.setattr("paircaps.bench.scaling.can_measure", lambda: False)  # memory is that of further processes
    names = [tmp_path / name for name in ("a.md", "a.json", "a.png")]
    code, out, _ = run("bench", "scaling", "--seconds", 1, "--batch", 2, *(w for name in names for w in ("-o", name)))
    assert code == 0
    assert names[0].read_text() == out
    assert json.loads(names[1].read_text())["batch"] == 2
    assert names[2].read_bytes().startswith(b"\x89PNG")


def test_estimate(run):
    code, out, _ = run("estimate", "resnet-caps-small", "--image-size", 16, "--classes", 3, "--batch", 2)
    assert code == 0
    assert out.count("| yes |") == len(list_routings())
    code, out, _ = run("estimate", "resnet-pool-small", "--image-size", 16, "--batch", 2, "--json")
    assert code == 0
    assert json.loads(out)[0]["routing"] == ""


def test_help_and_version(run):
    code, out, _ = run("--version")
    assert (code, out.split()[0]) == (0, "paircaps")
    for words in (["--help"], ["data", "--help"], ["data", "show", "--help"], ["bench", "data", "--help"]):
        code, out, _ = run(*words)
        assert code == 0
        assert "usage: paircaps" in out


def test_a_full_disk_is_said_in_a_sentence():
    with open("/dev/full", "w") as full:
        words = [sys.executable, "-m", "paircaps", "data", "list"]
        result = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True)
    assert result.returncode == 1
    assert "paircaps: No space left on device" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_reader_that_leaves_early_is_no_error():
    process = start("data", "list")
    process.stdout.close()
    assert process.wait() == 0
    assert process.stderr.read() == ""
    process.stderr.close()


# a shell that runs tests in the background lets its children ignore Ctrl-C: here it must count
HEED = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)}
IGNORE = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_IGN)}


def interrupted_while_torch_loads(**options):
    """A command that is sent Ctrl-C as soon as PyTorch's library is in its memory: exit code, output, errors."""
    process = start("data", "list", **options)
    maps = Path(f"/proc/{process.pid}/maps")
    try:
        while "libtorch" not in maps.read_text() and process.poll() is None:
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        out, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    return process.returncode, out, errors


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs /proc to see what a process has loaded")
def test_ctrl_c_while_torch_loads_ends_quietly_too():
    assert interrupted_while_torch_loads(**HEED) == (130, "", "paircaps: stopped\n")
    code, out, errors = interrupted_while_torch_loads(**IGNORE)  # as under nohup
    assert (code, errors) == (0, "")
    assert "fashion-mnist" in out


def test_ctrl_c_ends_quietly():
    process = start("bench", "data", "--repeats", 100_000, env={**os.environ, "OMP_NUM_THREADS": "1"}, **HEED)
    try:
        assert process.stderr.readline().startswith("timing the loader")
        time.sleep(1)
        process.send_signal(signal.SIGINT)
        out, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130
    assert errors == "paircaps: stopped\n"
    assert out == ""


def test_check_takes_a_split_and_options(run, tmp_path):
    for label in ("a", "b"):
        for number in range(9):
            (tmp_path / label).mkdir(exist_ok=True)
            Image.new("L", (8, 8), 10 * number).save(tmp_path / label / f"{number}.png")
    code, out, _ = run("data", "check", tmp_path, "--split", "train", "--option", "seed=3", "--option", "channels=1")
    assert code == 0
    assert "images of 32×32×1, 2 classes" in out
    assert out.count("good") == 1
    (tmp_path / "a" / "bad.png").write_text("no picture")
    code, out, _ = run("data", "check", tmp_path, "--split", "train", "--option", "test_fraction=1e-9")
    assert code == 1
    assert "bad.png: not a PNG" in out


def test_check_draws_what_is_made(run, monkeypatch):
    drawn = []
    draw = OverlappingDigits.draw
    monkeypatch.setattr(
        OverlappingDigits, "draw", lambda self, base, row, plan: drawn.append(row) or draw(self, base, row, plan)
    )
    code, _, _ = run("data", "check", "multi-glyphs", "--split", "test")
    assert code == 0
    assert sum(map(len, drawn)) == 2_000


def test_a_terminal_without_our_letters_and_no_terminal_at_all():
    words = [sys.executable, "-m", "paircaps", "data", "list"]
    ascii_only = subprocess.run(words, capture_output=True, text=True, env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert (ascii_only.returncode, ascii_only.stderr) == (0, "")
    assert "28?28?1" in ascii_only.stdout
    closed = subprocess.run(["sh", "-c", f"{sys.executable} -m paircaps data list >&-"], capture_output=True, text=True)
    assert (closed.returncode, closed.stderr) == (0, "")
