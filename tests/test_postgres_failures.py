"""What goes wrong around PostgresStore: it comes back, or says so in time, and neighbours do not suffer."""

from __future__ import annotations

import asyncio
import itertools
import subprocess
import sys
import time

import asyncpg
import pytest

from hitherto import Keeper
from hitherto.addresses import Address
from hitherto.document import Event, Terms
from hitherto.errors import BadEvent, StoreError, StoreUnavailable
from hitherto.overlap import Queue
from hitherto.stores.postgres import PostgresStore, calls
from hitherto.stores.postgres.columns import place_of
from hitherto.testing.proxy import Proxy
from keeping import note, update
from servers.postgres import PostgresServer
from test_postgres import turn

TERMS = Terms()


@pytest.fixture(scope="module")
def victim():
    """A server of these tests' own, to be paused, killed and filled."""
    with PostgresServer(fsync=False) as server:
        yield server


@pytest.fixture
def server(victim):
    victim.resume()
    if not victim.alive:
        victim.start()
    victim.wait_ready()
    return victim


@pytest.fixture
def url(server):
    name = server.create_database()
    yield server.url_of(name)
    server.resume()
    server.wait_ready()
    server.drop_database(name)


def name_of(url):
    return url.rpartition("/")[2]


async def done(store, chat=7):
    return ((await store.get_data("bot", (chat, chat))) or {}).get("done", [])


# ------------------------------------------------------------------------------------- it goes and comes back


@pytest.mark.parametrize("way", ["reset", "terminated", "killed", "restarted"])
async def test_a_keeper_goes_on_when_the_server_comes_back(server, url, way):
    async with Proxy(url) as proxy, Keeper("bot", proxy.url, deadline=60.0) as keeper:
        number = 0
        for _ in range(4):
            number += 1
            await keeper.handle(update(number), note)
            harm = {
                "reset": proxy.reset,
                "terminated": server.terminate_backends,
                "killed": lambda: server.kill_backends(1),
                "restarted": server.restart,
            }[way]
            breaking = asyncio.create_task(asyncio.to_thread(harm) if way != "reset" else at_once(harm))
            while not breaking.done():
                number += 1
                await keeper.handle(update(number), note)
            await breaking
        number += 1
        outcome = await keeper.handle(update(number), note)
        assert outcome.status == "committed"
        assert await done(keeper.store) == list(range(1, number + 1))


async def kept(store, number, chat=7):
    """What was handled in a conversation, once it is so many."""
    async with asyncio.timeout(60):
        while len(found := await done(store, chat)) < number:  # noqa: ASYNC110 - it is asked for
            await asyncio.sleep(0.02)
    return found


async def at_once(harm):
    harm()


@pytest.mark.parametrize("way", ["stop", "kill"])
async def test_a_server_that_is_gone_is_unavailable_and_then_back(server, url, way):
    async with PostgresStore(url, timeout=3) as store:
        await turn(store, 1)
        await asyncio.to_thread(getattr(server, way))
        for _ in range(2):
            with pytest.raises(StoreUnavailable) as caught:
                await turn(store, 2)
            assert caught.value.retryable
        with pytest.raises(StoreUnavailable):
            await PostgresStore(url, timeout=3).open()
        await asyncio.to_thread(server.start)
        await turn(store, 2, number=9)
        assert await store.get_data("bot", (1,)) == {"n": 1}


async def test_a_server_that_says_nothing_is_unavailable_in_time(server, url):
    async with PostgresStore(url, timeout=0.6) as store:
        await asyncio.gather(*[turn(store, key) for key in range(5)])
        server.pause()
        began = time.monotonic()
        calls = [turn(store, 1, 2), store.get_data("bot", (1,)), store.update_data("bot", (2,), {"a": 1})]
        calls += [store.renew([], TERMS), store.browse("bot"), store.due("bot", 5), store.now()]
        found = await asyncio.gather(*calls, return_exceptions=True)
        took = time.monotonic() - began
        server.resume()
        assert [type(one) for one in found if one != []] == [StoreUnavailable] * 6
        assert 0.5 < took < 10
        assert "did not answer in time" in str(found[0]) or "no answer within" in str(found[0])
        await turn(store, 3, number=9)


async def test_neither_opening_nor_closing_hangs_at_a_server_that_says_nothing(server, url, monkeypatch):
    monkeypatch.setattr("hitherto.stores.postgres.store.LONGEST_OPENING", 0.5)
    async with PostgresStore(url, timeout=0.5) as store:
        await turn(store)
        server.pause()
        began = time.monotonic()
        with pytest.raises(StoreUnavailable):
            await PostgresStore(url, timeout=0.5).open()
        with pytest.raises(StoreUnavailable):
            await store.get_data("bot", (1,))
        await store.close()
        assert time.monotonic() - began < 15
        server.resume()


async def test_a_keepers_call_ends_at_its_deadline_when_the_server_says_nothing(server, url):
    async with Keeper("bot", f"{url}?timeout=1", handler=note, deadline=1.0, lease=2.0, sweep=0.2) as keeper:
        await keeper.handle(update(1), note)
        server.pause()
        began = time.monotonic()
        with pytest.raises(StoreUnavailable):
            await keeper.handle(update(2), note)
        took = time.monotonic() - began
        server.resume()
        assert took < 10
        assert (await keeper.handle(update(2), note)).status in ("committed", "queued", "duplicate")
        assert await kept(keeper.store, 2) == [1, 2]


async def test_one_whose_answer_never_comes_is_told_and_the_next_goes_on(url):
    async with Proxy(url) as proxy, PostgresStore(f"{proxy.url}?timeout=0.5") as store:
        await turn(store, 1)
        proxy.lose_reply(only=lambda request: "accept_v1" in request.name, ending="hang")
        with pytest.raises(StoreUnavailable):
            await turn(store, 2)
        await turn(store, 3)


# -------------------------------------------------------------------------------- what the server says no to

RAISES = """
CREATE FUNCTION public.no() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION 'sesame %', NEW USING ERRCODE = '{}'; END $$;
CREATE TRIGGER no BEFORE INSERT ON hitherto.inbox FOR EACH ROW EXECUTE FUNCTION public.no();
"""


@pytest.mark.parametrize(
    ("state", "retryable"),
    [
        ("53100", True),  # disk full
        ("53200", True),  # out of memory
        ("53400", True),  # a limit of the configuration
        ("58030", True),  # an I/O error
        ("57014", True),  # statement timeout
        ("55P03", True),  # lock timeout
        ("25006", True),  # read-only
        ("40001", True),  # serialization
        ("40P01", True),  # deadlock
        ("XX000", False),
        ("23505", False),
    ],
)
async def test_an_error_is_one_of_ours_with_its_cause_and_without_data(server, url, state, retryable):
    async with PostgresStore(url) as store:
        server.query(RAISES.format(state), name_of(url))
        with pytest.raises(StoreError, match=state) as caught:
            await turn(store)
        error = caught.value
        assert error.retryable is retryable
        assert isinstance(error, StoreUnavailable) is retryable
        assert "sesame" not in str(error)
        assert error.__cause__ is not None
        server.query("DROP TRIGGER no ON hitherto.inbox", name_of(url))
        await turn(store)


async def test_a_statement_timeout_and_a_lock_that_is_held(server, url):
    async with PostgresStore(url) as store:
        await turn(store, 1)
        server.query(f'ALTER DATABASE "{name_of(url)}" SET statement_timeout = 100')
        server.terminate_backends()
        other = await asyncpg.connect(url)
        async with other.transaction():
            await other.execute("SELECT FROM hitherto.document FOR UPDATE")
            await other.execute("SET LOCAL statement_timeout = 0")
            for _ in range(3):
                with pytest.raises(StoreUnavailable) as caught:
                    await turn(store, 1, 2)
            assert "57014" in str(caught.value)
        await turn(store, 1, 2)
        await other.close()


async def test_a_full_server_is_unavailable_until_there_is_room(server, url):
    server.query("CREATE ROLE guest LOGIN SUPERUSER")
    guest = url.replace("postgres@", "guest@")
    try:
        await PostgresStore(guest).migrate()
        server.query("ALTER ROLE guest NOSUPERUSER CONNECTION LIMIT 0")
        store = PostgresStore(guest)
        with pytest.raises(StoreUnavailable, match="53300"):
            await store.open()
        server.query("ALTER ROLE guest SUPERUSER CONNECTION LIMIT -1")
        async with store:
            await turn(store)
    finally:
        server.query("DROP OWNED BY guest CASCADE", name_of(url))
        server.query("DROP ROLE guest")


async def test_the_victim_of_a_deadlock_tries_again_by_itself(server, url):
    async with PostgresStore(url) as store:
        await asyncio.gather(turn(store, 1), turn(store, 2))
        order = "SELECT id FROM hitherto.document ORDER BY digest"
        (first,), (last,) = server.query(order, name_of(url))
        before = server.log.count("deadlock detected")
        other = await asyncpg.connect(url)
        await other.execute("SET deadlock_timeout = '1min'")
        async with other.transaction():
            await other.execute(f"SELECT FROM hitherto.document WHERE id = {last} FOR UPDATE")
            batches = asyncio.gather(turn(store, 0), turn(store, 1, 2), turn(store, 2, 2))
            waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            while server.query(waits) == [("0",)]:  # noqa: ASYNC110 - the server is asked
                await asyncio.sleep(0.01)
            await other.execute(f"SELECT FROM hitherto.document WHERE id = {first} FOR UPDATE")
        await batches
        await other.close()
        assert [await store.get_data("bot", (key,)) for key in (1, 2)] == [{"n": 2}, {"n": 2}]
    assert server.log.count("deadlock detected") == before + 1


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
async def test_a_stricter_isolation_costs_repeats_and_loses_nothing(server, url, level):
    server.query(f"ALTER DATABASE \"{name_of(url)}\" SET default_transaction_isolation = '{level}'")
    async with Keeper("bot", url, handler=note) as one, Keeper("bot", url, handler=note) as two:
        numbers = range(1, 61)
        await asyncio.gather(*[(one, two)[n % 2].handle(update(n, chat=n % 3 + 1), note) for n in numbers])
        found = [await kept(one.store, 20, chat) for chat in (1, 2, 3)]
    assert sorted(itertools.chain(*found)) == list(numbers)


async def test_a_document_in_place_of_one_that_was_removed_meanwhile_is_left_alone(server, url):
    """It is not locked by the call that waited for the other one, so that call must not touch it."""
    place, event = Address("bot", "", (1,)), Event("2", b"{}")
    async with PostgresStore(url) as store:
        await turn(store, 1)
        remover, caller = await asyncpg.connect(url), await asyncpg.connect(url)
        item = calls.accept_item(place_of(place), event, Queue(), "me", "op", TERMS)
        async with remover.transaction():
            row = "digest, address, version, epoch, next_seq"
            await remover.execute(
                f"CREATE TEMP TABLE kept AS SELECT {row} FROM hitherto.document; "
                f"DELETE FROM hitherto.document; INSERT INTO hitherto.document ({row}) SELECT {row} FROM kept"
            )
            asking = asyncio.create_task(caller.fetch(calls.ACCEPT, *calls.accept_arguments([item], None)))
            waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            while server.query(waits) == [("0",)]:  # noqa: ASYNC110 - the server is asked
                await asyncio.sleep(0.01)
        assert await asking == []
        answer = await store.accept(place, event, Queue(), "me", store.op(), TERMS)
        assert answer.status == "granted"
        await remover.close()
        await caller.close()


# ----------------------------------------------------------------------------------------------- neighbours


async def test_cancelling_one_leaves_its_neighbours_and_the_connection_untouched(url):
    async with Proxy(url) as proxy, PostgresStore(proxy.url) as store:
        await asyncio.gather(*[turn(store, key) for key in range(3)])
        await store.get_data("bot", (1,))
        opened = proxy.counts.connections
        proxy.latency = 0.02
        for at in (0.0, 0.005, 0.03):
            writes = [asyncio.create_task(turn(store, key, int(at * 1000) + 2)) for key in range(20)]
            await asyncio.sleep(at)
            for victim in writes[::5]:
                victim.cancel()
            found = await asyncio.gather(*writes, return_exceptions=True)
            cancelled = [isinstance(one, asyncio.CancelledError) for one in found]
            assert cancelled == [key % 5 == 0 for key in range(20)]
            assert [one for one in found if not isinstance(one, asyncio.CancelledError)] == [None] * 16
            for key in range(0, 20, 5):
                await store.force_release(Address("bot", "", (key,)), store.op(), TERMS)
                await store.forget(Address("bot", "", (key,)))
        assert proxy.counts.connections == opened


async def test_what_cannot_be_stored_fails_alone(url):
    async with PostgresStore(url) as store:
        await turn(store, 0)
        events = [Event(str(n), b"{}") for n in range(9)]
        owners = ["me"] * 9
        owners[4] = "\ud800"
        found = await asyncio.gather(
            *[
                store.accept(Address("bot", "", (n,)), event, Queue(), owner, store.op(), TERMS)
                for n, (event, owner) in enumerate(zip(events, owners, strict=True))
            ],
            return_exceptions=True,
        )
        assert [getattr(one, "status", None) for one in found] == ["granted"] * 4 + [None] + ["granted"] * 4
        assert isinstance(found[4], StoreError)
        assert not found[4].retryable
        with pytest.raises(BadEvent):
            await store.accept(
                Address("bot", "", (1,)), Event("\ud800", b"{}"), Queue(), "me", store.op(), TERMS
            )


HAMMER = """
import asyncio, sys
from hitherto.addresses import Address
from hitherto.document import Event, Terms
from hitherto.overlap import Queue
from hitherto.records import Patch
from hitherto.stores.postgres import PostgresStore, calls
from hitherto.stores.postgres.columns import place_of

async def main(url, me):
    async with PostgresStore(url) as store:
        print("ready", flush=True)
        sys.stdin.readline()
        async def one(number):
            key = number * 7 % 50
            address = Address("bot", "", (key,))
            event = Event(f"{me}-{number}", b"{}")
            answer = await store.accept(address, event, Queue(), me, store.op(), Terms())
            while answer.grant is not None:
                name = answer.grant.entries[0].event_id
                answer = await store.settle(
                    address, answer.grant.claim, store.op(), Terms(), patch=Patch(set={name: b"1"})
                )
            await store.update_data("bot", (key,), {f"{me}{number}": 1})
        await asyncio.gather(*[one(number) for number in range(400)])

asyncio.run(main(*sys.argv[1:]))
"""


def test_two_processes_on_the_same_fifty_conversations_never_deadlock(server, url):
    asyncio.run(PostgresStore(url).migrate())
    before = server.log.count("deadlock detected")
    hammers = [
        subprocess.Popen(
            [sys.executable, "-c", HAMMER, url, me],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for me in "ab"
    ]  # fmt: skip
    assert [hammer.stdout.readline() for hammer in hammers] == ["ready\n"] * 2
    for hammer in hammers:
        hammer.stdin.write("go\n")
        hammer.stdin.flush()
    assert [hammer.communicate(timeout=100)[0] for hammer in hammers] == ["", ""]
    assert server.log.count("deadlock detected") == before
    kept = "SELECT cardinality(names) FROM hitherto.document"
    assert server.query(kept, name_of(url)) == [("32",)] * 50
