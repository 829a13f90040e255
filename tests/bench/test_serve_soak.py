import pytest
from explain.small import saved, small_network

from paircaps.bench import serve_soak
from paircaps.bench.serve_soak import Crowd, as_markdown, bench_soak, draw


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    folder = saved(tmp_path_factory.mktemp("soak") / "fm", small_network("fm", decoder="none"))
    crowd = Crowd(honest=3, uploads=2, idle=8, slow_headers=3, slow_bodies=3, pause=0.2)
    return bench_soak([folder], 3.0, crowd)


def test_every_upload_and_page_is_answered_before_during_and_after(result):
    assert {found["phase"] for found in result["rounds"]} == {"quiet", "attacked", "quiet again"}
    assert all(found["answered"] == found["uploads"] == 6 for found in result["rounds"])
    assert all(found["page_answered"] for found in result["samples"])


def test_the_attack_is_there_and_leaves_nothing_behind(result):
    attacked = [found["descriptors"] for found in result["samples"] if found["phase"] == "attacked"]
    before, after = result["at_rest"]
    assert max(attacked) >= before["descriptors"] + 10
    assert after["descriptors"] == before["descriptors"]
    assert result["closed"] > 0, "slow bodies are closed"


def test_the_table_has_all_phases_and_goals(result):
    text = as_markdown(result)
    for words in (
        "| quiet |",
        "| attacked |",
        "| quiet again |",
        "attacked over quiet | 2 |",
        "8 connections that send nothing",
    ):
        assert words in text
    assert "uploads and pages without an answer | 0 | 0 | met |" in text


def test_what_was_not_answered_is_told(result):
    rounds = [{**found, "answered": 5} for found in result["rounds"]]
    assert f"without an answer | 0 | {len(rounds)} | **not met** |" in as_markdown({**result, "rounds": rounds})


def test_it_is_drawn(result):
    assert draw(result).startswith(b"\x89PNG")


def test_a_client_without_an_answer_says_so():
    import asyncio
    import socket

    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # nobody listens
        status, _ = asyncio.run(serve_soak._ask(closed.getsockname()[1], b""))
    assert status == 0
