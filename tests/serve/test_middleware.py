"""Who may ask, and how much."""

import socket

import pytest
from serve.conftest import multipart
from serve.pictures import as_file, seven

from paircaps.serve import middleware
from paircaps.serve.limits import Limits
from paircaps.serve.middleware import RequestGuard


def raw(port, request):
    """Send bytes as they are; whatever is answered, up to the end of the connection or a second of silence."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        connection.sendall(request)
        answer = b""
        while b"}" not in answer.partition(b"\r\n\r\n")[2]:
            part = connection.recv(65536)
            if not part:
                break
            answer += part
        return answer


def status_of(answer):
    return int(answer.split()[1])


@pytest.mark.parametrize(
    "path",
    [
        "/../../etc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd",
        "//etc/passwd",
        "/page.js/../../run.py",
        "/networks.py",
        "/.env",
    ],
)
def test_paths_lead_nowhere_but_to_the_page(port, path):
    answer = raw(port, f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
    assert status_of(answer) in (400, 404)
    assert b"root:" not in answer
    assert b"import" not in answer


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8000", "127.0.0.1.evil.example", "", "[::1]evil.com", "127.0.0.1:80:evil"]
)
def test_foreign_hosts_are_refused(ask, host):
    status, said = ask("GET", "/api/models", headers={"Host": host})
    assert status == 403
    assert "does not answer to the name" in said["detail"]


def test_a_refusal_keeps_to_itself_too(port):
    assert b"content-security-policy" in raw(port, b"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n").lower()


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1234", "127.0.0.1", "[::1]:8000"])
def test_this_machine_has_several_names(ask, host):
    assert ask("GET", "/api/models", headers={"Host": host})[0] == 200


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:1", "https://localhost.evil"])
def test_pages_of_other_sites_are_refused(predict, ask, origin):
    status, said = predict(as_file(seven()), headers={"Origin": origin})
    assert status == 403
    assert "does not answer to pages of" in said["detail"]
    assert ask("GET", "/", headers={"Origin": origin})[0] == 403


def test_the_page_itself_may_ask(predict, port):
    assert predict(as_file(seven()), headers={"Origin": f"http://127.0.0.1:{port}"})[0] == 200


def test_pages_may_be_asked_for_by_their_head_alone(ask):
    assert ask("HEAD", "/")[0] == ask("HEAD", "/docs")[0] == 200


def test_what_is_allowed_is_told_with_a_refusal(port):
    answer = raw(port, f"DELETE /api/models HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode()).lower()
    assert status_of(answer) == 405
    assert b"\r\nallow: get" in answer
    assert b"delete is not answered at /api/models" in answer


def test_other_methods_are_refused(ask):
    assert ask("DELETE", "/api/models")[0] == 405
    assert ask("GET", "/api/predict")[0] == 405
    assert ask("PUT", "/")[0] == 405


def test_the_page_keeps_to_itself(port):
    answer = raw(port, f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n".encode()).lower()
    assert b"content-security-policy: default-src 'none'; script-src 'self'" in answer
    assert b"x-content-type-options: nosniff" in answer
    assert b"frame-ancestors 'none'" in answer
    assert b"access-control-allow-origin" not in answer


def head_of(port, kind, length):
    headers = {"Host": f"127.0.0.1:{port}", "Content-Type": kind, "Content-Length": length}
    lines = ["POST /api/predict HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
    return "\r\n".join(lines).encode()


@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)  # starlette leaves a file to the collector
def test_a_length_that_is_too_small_cuts_the_picture_off(port):
    body, kind = multipart(as_file(seven()))
    answer = raw(port, head_of(port, kind, len(body) - 60) + body)
    assert 400 <= status_of(answer) < 500


def test_a_client_that_hangs_up_is_forgotten(port, ask):
    body, kind = multipart(as_file(seven()))
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(head_of(port, kind, len(body) + 1000) + body)
    assert ask("GET", "/api/models")[0] == 200


@pytest.mark.parametrize("length", ["-5", "1e9", "abc", "99999999999999999999"])
def test_lengths_that_are_none_are_refused(port, length):
    _, kind = multipart(b"")
    assert 400 <= status_of(raw(port, head_of(port, kind, length))) < 500


def test_a_body_in_chunks_is_counted_too(port):
    _, kind = multipart(b"")
    head = (
        f"POST /api/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    chunk = b"%x\r\n" % (1 << 20) + b"\0" * (1 << 20) + b"\r\n"
    part = b'--edge\r\nContent-Disposition: form-data; name="file"; filename="x"\r\n\r\n'
    first = b"%x\r\n" % len(part) + part + b"\r\n"
    answer = raw(port, head.encode() + first + chunk * 9 + b"0\r\n\r\n")
    assert status_of(answer) == 413
    assert b"more than 8,388,608 bytes are too many" in answer


@pytest.mark.parametrize(
    ("headers", "length"),
    [
        ({"content-length": "10"}, 10),
        ({"content-length": "10", "transfer-encoding": "chunked"}, None),
        ({}, None),
        ({"content-length": "\u00b2"}, None),
        ({"content-length": "-1"}, None),
    ],
)
def test_a_length_is_believed_only_if_nothing_else_is_said(headers, length):
    assert middleware._length(headers) == length


def test_where_a_server_listens_everywhere_numbers_are_names():
    open_one, closed = (
        RequestGuard(None, Limits(), ["0.0.0.0"], any_address=True),
        RequestGuard(None, Limits(), ["box.example"]),
    )
    assert open_one._refusal({"host": "192.168.1.7:8000"}) is None
    assert open_one._refusal({"host": "[fe80::1]:8000"}) is None
    assert open_one._refusal({"host": "evil.example"}) is not None
    assert closed._refusal({"host": "192.168.1.7"}) is not None
    assert closed._refusal({"host": "BOX.example:80"}) is None
    assert closed._refusal({}) is not None
