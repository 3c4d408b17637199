"""The whole kit on every kind of Redis and on a cluster: every clause, and the machines in lockstep."""

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
_prefixes = iter(range(1_000_000))


def a_store(url, clock, prefix=None):
    """Every test has a prefix of its own."""
    return RedisStore(url, prefix=prefix or f"kit{next(_prefixes)}", shards=4, clock=clock)


class OnAServer(StoreContract):
    abilities = frozenset({"reopens", "shared"})

    @pytest.fixture
    def prefix(self):
        return f"kit{next(_prefixes)}"

    @pytest.fixture
    async def store(self, clock, url, prefix):
        async with a_store(url, clock, prefix) as store:
            yield store

    @pytest.fixture
    async def another(self, store, clock, url, prefix):
        async with a_store(url, clock, prefix) as another:
            yield another


class TestRedisStore(OnAServer):
    @pytest.fixture
    def url(self, any_redis_url):
        return any_redis_url


class TestRedisClusterStore(OnAServer):
    @pytest.fixture
    def url(self, redis_cluster):
        return redis_cluster.url


@pytest.fixture(scope="module")
def servers(redis_server, redis_cluster):
    """One of each for all of the machines."""
    _urls.update(redis=redis_server.url, cluster=redis_cluster.url)
    redis_server.clean()
    redis_cluster.clean()
    yield
    redis_server.clean()
    redis_cluster.clean()


def in_memory(clock):
    return MemoryStore(clock=clock)


def in_redis(clock):
    return a_store(_urls["redis"], clock)


def in_cluster(clock):
    return a_store(_urls["cluster"], clock)


@pytest.mark.timeout(1800)
@pytest.mark.usefixtures("servers")
class TestTurnsInLockstep(machine_for(in_memory, in_redis, in_cluster, settings=EXAMPLES)):
    pass


@pytest.mark.timeout(1800)
@pytest.mark.usefixtures("servers")
class TestRecordsInLockstep(
    machine_for(in_memory, in_redis, in_cluster, settings=EXAMPLES, machine=FSMStorageMachine)
):
    pass
