"""Addresses take turns, however many requests one of them has."""

import asyncio

import pytest

from paircaps.serve.turns import Turns


async def order(requests, at_once=1):
    """Names of requests ("address, number") in the order in which they have their turn."""
    turns, done = Turns(at_once), []

    async def one(address, number):
        async with turns.turn(address):
            await asyncio.sleep(0)
            done.append(f"{address}{number}")

    tasks = [asyncio.create_task(one(address, number)) for address, number in requests]
    await asyncio.gather(*tasks)
    return done


def test_requests_of_one_address_are_served_in_order():
    requests = [("a", number) for number in range(5)]
    assert asyncio.run(order(requests)) == ["a0", "a1", "a2", "a3", "a4"]


def test_addresses_are_served_in_turn():
    requests = [*(("a", number) for number in range(4)), ("b", 0), ("b", 1), ("c", 0)]
    assert asyncio.run(order(requests)) == ["a0", "a1", "b0", "c0", "a2", "b1", "a3"]


def test_no_more_than_allowed_have_a_turn_at_once():
    async def most():
        turns, now, peak = Turns(3), 0, 0

        async def one():
            nonlocal now, peak
            async with turns.turn("a"):
                now += 1
                peak = max(peak, now)
                await asyncio.sleep(0.001)
                now -= 1

        await asyncio.gather(*(one() for _ in range(20)))
        return peak

    assert asyncio.run(most()) == 3


@pytest.mark.parametrize("handed_over", [False, True])
def test_a_request_that_is_given_up_leaves_its_turn_to_others(handed_over):
    async def give_up():
        turns = Turns(1)
        first = turns.turn("a")
        await first.__aenter__()

        async def wait():
            async with turns.turn("a"):
                return True

        gone, stays = asyncio.create_task(wait()), asyncio.create_task(wait())
        await asyncio.sleep(0)
        if handed_over:
            await first.__aexit__(None, None, None)
            gone.cancel()
        else:
            gone.cancel()
            await asyncio.sleep(0)
            await first.__aexit__(None, None, None)
        assert await asyncio.wait_for(stays, 10)
        assert await asyncio.wait_for(wait(), 10)

    asyncio.run(give_up())
