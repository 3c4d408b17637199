"""PostgresStore from outside: URLs, options, pools, schema names, what a server must be, loops and forks."""

from __future__ import annotations

import asyncio
import logging
import os
import pickle
import traceback

import asyncpg
import pytest

from hitherto.addresses import Address
from hitherto.cli import main
from hitherto.document import Event, Terms
from hitherto.errors import BadStoreURL, StoreClosed, StoreError, StoreUnavailable, StoreWarning
from hitherto.overlap import Queue
from hitherto.records import Patch
from hitherto.stores import open_store
from hitherto.stores.postgres import PostgresStore, options, session
from servers.postgres import PostgresServer

TERMS = Terms()


@pytest.fixture
def server(postgres_unsafe_server):
    return postgres_unsafe_server


@pytest.fixture
def url(server):
    name = server.create_database()
    yield server.url_of(name)
    server.drop_database(name)


def database_of(url):
    return url.rpartition("/")[2].partition("?")[0]


async def turn(store, key=1, number=1):
    """One event accepted and settled."""
    address = Address("bot", "", (key,))
    answer = await store.accept(address, Event(f"{key}-{number}", b"{}"), Queue(), "me", store.op(), TERMS)
    patch = Patch(set={"n": b"%d" % number}, moved=True, flow="f", state="s")
    settled = await store.settle(address, answer.grant.claim, store.op(), TERMS, patch=patch)
    assert settled.status == "committed"


# ------------------------------------------------------------------------------------------ URLs and options


@pytest.mark.parametrize("scheme", ["postgresql", "postgres"])
async def test_both_schemes_open_the_store(url, scheme):
    async with open_store(url.replace("postgresql", scheme)) as store:
        assert isinstance(store, PostgresStore)
        await turn(store)
        assert await store.get_data("bot", (1,)) == {"n": 1}


async def test_options_of_ours_and_of_the_driver(server, url):
    given = f"{url}?schema=bots&timeout=7&connections=1&auto_migrate=yes&application_name=ann"
    async with open_store(given) as store:
        await turn(store)
        tables = server.query("SELECT schemaname FROM pg_tables WHERE tablename = 'inbox'", database_of(url))
        assert tables == [("bots",)]
        named = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'ann'"
        assert server.query(named) == [("1",)]


async def test_three_connections_unless_told_otherwise(server, url):
    async with open_store(f"{url}?application_name=bob") as store:
        await asyncio.gather(*[turn(store, key) for key in range(20)])
        await store.get_data("bot", (1,))
        named = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'bob'"
        assert server.query(named) == [("3",)]


def test_an_unknown_option_is_an_error_that_lists_what_exists():
    with pytest.raises(BadStoreURL) as caught:
        open_store("postgresql://ann:sesame@localhost/bot?shema=bots&pool_size=5")
    for name in ("pool_size, shema", *options.OURS, "application_name", "sslmode"):
        assert name in str(caught.value)
    assert "sesame" not in str(caught.value)


@pytest.mark.parametrize(
    ("option", "hint"),
    [
        ("timeout=0", "more than zero"),
        ("timeout=inf", "more than zero"),
        ("timeout=soon", "soon"),
        ("connections=0", "1, 2 or 3"),
        ("connections=many", "many"),
        ("auto_migrate=perhaps", "true or false"),
        ("schema=", "letters, digits"),
    ],
)
def test_values_that_cannot_be_meant_are_refused(option, hint):
    with pytest.raises(BadStoreURL, match=hint):
        open_store(f"postgresql://localhost/bot?{option}")


@pytest.mark.parametrize("given", [{}, {"url": "postgresql://localhost/bot", "pool": object()}])
def test_a_url_or_a_pool_not_both(given):
    with pytest.raises(ValueError, match="either a URL or pool="):
        PostgresStore(**given)


# ------------------------------------------------------------------------------------------------- passwords

SECRET = "s3same/öpen"


@pytest.fixture(scope="module")
def locked_server():
    """A server that asks for a password."""
    with PostgresServer(fsync=False, password=SECRET) as server:
        yield server


def told(error):
    """Everything that a traceback of it would show, and what a pickle of it holds."""
    return "".join(traceback.format_exception(error)) + repr(error) + str(pickle.dumps(error))


def halves_of(secret):
    return [secret, "s3same", "%2F", "%C3"]


async def test_a_password_opens_and_is_shown_nowhere(locked_server, caplog):
    caplog.set_level(logging.DEBUG)
    async with open_store(locked_server.url) as store:
        await turn(store)
        shown = repr(store) + store.url + str(await store.facts())
    assert "***@" in repr(store)
    for part in halves_of(SECRET):
        assert part not in shown
        assert part not in caplog.text


@pytest.mark.parametrize("fault", ["wrong", "refused", "no database"])
async def test_a_password_is_in_no_error(locked_server, caplog, fault):
    caplog.set_level(logging.DEBUG)
    broken = {
        "wrong": locked_server.url.replace("s3same", "s3samex"),
        "refused": locked_server.url.replace(str(locked_server.port), "1"),
        "no database": locked_server.url.replace("/postgres", "/nowhere"),
    }[fault]
    with pytest.raises(StoreError) as caught:
        await open_store(broken).open()
    assert caught.value.retryable is (fault == "refused")
    for part in halves_of(SECRET):
        assert part not in told(caught.value) + caplog.text


@pytest.mark.parametrize("sign", ["#", "/", "?", "[", "℀", "@/", "/@"])
def test_a_password_that_was_not_quoted_is_an_error_that_does_not_show_it(sign):
    with pytest.raises(BadStoreURL, match="%23") as caught:
        open_store(f"postgresql://ann:qqq{sign}zzz@localhost/bot")
    error = caught.value
    assert error.__cause__ is None
    assert error.__suppress_context__ or error.__context__ is None
    for part in ("qqq", "zzz"):
        assert part not in str(error)
        assert part not in str(error.url)


# --------------------------------------------------------------------------------------- a pool of the user's


async def test_a_pool_of_the_users_own_is_used_and_never_closed(server, url):
    async with asyncpg.create_pool(url, min_size=2, max_size=2) as pool:
        async with PostgresStore(pool=pool, schema="own") as store:
            await asyncio.gather(*[turn(store, key) for key in range(20)])
            assert await store.get_data("bot", (3,)) == {"n": 1}
            assert store.url == "postgresql://<pool>"
        assert not pool.is_closing()
        assert pool.get_idle_size() == 2
        assert await pool.fetchval("SELECT count(*) FROM own.document") == 20
        with pytest.raises(StoreClosed):
            await store.get_data("bot", (3,))
        async with store:
            assert await store.get_data("bot", (3,)) == {"n": 1}


async def test_a_pool_of_one_connection_is_enough(url):
    async with asyncpg.create_pool(url, min_size=1, max_size=1) as pool, PostgresStore(pool=pool) as store:
        await asyncio.gather(*[turn(store, key) for key in range(30)])
        assert await store.counts("bot") == [("f", "s", 30)]


async def test_a_pool_that_has_nothing_to_give_is_unavailable_in_time(url):
    async with (
        asyncpg.create_pool(url, min_size=1, max_size=1) as pool,
        PostgresStore(pool=pool, timeout=0.2) as store,
    ):
        async with pool.acquire():
            with pytest.raises(StoreUnavailable):
                await store.get_data("bot", (1,))
        await turn(store)


async def test_killed_connections_of_a_pool_are_replaced(server, url):
    async with asyncpg.create_pool(url, min_size=2, max_size=2) as pool, PostgresStore(pool=pool) as store:
        await turn(store, 1)
        server.terminate_backends()
        failed = 0
        for _ in range(3):
            try:
                await store.get_data("bot", (1,))
            except StoreUnavailable:
                failed += 1
        assert failed < 3
        await turn(store, 2)
        assert pool.get_idle_size() <= 2


# ----------------------------------------------------------------------------------------------- schema names

HOSTILE = [
    'a"b', "a b", "a;DROP TABLE x", "a'b", "ä", "1a", "a-b", "pg_x", "PG_x", "x" * 64, "", "a.b", "a\nb",
    "a\0b",
]  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_schema_name_is_refused(name):
    with pytest.raises(ValueError, match="letters, digits and underscores"):
        PostgresStore("postgresql://localhost/bot", schema=name)


@pytest.mark.parametrize("name", ["select", "MixedCase", "x" * 63, "_"])
async def test_other_schema_names_are_quoted_and_kept_as_they_are(server, url, name):
    async with PostgresStore(url, schema=name) as store:
        await turn(store)
        assert (await store.browse("bot"))[0].flow == "f"
        await store.expire("bot", 10, TERMS)
    found = server.query("SELECT schemaname FROM pg_tables WHERE tablename = 'inbox'", database_of(url))
    assert found == [(name,)]


async def test_two_schemas_in_one_database_never_meet(url):
    async with PostgresStore(url, schema="one") as one, PostgresStore(url, schema="two") as two:
        await one.set_data("bot", (1,), {"a": 1})
        assert await two.get_data("bot", (1,)) is None
        await turn(two)
        assert await one.get_data("bot", (1,)) == {"a": 1}


# ------------------------------------------------------------------------------------ what a server has to be


async def test_a_server_that_is_too_old_is_refused(url, monkeypatch):
    monkeypatch.setattr(session, "OLDEST", 990_000)
    with pytest.raises(StoreError, match="too old; 13 or newer"):
        await PostgresStore(url).open()


async def test_a_database_of_another_encoding_is_refused(server):
    server.query("CREATE DATABASE \"latin\" ENCODING 'LATIN1' TEMPLATE template0 LOCALE 'C'")
    try:
        with pytest.raises(StoreError, match=r"LATIN1.*ENCODING 'UTF8'"):
            await PostgresStore(server.url_of("latin")).open()
    finally:
        server.drop_database("latin")


async def test_a_read_only_server_is_refused_and_a_primary_that_becomes_one_is_unavailable(server, url):
    name = database_of(url)
    async with PostgresStore(url, timeout=2) as store:
        await turn(store)
        server.query(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
        server.terminate_backends()
        with pytest.raises(StoreUnavailable, match=r"25006|57P01|lost|failed") as caught:
            await turn(store, 2)
        with pytest.raises(StoreUnavailable, match="25006") as caught:
            await turn(store, 2)
        assert caught.value.retryable
        with pytest.raises(StoreUnavailable, match=r"takes no writes.*target_session_attrs"):
            await PostgresStore(url).open()
        server.query(f'ALTER DATABASE "{name}" RESET default_transaction_read_only')
        await turn(store, 2, number=2)


async def test_a_server_that_may_forget_is_warned_of(server, url):
    server.query(f'ALTER DATABASE "{database_of(url)}" SET synchronous_commit = off')
    with pytest.warns(StoreWarning, match="synchronous_commit is off"):
        async with PostgresStore(url) as store:
            assert "newest acknowledged" in (await store.facts()).lost_in_a_crash


async def test_facts(postgres_url):
    async with PostgresStore(postgres_url) as store:
        facts = await store.facts()
    assert facts.software.startswith("PostgreSQL 1")
    assert facts.schema == "hitherto, migration 4"
    assert facts.lost_in_a_crash == "nothing"


def test_the_command_line_proves_it_on_a_clock_of_its_own(url, capsys):
    assert main(["check-store", url, "--only", "dead_le", "--examples", "1"]) == 0
    kept, _, tried, *_ = capsys.readouterr().out.split()
    assert kept == tried
    assert int(kept) >= 3


# ------------------------------------------------------------------------------- open, close, loops and forks


async def test_it_opens_on_first_use_and_closes_as_often_as_one_likes(url):
    store = PostgresStore(url)
    await asyncio.gather(*[store.set_data("bot", (n,), {"n": n}) for n in range(5)])
    await store.close()
    await store.close()
    with pytest.raises(StoreClosed, match=r"open\(\) it again"):
        await store.get_data("bot", (1,))
    async with store:
        assert await store.get_data("bot", (4,)) == {"n": 4}


async def test_closing_while_it_is_being_opened_leaves_it_closed(server, url):
    store = PostgresStore(f"{url}?application_name=late")
    opening = asyncio.create_task(store.get_data("bot", (1,)))
    await asyncio.sleep(0.002)
    await store.close()
    with pytest.raises(StoreClosed):
        await opening
    assert store._session is None


async def test_closing_lets_what_is_under_way_come_to_its_end(url):
    async with PostgresStore(url) as store:
        writes = [asyncio.create_task(store.set_data("bot", (n,), {"n": n})) for n in range(20)]
        await asyncio.sleep(0)
    assert await asyncio.gather(*writes) == [None] * 20


def test_another_event_loop_is_told_so(url):
    store = PostgresStore(url)

    async def first():
        await store.open()
        await asyncio.to_thread(asyncio.run, second())
        await store.close()

    async def second():
        with pytest.raises(StoreClosed, match="another process or event loop"):
            await store.get_data("bot", (1,))

    asyncio.run(first())
    asyncio.run(turn_and_close(store))


async def turn_and_close(store):
    async with store:
        await turn(store)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
async def test_a_forked_process_is_told_so_and_its_parent_goes_on(url):
    async with PostgresStore(url) as store:
        await turn(store)
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                store.get_data("bot", (1,)).send(None)
            except StoreClosed as error:
                code = 0 if "another process" in str(error) else 2
            finally:
                os._exit(code)
        _, status = await asyncio.to_thread(os.waitpid, pid, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        await turn(store, 2)
