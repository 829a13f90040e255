"""The pages tell the truth: their code runs, the files and tests they name exist."""

import doctest
import json
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from paircaps._utils.machine import describe_machine
from paircaps.training import train
from paircaps.training.recipes import load_recipe

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCKS = [
    pytest.param(block, id=f"{page.name}-{number}")
    for page in PAGES
    for number, block in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.S))
]


@pytest.mark.parametrize("block", BLOCKS)
def test_python_on_a_page_runs_and_prints_what_it_says(block, tmp_path):
    result = subprocess.run([sys.executable, "-c", block], capture_output=True, text=True, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    promised = re.findall(r"print\(.*\)  # (.*)", block)
    for sizes, line in zip(promised, result.stdout.splitlines(), strict=True):
        assert line.replace("torch.Size([", "(").replace("])", ")").replace(") (", "), (") == sizes


def modules_with_examples():
    """Names of the modules whose source has a prompt of the interpreter."""
    source = ROOT / "src"
    paths = [path for path in sorted(source.rglob("*.py")) if ">>> " in path.read_text()]
    return [".".join(path.relative_to(source).with_suffix("").parts).removesuffix(".__init__") for path in paths]


@pytest.mark.parametrize("module", modules_with_examples())
def test_examples_in_docstrings_run(module):
    outcome = doctest.testmod(import_module(module))
    assert outcome.attempted > 0  # those of a nested function, or of one that hides its docstring, are not found
    assert outcome.failed == 0


def named_files(page):
    """Paths below src/paircaps that a page names in backticks, as ``votes/lazy_votes.py`` or ``layers/``."""
    return {name for name in re.findall(r"`([\w./-]+?)`", page.read_text()) if name.endswith((".py", ".toml", "/"))}


def test_files_that_the_architecture_page_names_exist():
    page = ROOT / "docs" / "architecture.md"
    places = [ROOT, ROOT / "src" / "paircaps"]
    lost = [name for name in named_files(page) if not any((place / name).exists() for place in places)]
    assert lost == []


def test_the_architecture_page_names_every_room():
    named = named_files(ROOT / "docs" / "architecture.md")
    source = ROOT / "src" / "paircaps"
    rooms = {f"{path.name}/" for path in source.iterdir() if path.is_dir() and path.name != "__pycache__"}
    files = {path.name for path in source.glob("*.py")}
    assert rooms | files - {"__init__.py", "__main__.py"} <= named


def test_every_test_that_the_equation_map_names_exists():
    tests = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    named = re.findall(r"`(test_\w+)`", (ROOT / "docs" / "equations.md").read_text())
    assert len(named) > 10
    for name in named:
        assert f"def {name}(" in tests, name


def documented_keys(title):
    """Pairs of a kind of rows and a key of the table below a title of the page on training."""
    page = (ROOT / "docs" / "training.md").read_text()
    section = re.split(r"\n##", page.split(f"### {title}\n")[1])[0]
    return set(re.findall(r"^\| `?(\w+)`? \| `(\w+)` \|", section, flags=re.M))


def keys_by_kind(path, kind_of):
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return {(kind_of(row), key) for row in rows for key in row}


def expand(documented, kinds):
    return {(kind, key) for of, key in documented for kind in (kinds if of == "all" else [of])}


def test_every_key_that_a_run_writes_is_documented_and_no_other(tmp_path):
    sections = {
        "train": {"epochs": 1, "batch_size": 32, "log_every": 1, "precision": "fp32"},
        "data": {"limit": 80},
        "model": {"options": {"widths": [8, 8, 8], "primary_groups": 2}},
        "loss": {"decoder": "dense"},
        "evaluate": {"settle": 1, "views": "flip"},
        "run": {"threads": 1},
    }
    train(load_recipe("glyphs", sections), tmp_path)
    found = keys_by_kind(tmp_path / "metrics.jsonl", lambda row: row["kind"])
    assert found == expand(documented_keys("Keys of metrics.jsonl"), ["step", "epoch", "test"])
    places = ["start", "step", "end"]
    found = keys_by_kind(tmp_path / "timing.jsonl", lambda row: next(place for place in places if place in row))
    assert found == expand(documented_keys("Keys of timing.jsonl"), places)
    page = (ROOT / "docs" / "training.md").read_text()
    described = next(line for line in page.splitlines() if line.startswith("| start | `machine` |")).split("|")[3]
    assert re.findall(r"`(\w+)`", described) == list(describe_machine())


def test_links_between_pages_lead_somewhere():
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
