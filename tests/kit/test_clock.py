"""The manual clock."""

from __future__ import annotations

import asyncio

import pytest

from hitherto.testing import ManualClock


def test_it_starts_at_the_same_moment_and_stands_still():
    assert ManualClock()() == ManualClock()() == 1_800_000_000.0


def test_it_advances_and_can_be_set_back():
    clock = ManualClock(10.0)
    clock.advance(2.5)
    assert clock() == 12.5
    clock.set(3.0)
    assert clock() == 3.0
    with pytest.raises(ValueError, match="set"):
        clock.advance(-1)


async def test_sleepers_wake_in_the_order_of_their_deadlines():
    clock, woken = ManualClock(), []

    async def sleeper(seconds):
        await clock.sleep(seconds)
        woken.append(seconds)

    async with asyncio.TaskGroup() as group:
        for seconds in (3, 1, 2, 9):
            group.create_task(sleeper(seconds))
        await asyncio.sleep(0)
        assert clock.sleeping == 4
        clock.advance(0.5)
        await asyncio.sleep(0)
        assert woken == []
        clock.advance(2.5)
        await asyncio.sleep(0)
        assert woken == [1, 2, 3]
        clock.advance(6)
    assert woken == [1, 2, 3, 9]
    assert clock.sleeping == 0


async def test_a_cancelled_sleeper_is_forgotten():
    clock = ManualClock()
    task = asyncio.create_task(clock.sleep(5))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert clock.sleeping == 0
    clock.advance(10)


async def test_sleeping_for_nothing_lets_others_run():
    clock, ran = ManualClock(), []
    task = asyncio.create_task(asyncio.sleep(0, ran.append(1)))
    await clock.sleep(0)
    await task
    assert ran == [1]
