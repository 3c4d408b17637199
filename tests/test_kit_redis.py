"""The whole kit on Redis and on a cluster: every clause, and the machines in lockstep with the protocol."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

from hitherto.stores.memory import MemoryStore
from hitherto.stores.redis import RedisStore
from hitherto.testing import StoreContract
from hitherto.testing.machine import PATIENT, FSMStorageMachine, machine_for

pytestmark = pytest.mark.filterwarnings("ignore::hitherto.errors.StoreWarning")
EXAMPLES = settings(PATIENT, max_examples=int(os.environ.get("HITHERTO_EXAMPLES", "200")))
_urls: dict[str, str] = {}


@pytest.fixture(scope="module", autouse=True)
def server(redis_server):
    """One server for all of it; every test has a prefix of its own."""
    redis_server.clean()
    _urls["redis"] = redis_server.url
    yield
    redis_server.clean()


_prefixes = iter(range(1_000_000))


def new_prefix():
    return f"kit{next(_prefixes)}"


class TestRedisStore(StoreContract):
    abilities = frozenset({"reopens", "shared"})

    @pytest.fixture
    def prefix(self):
        return new_prefix()

    @pytest.fixture
    async def store(self, clock, prefix):
        async with RedisStore(_urls["redis"], prefix=prefix, shards=4, clock=clock) as store:
            yield store

    @pytest.fixture
    async def another(self, store, clock, prefix):
        async with RedisStore(_urls["redis"], prefix=prefix, shards=4, clock=clock) as another:
            yield another


def in_memory(clock):
    return MemoryStore(clock=clock)


def in_redis(clock):
    return RedisStore(_urls["redis"], prefix=new_prefix(), shards=4, clock=clock)


@pytest.mark.timeout(1800)
class TestTurnsInLockstep(machine_for(in_memory, in_redis, settings=EXAMPLES)):
    pass


@pytest.mark.timeout(1800)
class TestRecordsInLockstep(machine_for(in_memory, in_redis, settings=EXAMPLES, machine=FSMStorageMachine)):
    pass
