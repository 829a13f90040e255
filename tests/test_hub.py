"""Networks to and from a hub: a local folder, and a small server on this machine that answers as the Hub does."""

import base64
import hashlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import torch
from explain.small import saved, small_network

import paircaps
from paircaps import hub
from paircaps.errors import MissingExtraError, ModelFileError, PaircapsError
from paircaps.model_files import read_metadata, weights_as_bytes, write_metadata
from paircaps.network import Network

TRAINED = {"dataset": "glyphs", "tested_on": "glyphs", "seed": 0, "test_accuracy": 0.75, "test_images": 4, "loss": {}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return saved(tmp_path_factory.mktemp("trained") / "net", small_network(decoder="none"), **TRAINED)


# --- a folder --------------------------------------------------------------------------------------------------------


def test_a_folder_comes_back_as_it_was(folder, tmp_path):
    network = paircaps.load(folder)
    network.save_pretrained(tmp_path / "deep" / "copy")
    for name in ("model.safetensors", "model.json"):
        assert json_or_bytes(tmp_path / "deep" / "copy" / name) == json_or_bytes(folder / name)
    again = Network.from_pretrained(tmp_path / "deep" / "copy")
    images = torch.rand(2, 1, 28, 28)
    assert torch.equal(again(images).activation, network(images).activation)
    assert "75.00 %" in (tmp_path / "deep" / "copy" / "README.md").read_text()


def json_or_bytes(path):
    return json.loads(path.read_text()) if path.suffix == ".json" else path.read_bytes()


def test_weights_in_bfloat16_stay_so(folder, tmp_path):
    network = paircaps.load(folder)
    content = weights_as_bytes(network, "bf16")
    (tmp_path / "model.safetensors").write_bytes(content)
    changed = {"sha256": hashlib.sha256(content).hexdigest(), "card": {"stored": "bf16", "accuracy_fp32": 0.75}}
    write_metadata(tmp_path, {**read_metadata(folder), **changed})
    paircaps.load(tmp_path).save_pretrained(tmp_path / "copy")
    assert (tmp_path / "copy" / "model.safetensors").read_bytes() == content
    assert paircaps.load(tmp_path / "copy").origin == paircaps.load(tmp_path).origin


def test_changed_weights_lose_their_numbers(folder, tmp_path):
    network = paircaps.load(folder)
    with torch.no_grad():
        next(network.parameters()).add_(1)
    network.save_pretrained(tmp_path)
    card = (tmp_path / "README.md").read_text()
    assert "75.00 %" not in card
    assert "The weights were changed after the training below" in card
    trained = read_metadata(tmp_path)["trained"]
    assert trained == {"dataset": "glyphs", "tested_on": "glyphs", "seed": 0, "loss": {}, "changed_since": True}
    assert torch.equal(next(paircaps.load(tmp_path).parameters()), next(network.parameters()))


def test_a_network_that_was_never_trained_is_saved(tmp_path):
    small_network(decoder="none").save_pretrained(tmp_path)
    assert paircaps.load(tmp_path).classes == tuple("0123456789")
    assert "None are recorded." in (tmp_path / "README.md").read_text()


def test_a_description_too_damaged_for_a_card_is_told(folder, tmp_path):
    network = paircaps.load(folder)
    network.origin = {**network.origin, "card": {"evaluation": {"accuracy": 0.5}}}
    with pytest.raises(ModelFileError, match="too damaged for a card: 'data'"):
        network.save_pretrained(tmp_path)


def test_a_folder_that_is_none_is_told(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(ModelFileError, match="no trained model here"):
        Network.from_pretrained(tmp_path / "empty")
    with pytest.raises(ModelFileError, match="no weights of that name"):
        Network.from_pretrained("nothing-like-it")


def test_without_the_client_it_says_what_to_install(folder, monkeypatch):
    monkeypatch.setattr("paircaps._utils.extras._is_installed", lambda module: False)
    network = paircaps.load(folder)
    for ask in (lambda: Network.from_pretrained("owner/name"), lambda: network.push_to_hub("owner/name")):
        with pytest.raises(MissingExtraError, match=r"needs huggingface-hub.*pip install 'paircaps\[hub\]'"):
            ask()


# --- a hub on this machine -------------------------------------------------------------------------------------------


class FakeHub(BaseHTTPRequestHandler):
    """The answers of the Hub that its client asks for when it makes, fills and reads a repository of small files."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, content, status=200, **headers):
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in {"Content-Length": len(body), "Content-Type": "application/json", **headers}.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def refuse(self, status, code):
        self.answer({"error": code}, status, X_Error_Code=code, X_Error_Message=code)

    @property
    def repos(self):
        return self.server.repos

    def do_POST(self):
        content = self.rfile.read(int(self.headers["Content-Length"]))
        parts = self.path.split("?")[0].strip("/").split("/")
        self.server.asked.append((self.headers.get("Authorization"), self.path))
        if self.headers.get("Authorization") != "Bearer hf_right":
            return self.refuse(401, "Unauthorized")
        if parts == ["api", "repos", "create"]:
            name = json.loads(content)
            repo = f"{name.get('organization') or 'someone'}/{name['name']}"
            self.repos.setdefault(repo, {})
            return self.answer({"url": f"{self.server.url}/{repo}", "name": repo, "id": repo})
        if parts == ["api", "validate-yaml"]:
            return self.answer({"errors": [], "warnings": []})
        repo = "/".join(parts[2:4])
        if parts[4] == "preupload":
            files = [{"path": file["path"], "uploadMode": "regular", "shouldIgnore": False, "oid": None}
                     for file in json.loads(content)["files"]]  # fmt: skip
            return self.answer({"files": files})
        for line in content.splitlines():
            row = json.loads(line)
            if row["key"] == "file":
                self.repos[repo][row["value"]["path"]] = base64.b64decode(row["value"]["content"])
        return self.answer({"commitUrl": f"{self.server.url}/{repo}/commit/{'a' * 40}", "commitOid": "a" * 40,
                            "hookOutput": "", "success": True})  # fmt: skip

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        parts = self.path.split("?")[0].strip("/").split("/")
        self.server.asked.append((None, self.path))
        at = 2 if parts[0] == "api" else 0
        files = self.repos.get("/".join(parts[at : at + 2]))
        if files is None:
            return self.refuse(404, "RepoNotFound")
        if parts[0] == "api" and "tree" in parts:
            return self.answer([{"type": "file", "path": name, "size": len(content), "oid": self.oid(content)}
                                for name, content in files.items()])  # fmt: skip
        if parts[0] == "api":
            siblings = [{"rfilename": name} for name in files]
            return self.answer(
                {"id": "/".join(parts[2:4]), "sha": self.server.commit, "siblings": siblings, "private": False}
            )
        content = files.get("/".join(parts[4:]))
        if content is None:
            return self.refuse(404, "EntryNotFound")
        return self.answer(content, ETag=f'"{self.oid(content)}"', X_Repo_Commit=self.server.commit)

    @staticmethod
    def oid(content):
        return hashlib.sha1(content).hexdigest()


@pytest.fixture(scope="module")
def server():
    server = ThreadingHTTPServer(("127.0.0.1", 0), FakeHub)
    server.url = f"http://127.0.0.1:{server.server_address[1]}"
    server.repos, server.asked, server.commit = {}, [], "a" * 40
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def ask(server, forks, tmp_path, monkeypatch):
    """Run code in a process whose hub is the fake one: what it printed."""
    pytest.importorskip("huggingface_hub")
    monkeypatch.setenv("HF_ENDPOINT", server.url)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    monkeypatch.setenv("HF_HUB_DISABLE_XET", "1")
    monkeypatch.setenv("HF_TOKEN", "hf_right")

    def ask(code):
        status, printed, errors = forks.run(f"import paircaps\nfrom paircaps.network import Network\n{code}", tmp_path)
        assert status == 0, errors
        return printed.strip()

    return ask


def test_a_network_goes_to_a_hub_and_comes_back(server, ask, folder):
    address = ask(f"print(paircaps.load({str(folder)!r}).push_to_hub('someone/digits'))")
    assert address == f"{server.url}/someone/digits/commit/{'a' * 40}"
    files = server.repos["someone/digits"]
    assert sorted(files) == ["README.md", "model.json", "model.safetensors"]
    assert files["model.safetensors"] == (folder / "model.safetensors").read_bytes()
    assert b"75.00 %" in files["README.md"]
    look = "network = Network.from_pretrained('someone/digits'); print(network.origin['sha256'], network.training)"
    assert ask(look) == f"{read_metadata(folder)['sha256']} False"
    # what a repository has beside it stays there
    files["evil.py"] = b"raise SystemExit('ran')"
    server.asked.clear()
    ask(look)
    assert not any("evil.py" in path and "resolve" in path for _, path in server.asked)
    # weights that were changed on the way are refused
    files["model.safetensors"], server.commit = files["model.safetensors"][:-1] + b"x", "b" * 40
    said = ask(
        "try: Network.from_pretrained('someone/digits')\nexcept paircaps.errors.ModelFileError as error: print(error)"
    )
    assert "its checksum is not the one in model.json" in said


REFUSED = {
    "Network.from_pretrained('someone/nothing')": "someone/nothing: cannot download it: RepositoryNotFoundError",
    "Network.from_pretrained('a/b/c/d')": "a/b/c/d: cannot download it: HFValidationError",
    "Network.from_pretrained('a/b', local_files_only=True)": "a/b: cannot download it: LocalEntryNotFoundError",
    "paircaps.load(FOLDER).push_to_hub('a/b', token='hf_wrong')": "a/b: cannot upload it: HfHubHTTPError",
}


def test_what_a_hub_refuses_is_a_sentence(ask, folder):
    tries = [f"try: {code}\nexcept paircaps.errors.PaircapsError as error: print(error)" for code in REFUSED]
    said = ask("\n".join([f"FOLDER = {str(folder)!r}", *tries])).splitlines()
    assert len(said) == len(REFUSED), "one line each"
    for line, words in zip(said, REFUSED.values(), strict=True):
        assert words in line


def test_errors_of_ours_stay_as_they_are():
    with pytest.raises(PaircapsError, match=r"^ours$"), hub._in_words("a/b", "download"):
        raise PaircapsError("ours")


def test_the_client_is_not_imported_before_it_is_needed(forks):
    code = "import sys, paircaps.hub; from paircaps import load; print('huggingface_hub' in sys.modules)"
    assert forks.run(code)[:2] == (0, "False\n")
