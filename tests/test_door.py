"""The door that polled updates come through: in order, confirmed once accepted, asked for again if not."""

from __future__ import annotations

import asyncio

import pytest

from hitherto.door import Door


async def asked(door: Door, offset: int | None) -> int | None:
    """The offset that is really asked for."""

    async def request(offset: int | None) -> int | None:
        return offset

    return await door.ask(offset, request)


async def test_those_of_one_conversation_wait_for_each_other():
    door, order = Door(), []

    async def come(name: str, key: tuple[int, ...] | None, go: asyncio.Event) -> None:
        place = door.come(key)
        await place.reached()
        order.append(name)
        await go.wait()
        door.leave(place)

    go, gone = asyncio.Event(), asyncio.Event()
    gone.set()
    first = asyncio.create_task(come("first", (1,), go))
    others = [
        asyncio.create_task(come(*who, gone)) for who in [("second", (1,)), ("other", (2,)), ("none", None)]
    ]
    await asyncio.sleep(0.01)
    assert order == ["first", "other", "none"]
    go.set()
    await asyncio.gather(first, *others)
    assert order[-1] == "second"
    assert door._last == {}


async def test_the_next_request_waits_until_everybody_is_through():
    door = Door()
    place = door.come((1,))
    asking = asyncio.create_task(asked(door, 7))
    await asyncio.sleep(0.01)
    assert not asking.done()
    door.leave(place)
    door.leave(place)
    assert await asking == 7


async def test_what_is_held_is_asked_for_again_once():
    door = Door()
    door.hold(5)
    door.hold(3)
    assert await asked(door, 9) == 3
    assert await asked(door, 9) == 9


async def test_a_request_that_fails_is_made_again_for_what_is_held():
    door = Door()
    door.hold(3)

    async def request(offset: int | None) -> None:
        raise OSError("cut")

    with pytest.raises(OSError, match="cut"):
        await door.ask(9, request)
    assert await asked(door, 9) == 3
