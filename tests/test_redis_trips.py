"""How often Redis is asked: counted at the socket and by the server itself, and what lost replies do.

``HITHERTO_LOST_REPLIES=2000`` loses two thousand of them; every run loses three hundred.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter

import pytest

from hitherto import Keeper
from hitherto.addresses import Address
from hitherto.document import Terms
from hitherto.records import Patch
from hitherto.stores.redis import RedisStore
from hitherto.testing.proxy import Proxy
from keeping import Talk, note, update

pytestmark = pytest.mark.filterwarnings("ignore::hitherto.errors.StoreWarning")
LOST = int(os.environ.get("HITHERTO_LOST_REPLIES", "300"))


async def step(turn) -> None:
    """A handler that changes state and data."""
    if turn.flow is None:
        turn.start(Talk)
    turn.update_data(done=[*turn.data.get("done", []), turn.event["update_id"]])


class Counted:
    """A keeper behind a counting proxy; `trips` is what was counted since, at the socket and there."""

    def __init__(self, server, proxy, keeper) -> None:
        self.server, self.proxy, self.keeper = server, proxy, keeper

    def begin(self) -> None:
        self.proxy.reset_counts()
        self.server.reset_calls()

    def trips(self) -> int:
        counts, calls = self.proxy.reset_counts(), self.server.calls()
        assert counts.connections == 0
        assert set(counts.names) <= {"EVALSHA"}
        assert calls.get("evalsha", 0) == counts.requests == counts.replies
        loud = ("script", "eval|", "ping", "hello", "auth", "client", "select", "cluster", "watch", "multi")
        assert not [name for name in calls if name.startswith(loud)]
        return counts.round_trips


async def calm(keeper, proxy) -> None:
    """Until the sweep at the start is over; the next one comes in ten minutes."""
    assert await keeper.idle()
    before = -1
    while before != proxy.counts.requests:
        before = proxy.counts.requests
        await asyncio.sleep(0.15)


@pytest.fixture
async def counted(any_redis):
    """Each kind of server, hot: it has the scripts and has run a turn."""
    async with Proxy(any_redis.url) as proxy, Keeper("bot", proxy.url, flows=[Talk], sweep=600) as keeper:
        await keeper.handle(update(1, 99), step)
        await calm(keeper, proxy)
        one = Counted(any_redis, proxy, keeper)
        one.begin()
        yield one


async def test_an_uncontended_turn_takes_two(counted):
    for number in range(10, 20):
        assert (await counted.keeper.handle(update(number), step)).status == "committed"
        assert counted.trips() == 2
        counted.begin()


async def test_a_duplicate_takes_one(counted):
    await counted.keeper.handle(update(10), step)
    counted.begin()
    assert (await counted.keeper.handle(update(10), step)).status == "duplicate"
    assert counted.trips() == 1


async def test_a_queued_event_takes_its_accept_and_the_commit_of_its_turn(counted):
    inside, go_on = asyncio.Event(), asyncio.Event()

    async def slow(turn) -> None:
        inside.set()
        await go_on.wait()
        await step(turn)

    first = asyncio.create_task(counted.keeper.handle(update(10), slow))
    await inside.wait()
    assert (await counted.keeper.handle(update(11), slow)).status == "queued"
    assert counted.trips() == 2
    counted.begin()
    go_on.set()
    await first
    assert await counted.keeper.idle()
    assert counted.trips() == 2
    assert (await counted.keeper.store.get_data("bot", (7, 7)))["done"] == [10, 11]


async def test_twenty_messages_at_once_take_at_most_twenty_two_in_order(counted):
    handled = []

    async def handler(turn) -> None:
        handled.append(turn.event["update_id"])
        await asyncio.sleep(0.001)
        await step(turn)

    await asyncio.gather(*[counted.keeper.handle(update(number), handler) for number in range(10, 30)])
    assert await counted.keeper.idle()
    assert 20 < counted.trips() <= 22
    assert handled == list(range(10, 30))
    assert (await counted.keeper.store.get_data("bot", (7, 7)))["done"] == handled


async def test_a_turn_that_changes_nothing_and_one_that_fails_take_two(counted):
    async def nothing(turn) -> None:
        pass

    async def wrong(turn) -> None:
        raise ValueError

    await counted.keeper.handle(update(10), nothing)
    assert counted.trips() == 2
    counted.begin()
    with pytest.raises(ValueError):  # noqa: PT011 - it has nothing to say
        await counted.keeper.handle(update(11), wrong)
    assert counted.trips() == 2


async def test_reads_and_writes_of_the_storage_take_one_each(counted):
    store = counted.keeper.store
    for call in (
        store.set_data("bot", (1,), {"a": 1}),
        store.update_data("bot", (1,), {"b": 1}),
        store.get_state("bot", (1,)),
        store.get_data("bot", (1,)),
        store.clear("bot", (1,)),
    ):
        counted.begin()
        await call
        assert counted.trips() == 1


async def test_renewing_many_leases_is_one_trip_or_a_few(counted):
    store, terms = counted.keeper.store, Terms()
    places = [Address("bot", "", (n,)) for n in range(60)]
    held = await asyncio.gather(*[store.acquire(place, "me", store.op(), terms) for place in places])
    counted.begin()
    claims = [(place, one.grant.claim) for place, one in zip(places, held, strict=True)]
    assert await store.renew(claims, terms) == [True] * 60
    assert counted.trips() <= 4


async def test_a_million_or_a_thousand_the_commands_of_a_turn_are_the_same(any_redis):
    async with (
        Proxy(any_redis.url) as proxy,
        RedisStore(proxy.url) as store,
        Keeper("bot", store, flows=[Talk], sweep=600) as keeper,
    ):
        commands = []
        for there in (1, 3000):
            places = [Address("bot", "", (there, n)) for n in range(there)]
            await asyncio.gather(*[store.set_data("bot", place.key, {"a": 1}) for place in places])
            await keeper.handle(update(1, there), step)
            await calm(keeper, proxy)
            any_redis.reset_calls()
            await keeper.handle(update(2, there), step)
            commands.append({name: n for name, n in any_redis.calls().items() if "|" not in name})
        assert commands[0] == commands[1]
        assert sum(commands[0].values()) < 25


async def test_on_a_cluster_a_turn_takes_two_as_well(redis_cluster, redis_cluster_url):
    async with Keeper("bot", redis_cluster_url, sweep=600) as keeper:
        await asyncio.gather(*[keeper.handle(update(1, chat), note) for chat in range(100, 130)])
        await asyncio.sleep(0.5)  # the sweep at the start
        redis_cluster.reset_calls()
        for chat in range(1, 11):
            await keeper.handle(update(2, chat), note)
        calls = redis_cluster.calls()
        assert {name: n for name, n in calls.items() if name.startswith(("eval", "script"))} == {
            "evalsha": 20
        }


# ---------------------------------------------------------------------------------------- lost replies


async def test_lost_replies_lose_nothing_and_do_nothing_twice(any_redis):
    """Default settings of everything; the server does what it was asked, and nobody hears of it."""
    chats, number = 40, 0
    ran: Counter[int] = Counter()

    async def handler(turn) -> None:
        ran[turn.event["update_id"]] += 1
        turn.update_data(
            done=[*turn.data.get("done", []), turn.event["update_id"]], turns=turn.data.get("turns", 0) + 1
        )

    async with Proxy(any_redis.url, seed=7) as proxy, Keeper("bot", proxy.url) as keeper:
        await keeper.start()
        sent: dict[int, list[int]] = {chat: [] for chat in range(1, chats + 1)}
        loss = proxy.lose_reply(
            None, probability=0.05, limit=LOST, only=lambda request: request.name == "EVALSHA"
        )

        async def talk(chat: int) -> None:
            nonlocal number
            while loss.hits < LOST:
                number += 1
                one = number
                outcome = await keeper.handle(update(one, chat), handler)
                assert outcome.status == "committed", outcome
                sent[chat].append(one)

        await asyncio.gather(*map(talk, range(1, chats + 1)))
        assert await keeper.idle()
        print(f"{loss.hits} lost replies, {number} turns")
        assert loss.hits == LOST
        for chat, numbers in sent.items():
            data = await keeper.store.get_data("bot", (chat, chat)) or {}
            assert data.get("done", []) == numbers
            assert data.get("turns", 0) == len(numbers)
            document = await keeper.inspect((chat, chat))
            assert not document.inbox
            assert not document.dead
    assert set(ran.values()) == {1}, "not one handler ran twice"


async def test_lost_replies_of_everything_else_do_nothing_twice(redis_url):
    """Operations without an event id are protected by their operation ids alone."""
    async with Proxy(redis_url, seed=3) as proxy, RedisStore(proxy.url) as store:
        terms, home = Terms(), Address("bot", "", (1,))
        await store.set_data("bot", (1,), {"n": 0})
        loss = proxy.lose_reply(None, probability=0.3, only=lambda request: request.name == "EVALSHA")
        for number in range(60):
            held = await store.acquire(home, "me", store.op(), terms)
            assert held.status == "granted"
            patch = Patch(set={"n": b"%d" % number})
            answer = await store.settle(home, held.grant.claim, store.op(), terms, patch=patch)
            assert answer.status == "committed"
            assert await store.update_data("bot", (1,), {"m": number}) == {"n": number, "m": number}
            held = await store.acquire(home, "me", store.op(), terms)
            assert (await store.release(home, held.grant.claim, store.op(), terms)).status == "released"
        loss.cancel()
        assert loss.hits > 20
        assert (await store.load(home)).epoch == 120
