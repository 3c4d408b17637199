"""Turns per second on Redis: hitherto, aiogram's own pair, and the same two scripts sent one by one.

``python benchmarks/redis_bench.py`` measures everything on servers of its own (no persistence, loopback):

* ``throughput``: 100 conversations at once, and one alone. A turn is accept + commit with state and data; for
  aiogram it is the same step: lock, get_state, get_data, set_data, set_state, unlock. Also on a cluster.
* ``one-person``: 20 messages of one person at once, a handler of 5 ms, through ``Keeper.handle``.
* ``growth``: the same turn with a thousand and with a million conversations in the store.

Name some of them as arguments to run only those. Rounds are interleaved, and medians are compared.
"""

from __future__ import annotations

import asyncio
import itertools
import statistics
import sys
import time
import warnings
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from aiogram.fsm.storage.base import StorageKey
from aiogram.fsm.storage.redis import RedisEventIsolation, RedisStorage
from redis.asyncio import Redis

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from hitherto import Keeper, Turn, codec
from hitherto.addresses import Address
from hitherto.document import Event, Terms
from hitherto.errors import StoreWarning
from hitherto.overlap import Queue
from hitherto.records import Patch
from hitherto.stores.redis import RedisStore, calls
from hitherto.stores.redis.scripts import script
from servers.redis import RedisServer

CONVERSATIONS = 100
SECONDS = 1.5
ROUNDS = 7
TERMS, QUEUE = Terms(), Queue()
UPDATE = {"message": {"text": "hello", "from": {"id": 7, "first_name": "Ann"}}}
PAYLOAD = codec.encode_value(UPDATE, "event")

FILL = """
for n = 1, #ARGV do
  for _, place in ipairs({1, 2, 3, 8}) do redis.call('COPY', KEYS[place], KEYS[8 * n + place]) end
  redis.call('ZADD', KEYS[8 * n + 6], 0, ARGV[n])
end
"""
OURS = ("info", "config|resetstat")

Step = Callable[[int, int], Awaitable[None]]


# ------------------------------------------------------------------------------------------------- the ways


def turn_of(store: RedisStore, bot: str = "bench") -> Step:
    """Accept and commit, as a keeper does it; the events' ids are never the same."""

    async def step(who: int, number: int) -> None:
        address = Address(bot, "", (who, who))
        event = Event(f"{number:x}", PAYLOAD)
        answer = await store.accept(address, event, QUEUE, "bench", store.op(), TERMS)
        grant = answer.grant
        assert grant is not None
        fields = codec.encode({"name": f"Ann {number}", "step": number})
        patch = Patch(set=fields, moved=True, flow="signup", state=f"step{number % 5}")
        committed = await store.settle(address, grant.claim, store.op(), TERMS, patch=patch)
        assert committed.status == "committed"

    return step


def kept_turn(keeper: Keeper) -> Step:
    """The whole turn through a keeper."""

    async def handler(turn: Turn) -> None:
        turn.update_data(name="Ann", step=turn.data.get("step", 0) + 1)

    async def step(who: int, number: int) -> None:
        outcome = await keeper.handle(UPDATE, handler, key=(who, who), id=f"{number:x}")
        assert outcome.status == "committed", outcome

    return step


def aiogram_step(client: Redis) -> Step:
    """What aiogram does for one step of a dialogue."""
    storage, isolation = RedisStorage(client), RedisEventIsolation(client)

    async def step(who: int, number: int) -> None:
        key = StorageKey(1, who, who)
        async with isolation.lock(key):
            await storage.get_state(key)
            data = await storage.get_data(key)
            await storage.set_data(key, {**data, "name": f"Ann {number}", "step": number})
            await storage.set_state(key, f"signup:step{number % 5}")

    return step


class OneByOne(RedisStore):
    """The same scripts, each sent by a client of redis-py as a command of its own."""

    def __init__(self, client: Redis) -> None:
        super().__init__(client)
        self._client = client

    async def _run(
        self, name: str, address: Address, params: tuple[Any, ...] = (), *words: bytes,
        op: str | None = None, terms: Terms = TERMS, harmless: bool = False,
    ) -> Any:  # fmt: skip
        place = self._layout.place(address)
        told = calls.pack_words((False, str(op), place.member, place.indexed, calls.may_repeat(op), *params))
        limits = self._kept(terms, calls.terms_words)
        sent = ("EVALSHA", script(name).sha, len(place.keys), *place.keys, told, limits, *words)
        return await self._client.execute_command(*sent)


# ---------------------------------------------------------------------------------------------- measuring


async def rate(step: Step, conversations: int, seconds: float) -> float:
    """Steps per second, each of so many new conversations one after the other."""
    done, end = 0, time.perf_counter() + seconds
    number = itertools.count(time.time_ns())
    first = next(number)

    async def talk(who: int) -> None:
        nonlocal done
        while time.perf_counter() < end:
            await step(first + who, next(number))
            done += 1

    began = time.perf_counter()
    await asyncio.gather(*[talk(who) for who in range(conversations)])
    return done / (time.perf_counter() - began)


async def interleaved(ways: dict[str, Step]) -> tuple[dict[str, float], dict[str, float]]:
    """The medians of each way: at 100 conversations at once, and alone."""
    many: dict[str, list[float]] = {name: [] for name in ways}
    alone: dict[str, list[float]] = {name: [] for name in ways}
    for step in ways.values():
        await rate(step, CONVERSATIONS, 0.3)
    for _ in range(ROUNDS):
        for name, step in ways.items():
            many[name].append(await rate(step, CONVERSATIONS, SECONDS))
            alone[name].append(await rate(step, 1, SECONDS / 3))
    for name in ways:
        low, high = min(many[name]), max(many[name])
        print(
            f"  {name:28} {statistics.median(many[name]):8.0f} turns/s ({low:.0f} to {high:.0f}), "
            f"alone {statistics.median(alone[name]):6.0f}"
        )
    return (
        {name: statistics.median(rates) for name, rates in many.items()},
        {name: statistics.median(rates) for name, rates in alone.items()},
    )


def bar(what: str, found: float, wanted: float, *, at_most: bool = False) -> None:
    """One line: what was found beside what is wanted."""
    met = found <= wanted if at_most else found >= wanted
    sign = "at most" if at_most else "at least"
    print(f"  {what:58} {found:8.2f}   ({sign} {wanted:g}: {'met' if met else 'MISSED'})")


async def throughput(url: str, cluster_url: str) -> None:
    """Bar 3."""
    print(f"{CONVERSATIONS} conversations at once, {ROUNDS} rounds of {SECONDS} s")
    client = Redis.from_url(url)
    async with (
        RedisStore(url) as store,
        RedisStore(cluster_url) as cluster,
        OneByOne(client) as slow,
        Keeper("kept", url) as keeper,
    ):
        many, alone = await interleaved(
            {
                "hitherto": turn_of(store),
                "hitherto, Keeper.handle": kept_turn(keeper),
                "hitherto, cluster of three": turn_of(cluster),
                "two scripts one by one": turn_of(slow, "slow"),
                "aiogram": aiogram_step(client),
            }
        )
    await client.aclose()
    bar("at once: times aiogram", many["hitherto"] / many["aiogram"], 15)
    bar("at once: times the scripts one by one", many["hitherto"] / many["two scripts one by one"], 2.5)
    bar("cluster of three: times aiogram on one", many["hitherto, cluster of three"] / many["aiogram"], 6)
    bar("alone: times aiogram", alone["hitherto"] / alone["aiogram"], 3)


async def one_person(url: str) -> None:
    """Bar 5."""
    async with Keeper("person", url) as keeper:
        found, order = [], []

        async def handler(turn: Turn) -> None:
            order.append(turn.event["number"])
            await asyncio.sleep(0.005)
            turn.update_data(last=turn.event["number"])

        for round_ in range(15):
            order.clear()
            began = time.perf_counter()
            handled = [
                keeper.handle({"number": number}, handler, key=(1, 1), id=f"{round_}-{number}")
                for number in range(20)
            ]
            await asyncio.gather(*handled)
            assert await keeper.idle()
            found.append(1000 * (time.perf_counter() - began))
            assert order == list(range(20)), order
    print("20 messages of one person at once, a handler of 5 ms, in order")
    bar("milliseconds in all", statistics.median(found), 130, at_most=True)


async def growth(small: RedisServer, large: RedisServer) -> None:
    """Bar 8: turns of conversations that were there before, on a server with few and on one with many."""
    ways: dict[str, Step] = {}
    commands = []
    async with RedisStore(small.url) as few, RedisStore(large.url) as many:
        for name, server, store, count in (
            ("a thousand", small, few, 1000),
            ("a million", large, many, 1_000_000),
        ):
            began = time.perf_counter()
            await _filled(store, count)
            print(
                f"{count} conversations, {server.command('DBSIZE')} keys: {time.perf_counter() - began:.0f} s"
            )
            step = ways[name] = among(turn_of(store), count)
            server.reset_calls()
            for number in range(500):
                await step(number, time.time_ns())
            calls = server.calls()
            commands.append({name: calls[name] for name in sorted(calls) if name not in OURS})
        print(f"  the commands of 500 turns are the same: {commands[0] == commands[1]}\n    {commands[1]}")
        at_once, alone = await interleaved(ways)
    for what, found in (("at once", at_once), ("alone", alone)):
        ratio = found["a thousand"] / found["a million"]
        bar(f"time per turn {what}: a million / a thousand", ratio, 1.3, at_most=True)


def among(step: Step, count: int) -> Step:
    """The step, of conversations among so many."""

    async def one(who: int, number: int) -> None:
        await step(who % count, number)

    return one


async def _filled(store: RedisStore, count: int) -> None:
    """One conversation with ten turns behind it, and copies of it."""
    step, layout, nodes = turn_of(store), store._layout, await store._opened()
    for number in range(10):
        await step(0, number)
    template = layout.place(Address("bench", "", (0, 0))).keys
    fill = await nodes.all()[0].ask("SCRIPT", "LOAD", FILL)

    async def work(first: int) -> None:
        for start in range(first, count, 800):
            numbers = range(start, min(start + 100, count))
            places = [layout.place(Address("bench", "", (number, number))) for number in numbers]
            keys = [key for place in places for key in place.keys]
            members = [place.member for place in places]
            await nodes.all()[0].ask("EVALSHA", fill, 8 + len(keys), *template, *keys, *members)

    await asyncio.gather(*[work(first) for first in range(1, 800, 100)])


# --------------------------------------------------------------------------------------------------- main


def main() -> None:
    """Measure what the arguments name, or everything."""
    from servers.cluster import RedisCluster

    warnings.simplefilter("ignore", StoreWarning)
    wanted = set(sys.argv[1:]) or {"throughput", "one-person", "growth"}
    with RedisServer() as server:
        print(server.flavour)
        if "throughput" in wanted:
            with RedisCluster() as cluster:
                asyncio.run(throughput(server.url, cluster.url))
        if "one-person" in wanted:
            asyncio.run(one_person(server.url))
        if "growth" in wanted:
            with RedisServer() as large:
                asyncio.run(growth(server, large))


if __name__ == "__main__":
    main()
