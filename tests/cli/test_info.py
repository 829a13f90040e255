"""`paircaps info`: what a report of a bug needs."""

import tomllib
from pathlib import Path

import paircaps
from paircaps._utils import extras
from paircaps._utils.machine import describe_machine


def facts(out):
    return {name.strip(): value.strip() for name, value in (line.split("  ", 1) for line in out.splitlines())}


def test_it_prints_versions_processor_and_extras(run):
    code, out, errors = run("info")
    assert (code, errors) == (0, "")
    found = facts(out)
    assert {name: found[name] for name in describe_machine()} == {k: str(v) for k, v in describe_machine().items()}
    assert found["paircaps"] == paircaps.__version__
    assert {"system", "gpu", "extra train", "extra serve", "extra tensorboard"} <= set(found)


def test_it_names_what_an_extra_lacks(run, monkeypatch):
    monkeypatch.setattr(extras, "_is_installed", lambda module: module not in ("uvicorn", "python_multipart"))
    found = facts(run("info")[1])
    assert found["extra serve"] == "lacks python-multipart, uvicorn"
    assert found["extra train"] == "installed"


def test_the_extras_have_the_packages_of_pyproject():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    declared = project["optional-dependencies"]
    for extra in extras.EXTRAS:
        needs = {*declared[extra], *(declared["train"] if "paircaps[train]" in declared[extra] else ())}
        needs -= {"paircaps[train]"}
        names = {need.split(">=")[0] for need in needs}
        assert {extras._distribution(module) for module in extras.EXTRAS[extra]} == names
