"""Soak test of `paircaps serve`: honest uploads for minutes, with and without hostile connections beside them.

The server is a process of its own on 127.0.0.1, so that its memory and descriptors are its own. Honest and hostile
clients share one address, which is the harder case: the server cannot tell them apart by where they come from.
"""

from __future__ import annotations

import asyncio
import json
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from paircaps._utils.figures import as_png, new_figure
from paircaps._utils.machine import describe_machine, machine_line
from paircaps._utils.words import Say
from paircaps.bench.goals import Goal, goals_as_markdown
from paircaps.bench.serve import draw_stroke, picture_form, save_untrained
from paircaps.bench.timing import silent
from paircaps.errors import PaircapsError
from paircaps.model_files import find_models

_LARGE = 480_000  # bytes of every second upload
_PATIENCE = 120.0  # seconds after which an honest client gives up
_REST = 2.0  # seconds in which the server closes its last connections
_PHASES = ("quiet", "attacked", "quiet again")


@dataclass(frozen=True)
class Crowd:
    """Clients of a soak test.

    Args:
        honest: honest clients, each of which sends one upload after the other.
        uploads: uploads of each in a round.
        idle: hostile connections that send nothing.
        slow_headers: hostile connections that send a byte of their headers a second.
        slow_bodies: hostile connections that announce a megabyte and send a byte of it a second.
        pause: seconds after which a hostile connection that was closed comes back.
    """

    honest: int = 32
    uploads: int = 10
    idle: int = 500
    slow_headers: int = 50
    slow_bodies: int = 50
    pause: float = 1.0


@dataclass
class _Record:
    """What is measured, over time."""

    begin: float = field(default_factory=time.monotonic)
    phase: str = _PHASES[0]
    rounds: list[dict[str, Any]] = field(default_factory=list)
    samples: list[dict[str, Any]] = field(default_factory=list)
    closed: int = 0  # hostile connections that the server closed
    at_rest: list[dict[str, float]] = field(default_factory=list)  # before all rounds and after them

    def now(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self.begin


def bench_soak(folders: list[Path], seconds: float, crowd: Crowd | None = None, say: Say = silent) -> dict[str, Any]:
    """Measure the answers, memory and descriptors of a server before, during and after an attack.

    Args:
        folders: folders of trained networks; if empty, an untrained one of the demonstration's size.
        seconds: length of the measurement: a sixth quiet, two thirds attacked, a sixth quiet again. Each part has one
            round of honest uploads or more.
        crowd: clients; those of the goal if None.
        say: called with each progress line.

    Raises:
        PaircapsError: on a system without /proc, or if the server does not start.
    """
    if not Path("/proc/self/fd").is_dir():
        raise PaircapsError("a soak test needs Linux: memory and descriptors of the server are read from /proc")
    crowd = crowd or Crowd()
    with TemporaryDirectory() as scratch:
        found = find_models(folders) if folders else save_untrained(Path(scratch), ["small fm"])
        say(f"{', '.join(found)} for {seconds / 60:g} minutes")
        with _server_process(found) as (process, port):
            record = asyncio.run(_soak(process.pid, port, seconds, crowd, say))
    return {
        "seconds": record.now(),
        "crowd": asdict(crowd),
        "rounds": record.rounds,
        "samples": record.samples,
        "at_rest": record.at_rest,
        "closed": record.closed,
        "machine": describe_machine(),
    }


@contextmanager
def _server_process(found: Mapping[str, Path]) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Run `paircaps serve` for the duration of a ``with`` block, and give its process and port."""
    command = [sys.executable, "-m", "paircaps", "serve", *map(str, found.values()), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        port = re.search(r"http://127\.0\.0\.1:(\d+)", line)
        try:
            if port is None:
                raise PaircapsError(f"the server did not start: {line.strip() or 'it said nothing'}")
            yield process, int(port[1])
        finally:
            process.terminate()


async def _soak(pid: int, port: int, seconds: float, crowd: Crowd, say: Say) -> _Record:
    """Run the three phases."""
    # warm up: the first seconds of a server measure the sliders of its page
    pictures = [_request(draw_stroke()), _request(draw_stroke() + b"\0" * _LARGE)]
    await _until_measured(port)
    await _round(port, pictures, crowd)
    await asyncio.sleep(_REST)
    record = _Record()
    record.at_rest.append(_usage(pid))
    sampler = asyncio.create_task(_sample(pid, port, record))
    # quiet, attacked, quiet again
    for phase, end in zip(_PHASES, (seconds / 6, seconds * 5 / 6, seconds), strict=True):
        record.phase = phase
        say(f"{phase}, until second {end:.0f}")
        hostile = _begin_attack(port, crowd, record) if phase == "attacked" else []
        if hostile:
            await asyncio.sleep(3)  # all are there
        while True:
            begin = record.now()
            answers = await _round(port, pictures, crowd)
            record.rounds.append(_describe_round(phase, begin, record.now() - begin, answers))
            if record.now() >= end:
                break
        for task in hostile:
            task.cancel()
        await asyncio.gather(*hostile, return_exceptions=True)
    await asyncio.sleep(_REST)
    sampler.cancel()
    record.at_rest.append(_usage(pid))
    return record


def _describe_round(phase: str, begin: float, seconds: float, answers: list[tuple[int, float]]) -> dict[str, Any]:
    """Describe a round of uploads by its answers: status and seconds of each."""
    times = [1e3 * spent for _, spent in answers]
    return {
        "phase": phase,
        "at": begin,
        "seconds": seconds,
        "uploads": len(answers),
        "answered": sum(status == 200 for status, _ in answers),
        "others": sorted(status for status, _ in answers if status != 200),
        "median": statistics.median(times),
        "worst": max(times),
    }


async def _round(port: int, pictures: list[bytes], crowd: Crowd) -> list[tuple[int, float]]:
    """Let all honest clients send their uploads; status and seconds of each answer."""

    async def client(number: int) -> list[tuple[int, float]]:
        return [await _ask(port, pictures[(number + upload) % len(pictures)]) for upload in range(crowd.uploads)]

    each = await asyncio.gather(*(client(number) for number in range(crowd.honest)))
    return [answer for answers in each for answer in answers]


async def _ask(port: int, request: bytes) -> tuple[int, float]:
    """Send a request over a connection of its own: status, 0 without an answer, and seconds."""
    begin = time.monotonic()
    status, _ = await _answer(port, request)
    return status, time.monotonic() - begin


async def _answer(port: int, request: bytes) -> tuple[int, bytes]:
    """Send a request over a connection of its own: status, 0 without an answer, and content."""
    with suppress(OSError, TimeoutError):
        async with asyncio.timeout(_PATIENCE):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                writer.write(request)
                head, _, content = (await reader.read(-1)).partition(b"\r\n\r\n")
            finally:
                writer.transport.abort()
            return (int(head.split()[1]), content) if head else (0, b"")
    return 0, b""


def _request(picture: bytes) -> bytes:
    """HTTP request with a picture."""
    body, kind = picture_form(picture, {})
    return _head("POST", "/api/predict", {"Content-Type": kind, "Content-Length": len(body)}) + body


def _head(method: str, path: str, headers: Mapping[str, object]) -> bytes:
    """Head of an HTTP request whose connection is closed after the response."""
    lines = [f"{name}: {value}" for name, value in {"Host": "127.0.0.1", "Connection": "close", **headers}.items()]
    return "\r\n".join([f"{method} {path} HTTP/1.1", *lines, "", ""]).encode()


async def _until_measured(port: int) -> None:
    """Wait until the server has measured the sliders of all networks with a decoder, but not for ever."""
    for _ in range(120):
        _, content = await _answer(port, _head("GET", "/api/models", {}))
        models = json.loads(content)["models"] if content else [{"draws": True, "sliders": None}]
        if all(model["sliders"] is not None for model in models if model["draws"]):
            return
        await asyncio.sleep(1)


def _begin_attack(port: int, crowd: Crowd, record: _Record) -> list[asyncio.Task[None]]:
    """Open all hostile connections, each in a task of its own."""
    upload = _head("POST", "/api/predict", {"Content-Type": "text/plain", "Content-Length": 1_000_000})
    kinds = [(crowd.idle, b""), (crowd.slow_headers, upload[:40]), (crowd.slow_bodies, upload)]
    return [
        asyncio.create_task(_again_and_again(lambda begin=begin: _attack(port, begin), crowd.pause, record))
        for count, begin in kinds
        for _ in range(count)
    ]


async def _again_and_again(attack: Callable[[], Awaitable[None]], pause: float, record: _Record) -> None:
    """Repeat an attack whenever the server has closed its connection."""
    while True:
        with suppress(OSError):
            await attack()
        record.closed += 1
        await asyncio.sleep(pause)


async def _attack(port: int, begin: bytes) -> None:
    """Send the beginning of a request and then a byte a second, or nothing at all, until the server has enough."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    closed = asyncio.ensure_future(reader.read(-1))
    try:
        writer.write(begin)
        while not (await asyncio.wait([closed], timeout=1 if begin else None))[0]:
            writer.write(b"x")
        closed.exception()  # a connection that was reset is closed too
    finally:
        closed.cancel()
        writer.transport.abort()


async def _sample(pid: int, port: int, record: _Record) -> None:
    """Measure memory, descriptors and the time of the page once a second."""
    page = _head("GET", "/", {})
    while True:
        status, spent = await _ask(port, page)
        found = {"at": record.now(), "phase": record.phase, "page": 1e3 * spent, "page_answered": status == 200}
        record.samples.append({**found, **_usage(pid)})
        await asyncio.sleep(1)


def _usage(pid: int) -> dict[str, float]:
    """Memory in MB and open descriptors of a process."""
    resident = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    descriptors = len(list(Path(f"/proc/{pid}/fd").iterdir()))
    return {"megabytes": int(resident[1]) / 1024 if resident else 0.0, "descriptors": descriptors}


def as_markdown(result: dict[str, Any]) -> str:
    """Format the result as a table of the three phases, with goals."""
    crowd = result["crowd"]
    header = "| | uploads | answered | a round, s | an upload, ms | worst | the page, ms | worst | most memory, MB | "
    lines = [header + "most descriptors |", "|---" * 10 + "|"]
    phases = {phase: _of_phase(result, phase) for phase in _PHASES}
    for phase, found in phases.items():
        lines.append(
            f"| {phase} | {found['uploads']} | {found['answered']} | {found['seconds']:.1f} | {found['median']:.0f} | "
            f"{found['worst']:.0f} | {found['page']:.0f} | {found['page_worst']:.0f} | "
            f"{found['megabytes']:.0f} | {found['descriptors']} |"
        )
    quiet = statistics.median(found["seconds"] for found in result["rounds"] if found["phase"] != "attacked")
    before, after = result["at_rest"]
    missing = sum(found["uploads"] - found["answered"] + found["pages_missing"] for found in phases.values())
    goals = [
        Goal("uploads and pages without an answer", 0, missing),
        Goal("seconds of a round, attacked over quiet", 2, phases["attacked"]["seconds"] / quiet),
        Goal(
            f"MB of memory after the attack above the {before['megabytes']:.0f} before",
            50,
            after["megabytes"] - before["megabytes"],
        ),
        Goal(
            f"descriptors after the attack above the {before['descriptors']} before",
            0,
            after["descriptors"] - before["descriptors"],
        ),
    ]
    lines += ["", *goals_as_markdown(goals), ""]
    lines.append(
        f"{result['seconds'] / 60:.1f} minutes: a sixth quiet, two thirds attacked, a sixth quiet again. In a round, "
        f"{crowd['honest']} honest clients send {crowd['uploads']} pictures each, every second one of "
        f"{_LARGE // 1000} kB, over a connection for each. The attack: {crowd['idle']} connections that send nothing, "
        f"{crowd['slow_headers']} that send a byte of their headers a second, {crowd['slow_bodies']} that announce a "
        f"megabyte and send a byte a second; one that the server closes comes back after {crowd['pause']:g} s "
        f"({result['closed']:,} were closed). All clients have the address 127.0.0.1 and share the machine with the "
        "server. Times of a round, of an upload and of the page are medians; before and after are measured at rest. "
        f"{machine_line(result['machine'])}."
    )
    return "\n".join(lines) + "\n"


def _of_phase(result: dict[str, Any], phase: str) -> dict[str, Any]:
    """Summary of a phase."""
    rounds = [found for found in result["rounds"] if found["phase"] == phase]
    samples = [found for found in result["samples"] if found["phase"] == phase]
    return {
        "uploads": sum(found["uploads"] for found in rounds),
        "answered": sum(found["answered"] for found in rounds),
        "seconds": statistics.median(found["seconds"] for found in rounds),
        "median": statistics.median(found["median"] for found in rounds),
        "worst": max(found["worst"] for found in rounds),
        "page": statistics.median(found["page"] for found in samples),
        "page_worst": max(found["page"] for found in samples),
        "pages_missing": sum(not found["page_answered"] for found in samples),
        "megabytes": max(found["megabytes"] for found in samples),
        "descriptors": max(found["descriptors"] for found in samples),
    }


def draw(result: dict[str, Any]) -> bytes:
    """Draw response times, memory and descriptors over time, as a PNG file."""
    figure = new_figure(9, 7)
    times, memory, descriptors = figure.subplots(3, 1, sharex=True)
    samples, rounds = result["samples"], result["rounds"]
    at = [found["at"] / 60 for found in samples]
    # response times
    middles = [(found["at"] + found["seconds"] / 2) / 60 for found in rounds]
    times.plot(
        middles, [found["median"] for found in rounds], "o-", markersize=3, color="#2f6fb2", label="an upload, median"
    )
    times.plot(
        middles, [found["worst"] for found in rounds], "o:", markersize=3, color="#6b7280", label="an upload, worst"
    )
    times.plot(at, [found["page"] for found in samples], color="#d98c1f", linewidth=1, label="the page")
    times.set_yscale("log")
    times.set_ylabel("ms until the answer", fontsize=9)
    # memory and descriptors of the server
    memory.plot(at, [found["megabytes"] for found in samples], color="#2f6fb2")
    memory.set_ylim(0, 1.25 * max(found["megabytes"] for found in samples))
    memory.set_ylabel("memory, MB", fontsize=9)
    descriptors.plot(at, [found["descriptors"] for found in samples], color="#2f6fb2")
    descriptors.set_ylim(0, None)
    descriptors.set_ylabel("descriptors", fontsize=9)
    descriptors.set_xlabel("minutes", fontsize=9)
    # when it was attacked
    attacked = [found["at"] / 60 for found in samples if found["phase"] == "attacked"]
    for axis in (times, memory, descriptors):
        axis.axvspan(attacked[0], attacked[-1], color="#b2452f", alpha=0.08, linewidth=0, label="attacked")
        axis.grid(alpha=0.3)
        axis.tick_params(labelsize=8)
        axis.spines[["top", "right"]].set_visible(False)
    times.legend(fontsize=8, ncols=4, loc="lower center", bbox_to_anchor=(0.5, 1.0), frameon=False)
    crowd = result["crowd"]
    hostile = crowd["idle"] + crowd["slow_headers"] + crowd["slow_bodies"]
    figure.suptitle(
        f"{crowd['honest']} honest clients, beside {hostile} hostile connections in the middle", fontsize=11
    )
    return as_png(figure)
