"""What one turn costs in this process, beside the least that others do and beside a whole dispatch.

Three things are measured in one run, in turn, in many short rounds, so that a busy machine slows all:

* **turn**: ``Keeper.handle`` on ``MemoryStore``, with accept, load, one ``update_data``, one ``transition``
  and commit, the id and the key given as the pair is given its key;
* **pair**: aiogram's ``MemoryStorage`` under ``SimpleEventIsolation``: lock, get_state, get_data, set_data,
  set_state, unlock; it encodes nothing, deduplicates nothing and fences nothing;
* **dispatch**: aiogram's ``Dispatcher.feed_update`` of a message, with one handler that does the same.

Then the memory of idle conversations, and what is left behind by them. Run it alone::

    python benchmarks/overhead.py [--rounds 200] [--conversations 1000000]
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import statistics
import time
import tracemalloc
from collections.abc import Awaitable, Callable
from typing import Any

from aiogram import Bot, Dispatcher, Router
from aiogram.fsm.context import FSMContext
from aiogram.fsm.storage.base import StorageKey
from aiogram.fsm.storage.memory import MemoryStorage, SimpleEventIsolation
from aiogram.types import Message, Update

from hitherto import Flow, Keeper, MemoryStore, State, Turn

PAIR_BAR = 4.0
DISPATCH_BAR = 6.0
BYTES_BAR = 1000
CHATS = 100
EVENTS_A_ROUND = 50


class Ping(Flow):
    there = State(to="back", initial=True)
    back = State(to="there")


def update(number: int) -> dict[str, Any]:
    person = {"id": number % CHATS + 1, "is_bot": False, "first_name": "Ann"}
    chat = {"id": number % CHATS + 1, "type": "private"}
    message = {"message_id": number, "date": 1_700_000_000, "chat": chat, "from": person, "text": "hello"}
    return {"update_id": number, "message": message}


async def handler(turn: Turn) -> None:
    turn.update_data(count=1)
    turn.transition(Ping.back if turn.state is Ping.there else Ping.there)


async def in_a_handler(message: Message, state: FSMContext) -> None:
    await state.update_data(count=1)
    await state.set_state("Ping:back")


class Turns:
    """The three candidates, each as a function of an event's number."""

    def __init__(self, keeper: Keeper) -> None:
        self.keeper = keeper
        self.storage, self.isolation = MemoryStorage(), SimpleEventIsolation()
        self.bot, self.dispatcher = Bot("42:TEST"), Dispatcher()
        router = Router()
        router.message.register(in_a_handler)
        self.dispatcher.include_router(router)
        self.events = [update(number) for number in range(CHATS)]
        self.updates = [Update.model_validate(event) for event in self.events]

    async def turn(self, number: int) -> None:
        chat = number % CHATS
        await self.keeper.handle(self.events[chat], handler, id=number, key=(chat, chat))

    async def pair(self, number: int) -> None:
        chat = number % CHATS
        key = StorageKey(bot_id=1, chat_id=chat, user_id=chat)
        async with self.isolation.lock(key):
            state = await self.storage.get_state(key)
            data = await self.storage.get_data(key)
            data["count"] = 1
            await self.storage.set_data(key, data)
            await self.storage.set_state(key, "Ping:back" if state != "Ping:back" else "Ping:there")

    async def dispatch(self, number: int) -> None:
        await self.dispatcher.feed_update(self.bot, self.updates[number % CHATS])


async def round_of(work: Callable[[int], Awaitable[None]], start: int) -> float:
    """Microseconds for each of one round's events."""
    begun = time.process_time()
    for number in range(start, start + EVENTS_A_ROUND):
        await work(number)
    return (time.process_time() - begun) / EVENTS_A_ROUND * 1e6


async def measure(rounds: int) -> dict[str, float]:
    """Typical microseconds of each candidate: the median over the rounds."""
    async with Keeper("bench", MemoryStore(), [Ping]) as keeper:
        for chat in range(CHATS):
            async with keeper.open((chat, chat)) as turn:
                turn.start(Ping)
        turns = Turns(keeper)
        names = ("turn", "pair", "dispatch")
        taken: dict[str, list[float]] = {name: [] for name in names}
        gc.collect()
        gc.freeze()
        for number in range(rounds):
            for name in names:
                taken[name].append(await round_of(getattr(turns, name), number * EVENTS_A_ROUND))
        await turns.bot.session.close()
    return {name: statistics.median(times[len(times) // 10 :]) for name, times in taken.items()}


def report_speed(rounds: int) -> bool:
    found = asyncio.run(measure(rounds))
    to_pair, to_dispatch = found["turn"] / found["pair"], found["dispatch"] / found["turn"]
    print(f"turn {found['turn']:.1f} us   pair {found['pair']:.1f} us   dispatch {found['dispatch']:.1f} us")
    print(f"turn / pair      {to_pair:.2f}   bar: at most {PAIR_BAR:g}")
    print(f"dispatch / turn  {to_dispatch:.2f}   bar: at least {DISPATCH_BAR:g}")
    return to_pair <= PAIR_BAR and to_dispatch >= DISPATCH_BAR


async def converse(store: MemoryStore, count: int) -> None:
    """One whole turn in each of *count* conversations, and nothing after it."""
    async with Keeper("bench", store, [Ping]) as keeper:
        for number in range(count):
            await keeper.handle({}, started, id=number, key=(number, number))


async def started(turn: Turn) -> None:
    turn.start(Ping)


def idle(count: int) -> tuple[int, int]:
    """Bytes of each idle conversation with its record, its seen window and its place; objects that lock."""
    store = MemoryStore()
    asyncio.run(converse(MemoryStore(), 1000))
    gc.collect()
    locks = locking_objects()
    tracemalloc.start()
    asyncio.run(converse(store, count))
    gc.collect()
    used = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return used // count, locking_objects() - locks


def locking_objects() -> int:
    """How many locks, futures, tasks and events there are in this process."""
    kinds = (asyncio.Lock, asyncio.Event, asyncio.Semaphore, asyncio.Future)
    return sum(isinstance(found, kinds) for found in gc.get_objects())


def report_memory(count: int) -> bool:
    used, locks = idle(count)
    print(f"{count:,} idle conversations: {used} bytes each   bar: under {BYTES_BAR}; {locks} locks left")
    return used < BYTES_BAR and not locks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=400)
    parser.add_argument("--conversations", type=int, default=1_000_000)
    given = parser.parse_args()
    held = report_speed(given.rounds)
    if given.conversations:
        held = report_memory(given.conversations) and held
    raise SystemExit(not held)


if __name__ == "__main__":
    main()
