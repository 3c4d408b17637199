"""Many servers: slots that move, masters that die, sentinels that name another; all while turns run."""

from __future__ import annotations

import asyncio

import pytest

from hitherto import Keeper
from hitherto.addresses import Address
from hitherto.document import Event, Terms
from hitherto.errors import StoreUnavailable
from hitherto.overlap import Queue
from hitherto.records import Patch
from hitherto.stores.redis import RedisStore, links, wire
from keeping import note, until, update

pytestmark = [pytest.mark.filterwarnings("ignore::hitherto.errors.StoreWarning"), pytest.mark.timeout(120)]
TERMS = Terms()


class Load:
    """Conversations that take one turn after the other until they are told to stop."""

    def __init__(self, keeper: Keeper, chats: int = 20) -> None:
        self.keeper = keeper
        self.sent: dict[int, list[int]] = {chat: [] for chat in range(1, chats + 1)}
        self._going = True
        self._tasks = [asyncio.create_task(self._talk(chat)) for chat in self.sent]
        self.number = 0

    async def _talk(self, chat: int) -> None:
        while self._going:
            self.number += 1
            number = self.number
            await self.keeper.handle(update(number, chat), note)
            self.sent[chat].append(number)
            await asyncio.sleep(0.002)

    async def some(self, rounds: int = 3) -> None:
        """Until everybody has gone on."""
        wanted = {chat: len(numbers) + rounds for chat, numbers in self.sent.items()}

        def all_went_on() -> bool:
            for task in self._tasks:
                if task.done():
                    task.result()
            return all(len(self.sent[chat]) >= count for chat, count in wanted.items())

        await until(all_went_on, 60)

    async def end(self) -> None:
        self._going = False
        await asyncio.gather(*self._tasks)
        assert await self.keeper.idle(60)

    async def check(self, *, kept: bool = True) -> None:
        """Everything once and in order; *kept*: and nothing is missing."""
        for chat, numbers in self.sent.items():
            done = (await self.keeper.store.get_data("bot", (chat, chat)) or {}).get("done", [])
            assert len(set(done)) == len(done)
            assert done == sorted(done)
            assert set(done) <= set(numbers)
            if kept:
                assert done == numbers


# -------------------------------------------------------------------------------------------------- cluster


async def test_slots_move_while_turns_run(redis_cluster, redis_cluster_url):
    async with RedisStore(f"{redis_cluster_url}?shards=4") as store, Keeper("bot", store) as keeper:
        load = Load(keeper)
        await load.some()
        slots = sorted({store._layout.shard("bot", number).slot for number in range(4)})
        home = {slot: redis_cluster.node_for_slot(slot) for slot in slots}
        for slot in slots:
            target = next(node for node in redis_cluster.masters() if node is not home[slot])
            await asyncio.to_thread(redis_cluster.begin_move, slot, target)
            await asyncio.sleep(0.05)
            await asyncio.to_thread(redis_cluster.move_keys, slot, target)
            await asyncio.sleep(0.05)
            await asyncio.to_thread(redis_cluster.end_move, slot, target)
            await load.some(2)
        await load.end()
        await load.check()
        for slot in slots:
            await asyncio.to_thread(redis_cluster.move_slot, slot, home[slot])
        await keeper.handle(update(10**6, 1), note)


async def test_moved_and_ask_lead_to_the_right_server(redis_cluster, redis_cluster_url):
    """Also to one that has no scripts yet, and the map is learnt anew once."""
    async with RedisStore(f"{redis_cluster_url}?shards=1") as store:
        home = Address("bot", "", (1,))
        await store.set_data("bot", (1,), {"a": 1})
        slot = store._layout.place(home).slot
        owner = redis_cluster.node_for_slot(slot)
        target = next(node for node in redis_cluster.masters() if node is not owner)
        target.command("SCRIPT", "FLUSH")
        await asyncio.to_thread(redis_cluster.move_slot, slot, target)
        assert await store.update_data("bot", (1,), {"b": 2}) == {"a": 1, "b": 2}
        redis_cluster.reset_calls()
        for number in range(5):
            await store.update_data("bot", (1,), {"n": number})
        assert target.calls()["evalsha"] == 5
        assert owner.calls().get("evalsha", 0) == 0

        target.command("SCRIPT", "FLUSH")
        await asyncio.to_thread(redis_cluster.begin_move, slot, owner)
        await asyncio.to_thread(redis_cluster.move_keys, slot, owner)
        owner.command("SCRIPT", "FLUSH")
        assert await store.due("bot", 5) == []  # one key, so the server that has it already may be asked
        assert owner.calls()["asking"] >= 1
        reading = asyncio.create_task(store.get_data("bot", (1,)))
        await asyncio.sleep(0.1)
        await asyncio.to_thread(redis_cluster.end_move, slot, owner)
        assert await reading == {"a": 1, "b": 2, "n": 4}


async def test_an_address_without_a_host_is_the_one_that_was_asked(redis_cluster, redis_cluster_url):
    async with RedisStore(redis_cluster_url) as store:
        cluster = store._nodes
        asked = redis_cluster.node_for_slot(7)
        for text in (f"MOVED 7 :{asked.port}", f"ASK 7 {asked.host}:{asked.port}", "MOVED 7 ::1:7000"):
            node = cluster._pointed_to(7, wire.ServerError(text))
            assert node is (cluster.node(7) if "7000" not in text else cluster._by_place["::1", 7000])


async def test_a_master_of_the_cluster_dies_and_its_replica_goes_on(redis_cluster, redis_cluster_url):
    async with (
        RedisStore(redis_cluster_url, timeout=2.0) as store,
        Keeper("bot", store, lease=2, sweep=0.2) as keeper,
    ):
        load = Load(keeper)
        await load.some()
        await asyncio.to_thread(redis_cluster.kill_master, 0)
        await load.some()
        await load.end()
        await asyncio.to_thread(redis_cluster.heal)
        await load.check(kept=False)  # a failover may lose the newest
        assert sum(map(len, load.sent.values())) > 100


async def test_a_paused_master_of_the_cluster_is_replaced(redis_cluster, redis_cluster_url):
    async with (
        RedisStore(redis_cluster_url, timeout=1.0) as store,
        Keeper("bot", store, lease=2, sweep=0.2) as keeper,
    ):
        load = Load(keeper)
        await load.some()
        victim = redis_cluster.masters()[1]
        victim.pause()
        await load.some()
        await load.end()
        victim.resume()
        await asyncio.to_thread(redis_cluster.heal)
        await load.check(kept=False)


async def test_a_cluster_that_is_down_is_said_within_the_deadline(redis_cluster, redis_cluster_url):
    loop = asyncio.get_running_loop()
    async with RedisStore(redis_cluster_url, timeout=1.0) as store:
        await store.set_data("bot", (1,), {"a": 1})
        for node in redis_cluster.nodes:
            node.pause()
        began = loop.time()
        with pytest.raises(StoreUnavailable):
            await store.update_data("bot", (1,), {"b": 1})
        assert loop.time() - began < 8
        with pytest.raises(StoreUnavailable):
            await asyncio.wait_for(RedisStore(redis_cluster_url, timeout=0.5).open(), 15)
        for node in redis_cluster.nodes:
            node.resume()
        await asyncio.to_thread(redis_cluster.heal)
        assert (await store.get_data("bot", (1,)))["a"] == 1


async def test_clusterdown_is_waited_for(redis_cluster, redis_cluster_url, monkeypatch):
    left = {"n": 0}
    real = links.Link.execute

    def execute(link, commands):
        if left["n"] and b"EVALSHA" in commands[0]:
            left["n"] -= 1
            future = asyncio.get_running_loop().create_future()
            future.set_result([wire.ServerError("CLUSTERDOWN The cluster is down")] * len(commands))
            return future
        return real(link, commands)

    monkeypatch.setattr(links.Link, "execute", execute)
    async with RedisStore(redis_cluster_url) as store:
        left["n"] = 3
        await store.set_data("bot", (1,), {"a": 1})
        assert left["n"] == 0
    async with RedisStore(redis_cluster_url, timeout=0.3) as store:
        left["n"] = 10**6
        with pytest.raises(StoreUnavailable, match="the cluster is down"):
            await store.get_data("bot", (1,))


# ------------------------------------------------------------------------------------------------ sentinels


async def test_the_master_dies_and_the_sentinels_name_another(redis_sentinel, redis_sentinel_url):
    async with (
        RedisStore(redis_sentinel_url, timeout=2.0) as store,
        Keeper("bot", store, lease=2, sweep=0.2) as keeper,
    ):
        load = Load(keeper)
        await load.some()
        old = await asyncio.to_thread(redis_sentinel.kill_master)
        await load.some()
        assert redis_sentinel.master() is not old
        await load.end()
        await load.check(kept=False)
        await asyncio.to_thread(redis_sentinel.heal)


async def test_an_orderly_failover_of_the_sentinels(redis_sentinel, redis_sentinel_url):
    async with (
        RedisStore(redis_sentinel_url, timeout=2.0) as store,
        Keeper("bot", store, lease=2, sweep=0.2) as keeper,
    ):
        load = Load(keeper)
        await load.some()
        await asyncio.to_thread(redis_sentinel.failover)
        await load.some()
        await load.end()
        await load.check(kept=False)


async def test_a_turn_across_a_failover_is_fenced_once_somebody_else_has_it(
    redis_sentinel, redis_sentinel_url
):
    """The epoch lives with the data: on the new master too an older claim loses to a newer one."""
    home = Address("bot", "", (1,))
    async with RedisStore(redis_sentinel_url, timeout=5.0) as store:
        slow = await store.accept(home, Event("a", b"{}"), Queue(), "slow", store.op(), Terms(lease=0.1))
        await until(lambda: _replicated(redis_sentinel))
        await asyncio.to_thread(redis_sentinel.failover)
        end = asyncio.get_running_loop().time() + 30
        while (taken := await store.take_over(home, "quick", store.op(), TERMS)).status != "granted":
            assert asyncio.get_running_loop().time() < end
            await asyncio.sleep(0.05)
        patch = Patch(set={"by": b'"quick"'})
        assert (
            await store.settle(home, taken.grant.claim, store.op(), TERMS, patch=patch)
        ).status == "committed"
        patch = Patch(set={"by": b'"slow"'})
        assert (await store.settle(home, slow.grant.claim, store.op(), TERMS, patch=patch)).status == "fenced"
        assert await store.get_data("bot", (1,)) == {"by": "quick"}


def _replicated(sentinel) -> bool:
    offsets = {server.info("replication")["master_repl_offset"] for server in sentinel.servers}
    return len(offsets) == 1
