"""Routings, models, datasets and recipes of other packages and files, in new processes, as a person uses them."""

import json
import os
import re
from pathlib import Path

import pytest

from paircaps._utils.plugins import VARIABLE

PAGE = Path(__file__).parents[2] / "docs" / "add-a-routing.md"
EXAMPLE = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.S)[0]
"""The file of the page, exactly as it is written there."""
ROUTING = f'{EXAMPLE}\nprint("this must not end up in the output of a command")\n'
PACKAGE = '''
from functools import partial

import tiny_caps.routing
from paircaps import register_model
from paircaps.data import load_dataset, register_dataset
from paircaps.models import CapsNet
from paircaps.training.recipes import register_recipe


def few_glyphs(split="train", root=None, **options):
    return load_dataset("glyphs", split, root, length=64, **options)


register_dataset("few-glyphs", few_glyphs)
register_model("tiny-capsnet", partial(CapsNet, filters=8))
register_recipe(
    "tiny",
    """
base = "glyphs"
[model]
routing = "median"
[data]
name = "few-glyphs"
[augment]
crop_size = 12
[train]
steps = 2
batch_size = 16
""",
)
'''
WORDS = ("--train.steps", "2", "--train.batch_size", "8", "--data.limit", "40", "--augment.crop_size", "12", "--quiet")


@pytest.fixture(autouse=True)
def _own_folders(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.delenv(VARIABLE, raising=False)


@pytest.fixture
def routing_file(tmp_path):
    path = tmp_path / "my_routing.py"
    path.write_text(ROUTING)
    return path


def install(monkeypatch, folder, name, files, module):
    """Put a package into a folder as pip would, with an entry point, and let new processes find it."""
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    facts = folder / f"{name}-1.0.dist-info"
    facts.mkdir(parents=True)
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text(f"[paircaps]\n{name} = {module}\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")]))


@pytest.fixture
def tiny_caps(monkeypatch, tmp_path):
    files = {"tiny_caps/__init__.py": PACKAGE, "tiny_caps/routing.py": ROUTING}
    install(monkeypatch, tmp_path / "site", "tiny-caps", files, "tiny_caps")


@pytest.fixture
def start(forks):
    """Run a command in a new process: output and errors."""

    def start(*words, code=0, cwd=None):
        words = list(map(str, words))
        found, out, errors = forks.run(f"import sys; from paircaps.cli import main; sys.exit(main({words}))", cwd)
        assert "Traceback" not in errors, errors
        assert found == code, errors
        return out, errors

    return start


@pytest.fixture
def python(forks):
    """Run code in a new process: output and errors."""

    def python(code):
        return tuple(text.strip() for text in forks.run(code)[1:])

    return python


def test_an_installed_package(start, python, tiny_caps, tmp_path):
    run = tmp_path / "run"
    out, _ = start("train", "tiny", "--out", run, "--quiet")
    assert "finished after 2 steps" in out
    assert "this must not" not in out
    facts = json.loads((run / "model.json").read_text())
    assert facts["arguments"]["routing"] == "median"
    assert facts["plugins"] == ["tiny_caps"]
    assert json.loads(start("evaluate", run, "--json")[0])["images"] == 64
    out, _ = python(f"import paircaps; print(paircaps.load({str(run)!r}).spec.arguments['routing'])")
    assert out == "median"


def test_its_names_are_listed(start, tiny_caps):
    assert "few-glyphs" in [row["name"] for row in json.loads(start("data", "list", "--json")[0])]
    assert "tiny" in start("train", "--help")[0]
    assert "tiny-capsnet" in start("estimate", "nothing", code=2)[1]
    assert "| median |" in start("estimate", "tiny-capsnet", "--batch", "2", "--routing", "median")[0]


def test_a_file_named_by_a_command(start, routing_file, tmp_path):
    run, folder = tmp_path / "run", routing_file.parent
    words = ["train", "glyphs", "--model.routing", "median", "--loss.decoder", "dense", "--out", run, *WORDS]
    assert "unknown routing 'median'" in start(*words, code=2)[1]
    out, _ = start(*words, "--plugin", "./my_routing.py", cwd=folder)
    assert "finished after 2 steps" in out
    assert "this must not" not in out
    assert json.loads((run / "model.json").read_text())["plugins"] == ["my_routing.py"]
    assert "accuracy" in start("evaluate", run, "--limit", "20", "--plugin", routing_file)[0]
    out = tmp_path / "out"
    _, errors = start("explain", run, "-o", out, "--count", "1", "--plugin", routing_file)
    assert sorted(path.name for path in out.iterdir()) == ["perturb-1.png", "reconstruct.png"]
    assert "note: no agreement and tree: MedianAgreement does not say what children contributed" in errors
    start("data", "show", "glyphs", "-o", tmp_path / "a.png", "--columns", "1", "--rows", "1")
    assert start("predict", run, tmp_path / "a.png", f"--plugin={routing_file}", "--json")[0].startswith("{")
    # without it, the error says what is missing, and a file of facts imports nothing
    _, errors = start("predict", run, tmp_path / "a.png", code=1)
    assert "unknown routing 'median'" in errors
    assert "trained with the plug-in my_routing.py" in errors
    assert "--plugin" in errors


def test_the_example_of_the_page_learns(start, tmp_path):
    (tmp_path / "my_routing.py").write_text(EXAMPLE)
    words = ["train", "glyphs", "--plugin", "./my_routing.py", "--model.routing", "median", "--out", "runs/median"]
    short = ["--train.steps", "50", "--data.test_options.length", "500", "--quiet"]
    _, errors = start(*words, *short, cwd=tmp_path)
    assert errors == ""
    words = ["evaluate", "runs/median", "--plugin", "./my_routing.py", "--json"]
    assert json.loads(start(*words, cwd=tmp_path)[0])["accuracy"] > 0.5, "chance is 0.1"


def test_what_a_run_did_not_need_is_not_recorded(start, routing_file, tmp_path):
    run = tmp_path / "run"
    start("train", "glyphs", "--plugin", routing_file, "--out", run, *WORDS)
    assert "plugins" not in json.loads((run / "model.json").read_text())


def test_a_run_that_goes_on_without_its_plugin_is_told_which(start, routing_file, tmp_path):
    words = ["train", "glyphs", "--model.routing", "median", "--out", tmp_path / "run", *WORDS]
    start(*words, "--plugin", routing_file)
    _, errors = start("train", "glyphs", "--out", tmp_path / "run", code=1)
    assert "unknown routing 'median'" in errors
    assert "It was trained with the plug-in my_routing.py" in errors


def test_a_dataset_of_a_plugin_that_is_missing_is_told(start, tmp_path):
    plugin = tmp_path / "my_data.py"
    plugin.write_text(
        "from paircaps.data import load_dataset, register_dataset\n"
        "def few(split='train', root=None, **options):\n"
        "    return load_dataset('glyphs', split, root, length=64, **options)\n"
        "register_dataset('my-glyphs', few)\n"
    )
    run = tmp_path / "run"
    start("train", "glyphs", "--data.name", "my-glyphs", "--out", run, *WORDS, "--plugin", plugin)
    assert json.loads((run / "model.json").read_text())["plugins"] == ["my_data.py"]
    _, errors = start("evaluate", run, code=1)
    assert "my-glyphs" in errors
    assert "It was trained with the plug-in my_data.py" in errors


def test_an_own_routing_is_one_more_row_of_a_reproduced_table(start, routing_file, tmp_path):
    words = ["reproduce", "table3", "--data", "affine-glyphs", "--epochs", "1", "--limit", "40", "--seeds", "1"]
    words += ["--out", tmp_path / "out", "--quiet"]
    plugin = ["--plugin", routing_file]
    assert "no 'median' in these experiments" in start(*words, "--only", "median", code=2)[1]
    assert "unknown routing 'median'" in start(*words, "--set", "model.routing=median", code=2)[1]
    start(*words, *plugin, "--set", "model.routing=median", "--only", "fm")
    folder = tmp_path / "out" / "runs" / "table3" / "affine-glyphs"
    assert sorted(path.name for path in folder.iterdir()) == ["fm", "median"]
    facts = {name: json.loads((folder / name / "seed-0" / "model.json").read_text()) for name in ("fm", "median")}
    assert facts["median"]["plugins"] == ["my_routing.py"]
    assert facts["median"]["trained"]["loss"]["name"] == "cross-entropy"
    assert "plugins" not in facts["fm"]
    report = (tmp_path / "out" / "report.md").read_text()
    assert report.count("\n| median | not in the paper |") == 1
    # the same row again is finished already, and the report without the plug-in says what it lacks
    assert "median, seed 0: was finished already" in start(*words, *plugin, "--only", "median")[1]
    start("report", tmp_path / "out")
    row = next(line for line in (tmp_path / "out" / "report.md").read_text().splitlines() if line[:9] == "| median ")
    assert "seed 0: needs --plugin my_routing.py" in row


def test_the_variable_reaches_python_and_children(start, python, routing_file, monkeypatch):
    monkeypatch.setenv(VARIABLE, str(routing_file))
    assert "'median'" in python("import paircaps; print(paircaps.list_routings())")[0]
    assert python("import paircaps; print(paircaps.create_routing('median', 3))")[0].startswith("MedianAgreement")
    assert "| median |" in start("estimate", "resnet-caps-small", "--batch", "2")[0]


def test_a_command_names_its_plugins_to_the_processes_it_starts(python, routing_file, monkeypatch):
    code = (
        "import os, sys; from paircaps._utils.plugins import load_plugins\n"
        f"load_plugins([{str(routing_file)!r}]); print(os.environ[{VARIABLE!r}])"
    )
    assert python(code)[0].endswith(str(routing_file))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import no_such_thing", "ModuleNotFoundError: No module named 'no_such_thing' (broken.py, line 1)"),
        ("\n1 / 0", "ZeroDivisionError: division by zero (broken.py, line 2)"),
        ("def", "SyntaxError: invalid syntax (broken.py, line 1)"),
        ("import sys; sys.exit(3)", "SystemExit: 3"),
        ("from paircaps import *\nregister_routing('fm', Routing)", "routing 'fm' is already registered"),
    ],
)
def test_a_broken_plugin_is_told_in_a_sentence(start, python, monkeypatch, tmp_path, text, message):
    install(monkeypatch, tmp_path / "site", "broken-caps", {"broken.py": text}, "broken")
    _, errors = python("from paircaps._utils.plugins import load_installed_plugins; load_installed_plugins()")
    assert "plug-in 'broken-caps' of the package broken-caps is left out: cannot be imported: " in errors
    assert message in errors
    _, errors = start("data", "list", "--plugin", "broken", code=1)  # named by the command, it is an error
    assert errors.startswith("paircaps: --plugin broken: cannot be imported: ")
    assert message in errors


def test_a_broken_plugin_breaks_no_command(start, monkeypatch, tmp_path):
    install(monkeypatch, tmp_path / "site", "broken-caps", {"broken.py": "1 / 0"}, "broken")
    out, errors = start("train", "glyphs", "--print-config")  # does not need it, so it is not even imported
    assert ("[train]" in out, errors) == (True, "")
    _, errors = start("estimate", "resnet-caps-small", "--batch", "2")  # lists the routings, and leaves it out
    assert errors.startswith("paircaps: note: plug-in 'broken-caps' of the package broken-caps is left out: ")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no_such_module", "--plugin no_such_module: no module 'no_such_module' is installed"),
        ("", "a plug-in is a module or the path of a .py file, got an empty name"),
        ("my_routing", "for the file of that name write './my_routing.py'"),
        ("./nothing.py", "nothing.py: no such file"),
        ("./", "is a folder"),
    ],
)
def test_a_plugin_that_is_not_there(start, routing_file, name, message):
    assert message in start("data", "list", "--plugin", name, code=1, cwd=routing_file.parent)[1]


def test_facts_of_a_model_import_nothing(start, tmp_path, routing_file):
    """A model.json that names a module, even one that could be imported, runs no code."""
    from explain.small import saved, small_network

    folder = saved(tmp_path / "model", small_network())
    facts = json.loads((folder / "model.json").read_text())
    marker = tmp_path / "marker"
    routing_file.write_text(f"open({str(marker)!r}, 'w')")
    facts["plugins"] = ["my_routing", "./my_routing.py", str(routing_file), 3, None]
    facts["arguments"]["routing"] = "median"
    (folder / "model.json").write_text(json.dumps(facts))
    _, errors = start("predict", folder, "x.png", code=1, cwd=tmp_path)
    assert "my_routing" in errors
    assert not Path(marker).exists()
