"""The pages tell the truth: their code runs, their tree is the tree, the tests they name exist."""

import doctest
import re
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path

import pytest

import paircaps.capsules
import paircaps.testing

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


@pytest.mark.parametrize("module", [paircaps.capsules, paircaps.testing], ids=lambda module: module.__name__)
def test_examples_in_docstrings_run(module):
    outcome = doctest.testmod(module)
    assert outcome.attempted > 0
    assert outcome.failed == 0


def tree_of_the_readme():
    """Paths of the README's tree, folders by their indentation."""
    text = (ROOT / "README.md").read_text()
    tree = re.search(r"## The tree\n\n```\n(.*?)```", text, flags=re.S)
    assert tree
    folders = []
    for line in tree.group(1).splitlines():
        depth = (len(line) - len(line.lstrip())) // 2
        name = line.split()[0]
        folders[depth:] = [name.rstrip("/")]
        if not name.endswith("/"):
            assert len(line.split(maxsplit=1)) == 2, f"{name} has no line of its own"
            yield "/".join(folders)


def test_the_readme_has_a_line_for_every_file():
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True).stdout.split()
    if not tracked:
        pytest.skip("not a git checkout")
    listed = set(tree_of_the_readme())
    unlisted = [path for path in tracked if not any(fnmatch(path, line) for line in listed)]
    assert set(unlisted) <= {"README.md", ".gitignore"}
    assert all(any(ROOT.glob(line)) for line in listed)


def test_every_test_that_the_equation_map_names_exists():
    tests = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    named = re.findall(r"`(test_\w+)`", (ROOT / "docs" / "equations.md").read_text())
    assert len(named) > 10
    for name in named:
        assert f"def {name}(" in tests, name


def test_links_between_pages_lead_somewhere():
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
