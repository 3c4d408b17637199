"""Where a Redis store is found: every scheme, its options, clients of one's own, and what is never shown."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import subprocess
import warnings
from contextlib import asynccontextmanager
from urllib.parse import quote

import pytest
import redis
import redis.asyncio
import valkey.asyncio
from redis.asyncio.sentinel import Sentinel

from hitherto import Record, open_store
from hitherto.errors import BadStoreURL, MissingExtra, StoreError, StoreUnavailable
from hitherto.stores.redis import RedisStore, urls
from servers.process import LOOPBACK, free_port, workdir
from servers.redis import RedisServer, redis_flavours
from servers.sentinel import SERVICE, RedisSentinel

pytestmark = pytest.mark.filterwarnings("ignore::hitherto.errors.StoreWarning")
SECRET = "s3cr&t:/ @word"


async def works(store: RedisStore) -> None:
    """What is written is read, also by somebody else at the same place."""
    async with store:
        await store.set_state("bot", ("a", 1), Record("Talk", "hello", {"name": "Ann"}))
        assert await store.update_data("bot", ("a", 1), {"n": 1}) == {"name": "Ann", "n": 1}
        assert await store.get_state("bot", ("a", 1)) == Record("Talk", "hello", {"name": "Ann", "n": 1})


@pytest.fixture(scope="module")
def secured():
    """A server that wants a password."""
    with RedisServer(password=SECRET) as server:
        yield server


@pytest.fixture(scope="module")
def certificates():
    """An authority, a server's certificate for localhost, a client's certificate: made here, for here."""
    folder = workdir("tls")

    def openssl(*words: str) -> None:
        subprocess.run(
            [shutil.which("openssl") or "openssl", *words], cwd=folder, check=True, capture_output=True
        )

    key = ("-newkey", "rsa:2048", "-nodes", "-sha256", "-days", "2")
    openssl("req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.crt", "-subj", "/CN=hitherto tests")
    (folder / "names").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
    for name in ("server", "client"):
        openssl("req", *key, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        signed = ("-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-extfile", "names")
        openssl("x509", "-req", "-in", f"{name}.csr", *signed, "-out", f"{name}.crt", "-days", "2")
    return folder


class TLSServer(RedisServer):
    """A Redis that speaks TLS on a second port."""

    def __init__(self, certificates, flavour) -> None:
        self.tls_port = free_port()
        options = {
            "tls-port": str(self.tls_port),
            "tls-cert-file": str(certificates / "server.crt"),
            "tls-key-file": str(certificates / "server.key"),
            "tls-ca-cert-file": str(certificates / "ca.crt"),
            "tls-auth-clients": "yes",
        }
        super().__init__(flavour, options=options, password=SECRET)


class PlainBehindTLS:
    """TLS ended before a plain server, for programs that were built without it."""

    def __init__(self, certificates, server) -> None:
        self.certificates, self.server = certificates, server
        self.tls_port = free_port()

    @asynccontextmanager
    async def open(self):
        import ssl

        context = ssl.create_default_context(
            ssl.Purpose.CLIENT_AUTH, cafile=str(self.certificates / "ca.crt")
        )
        context.load_cert_chain(self.certificates / "server.crt", self.certificates / "server.key")
        context.verify_mode = ssl.CERT_REQUIRED
        tasks: set[asyncio.Task[None]] = set()

        async def pump(source, sink) -> None:
            try:
                while data := await source.read(65536):
                    sink.write(data)
                    await sink.drain()
            except OSError:
                pass
            finally:
                sink.close()

        async def accepted(reader, writer) -> None:
            far_reader, far_writer = await asyncio.open_connection(LOOPBACK, self.server.port)
            for source, sink in ((reader, far_writer), (far_reader, writer)):
                task = asyncio.ensure_future(pump(source, sink))
                tasks.add(task)
                task.add_done_callback(tasks.discard)

        listening = await asyncio.start_server(accepted, LOOPBACK, self.tls_port, ssl=context)
        try:
            yield f"{LOOPBACK}:{self.tls_port}"
        finally:
            listening.close()
            for task in list(tasks):
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await asyncio.sleep(0)


# --------------------------------------------------------------------------------------------- the schemes


@pytest.mark.parametrize("scheme", ["redis", "valkey"])
async def test_one_server_by_password_and_database(secured, scheme):
    place = f"{scheme}://:{quote(SECRET, safe='')}@{LOOPBACK}:{secured.port}"
    for url in (f"{place}/3?prefix=by-path", f"{place}?db=3&prefix=by-option&client_name=me"):
        await works(open_store(url))
    names = {name.partition("}")[0] for name in _keys(secured, 3)}
    assert names >= {"{by-path:bot:" + str(_shard()), "{by-option:bot:" + str(_shard())}
    assert not _keys(secured, 0)


def _keys(server, database):
    with server.connect() as resp:
        resp("SELECT", database)
        return resp("KEYS", "*")


def _shard():
    import zlib

    from hitherto.addresses import Address, encode

    return zlib.crc32(encode(Address("bot", "", ("a", 1))).encode()) % 64


async def test_a_user_by_name_in_the_place_or_in_the_options(secured):
    secured.command("ACL", "SETUSER", "ann", "on", ">tom ato", "~*", "+@all")
    for url in (
        f"redis://ann:tom%20ato@{LOOPBACK}:{secured.port}",
        f"redis://{LOOPBACK}:{secured.port}?username=ann&password=tom%20ato",
    ):
        await works(open_store(url))


async def test_a_socket_file(secured):
    await works(open_store(f"{secured.unix_url}?db=2"))
    assert _keys(secured, 2)


@pytest.mark.parametrize("scheme", ["rediss", "valkeys"])
async def test_tls_with_certificates_on_both_sides(certificates, secured, scheme):
    ours = f"ssl_certfile={certificates}/client.crt&ssl_keyfile={certificates}/client.key"
    secret = quote(SECRET, safe="")
    async with PlainBehindTLS(certificates, secured).open() as place:
        await works(open_store(f"{scheme}://:{secret}@{place}?ssl_ca_certs={certificates}/ca.crt&{ours}"))
        await works(
            open_store(f"redis://:{secret}@{place}?ssl=yes&ssl_cert_reqs=none&ssl_check_hostname=no&{ours}")
        )
        with pytest.raises(StoreError, match=r"certificate is not trusted.*\*\*\*@") as caught:
            await open_store(f"{scheme}://:{secret}@{place}?{ours}&timeout=3").open()
        assert "s3cr" not in _everything_of(caught.value)


async def test_tls_spoken_by_the_server_itself(certificates):
    tried = []
    for flavour in redis_flavours():
        if flavour.program is None:
            continue
        server = TLSServer(certificates, flavour)
        try:
            server.start()
        except Exception:
            continue  # built without TLS: the test before this one stands for it
        finally:
            tried.append(flavour)
            if not server.alive:
                server.close()
        with server:
            ours = f"ssl_certfile={certificates}/client.crt&ssl_keyfile={certificates}/client.key"
            place = f"rediss://:{quote(SECRET, safe='')}@{LOOPBACK}:{server.tls_port}"
            await works(open_store(f"{place}?ssl_ca_certs={certificates}/ca.crt&{ours}"))
    assert tried


async def test_sentinels_name_the_master(redis_sentinel, redis_sentinel_url):
    await works(open_store(f"{redis_sentinel_url}?prefix=watched"))
    assert any(name.startswith("{watched:") for name in redis_sentinel.master().command("KEYS", "*"))
    with pytest.raises(StoreError, match="no sentinel knows a master called 'nobody'"):
        await open_store(redis_sentinel_url.replace(f"/{SERVICE}", "/nobody")).open()


async def test_sentinels_and_servers_with_passwords():
    password = SECRET.replace(" ", "")
    sentinel = RedisSentinel(password=password, replicas=0)
    with sentinel.servers[0]:
        watching = sentinel.sentinels[0].start()
        try:
            watching.command("ACL", "SETUSER", "watcher", "on", ">peep", "~*", "+@all")
            watching.command("ACL", "SETUSER", "default", "off")
            secret = quote(password, safe="")
            url = f"redis+sentinel://:{secret}@{watching.host}:{watching.port}/{SERVICE}/1"
            store = open_store(f"{url}?sentinel_username=watcher&sentinel_password=peep")
            await works(store)
            assert "peep" not in repr(store) + store.url
            with pytest.raises(StoreError) as caught:
                await open_store(f"{url}?timeout=2").open()
            assert "s3cr" not in _everything_of(caught.value)
        finally:
            watching.close()


async def test_a_cluster_by_any_of_its_nodes(redis_cluster, redis_cluster_url):
    for node in redis_cluster.nodes[:2]:
        dead = f"{LOOPBACK}:{free_port()}"
        await works(open_store(f"redis+cluster://{dead},{node.host}:{node.port}/0"))
    assert sum(master.command("DBSIZE") for master in redis_cluster.masters()) > 0


async def test_a_cluster_is_not_taken_for_one_server_nor_one_server_for_a_cluster(
    redis_cluster, redis_cluster_url, redis_server, redis_url
):
    node = redis_cluster.nodes[0]
    with pytest.raises(StoreError, match="belongs to a cluster: use redis\\+cluster://"):
        await open_store(f"redis://{node.host}:{node.port}").open()
    with pytest.raises(StoreError, match="belongs to no cluster: use redis://"):
        await open_store(f"redis+cluster://{redis_server.host}:{redis_server.port}").open()


# ---------------------------------------------------------------------------------------------- bad ones


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("redis://h?shard=4", "unknown option shard; there are client_name, db, password, prefix"),
        ("redis://h?retry=1&zzz=2", "unknown option retry, zzz; there are"),
        ("redis://h?db=x", "database 'x': a number"),
        ("redis://h/0/1", "write redis://user:password@host:6379/0"),
        ("redis://a,b", "write redis://user:password@host:6379/0"),
        ("redis://h:99999", "a port is a number"),
        ("redis://[h", "write redis://user:password@host:6379/0"),
        ("redis://h?shards=0", "shards=0: a number from 1"),
        ("redis://h?shards=x", "shards='x': a number"),
        ("redis://h?shards=99999", "a number from 1 to 16384"),
        ("redis://h?timeout=0", "more than 0"),
        ("redis://h?timeout=nan", "more than 0"),
        ("redis://h?timeout=soon", "timeout='soon': a number"),
        ("redis://h?prefix=a}b", "no braces"),
        ("redis://h?prefix=", "at least one character"),
        ("redis://h?ssl_keyfile=x", "only with rediss://, or with ssl=yes"),
        ("redis://h?ssl=perhaps", "yes or no"),
        ("rediss://h?ssl_cert_reqs=sometimes", "none, optional or required"),
        ("redis+unix://", "write redis\\+unix:///path"),
        ("redis+sentinel://h:26379", "write redis\\+sentinel://host:port,host:port/service/0"),
        ("redis+sentinel://h/a/b/c", "write redis\\+sentinel://"),
        ("redis+cluster://h/3", "a cluster has database 0 only"),
        ("redis+cluster://h?db=3", "a cluster has database 0 only"),
    ],
)
def test_a_wrong_url_says_what_is_right(url, said):
    scheme, mark, rest = url.partition("://")
    for one in (url, f"{scheme}{mark}:s3cret@{rest}" if rest[:1] not in ("", "[") else url):
        with pytest.raises(BadStoreURL, match=said) as caught:
            RedisStore.from_url(one)
        assert "s3cr" not in _everything_of(caught.value)


def test_an_unknown_scheme_lists_what_there_is():
    with pytest.raises(BadStoreURL, match=r"there are redis, rediss, redis\+unix, redis\+sentinel"):
        RedisStore("rediz://h")


def test_every_scheme_is_found_by_open_store():
    for scheme in urls.SCHEMES:
        place = {"redis+unix": "/tmp/socket", "redis+sentinel": "h/service"}.get(scheme, "h")
        assert isinstance(open_store(f"{scheme}://{place}"), RedisStore)


def test_without_the_driver_the_install_command_is_said(monkeypatch):
    def missing(name: str) -> None:
        raise ModuleNotFoundError("No module named 'redis'", name="redis")

    monkeypatch.setattr(urls, "import_module", missing)
    with pytest.raises(MissingExtra, match=r'pip install "hitherto\[redis\]"'):
        RedisStore("redis://h")


# ---------------------------------------------------------------------------------------------- secrets


def _everything_of(error: BaseException) -> str:
    shown = []
    while error is not None:
        shown += [str(error), repr(error), repr(error.args), repr(vars(error))]
        error = error.__cause__
    return " ".join(shown)


async def test_a_password_is_in_no_repr_no_error_and_no_log(secured, caplog):
    caplog.set_level(logging.INFO)
    good = quote(SECRET, safe="")
    place = f"{LOOPBACK}:{secured.port}"
    store = open_store(f"redis://:{good}@{place}/0?client_name=me")
    assert store.url == f"redis://***@{place}/0?client_name=me"
    assert "s3cr" not in repr(store)
    wrong = [
        f"redis://:wr0ng@{place}",
        f"redis://ann:wr0ng@{place}?timeout=2",
        f"redis://{place}?password=wr0ng",
        f"redis+cluster://:wr0ng@{place}?timeout=2",
        f"redis://:wr0ng@{LOOPBACK}:{free_port()}?timeout=1",
        f"redis+sentinel://:wr0ng@{LOOPBACK}:{free_port()}/service?sentinel_password=wr0ng&timeout=1",
    ]
    for url in wrong:
        with pytest.raises(StoreError) as caught:
            await open_store(url).open()
        assert "wr0ng" not in _everything_of(caught.value) + caplog.text
    with pytest.raises(StoreError, match=r"refuses this user or password|wants a password"):
        await open_store(f"redis://{place}").open()
    with pytest.raises(StoreError, match="refuses this user or password"):
        await open_store(wrong[0]).open()


@pytest.mark.parametrize("scheme", ["redis", "redis+cluster", "redis+sentinel"])
async def test_a_missing_server_is_waited_for_and_said_within_the_deadline(scheme):
    loop = asyncio.get_running_loop()
    began, place = loop.time(), f"{LOOPBACK}:{free_port()}"
    with pytest.raises(
        StoreUnavailable, match=r"cannot connect|no server of the cluster|no sentinel answers"
    ) as caught:
        await open_store(f"{scheme}://{place}/{'service' if 'sentinel' in scheme else 0}?timeout=0.5").open()
    assert caught.value.retryable
    assert 0.4 < loop.time() - began < 10


async def test_a_server_that_starts_a_moment_later_is_found():
    server = RedisServer()
    opening = asyncio.create_task(works(open_store(f"{server.url}?timeout=20")))
    await asyncio.sleep(0.1)
    assert not opening.done()
    with await asyncio.to_thread(server.start):
        await opening


# --------------------------------------------------------------------------------- a client of one's own


async def test_a_client_is_used_and_never_closed(secured):
    secret = SECRET
    for kind, extra in ((redis.asyncio.Redis, {"protocol": 3}), (valkey.asyncio.Valkey, {})):
        async with kind(
            host=LOOPBACK, port=secured.port, db=5, password=secret, decode_responses=True, **extra
        ) as one:
            await one.set("mine", "yes")
            store = RedisStore(one, prefix="theirs")
            assert "s3cr" not in repr(store) + store.url
            await works(store)
            assert await one.get("mine") == "yes"
            assert any(key.startswith("{theirs:") for key in await one.keys("*"))
            await one.flushdb()


async def test_a_client_of_a_pool_and_of_a_socket_file(secured):
    pool = redis.asyncio.BlockingConnectionPool.from_url(secured.unix_url.replace("redis+unix", "unix"), db=4)
    async with redis.asyncio.Redis.from_pool(pool) as one:
        await works(RedisStore(one))
        assert await one.ping()


async def test_a_client_of_sentinels_follows_the_master(redis_sentinel, redis_sentinel_url):
    sentinels = Sentinel(redis_sentinel.addresses)
    master = sentinels.master_for(SERVICE)
    store = RedisStore(master)
    await works(store)
    assert await master.ping()
    await master.aclose()
    for one in sentinels.sentinels:
        await one.aclose()


async def test_a_client_of_a_cluster(redis_cluster, redis_cluster_url):
    node = redis_cluster.nodes[0]
    async with redis.asyncio.RedisCluster(host=node.host, port=node.port) as one:
        store = RedisStore(one)
        assert store.url.startswith("redis+cluster://")
        await works(store)
        assert await one.ping()


def test_what_is_no_asyncio_client_is_refused():
    for wrong in (redis.Redis(), object(), 7):
        with pytest.raises(TypeError, match=r"give a URL, or a client of redis\.asyncio or valkey\.asyncio"):
            RedisStore(wrong)


# ------------------------------------------------------------------------------------ loops and processes


def test_another_event_loop_is_told_to_open_a_store_of_its_own(redis_url):
    store = RedisStore(redis_url)

    async def use() -> None:
        await store.set_data("bot", (1,), {"a": 1})

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        loop = asyncio.new_event_loop()
        loop.run_until_complete(use())
        with pytest.raises(
            StoreError, match="opened in another process or event loop; open one of its own there"
        ):
            asyncio.run(use())
        loop.run_until_complete(store.close())
        loop.close()
    asyncio.run(works(RedisStore(redis_url)))


async def test_it_may_be_closed_from_another_loop_and_opened_again(redis_url):
    store = RedisStore(redis_url)
    await store.set_data("bot", (1,), {"a": 1})
    await asyncio.to_thread(lambda: asyncio.run(store.close()))
    with pytest.raises(StoreError, match="was closed"):
        await store.get_data("bot", (1,))
    async with store:
        assert await store.get_data("bot", (1,)) == {"a": 1}


def test_a_forked_process_is_told_so_and_leaves_the_connection_to_its_parent(redis_url):
    store = RedisStore(redis_url)

    async def used() -> str:
        try:
            await store.update_data("bot", (1,), {"a": 1})
        except StoreError as error:
            return str(error)
        return "used"

    loop = asyncio.new_event_loop()
    assert loop.run_until_complete(used()) == "used"
    child = os.fork()
    if not child:
        said = asyncio.run(used())
        asyncio.run(store.close())
        asyncio.run(store.open())
        os._exit(0 if "opened in another process" in said and asyncio.run(used()) != "used" else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert loop.run_until_complete(used()) == "used"
    loop.run_until_complete(store.close())
    loop.close()
