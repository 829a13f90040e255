"""Bodies of requests are held within bounds."""

import asyncio

import pytest

from paircaps.serve.bodies import Bodies, RefusedError
from paircaps.serve.limits import Limits


def messages(*contents, pause=None):
    """An ASGI receive that gives parts of a body; before its last part it waits for an event."""
    left = list(contents)

    async def receive():
        if pause is not None and len(left) == 1:
            await pause.wait()
        content = left.pop(0)
        return {"type": "http.request", "body": content, "more_body": bool(left)}

    return receive


def test_a_body_comes_back_as_it_was():
    async def receive():
        body = await Bodies(Limits(body_memory=4)).receive(messages(b"abc", b"", b"defgh"), 8)
        found = body.size, body.read()
        body.close()
        return found

    assert asyncio.run(receive()) == (8, b"abcdefgh")


def test_a_body_that_is_too_large_is_refused():
    with pytest.raises(RefusedError, match="more than 7 bytes are too many"):
        asyncio.run(Bodies(Limits()).receive(messages(b"abcd", b"efgh"), 7))


def test_of_too_many_bodies_the_one_that_began_first_and_is_not_complete_is_given_up():
    async def crowd():
        bodies, go = Bodies(Limits(all_bodies=25)), asyncio.Event()
        complete = await bodies.receive(messages(b"a" * 10), 20)
        slow = asyncio.create_task(bodies.receive(messages(b"b" * 10, b"b", pause=go), 20))
        await asyncio.sleep(0.01)
        last = await bodies.receive(messages(b"c" * 10), 20)
        go.set()
        with pytest.raises(RefusedError, match="try again in a moment") as refused:
            await slow
        assert refused.value.status == 503
        assert (complete.read(), last.read()) == (b"a" * 10, b"c" * 10)
        with pytest.raises(RefusedError):  # all others are complete: this one has to wait
            await bodies.receive(messages(b"d" * 10), 20)
        bodies.release(complete)
        again = await bodies.receive(messages(b"d" * 10), 20)
        assert again.read() == b"d" * 10
        for body in (last, again):
            bodies.release(body)

    asyncio.run(crowd())


def test_a_client_that_hangs_up_leaves_nothing_behind():
    async def hang_up():
        async def gone():
            return {"type": "http.disconnect"}

        bodies = Bodies(Limits(all_bodies=10))
        assert await bodies.receive(gone, 10) is None
        body = await bodies.receive(messages(b"a" * 10), 10)
        assert body.size == 10
        bodies.release(body)

    asyncio.run(hang_up())
