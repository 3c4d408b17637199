"""The schema of PostgresStore: made, moved forward, refused, by whom it may be done; `hitherto migrate`."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys

import pytest

from hitherto.addresses import Address
from hitherto.chatstate import ChatState
from hitherto.cli import main
from hitherto.document import Event, Terms
from hitherto.errors import SchemaError, StoreError
from hitherto.overlap import Burst, Concurrent, Queue
from hitherto.stores.postgres import PostgresStore, migration_sql, schema
from hitherto.stores.sqlite import SQLiteStore
from servers.pgwire import Pg, PgError
from servers.process import wait_until
from test_postgres import turn

KNOWN = schema.migrations()
NAMES = [f"{one.number:04}_{one.phase}_{one.name}" for one in KNOWN]


@pytest.fixture
def server(postgres_unsafe_server):
    return postgres_unsafe_server


@pytest.fixture
def url(server):
    name = server.create_database()
    yield server.url_of(name)
    server.drop_database(name)


@pytest.fixture
def ask(url):
    with Pg(url) as connection:
        yield connection.query


@pytest.fixture
def roles(server, url):
    """Makes roles without a password; the URL for one of them."""
    made = []

    def make(name):
        server.query(f"CREATE ROLE {name} LOGIN")
        made.append(name)
        return url.replace("postgres@", f"{name}@")

    yield make
    for name in made:
        server.query(f"DROP OWNED BY {name}", url.rpartition("/")[2])
        server.query(f"DROP ROLE {name}")


def applied(ask, name="hitherto"):
    return [int(number) for (number,) in ask(f"SELECT number FROM {name}.migration ORDER BY number")]


# ---------------------------------------------------------------------------------------------- making it


async def test_opening_makes_all_of_it_once(url, ask):
    for _ in range(2):
        async with PostgresStore(url) as store:
            await turn(store)
            await store.forget(Address("bot", "", (1,)))
    assert applied(ask) == [one.number for one in KNOWN]


async def test_eight_open_at_once_and_each_step_is_taken_once(url, ask):
    stores = [PostgresStore(url) for _ in range(8)]
    await asyncio.gather(*[store.open() for store in stores])
    assert applied(ask) == [one.number for one in KNOWN]
    await asyncio.gather(*[turn(store, key) for key, store in enumerate(stores)])
    assert sorted(await stores[0].counts("bot")) == [("f", "s", 8)]
    for store in stores:
        await store.close()


OPENER = """
import asyncio, sys
from hitherto.stores.postgres import PostgresStore
async def main():
    print("ready", flush=True)
    sys.stdin.readline()
    async with PostgresStore(sys.argv[1]) as store:
        await store.set_data("bot", (sys.argv[2],), {})
asyncio.run(main())
"""


def test_eight_processes_open_at_once(url, ask):
    openers = [
        subprocess.Popen(
            [sys.executable, "-c", OPENER, url, str(number)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for number in range(8)
    ]  # fmt: skip
    assert [opener.stdout.readline() for opener in openers] == ["ready\n"] * 8
    for opener in openers:
        opener.stdin.write("go\n")
        opener.stdin.flush()
    assert [opener.communicate(timeout=60)[0] for opener in openers] == [""] * 8
    assert [opener.returncode for opener in openers] == [0] * 8
    assert applied(ask) == [one.number for one in KNOWN]
    assert ask("SELECT count(*) FROM hitherto.document") == [("8",)]


@pytest.mark.parametrize("steps", range(1, len(KNOWN)))
async def test_from_each_older_step_forward(url, ask, monkeypatch, steps):
    monkeypatch.setattr(schema, "migrations", lambda: KNOWN[:steps])
    await PostgresStore(url).migrate()
    assert applied(ask) == [one.number for one in KNOWN[:steps]]
    monkeypatch.undo()
    with pytest.raises(SchemaError, match=f"behind by {len(KNOWN) - steps} migrations"):
        await PostgresStore(url, auto_migrate=False).open()
    async with PostgresStore(url) as store:
        await turn(store)
    assert applied(ask) == [one.number for one in KNOWN]


@pytest.mark.parametrize("steps", range(len(KNOWN) + 1))
async def test_the_sql_by_hand_brings_each_older_step_forward(url, ask, monkeypatch, steps):
    monkeypatch.setattr(schema, "migrations", lambda: KNOWN[:steps])
    ask(migration_sql("Bots"))
    monkeypatch.undo()
    ask(PostgresStore(url, schema="Bots").migration_sql())
    assert applied(ask, '"Bots"') == [one.number for one in KNOWN]
    async with PostgresStore(url, schema="Bots", auto_migrate=False) as store:
        await turn(store)


async def test_an_empty_database_without_auto_migrate_says_what_to_run(url, ask):
    for store in (PostgresStore(url, auto_migrate=False), PostgresStore(f"{url}?auto_migrate=off")):
        with pytest.raises(SchemaError, match=r"run `hitherto migrate URL`.*`hitherto migrate URL --sql`"):
            await store.open()
    assert ask("SELECT count(*) FROM pg_namespace WHERE nspname = 'hitherto'") == [("0",)]


# -------------------------------------------------------------------------------- newer, older, interrupted


async def test_a_schema_that_a_newer_version_took_something_from_is_refused(url, ask):
    await PostgresStore(url).migrate()
    ask("INSERT INTO hitherto.migration (number, phase, name) VALUES (99, 'post', 'less')")
    for call in (PostgresStore(url).open, PostgresStore(url).migrate):
        with pytest.raises(SchemaError, match=r"newer version \(migration 99, .*upgrade hitherto"):
            await call()


async def test_a_schema_that_a_newer_version_only_added_to_is_taken(url, ask):
    await PostgresStore(url).migrate()
    ask("INSERT INTO hitherto.migration (number, phase, name) VALUES (99, 'pre', 'more')")
    async with PostgresStore(url) as store:
        await turn(store)
    assert applied(ask)[-1] == 99


LATER = schema.Migration(90, "post", "less", 'DROP FUNCTION "hitherto".trim_seen_v1;')


async def test_what_old_workers_still_use_is_taken_away_by_migrate_alone(url, ask, monkeypatch):
    monkeypatch.setattr(schema, "migrations", lambda: [*KNOWN, LATER])
    async with PostgresStore(url, auto_migrate=True):
        pass
    assert applied(ask)[-1] == KNOWN[-1].number
    async with PostgresStore(url, auto_migrate=False):
        pass
    assert await PostgresStore(url).migrate() == ["0090_post_less"]
    assert applied(ask)[-1] == 90


async def test_a_migration_that_fails_leaves_nothing(url, ask, monkeypatch):
    broken = schema.Migration(90, "pre", "broken", 'CREATE TABLE "hitherto".more (x int); SELECT 1/0;')
    monkeypatch.setattr(schema, "migrations", lambda: [*KNOWN, broken])
    with pytest.raises(StoreError, match="22012"):
        await PostgresStore(url).open()
    assert ask("SELECT count(*) FROM pg_namespace WHERE nspname = 'hitherto'") == [("0",)]
    monkeypatch.undo()
    async with PostgresStore(url) as store:
        await turn(store)


async def test_a_migration_whose_connection_is_killed_leaves_nothing(url, ask, monkeypatch):
    slow = schema.Migration(90, "pre", "slow", 'CREATE TABLE "hitherto".more (x int); SELECT pg_sleep(60);')
    monkeypatch.setattr(schema, "migrations", lambda: [*KNOWN, slow])
    opening = asyncio.create_task(PostgresStore(url).open())
    asleep = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'PgSleep'"
    await asyncio.to_thread(wait_until, lambda: ask(asleep), "the migration sleeps")
    with pytest.raises(StoreError):
        await opening
    assert ask("SELECT count(*) FROM pg_namespace WHERE nspname = 'hitherto'") == [("0",)]
    monkeypatch.undo()
    async with PostgresStore(url) as store:
        await turn(store)


# ---------------------------------------------------------------------------------------------------- roles


def grants_in(text):
    """The grants that the SQL proposes in its comments, for a role `worker`."""
    return "\n".join(line.removeprefix("-- ") for line in text.splitlines() if line.startswith("-- GRANT"))


async def test_a_role_that_may_only_read_and_write_rows_runs_everything(url, ask, roles):
    worker = roles("worker")
    text = migration_sql()
    ask(text)
    ask(grants_in(text))
    async with PostgresStore(worker) as store:
        await turn(store)
        await everything(store)
        assert (await store.facts()).schema.endswith("migration 4")
    assert await PostgresStore(worker).migrate() == []
    with Pg(worker) as bare, pytest.raises(PgError, match="42501"):
        bare.query("DROP TABLE hitherto.inbox")


async def everything(store):
    """Something of every kind that a worker does."""
    terms, place = Terms(max_attempts=1), Address("bot", "", (2,))
    answer = await store.accept(place, Event("1", b"{}"), Queue(), "me", store.op(), terms)
    assert await store.renew([(place, answer.grant.claim)], terms) == [True]
    await store.accept(place, Event("2", b"{}"), Burst(), "me", store.op(), terms)
    await store.settle(place, answer.grant.claim, store.op(), terms, verdict="dead", error="x", keep=False)
    taken = await store.take_over(place, "me", store.op(), terms)
    await store.release(place, taken.grant.claim, store.op(), terms)
    await store.retry_dead(place, 1, store.op(), terms)
    await store.force_release(place, store.op(), terms)
    lone = await store.accept(place, Event("3", b"{}"), Concurrent(), "me", store.op(), terms)
    await store.settle(place, lone.grant.claim, store.op(), terms)
    await store.update_data("bot", (2,), {"a": 1})
    assert [address async for address in store.scan("bot", "all")]
    assert await store.browse("bot", flow="f")
    assert await store.counts("bot")
    await store.due("bot", 10)
    await store.expire("bot", 10, Terms(seen_age=1e-9, tombstone=0.0))
    chat = ChatState(store, "bot")
    assert await chat.lock("thread", "me") == "acquired"
    await chat.release_lock("thread", "me")
    await store.forget(place)


async def test_a_role_that_may_not_make_the_schema_says_what_to_apply(url, ask, roles):
    worker = roles("worker")
    with pytest.raises(SchemaError, match=r"may not create it.*migrate URL --sql"):
        await PostgresStore(worker).open()
    ask(migration_sql())
    with pytest.raises(StoreError, match="grant it USAGE on the schema and SELECT"):
        await PostgresStore(worker).open()


async def test_a_role_that_owns_the_schema_and_may_make_no_other_migrates(url, ask, roles):
    worker = roles("worker")
    ask("CREATE SCHEMA bots AUTHORIZATION worker")
    async with PostgresStore(worker, schema="bots") as store:
        await turn(store)
    assert applied(ask, "bots") == [one.number for one in KNOWN]


async def test_a_missing_function_says_that_the_schema_is_not_ours(url, ask):
    async with PostgresStore(url) as store:
        await turn(store)
        ask("DROP SCHEMA hitherto CASCADE")
        with pytest.raises(SchemaError, match="run `hitherto migrate URL`"):
            await turn(store, 2)


# ------------------------------------------------------------------------------------------ hitherto migrate


def test_migrate_says_what_it_applied_and_then_that_there_is_nothing_to_do(url, server, capsys):
    assert main(["migrate", url]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[:-1] == [f"applied {name}" for name in NAMES]
    assert said[-1].startswith("PostgreSQL 1")
    assert said[-1].endswith("schema hitherto, migration 4")
    assert main(["migrate", url]) == 0
    assert capsys.readouterr().out == f"nothing to do: {said[-1]}\n"
    assert main(["migrate", f"{url}?schema=two", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["applied"] == NAMES


def test_migrate_prints_sql_that_psql_can_apply_without_connecting(url, ask, capsys):
    assert main(["migrate", "postgresql://ann:sesame@nowhere.invalid/bot?schema=bots", "--sql"]) == 0
    text = capsys.readouterr().out
    assert text == migration_sql("bots")
    assert "sesame" not in text
    ask(text)
    assert main(["migrate", f"{url}?schema=bots"]) == 0
    assert capsys.readouterr().out.startswith("nothing to do: ")


def test_migrate_fails_with_one_sentence(capsys, server):
    assert main(["migrate", server.url_of("nowhere")]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    assert "3D000" in printed.err


def test_migrate_other_stores(tmp_path, redis_url, capsys):
    file = f"sqlite:///{tmp_path}/bot.db"
    assert main(["migrate", file]) == 0
    assert capsys.readouterr().out.startswith("applied step 1\nSQLite 3.")
    for url in (file, "memory://", redis_url):
        assert main(["migrate", url]) == 0
        assert capsys.readouterr().out.startswith("nothing to do: ")
        assert main(["migrate", url, "--sql"]) == 1
        assert "needs no SQL by hand" in capsys.readouterr().err


async def test_sqlite_names_only_the_steps_that_were_missing(tmp_path):
    async with SQLiteStore(tmp_path / "bot.db") as store:
        await store.set_data("bot", (1,), {})
        assert await SQLiteStore(tmp_path / "bot.db").migrate() == []
    assert await SQLiteStore(":memory:").migrate() == ["step 1"]
