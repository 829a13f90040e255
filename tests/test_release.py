"""What a release publishes: a wheel and an sdist with the files of the package, of one version, and small enough."""

import runpy
import sys
import tarfile
import tomllib
import zipfile

import pytest
from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder
from pages import ROOT

import paircaps

CHECK = runpy.run_path(str(ROOT / ".ci" / "release_check.py"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Paths of the wheel and the sdist."""
    folder = tmp_path_factory.mktemp("dist")
    kinds = {"wheel": (WheelBuilder, "standard"), "sdist": (SdistBuilder, "standard")}
    found = {}
    for kind, (builder, version) in kinds.items():
        (path,) = builder(str(ROOT)).build(directory=str(folder), versions=[version])
        found[kind] = folder / path
    return found


def problems(path, version=paircaps.__version__):
    return CHECK["wheel_problems" if path.suffix == ".whl" else "sdist_problems"](path, version)


@pytest.mark.parametrize("kind", ["wheel", "sdist"])
def test_it_has_the_files_of_the_package_and_no_others(built, kind):
    assert problems(built[kind]) == []


def test_the_wheel_fits_every_machine_and_has_the_source_of_the_kernel(built):
    assert built["wheel"].name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(built["wheel"]) as archive:
        kernel = "paircaps/votes/kernels/votes.c"
        assert archive.read(kernel) == (ROOT / "src" / kernel).read_bytes()
        assert {"paircaps/py.typed", "paircaps/training/recipes/glyphs.toml"} <= set(archive.namelist())
        assert not [name for name in archive.namelist() if name.endswith((".so", ".o", ".dylib", ".pyd"))]


def test_a_wheel_that_lacks_a_file_or_has_one_too_many_is_found(built, tmp_path):
    copy = tmp_path / built["wheel"].name
    with zipfile.ZipFile(built["wheel"]) as whole, zipfile.ZipFile(copy, "w", zipfile.ZIP_DEFLATED) as other:
        for name in whole.namelist():
            if not name.endswith("py.typed"):
                other.writestr(name, whole.read(name))
        other.writestr("paircaps/runs/model.safetensors", b"")
    lacks, has = problems(copy)
    assert lacks == f"{copy.name}: lacks paircaps/py.typed"
    assert has == f"{copy.name}: should not have paircaps/runs/model.safetensors"


def test_an_sdist_with_results_is_found(built, tmp_path):
    copy = tmp_path / built["sdist"].name
    top = f"paircaps-{paircaps.__version__}"
    with tarfile.open(built["sdist"]) as whole, tarfile.open(copy, "w:gz") as other:
        for member in whole.getmembers():
            other.addfile(member, whole.extractfile(member))
        other.add(ROOT / "README.md", f"{top}/results/README.md")
    assert problems(copy) == [f"{copy.name}: should not have results/README.md"]


@pytest.mark.parametrize("kind", ["wheel", "sdist"])
def test_one_that_is_too_large_or_of_another_version_is_found(built, kind, monkeypatch):
    path = built[kind]
    monkeypatch.setitem(CHECK["size_problems"].__globals__, "MOST", 10_000)
    assert problems(path) == [f"{path.name}: {path.stat().st_size:,} bytes are too many, 10,000 at most"]
    assert f"{path.name}: not of 9.9" in problems(path, "9.9")


def test_the_version_stands_in_one_place(monkeypatch):
    assert CHECK["version_of_source"]() == paircaps.__version__
    assert PROJECT["project"]["dynamic"] == ["version"]
    assert "version" not in PROJECT["project"]
    assert PROJECT["tool"]["hatch"]["version"] == {"path": "src/paircaps/__init__.py"}


def test_nothing_but_hatchling_builds_it():
    assert [need.split(">")[0] for need in PROJECT["build-system"]["requires"]] == ["hatchling"]
    assert PROJECT["build-system"]["build-backend"] == "hatchling.build"


def test_a_tag_of_another_version_is_refused_before_anything_is_built(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["release_check.py", "--tag", "v9.9"])
    with pytest.raises(SystemExit, match=rf"tag of version {paircaps.__version__} must be .*, got 'v9.9'"):
        CHECK["main"]()
