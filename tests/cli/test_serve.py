"""paircaps serve, where it cannot; that it can is shown in tests/serve."""

import importlib.util
import socket

import pytest
from explain.small import saved, small_network

from paircaps.serve.run import listen


@pytest.fixture
def model(tmp_path):
    return saved(tmp_path / "model", small_network())


def test_a_port_that_is_taken_is_told_at_once(run, model):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, out, err = run("serve", model, "--port", port)
    assert code == 1
    assert out == ""
    assert f"cannot listen on 127.0.0.1, port {port}" in err
    assert "--port 0" in err


def test_a_host_that_is_none_is_told(run, model):
    code, _, err = run("serve", model, "--host", "256.1.1.1", "--port", 0)
    assert code == 1
    assert "--host 256.1.1.1: no such address" in err
    code, _, err = run("serve", model, "--host", "192.0.2.1", "--port", 0)
    assert code == 1
    assert "cannot listen on 192.0.2.1" in err
    assert "is that an address of this machine?" in err


def test_a_folder_without_a_network_is_told(run, tmp_path):
    code, _, err = run("serve", tmp_path)
    assert code == 1
    assert "no trained model here" in err


@pytest.mark.parametrize("port", ["-1", "70000", "http"])
def test_a_port_is_a_number(run, model, port):
    code, _, err = run("serve", model, f"--port={port}")
    assert code == 2
    assert "from 0 to 65535" in err


@pytest.mark.parametrize("command", [["serve"], ["bench", "serve"]])
def test_what_is_not_installed_is_told_with_how_to_get_it(run, model, monkeypatch, command):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if name == "uvicorn" else find(name, *a))
    code, _, err = run(*command, model)
    assert code == 1
    assert "serve needs uvicorn, which is not installed: pip install 'paircaps[serve]'" in err


@pytest.mark.parametrize("name", ["box:8000", "", "a b", "http://box"])
def test_a_name_that_could_never_match_is_refused(run, model, name):
    code, _, err = run("serve", model, "--allow-host", name)
    assert code == 2
    assert "without a port" in err


def test_a_host_that_is_no_name(run, model):
    code, _, err = run("serve", model, "--host", "x" * 70)
    assert code == 1
    assert "no such address" in err


def test_answers_are_not_held_back_for_forty_milliseconds():
    """asyncio turns Nagle's algorithm off only where a socket says that it is one of TCP."""
    with listen("127.0.0.1", 0) as listening:
        assert listening.proto == socket.IPPROTO_TCP


def test_a_picture_is_drawn_of_a_soak_alone(run, model, tmp_path):
    code, _, err = run("bench", "serve", model, "-o", tmp_path / "serve.png")
    assert code == 1
    assert "there is no picture of this" in err


def test_a_soak_has_a_length(run, model):
    code, _, err = run("bench", "serve", model, "--soak", "--minutes", "0")
    assert code == 2
    assert "--minutes" in err
