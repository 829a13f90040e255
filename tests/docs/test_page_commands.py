"""Commands on pages are run: one after the other, in one folder a page, with very short trainings.

Of long commands the length alone is changed. What is not run here says why in ``NOT_RUN``; that its words are right is
checked in ``tests/test_docs.py``.
"""

import glob
import re
import shutil
from itertools import pairwise
from pathlib import Path

import pytest
from pages import PAGES, ROOT, command_lines
from PIL import Image
from training.shapes import draw_shapes

from paircaps.cli import main
from paircaps.data import list_datasets
from paircaps.data.files.locate import missing_splits
from paircaps.data.registry import FOLDER
from paircaps.training.recipes import list_recipes, load_recipe

NOT_RUN = {
    "export": "takes seconds each, and --quantize a network that is trained to its end: tests/export",
    "serve": "runs until it is stopped: tests/cli/test_serve.py",
    "demo": "takes most of a minute: tests/paper/test_demo.py",
    "bench": "takes minutes: tests/bench",
    "reproduce": "trains for hours: tests/cli/test_reproduce.py",
    "report": "of what reproduce has trained: tests/paper/report",
    "replay": "needs a training that failed: tests/cli/test_train.py",
}
SHORT = ["--data.limit", "60", "--train.batch_size", "20", "--run.threads", "1", "--quiet"]
TINY = [*SHORT, "--train.epochs", "1"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Run of a tiny training with a decoder, which stands for every run that a page takes for granted."""
    folder = tmp_path_factory.mktemp("trained") / "run"
    assert main(["train", "glyphs", "--loss.decoder", "dense", "--out", str(folder), *TINY]) == 0
    return folder


@pytest.fixture
def desk(tmp_path, monkeypatch):
    """Working folder with what the pages take for granted: pictures, a routing of one's own."""
    monkeypatch.chdir(tmp_path)
    draw_shapes(tmp_path / "pictures", each=8)
    shutil.copytree(tmp_path / "pictures", tmp_path / "pets")
    shutil.copytree(tmp_path / "pictures", tmp_path / "path" / "to" / "pets")
    shutil.copytree(tmp_path / "pictures" / "circle", tmp_path / "folder")
    draw_masked_cells(tmp_path)
    for name in ("picture.png", "seven.png"):
        Image.new("L", (40, 30), 200).save(tmp_path / name)
    page = (ROOT / "docs" / "add-a-routing.md").read_text()
    routing = next(block for block in re.findall(r"```python\n(.*?)```", page, flags=re.S) if '"median"' in block)
    (tmp_path / "my_routing.py").write_text(routing)
    return tmp_path


def draw_masked_cells(folder):
    """Pictures in ``cells`` with a square of one class or another, whose masks are in ``cells-masks``."""
    for name in ("cells", "cells-masks"):
        (folder / name).mkdir()
    (folder / "cells-masks" / "classes.txt").write_text("bright\ndark\n")
    for number in range(12):
        picture, mask = Image.new("L", (40, 30), 128), Image.new("P", (40, 30))
        mask.putpalette([0, 0, 0, 255, 160, 0, 0, 128, 255])
        square = (5 + number, 4, 20 + number, 20)
        picture.paste(255 if number % 2 else 0, square)
        mask.paste(1 if number % 2 else 2, square)
        picture.save(folder / "cells" / f"{number}.png")
        mask.save(folder / "cells-masks" / f"{number}.png")


def prepare(words, trained):
    """Words of a command as they are run, with runs in place that it reads and nobody has trained."""
    writes = {following for word, following in pairwise(words) if word in ("--out", "-o")}
    for word in words[1:]:
        place = re.sub(r"^paircaps-demo$", "paircaps-demo/fm-agreement", word)
        if re.match(r"(runs|paircaps-demo)/[\w-]+$", place) and word not in writes and not Path(place).exists():
            shutil.copytree(trained, place)
    found = [sorted(glob.glob(word)) or [word] if "*" in word else [word] for word in words]
    words = [word for several in found for word in several]
    if "--hours" in words:  # how many steps fit depends on how busy the machine is: tests/training/test_prepare.py
        at = words.index("--hours")
        words = words[:at] + words[at + 2 :]
    if words[0] == "train" and "--print-config" not in words:
        words += SHORT if "--train.epochs" in words else TINY
    return words


def why_not(words):
    """Why a command cannot be run here; None if it can."""
    if words[0] in NOT_RUN:
        return NOT_RUN[words[0]]
    if "--page" in words:
        return "needs npm: tests/export"
    if words[:2] == ["data", "get"]:
        return "downloads"
    if "..." in words or any(word.isupper() and word.isalpha() for word in words):
        return "is a pattern, not a command"
    if any(word.startswith("results/") for word in words):
        return "reads and writes the results of this repository: tests/test_results.py"
    lost = sorted({name for name in datasets(words) if missing_splits(name)})
    return f"needs {', '.join(lost)}" if lost else None


def datasets(words):
    """Names of the published datasets that a command reads."""
    named = {word for word in words if word in list_datasets()}
    if words[0] == "train" and words[1] in list_recipes():
        data = load_recipe(words[1]).data
        named |= {data.name, data.test} & ({*list_datasets()} - {FOLDER})
    return named


def run_command(words, capsys, forks):
    """Exit code, output and errors of a command; one with a plug-in has a process of its own."""
    if "--plugin" in words:
        return forks.run(f"import sys; from paircaps.cli import main; sys.exit(main({words}))")
    capsys.readouterr()
    try:
        code = main(words)
    except SystemExit as stop:
        code = stop.code or 0
    return code, *capsys.readouterr()


def run_page(page, trained, capsys, forks):
    """Run the commands of a page and return those that were run; one that fails is an error."""
    done = []
    for words in command_lines(page.read_text()):
        if why_not(words):
            continue
        printed = words[0] == "train" and "--print-config" in words
        code, output, errors = run_command(prepare(words, trained), capsys, forks)
        assert code == 0, f"paircaps {' '.join(words)}: {errors}"
        if printed:  # the pages write it to this file
            Path("mine.toml").write_text(output)
        done.append(words)
    return done


WITH_COMMANDS = [page for page in PAGES if any(not why_not(words) for words in command_lines(page.read_text()))]


@pytest.mark.parametrize("page", WITH_COMMANDS, ids=lambda page: str(page.relative_to(ROOT)))
@pytest.mark.usefixtures("desk")
def test_commands_on_a_page_run(page, trained, capsys, forks):
    assert run_page(page, trained, capsys, forks)


@pytest.mark.usefixtures("desk")
def test_a_command_that_fails_on_a_page_is_found(tmp_path, trained, capsys, forks):
    page = tmp_path / "page.md"
    page.write_text("```sh\npaircaps predict runs/glyphs no-such-picture.png\n```\n")
    with pytest.raises(AssertionError, match="no-such-picture"):
        run_page(page, trained, capsys, forks)
