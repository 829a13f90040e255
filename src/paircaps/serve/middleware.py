"""Who may ask, and how much: what stands before the application.

A page on this machine must not become a tool of other pages. A browser that was sent here by another site names that
site in ``Origin``; one that was fooled by a name that leads here has it in ``Host``. Both are refused.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import re
import time
from collections.abc import Iterable

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LARGEST, SMALL = 8 << 20, 256 << 10
"""Bytes of a request with a picture, and of any other."""

PICTURES = "/api/predict"

_SMALL_AT_ONCE = 8
"""Requests of at most SMALL bytes that are taken in at a time. Of larger ones, and of those that do not say how large
they are, it is one; all others wait, so that memory stays."""

IDLE, LONGEST = 10.0, 60.0
"""Seconds that a request may pause, and may take as a whole."""

LOCAL = ("localhost", "127.0.0.1", "::1")

_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data: blob:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class Guard:
    """Refuse foreign hosts and origins, bound what is read, and add headers that keep the page to itself.

    Args:
        app: behind it.
        hosts: names that this server is known by, beside those of this machine.
        any_address: answer to every numeric address too, where the server listens on all of them.
    """

    def __init__(self, app: ASGIApp, hosts: Iterable[str] = (), any_address: bool = False) -> None:
        self.app = app
        self.hosts = {host.lower().strip("[]") for host in (*LOCAL, *hosts)}
        self.any_address = any_address
        self.small_turn, self.large_turn = asyncio.Semaphore(_SMALL_AT_ONCE), asyncio.Semaphore(1)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """An ASGI application."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        refusal = self._refusal(headers)
        if refusal is not None:
            await _refuse(send, 403, refusal)
            return
        most = LARGEST if scope["path"] == PICTURES else SMALL
        length = _length(headers)
        if length is not None and length > most:
            await _drain(receive)  # most clients listen only when they have said it all
            await _refuse(send, 413, _too_large(f"{length:,} bytes are", most))
            return
        bounded, answered = _Bounded(receive, most), _with_headers(send)
        if scope["method"] in ("GET", "HEAD"):
            await self.app(scope, bounded, answered)
            return
        async with self.small_turn if length is not None and length <= SMALL else self.large_turn:
            await self.app(scope, bounded, answered)

    def _refusal(self, headers: dict[str, str]) -> str | None:
        host = headers.get("host", "")
        if not self._is_known(_without_port(host)):
            return f"this server does not answer to the name {host[:100]!r}"
        origin = headers.get("origin")
        if origin is not None and origin.lower() not in (f"http://{host}".lower(), f"https://{host}".lower()):
            return f"this server does not answer to pages of {origin[:100]!r}"
        return None

    def _is_known(self, host: str) -> bool:
        if host.lower() in self.hosts:
            return True
        return self.any_address and _is_address(host)


def _length(headers: dict[str, str]) -> int | None:
    """Bytes that will come, if that is known: in chunks it is not, whatever else is said."""
    said = headers.get("content-length", "")
    if "transfer-encoding" in headers or not (said.isascii() and said.isdecimal()):
        return None
    return int(said)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _without_port(host: str) -> str:
    """``[::1]:80`` to ``::1``, ``name:80`` to ``name``; nothing of what is neither."""
    found = re.fullmatch(r"(?:\[([0-9a-fA-F:.]+)\]|([^:\[\]/@\s]+))(?::\d{1,5})?", host)
    return (found[1] or found[2]) if found else ""


def _too_large(what: str, most: int) -> str:
    return f"{what} too many, {most:,} at most"


class _Bounded:
    """What is received, while it is not too much and does not take too long."""

    def __init__(self, receive: Receive, most: int) -> None:
        self.receive, self.most, self.read = receive, most, 0
        self.begin: float | None = None  # waiting for one's turn is not the client's fault

    async def __call__(self) -> Message:
        self.begin = time.monotonic() if self.begin is None else self.begin
        left = LONGEST - (time.monotonic() - self.begin)
        try:
            message = await asyncio.wait_for(self.receive(), max(min(IDLE, left), 0.01))
        except TimeoutError:
            why = f"nothing came for {IDLE:g} seconds" if left > IDLE else f"it took more than {LONGEST:g} seconds"
            raise HTTPException(408, f"the request did not come to its end: {why}") from None
        self.read += len(message.get("body", b""))
        if self.read > self.most:
            raise HTTPException(413, _too_large(f"more than {self.most:,} bytes are", self.most))
        return message


async def _drain(receive: Receive) -> None:
    """Read to the end, or until it takes too long."""
    bounded, more = _Bounded(receive, LARGEST), True
    while more:
        bounded.read = 0
        try:
            message = await bounded()
        except HTTPException:
            return
        more = message["type"] == "http.request" and message.get("more_body", False)


def _with_headers(send: Send) -> Send:
    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message["headers"], *_encoded(_HEADERS)]}
        await send(message)

    return send_with_headers


def _encoded(headers: dict[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.lower().encode(), value.encode()) for name, value in headers.items()]


async def _refuse(send: Send, status: int, detail: str) -> None:
    body = json.dumps({"detail": detail}).encode()
    own = {"Content-Type": "application/json", "Content-Length": str(len(body)), "Connection": "close"}
    await send({"type": "http.response.start", "status": status, "headers": _encoded({**_HEADERS, **own})})
    await send({"type": "http.response.body", "body": body})
