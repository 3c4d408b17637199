"""The clauses of the chat state contract: subscriptions, maps, seen messages, locks and snapshots."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, ClassVar, Final

import pytest

from hitherto.chatstate import NOT_OWNER, ChatState, Pending, Snapshot, normalize_snapshot
from hitherto.stores.base import Store
from hitherto.stores.memory import MemoryStore
from hitherto.testing.clock import ManualClock
from hitherto.testing.fsm import HOSTILE, UNSTORABLE, VALUES, same
from hitherto.testing.kit import BOT, Contract, refuses

if TYPE_CHECKING:
    from hitherto.contracts import ChatStateAdapter

IDS: Final = [*HOSTILE, "None", "thread", "channel", "subscription", "dedupe", "C1:171", "é" * 200]


def waiting(released: object) -> list[tuple[str, str, Any]]:
    """The pending entries of a release as plain tuples; anything else is wrong."""
    assert isinstance(released, list), f"{released!r} instead of pending entries"
    assert all(isinstance(one, Pending) for one in released)
    return [(one.owner, one.strategy, one.metadata) for one in released]


async def filled(chat: ChatStateAdapter) -> None:
    """Put something into every part of a chat state."""
    for id in ("t1", "t:2"):
        await chat.subscribe(id)
    for number in range(5):
        await chat.mark_seen(("tg", f"m{9 - number}"), 4)
    await chat.put_thread_state("t1", {"n": 2**60, "f": 1.0, "deep": {"x": [None, {}]}})
    await chat.put_channel_state("t1", {"c": "😀\x00"})
    await chat.lock("k1", "ann", metadata={"why": [1]})
    await chat.lock("k1", "bob", "queue", {"n": 1})
    await chat.lock("k1", "cid", "queue")
    await chat.lock("k2", "ann")


class ChatStateContract(Contract):
    """What is promised of a chat state: on any store, or of an adapter of one's own, the fixture ``chat``."""

    mixin: ClassVar[bool] = True

    @pytest.fixture
    def store(self) -> Store:
        """An opened, empty store that goes by the fixture ``clock``."""
        raise NotImplementedError("give the class a fixture `store` or `chat`, opened and empty")

    @pytest.fixture
    def chat(self, store: Store) -> ChatStateAdapter:
        """The chat state of one bot in the store."""
        return ChatState(store, BOT)

    @pytest.fixture
    def fresh(self, clock: ManualClock) -> ChatStateAdapter:
        """An empty chat state in another store."""
        return ChatState(MemoryStore(clock=clock), "another")

    # ------------------------------------------------------------------------------------- subscriptions

    async def test_nobody_is_subscribed_at_first(self, chat: ChatStateAdapter) -> None:
        """A thread that nobody subscribed to is not subscribed."""
        assert await chat.is_subscribed("t1") is False

    async def test_subscribe(self, chat: ChatStateAdapter) -> None:
        """``subscribe`` makes a thread subscribed, and no other."""
        await chat.subscribe("t1")
        assert await chat.is_subscribed("t1") is True
        assert await chat.is_subscribed("t2") is False

    async def test_subscribe_twice(self, chat: ChatStateAdapter) -> None:
        """``subscribe`` is idempotent: one ``unsubscribe`` ends it."""
        await chat.subscribe("t1")
        await chat.subscribe("t1")
        await chat.unsubscribe("t1")
        assert await chat.is_subscribed("t1") is False

    async def test_unsubscribe_twice(self, chat: ChatStateAdapter) -> None:
        """``unsubscribe`` of what is not subscribed is no error and does nothing."""
        await chat.unsubscribe("t1")
        await chat.unsubscribe("t1")
        assert await chat.is_subscribed("t1") is False
        await chat.subscribe("t1")
        assert await chat.is_subscribed("t1") is True

    async def test_ids_are_any_text(self, chat: ChatStateAdapter) -> None:
        """Ids are any text and never run into each other."""
        for number, id in enumerate(IDS):
            await chat.subscribe(id)
            await chat.put_thread_state(id, {"n": number})
        for number, id in enumerate(IDS):
            assert await chat.is_subscribed(id), id
            assert await chat.thread_state(id) == {"n": number}, id

    async def test_ids_compare_as_text(self, chat: ChatStateAdapter) -> None:
        """``7`` and ``"7"`` are the same id, of threads, channels, messages, locks and owners."""
        await chat.subscribe(7)
        await chat.put_thread_state(7, {"a": 1})
        await chat.put_channel_state("7", {"b": 1})
        await chat.mark_seen(("tg", 7), 10)
        await chat.lock(7, 8)
        assert await chat.is_subscribed("7")
        assert await chat.thread_state("7") == {"a": 1}
        assert await chat.channel_state(7) == {"b": 1}
        assert await chat.is_duplicate(("tg", "7"))
        assert waiting(await chat.release_lock("7", "8")) == []

    # ------------------------------------------------------------------------------------------- the maps

    async def test_a_map_is_empty_at_first(self, chat: ChatStateAdapter) -> None:
        """The state of a thread or channel that was never put is ``{}``."""
        assert await chat.thread_state("x") == {}
        assert await chat.channel_state("x") == {}

    async def test_put_and_get(self, chat: ChatStateAdapter) -> None:
        """What was put is what one gets."""
        await chat.put_thread_state("x", {"a": {"b": [1]}})
        await chat.put_channel_state("y", {"c": None})
        assert await chat.thread_state("x") == {"a": {"b": [1]}}
        assert await chat.channel_state("y") == {"c": None}

    async def test_put_replaces(self, chat: ChatStateAdapter) -> None:
        """``put`` replaces the whole map; ``{}`` empties it."""
        for get, put in (
            (chat.thread_state, chat.put_thread_state),
            (chat.channel_state, chat.put_channel_state),
        ):
            await put("x", {"old": 1, "both": 1})
            await put("x", {"both": 2})
            assert await get("x") == {"both": 2}
            await put("x", {})
            assert await get("x") == {}

    async def test_threads_and_channels_do_not_collide(self, chat: ChatStateAdapter) -> None:
        """A thread and a channel of the same id have each its own map."""
        await chat.put_thread_state("x", {"thread": 1})
        assert await chat.channel_state("x") == {}
        await chat.put_channel_state("x", {"channel": 1})
        assert await chat.thread_state("x") == {"thread": 1}
        await chat.put_thread_state("x", {})
        assert await chat.channel_state("x") == {"channel": 1}

    async def test_update_merges(self, chat: ChatStateAdapter) -> None:
        """``update`` merges, new keys win, and answers the whole map; where there was none it makes one."""
        for get, update in (
            (chat.thread_state, chat.update_thread_state),
            (chat.channel_state, chat.update_channel_state),
        ):
            assert await update("x", {"a": 1, "b": 1}) == {"a": 1, "b": 1}
            assert await update("x", {"b": 2, "c": 3}) == {"a": 1, "b": 2, "c": 3}
            assert await get("x") == {"a": 1, "b": 2, "c": 3}

    async def test_twenty_merges_leave_twenty_keys(self, chat: ChatStateAdapter) -> None:
        """Twenty concurrent ``update`` of one map leave twenty keys."""
        await asyncio.gather(*[chat.update_thread_state("x", {f"k{n}": n}) for n in range(20)])
        await asyncio.gather(*[chat.update_channel_state("x", {f"k{n}": -n}) for n in range(20)])
        assert await chat.thread_state("x") == {f"k{n}": n for n in range(20)}
        assert await chat.channel_state("x") == {f"k{n}": -n for n in range(20)}

    async def test_maps_are_the_callers_own(self, chat: ChatStateAdapter) -> None:
        """Maps that one gives or gets are one's own: changing them changes nothing that is stored."""
        given: dict[str, Any] = {"list": [1]}
        await chat.put_thread_state("x", given)
        got = await chat.thread_state("x")
        updated = await chat.update_thread_state("x", {})
        for one in (given, got, updated):
            one["list"].append(2)
            one["new"] = 1
        assert await chat.thread_state("x") == {"list": [1]}

    async def test_maps_come_back_exactly(self, chat: ChatStateAdapter) -> None:
        """Values in maps come back exactly, types included."""
        expected = {f"v{number}": value for number, value in enumerate(VALUES)}
        await chat.put_thread_state("x", expected)
        assert same(await chat.thread_state("x"), expected)
        assert same(await chat.update_channel_state("x", expected), expected)

    async def test_maps_refuse_what_cannot_be_stored(self, chat: ChatStateAdapter) -> None:
        """What would not come back as it is, is refused, and nothing changes."""
        await chat.put_thread_state("x", {"a": 1})
        for value in UNSTORABLE:
            with refuses(ValueError, TypeError):
                await chat.put_thread_state("x", {"value": value})
            with refuses(ValueError, TypeError):
                await chat.update_thread_state("x", {"value": value})
        assert await chat.thread_state("x") == {"a": 1}

    # -------------------------------------------------------------------------------------- seen messages

    async def test_an_unknown_message_is_new(self, chat: ChatStateAdapter) -> None:
        """A message that was not marked is no duplicate, and asking does not mark it."""
        assert await chat.is_duplicate(("tg", "1")) is False
        assert await chat.is_duplicate(("tg", "1")) is False

    async def test_a_marked_message_is_a_duplicate(self, chat: ChatStateAdapter) -> None:
        """A message that was marked is a duplicate; one of another adapter is not."""
        await chat.mark_seen(("tg", "1"), 10)
        assert await chat.is_duplicate(("tg", "1")) is True
        assert await chat.is_duplicate(("slack", "1")) is False
        assert await chat.is_duplicate(("tg", "2")) is False

    async def test_pairs_do_not_run_together(self, chat: ChatStateAdapter) -> None:
        """What is the adapter and what the message id is never confused."""
        await chat.mark_seen(("a", "b:c"), 10)
        await chat.mark_seen(("", "x"), 10)
        for other in (("a:b", "c"), ("a:b:c", ""), ("", "a:b:c"), ("x", "")):
            assert not await chat.is_duplicate(other)

    async def test_the_oldest_is_forgotten(self, chat: ChatStateAdapter) -> None:
        """The window holds the newest ``limit`` messages and forgets the oldest first."""
        for id in ("z", "b", "y", "a"):
            await chat.mark_seen(("tg", id), 3)
        assert [await chat.is_duplicate(("tg", id)) for id in ("z", "b", "y", "a")] == [
            False,
            True,
            True,
            True,
        ]

    async def test_marking_again_refreshes(self, chat: ChatStateAdapter) -> None:
        """Marking a message again makes it the newest."""
        for id in ("a", "b", "c", "a", "d"):
            await chat.mark_seen(("tg", id), 3)
        assert [await chat.is_duplicate(("tg", id)) for id in "abcd"] == [True, False, True, True]

    async def test_marking_again_evicts_nothing(self, chat: ChatStateAdapter) -> None:
        """Marking a message again never evicts another."""
        for id in "abc":
            await chat.mark_seen(("tg", id), 3)
        for again in "cab":
            await chat.mark_seen(("tg", again), 3)
            assert [await chat.is_duplicate(("tg", id)) for id in "abc"] == [True, True, True]

    async def test_a_smaller_limit_trims_at_once(self, chat: ChatStateAdapter) -> None:
        """A smaller limit trims the window at once, also when a known message is marked."""
        for id in "abcdef":
            await chat.mark_seen(("tg", id), 10)
        await chat.mark_seen(("tg", "f"), 2)
        assert [await chat.is_duplicate(("tg", id)) for id in "abcdef"] == [False] * 4 + [True] * 2

    async def test_a_larger_limit_keeps_more(self, chat: ChatStateAdapter) -> None:
        """The limit is that of the call: a larger one keeps more."""
        for number in range(5):
            await chat.mark_seen(("tg", number), 2)
        for number in range(5, 10):
            await chat.mark_seen(("tg", number), 6)
        assert [await chat.is_duplicate(("tg", n)) for n in range(10)] == [False] * 4 + [True] * 6

    async def test_a_limit_below_one_is_an_error(self, chat: ChatStateAdapter) -> None:
        """A limit below one is an error that changes nothing."""
        await chat.mark_seen(("tg", "a"), 3)
        for limit in (0, -1):
            with refuses(ValueError):
                await chat.mark_seen(("tg", "b"), limit)
            with refuses(ValueError):
                await chat.claim(("tg", "b"), limit)
        assert await chat.is_duplicate(("tg", "a"))
        assert not await chat.is_duplicate(("tg", "b"))

    async def test_claim_says_who_was_first(self, chat: ChatStateAdapter) -> None:
        """``claim`` is true for the first and marks the message; it is false for everybody later."""
        assert await chat.claim(("tg", "a"), 3) is True
        assert await chat.is_duplicate(("tg", "a"))
        assert await chat.claim(("tg", "a"), 3) is False
        await chat.mark_seen(("tg", "b"), 3)
        assert await chat.claim(("tg", "b"), 3) is False

    async def test_claim_keeps_the_window(self, chat: ChatStateAdapter) -> None:
        """``claim`` refreshes and trims like ``mark_seen``."""
        for id in ("a", "b", "c", "a", "d"):
            await chat.claim(("tg", id), 3)
        assert [await chat.is_duplicate(("tg", id)) for id in "abcd"] == [True, False, True, True]

    async def test_one_of_many_claims(self, chat: ChatStateAdapter) -> None:
        """Of many who ``claim`` a message at the same moment one is told that it was the first."""
        assert (await asyncio.gather(*[chat.claim(("tg", "a"), 3) for _ in range(20)])).count(True) == 1

    async def test_many_marks_lose_none(self, chat: ChatStateAdapter) -> None:
        """Messages marked at the same moment are all in the window."""
        await asyncio.gather(*[chat.mark_seen(("tg", n), 100) for n in range(30)])
        assert all([await chat.is_duplicate(("tg", n)) for n in range(30)])

    # ---------------------------------------------------------------------------------------------- locks

    async def test_a_free_lock_is_acquired(self, chat: ChatStateAdapter) -> None:
        """A free lock is acquired, whatever the strategy."""
        assert await chat.lock("a", "ann") == "acquired"
        assert await chat.lock("b", "ann", "queue") == "acquired"
        assert await chat.lock("c", "ann", "debounce", {"m": 1}) == "acquired"
        for key in "abc":
            assert waiting(await chat.release_lock(key, "ann")) == []

    async def test_one_of_many_acquires(self, chat: ChatStateAdapter) -> None:
        """Of many who want a lock at the same moment one gets it."""
        answers = await asyncio.gather(*[chat.lock("k", f"w{n}") for n in range(20)])
        assert sorted(answers) == ["acquired"] + ["busy"] * 19

    async def test_reject_is_busy(self, chat: ChatStateAdapter) -> None:
        """``reject``: a held lock is busy, and nothing is stored; it is the default."""
        await chat.lock("k", "ann")
        assert await chat.lock("k", "bob") == "busy"
        assert await chat.lock("k", "bob", "reject", {"m": 1}) == "busy"
        assert waiting(await chat.release_lock("k", "ann")) == []

    async def test_queue_waits_in_order(self, chat: ChatStateAdapter) -> None:
        """``queue``: appended to what is pending, with its metadata, in order."""
        await chat.lock("k", "ann")
        for n in range(12):
            assert await chat.lock("k", f"w{n}", "queue", {"n": n}) == "queued"
        assert waiting(await chat.release_lock("k", "ann")) == [
            (f"w{n}", "queue", {"n": n}) for n in range(12)
        ]

    async def test_queueing_at_once_loses_none(self, chat: ChatStateAdapter) -> None:
        """All who queue at the same moment are pending afterwards."""
        await chat.lock("k", "ann")
        await asyncio.gather(*[chat.lock("k", f"w{n}", "queue") for n in range(20)])
        pending = waiting(await chat.release_lock("k", "ann"))
        assert sorted(pending) == sorted((f"w{n}", "queue", None) for n in range(20))

    async def test_debounce_replaces_all(self, chat: ChatStateAdapter) -> None:
        """``debounce``: replaces everything that is pending, queued entries too."""
        await chat.lock("k", "ann")
        await chat.lock("k", "bob", "queue")
        await chat.lock("k", "cid", "queue")
        assert await chat.lock("k", "dan", "debounce", [1]) == "debounced"
        assert await chat.lock("k", "eve", "debounce", [2]) == "debounced"
        assert await chat.lock("k", "fay", "queue") == "queued"
        assert waiting(await chat.release_lock("k", "ann")) == [
            ("eve", "debounce", [2]),
            ("fay", "queue", None),
        ]

    async def test_concurrent_is_always_acquired(self, chat: ChatStateAdapter) -> None:
        """``concurrent``: always acquired, free or held, and nothing is stored."""
        assert await chat.lock("k", "ann", "concurrent") == "acquired"
        assert await chat.release_lock("k", "ann") is NOT_OWNER
        assert await chat.lock("k", "bob") == "acquired"
        assert await chat.lock("k", "ann", "concurrent") == "acquired"
        assert await chat.release_lock("k", "ann") is NOT_OWNER
        assert waiting(await chat.release_lock("k", "bob")) == []

    async def test_the_strategy_is_the_callers(self, chat: ChatStateAdapter) -> None:
        """The strategy is that of whoever comes, not that of the holder."""
        await chat.lock("k", "ann", "queue")
        assert await chat.lock("k", "bob") == "busy"
        await chat.lock("l", "ann", "reject")
        assert await chat.lock("l", "bob", "queue") == "queued"

    async def test_a_lock_is_not_reentrant(self, chat: ChatStateAdapter) -> None:
        """The holder itself gets no further than anybody else."""
        await chat.lock("k", "ann")
        assert await chat.lock("k", "ann") == "busy"
        assert await chat.lock("k", "ann", "queue") == "queued"
        assert waiting(await chat.release_lock("k", "ann")) == [("ann", "queue", None)]

    async def test_locks_are_independent(self, chat: ChatStateAdapter) -> None:
        """A lock holds its own key only."""
        await chat.lock("k", "ann")
        assert await chat.lock("l", "bob") == "acquired"
        assert await chat.release_lock("l", "ann") is NOT_OWNER

    async def test_an_unknown_strategy_is_an_error(self, chat: ChatStateAdapter) -> None:
        """An unknown strategy is an error that changes nothing, free or held."""
        with refuses(ValueError):
            await chat.lock("k", "ann", "fifo")  # type: ignore[arg-type]
        assert await chat.lock("k", "bob") == "acquired"
        with refuses(ValueError):
            await chat.lock("k", "ann", "Queue")  # type: ignore[arg-type]
        assert waiting(await chat.release_lock("k", "bob")) == []

    async def test_release_frees(self, chat: ChatStateAdapter) -> None:
        """``release_lock`` frees the lock and takes what is pending away: nobody is handed the lock."""
        await chat.lock("k", "ann")
        await chat.lock("k", "bob", "queue")
        await chat.release_lock("k", "ann")
        assert await chat.release_lock("k", "bob") is NOT_OWNER
        assert await chat.lock("k", "cid") == "acquired"
        assert waiting(await chat.release_lock("k", "cid")) == []

    async def test_only_the_owner_releases(self, chat: ChatStateAdapter) -> None:
        """``release_lock`` by anybody else is ``NOT_OWNER`` and changes nothing."""
        await chat.lock("k", "ann")
        await chat.lock("k", "bob", "queue")
        for other in ("bob", "Ann", "", "ann "):
            assert await chat.release_lock("k", other) is NOT_OWNER
        assert await chat.lock("k", "cid") == "busy"
        assert waiting(await chat.release_lock("k", "ann")) == [("bob", "queue", None)]

    async def test_a_free_lock_has_no_owner(self, chat: ChatStateAdapter) -> None:
        """``release_lock`` of a free lock is ``NOT_OWNER``, the second time too."""
        assert await chat.release_lock("k", "ann") is NOT_OWNER
        await chat.lock("k", "ann")
        await chat.release_lock("k", "ann")
        assert await chat.release_lock("k", "ann") is NOT_OWNER

    async def test_force_release_frees(self, chat: ChatStateAdapter) -> None:
        """``force_release_lock`` frees the lock whoever holds it, with what is pending."""
        await chat.lock("k", "ann")
        await chat.lock("k", "bob", "queue", "m")
        assert waiting(await chat.force_release_lock("k")) == [("bob", "queue", "m")]
        assert await chat.release_lock("k", "ann") is NOT_OWNER
        assert await chat.lock("k", "cid") == "acquired"

    async def test_force_release_of_nothing(self, chat: ChatStateAdapter) -> None:
        """``force_release_lock`` of a free lock is no error."""
        assert waiting(await chat.force_release_lock("k")) == []
        assert await chat.lock("k", "ann") == "acquired"

    async def test_metadata_comes_back_exactly(self, chat: ChatStateAdapter) -> None:
        """Metadata is any JSON value, and comes back exactly."""
        values = [value for value in VALUES if not isinstance(value, str) or len(value) < 1000]
        await chat.lock("k", "ann")
        for number, value in enumerate(values):
            await chat.lock("k", f"w{number}", "queue", value)
        found = [metadata for _, _, metadata in waiting(await chat.release_lock("k", "ann"))]
        assert same(found, values)

    async def test_metadata_that_cannot_be_stored(self, chat: ChatStateAdapter) -> None:
        """Metadata that would not come back is refused, and nothing changes."""
        with refuses(ValueError, TypeError):
            await chat.lock("k", "ann", metadata=object())
        assert await chat.lock("k", "bob") == "acquired"
        with refuses(ValueError, TypeError):
            await chat.lock("k", "ann", "queue", {1, 2})
        assert waiting(await chat.release_lock("k", "bob")) == []

    async def test_a_lock_with_a_ttl_dies(self, chat: ChatStateAdapter, clock: ManualClock) -> None:
        """A lock with a ``ttl`` dies by itself when that is over, and not before; one without lives on."""
        await chat.lock("k", "ann", ttl=10)
        await chat.lock("l", "ann")
        clock.advance(9.75)
        assert await chat.lock("k", "bob") == "busy"
        clock.advance(0.25)
        assert await chat.release_lock("k", "ann") is NOT_OWNER
        assert await chat.lock("k", "bob") == "acquired"
        clock.advance(1_000_000)
        assert await chat.lock("l", "bob") == "busy"

    async def test_a_dead_lock_leaves_its_pending(self, chat: ChatStateAdapter, clock: ManualClock) -> None:
        """What was pending behind a lock that died is returned by the next release."""
        await chat.lock("k", "ann", ttl=10)
        await chat.lock("k", "bob", "queue", {"n": 1})
        clock.advance(10)
        assert await chat.lock("k", "cid") == "acquired"
        await chat.lock("k", "dan", "queue")
        assert waiting(await chat.release_lock("k", "cid")) == [
            ("bob", "queue", {"n": 1}),
            ("dan", "queue", None),
        ]

    async def test_an_impossible_ttl_is_an_error(self, chat: ChatStateAdapter) -> None:
        """A ``ttl`` that is not above zero is an error that changes nothing."""
        for ttl in (0, -1.0, float("nan")):
            with refuses(ValueError):
                await chat.lock("k", "ann", ttl=ttl)
        assert await chat.lock("k", "bob") == "acquired"

    # ------------------------------------------------------------------------------------------ snapshots

    async def test_a_snapshot_of_nothing(self, chat: ChatStateAdapter) -> None:
        """A snapshot of an empty chat state is empty in every part."""
        assert await chat.snapshot() == Snapshot()

    async def test_a_snapshot_holds_everything(self, chat: ChatStateAdapter) -> None:
        """A snapshot holds subscriptions, seen messages in order, maps, locks and what is pending behind
        them.
        """
        await filled(chat)
        taken = await chat.snapshot()
        assert taken.subscriptions == {"t1", "t:2"}
        assert taken.dedupe_order == [("tg", "m8"), ("tg", "m7"), ("tg", "m6"), ("tg", "m5")]
        assert taken.dedupe == set(taken.dedupe_order)
        assert taken.thread_state == {"t1": {"n": 2**60, "f": 1.0, "deep": {"x": [None, {}]}}}
        assert taken.channel_state == {"t1": {"c": "😀\x00"}}
        assert {key: (held.owner, held.metadata) for key, held in taken.locks.items()} == {
            "k1": ("ann", {"why": [1]}),
            "k2": ("ann", None),
        }
        assert {key: waiting(line) for key, line in taken.pending_locks.items()} == {
            "k1": [("bob", "queue", {"n": 1}), ("cid", "queue", None)]
        }

    async def test_a_snapshot_leaves_out_what_is_over(
        self, chat: ChatStateAdapter, clock: ManualClock
    ) -> None:
        """What was ended is in no snapshot: subscriptions, emptied maps, released and dead locks."""
        await filled(chat)
        for id in ("t1", "t:2"):
            await chat.unsubscribe(id)
        await chat.put_thread_state("t1", {})
        await chat.put_channel_state("t1", {})
        await chat.release_lock("k1", "ann")
        await chat.force_release_lock("k2")
        await chat.lock("k3", "ann", ttl=10)
        clock.advance(10)
        taken = await chat.snapshot()
        taken.dedupe, taken.dedupe_order = set(), []
        assert taken == Snapshot()

    async def test_a_snapshot_stands_still(self, chat: ChatStateAdapter) -> None:
        """A snapshot does not change when the chat state does, nor the other way round."""
        await filled(chat)
        taken = await chat.snapshot()
        text = taken.to_json()
        await chat.subscribe("t3")
        await chat.update_thread_state("t1", {"n": 0})
        await chat.force_release_lock("k1")
        assert taken.to_json() == text
        taken.thread_state["t1"]["n"] = 5
        assert (await chat.thread_state("t1"))["n"] == 0

    async def test_restore_into_another_store(self, chat: ChatStateAdapter, fresh: ChatStateAdapter) -> None:
        """A snapshot taken from one store restores into any other, and back."""
        await filled(chat)
        taken = await chat.snapshot()
        await fresh.restore(taken)
        assert await fresh.snapshot() == taken
        await chat.restore(await fresh.snapshot())
        assert await chat.snapshot() == taken

    async def test_restore_replaces_everything(self, chat: ChatStateAdapter, fresh: ChatStateAdapter) -> None:
        """``restore`` replaces everything that was there."""
        await filled(chat)
        await fresh.subscribe("only")
        taken = await fresh.snapshot()
        await chat.restore(taken)
        assert await chat.snapshot() == taken
        await chat.restore(Snapshot())
        assert await chat.snapshot() == Snapshot()

    async def test_a_restored_lock_is_held(self, chat: ChatStateAdapter, fresh: ChatStateAdapter) -> None:
        """A held lock can still be released by its owner, and only by it, after a restore through JSON."""
        await filled(chat)
        await fresh.restore(Snapshot.from_json((await chat.snapshot()).to_json()))
        assert await fresh.lock("k1", "dan") == "busy"
        assert await fresh.release_lock("k1", "bob") is NOT_OWNER
        assert waiting(await fresh.release_lock("k1", "ann")) == [
            ("bob", "queue", {"n": 1}),
            ("cid", "queue", None),
        ]

    async def test_a_restored_lock_dies_in_time(self, chat: ChatStateAdapter, clock: ManualClock) -> None:
        """A lock with a ``ttl`` keeps its end through a snapshot."""
        await chat.lock("k", "ann", ttl=10)
        taken = Snapshot.from_json((await chat.snapshot()).to_json())
        await chat.restore(Snapshot())
        await chat.restore(taken)
        clock.advance(9.75)
        assert await chat.lock("k", "bob") == "busy"
        clock.advance(0.25)
        assert await chat.lock("k", "bob") == "acquired"

    async def test_a_restored_window_keeps_its_order(self, chat: ChatStateAdapter) -> None:
        """After a restore the seen messages are forgotten in the same order as before it."""
        for id in ("z", "b", "y", "a"):
            await chat.mark_seen(("tg", id), 4)
        await chat.restore(await chat.snapshot())
        await chat.mark_seen(("tg", "new"), 3)
        known = [await chat.is_duplicate(("tg", id)) for id in ("z", "b", "y", "a", "new")]
        assert known == [False, False, True, True, True]

    async def test_orphaned_pending_come_with_the_next_release(self, chat: ChatStateAdapter) -> None:
        """Pending entries without a lock, out of a snapshot, are returned by the next release."""
        orphans = Snapshot(pending_locks={"k": [Pending("bob", "queue", 1)], "l": [Pending("cid")]})
        await chat.restore(orphans)
        assert (await chat.snapshot()).pending_locks == orphans.pending_locks
        assert await chat.release_lock("k", "bob") is NOT_OWNER
        assert await chat.lock("k", "ann") == "acquired"
        assert waiting(await chat.release_lock("k", "ann")) == [("bob", "queue", 1)]
        assert waiting(await chat.force_release_lock("l")) == [("cid", "queue", None)]

    async def test_json_is_exact(self, chat: ChatStateAdapter) -> None:
        """A snapshot goes through JSON and comes back exactly."""
        await filled(chat)
        await chat.put_channel_state("v", {f"v{number}": value for number, value in enumerate(VALUES)})
        taken = await chat.snapshot()
        back = Snapshot.from_json(taken.to_json())
        assert back == taken
        assert same(back.channel_state["v"], taken.channel_state["v"])
        assert normalize_snapshot(json.loads(json.dumps(taken.to_dict()))) == taken

    async def test_restore_takes_what_it_finds(self, chat: ChatStateAdapter) -> None:
        """``restore`` takes a plain dict too: wrong parts become empty, numbers become text, pairs may be
        lists.
        """
        loose: Any = {
            "subscriptions": ["a", 7, None, ["b"]],
            "dedupe": [["tg", 1], ("tg", "2"), "tg:3", ["tg"], ["tg", 4, 5], ["tg", 1]],
            "thread_state": {"x": {"a": 1}, "y": [1], 7: {"b": 2}},
            "channel_state": "none",
            "locks": {"k": {"owner": 5}},
            "unknown": 1,
        }
        await chat.restore(loose)
        taken = await chat.snapshot()
        assert taken.subscriptions == {"a", "7"}
        assert taken.dedupe == {("tg", "1"), ("tg", "2")}
        assert taken.thread_state == {"x": {"a": 1}, "7": {"b": 2}}
        assert taken.channel_state == {}
        assert waiting(await chat.release_lock("k", "5")) == []

    async def test_a_missing_order_is_rebuilt(self, chat: ChatStateAdapter) -> None:
        """Where a snapshot has no order of seen messages it is rebuilt, with every message and no other."""
        await chat.restore(Snapshot(dedupe={("tg", "1"), ("tg", "2"), ("tg", "3")}))
        assert sorted((await chat.snapshot()).dedupe_order) == [("tg", "1"), ("tg", "2"), ("tg", "3")]
        other: Any = {"dedupe": [["tg", "9"], ["tg", "8"]], "dedupe_order": [["tg", "8"], ["tg", "5"]]}
        await chat.restore(other)
        assert (await chat.snapshot()).dedupe_order == [("tg", "9"), ("tg", "8")]
