"""Turns of requests at the computation, fair to all addresses."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Turns:
    """A number of turns at the same time. Addresses that wait take turns; those of one address are served in order.

    An address with a hundred requests thus delays the only request of another address by one of them.

    Args:
        at_once: number of requests that may have a turn at the same time.
    """

    def __init__(self, at_once: int) -> None:
        self._free = at_once
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}  # in the order in which addresses are served

    @asynccontextmanager
    async def turn(self, address: str) -> AsyncIterator[None]:
        """Wait for a turn of an address, and have it for the duration of a ``with`` block."""
        await self._take(address)
        try:
            yield
        finally:
            self._give_on()

    async def _take(self, address: str) -> None:
        """Take a free turn, or wait until one is handed over."""
        if self._free:
            self._free -= 1
            return
        handed_over = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(address, deque()).append(handed_over)
        try:
            await handed_over
        except asyncio.CancelledError:
            if handed_over.done() and not handed_over.cancelled():  # it came at the same moment
                self._give_on()
            raise

    def _give_on(self) -> None:
        """Hand a turn to the first request of the next address, whose further requests then wait behind all others."""
        while self._waiting:
            address = next(iter(self._waiting))
            queue = self._waiting.pop(address)
            first = queue.popleft()
            if queue:
                self._waiting[address] = queue
            if not first.done():
                first.set_result(None)
                return
        self._free += 1
