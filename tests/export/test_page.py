"""A page without a server, before any browser sees it: what is written where, and what is refused."""

import json
import re
import subprocess

import pytest

from paircaps.errors import DataError, PaircapsError
from paircaps.export import export_page, page
from paircaps.export import web_runtime as runtime
from paircaps.export.page import LIST, page_files


@pytest.fixture
def quick(monkeypatch, page_networks):
    """Write a page of one network, whose graphs are not made."""
    monkeypatch.setattr(page, "runtime_files", lambda: {"ort.js": b"", "ort-wasm.js": b"", "ort-wasm.wasm": b""})
    monkeypatch.setattr(page, "_graphs", lambda *_: {"network": b"graph"})
    monkeypatch.setattr(page, "_facts", lambda served: served.facts())
    return lambda place: export_page({"masks": page_networks["masks"]}, place)


def test_the_page_has_every_file_that_it_names():
    files = page_files()
    named = {
        name
        for content in files.values()
        for name in re.findall(r'"(?:\./)?([\w-]+\.(?:js|css|svg))"', content.decode())
    }
    assert {"page.js", "answers.js", "prepare.js", "worker.js", "style.css", "icon.svg"} <= named
    assert named <= set(files)
    html = files["index.html"].decode()
    assert "<!--" not in html
    assert 'href="docs"' not in html
    assert "Content-Security-Policy" in html


def test_the_list_has_the_fields_of_the_interface(exported, page_networks):
    from paircaps.serve.networks import Networks

    listed = json.loads((exported.place / LIST).read_bytes())
    served = [facts.model_dump() for facts in Networks(page_networks).facts]
    assert [facts["name"] for facts in listed["models"]] == list(exported.networks) == [one["name"] for one in served]
    for ours, theirs in zip(listed["models"], served, strict=True):
        assert {key: value for key, value in theirs.items() if key != "sliders"}.items() <= ours.items()
        assert (ours["sliders"] is not None) == ours["draws"], "measured when the page is written"
    there = {path.relative_to(exported.place).as_posix() for path in exported.place.rglob("*") if path.is_file()}
    assert there == set(listed["page"]) == set(exported.sizes)
    assert exported.total == sum(path.stat().st_size for path in exported.place.rglob("*") if path.is_file())
    assert sum(exported.parts().values()) == exported.total


def test_a_page_is_replaced_and_nothing_else_is(quick, tmp_path):
    place = tmp_path / "out"
    place.mkdir()
    first = quick(place)
    (place / "networks" / "old.onnx").write_text("mine")
    with pytest.raises(DataError, match=r"of no page of this command, such as networks/old\.onnx"):
        quick(place)
    (place / "networks" / "old.onnx").unlink()
    assert quick(place) == first
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda place: place.write_text("mine"), "is a file; a page is a folder"),
        (lambda place: (place.mkdir(), (place / "a.txt").write_text("mine")), r"such as a\.txt"),
        (
            lambda place: (place.mkdir(), (place / LIST).write_text('{"page": ["models.json"]}')),
            r"such as models\.json",
        ),
    ],
    ids=["file", "folder", "foreign list"],
)
def test_a_place_that_is_taken_is_refused(quick, tmp_path, make, words):
    make(tmp_path / "out")
    before = {path: path.is_file() and path.read_text() for path in tmp_path.rglob("*")}
    with pytest.raises(DataError, match=words):
        quick(tmp_path / "out")
    assert {path: path.is_file() and path.read_text() for path in tmp_path.rglob("*")} == before


def test_a_page_that_fails_leaves_the_old_one(quick, tmp_path, monkeypatch):
    quick(tmp_path / "out")
    before = sorted(tmp_path.rglob("*"))

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.write_bytes", full)
    with pytest.raises(DataError, match="cannot write: No space left"):
        quick(tmp_path / "out")
    assert sorted(tmp_path.rglob("*")) == before


def test_a_graph_that_answers_otherwise_is_not_written(page_networks, tmp_path, monkeypatch):
    monkeypatch.setattr(page, "runtime_files", dict)
    monkeypatch.setattr(page, "differences", lambda *_: {"activation": 0.5})
    with pytest.raises(PaircapsError, match="differs from masks by activation"):
        export_page({"masks": page_networks["masks"]}, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


# --- ONNX Runtime Web ------------------------------------------------------------------------------------------------


def test_the_runtime_is_kept_and_a_damaged_file_is_not_taken(web_runtime, tmp_path, monkeypatch):
    monkeypatch.setattr(runtime, "_package", lambda folder: b"package")
    monkeypatch.setattr(runtime, "_unpacked", lambda package: dict(web_runtime))
    assert runtime.runtime_files(tmp_path).keys() == web_runtime.keys()
    monkeypatch.setattr(runtime, "_package", lambda folder: pytest.fail("it is there"))
    assert runtime.runtime_files(tmp_path) == web_runtime
    next(tmp_path.rglob("ort.js")).write_text("damaged")
    monkeypatch.setattr(runtime, "_package", lambda folder: b"package")
    assert runtime.runtime_files(tmp_path) == web_runtime


def no_npm(*_, **__):
    raise subprocess.CalledProcessError(1, "npm")


@pytest.mark.parametrize(("npm", "words"), [(None, "is not installed"), ("npm", "is there a network connection")])
def test_without_a_network_one_sentence_says_what_to_do(tmp_path, monkeypatch, npm, words):
    monkeypatch.setattr("shutil.which", lambda name: npm)
    monkeypatch.setattr("subprocess.run", no_npm)
    with pytest.raises(DataError, match=words) as error:
        runtime.runtime_files(tmp_path)
    assert "npm pack onnxruntime-web@" in str(error.value)
    assert str(tmp_path) in str(error.value)


def test_another_package_is_refused(tmp_path):
    folder = tmp_path / f"{runtime.PACKAGE}-{runtime.VERSION}"
    folder.mkdir()
    (folder / f"{folder.name}.tgz").write_bytes(b"another")
    with pytest.raises(DataError, match=r"what came is another onnxruntime-web .* expected sha512-"):
        runtime.runtime_files(tmp_path)
