"""Connections of a server: how many there may be, and how long they may take to ask and to read the answer.

uvicorn bounds neither the time of a request's headers nor the connections of an address. Here its protocol is extended
by both. Where there are too many connections, one that waits without a request is dropped in favour of a new one; if
there is none, one whose request is still coming in. A request that is complete is always answered.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from paircaps.serve.limits import Limits


def guarded_protocol(limits: Limits) -> type[H11Protocol]:
    """Protocol class for ``uvicorn.Config(http=...)`` whose connections share one set of bounds."""

    class Guarded(GuardedProtocol):
        register = ConnectionRegister(limits)

    return Guarded


class ConnectionRegister:
    """Open connections of a server.

    Args:
        limits: bounds of the server.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._by_address: dict[str, set[GuardedProtocol]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._by_address.values()))

    def add(self, connection: GuardedProtocol) -> bool:
        """Add a new connection, and drop another one where there are too many; False if there is no room for it."""
        own = self._by_address.get(connection.address, set())
        crowd = None
        if len(own) >= self.limits.connections_per_address:
            crowd = own
        elif len(self) >= self.limits.connections:
            crowd = max(self._by_address.values(), key=len)
        if crowd is not None:
            droppable = [other for other in crowd if other.waiting or other.receiving]
            if not droppable:
                return False
            dropped = min(droppable, key=self._usefulness)
            self.remove(dropped)
            dropped.transport.abort()
        self._by_address.setdefault(connection.address, set()).add(connection)
        return True

    def remove(self, connection: GuardedProtocol) -> None:
        """Remove a connection; nothing happens if it is not there."""
        own = self._by_address.get(connection.address, set())
        own.discard(connection)
        if not own:
            self._by_address.pop(connection.address, None)

    def _usefulness(self, connection: GuardedProtocol) -> tuple[bool, bool, bool, float]:
        """Order in which connections are dropped: those without a request first, and of these the older ones.

        New ones are kept as long as possible, since their request may be on its way, and then those that had a response
        before. Of several that are alike, the one that has been so for the longest is dropped.
        """
        new = time.monotonic() - connection.since < self.limits.fresh_seconds
        return connection.receiving, new, connection.answered, connection.since


class GuardedProtocol(H11Protocol):
    """uvicorn's protocol of one connection, with bounds."""

    register: ConnectionRegister

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.limits = self.register.limits
        self.address = ""
        self.since = time.monotonic()  # when it began to wait, or to receive the body of a request
        self.answered = False  # whether there was a response before
        self._seen: object = None  # the request whose headers were complete last
        self._header_began = False
        self._header_timer: asyncio.TimerHandle | None = None  # of the first byte, then of the headers
        self._response_timer: asyncio.TimerHandle | None = None

    @property
    def waiting(self) -> bool:
        """True while there is no request, or only a part of its headers."""
        return self.cycle is None or self.cycle.response_complete

    @property
    def receiving(self) -> bool:
        """True while the body of a request comes in."""
        return not self.waiting and self.cycle.more_body

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Register the connection, or refuse it if all others are busy."""
        super().connection_made(transport)
        self.address = self.client[0] if self.client else ""
        if not self.register.add(self):
            self._end(503, "too many connections at the same time: try again in a moment")
            return
        self._set_header_timer(self.limits.first_byte_seconds, self.transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        """Remove the connection."""
        _stop(self._header_timer)
        _stop(self._response_timer)
        self.register.remove(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take bytes of a request, and bound the time of its headers."""
        if self.transport.is_closing():
            return
        self._watch_reading()
        super().data_received(data)
        self._watch_headers()

    def on_response_complete(self) -> None:
        """Wait for the next request, and for the client to read the response."""
        self.answered, self.since = True, time.monotonic()
        super().on_response_complete()
        self._watch_reading()

    def pause_writing(self) -> None:
        """Stop to write until the client has read more, and bound the time of that."""
        super().pause_writing()
        self._watch_reading()

    def _watch_headers(self) -> None:
        """Begin the time of the headers at their first byte, and end it when they are complete."""
        if not self.waiting:
            if self.cycle is not self._seen:
                self._seen, self.since = self.cycle, time.monotonic()
            _stop(self._header_timer)
            self._header_began = False
        elif not self._header_began:
            self._header_began = True
            seconds = self.limits.header_seconds
            why = f"the headers of the request were not complete within {seconds:g} seconds"
            self._set_header_timer(seconds, lambda: self._end(408, why))

    def _watch_reading(self) -> None:
        """Begin the time in which a client has to read all that was written, and end it when it has."""
        if not self.transport.get_write_buffer_size():
            _stop(self._response_timer)
            self._response_timer = None
        elif self._response_timer is None:
            self._response_timer = self.loop.call_later(self.limits.response_seconds, self._require_read)

    def _require_read(self) -> None:
        """Drop the connection unless the client has read all that was written."""
        self._response_timer = None
        if self.transport.get_write_buffer_size():
            self.transport.abort()

    def _end(self, status: int, detail: str) -> None:
        """Respond with an error, in place of a request that never was complete, and close the connection."""
        body = json.dumps({"detail": detail}).encode()
        first = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}"
        headers = ["Content-Type: application/json", f"Content-Length: {len(body)}", "Connection: close"]
        if not self.transport.is_closing():
            self.transport.write("\r\n".join([first, *headers, "", ""]).encode() + body)
            self.transport.close()

    def _set_header_timer(self, seconds: float, then: Callable[[], object]) -> None:
        _stop(self._header_timer)
        self._header_timer = self.loop.call_later(seconds, then)


def _stop(timer: asyncio.TimerHandle | None) -> None:
    """Stop a timer, if there is one."""
    if timer is not None:
        timer.cancel()
