"""Checks of requests before they reach the application: origin, size, pace, and whose turn it is.

Pages of other sites must not use a server on this machine. A request from such a page names its site in ``Origin``. A
request by a foreign host name that resolves to this machine (DNS rebinding) has that name in ``Host``. Both are
refused.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import re
from collections.abc import Iterable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from paircaps.serve.bodies import Bodies, Body, RefusedError, discard
from paircaps.serve.limits import Limits
from paircaps.serve.turns import Turns

PICTURES = "/api/predict"
"""Path of requests with a picture."""

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

    The body of a request is received before the request takes a turn, and the response is sent after the turn: a slow
    client keeps nobody waiting.

    Args:
        app: the application that gets the accepted requests.
        limits: bounds of the server.
        hosts: host names of this server that requests may use, besides those of this machine.
        any_address: whether requests may use any numeric address too, as when the server listens on all addresses.
    """

    def __init__(self, app: ASGIApp, limits: Limits, hosts: Iterable[str] = (), any_address: bool = False) -> None:
        self.app, self.limits = app, limits
        self.hosts = {host.lower().strip("[]") for host in (*LOCAL, *hosts)}
        self.any_address = any_address
        self.bodies = Bodies(limits)
        self.small_turns, self.large_turns = Turns(limits.small_at_once), Turns(1)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check a request and pass it on, or respond with an error: the ASGI interface."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return
        try:
            body = await self._receive_body(scope, receive)
        except RefusedError as error:
            if error.status == 413:
                await discard(receive, self.limits)
            await _refuse(send, error.status, error.detail)
            return
        if scope["method"] in ("GET", "HEAD"):
            await self.app(scope, receive, _with_headers(send))
        elif body is not None:
            await self._answer_in_turn(scope, receive, send, body)

    async def _receive_body(self, scope: Scope, receive: Receive) -> Body | None:
        """Check the headers of a request and receive its body; None if the client hangs up, or nobody will read it.

        Raises:
            RefusedError: if the request is refused.
        """
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        # where the request comes from
        refusal = self._refusal(headers)
        if refusal is not None:
            raise RefusedError(403, refusal)
        # how large it claims to be
        most = self.limits.largest if scope["path"] == PICTURES else self.limits.small
        length = _length(headers)
        if length is not None and length > most:
            raise RefusedError(413, f"{length:,} bytes are too many, {most:,} at most")
        # how large and how slow it is
        return None if scope["method"] in ("GET", "HEAD") else await self.bodies.receive(receive, most)

    async def _answer_in_turn(self, scope: Scope, receive: Receive, send: Send, body: Body) -> None:
        """Let the application answer a request when it is its turn, and send the response after that."""
        turns = self.small_turns if body.size <= self.limits.small else self.large_turns
        address = scope["client"][0] if scope.get("client") else ""
        response: list[Message] = []
        try:
            async with turns.turn(address):
                if await _has_left(receive):
                    return
                await self.app(scope, _Replay(body, receive), _collect(response))
        finally:
            self.bodies.release(body)
        for message in response:
            await _with_headers(send)(message)

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


class _Replay:
    """ASGI ``receive`` of a body that was received before.

    Args:
        body: the body.
        receive: the ``receive`` of the server, for what comes after the body.
    """

    def __init__(self, body: Body, receive: Receive) -> None:
        self.body, self.receive = body, receive
        self.left = body.size
        self.done = False

    async def __call__(self) -> Message:
        """Next part of the body, then what the server says."""
        if self.done:
            return await self.receive()
        content = self.body.read()
        self.left -= len(content)
        self.done = self.left <= 0
        return {"type": "http.request", "body": content, "more_body": not self.done}


async def _has_left(receive: Receive) -> bool:
    """True if the client of a request whose body was received has hung up."""
    try:
        async with asyncio.timeout(0):
            return (await receive())["type"] == "http.disconnect"
    except TimeoutError:
        return False


def _collect(response: list[Message]) -> Send:
    """Make a ``send`` that appends the messages of a response to a list."""

    async def collect(message: Message) -> None:
        response.append(message)

    return collect


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
