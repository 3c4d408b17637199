"""Nine ways in which others lose events or let two write: each a regression test of its own, on two stores.

All were seen in tools that people use today. Each test is named after what has to be so.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from hitherto import Fenced, Queue, Reject, Turn
from hitherto.addresses import Address
from hitherto.protocol import Claim, Event
from hitherto.stores.base import DEFAULT_TERMS
from keeping import STORES, Gate, World, note, until, update

HERE = Address("bot", "", (7, 7))


@pytest.fixture(params=STORES)
async def world(request, tmp_path):
    world = World(request.param, tmp_path)
    yield world
    await world.close()


async def test_busy_then_redelivered_is_handled(world):
    """Marked as seen when it was refused, its redelivery would be taken for a duplicate."""
    keeper, gate = await world.keeper(overlap=Reject()), Gate()
    running = asyncio.create_task(keeper.handle(update(1), gate))
    await until(lambda: gate.entered)
    assert (await keeper.handle(update(2), note)).status == "busy"
    gate.open()
    await running
    assert (await keeper.handle(update(2), note)).status == "committed"
    assert await world.done() == [1, 2]


async def test_a_handler_raises_with_two_queued_and_both_run_without_a_new_event(world):
    keeper, gate = await world.keeper(sweep=1000.0), asyncio.Event()

    async def failing(_: Turn) -> None:
        await gate.wait()
        raise ValueError("no")

    running = asyncio.create_task(keeper.handle(update(1), failing))
    await until(lambda: "started" in world.kinds())
    assert [(await keeper.handle(update(n), note)).status for n in (2, 3)] == ["queued", "queued"]
    gate.set()
    with pytest.raises(ValueError, match="no"):
        await running
    assert await keeper.idle()
    assert await world.done() == [2, 3]


async def test_an_event_queued_between_the_last_commit_and_the_release_is_handled(world):
    """At every moment around the end of a turn: whoever is told 'queued' is run without a sweep."""
    for rounds in range(1, 12):
        keeper = await world.keeper(sweep=1000.0, key=lambda _, chat=rounds: (chat, chat))
        running = asyncio.create_task(keeper.handle(update(1), note, id=f"1 {rounds}"))
        for _ in range(rounds):
            await asyncio.sleep(0)
        await keeper.handle(update(2), note, id=f"2 {rounds}")
        await running
        assert await keeper.idle()
        assert await world.done(rounds) == [1, 2]
        document = await keeper.inspect((rounds, rounds))
        assert (document.lease, document.inbox) == (None, ())
        await keeper.stop()


async def test_an_event_queued_in_the_same_moment_as_the_commit_is_never_stranded(world):
    """In the store itself: after a commit that handed nothing on there is no lease to wait behind."""
    store = world.store
    for rounds in range(20):
        address = Address("bot", "", (rounds,))
        first = await store.accept(address, Event("1", b"{}"), Queue(), "me", None, DEFAULT_TERMS)
        commit = store.settle(address, first.grant.claim, None, DEFAULT_TERMS)
        accept = store.accept(address, Event("2", b"{}"), Queue(), "you", None, DEFAULT_TERMS)
        calls = (commit, accept) if rounds % 2 else (accept, commit)
        answers = await asyncio.gather(*calls)
        ended, second = answers if rounds % 2 else reversed(answers)
        if second.status == "queued":
            assert [entry.event_id for entry in ended.grant.entries] == ["2"]
        else:
            assert (second.status, ended.grant) == ("granted", None)


async def test_1a_running_with_2a_3b_4a_5b_queued_loses_none(world):
    """Two topics behind one lock: each is handled, in order, as itself."""
    keeper, gate, got = await world.keeper(key=lambda _: (7, 7), sweep=1000.0), Gate(), []
    running = asyncio.create_task(keeper.handle(update(1, user=1, message_thread_id=100), gate))
    await until(lambda: gate.entered)

    async def handler(turn: Turn) -> None:
        message = turn.event["message"]
        got.append((turn.event["update_id"], message["message_thread_id"]))
        await note(turn)

    for number, topic in ((2, 100), (3, 200), (4, 100), (5, 200)):
        outcome = await keeper.handle(update(number, user=1, message_thread_id=topic), handler)
        assert outcome.status == "queued"
    gate.open()
    await running
    assert await keeper.idle()
    assert got == [(2, 100), (3, 200), (4, 100), (5, 200)]
    assert await world.done() == [1, 2, 3, 4, 5]


async def test_twenty_parallel_merges_keep_twenty_keys(world):
    await asyncio.gather(*[world.store.update_data("bot", (7, 7), {f"k{n}": n}) for n in range(20)])
    assert await world.store.get_data("bot", (7, 7)) == {f"k{n}": n for n in range(20)}


async def test_twenty_parallel_turns_keep_twenty_keys(world):
    keeper = await world.keeper()

    async def handler(turn: Turn) -> None:
        mine = dict(turn.data)
        await asyncio.sleep(0)
        turn.data = {**mine, f"k{turn.event['update_id']}": 1}

    await asyncio.gather(*[keeper.handle(update(n), handler) for n in range(20)])
    assert await keeper.idle()
    assert await world.store.get_data("bot", (7, 7)) == {f"k{n}": 1 for n in range(20)}


async def test_a_lease_that_expired_in_mid_handler_lets_no_second_commit_through(world):
    stale, gate = await world.keeper(), Gate()
    running = asyncio.create_task(stale.handle(update(1), gate))
    await until(lambda: gate.entered)
    stale._pumping.cancel()  # its process was paused: nothing renews the lease
    world.clock.advance(31)
    heir = await world.keeper(store=world.a_store(), sweep=1000.0)
    assert (await heir.handle(update(1), note)).status == "committed"
    gate.open()
    assert (await running).status == "fenced"
    assert gate.left == [1]
    assert await world.done() == [1]


async def test_after_a_force_release_the_old_holder_commits_nothing_and_drains_nothing(world):
    keeper, gate = await world.keeper(sweep=1000.0), Gate()
    running = asyncio.create_task(keeper.handle(update(1), gate))
    await until(lambda: gate.entered)
    await keeper.handle(update(2), gate)
    answer = await world.store.force_release(HERE, None, keeper.terms)
    assert answer.status == "released"
    gate.let()
    assert (await running).status == "fenced"
    assert await keeper.idle()
    assert gate.entered == [1]
    assert await world.done() == []
    assert [entry.event_id for entry in (await keeper.inspect((7, 7))).inbox] == ["tg:1", "tg:2"]
    gate.open()
    await keeper.sweep()
    assert await keeper.idle()
    assert await world.done() == [1, 2]


async def test_after_a_force_release_open_commits_nothing(world):
    keeper = await world.keeper()

    async def forced() -> None:
        async with keeper.open((7, 7)) as turn:
            turn.update_data(mine=1)
            await keeper.force_release((7, 7))

    with pytest.raises(Fenced):
        await forced()
    assert await world.store.get_data("bot", (7, 7)) is None


async def test_expired_queue_entries_do_not_count_against_the_limit(world):
    keeper, gate = await world.keeper(overlap=Queue(limit=2, expires=5), sweep=1000.0), Gate()
    running = asyncio.create_task(keeper.handle(update(1), gate))
    await until(lambda: gate.entered)
    assert [(await keeper.handle(update(n), gate)).status for n in (2, 3, 4)] == ["queued", "queued", "full"]
    world.clock.advance(6)
    assert [(await keeper.handle(update(n), gate)).status for n in (5, 6, 7)] == ["queued", "queued", "full"]
    gate.open()
    await running
    assert await keeper.idle()
    assert await world.done() == [1, 5, 6]
    assert keeper.counts["given up"] == 2


async def test_a_stale_holders_release_does_not_free_the_new_ones_lease(world):
    store, terms = world.store, DEFAULT_TERMS
    stale = await store.acquire(HERE, "old", None, terms)
    world.clock.advance(terms.lease + 1)
    fresh = await store.acquire(HERE, "new", None, terms)
    assert fresh.status == "granted"
    for release in (
        store.release(HERE, stale.grant.claim, None, terms),
        store.settle(HERE, stale.grant.claim, None, terms),
    ):
        assert (await release).status == "fenced"
    assert (await store.renew([(HERE, stale.grant.claim)], terms)) == [False]
    assert (await store.load(HERE)).lease.owner == "new"
    assert (await store.acquire(HERE, "third", None, terms)).status == "busy"
    assert (await store.settle(HERE, Claim(fresh.grant.epoch), None, terms)).status == "committed"


async def test_a_stale_block_that_ends_does_not_free_the_new_ones_lease(world):
    """The same through keepers: the block of the one ends while the other's goes on."""
    stale, heir = await world.keeper(), await world.keeper(store=world.a_store())
    gate = asyncio.Event()

    async def held_too_long() -> None:
        async with stale.open((7, 7)):
            await gate.wait()

    holding = asyncio.create_task(held_too_long())
    await until(lambda: "started" in world.kinds())
    await world.store.force_release(HERE, None, stale.terms)
    async with heir.open((7, 7)) as turn:
        gate.set()
        with suppress(Fenced):
            await holding
        turn.update_data(theirs=1)
    assert await world.store.get_data("bot", (7, 7)) == {"theirs": 1}
