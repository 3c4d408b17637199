"""Turns per second on PostgreSQL: gathered, and the same functions called one by one through a pool of 10.

``python benchmarks/postgres_bench.py [URL]`` - without a URL it starts a server of its own (fsync on). Both
ways do accept + commit of a turn that changes state and data, for 100 concurrent conversations, with
``synchronous_commit=on``; rounds are interleaved, and the medians are compared. The pool is measured twice:
as asyncpg makes it, and without the reset that it sends when a connection is given back.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import asyncpg

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from hitherto import codec
from hitherto.addresses import Address
from hitherto.document import Answer, Claim, Event, Grant, Terms
from hitherto.overlap import Queue
from hitherto.records import Patch
from hitherto.stores.postgres import PostgresStore, calls
from hitherto.stores.postgres.columns import place_of

CONVERSATIONS = 100
SECONDS = 2.0
ROUNDS = 5
TERMS, QUEUE = Terms(), Queue()
PAYLOAD = codec.encode_value({"message": {"text": "hello", "from": {"id": 7, "first_name": "Ann"}}}, "event")

Accept = Callable[[Address, Event, str], Awaitable[Answer]]
Settle = Callable[[Address, Claim, str, Patch], Awaitable[Answer]]


def patch_of(number: int) -> Patch:
    """A step of a dialogue: another state, two fields."""
    fields = codec.encode({"name": f"Ann {number}", "step": number})
    return Patch(set=fields, moved=True, flow="signup", state=f"step{number % 5}")


async def turns(accept: Accept, settle: Settle, conversations: int, seconds: float) -> float:
    """Turns per second."""
    done, end = 0, time.perf_counter() + seconds
    ops = iter(range(10**9))
    tag = f"{time.time_ns():x}"

    async def talk(who: int) -> None:
        nonlocal done
        address = Address("bench", "", (who, who))
        while time.perf_counter() < end:
            number = next(ops)
            answer = await accept(address, Event(f"{tag}-{number}", PAYLOAD), f"{tag}-a{number}")
            grant = answer.grant
            assert isinstance(grant, Grant)
            committed = await settle(address, grant.claim, f"{tag}-s{number}", patch_of(number))
            assert committed.status == "committed"
            done += 1

    began = time.perf_counter()
    await asyncio.gather(*[talk(who) for who in range(conversations)])
    return done / (time.perf_counter() - began)


def gathered(store: PostgresStore) -> tuple[Accept, Settle]:
    """The store as it is."""

    async def accept(address: Address, event: Event, op: str) -> Answer:
        return await store.accept(address, event, QUEUE, "bench", op, TERMS)

    async def settle(address: Address, claim: Claim, op: str, patch: Patch) -> Answer:
        return await store.settle(address, claim, op, TERMS, patch=patch)

    return accept, settle


def one_by_one(pool: Any) -> tuple[Accept, Settle]:
    """The same functions, a call for each operation."""

    async def accept(address: Address, event: Event, op: str) -> Answer:
        item = calls.accept_item(place_of(address), event, QUEUE, "bench", op, TERMS)
        rows = await pool.fetch(calls.ACCEPT, *calls.accept_arguments([item], None))
        answer = calls.accept_answer(item, rows[0])
        assert answer is not None
        return answer

    async def settle(address: Address, claim: Claim, op: str, patch: Patch) -> Answer:
        item = calls.Settle(place_of(address), claim, op, TERMS, patch, "done", 0.0, True)
        rows = await pool.fetch(calls.SETTLE, *calls.settle_arguments([item], None))
        answer = calls.settle_answer(item, rows[0])
        assert answer is not None
        return answer

    return accept, settle


async def measure(url: str) -> None:
    """Interleave the ways and print the medians and their ratios."""

    async def no_reset(_: Any) -> None:
        return None

    async with (
        PostgresStore(url) as store,
        asyncpg.create_pool(url, min_size=10, max_size=10) as pool,
        asyncpg.create_pool(url, min_size=10, max_size=10, reset=no_reset) as bare,
    ):
        durable = await pool.fetchval(
            "SELECT current_setting('synchronous_commit')||'/'||current_setting('fsync')"
        )
        print(
            f"synchronous_commit/fsync = {durable}; "
            f"{CONVERSATIONS} conversations, {ROUNDS} rounds of {SECONDS} s"
        )
        ways = {
            "gathered": gathered(store),
            "pool of 10": one_by_one(pool),
            "pool, no reset": one_by_one(bare),
        }
        found: dict[str, list[float]] = {name: [] for name in ways}
        alone: dict[str, list[float]] = {name: [] for name in ways}
        for way in ways.values():
            await turns(*way, CONVERSATIONS, 0.5)
        for _ in range(ROUNDS):
            for name, way in ways.items():
                found[name].append(await turns(*way, CONVERSATIONS, SECONDS))
                alone[name].append(await turns(*way, 1, SECONDS / 4))
    report(found, alone)


def report(found: dict[str, list[float]], alone: dict[str, list[float]]) -> None:
    """The table."""
    best = statistics.median(found["gathered"])
    for name, rates in found.items():
        middle, single = statistics.median(rates), statistics.median(alone[name])
        print(
            f"{name:15} {middle:8.0f} turns/s ({min(rates):.0f} to {max(rates):.0f}); "
            f"gathered is {best / middle:.2f} times that; alone {single:.0f} turns/s"
        )


def main() -> None:
    """Measure on the server of the first argument, or on one of our own."""
    if len(sys.argv) > 1:
        asyncio.run(measure(sys.argv[1]))
        return
    from servers.postgres import PostgresServer

    server = PostgresServer().start()
    try:
        asyncio.run(measure(server.url_of(server.create_database())))
    finally:
        server.close()


if __name__ == "__main__":
    main()
