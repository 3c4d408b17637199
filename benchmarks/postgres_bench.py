"""Turns per second on PostgreSQL: gathered, and the same functions called one by one through a pool of 10.

``python benchmarks/postgres_bench.py [URL]`` - without a URL it starts a server of its own (fsync on). Both
ways do accept + commit of a turn that changes state and data, for 100 concurrent conversations, with
``synchronous_commit=on``; rounds are interleaved, and the medians are compared. The pool is measured twice:
as asyncpg makes it, and without the reset that it sends when a connection is given back.

Then what it costs to have a million conversations in the store instead of a thousand (the same turns,
interleaved, and the statements that the server counted), and how long 20 messages of one person take with a
handler of 5 ms (100 ms would be ideal).
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import asyncpg

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from hitherto import Keeper, Turn, codec
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
    await many(url)
    await burst(url)


FILL = """
INSERT INTO {schema}.document
        (digest, address, version, epoch, next_seq, touched, recorded, flow, state, names, texts, size,
        seen_count, seen_next, seen_oldest)
    SELECT sha256(a::bytea), a, 2, 1, 2, 0, true, 'signup', 's1', '{{name,step}}', ARRAY['"Ann"', '1'], 14,
        1, 2, 0
    FROM (SELECT format('filler//%s/%s', n, n) AS a FROM generate_series(1, {count}) AS n) AS x;
INSERT INTO {schema}.seen (conversation, event_id, number, at)
    SELECT id, id::text, 1, 0 FROM {schema}.document;
VACUUM ANALYZE {schema}.document;
VACUUM ANALYZE {schema}.seen;
CHECKPOINT;
"""


async def many(url: str) -> None:
    """A thousand and a million conversations: time and statements per turn."""
    sizes = (1_000, 1_000_000)
    async with AsyncExitStack() as stack:
        watch = await asyncpg.connect(url)
        stack.push_async_callback(watch.close)
        stores: dict[int, PostgresStore] = {}
        for size in sizes:
            stores[size] = await stack.enter_async_context(PostgresStore(url, schema=f"of_{size}"))
            for statement in FILL.format(schema=f"of_{size}", count=size).split(";\n")[:-1]:
                await watch.execute(statement, timeout=600)
            await turns(*gathered(stores[size]), CONVERSATIONS, 0.5)
        rates: dict[int, list[float]] = {size: [] for size in sizes}
        single: dict[int, list[float]] = {size: [] for size in sizes}
        for _ in range(ROUNDS):
            for size in sizes:
                rates[size].append(await turns(*gathered(stores[size]), CONVERSATIONS, SECONDS))
                single[size].append(await turns(*gathered(stores[size]), 1, SECONDS / 4))
        for name, found in (("100 at once", rates), ("alone", single)):
            small, large = (1000 / statistics.median(found[size]) for size in sizes)
            print(
                f"{name}: {small:.3f} ms a turn with 1 000 conversations, {large:.3f} ms with 1 000 000: "
                f"{large / small:.2f} times"
            )
        for size, store in stores.items():
            print(f"{size} conversations: {await statements(watch, store)} statements for a turn")


async def statements(watch: Any, store: PostgresStore) -> str:
    """How many statements of ours the server counted for one turn."""
    try:
        await watch.execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
        await watch.execute("SELECT pg_stat_statements_reset()")
    except asyncpg.PostgresError:
        return "an unknown number of"
    accept, settle = gathered(store)
    grant = (await accept(Address("bench", "", (0, 0)), Event(f"{time.time_ns()}", PAYLOAD), "one")).grant
    assert grant is not None
    await settle(Address("bench", "", (0, 0)), grant.claim, "two", patch_of(1))
    ours = f"%{store.schema}%"
    return str(await watch.fetchval("SELECT sum(calls) FROM pg_stat_statements WHERE query LIKE $1", ours))


async def burst(url: str) -> None:
    """Twenty messages of one person at once."""
    order: list[int] = []

    async def handler(turn: Turn) -> None:
        await asyncio.sleep(0.005)
        order.append(turn.event["n"])
        turn.update_data(n=turn.event["n"])

    took = []
    async with Keeper("burst", url) as keeper:
        await keeper.handle({"n": -1}, handler, id="first", key=(0,))
        for chat in range(1, 12):
            order.clear()
            began = time.perf_counter()
            await asyncio.gather(
                *[keeper.handle({"n": n}, handler, id=f"{began}-{n}", key=(chat,)) for n in range(20)]
            )
            await keeper.idle()
            took.append((time.perf_counter() - began) * 1000)
            assert order == list(range(20)), order
    print(
        f"20 messages of one person, 5 ms handler, in order: {statistics.median(took):.0f} ms "
        f"({min(took):.0f} to {max(took):.0f})"
    )


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
