"""The Redis store on one server: what it checks, sends and keeps there, how it fails and comes back."""

from __future__ import annotations

import asyncio
import re
import time
import warnings
from importlib.resources import files
from pathlib import Path

import pytest

from hitherto import Keeper, Record
from hitherto.addresses import Address
from hitherto.document import Event, Terms
from hitherto.errors import DataError, SchemaError, StoreClosed, StoreError, StoreUnavailable, StoreWarning
from hitherto.overlap import Queue, Reject
from hitherto.records import Patch
from hitherto.stores.redis import RedisStore, checks, layout, links, nodes, scripts, wire
from hitherto.testing.proxy import Proxy
from keeping import note, until, update
from servers.cluster import key_slot
from servers.redis import RedisServer
from servers.resp import RespError

pytestmark = pytest.mark.filterwarnings("ignore::hitherto.errors.StoreWarning")
TERMS = Terms()
HOME = Address("bot", "", (-100, 7))
WRITES = {
    "set",
    "del",
    "hset",
    "hdel",
    "zadd",
    "zrem",
    "sadd",
    "srem",
    "rpush",
    "ltrim",
    "pexpire",
    "persist",
}


def event(number: int, payload: bytes = b"{}") -> Event:
    return Event(f"e{number}", payload)


async def a_turn(store, number: int = 1, address: Address = HOME, terms: Terms = TERMS, **fields: bytes):
    """Accept an event and commit its fields; both answers."""
    granted = await store.accept(address, event(number), Queue(), "me", store.op(), terms)
    assert granted.grant is not None
    patch = Patch(set=fields, moved=True, flow="Talk", state="hello") if fields else Patch()
    return granted, await store.settle(address, granted.grant.claim, store.op(), terms, patch=patch)


def key_of(server, kind: str) -> str:
    """The only key of a kind."""
    (found,) = [key for key in server.command("KEYS", "*") if f"}}:{kind}" in key]
    return found


# --------------------------------------------------------------------------------------------- start-up


async def opened_with(server_or_url) -> list[str]:
    url = getattr(server_or_url, "url", server_or_url)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        async with RedisStore(url) as store:
            await a_turn(store, name=b'"Ann"')
    return [str(one.message) for one in caught if one.category is StoreWarning]


async def test_a_server_that_forgets_is_warned_about_once(redis_url):
    (said,) = await opened_with(redis_url)
    assert said.startswith("appendonly is no: a restart of the server forgets what was acknowledged")


async def test_a_server_that_keeps_everything_is_not_warned_about(redis_aof_url):
    assert await opened_with(redis_aof_url) == []


async def test_a_server_that_throws_keys_away_is_warned_about(redis_evicting_server):
    said = await opened_with(redis_evicting_server)
    assert [one.split(":")[0] for one in said] == ["maxmemory-policy is allkeys-lru", "appendonly is no"]


async def test_a_volatile_policy_matters_once_there_is_a_limit():
    quiet = {"maxmemory_policy": "volatile-lru", "maxmemory": "0", "aof_enabled": "1"}
    assert checks.risks(quiet) == []
    assert "volatile-lru" in checks.risks(quiet | {"maxmemory": "1000"})[0]


async def test_a_cluster_says_it_once_for_all_masters(redis_cluster, redis_cluster_url):
    assert len(await opened_with(redis_cluster_url)) == 1
    async with RedisStore(redis_cluster_url) as store:
        assert "a cluster of 3 masters" in (await store.facts()).software


async def test_facts_tell_what_it_runs_on(redis_aof_server, redis_aof_url, redis_server, redis_url):
    async with RedisStore(f"{redis_aof_url}?shards=8") as store:
        facts = await store.facts()
    assert re.fullmatch(r"(Redis|Valkey) \d+\.\d+.*", facts.software)
    assert "8 shards" in facts.schema
    assert "always nothing" in facts.lost_in_a_crash
    async with RedisStore(redis_url) as store:
        assert "or everything" in (await store.facts()).lost_in_a_crash


@pytest.mark.parametrize(
    ("info", "error", "said"),
    [
        ({"redis_version": "6.0.16"}, StoreError, "Redis 6.0 is too old; 6.2 or newer is needed"),
        ({"redis_version": "5.0"}, StoreError, "too old"),
        ({"redis_mode": "cluster"}, StoreError, "use redis\\+cluster://"),
        ({"server_mode": "cluster"}, StoreError, "use redis\\+cluster://"),
        ({"role": "slave"}, StoreUnavailable, "connect to its master, or through its sentinels"),
    ],
)
async def test_a_server_that_cannot_do_it_is_refused(redis_url, monkeypatch, info, error, said):
    real = checks._fields
    monkeypatch.setattr(checks, "_fields", lambda text: real(text) | info)
    with pytest.raises(error, match=said):
        await RedisStore(redis_url).open()


async def test_a_real_replica_is_refused(redis_sentinel, redis_sentinel_url):
    replica = next(one for one in redis_sentinel.servers if one is not redis_sentinel.master())
    with pytest.raises(StoreUnavailable, match="this server is a replica"):
        await RedisStore(replica.url).open()


async def test_shards_are_fixed_for_a_bot(redis_url):
    async with RedisStore(f"{redis_url}?shards=4") as store:
        await store.init("bot")
        await store.init("bot")
    async with RedisStore(redis_url) as store:
        await store.init("another bot")
        with pytest.raises(SchemaError, match=r"lie in 4 shards: open the store with \?shards=4"):
            await store.init("bot")


# ----------------------------------------------------------------- a user who may do only what is needed

PREFIX = "on >limited resetkeys ~{hitherto:* resetchannels "
LIMITED = f"{PREFIX} +@all -@admin -@dangerous -keys".split()
_DOCUMENTED = (Path(__file__).parents[1] / "docs/redis.md").read_text().partition("ACL SETUSER my_bot ")[2]
EXACTLY = _DOCUMENTED.partition("```")[0].replace(">password", ">limited").split()


async def everything(store) -> None:
    """Every script and every command that there is, the CLI's lists included."""
    terms = Terms(record_ttl=100.0, max_attempts=1)
    async with Keeper("bot", store, sweep=0.05, max_attempts=1) as keeper:
        await keeper.handle(update(1), note)
        assert (await keeper.handle(update(1), note)).status == "duplicate"
        async with keeper.open((7, 7)) as turn:
            turn.update_data(jobs=1)
        await keeper.sweep()
    await store.set_state("bot", (1,), Record("Talk", "hello", {"a": 1, "b": 2}))
    await store.set_data("bot", (1,), {"c": 3})
    await store.update_data("bot", (1,), {"d": 4})
    granted = await store.accept(HOME, event(1), Queue(), "me", store.op(), terms)
    assert (await store.accept(HOME, event(2), Queue(), "me", store.op(), terms)).status == "queued"
    assert await store.renew([(HOME, granted.grant.claim)], terms) == [True]
    patch = Patch(set={"a": b"1"}, removed=frozenset(("b",)))
    answer = await store.settle(HOME, granted.grant.claim, store.op(), terms, patch=patch)
    answer = await store.settle(HOME, answer.grant.claim, store.op(), terms, verdict="dead", error="no")
    (dead,) = (await store.load(HOME)).dead
    assert (await store.retry_dead(HOME, dead.seq, store.op(), terms)).status == "queued"
    taken = await store.take_over(HOME, "me", store.op(), terms)
    await store.settle(HOME, taken.grant.claim, store.op(), terms, verdict="dead", error="no")
    await store.drop_dead(HOME, dead.seq, store.op(), terms)
    held = await store.acquire(HOME, "me", store.op(), terms)
    await store.release(HOME, held.grant.claim, store.op(), terms)
    await store.acquire(HOME, "me", store.op(), terms)
    assert (await store.force_release(HOME, store.op(), terms)).status == "released"
    for kind in ("all", "record", "due", "pending", "lease", "dead", "everything"):
        _ = [address async for address in store.scan("bot", kind)]
    assert await store.browse("bot", limit=5)
    assert await store.counts("bot")
    await store.expire("bot", 100, terms)
    await store.now()
    document = await store.load(HOME)
    assert await store.swap(HOME, document.version, document)
    await store.clear("bot", (1,))
    await store.forget(HOME)


@pytest.mark.parametrize(
    "rules", [LIMITED, EXACTLY], ids=["no admin, no dangerous", "exactly what is needed"]
)
async def test_a_limited_user_can_do_everything(any_redis, rules):
    any_redis.command("ACL", "SETUSER", "limited", "reset", *rules)
    try:
        url = any_redis.url.replace("redis://", "redis://limited:limited@", 1)
        any_redis.reset_calls()
        store = RedisStore(url)
        with pytest.warns(StoreWarning, match=r"this user may not run INFO.*\+info"):
            await store.open()
        await everything(store)
        assert "does not say" in (await store.facts()).lost_in_a_crash
        await store.close()
        assert "keys" not in any_redis.calls()
    finally:
        any_redis.command("ACL", "DELUSER", "limited")


async def test_a_user_who_may_not_run_scripts_is_told_what_is_needed(redis_server, redis_url):
    redis_server.command("ACL", "SETUSER", "limited", "reset", *EXACTLY, "-script")
    try:
        with pytest.raises(StoreError, match="this user may not run what the store needs: scripts"):
            await RedisStore(redis_url.replace("redis://", "redis://limited:limited@")).open()
    finally:
        redis_server.command("ACL", "DELUSER", "limited")


async def test_a_key_that_is_not_ours_is_said_and_left_alone(redis_server, redis_url):
    async with RedisStore(redis_url) as store:
        key = store._layout.place(HOME).keys[0].decode()
        redis_server.command("RPUSH", key, "mine")
        with pytest.raises(StoreError, match="a key of the store's prefix holds something else"):
            await store.load(HOME)
        assert redis_server.command("LRANGE", key, 0, -1) == ["mine"]


# ------------------------------------------------------------------------------------------- what lies there


async def test_data_is_readable_one_field_for_each_top_level_key(redis_server, redis_url):
    async with RedisStore(redis_url) as store:
        data = {"name": "Änn", "sizes": [1, {"a": None}], "n": 10**20, "f": 1e16}
        await store.set_state("my bot", (7, 7), Record("Signup", "ask_name", data))
    words = redis_server.command("HGETALL", key_of(redis_server, "data"))
    assert dict(zip(words[::2], words[1::2], strict=True)) == {
        "name": '"Änn"', "sizes": '[1,{"a":null}]', "n": "100000000000000000000", "f": "1e16",
    }  # fmt: skip


async def test_all_keys_of_a_conversation_and_its_indexes_share_one_slot(redis_server, redis_url):
    odd = [Address(bot, "", (1, "{a}:b/c%", None)) for bot in ("bot", "b{o}t:7", "bö/t")]
    async with RedisStore(f"{redis_url}?shards=2&prefix=my:prefix") as store:
        for address in odd:
            await store.init(address.bot)
            answer = await store.accept(address, event(1), Queue(), "me", store.op(), TERMS)
            await store.accept(address, event(2, b"x" * 9000), Queue(), "me", store.op(), TERMS)
            patch = Patch(set={"a": b"1"})
            answer = await store.settle(address, answer.grant.claim, store.op(), TERMS, patch=patch)
            await store.settle(address, answer.grant.claim, store.op(), TERMS, verdict="dead", error="no")
            place = store._layout.place(address)
            there = {key for key in redis_server.command("KEYS", "*") if key.encode() in place.keys}
            assert len(there) == 7  # nothing is due
            assert {key_slot(key) for key in there} == {place.slot}
        assert {address async for address in store.scan("b{o}t:7", "all")} == {odd[1]}
    assert all(key.startswith("{my:prefix:") for key in redis_server.command("KEYS", "*"))


def test_the_slot_of_a_tag_is_redis_own(redis_server):
    with RedisServer(options={"cluster-enabled": "yes"}) as node:
        for tag in ("", "a", "hitherto:bot:63", "ü/{"):
            assert layout.slot_of(tag.encode()) == node.command("CLUSTER", "KEYSLOT", tag)


async def test_update_data_and_a_commit_send_and_write_only_what_changed(redis_url):
    async with Proxy(redis_url) as proxy, RedisStore(proxy.url) as store:
        big = {f"k{n}": "x" * 1000 for n in range(200)}
        await store.set_data("bot", HOME.key, big)
        granted = await store.accept(HOME, event(1), Queue(), "me", store.op(), TERMS)
        proxy.reset_counts()
        patch = Patch(set={"k7": b'"new"'})
        await store.settle(HOME, granted.grant.claim, store.op(), TERMS, patch=patch)
        assert proxy.reset_counts().bytes_up < 1200
        await store.update_data("bot", HOME.key, {"k8": "new"})
        assert proxy.reset_counts().bytes_up < 1200
        assert await store.get_data("bot", HOME.key) == big | {"k7": "new", "k8": "new"}


async def test_a_record_too_large_is_refused_and_nothing_changes(redis_url, monkeypatch):
    monkeypatch.setattr("hitherto.codec.MAX_BYTES", 1000)
    async with RedisStore(redis_url) as store:
        await store.set_data("bot", HOME.key, {"a": "x" * 600})
        with pytest.raises(DataError, match="at most 1000, keep large things elsewhere"):
            await store.update_data("bot", HOME.key, {"b": "x" * 600})
        granted = await store.accept(HOME, event(1), Queue(), "me", store.op(), TERMS)
        patch = Patch(set={"b": b'"%s"' % (b"x" * 600)})
        with pytest.raises(DataError, match="bytes together"):
            await store.settle(HOME, granted.grant.claim, store.op(), TERMS, patch=patch)
        assert await store.get_data("bot", HOME.key) == {"a": "x" * 600}
        assert (await store.load(HOME)).inbox
        await store.update_data("bot", HOME.key, {"a": "", "b": "x" * 600})


# ------------------------------------------------------------------------------------------------ expiry


async def test_an_expired_record_keeps_its_epoch_to_fence_late_commits(redis_server, redis_url):
    terms = Terms(record_ttl=0.05, lease=0.05)
    async with RedisStore(redis_url) as store:
        nameless = Event(None, b"{}")
        late = await store.accept(HOME, nameless, Queue(), "slow", store.op(), terms)
        await asyncio.sleep(0.06)
        granted = await store.take_over(HOME, "quick", store.op(), terms)
        await store.settle(HOME, granted.grant.claim, store.op(), terms, patch=Patch(set={"a": b"1"}))
        await asyncio.sleep(0.06)
        assert await store.get_state("bot", HOME.key) is None
        await store.expire("bot", 100, terms)
        assert not [key for key in redis_server.command("KEYS", "*") if "}:data" in key]
        kept = redis_server.command("PTTL", key_of(redis_server, "conversation"))
        assert kept > 1000 * (terms.tombstone - 60)
        patch = Patch(set={"late": b"1"})
        answer = await store.settle(HOME, late.grant.claim, store.op(), terms, patch=patch)
        assert answer.status == "fenced"
        assert await store.get_state("bot", HOME.key) is None
        again = await store.accept(HOME, nameless, Queue(), "me", store.op(), terms)
        assert again.grant.epoch > granted.grant.epoch


async def test_what_is_idle_goes_by_itself_and_what_lives_does_not(redis_server, redis_url):
    short = Terms(record_ttl=0.3, tombstone=0.2, seen_age=0.2, ops_age=0.2)
    async with RedisStore(redis_url) as store:
        await store.init("bot")
        await a_turn(store, 1, Address("bot", "", ("goes",)), short, a=b"1")
        await a_turn(store, 1, Address("bot", "", ("stays",)), TERMS, a=b"1")
        waits = Address("bot", "", ("waits",))
        await store.accept(waits, event(1), Queue(), "me", store.op(), short)
        await store.accept(waits, event(2), Queue(), "me", store.op(), short)

        def left() -> set[str]:
            keys = redis_server.command("KEYS", "*:conversation:*") + redis_server.command("KEYS", "*:data:*")
            return {key.rpartition("/")[2].strip('"~') for key in keys}

        assert any("goes" in key for key in left())
        await until(lambda: not any("goes" in key for key in left()), 20)
        assert sorted(key for key in left()) == sorted(
            {key for key in left() if "stays" in key or "waits" in key}
        )
        assert [address.key async for address in store.scan("bot", "record")] == [("stays",)]
        assert len((await store.load(waits)).inbox) == 2


# --------------------------------------------------------------------------- scripts as they should be


def test_every_script_declares_its_keys_and_is_the_same_always():
    for name in scripts.NAMES:
        text = re.sub(r"--.*", "", scripts.script(name).text.decode())
        called = re.findall(r"redis\.p?call\(([^,)]+),?\s*([^,)]*)", text)
        assert called
        for command, key in called:
            command = command.strip("'")
            if command == "TIME":
                continue
            assert re.fullmatch(r"KEYS\[\w+\]|key", key), (name, command, key)
        assert "KEYS[" in text
        assert not re.search(r"\.\.\s*KEYS|loadstring|\bKEYS\b(?!\[)", text)
        assert scripts.script(name) is scripts.script(name)
        assert len(text) < 40_000
    assert len(scripts.by_hash()) == len(scripts.NAMES)


def test_every_lua_file_is_used_and_says_what_it_is_for():
    there = {one.name.removesuffix(".lua") for one in (files("hitherto.stores.redis") / "lua").iterdir()}
    assert there == {"start", "prelude", "accept.hot", "settle.hot", *scripts.NAMES}
    for name in there:
        text = (files("hitherto.stores.redis") / "lua" / f"{name}.lua").read_text()
        assert text.startswith("-- ")
        assert not re.search(r"'(KEYS|FT\.|JSON\.)", text)


async def test_scripts_are_loaded_once_and_the_hot_way_loads_nothing(redis_server, redis_url):
    async with RedisStore(redis_url) as store:
        await a_turn(store, a=b"1")
        redis_server.reset_calls()
        await asyncio.gather(*[a_turn(store, 2, Address("bot", "", (n,)), a=b"1") for n in range(20)])
        calls = redis_server.calls()
        assert calls["evalsha"] == 40
        assert not {name for name in calls if name.startswith(("script", "eval|", "ping", "client", "hello"))}
    async with RedisStore(redis_url) as store:
        redis_server.reset_calls()
        await a_turn(store, 3, a=b"1")
        assert redis_server.calls().get("script|load", redis_server.calls().get("script", 1)) <= 1


async def test_scripts_that_were_flushed_are_taught_again_under_load(redis_server, redis_url):
    async with RedisStore(redis_url) as store:
        done = asyncio.Event()

        async def flush() -> None:
            while not done.is_set():
                await asyncio.to_thread(redis_server.command, "SCRIPT", "FLUSH")
                await asyncio.sleep(0.003)

        flushing = asyncio.create_task(flush())
        addresses = [Address("bot", "", (n,)) for n in range(20)]
        for number in range(20):
            await asyncio.gather(*[a_turn(store, number, one, n=b"%d" % number) for one in addresses])
        done.set()
        await flushing
        for one in addresses:
            assert await store.get_data("bot", one.key) == {"n": 19}
            assert len((await store.load(one)).seen) == 20


# -------------------------------------------------------------------------------------------- round trips


async def test_a_late_first_attempt_changes_nothing_after_its_repeat(redis_server, redis_url, monkeypatch):
    """The network kept the first attempt back; the repeat did what it asks for, and others more since."""
    kept: list[bytes] = []
    real = links.Link.execute

    def execute(link, commands):
        if not kept and b"EVALSHA" in commands[0]:
            kept.extend(commands)
            future = link._loop.create_future()
            future.set_exception(links.Lost("it seems", url=link.url))
            return future
        return real(link, commands)

    async with RedisStore(redis_url) as store:
        await store.open()
        monkeypatch.setattr(links.Link, "execute", execute)
        await store.set_data("bot", HOME.key, {"a": "old"})
        await store.set_data("bot", HOME.key, {"a": "new"})
        with redis_server.connect() as resp:
            resp._socket.sendall(b"".join(kept))
            resp.receive()
        assert await store.get_data("bot", HOME.key) == {"a": "new"}

        kept.clear()
        nameless = Event(None, b"{}")
        first = await store.accept(HOME, nameless, Queue(), "me", store.op(), TERMS)
        await store.settle(HOME, first.grant.claim, store.op(), TERMS)
        with redis_server.connect() as resp:
            resp._socket.sendall(b"".join(kept))
            resp.receive()
        assert not (await store.load(HOME)).inbox


async def test_a_caller_may_repeat_an_operation_by_its_id(redis_url):
    nameless = Event(None, b"{}")
    async with RedisStore(redis_url) as store:
        for op in (store.op(), "an-id-of-my-own"):
            first = await store.accept(HOME, nameless, Queue(), "me", op, TERMS)
            again = await store.accept(HOME, nameless, Queue(), "me", op, TERMS)
            assert again.status == first.status == "granted"
            assert again.grant.claim == first.grant.claim
            assert len((await store.load(HOME)).inbox) == 1
            await store.settle(HOME, first.grant.claim, store.op(), TERMS)


async def test_concurrent_operations_travel_together(redis_url):
    async with Proxy(redis_url) as proxy, RedisStore(proxy.url) as store:
        await a_turn(store)
        proxy.reset_counts()
        places = [Address("bot", "", (n,)) for n in range(200)]
        await asyncio.gather(
            *[store.accept(one, event(1), Reject(), "me", store.op(), TERMS) for one in places]
        )
        counts = proxy.reset_counts()
        assert counts.requests == counts.replies == 200
        assert counts.connections == 0
        assert counts.round_trips <= 12


# --------------------------------------------------------------------------------------------- neighbours


async def test_a_cancelled_operation_leaves_its_neighbours_alone(redis_url):
    async with Proxy(redis_url) as proxy, RedisStore(proxy.url) as store:
        await a_turn(store)
        for latency in (0.0, 0.01):
            proxy.latency = latency
            for victims in ((0,), (3, 4, 5), tuple(range(0, 40, 2))):
                tasks = [
                    asyncio.create_task(store.update_data("bot", (latency, n), {"n": n})) for n in range(40)
                ]
                await asyncio.sleep(latency / 2)
                for victim in victims:
                    tasks[victim].cancel()
                results = await asyncio.gather(*tasks, return_exceptions=True)
                for number, result in enumerate(results):
                    if number in victims:
                        assert isinstance(result, asyncio.CancelledError | dict)
                    else:
                        assert result["n"] == number
        assert proxy.counts.connections == 1


async def test_an_error_of_one_is_not_the_error_of_its_neighbours(redis_server, redis_url):
    async with RedisStore(redis_url) as store:
        key = store._layout.place(Address("bot", "", (3,))).keys[0].decode()
        redis_server.command("RPUSH", key, "mine")
        results = await asyncio.gather(
            *[store.update_data("bot", (n,), {"n": n}) for n in range(6)], return_exceptions=True
        )
    assert isinstance(results.pop(3), StoreError)
    assert results == [{"n": n} for n in (0, 1, 2, 4, 5)]


async def test_what_waits_for_a_silent_server_is_bounded(redis_server, redis_url):
    async with RedisStore(redis_url, timeout=1.0) as store:
        await a_turn(store)
        redis_server.pause()
        calls = [asyncio.create_task(store.get_data("bot", (n,))) for n in range(12_000)]
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert all(isinstance(one, StoreUnavailable) for one in results)
        assert sum("operations wait for the store already" in str(one) for one in results) > 1000
        node = store._nodes.node(0)
        await until(lambda: node.gather.waiting == 0)
        assert node.gather.under_way <= nodes.LANES
        redis_server.resume()
        await until(lambda: node.gather.under_way == 0)
        assert await store.get_data("bot", HOME.key) is None
        assert len(store._words) <= 1001


async def test_nothing_is_remembered_of_conversations_and_turns(redis_url):
    async with RedisStore(redis_url) as store:
        for number in range(300):
            await a_turn(store, 1, Address("bot", "", (number,)), terms=Terms(lease=30 + number), a=b"1")
        assert len(store._words) <= 1001
        assert not store._nodes.node(0).gather.waiting
        await a_turn(store, 2, terms=Terms(lease=5))


# ------------------------------------------------------------------------------------------------ failures


async def test_a_killed_connection_is_made_anew_and_the_caller_notices_nothing(redis_server, redis_url):
    async with RedisStore(redis_url) as store:
        for number in range(20):
            redis_server.command("CLIENT", "KILL", "TYPE", "normal")
            await store.update_data("bot", HOME.key, {f"k{number}": number})
        assert len(await store.get_data("bot", HOME.key)) == 20


async def test_a_restarting_server_is_waited_for(redis_aof_server, redis_aof_url):
    async with RedisStore(redis_aof_url) as store:
        turns = asyncio.create_task(many_turns(store, 100))
        await asyncio.sleep(0.05)
        await asyncio.to_thread(redis_aof_server.restart)
        await turns
        assert await store.get_data("bot", HOME.key) == {"n": 99}
        assert len((await store.load(HOME)).seen) == 100


async def many_turns(store, count: int, address: Address = HOME, pause: float = 0.002) -> None:
    """Turn after turn, each once in effect or not at all."""
    for number in range(count):
        granted = await store.accept(address, event(number), Queue(), "me", store.op(), TERMS)
        assert granted.status == "granted", granted
        patch = Patch(set={"n": b"%d" % number})
        answer = await store.settle(address, granted.grant.claim, store.op(), TERMS, patch=patch)
        assert answer.status == "committed", answer
        await asyncio.sleep(pause)


async def test_a_server_that_is_gone_is_said_within_the_deadline(redis_server, redis_url):
    loop = asyncio.get_running_loop()
    async with RedisStore(redis_url, timeout=0.5) as store:
        await a_turn(store)
        redis_server.kill()
        began = loop.time()
        with pytest.raises(StoreUnavailable, match=r"cannot connect|connection was lost") as caught:
            await store.get_data("bot", HOME.key)
        assert 0.3 < loop.time() - began < 5
        assert caught.value.retryable
        redis_server.start()
        assert await store.get_data("bot", HOME.key) is None


async def test_a_paused_server_never_hangs_anybody(redis_server, redis_url):
    loop = asyncio.get_running_loop()
    async with RedisStore(redis_url, timeout=0.5) as store:
        await store.set_data("bot", HOME.key, {"a": 1})
        redis_server.pause()
        for attempt in range(3):
            began = loop.time()
            with pytest.raises(
                StoreUnavailable, match=r"no answer within|cannot connect|connection was lost"
            ):
                await store.update_data("bot", HOME.key, {"b": attempt})
            assert loop.time() - began < 5
        redis_server.resume()
        assert (await store.get_data("bot", HOME.key))["a"] == 1


async def test_a_paused_server_at_the_opening_never_hangs_anybody(redis_server, redis_url):
    redis_server.pause()
    with pytest.raises(StoreUnavailable, match="within 0"):
        await asyncio.wait_for(RedisStore(redis_url, timeout=0.5).open(), 20)


async def test_a_keeper_is_patient_and_then_says_so(redis_server, redis_url):
    async with (
        RedisStore(redis_url, timeout=0.2) as store,
        Keeper("bot", store, handler=note, deadline=0.5, lease=1, sweep=0.1) as keeper,
    ):
        await keeper.handle(update(1), note)
        redis_server.pause()
        with pytest.raises(StoreUnavailable):
            async with asyncio.timeout(20):
                await keeper.handle(update(2), note)
        redis_server.resume()
        # whether the second was accepted when the server woke up nobody knows; it holds up nobody for long
        await keeper.handle(update(3), note)
        end = asyncio.get_running_loop().time() + 20
        while 3 not in (await store.get_data("bot", (7, 7)))["done"]:
            assert asyncio.get_running_loop().time() < end
            await asyncio.sleep(0.05)


async def test_a_full_server_refuses_and_goes_on_later(redis_server, redis_url):
    async with RedisStore(redis_url) as store:
        await store.set_data("bot", HOME.key, {"a": 1})
        with redis_server.memory_full():
            with pytest.raises(StoreUnavailable, match="out of memory") as caught:
                await a_turn(store, b=b"2")
            assert caught.value.retryable
        await a_turn(store, b=b"2")
        assert await store.get_data("bot", HOME.key) == {"a": 1, "b": 2}


async def test_a_server_turned_replica_is_left_for_its_master(redis_server, redis_url):
    async with RedisStore(redis_url, timeout=0.5) as store:
        await a_turn(store)
        with RedisServer(redis_server.flavour) as other:
            redis_server.command("REPLICAOF", other.host, other.port)
            try:
                with pytest.raises(StoreUnavailable, match=r"replica|master"):
                    await a_turn(store, 2)
            finally:
                redis_server.command("REPLICAOF", "NO", "ONE")
        await a_turn(store, 3)


async def test_a_server_that_loads_its_data_is_waited_for(redis_url, monkeypatch):
    """What it answers meanwhile is LOADING, to every command."""
    loading = {"left": 0}
    real = links.Link.execute

    def execute(link, commands):
        if loading["left"] > 0:
            loading["left"] -= 1
            future = link._loop.create_future()
            future.set_result(
                [wire.ServerError("LOADING Redis is loading the dataset in memory")] * len(commands)
            )
            return future
        return real(link, commands)

    monkeypatch.setattr(links.Link, "execute", execute)
    loading["left"] = 4
    async with RedisStore(redis_url) as store:
        loading["left"] = 4
        await a_turn(store)
        assert loading["left"] == 0
    loading["left"] = 10**6
    with pytest.raises(StoreUnavailable, match="has been started and still loads its data"):
        await RedisStore(redis_url, timeout=0.3).open()


async def test_a_server_loading_for_real(redis_aof_url):
    options = {"key-load-delay": "2000", "loading-process-events-interval-bytes": "1024", "appendonly": "yes"}
    with RedisServer(options=options) as server:
        with server.connect() as resp:
            for number in range(200):
                resp("SET", f"k{number}", "x" * 100)
            resp("SAVE")
        async with RedisStore(server.url) as store:
            await a_turn(store)
            server.command("BGREWRITEAOF")
            await until(lambda: server.info("persistence")["aof_rewrite_in_progress"] == "0", 30)
            server.kill()
            server.spawn()
            assert (await a_turn(store, 2))[1].status == "committed"
            server.wait_ready()


async def test_a_script_of_somebody_else_that_runs_too_long(redis_server, redis_url):
    redis_server.command("CONFIG", "SET", "lua-time-limit", "20")
    async with RedisStore(redis_url) as store:
        await a_turn(store)
        with redis_server.connect() as resp:
            resp.send("EVAL", "while true do end", 0)
            await asyncio.sleep(0.1)
            turn = asyncio.create_task(a_turn(store, 2))
            await asyncio.sleep(0.1)
            assert not turn.done()
            redis_server.command("SCRIPT", "KILL")
            with pytest.raises(RespError):
                resp.receive()
            await turn


async def test_a_chat_state_survives_lost_replies(redis_url):
    """What is loaded, changed and swapped is looked at again when the swap's reply was lost."""
    from hitherto import ChatState

    async with Proxy(redis_url) as proxy, RedisStore(proxy.url) as store:
        chat = ChatState(store, "bot")
        assert await chat.claim(("tg", 0), 100)
        loss = proxy.lose_reply(None, probability=0.3)
        for number in range(1, 40):
            assert await chat.claim(("tg", number), 100), number
        loss.cancel()
        assert loss.hits > 5
        assert not await chat.claim(("tg", 17), 100)


# --------------------------------------------------------------------------------------------- the end of it


async def test_a_closed_store_refuses_and_can_be_opened_again(redis_url):
    store = RedisStore(redis_url)
    await store.close()
    with pytest.raises(StoreClosed, match=r"open\(\) it again"):
        await store.get_data("bot", (1,))
    await store.open()
    await store.open()
    await store.set_data("bot", (1,), {"a": 1})
    await store.close()
    await store.close()
    async with store:
        assert await store.get_data("bot", (1,)) == {"a": 1}


async def test_closing_lets_what_is_under_way_come_to_its_end(redis_url):
    async with Proxy(redis_url) as proxy:
        store = RedisStore(proxy.url)
        await a_turn(store)
        proxy.latency = 0.05
        calls = [asyncio.create_task(store.update_data("bot", (n,), {"n": n})) for n in range(5)]
        await asyncio.sleep(0.01)
        await store.close()
        done = await asyncio.gather(*calls, return_exceptions=True)
        assert done[0] == {"n": 0}
        assert all(one == {"n": n} or isinstance(one, StoreClosed) for n, one in enumerate(done))


# ----------------------------------------------------------------------------------------------- the wire


def test_both_readers_read_the_same_however_it_is_cut():
    replies = (
        b"+OK\r\n-ERR no\r\n:-7\r\n$3\r\na\r\n\r\n$-1\r\n$0\r\n\r\n*-1\r\n*2\r\n$1\r\nx\r\n*1\r\n:1\r\n*0\r\n"
    )
    for size in (1, 2, 3, 7, 1000):
        found = []
        for reader in (wire.PythonReader(), wire.new_reader()):
            read = []
            for start in range(0, len(replies), size):
                reader.feed(replies[start : start + size])
                while (reply := reader.gets()) is not False:
                    read.append(reply.text if isinstance(reply, wire.ServerError) else reply)
            found.append(read)
        assert found[0] == found[1] == [b"OK", "ERR no", -7, b"a\r\n", None, b"", None, [b"x", [1]], []]


def test_both_ways_to_pack_say_the_same():
    words = (b"SET", "k\u00fc", 7, b"\r\n\x00", "")
    assert wire.pack(words) == wire.pack_in_python(words)


async def test_without_hiredis_everything_works(redis_url, monkeypatch):
    monkeypatch.setattr(links, "new_reader", wire.PythonReader)
    for module in (nodes, __import__("hitherto.stores.redis.store", fromlist=["pack"])):
        monkeypatch.setattr(module, "pack", wire.pack_in_python)
    async with RedisStore(redis_url) as store:
        await everything(store)


def test_the_code_of_an_error_inside_a_script_is_found():
    six = "ERR Error running script (call to f_1): @user_script:7: @user_script: 7: -READONLY You can't write"
    assert wire.ServerError(six).code == "READONLY"
    assert wire.ServerError("NOSCRIPT No matching script").code == "NOSCRIPT"


async def test_time_is_the_servers_own(redis_url):
    async with RedisStore(redis_url) as store:
        assert abs(await store.now() - time.time()) < 60
        answer, _ = await a_turn(store)
        assert abs(answer.at - time.time()) < 60
