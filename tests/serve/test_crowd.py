"""Many at once, some of them bad: the good ones are answered as if they were alone. And memory stays."""

import http.client
import os
import re
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from PIL import Image
from serve.conftest import multipart
from serve.pictures import as_file, flat_png, seven

CLIENTS = 32


def test_many_clients_a_fifth_of_them_bad(predict):
    bad = [b"no picture", as_file(seven())[:100], flat_png(10_000, 8_000)]
    good = {
        number: (as_file(seven().rotate(10 * number)), ("fm", "dynamic", "em", "pool")[number % 4])
        for number in range(CLIENTS)
        if number % 5
    }
    alone = {number: predict(content, model=model, compare="true") for number, (content, model) in good.items()}

    def one(number):
        if number in good:
            return predict(good[number][0], model=good[number][1], compare="true")
        return predict(bad[number % len(bad)])

    with ThreadPoolExecutor(CLIENTS) as clients:
        answers = list(clients.map(one, range(CLIENTS)))
    for number, answer in enumerate(answers):
        if number in good:
            assert answer == alone[number]
        else:
            assert answer[0] == 400


@pytest.fixture
def process(folders):
    """A server of its own, as a person starts it: its process and its port."""
    command = [sys.executable, "-m", "paircaps", "serve", str(folders["fm"]), "--port", "0"]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as server:
        line = server.stdout.readline()
        yield server, int(re.search(r"http://127\.0\.0\.1:(\d+)", line)[1])
        if server.poll() is None:
            server.kill()


def memory(process, what):
    return int(re.search(rf"{what}:\s+(\d+) kB", Path(f"/proc/{process.pid}/status").read_text())[1]) / 1024


def send(port, content):
    """A picture, over a connection of its own: the status of the answer."""
    body, kind = multipart(content)
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=120)) as connection:
        connection.request("POST", "/api/predict", body, {"Content-Type": kind})
        response = connection.getresponse()
        response.read()
        return response.status


def noise(mode, size):
    return Image.effect_noise(size, 80).convert(mode)


LARGE = {
    "100 MB": lambda: b"\0" * (100 << 20),
    "80 megapixels": lambda: flat_png(10_000, 8_000),
    "80 megapixels of 16 bits": lambda: flat_png(10_000, 8_000, 16),
    "80 megapixels of colour": lambda: flat_png(10_000, 8_000, 8, 6),
    "the largest PNG of colour": lambda: flat_png(3_000, 3_000, 8, 6),
    "the largest PNG of 16 bits": lambda: flat_png(4_000, 4_400, 16),
    "the largest grey PNG": lambda: flat_png(6_100, 6_100),
    "16 bits and colours": lambda: flat_png(3_000, 3_000, 16, 2),
    "a photograph": lambda: as_file(noise("RGB", (4_000, 3_000)), "JPEG", quality=30),
    "a large WebP": lambda: as_file(Image.new("RGB", (8_000, 8_000)), "WEBP"),
    "a WebP that is let in": lambda: as_file(Image.new("RGB", (1_500, 1_500)), "WEBP"),
    "a thin PNG": lambda: flat_png(32, 32_000),
    "a progressive JPEG": lambda: as_file(Image.new("RGB", (8_000, 7_900)), "JPEG", progressive=True),
}


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs Linux to tell the peak of a process")
def test_memory_goes_up_by_no_more_than_50_mb(process):
    server, port = process
    for _ in range(3):
        assert send(port, as_file(seven())) == 200
    before = memory(server, "VmRSS")
    peaks = {}
    for name, make in LARGE.items():
        content = make()
        Path(f"/proc/{server.pid}/clear_refs").write_text("5")  # forget the peak so far
        status = send(port, content)
        assert status in (200, 400, 413), name
        peaks[name] = (round(memory(server, "VmHWM") - before, 1), status)
    assert all(peak <= 50 for peak, _ in peaks.values()), peaks
    assert peaks["a photograph"][1] == 200
    assert peaks["a WebP that is let in"][1] == 200
    assert peaks["the largest PNG of colour"][1] == 200
    assert send(port, as_file(seven())) == 200
    Path(f"/proc/{server.pid}/clear_refs").write_text("5")
    padded = as_file(seven()) + b"\0" * (7 << 20)  # a picture all the same
    with ThreadPoolExecutor(CLIENTS) as clients:
        assert set(clients.map(lambda _: send(port, padded), range(CLIENTS))) == {200}
    assert memory(server, "VmHWM") - before <= 50
    Path(f"/proc/{server.pid}/clear_refs").write_text("5")
    padded = as_file(seven()) + b"\0" * 250_000
    with ThreadPoolExecutor(90) as clients:
        assert set(clients.map(lambda _: send(port, padded), range(300))) <= {200, 503}
    assert memory(server, "VmHWM") - before <= 50
    assert send(port, as_file(seven())) == 200


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, -signal.SIGTERM)])
def test_a_server_ends_when_it_is_told_to_and_says_nothing_ugly(process, number, code):
    server, port = process
    assert send(port, as_file(seven())) == 200
    assert send(port, b"bad") == 400
    server.send_signal(number)
    out, err = server.communicate(timeout=20)
    assert server.returncode == code
    assert "Traceback" not in out + err
    assert "Exception" not in out + err
