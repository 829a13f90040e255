"""Clients that take their time, or many connections, keep nobody else waiting."""

import http.client
import importlib
import os
import resource
import socket
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager

import pytest
import torch
from serve.conftest import multipart
from serve.pictures import as_file, seven

from paircaps.bench.serve import running
from paircaps.serve.limits import Limits, allow_connections

LIMITS = Limits(
    first_byte_seconds=2.0,
    header_seconds=2.0,
    pause_seconds=5.0,
    body_seconds=20.0,
    grace_seconds=1.0,
    connections=80,
    connections_per_address=60,
    fresh_seconds=0.2,
    response_seconds=2.0,
)
PATIENT = Limits(first_byte_seconds=600, header_seconds=600, pause_seconds=600, body_seconds=600, grace_seconds=600)
LONG = 60
"""Seconds that nothing here takes, unless it waits for ever."""


@pytest.fixture(scope="module")
def hasty(folders):
    """Port of a server that does not wait for long."""
    with server(folders, LIMITS) as port:
        yield port


@contextmanager
def server(folders, limits):
    threads = torch.get_num_threads()
    with running({"fm": folders["fm"]}, limits=limits) as port:
        yield port
    torch.set_num_threads(threads)


def connect(port, address="127.0.0.1"):
    """Connect from an address of this machine, of which Linux has many."""
    return socket.create_connection(("127.0.0.1", port), timeout=LONG, source_address=(address, 0))


def upload(port, content=None, address="127.0.0.1"):
    """Send a picture over a connection of its own: the status of the response."""
    body, kind = multipart(content or as_file(seven()))
    with closing(http.client.HTTPConnection("127.0.0.1", port, LONG, source_address=(address, 0))) as connection:
        connection.request("POST", "/api/predict", body, {"Content-Type": kind})
        response = connection.getresponse()
        response.read()
        return response.status


def large_picture():
    return as_file(seven()) + b"\0" * 480_000


def head(length, path="/api/predict"):
    _, kind = multipart(b"")
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", f"Content-Type: {kind}", f"Content-Length: {length}", "", ""]
    return "\r\n".join(lines).encode()


def rest(connection):
    """All that is sent over a connection, until it is closed."""
    parts = []
    try:
        while part := connection.recv(65536):
            parts.append(part)
    except ConnectionError:
        pass
    return b"".join(parts)


def drip(connection, stop, seconds=0.1):
    """Send a byte now and then, until the connection is closed."""
    while not stop.wait(seconds):
        try:
            connection.sendall(b"x")
        except OSError:
            return


@contextmanager
def dripping(*connections):
    """Let connections drip in threads of their own."""
    stop = threading.Event()
    threads = [threading.Thread(target=drip, args=(connection, stop)) for connection in connections]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_a_body_that_drips_does_not_delay_a_large_upload(folders):
    with server(folders, PATIENT) as port, connect(port) as slow:
        slow.sendall(head(1_000_000))
        with dripping(slow):
            time.sleep(0.5)  # its headers have arrived
            assert upload(port, large_picture()) == 200
            slow.settimeout(0.01)
            with pytest.raises(TimeoutError):  # nobody has answered or closed it meanwhile
                slow.recv(1)


def test_a_response_that_nobody_reads_does_not_delay_an_upload(folders):
    body, _ = multipart(large_picture())
    with server(folders, PATIENT) as port, ExitStack() as stack:
        for _ in range(20):
            deaf = stack.enter_context(socket.socket())
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
            deaf.connect(("127.0.0.1", port))
            deaf.sendall(head(len(body)) + body)
        assert upload(port, large_picture()) == 200


def test_a_connection_that_sends_nothing_is_closed(hasty):
    with connect(hasty) as idle:
        assert rest(idle) == b""


def test_headers_that_drip_are_refused_and_closed(hasty):
    with connect(hasty) as slow:
        slow.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
        with dripping(slow):
            said = rest(slow)
    assert said.startswith(b"HTTP/1.1 408 Request Timeout\r\n")
    assert b"headers of the request were not complete within 2 seconds" in said


def test_headers_of_a_second_request_have_their_time_too(hasty):
    with connect(hasty) as slow:
        slow.sendall(b"GET /api/models HTTP/1.1\r\nHost: localhost\r\n\r\nGET /api/models HT")
        with dripping(slow):
            said = rest(slow)
    assert said.startswith(b"HTTP/1.1 200 OK\r\n")


def test_a_body_of_a_request_that_has_none_is_not_waited_for(hasty):
    with connect(hasty) as slow:
        slow.sendall(b"GET /api/models HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n")
        with dripping(slow):
            assert rest(slow).startswith(b"HTTP/1.1 200 OK\r\n")


def test_too_slow_a_body_is_refused_and_closed(hasty):
    with connect(hasty) as slow:
        slow.sendall(head(1_000_000))
        with dripping(slow):
            said = rest(slow)
    assert said.startswith(b"HTTP/1.1 408 ")
    assert b"fewer than 8,192 bytes a second came" in said
    assert b"connection: close" in said.lower()


def test_an_early_start_does_not_pay_for_a_long_pause(folders):
    limits = Limits(pause_seconds=0.5, grace_seconds=30)
    with server(folders, limits) as port, connect(port) as slow:
        slow.sendall(head(1_000_000) + b"x" * 500_000)
        assert b"nothing came for 0.5 seconds" in rest(slow)


def test_a_body_has_an_end_at_last(folders):
    with server(folders, Limits(body_seconds=0.5, grace_seconds=30)) as port, connect(port) as slow:
        slow.sendall(head(1_000_000))
        with dripping(slow):
            assert b"it took more than 0.5 seconds" in rest(slow)


def test_slow_bodies_of_other_paths_are_refused_too(hasty):
    with connect(hasty) as slow:
        slow.sendall(head(1000, "/api/draw"))
        assert rest(slow).startswith(b"HTTP/1.1 408 ")


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.7"])
def test_idle_connections_lead_to_no_refusal_of_others(folders, address):
    with server(folders, Limits(first_byte_seconds=600, connections=80, connections_per_address=60)) as port:
        idle = [connect(port, address) for _ in range(200)]
        try:
            with ThreadPoolExecutor(16) as clients:
                assert set(clients.map(lambda _: upload(port), range(32))) == {200}
        finally:
            for connection in idle:
                connection.close()


def test_an_address_has_a_bound_of_connections(folders):
    with server(folders, Limits(first_byte_seconds=600, connections_per_address=20)) as port, ExitStack() as stack:
        many = [stack.enter_context(connect(port, "127.0.0.7")) for _ in range(50)]
        other = stack.enter_context(connect(port, "127.0.0.8"))
        assert all(rest(connection) == b"" for connection in many[:30]), "the oldest are dropped"
        other.sendall(b"GET /api/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert rest(other).startswith(b"HTTP/1.1 200 OK\r\n")
        many[-1].sendall(b"GET /api/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert rest(many[-1]).startswith(b"HTTP/1.1 200 OK\r\n")


def test_a_connection_that_was_answered_is_kept_before_those_that_never_asked(folders):
    limits = Limits(first_byte_seconds=600, connections_per_address=20, fresh_seconds=0)
    with server(folders, limits) as port, ExitStack() as stack:
        known = http.client.HTTPConnection("127.0.0.1", port, LONG)
        stack.enter_context(closing(known))
        for _ in range(2):
            known.request("GET", "/api/models")
            response = known.getresponse()
            response.read()
            assert response.status == 200
            idle = [stack.enter_context(connect(port)) for _ in range(50)]
            assert rest(idle[0]) == b""


def test_where_all_are_busy_a_new_connection_is_told_to_come_back(folders, monkeypatch):
    from paircaps.serve.networks import Networks

    go, begun = threading.Event(), threading.Semaphore(0)

    async def wait(self, function, *arguments):
        import asyncio

        begun.release()
        await asyncio.to_thread(go.wait, LONG)
        return function(*arguments)

    monkeypatch.setattr(Networks, "run", wait)
    body, _ = multipart(as_file(seven()))
    with server(folders, Limits(connections_per_address=3)) as port, ExitStack() as stack:
        busy = [stack.enter_context(connect(port)) for _ in range(3)]
        for connection in busy:
            connection.sendall(head(len(body)) + body)
            assert begun.acquire(timeout=LONG)
        said = rest(stack.enter_context(connect(port)))
        assert said.startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
        assert b"try again in a moment" in said
        go.set()
        assert all(connection.recv(15) == b"HTTP/1.1 200 OK" for connection in busy)


def test_a_crowd_of_every_kind_keeps_no_honest_client_from_its_answer(hasty):
    open_before = len(os.listdir("/proc/self/fd"))
    with ExitStack() as stack:
        idle = [stack.enter_context(connect(hasty)) for _ in range(100)]
        headers = [stack.enter_context(connect(hasty)) for _ in range(10)]
        bodies = [stack.enter_context(connect(hasty)) for _ in range(10)]
        for connection in headers:
            connection.sendall(b"POST /api/predict HTTP/1.1\r\nX-")
        for connection in bodies:
            connection.sendall(head(1_000_000))
        with dripping(*headers, *bodies), ThreadPoolExecutor(16) as clients:
            statuses = list(
                clients.map(lambda number: upload(hasty, large_picture() if number % 2 else None), range(64))
            )
        assert set(statuses) == {200}
        for connection in (*idle, *headers, *bodies):
            rest(connection)
    begin = time.monotonic()
    while len(os.listdir("/proc/self/fd")) > open_before and time.monotonic() - begin < LONG:
        time.sleep(0.1)
    assert len(os.listdir("/proc/self/fd")) <= open_before, "descriptors return"
    assert upload(hasty) == 200


def test_a_response_that_is_never_read_is_given_up(hasty):
    with socket.socket() as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        deaf.settimeout(LONG)
        deaf.connect(("127.0.0.1", hasty))
        request = b"GET /page.js HTTP/1.1\r\nHost: localhost\r\n\r\n"
        with pytest.raises((ConnectionResetError, BrokenPipeError)):  # its responses fill all buffers
            deaf.sendall(request * 1_000_000)


@pytest.mark.parametrize(
    ("soft", "hard", "raised", "connections"),
    [(256, 356, 356, 146), (256, 4096, 1064, 500), (4096, 4096, None, 500), (-1, -1, None, 500), (256, -1, 1064, 500)],
)
def test_connections_leave_room_for_the_files_of_their_bodies(monkeypatch, soft, hard, raised, connections):
    found = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda _, bounds: found.append(bounds))
    assert allow_connections(500) == connections
    assert found == ([] if raised is None else [(raised, hard)])


def test_where_open_files_have_no_bound_all_connections_are_held(monkeypatch):
    """As on Windows, which has no module ``resource``."""
    monkeypatch.setitem(sys.modules, "resource", None)
    monkeypatch.delitem(sys.modules, "paircaps.serve.limits")
    assert importlib.import_module("paircaps.serve.limits").allow_connections(500) == 500
