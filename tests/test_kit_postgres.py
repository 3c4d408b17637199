"""The whole kit on PostgreSQL, straight and through a pooler; the machines in lockstep with the protocol."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

from hitherto.stores.memory import MemoryStore
from hitherto.stores.postgres import PostgresStore, migration_sql
from hitherto.testing import StoreContract
from hitherto.testing.machine import PATIENT, FSMStorageMachine, machine_for
from servers.pgwire import Pg
from servers.pooler import TransactionPooler

EXAMPLES = settings(PATIENT, max_examples=int(os.environ.get("HITHERTO_EXAMPLES", "200")))
TABLES = ("document", "wake", "inbox", "seen", "operation", "dead_letter")
EMPTIED = ";".join(f"DELETE FROM hitherto.{table}" for table in TABLES)


class Place:
    """One database with the schema in it, made by its owner; emptied for whoever comes next."""

    def __init__(self, url):
        self.url = url
        self.owner = Pg(url)
        sql = migration_sql()
        grants = [line.removeprefix("-- ") for line in sql.splitlines() if line.startswith("-- GRANT")]
        self.owner.query("\n".join([sql, *grants]).replace(" TO worker;", " TO kit_worker;"))

    def empty(self):
        self.owner.query(EMPTIED)
        return self.url


@pytest.fixture(scope="module", autouse=True)
def place(postgres_unsafe_server):
    """Where all of it happens."""
    server = postgres_unsafe_server
    name = server.create_database()
    server.query("CREATE ROLE kit_worker LOGIN")
    _places.append(Place(server.url_of(name)))
    yield _places[-1]
    _places.pop().owner.close()
    server.drop_database(name)
    server.query("DROP ROLE kit_worker")


_places = []


class TestPostgresStore(StoreContract):
    abilities = frozenset({"reopens", "shared"})

    @pytest.fixture
    async def store(self, clock, place):
        async with PostgresStore(place.empty(), clock=clock) as store:
            yield store

    @pytest.fixture
    async def another(self, store, clock, place):
        async with PostgresStore(place.url, clock=clock) as another:
            yield another


class TestPooledWithFewRights(StoreContract):
    """Behind a pooler that gives every transaction another connection, as a role that only changes rows."""

    abilities = frozenset({"reopens", "shared"})

    @pytest.fixture
    async def pooled(self, place):
        async with TransactionPooler(place.empty().replace("postgres@", "kit_worker@")) as pooler:
            yield pooler.url

    @pytest.fixture
    async def store(self, clock, pooled):
        async with PostgresStore(pooled, clock=clock) as store:
            yield store

    @pytest.fixture
    async def another(self, store, clock, pooled):
        async with PostgresStore(pooled, clock=clock) as another:
            yield another


def in_memory(clock):
    return MemoryStore(clock=clock)


def in_postgres(clock):
    return PostgresStore(_places[-1].empty(), clock=clock)


@pytest.mark.timeout(1800)
class TestTurnsInLockstep(machine_for(in_memory, in_postgres, settings=EXAMPLES)):
    pass


@pytest.mark.timeout(1800)
class TestRecordsInLockstep(
    machine_for(in_memory, in_postgres, settings=EXAMPLES, machine=FSMStorageMachine)
):
    pass
