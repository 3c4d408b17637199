"""The whole kit on PostgreSQL: every clause, and the machines in lockstep with the protocol."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

from hitherto.stores.memory import MemoryStore
from hitherto.stores.postgres import PostgresStore
from hitherto.testing import StoreContract
from hitherto.testing.machine import PATIENT, FSMStorageMachine, machine_for

EXAMPLES = settings(PATIENT, max_examples=int(os.environ.get("HITHERTO_EXAMPLES", "200")))
_urls: dict[str, str] = {}


@pytest.fixture(scope="module", autouse=True)
def database(postgres_unsafe_server):
    """One database for all of it; every test has a schema of its own."""
    name = postgres_unsafe_server.create_database()
    _urls["url"] = postgres_unsafe_server.url_of(name)
    yield
    postgres_unsafe_server.drop_database(name)


_schemas = iter(range(1_000_000))


def new_schema():
    return f"kit_{next(_schemas)}"


class TestPostgresStore(StoreContract):
    abilities = frozenset({"reopens", "shared"})

    @pytest.fixture
    def schema(self):
        return new_schema()

    @pytest.fixture
    async def store(self, clock, schema):
        async with PostgresStore(_urls["url"], schema=schema, clock=clock) as store:
            yield store

    @pytest.fixture
    async def another(self, store, clock, schema):
        async with PostgresStore(_urls["url"], schema=schema, clock=clock) as another:
            yield another


def in_memory(clock):
    return MemoryStore(clock=clock)


def in_postgres(clock):
    return PostgresStore(_urls["url"], schema=new_schema(), clock=clock)


@pytest.mark.timeout(1800)
class TestTurnsInLockstep(machine_for(in_memory, in_postgres, settings=EXAMPLES)):
    pass


@pytest.mark.timeout(1800)
class TestRecordsInLockstep(
    machine_for(in_memory, in_postgres, settings=EXAMPLES, machine=FSMStorageMachine)
):
    pass
