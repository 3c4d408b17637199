"""Fixtures that hand real servers to tests. Loaded by conftest: `pytest_plugins = ["servers_fixtures"]`.

A server is started when the first test asks for it and ended with the session. The fixtures named `..._url`
are for one test: the server is brought back if the last test left it dead or paused, and holds nothing.
`any_redis`, `any_postgres` and their urls run a test once for each kind of server on this machine,
`pooled_postgres_url` once for each kind of pooler; there is always at least one of each, and one that cannot
start is a failure.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Hashable, Iterator
from typing import Any, TypeVar
from urllib.parse import urlsplit

import pytest

from servers.cluster import RedisCluster
from servers.pgbouncer import PgBouncer, pgbouncer_program
from servers.pooler import TransactionPooler
from servers.postgres import GivenPostgres, PostgresFlavour, PostgresServer, open_postgres, postgres_flavours
from servers.process import ServerProcess
from servers.redis import GivenRedis, RedisFlavour, RedisServer, open_redis, redis_flavours, valkey_flavour
from servers.sentinel import RedisSentinel

T = TypeVar("T")


class Park:
    """The servers of this session, each started once."""

    def __init__(self) -> None:
        self._servers: dict[Hashable, Any] = {}

    def get(self, name: Hashable, start: Callable[[], T]) -> T:
        """The server of this name, started if it is not there."""
        if name not in self._servers:
            self._servers[name] = start()
        server: T = self._servers[name]
        return server

    def close(self) -> None:
        """End all."""
        for server in self._servers.values():
            server.close()
        self._servers.clear()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run tests that take `any_redis` or `any_postgres` for every flavour there is."""
    if "any_redis" in metafunc.fixturenames:
        metafunc.parametrize("any_redis", redis_flavours(), indirect=True, ids=str)
    if "any_postgres" in metafunc.fixturenames:
        metafunc.parametrize("any_postgres", postgres_flavours(), indirect=True, ids=str)
    if "pooled_postgres_url" in metafunc.fixturenames:
        poolers = ["pooler", *(["pgbouncer"] if pgbouncer_program() else [])]
        metafunc.parametrize("pooled_postgres_url", poolers, indirect=True)


@pytest.fixture(scope="session")
def server_park() -> Iterator[Park]:
    """All servers of the session."""
    park = Park()
    yield park
    park.close()


def revive(server: object) -> None:
    """Undo what a test did to a server's processes."""
    if isinstance(server, RedisCluster | RedisSentinel):
        server.heal()
    elif isinstance(server, ServerProcess):
        server.resume()
        if server.alive:
            server.wait_ready()
        else:
            server.start()


def _clean(server: RedisServer | GivenRedis | RedisCluster | RedisSentinel) -> str:
    revive(server)
    server.clean()
    return server.url


@pytest.fixture(scope="session")
def redis_server(server_park: Park) -> RedisServer:
    """A Redis (or Valkey) without persistence."""
    return server_park.get("redis", lambda: RedisServer().start())


@pytest.fixture(scope="session")
def redis_aof_server(server_park: Park) -> RedisServer:
    """A Redis that syncs every write to disk."""
    return server_park.get("redis aof", lambda: RedisServer(variant="aof").start())


@pytest.fixture(scope="session")
def redis_evicting_server(server_park: Park) -> RedisServer:
    """A Redis that throws keys away when its memory is full."""
    return server_park.get("redis evicting", lambda: RedisServer(variant="evicting").start())


@pytest.fixture(scope="session")
def valkey(server_park: Park) -> RedisServer:
    """A Valkey without persistence."""
    flavour = valkey_flavour()
    return server_park.get(flavour, lambda: RedisServer(flavour).start())


@pytest.fixture(scope="session")
def redis_cluster(server_park: Park) -> RedisCluster:
    """Three masters, each with a replica."""
    return server_park.get("cluster", lambda: RedisCluster(replicas=1).start())


@pytest.fixture(scope="session")
def redis_sentinel(server_park: Park) -> RedisSentinel:
    """A master, a replica and three sentinels."""
    return server_park.get("sentinel", lambda: RedisSentinel().start())


@pytest.fixture
def any_redis(request: pytest.FixtureRequest, server_park: Park) -> RedisServer | GivenRedis:
    """Each kind of Redis and Valkey there is, one after the other, alive and empty."""
    flavour: RedisFlavour = request.param
    server = server_park.get(flavour, lambda: open_redis(flavour))
    _clean(server)
    return server


@pytest.fixture
def any_redis_url(any_redis: RedisServer | GivenRedis) -> str:
    """The URL of each kind of Redis and Valkey there is."""
    return any_redis.url


@pytest.fixture
def redis_url(redis_server: RedisServer) -> str:
    """An empty Redis."""
    return _clean(redis_server)


@pytest.fixture
def redis_aof_url(redis_aof_server: RedisServer) -> str:
    """An empty Redis that syncs every write to disk."""
    return _clean(redis_aof_server)


@pytest.fixture
def redis_cluster_url(redis_cluster: RedisCluster) -> str:
    """An empty cluster, all nodes well."""
    return _clean(redis_cluster)


@pytest.fixture
def redis_sentinel_url(redis_sentinel: RedisSentinel) -> str:
    """An empty Redis behind sentinels, all well."""
    return _clean(redis_sentinel)


@pytest.fixture(scope="session")
def postgres_server(server_park: Park) -> PostgresServer:
    """A PostgreSQL whose commits wait for the disk."""
    return server_park.get("postgres", lambda: PostgresServer().start())


@pytest.fixture(scope="session")
def postgres_unsafe_server(server_park: Park) -> PostgresServer:
    """A PostgreSQL with `fsync=off`, for tests that need many commits and no durability."""
    return server_park.get("postgres unsafe", lambda: PostgresServer(fsync=False).start())


@pytest.fixture
def any_postgres(request: pytest.FixtureRequest, server_park: Park) -> PostgresServer | GivenPostgres:
    """Each kind of PostgreSQL there is, one after the other, alive."""
    flavour: PostgresFlavour = request.param
    server = server_park.get(flavour, lambda: open_postgres(flavour))
    revive(server)
    return server


def _database(server: PostgresServer | GivenPostgres) -> Iterator[str]:
    name = server.create_database()
    yield server.url_of(name)
    revive(server)
    server.drop_database(name)


@pytest.fixture
def any_postgres_url(any_postgres: PostgresServer | GivenPostgres) -> Iterator[str]:
    """A new database on each kind of PostgreSQL there is."""
    yield from _database(any_postgres)


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> Iterator[str]:
    """A new database."""
    revive(postgres_server)
    yield from _database(postgres_server)


@pytest.fixture
async def pooled_postgres_url(
    request: pytest.FixtureRequest, server_park: Park, postgres_server: PostgresServer, postgres_url: str
) -> AsyncIterator[str]:
    """A new database behind transaction pooling: by `TransactionPooler`, and PgBouncer where there is one."""
    if request.param == "pgbouncer":
        bouncer = server_park.get("pgbouncer", lambda: PgBouncer(postgres_server).start())
        yield bouncer.url_of(urlsplit(postgres_url).path.strip("/"))
        return
    async with TransactionPooler(postgres_url) as pooler:
        yield pooler.url
