"""Twenty messages of one person at once, a handler of 5 ms: how long all take, and in which order."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from benchmarks.ways import MESSAGE
from hitherto import Keeper, Turn

MESSAGES, HANDLER = 20, 0.005


class Crowd(NamedTuple):
    """What became of them."""

    milliseconds: float
    in_order: bool
    kept: int


async def on_hitherto(url: str, tag: str) -> Crowd:
    """Through ``Keeper.handle``."""
    order: list[int] = []

    async def handler(turn: Turn) -> None:
        await asyncio.sleep(HANDLER)
        number = turn.event["number"]
        order.append(number)
        turn.update_data({f"m{number}": True})

    async with Keeper("crowd", url) as keeper:
        async with keeper.open((tag,)):
            pass
        began = time.perf_counter()
        await asyncio.gather(
            *[
                keeper.handle({**MESSAGE, "number": number}, handler, key=(tag,), id=f"{tag}-{number}")
                for number in range(MESSAGES)
            ]
        )
        await keeper.idle()
        took = 1000 * (time.perf_counter() - began)
        async with keeper.open((tag,)) as turn:
            kept = len(turn.data)
    return Crowd(took, order == sorted(order), kept)


async def on_aiogram(storage: Any, isolation: Any, tag: int) -> Crowd:
    """Through the event isolation, every handler merging a key of its own."""
    from aiogram.fsm.storage.base import StorageKey

    key, order = StorageKey(1, tag, tag), list[int]()

    async def message(number: int) -> None:
        async with isolation.lock(key):
            await storage.get_state(key)
            data = await storage.get_data(key) or {}
            await asyncio.sleep(HANDLER)
            order.append(number)
            await storage.set_data(key, {**data, f"m{number}": True})

    began = time.perf_counter()
    await asyncio.gather(*[message(number) for number in range(MESSAGES)])
    took = 1000 * (time.perf_counter() - began)
    return Crowd(took, order == sorted(order), len(await storage.get_data(key) or {}))


async def best_of(make: Callable[[int], Awaitable[Crowd]], rounds: int) -> dict[str, Any]:
    """The typical time of several rounds, and whether all kept the order and every message."""
    found = [await make(round_) for round_ in range(rounds)]
    times = sorted(crowd.milliseconds for crowd in found)
    return {
        "milliseconds": times[len(times) // 2],
        "in_order": all(crowd.in_order for crowd in found),
        "kept": min(crowd.kept for crowd in found),
        "of": MESSAGES,
    }
