"""Bodies of requests: received whole before anything is computed, at a least rate, in bounded memory and disk."""

from __future__ import annotations

import asyncio
import time
from tempfile import SpooledTemporaryFile

from starlette.types import Message, Receive

from paircaps.serve.limits import Limits

_READ_AT_ONCE = 64 << 10
_LAST_LOOK = 0.1
"""Seconds in which bytes that came while this process was busy are still taken after a deadline."""


class RefusedError(Exception):
    """Request that is refused before it reaches the application.

    Args:
        status: status of the response.
        detail: what was wrong, in a sentence.
    """

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status, self.detail = status, detail


class PacedReceive:
    """ASGI ``receive`` that refuses a request whose body comes too slowly.

    Args:
        receive: the ``receive`` of the server.
        limits: bounds of the server.
    """

    def __init__(self, receive: Receive, limits: Limits) -> None:
        self.receive, self.limits = receive, limits
        self.begin = self.last = time.monotonic()
        self.read = 0

    async def __call__(self) -> Message:
        """Receive the next message."""
        deadline, why = self._deadline()
        message = await self._within(deadline - time.monotonic()) or await self._within(_LAST_LOOK)
        if message is None:
            raise RefusedError(408, f"the request was not complete in time: {why}")
        self.last = time.monotonic()
        self.read += len(message.get("body", b""))
        return message

    def _deadline(self) -> tuple[float, str]:
        """Time until which the next bytes have to come, and the reason."""
        limits = self.limits
        enough = self.begin + limits.grace_seconds + self.read / limits.least_rate
        return min(
            (self.begin + limits.body_seconds, f"it took more than {limits.body_seconds:g} seconds"),
            (self.last + limits.pause_seconds, f"nothing came for {limits.pause_seconds:g} seconds"),
            (enough, f"fewer than {limits.least_rate:,} bytes a second came"),
        )

    async def _within(self, seconds: float) -> Message | None:
        """Next message; None if none comes within some seconds."""
        try:
            async with asyncio.timeout(max(seconds, 0)):
                return await self.receive()
        except TimeoutError:
            return None


class Body:
    """Body of a request, in memory or, if it is large, in a temporary file.

    Args:
        limits: bounds of the server.
    """

    def __init__(self, limits: Limits) -> None:
        self.size = 0
        self.complete = False
        self._file = SpooledTemporaryFile(limits.body_memory)  # noqa: SIM115 (open until close)

    @property
    def closed(self) -> bool:
        """True if the body was given up or is no longer needed."""
        return self._file.closed

    def append(self, content: bytes) -> None:
        """Append bytes."""
        self._file.write(content)
        self.size += len(content)

    def finish(self) -> None:
        """Go back to the beginning, to be read."""
        self.complete = True
        self._file.seek(0)

    def read(self) -> bytes:
        """Next bytes; empty at the end."""
        return self._file.read(_READ_AT_ONCE)

    def close(self) -> None:
        """Forget the content."""
        self._file.close()


class Bodies:
    """All bodies that a server holds.

    Above their bound, the one that has been incomplete for the longest is given up.

    Args:
        limits: bounds of the server.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._held: dict[Body, None] = {}  # in the order of their beginning

    async def receive(self, receive: Receive, most: int) -> Body | None:
        """Receive the body of a request; the caller has to :meth:`release` it. None if the client hangs up.

        Args:
            receive: the ``receive`` of the server.
            most: most bytes of this request.

        Raises:
            RefusedError: if it is too large or too slow, or the server holds too many.
        """
        paced, body = PacedReceive(receive, self.limits), Body(self.limits)
        self._held[body] = None
        try:
            while not body.complete:
                message = await paced()
                if message["type"] != "http.request":
                    self.release(body)
                    return None
                if paced.read > most:
                    raise RefusedError(413, f"more than {most:,} bytes are too many, {most:,} at most")
                self._append(body, message.get("body", b""))
                if not message.get("more_body", False):
                    body.finish()
        except BaseException:
            self.release(body)
            raise
        return body

    def release(self, body: Body) -> None:
        """Forget a body."""
        self._held.pop(body, None)
        body.close()

    def _append(self, body: Body, content: bytes) -> None:
        """Append to a body, and give up others, or this one, if all together are too large."""
        while not body.closed and sum(held.size for held in self._held) + len(content) > self.limits.all_bodies:
            self.release(next((held for held in self._held if not held.complete), body))
        if body.closed:
            raise RefusedError(503, "too many requests at the same time: try again in a moment")
        body.append(content)


async def discard(receive: Receive, limits: Limits) -> None:
    """Read a body to its end and forget it, or until it takes too long.

    Most clients read the response only after they have sent everything.
    """
    paced, more = PacedReceive(receive, limits), True
    while more:
        try:
            message = await paced()
        except RefusedError:
            return
        more = message["type"] == "http.request" and message.get("more_body", False)
