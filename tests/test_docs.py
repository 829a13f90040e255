"""The pages tell the truth: their code runs, their commands exist, the files, headings and tests they name do too."""

import argparse
import doctest
import json
import re
import shlex
from importlib import import_module

import pytest
from pages import FENCED, PAGES, ROOT, command_lines

from paircaps._utils.machine import describe_machine
from paircaps.cli import COMMANDS, build_parser
from paircaps.cli.names import shipped_recipes
from paircaps.cli.recipe_keys import train_parser
from paircaps.training import train
from paircaps.training.recipes import load_recipe

ALL_PAGES = [
    *PAGES,
    *(ROOT / name for name in ("CONTRIBUTING.md", "CHANGELOG.md", "LOG.md")),
    *sorted((ROOT / "results").rglob("*.md")),
    *sorted(path for path in (ROOT / "docs").rglob("*.ipynb") if ".ipynb_checkpoints" not in path.parts),
]
"""Pages whose links and commands are checked: Markdown, and the Markdown cells of notebooks."""

BLOCKS = [
    pytest.param(block, id=f"{page.name}-{number}")
    for page in PAGES
    for number, block in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.S))
]


@pytest.mark.parametrize("block", BLOCKS)
def test_python_on_a_page_runs_and_prints_what_it_says(block, forks, tmp_path):
    code, printed, errors = forks.run(block, tmp_path)
    assert code == 0, errors
    promised = re.findall(r"print\(.*\)  # (.*)", block)
    for sizes, line in zip(promised, printed.splitlines(), strict=True):
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
    """Pairs of a kind of rows and a key of the table below a title of the page on the files of a run."""
    page = (ROOT / "docs" / "run-folder.md").read_text()
    section = re.split(r"\n##", page.split(f"## {title}\n")[1])[0]
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
    masks = {"train": sections["train"], "data": sections["data"], "run": sections["run"], "evaluate": {"settle": 1}}
    train(load_recipe("segment-glyphs", masks), tmp_path / "masks")
    found |= keys_by_kind(tmp_path / "masks" / "metrics.jsonl", lambda row: row["kind"])
    assert found == expand(documented_keys("Keys of metrics.jsonl"), ["step", "epoch", "test"])
    places = ["start", "step", "end"]
    found = keys_by_kind(tmp_path / "timing.jsonl", lambda row: next(place for place in places if place in row))
    assert found == expand(documented_keys("Keys of timing.jsonl"), places)
    page = (ROOT / "docs" / "run-folder.md").read_text()
    described = next(line for line in page.splitlines() if line.startswith("| start | `machine` |")).split("|")[3]
    assert re.findall(r"`(\w+)`", described) == list(describe_machine())


def markdown_of(page):
    """Text of a page; of a notebook, that of its Markdown cells."""
    if page.suffix != ".ipynb":
        return page.read_text()
    cells = json.loads(page.read_text())["cells"]
    return "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")


def prose(text):
    """A page without its blocks of code and without code within lines."""
    return re.sub(r"(`+)(?!`).+?(?<!`)\1(?!`)", "", FENCED.sub("", text))


def links(text):
    """Targets of the links and pictures of a page that lead to other pages and files, in Markdown or HTML."""
    found = re.findall(r"\]\(\s*<?([^)\s>]+)", prose(text)) + re.findall(r"\b(?:src|href)=\"([^\"]+)\"", prose(text))
    return [target for target in found if not re.match(r"[a-z][a-z+.-]*:", target)]


def anchors(text):
    """Anchors of a page: ids that it sets itself, and its headings as GitHub makes anchors of them."""
    found = set(re.findall(r"\b(?:id|name)=\"([^\"]+)\"", text))
    for heading in re.findall(r"^#{1,6} +(.+?)(?: +#+)? *$", FENCED.sub("", text), flags=re.M):
        shown = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading)  # a link shows its text alone
        anchor = re.sub(r"[^\w\- ]", "", shown.lower()).replace(" ", "-")
        number = next(number for number in range(1000) if (f"{anchor}-{number}" if number else anchor) not in found)
        found.add(f"{anchor}-{number}" if number else anchor)
    return found


def lost_links(page):
    """Links of a page that lead to no file, or to no heading of the page that they name."""
    lost = []
    for target in links(markdown_of(page)):
        path, _, anchor = target.partition("#")
        file = page.parent / path if path else page
        has_headings = file.suffix in (".md", ".ipynb")
        if not file.exists() or (anchor and has_headings and anchor not in anchors(markdown_of(file))):
            lost.append(target)
    return lost


@pytest.mark.parametrize("page", ALL_PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere(page):
    assert lost_links(page) == []


def test_a_link_to_a_missing_file_or_heading_is_lost(tmp_path):
    (tmp_path / "other.md").write_text("# Keys of `a.jsonl`\n\n## Twice\n\n## Twice\n\n```sh\n# no heading\n```\n")
    page = tmp_path / "page.md"
    good = "[1](other.md) [2](other.md#keys-of-ajsonl) [3](other.md#twice-1) [4](#a-page-its-end) `[5](x)` [6](https://a.b#c)"
    bad = "[7](lost.md) [8](other.md#twice-2) [9](other.md#no-heading) ![10](lost.png) [11](#lost)"
    page.write_text(f"# A page: its end\n{good}\n{bad}")
    assert lost_links(page) == ["lost.md", "other.md#twice-2", "other.md#no-heading", "lost.png", "#lost"]


def complaint(words):
    """What the parser of the command line says against the words of a command; None if it takes them."""
    name, *rest = words
    if name not in COMMANDS and not name.startswith("-"):
        return f"no command {name}"
    parser, rest = (_parser_of_train(), _keys_of_train(rest)) if name == "train" else (build_parser(), words)
    try:
        options = parser.parse_args(rest)
    except (SystemExit, argparse.ArgumentError) as error:
        return None if getattr(error, "code", 2) == 0 else str(error)
    recipe = getattr(options, "recipe", "") if name == "train" else ""
    if recipe and recipe != "..." and "/" not in recipe and not recipe.endswith(".toml"):
        return None if recipe in [*shipped_recipes(), "RECIPE"] else f"no recipe {recipe}"
    return None


def _parser_of_train():
    parser = train_parser()
    parser.allow_abbrev = False
    return parser


def _keys_of_train(words):
    """The words of ``train``; keys within a dictionary, such as ``--model.options.widths``, become the dictionary's."""
    return [re.sub(r"^(--\w+\.\w+)\.\w+", r"\1", word) for word in words]


@pytest.mark.parametrize("page", ALL_PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_on_a_page_parse(page, capsys):
    for words in command_lines(markdown_of(page)):
        problem = complaint(words)
        assert problem is None, f"paircaps {shlex.join(words)}: {problem}\n{capsys.readouterr().err}"


@pytest.mark.parametrize(
    "command",
    [
        "paircaps trian glyphs",
        "paircaps data lists",
        "paircaps evaluate runs/a --no-such-option",
        "paircaps train glyphs --train.stepz 3",
        "paircaps train glyph --out runs/a",
        "paircaps bench layer --seconds few",
        'eval "$(paircaps completion powershell)"',
        "torchrun --nproc-per-node 2 -m paircaps train glyphs --outt runs/two",
    ],
)
def test_a_wrong_command_on_a_page_is_found(command):
    (words,) = command_lines(f"```sh\n{command}  # a comment\n```\n")
    assert complaint(words)


def test_right_commands_on_a_page_are_taken():
    first = "paircaps train mine.toml --out a --model.options.widths [4] > b"
    page = f"```\n{first}\nA=1 paircaps demo && paircaps --help\n```"
    assert [complaint(words) for words in command_lines(page)] == [None] * 3
