"""What a turn costs on PostgreSQL, counted at the socket and by the server; what lost replies do: nothing."""

from __future__ import annotations

import asyncio
import itertools
import os
import re
from collections import Counter
from functools import partial

import asyncpg
import pytest

from hitherto import Keeper
from hitherto.addresses import Address
from hitherto.errors import StoreError
from hitherto.stores.postgres import PostgresStore
from hitherto.testing.proxy import Proxy
from keeping import Talk
from servers.pooler import TransactionPooler
from servers.postgres import PostgresServer

CALL = re.compile(r'SELECT \* FROM "[a-z_0-9]+"\.(\w+)\(')


def calls_in(names):
    """How often each of our functions was called; anything else under its own text."""
    found = Counter()
    for sql, number in names.items():
        match = CALL.match(sql)
        found[match[1] if match else sql] += number
    return found


def message(number, text="hi", chat=7):
    person = {"id": chat, "is_bot": False, "first_name": "Ann"}
    return {
        "update_id": number,
        "message": {"message_id": number, "date": 1, "chat": {"id": chat, "type": "private"}, "from": person,
                    "text": text},
    }  # fmt: skip


async def step(turn):
    """A handler that changes state and data."""
    number = turn.event["update_id"]
    if turn.flow is None:
        turn.start(Talk)
    else:
        turn.force(Talk, Talk.middle if number % 2 else Talk.hello)
    turn.update_data(done=[*turn.data.get("done", []), number])


_schemas = map("trips_{}".format, itertools.count())


@pytest.fixture
async def counted(any_postgres):
    """A keeper whose connections are made already, and a function that tells what a piece of work costs."""
    async with Proxy(f"{any_postgres.url}") as proxy:
        schema = next(_schemas)
        watched = isinstance(any_postgres, PostgresServer) and any_postgres.has_statistics()
        keeper = Keeper("bot", f"{proxy.url}?schema={schema}", flows=[Talk], sweep=3600.0, lease=3600.0)
        async with keeper:
            await keeper.handle(message(1, chat=1), step)
            await keeper.store.get_data("bot", (1, 1))

            async def cost(work):
                proxy.reset_counts()
                if watched:
                    any_postgres.reset_calls()
                result = await work
                counts = proxy.reset_counts()
                sent = calls_in(counts.names)
                if watched:
                    ours = {sql: n for sql, n in any_postgres.calls().items() if CALL.match(sql)}
                    assert calls_in(ours) == sent
                assert counts.requests == counts.replies == sum(sent.values())
                assert counts.connections == 0
                return result, counts.round_trips, dict(sent)

            yield keeper, cost
    any_postgres.query(f"DROP SCHEMA {schema} CASCADE")


@pytest.mark.parametrize("kind", ["new", "known"])
async def test_an_uncontended_turn_is_two_round_trips(counted, kind):
    keeper, cost = counted
    if kind == "known":
        await keeper.handle(message(2), step)
    outcome, trips, calls = await cost(keeper.handle(message(3), step))
    assert outcome.status == "committed"
    assert (trips, calls) == (2, {"accept_v1": 1, "settle_v1": 1})


async def test_a_duplicate_is_one(counted):
    keeper, cost = counted
    await keeper.handle(message(3), step)
    outcome, trips, calls = await cost(keeper.handle(message(3), step))
    assert outcome.status == "duplicate"
    assert (trips, calls) == (1, {"accept_v1": 1})


async def test_a_queued_event_is_no_more_than_any_other(counted):
    keeper, cost = counted
    entered, leave = asyncio.Event(), asyncio.Event()

    async def slow(turn):
        entered.set()
        await leave.wait()
        await step(turn)

    async def two():
        first = asyncio.create_task(keeper.handle(message(3), slow))
        await entered.wait()
        second = await keeper.handle(message(4), slow)
        leave.set()
        await first
        assert await keeper.idle()
        return second

    second, trips, calls = await cost(two())
    assert second.status == "queued"
    assert (trips, calls) == (4, {"accept_v1": 2, "settle_v1": 2})
    assert (await keeper.store.get_data("bot", (7, 7)))["done"] == [3, 4]


async def test_twenty_messages_at_once_are_at_most_twenty_two(counted):
    keeper, cost = counted
    order = []

    async def noted(turn):
        order.append(turn.event["update_id"])
        await asyncio.sleep(0.005)
        await step(turn)

    async def all_of_them():
        outcomes = await asyncio.gather(*[keeper.handle(message(n), noted) for n in range(100, 120)])
        assert await keeper.idle()
        return outcomes

    outcomes, trips, calls = await cost(all_of_them())
    assert {outcome.status for outcome in outcomes} <= {"committed", "queued"}
    assert trips <= 22
    assert calls == {"accept_v1": 2, "settle_v1": 20}
    assert order == list(range(100, 120))
    assert (await keeper.store.get_data("bot", (7, 7)))["done"] == order


async def test_a_hundred_conversations_share_their_trips(counted):
    keeper, cost = counted
    _, trips, calls = await cost(
        asyncio.gather(*[keeper.handle(message(n, chat=1000 + n), step) for n in range(100)])
    )
    assert trips <= 10
    assert calls.keys() == {"accept_v1", "settle_v1"}


async def test_behind_a_pooler_it_is_no_more(pooled_postgres_url):
    async with (
        Proxy(pooled_postgres_url) as proxy,
        Keeper("bot", proxy.url, flows=[Talk], sweep=3600.0) as keeper,
    ):
        await keeper.handle(message(1), step)
        proxy.reset_counts()
        await keeper.handle(message(2), step)
        assert proxy.counts.round_trips == 2
        assert calls_in(proxy.counts.names) == {"accept_v1": 1, "settle_v1": 1}


async def test_nothing_is_left_on_the_connections_of_a_pooler(postgres_url):
    async with TransactionPooler(postgres_url) as pooler:
        async with PostgresStore(pooler.url) as store:
            await store.set_data("bot", (1,), {})
            assert await store.browse("bot")
        looking = await asyncpg.connect(pooler.url, statement_cache_size=0)
        for _ in range(6):
            left = "SELECT current_setting('jit') || count(*) FROM pg_prepared_statements WHERE name <> ''"
            assert await looking.fetchval(left) == "on0"
        await looking.close()


@pytest.mark.parametrize(("keys", "functions"), [(50, {"settle_v1"}), (5000, {"load_v1", "write_v1"})])
async def test_a_turn_that_changes_very_many_keys_takes_the_way_of_whole_documents(counted, keys, functions):
    keeper, cost = counted
    data = {f"key {number}": number for number in range(keys)}

    async def fill(turn):
        turn.update_data(**data)

    await keeper.handle(message(3), step)
    await keeper.store.update_data("bot", (7, 7), {"before": 1})
    _, trips, calls = await cost(keeper.handle(message(4), fill))
    assert calls.keys() == {"accept_v1"} | functions
    assert trips == 1 + len(functions)
    assert await keeper.store.get_data("bot", (7, 7)) == {"done": [3], "before": 1, **data}


# -------------------------------------------------------------------------------------------- lost replies

LOST = int(os.environ.get("HITHERTO_LOST_REPLIES", "300"))
CHATS = 10


@pytest.mark.timeout(max(120, LOST))
async def test_lost_replies_do_nothing_twice_and_lose_nothing(postgres_url):
    """The server has applied each of these calls; the answer never came, and the connection with it."""
    sent = {chat: [] for chat in range(1, CHATS + 1)}
    merged = {chat: [] for chat in range(1, CHATS + 1)}
    async with Proxy(postgres_url, seed=7) as proxy:
        keeper = Keeper("bot", proxy.url, flows=[Talk], lease=90.0, deadline=90.0, seen_limit=100_000)
        steps = Counter()
        keeper.listen(lambda taken: steps.update([taken.kind]))
        async with keeper:
            await keeper.handle(message(1, chat=99), step)
            loss = proxy.lose_reply(probability=0.4, limit=LOST, only=lambda request: "_v1(" in request.name)

            async def feed(chat):
                number = chat * 1_000_000
                while loss.active:
                    number += 1
                    event = message(number, chat=chat)
                    await surely(partial(keeper.handle, event, step))
                    sent[chat].append(number)
                    if number % 3 == 0:
                        await surely(partial(keeper.handle, event, step))
                    if number % 5 == 0:
                        new = {f"k{number}": number}
                        await surely(partial(keeper.store.update_data, "bot", (chat, chat), new))
                        merged[chat].append(number)

            await asyncio.gather(*[feed(chat) for chat in range(1, CHATS + 1)])
            assert await keeper.idle()
            assert loss.hits == proxy.counts.lost_replies == LOST
            names = calls_in(proxy.counts.names)
            assert steps["committed"] == 1 + sum(map(len, sent.values()))
            assert steps["fenced"] == steps["lost"] == steps["failed"] == 0
        assert {"accept_v1", "settle_v1", "load_v1", "write_v1"} <= names.keys()
    async with PostgresStore(postgres_url) as store:
        for chat in range(1, CHATS + 1):
            data = await store.get_data("bot", (chat, chat))
            assert data.pop("done") == sent[chat]
            assert data == {f"k{number}": number for number in merged[chat]}
            document = await store.load(Address("bot", "", (chat, chat)))
            assert document.inbox == document.dead == ()
            assert document.lease is None


async def surely(call):
    """What a platform does: deliver again until it was taken."""
    while True:
        try:
            return await call()
        except StoreError as error:
            if not error.retryable:
                raise
