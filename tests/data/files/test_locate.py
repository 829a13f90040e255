"""Finding and fetching: the right place, the right file, nothing half-written, no network where none is needed."""

import dataclasses
import gzip
import hashlib
import http.server
import os
import resource
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import requests
from reference.formats import write, write_mnist, write_smallnorb, zip_bytes

from paircaps.data import DataError, load_dataset, registry
from paircaps.data.files import download as fetching
from paircaps.data.files.download import fetch
from paircaps.data.files.locate import data_folders, find, find_file, locate, require_published, user_cache
from paircaps.data.metadata import DataFile
from paircaps.data.registry import all_metadata, require_metadata

CONTENT = os.urandom(300_000)
SVHN = require_metadata("svhn")


@pytest.fixture
def server(monkeypatch):
    """A web server on this machine: {path: content, (status, headers), or a function of the handler}."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    pages, asked = {}, []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            page = pages.get(self.path)
            if callable(page):
                page(self)
            elif isinstance(page, bytes):
                self.send_response(200)
                self.send_header("Content-Length", str(len(page)))
                self.end_headers()
                # pages are small enough for the socket's buffer, and a client may leave after the headers
                with suppress(ConnectionError):
                    self.wfile.write(page)
            else:
                status, headers = page or (404, {})
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", "0")
                self.end_headers()

        def log_message(self, *_):
            pass

    httpd = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=httpd.serve_forever, daemon=True)
    thread.start()
    httpd.pages, httpd.asked = pages, asked
    httpd.url = f"http://127.0.0.1:{httpd.server_address[1]}"
    yield httpd
    httpd.shutdown()
    httpd.server_close()
    thread.join()


def file_at(server, *paths, **changes):
    """A published file with these addresses."""
    known = {"md5": hashlib.md5(CONTENT).hexdigest(), "size": len(CONTENT)} | changes
    return DataFile("file.bin", urls=tuple(server.url + path for path in paths), **known)


def left_behind(folder):
    return sorted(path.name for path in Path(folder).rglob("*") if path.is_file() or not any(path.iterdir()))


@contextmanager
def no_network(monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("the network was touched")

    with monkeypatch.context() as patch:
        patch.setattr(socket.socket, "connect", refuse)
        patch.setattr(socket, "getaddrinfo", refuse)
        yield


def test_a_file_is_fetched_checked_and_kept(server, tmp_path):
    server.pages["/a"] = CONTENT
    path = fetch(SVHN, file_at(server, "/a"), tmp_path)
    assert path == tmp_path / "svhn" / "file.bin"
    assert path.read_bytes() == CONTENT
    assert left_behind(tmp_path) == ["file.bin"]


def test_what_was_fetched_is_found_without_a_network(server, tmp_path, monkeypatch):
    server.pages["/a"] = CONTENT
    fetch(SVHN, file_at(server, "/a"), tmp_path)
    with no_network(monkeypatch):
        assert fetch(SVHN, file_at(server, "/a"), tmp_path).read_bytes() == CONTENT


def test_files_that_are_here_touch_no_network(tmp_path, monkeypatch):
    write_mnist(tmp_path / "mnist")
    with no_network(monkeypatch):
        assert len(load_dataset("mnist", "train", tmp_path, verify=False)) == 20


def test_a_mirror_takes_over_when_an_address_fails(server, tmp_path):
    server.pages |= {"/gone": (404, {}), "/wrong": b"something else", "/good": CONTENT}
    path = fetch(SVHN, file_at(server, "/gone", "/wrong", "/good"), tmp_path)
    assert path.read_bytes() == CONTENT
    assert left_behind(tmp_path) == ["file.bin"]


def test_a_failed_download_says_what_to_fetch_by_hand_and_where_to_put_it(server, tmp_path):
    server.pages |= {"/wrong": b"something else"}
    with pytest.raises(DataError) as caught:
        fetch(SVHN, file_at(server, "/gone", "/wrong"), tmp_path)
    message = str(caught.value)
    assert "404" in message
    md5, other = hashlib.md5(CONTENT).hexdigest(), hashlib.md5(b"something else").hexdigest()
    assert f"/wrong: what came is another file: 14 bytes with md5 {other}, that of file.bin is {md5}" in message
    assert f"\n    {server.url}/gone: 404" in message
    assert f"fetch it by hand (md5 {md5}) and put it at {tmp_path}/svhn/file.bin" in message
    assert left_behind(tmp_path) == []


def test_no_network_at_all_is_said_in_words(tmp_path, monkeypatch):
    file = DataFile("file.bin", md5="0" * 32, urls=("http://127.0.0.1:1/file.bin",))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with pytest.raises(
        DataError, match=r"could not be downloaded\n    http://127.0.0.1:1/file.bin: Connection refused\n    fetch"
    ):
        fetch(SVHN, file, tmp_path)


def test_a_connection_that_breaks_leaves_nothing(server, tmp_path):
    def half(handler):
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(CONTENT)))
        handler.end_headers()
        handler.wfile.write(CONTENT[:1000])

    server.pages["/half"] = half
    with pytest.raises(DataError, match="could not be downloaded"):
        fetch(SVHN, file_at(server, "/half"), tmp_path)
    assert left_behind(tmp_path) == []


def test_an_answer_larger_than_the_file_is_cut_off(server, tmp_path):
    server.pages["/large"] = CONTENT + b"x"
    with pytest.raises(DataError, match="sends more than the published size"):
        fetch(SVHN, file_at(server, "/large"), tmp_path)
    assert left_behind(tmp_path) == []


def test_ctrl_c_leaves_nothing(server, tmp_path, monkeypatch):
    server.pages["/a"] = CONTENT

    def interrupted(url):
        yield CONTENT[:100]
        raise KeyboardInterrupt

    monkeypatch.setattr(fetching, "_chunks", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fetch(SVHN, file_at(server, "/a"), tmp_path)
    assert left_behind(tmp_path) == []


def test_redirects_are_followed_and_every_address_is_asked_once(server, tmp_path):
    server.pages |= {"/a": (302, {"Location": "/b"}), "/b": (301, {"Location": server.url + "/c"}), "/c": CONTENT}
    assert fetch(SVHN, file_at(server, "/a"), tmp_path).read_bytes() == CONTENT
    assert server.asked == ["/a", "/b", "/c"]
    server.pages["/loop"] = (302, {"Location": "/loop"})
    with pytest.raises(DataError, match="more than 5 redirects"):
        fetch(SVHN, file_at(server, "/loop"), tmp_path / "loop")


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("https", "http://example.org/file"),
        ("https", "ftp://example.org/file"),
        ("https", "file:///etc/passwd"),
        ("http", "ftp://example.org/file"),
        ("http", "file:///etc/passwd"),
    ],
)
def test_an_address_never_leads_to_a_weaker_scheme(tmp_path, monkeypatch, source, target):
    def answer(url, **_):
        response = requests.Response()
        response.status_code, response.headers["location"] = 302, target
        response.raw = None
        monkeypatch.setattr(response, "close", lambda: None)
        return response

    monkeypatch.setattr(requests, "get", answer)
    with pytest.raises(DataError, match=f"leads from {source} to {target.split(':')[0]}"):
        fetch(SVHN, DataFile("file.bin", md5="0" * 32, urls=(f"{source}://example.org/file",)), tmp_path)


def drip(*, headers_too):
    """An answer that comes byte by byte, of which each is in time."""

    def answer(handler):
        head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(CONTENT)}\r\n\r\n".encode()
        with suppress(OSError):
            if not headers_too:
                handler.wfile.write(head)
            for byte in (head if headers_too else b"") + CONTENT[:200]:
                handler.wfile.write(bytes([byte]))
                time.sleep(0.1)

    return answer


@pytest.mark.parametrize(
    ("headers_too", "said"), [(False, "sent less than 64 KB in 0.5 s"), (True, "has not begun to answer within 1 s")]
)
def test_a_server_that_sends_too_slowly_is_left_for_the_next(server, tmp_path, monkeypatch, headers_too, said):
    monkeypatch.setattr(fetching, "_TIMEOUT", 0.5)
    server.pages |= {"/slow": drip(headers_too=headers_too), "/good": CONTENT}
    begin = time.monotonic()
    assert fetch(SVHN, file_at(server, "/slow", "/good"), tmp_path).read_bytes() == CONTENT
    assert time.monotonic() - begin < 8  # two hundred bytes would take twenty seconds
    with pytest.raises(DataError, match=f"/slow: {said}"):
        fetch(SVHN, file_at(server, "/slow"), tmp_path / "other")
    assert left_behind(tmp_path / "other") == []


def test_a_killed_download_is_cleared_away_by_the_next(server, tmp_path):
    server.pages["/a"] = drip(headers_too=False)
    process = run_fetch(server, tmp_path)
    while len(left_behind(tmp_path)) < 2:  # the lock, and what has come so far
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    process.kill()
    process.communicate()
    server.pages["/a"] = CONTENT
    fetch(SVHN, file_at(server, "/a"), tmp_path)
    assert left_behind(tmp_path) == ["file.bin"]


def test_a_failed_download_leaves_no_folders_that_it_made(server, tmp_path):
    (tmp_path / "mine").mkdir()
    with pytest.raises(DataError):
        fetch(SVHN, file_at(server, "/gone"), tmp_path / "mine" / "new" / "newer")
    assert list(tmp_path.rglob("*")) == [tmp_path / "mine"]


FETCH = """
import sys
from paircaps.data.metadata import DataFile
from paircaps.data.registry import require_metadata
from paircaps.data.files.download import fetch
url, md5, size, root = sys.argv[1:]
print(fetch(require_metadata("svhn"), DataFile("file.bin", md5=md5, size=int(size), urls=(url,)), root))
"""


def run_fetch(server, root, **options):
    file = file_at(server, "/a")
    words = [sys.executable, "-c", FETCH, file.urls[0], str(file.md5), str(file.size), str(root)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


def test_processes_that_ask_at_once_fetch_once(server, tmp_path):
    server.pages["/a"] = CONTENT
    processes = [run_fetch(server, tmp_path) for _ in range(3)]
    outputs = [process.communicate() for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0], outputs
    assert len(server.asked) == 1
    assert (tmp_path / "svhn" / "file.bin").read_bytes() == CONTENT


def test_a_full_disk_is_said_and_leaves_nothing(server, tmp_path):
    """A limit on the size of files stands in for the disk: writing fails in the middle either way."""
    server.pages["/a"] = CONTENT
    process = run_fetch(
        server, tmp_path, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
    )
    _, errors = process.communicate()
    assert process.returncode == 1
    assert f"DataError: {tmp_path}/svhn: cannot download file.bin to this folder: File too large" in errors
    assert left_behind(tmp_path) == []


def test_the_order_of_folders(tmp_path, monkeypatch):
    """Given by hand, then $PAIRCAPS_DATA from left to right, then the cache."""
    folders = [tmp_path / name for name in ("given", "first", "second")]
    monkeypatch.setenv("PAIRCAPS_DATA", f"{folders[1]}{os.pathsep}{folders[2]}")
    assert data_folders(folders[0]) == [*folders, user_cache()]
    for folder in (user_cache(), *reversed(folders)):
        write(folder / "svhn" / "test_32x32.mat", b"x")
        assert find(SVHN, "test", folders[0]) == [folder / "svhn" / "test_32x32.mat"]


def test_a_given_folder_may_be_the_datasets_own(tmp_path):
    write_mnist(tmp_path)
    assert len(load_dataset("mnist", root=tmp_path, verify=False)) == 20


def test_system_folders_are_looked_at_last(tmp_path):
    metadata = dataclasses.replace(require_metadata("fashion-mnist"), system=str(tmp_path))
    assert require_metadata("fashion-mnist").system == "/usr/share/datasets/fashion-mnist"
    write_mnist(tmp_path)
    assert [path.parent for path in locate(metadata, "train", download=False)] == [tmp_path] * 2


def test_missing_files_are_named_with_where_they_were_looked_for(tmp_path):
    with pytest.raises(DataError) as caught:
        load_dataset("svhn", "test", tmp_path, download=False)
    assert "svhn: test_32x32.mat not found in" in str(caught.value)
    assert str(tmp_path) in str(caught.value)
    assert "`paircaps data get svhn`" in str(caught.value)


def test_a_read_only_cache_is_read(tmp_path, monkeypatch, without_rights):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    write_mnist(user_cache() / "mnist")
    for folder in (tmp_path, user_cache(), user_cache() / "mnist"):
        folder.chmod(0o555)
    with without_rights():
        assert len(load_dataset("mnist", verify=False)) == 20
    for folder in (tmp_path, user_cache(), user_cache() / "mnist"):
        folder.chmod(0o755)


def test_a_folder_that_cannot_be_written_to_is_named(tmp_path, without_rights):
    tmp_path.chmod(0o555)
    message = r"svhn: cannot be downloaded to \S*/inside: Permission denied; give another folder"
    with without_rights(), pytest.raises(DataError, match=message):
        fetch(SVHN, DataFile("file.bin", urls=("http://127.0.0.1:1/",)), tmp_path / "inside")


def test_a_folder_that_cannot_be_read_is_named(tmp_path, without_rights):
    write_mnist(tmp_path / "mnist")
    (tmp_path / "mnist").chmod(0o000)
    with without_rights(), pytest.raises(DataError, match=r"mnist/train-images.*: cannot look for: Permission denied"):
        load_dataset("mnist", "train", tmp_path)
    (tmp_path / "mnist").chmod(0o755)


def test_a_file_in_place_of_a_folder_is_named(tmp_path):
    (tmp_path / "file").write_text("x")
    for act in (fetch, find):
        with pytest.raises(DataError, match=r"/file: not a folder"):
            act(SVHN, DataFile("file.bin") if act is fetch else "test", tmp_path / "file")
    with pytest.raises(DataError, match=r"/no: no such folder"):
        load_dataset("svhn", "test", tmp_path / "no", download=False)


def test_a_wrong_checksum_is_quoted(tmp_path):
    path = write(tmp_path / "file.bin", b"other")
    with pytest.raises(DataError, match=r"5 bytes with md5 795f3202b17cb6bc3d4b771d8c6c9eaf, that of file.bin is 000"):
        require_published(path, DataFile("file.bin", md5="0" * 32))


def test_every_published_file_can_be_fetched_and_checked():
    for metadata in all_metadata():
        assert set(metadata.counts) == set(metadata.files) or not metadata.files
        for sets in metadata.files.values():
            for file in sets[-1]:
                assert file.urls, file.name
                assert file.md5 or metadata.name == "affnist"
                for url in file.urls:
                    assert url.endswith(file.name)


def test_all_files_that_could_not_be_had_are_named(monkeypatch):
    """A person who fetches by hand needs the whole list, not one file a try."""

    def fail(url, **_):
        raise requests.ConnectionError("Connection refused")

    monkeypatch.setattr(requests, "get", fail)
    with pytest.raises(DataError) as caught:
        load_dataset("smallnorb", "test")
    assert str(caught.value).count("could not be downloaded") == 3
    assert str(caught.value).count("fetch it by hand (md5 ") == 3


def test_another_datasets_files_of_the_same_name_are_not_taken(tmp_path, monkeypatch):
    """Fashion-MNIST's files have the names of MNIST's: a folder of one, given by hand, is not the other."""
    write_mnist(tmp_path)
    labels = (tmp_path / "train-labels-idx1-ubyte.gz").read_bytes()
    assert find(require_metadata("fashion-mnist"), "train", tmp_path)
    mnist = require_metadata("mnist").files["train"][0]
    known = dataclasses.replace(mnist[1], md5=hashlib.md5(labels).hexdigest())
    metadata = dataclasses.replace(require_metadata("mnist"), files={"train": ((mnist[0], known),)})
    monkeypatch.setitem(registry._METADATA, "mnist", metadata)
    assert find(require_metadata("fashion-mnist"), "train", tmp_path) is None
    assert find(metadata, "train", tmp_path)
    unpacked = write(tmp_path / "plain" / "train-labels-idx1-ubyte", gzip.decompress(labels))
    content = dataclasses.replace(mnist[1], content_md5=hashlib.md5(unpacked.read_bytes()).hexdigest())
    known_content = dataclasses.replace(metadata, files={"train": ((mnist[0], content),)})
    monkeypatch.setitem(registry._METADATA, "mnist", known_content)
    fashion_labels = require_metadata("fashion-mnist").files["train"][0][1]
    assert find_file(require_metadata("fashion-mnist"), fashion_labels, unpacked.parent) is None


def test_loose_files_in_a_data_folder_are_not_taken(tmp_path, monkeypatch):
    write_mnist(tmp_path)
    monkeypatch.setenv("PAIRCAPS_DATA", str(tmp_path))
    assert find(require_metadata("mnist"), "train") is None


def test_a_page_in_place_of_an_archive_without_checksum_is_not_kept(server, tmp_path):
    """A login page of a network would otherwise lie in the cache as aff-NIST for ever."""
    server.pages["/page"] = b"<html>please log in</html>"
    with pytest.raises(DataError, match="what came is no zip archive"):
        fetch(require_metadata("affnist"), file_at(server, "/page", md5=None, size=None), tmp_path)
    assert left_behind(tmp_path) == []
    server.pages["/zip"] = zip_bytes({"a.mat": b"x"})
    assert fetch(require_metadata("affnist"), file_at(server, "/zip", md5=None, size=None), tmp_path).exists()


def test_an_endless_answer_is_cut_off_even_where_no_size_is_known(server, tmp_path, monkeypatch):
    monkeypatch.setattr(fetching, "_UNKNOWN_MOST", 100_000)
    server.pages["/endless"] = CONTENT
    with pytest.raises(DataError, match="sends more than"):
        fetch(require_metadata("affnist"), file_at(server, "/endless", md5=None, size=None), tmp_path)


def test_progress_is_shown_on_a_terminal_and_told_elsewhere(server, tmp_path, monkeypatch, capsys):
    server.pages["/a"] = CONTENT
    fetch(SVHN, file_at(server, "/a"), tmp_path / "file")
    assert capsys.readouterr().err == f"downloading {server.url}/a\n"
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    fetch(SVHN, file_at(server, "/a"), tmp_path / "terminal")
    assert "100%" in capsys.readouterr().err


def test_a_variable_that_names_no_folder_makes_none(tmp_path, monkeypatch):
    monkeypatch.setenv("PAIRCAPS_DATA", str(tmp_path / "typo"))
    with pytest.raises(DataError, match=r"svhn: \$PAIRCAPS_DATA names .*/typo, which is no folder: make it first"):
        fetch(SVHN, DataFile("file.bin", urls=("http://127.0.0.1:1/",)))
    assert list(tmp_path.iterdir()) == []


def test_what_is_here_of_a_split_is_not_fetched_again(tmp_path, monkeypatch):
    write_mnist(tmp_path / "mnist")
    (tmp_path / "mnist" / "train-labels-idx1-ubyte.gz").unlink()
    fetched = []
    monkeypatch.setattr(fetching, "fetch", lambda metadata, file, root: fetched.append(file.name) or Path(file.name))
    paths = locate(require_metadata("mnist"), "train", tmp_path)
    assert fetched == ["train-labels-idx1-ubyte.gz"]
    assert paths[0] == tmp_path / "mnist" / "train-images-idx3-ubyte.gz"


def test_an_unpacked_file_without_a_checksum_of_its_content_is_not_called_damaged(tmp_path):
    """To remove a good file because of such a message would be a pity."""
    write_smallnorb(tmp_path)
    for path in list(tmp_path.iterdir()):
        path.with_suffix("").write_bytes(gzip.decompress(path.read_bytes()))
        path.unlink()
    with pytest.raises(DataError, match=r"dat.mat: cannot be compared with the published .*keep the file as it was"):
        load_dataset("smallnorb", "train", tmp_path)
    assert len(load_dataset("smallnorb", "train", tmp_path, verify=False)) == 12
