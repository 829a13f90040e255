"""A server of small networks, for all tests of a file."""

import http.client
import json

import pytest
import torch
from explain.small import saved, small_network

from paircaps.bench.serve import running


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    place = tmp_path_factory.mktemp("served")
    networks = {
        "fm": small_network("fm", size=40),
        "dynamic": small_network("dynamic", size=40),
        "em": small_network("em", size=40),
        "pool": small_network(model="resnet-pool-small", size=40),
        "colour": small_network(size=32, channels=3, decoder="dense", classes=("cat", "dog", "ship")),
        "mute": small_network(size=28, decoder="none"),
        "pair": small_network(size=36, labels=2),
        "cropped": small_network(size=48, crop=32),
    }
    return {name: saved(place / name, network) for name, network in networks.items()}


@pytest.fixture(scope="module")
def port(folders):
    threads = torch.get_num_threads()
    with running(folders) as port:
        yield port
    torch.set_num_threads(threads)


@pytest.fixture
def ask(port):
    """Ask over a connection of its own: (status, what was answered)."""

    def ask(method, path, body=None, headers=None):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        try:
            connection.request(method, path, body, headers or {})
            response = connection.getresponse()
            content = response.read()
        finally:
            connection.close()
        kind = response.headers.get("Content-Type", "")
        return response.status, json.loads(content) if "json" in kind else content

    return ask


@pytest.fixture
def predict(ask):
    """Send a file: (status, answer)."""

    def predict(content, headers=None, **fields):
        body, kind = multipart(content, **fields)
        return ask("POST", "/api/predict", body, {"Content-Type": kind, **(headers or {})})

    return predict


def multipart(content, name="file", **fields):
    parts = [
        f'--edge\r\nContent-Disposition: form-data; name="{key}"\r\n\r\n{value}\r\n' for key, value in fields.items()
    ]
    head = f'--edge\r\nContent-Disposition: form-data; name="{name}"; filename="picture"\r\n\r\n'
    return "".join(parts).encode() + head.encode() + content + b"\r\n--edge--\r\n", "multipart/form-data; boundary=edge"
