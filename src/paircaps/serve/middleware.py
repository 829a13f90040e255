"""Checks of requests before they reach the application: where they come from, and how large and slow they are.

Pages of other sites must not use a server on this machine. A request from such a page names its site in ``Origin``. A
request by a foreign host name that resolves to this machine (DNS rebinding) has that name in ``Host``. Both are
refused.
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
"""Largest size in bytes of a request with a picture, and of any other request."""

PICTURES = "/api/predict"
"""Path of requests with a picture."""

_SMALL_AT_ONCE = 8
"""Requests of at most SMALL bytes that are read at the same time. Larger requests, and those of unknown size, are read
one at a time, and all others wait, so that memory is bounded."""

IDLE, LONGEST = 10.0, 60.0
"""Seconds that a request may pause, and seconds that it may take as a whole."""

LOCAL = ("localhost", "127.0.0.1", "::1")
"""Host names of this machine."""

_SECURITY_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data: blob:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class RequestGuard:
    """Middleware that refuses foreign hosts and origins, bounds requests, and adds security headers to responses.

    Args:
        app: the application that gets the accepted requests.
        hosts: host names of this server that requests may use, besides those of this machine.
        any_address: whether requests may use any numeric address too, as when the server listens on all addresses.
    """

    def __init__(self, app: ASGIApp, hosts: Iterable[str] = (), any_address: bool = False) -> None:
        self.app = app
        self.hosts = {host.lower().strip("[]") for host in (*LOCAL, *hosts)}
        self.any_address = any_address
        self.small_turn, self.large_turn = asyncio.Semaphore(_SMALL_AT_ONCE), asyncio.Semaphore(1)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check a request and pass it on, or respond with an error: the ASGI interface."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        # where the request comes from
        refusal = self._refusal(headers)
        if refusal is not None:
            await _refuse(send, 403, refusal)
            return
        # how large it claims to be
        most = LARGEST if scope["path"] == PICTURES else SMALL
        length = _length(headers)
        if length is not None and length > most:
            await _drain(receive)  # most clients read the response only after they have sent everything
            await _refuse(send, 413, _too_large(f"{length:,} bytes are", most))
            return
        # pass it on, with bounds on what is really received; large requests wait for their turn
        bounded, answered = _BoundedReceive(receive, most), _with_headers(send)
        if scope["method"] in ("GET", "HEAD"):
            await self.app(scope, bounded, answered)
            return
        async with self.small_turn if length is not None and length <= SMALL else self.large_turn:
            await self.app(scope, bounded, answered)

    def _refusal(self, headers: dict[str, str]) -> str | None:
        """Reason why a request is refused for its Host or Origin; None if it is accepted."""
        host = headers.get("host", "")
        if not self._is_known(_without_port(host)):
            return f"this server does not answer to the name {host[:100]!r}"
        origin = headers.get("origin")
        if origin is not None and origin.lower() not in (f"http://{host}".lower(), f"https://{host}".lower()):
            return f"this server does not answer to pages of {origin[:100]!r}"
        return None

    def _is_known(self, host: str) -> bool:
        """True if requests may use this host name."""
        if host.lower() in self.hosts:
            return True
        return self.any_address and _is_address(host)


def _length(headers: dict[str, str]) -> int | None:
    """Size of the body in bytes; None if unknown, as it is with chunked transfer, even if a size is given."""
    said = headers.get("content-length", "")
    if "transfer-encoding" in headers or not (said.isascii() and said.isdecimal()):
        return None
    return int(said)


def _is_address(host: str) -> bool:
    """True for an IP address."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _without_port(host: str) -> str:
    """Host name without port: ``::1`` of ``[::1]:80``, ``name`` of ``name:80``; empty if malformed."""
    found = re.fullmatch(r"(?:\[([0-9a-fA-F:.]+)\]|([^:\[\]/@\s]+))(?::\d{1,5})?", host)
    return (found[1] or found[2]) if found else ""


def _too_large(what: str, most: int) -> str:
    """Message for a request that is too large."""
    return f"{what} too many, {most:,} at most"


class _BoundedReceive:
    """ASGI ``receive`` that fails when a request is too large or too slow.

    Args:
        receive: the ``receive`` of the server.
        most: largest size in bytes.
    """

    def __init__(self, receive: Receive, most: int) -> None:
        self.receive, self.most, self.read = receive, most, 0
        self.begin: float | None = None  # set at the first read: time spent waiting for a turn does not count

    async def __call__(self) -> Message:
        """Receive the next message."""
        self.begin = time.monotonic() if self.begin is None else self.begin
        left = LONGEST - (time.monotonic() - self.begin)
        try:
            message = await asyncio.wait_for(self.receive(), max(min(IDLE, left), 0.01))
        except TimeoutError:
            why = f"nothing came for {IDLE:g} seconds" if left > IDLE else f"it took more than {LONGEST:g} seconds"
            raise HTTPException(408, f"the request was not complete in time: {why}") from None
        self.read += len(message.get("body", b""))
        if self.read > self.most:
            raise HTTPException(413, _too_large(f"more than {self.most:,} bytes are", self.most))
        return message


async def _drain(receive: Receive) -> None:
    """Read and discard a request to its end, or until it takes too long."""
    bounded, more = _BoundedReceive(receive, LARGEST), True
    while more:
        bounded.read = 0  # what is discarded may be of any size
        try:
            message = await bounded()
        except HTTPException:
            return
        more = message["type"] == "http.request" and message.get("more_body", False)


def _with_headers(send: Send) -> Send:
    """Wrap ``send`` so that responses have the security headers."""

    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message["headers"], *_encoded(_SECURITY_HEADERS)]}
        await send(message)

    return send_with_headers


def _encoded(headers: dict[str, str]) -> list[tuple[bytes, bytes]]:
    """Headers in the form of ASGI."""
    return [(name.lower().encode(), value.encode()) for name, value in headers.items()]


async def _refuse(send: Send, status: int, detail: str) -> None:
    """Respond with an error and close the connection."""
    body = json.dumps({"detail": detail}).encode()
    own = {"Content-Type": "application/json", "Content-Length": str(len(body)), "Connection": "close"}
    await send({"type": "http.response.start", "status": status, "headers": _encoded({**_SECURITY_HEADERS, **own})})
    await send({"type": "http.response.body", "body": body})
