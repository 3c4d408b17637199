"""Wrong chat states: one method each that is mistaken."""

from __future__ import annotations

import asyncio
import json

from hitherto import codec
from hitherto.chatstate import NOT_OWNER, ChatState, Held, Pending, Snapshot
from hitherto.records import Record
from kit.wrong import wrong_chat

# ----------------------------------------------------------------------------------------- subscriptions


@wrong_chat(
    "test_nobody_is_subscribed_at_first", "test_subscribe", "test_subscribe_twice", "test_unsubscribe_twice"
)
class SubscribedToAll(ChatState):
    async def is_subscribed(self, id):
        return True


@wrong_chat("test_subscribe")
class SubscribesToAll(ChatState):
    async def subscribe(self, id):
        await super().subscribe("any")

    async def is_subscribed(self, id):
        return await super().is_subscribed("any")


@wrong_chat("test_subscribe_twice")
class CountsSubscriptions(ChatState):
    async def subscribe(self, id):
        await self.update_thread_state(f"n{id}", {"n": (await self.thread_state(f"n{id}")).get("n", 0) + 1})

    async def unsubscribe(self, id):
        await self.update_thread_state(f"n{id}", {"n": (await self.thread_state(f"n{id}")).get("n", 0) - 1})

    async def is_subscribed(self, id):
        return (await self.thread_state(f"n{id}")).get("n", 0) > 0


@wrong_chat("test_unsubscribe_twice")
class UnsubscribesForGood(CountsSubscriptions):
    async def subscribe(self, id):
        if not await self.is_subscribed(id):
            await super().subscribe(id)


@wrong_chat("test_ids_are_any_text")
class IdsTrimmed(ChatState):
    def _at(self, realm, id=None):
        return super()._at(realm, id.strip().strip("\x00") if isinstance(id, str) else id)


@wrong_chat("test_ids_compare_as_text")
class IdsByType(ChatState):
    def _at(self, realm, id=None):
        return super()._at(realm, f"#{id}" if isinstance(id, int) else id)


# ------------------------------------------------------------------------------------------------- maps


@wrong_chat("test_a_map_is_empty_at_first", "test_threads_and_channels_do_not_collide")
class UnsetIsNone(ChatState):
    async def _map(self, realm, id):
        return await super()._map(realm, id) or None


@wrong_chat("test_put_and_get")
class PutsNothingInChannels(ChatState):
    async def put_channel_state(self, id, map):
        codec.encode(map)


@wrong_chat("test_put_replaces")
class PutMerges(ChatState):
    async def _put_map(self, realm, id, map):
        await self._update_map(realm, id, map)


@wrong_chat("test_threads_and_channels_do_not_collide")
class ThreadsAreChannels(ChatState):
    def _at(self, realm, id=None):
        return super()._at("thread" if realm == "channel" else realm, id)


@wrong_chat("test_update_merges")
class MapsAreReplaced(ChatState):
    async def _update_map(self, realm, id, new):
        await self._put_map(realm, id, new)
        return await self._map(realm, id)


@wrong_chat("test_twenty_merges_leave_twenty_keys")
class ReadsThenPuts(ChatState):
    async def _update_map(self, realm, id, new):
        map = {**await self._map(realm, id), **new}
        await asyncio.sleep(0)
        await self._put_map(realm, id, map)
        return map


@wrong_chat("test_maps_are_the_callers_own")
class SharesMaps(ChatState):
    """Keeps the caller's objects."""

    def __init__(self, store, bot):
        super().__init__(store, bot)
        self.maps = {}

    async def _put_map(self, realm, id, map):
        await super()._put_map(realm, id, map)
        self.maps[realm, id] = map

    async def _map(self, realm, id):
        return self.maps.get((realm, id)) or await super()._map(realm, id)


@wrong_chat("test_maps_come_back_exactly")
class MapsInDoubles(ChatState):
    async def _map(self, realm, id):
        return json.loads(json.dumps(await super()._map(realm, id)), parse_int=float)

    async def _update_map(self, realm, id, new):
        return json.loads(json.dumps(await super()._update_map(realm, id, new)), parse_int=float)


@wrong_chat("test_maps_refuse_what_cannot_be_stored")
class MapsOfAnything(ChatState):
    async def _put_map(self, realm, id, map):
        try:
            await super()._put_map(realm, id, map)
        except ValueError:
            await super()._put_map(realm, id, {"value": "?"})


# ----------------------------------------------------------------------------------------- seen messages


@wrong_chat("test_an_unknown_message_is_new")
class AskingMarks(ChatState):
    async def is_duplicate(self, key):
        return not await super().claim(key)


@wrong_chat("test_a_marked_message_is_a_duplicate")
class AdaptersIgnored(ChatState):
    async def is_duplicate(self, key):
        return await super().is_duplicate(("any", key[1]))

    async def claim(self, key, limit=1000):
        return await super().claim(("any", key[1]), limit)


@wrong_chat("test_pairs_do_not_run_together")
class PairsJoined(ChatState):
    async def is_duplicate(self, key):
        return await super().is_duplicate(("any", f"{key[0]}:{key[1]}"))

    async def claim(self, key, limit=1000):
        return await super().claim(("any", f"{key[0]}:{key[1]}"), limit)


@wrong_chat("test_a_limit_below_one_is_an_error")
class ForgetsTheNewest(ChatState):
    async def claim(self, key, limit=1000):
        taken = await self.snapshot()
        if len(taken.dedupe_order) >= limit and tuple(map(str, key)) not in taken.dedupe:
            taken.dedupe_order = [*taken.dedupe_order[1:], tuple(map(str, key))][::-1]
            taken.dedupe = set(taken.dedupe_order)
            await self.restore(taken)
            return True
        return await super().claim(key, limit)


@wrong_chat("test_the_oldest_is_forgotten")
class WindowOfOneMore(ChatState):
    async def claim(self, key, limit=1000):
        return await super().claim(key, limit + 1 if limit > 0 else limit)


@wrong_chat("test_marking_again_refreshes")
class NeverRefreshes(ChatState):
    async def claim(self, key, limit=1000):
        if limit > 0 and await self.is_duplicate(key):
            return False
        return await super().claim(key, limit)


@wrong_chat("test_a_smaller_limit_trims_at_once", "test_marking_again_evicts_nothing")
class MarkingAgainEvicts(ChatState):
    async def claim(self, key, limit=1000):
        known = limit > 0 and await self.is_duplicate(key)
        await super().claim(key, max(limit - 1, 1) if known else limit)
        return not known


@wrong_chat("test_a_smaller_limit_trims_at_once")
class WindowsNeverShrink(ChatState):
    largest = 1

    async def claim(self, key, limit=1000):
        self.largest = max(self.largest, limit)
        return await super().claim(key, self.largest if limit > 0 else limit)


@wrong_chat("test_a_larger_limit_keeps_more")
class TheFirstLimitStays(ChatState):
    first = None

    async def claim(self, key, limit=1000):
        self.first = self.first or limit
        return await super().claim(key, min(self.first, limit))


@wrong_chat("test_a_limit_below_one_is_an_error")
class AnyLimit(ChatState):
    async def claim(self, key, limit=1000):
        return await super().claim(key, max(limit, 1))


@wrong_chat("test_claim_says_who_was_first")
class ClaimsForEverybody(ChatState):
    async def claim(self, key, limit=1000):
        await super().claim(key, limit)
        return True


@wrong_chat("test_claim_keeps_the_window")
class ClaimDoesNotRefresh(ChatState):
    async def mark_seen(self, key, limit=1000):
        await super().claim(key, limit)

    async def claim(self, key, limit=1000):
        if limit > 0 and await self.is_duplicate(key):
            return False
        return await super().claim(key, limit)


@wrong_chat("test_one_of_many_claims")
class LooksThenClaims(ChatState):
    async def claim(self, key, limit=1000):
        known = await self.is_duplicate(key)
        await asyncio.sleep(0)
        await super().claim(key, limit)
        return not known


@wrong_chat("test_many_marks_lose_none")
class LosesMarks(ChatState):
    async def claim(self, key, limit=1000):
        taken = await self.snapshot()
        await asyncio.sleep(0)
        await self.restore(taken)
        return await super().claim(key, limit)


# ------------------------------------------------------------------------------------------------- locks


@wrong_chat("test_a_free_lock_is_acquired")
class QueuesWhatIsFree(ChatState):
    async def lock(self, key, owner, strategy="reject", metadata=None, ttl=None):
        answer = await super().lock(key, owner, strategy, metadata, ttl)
        return "queued" if answer == "acquired" and strategy == "queue" else answer


@wrong_chat("test_one_of_many_acquires")
class LooksThenLocks(ChatState):
    async def lock(self, key, owner, strategy="reject", metadata=None, ttl=None):
        free = str(key) not in (await self.snapshot()).locks
        await asyncio.sleep(0)
        answer = await super().lock(key, owner, strategy, metadata, ttl)
        return "acquired" if free and strategy == "reject" and isinstance(owner, str) else answer


@wrong_chat("test_reject_is_busy")
class BusyWaits(ChatState):
    async def lock(self, key, owner, strategy="reject", metadata=None, ttl=None):
        answer = await super().lock(key, owner, strategy, metadata, ttl)
        if answer == "busy":
            await super().lock(key, owner, "queue", metadata, ttl)
        return answer


class Releasing(ChatState):
    """Releases with the pending entries as ``turned`` makes them."""

    def turned(self, pending):
        return pending

    async def release_lock(self, key, owner):
        released = await super().release_lock(key, owner)
        return released if released is NOT_OWNER else self.turned(released)

    async def force_release_lock(self, key):
        return self.turned(await super().force_release_lock(key))


@wrong_chat("test_debounce_replaces_all")
class LastInFirstOut(Releasing):
    def turned(self, pending):
        return pending[::-1]


@wrong_chat("test_queue_waits_in_order")
class SortedByOwner(Releasing):
    def turned(self, pending):
        return sorted(pending, key=lambda one: one.owner)


@wrong_chat("test_metadata_comes_back_exactly")
class MetadataInDoubles(Releasing):
    def turned(self, pending):
        as_double = [json.loads(json.dumps(one.metadata), parse_int=float) for one in pending]
        return [Pending(one.owner, one.strategy, m) for one, m in zip(pending, as_double, strict=True)]


@wrong_chat("test_debounce_replaces_all")
class HandsOutOnlyTheFirst(Releasing):
    def turned(self, pending):
        return pending[:1]


@wrong_chat("test_queueing_at_once_loses_none")
class QueuesInTwoSteps(ChatState):
    async def lock(self, key, owner, strategy="reject", metadata=None, ttl=None):
        before = (await self.snapshot()).pending_locks.get(str(key), [])
        await asyncio.sleep(0)
        answer = await super().lock(key, owner, strategy, metadata, ttl)
        if answer == "queued":
            after = await self.snapshot()
            after.pending_locks[str(key)] = [*before, Pending(str(owner), strategy, metadata)]
            await self.restore(after)
        return answer


@wrong_chat("test_debounce_replaces_all")
class DebounceQueues(ChatState):
    async def lock(self, key, owner, strategy="reject", metadata=None, ttl=None):
        if strategy != "debounce":
            return await super().lock(key, owner, strategy, metadata, ttl)
        taken = await self.snapshot()
        answer = await super().lock(key, owner, strategy, metadata, ttl)
        if answer == "debounced" and taken.pending_locks.get(key):
            after = await self.snapshot()
            after.pending_locks[key] = [*taken.pending_locks[key], *after.pending_locks[key]]
            await self.restore(after)
        return answer


@wrong_chat("test_concurrent_is_always_acquired")
class ConcurrentHolds(ChatState):
    async def lock(self, key, owner, strategy="reject", metadata=None, ttl=None):
        if strategy == "concurrent":
            await super().lock(key, owner, "reject", metadata, ttl)
            return "acquired"
        return await super().lock(key, owner, strategy, metadata, ttl)


@wrong_chat("test_the_strategy_is_the_callers")
class StrategyOfTheHolder(ChatState):
    def __init__(self, store, bot):
        super().__init__(store, bot)
        self.first = {}

    async def lock(self, key, owner, strategy="reject", metadata=None, ttl=None):
        if strategy not in ("reject", "queue") or owner != "bob":
            self.first.setdefault(key, strategy)
            return await super().lock(key, owner, strategy, metadata, ttl)
        return await super().lock(key, owner, self.first.get(key, strategy), metadata, ttl)


@wrong_chat("test_a_lock_is_not_reentrant")
class Reentrant(ChatState):
    async def lock(self, key, owner, strategy="reject", metadata=None, ttl=None):
        held = (await self.snapshot()).locks.get(str(key))
        if held is not None and held.owner == str(owner) and strategy == "reject":
            return "acquired"
        return await super().lock(key, owner, strategy, metadata, ttl)


@wrong_chat("test_a_free_lock_is_acquired")
class OneLock(ChatState):
    def _at(self, realm, id=None):
        return super()._at(realm, "one" if realm == "lock" else id)


@wrong_chat("test_an_unknown_strategy_is_an_error")
class UnknownStrategiesReject(ChatState):
    async def lock(self, key, owner, strategy="reject", metadata=None, ttl=None):
        known = strategy if strategy in ("queue", "debounce", "concurrent") else "reject"
        return await super().lock(key, owner, known, metadata, ttl)


@wrong_chat("test_an_impossible_ttl_is_an_error")
class StrategiesCheckedTooLate(ChatState):
    """Takes the lock, and then looks at the strategy and the ttl."""

    async def lock(self, key, owner, strategy="reject", metadata=None, ttl=None):
        try:
            return await super().lock(key, owner, strategy, metadata, ttl)
        except ValueError:
            await super().lock(key, owner, "reject")
            raise


@wrong_chat("test_release_frees")
class HandsTheLockOver(ChatState):
    async def release_lock(self, key, owner):
        released = await super().release_lock(key, owner)
        if released is not NOT_OWNER and released:
            await super().lock(key, released[0].owner)
        return released


@wrong_chat("test_locks_are_independent")
class AnybodyReleases(ChatState):
    async def release_lock(self, key, owner):
        held = (await self.snapshot()).locks.get(str(key))
        return await super().release_lock(key, owner if held is None else held.owner)


@wrong_chat("test_only_the_owner_releases")
class NotOwnerTakesThePending(ChatState):
    async def release_lock(self, key, owner):
        released = await super().release_lock(key, owner)
        if released is NOT_OWNER:
            taken = await self.snapshot()
            taken.pending_locks.pop(str(key), None)
            await self.restore(taken)
        return released


@wrong_chat("test_a_free_lock_has_no_owner")
class FreeIsReleased(ChatState):
    async def release_lock(self, key, owner):
        free = str(key) not in (await self.snapshot()).locks
        return [] if free else await super().release_lock(key, owner)


@wrong_chat("test_force_release_frees")
class ForcingKeepsTheHolder(ChatState):
    async def force_release_lock(self, key):
        held = (await self.snapshot()).locks.get(str(key))
        pending = await super().force_release_lock(key)
        if held is not None:
            await super().lock(key, held.owner)
        return pending


@wrong_chat("test_force_release_of_nothing")
class ForcingNothingIsNotOwner(ChatState):
    async def force_release_lock(self, key):
        free = str(key) not in (await self.snapshot()).locks
        return NOT_OWNER if free else await super().force_release_lock(key)


@wrong_chat("test_metadata_that_cannot_be_stored")
class AnyMetadata(ChatState):
    async def lock(self, key, owner, strategy="reject", metadata=None, ttl=None):
        try:
            return await super().lock(key, owner, strategy, metadata, ttl)
        except ValueError:
            if strategy == "queue" or metadata is not None:
                return await super().lock(key, owner, strategy, None, ttl)
            raise


@wrong_chat("test_a_lock_with_a_ttl_dies")
class LocksLiveForEver(ChatState):
    async def lock(self, key, owner, strategy="reject", metadata=None, ttl=None):
        answer = await super().lock(key, owner, strategy, metadata, ttl)
        if answer == "acquired" and ttl is not None and ttl > 0:
            taken = await self.snapshot()
            taken.locks[str(key)] = Held(str(owner), metadata)
            await self.restore(taken)
        return answer


@wrong_chat("test_a_dead_lock_leaves_its_pending")
class DeadLocksLoseThePending(ChatState):
    async def lock(self, key, owner, strategy="reject", metadata=None, ttl=None):
        taken = await self.snapshot()
        if str(key) not in taken.locks and str(key) in taken.pending_locks and strategy != "concurrent":
            await super().force_release_lock(key)
        return await super().lock(key, owner, strategy, metadata, ttl)


@wrong_chat("test_an_impossible_ttl_is_an_error")
class AnyTtl(ChatState):
    async def lock(self, key, owner, strategy="reject", metadata=None, ttl=None):
        sane = ttl if ttl is None or ttl > 0 else None
        return await super().lock(key, owner, strategy, metadata, sane)


# --------------------------------------------------------------------------------------------- snapshots


class Taking(ChatState):
    """Takes snapshots as ``turned`` makes them."""

    def turned(self, taken):
        return taken

    async def snapshot(self):
        return self.turned(await super().snapshot())


@wrong_chat("test_a_snapshot_of_nothing")
class NothingIsSomething(Taking):
    def turned(self, taken):
        taken.locks.setdefault("k0", Held("nobody"))
        return taken


@wrong_chat("test_a_missing_order_is_rebuilt")
class OrderByName(Taking):
    def turned(self, taken):
        taken.dedupe_order.sort()
        return taken


@wrong_chat("test_a_snapshot_holds_everything")
class SnapshotsWithoutMetadata(Taking):
    def turned(self, taken):
        taken.locks = {key: Held(held.owner, None, held.until) for key, held in taken.locks.items()}
        return taken


@wrong_chat("test_a_snapshot_leaves_out_what_is_over")
class EndedIsKept(ChatState):
    async def unsubscribe(self, id):
        await super().unsubscribe(id)
        self.ended = {*getattr(self, "ended", ()), str(id)}

    async def snapshot(self):
        taken = await super().snapshot()
        taken.subscriptions |= getattr(self, "ended", set())
        return taken


@wrong_chat("test_a_snapshot_stands_still")
class OneSnapshot(ChatState):
    """Gives the same object again and again, brought up to date."""

    taken = None

    async def snapshot(self):
        newest = await super().snapshot()
        if self.taken is None:
            self.taken = newest
        return self.taken

    async def _step(self, address, change):
        answer = await super()._step(address, change)
        if self.taken is not None:
            newest = await super().snapshot()
            for name in newest.__struct_fields__:
                setattr(self.taken, name, getattr(newest, name))
        return answer


@wrong_chat("test_restore_into_another_store")
class RestoresSubscriptionsOnly(ChatState):
    async def restore(self, snapshot):
        await super().restore(Snapshot(subscriptions=set(getattr(snapshot, "subscriptions", ()))))


@wrong_chat("test_restore_replaces_everything")
class RestoreAdds(ChatState):
    async def restore(self, snapshot):
        before = await self.snapshot()
        if isinstance(snapshot, Snapshot):
            after = Snapshot(**{name: getattr(snapshot, name) for name in snapshot.__struct_fields__})
            after.subscriptions = after.subscriptions | before.subscriptions
            await super().restore(after)
        else:
            await super().restore(snapshot)


@wrong_chat("test_a_restored_lock_is_held")
class SnapshotsWithoutOwners(Taking):
    def turned(self, taken):
        taken.locks = {key: Held("restored", held.metadata, held.until) for key, held in taken.locks.items()}
        return taken


@wrong_chat("test_a_restored_lock_dies_in_time")
class SnapshotsWithoutEnd(Taking):
    def turned(self, taken):
        taken.locks = {key: Held(held.owner, held.metadata) for key, held in taken.locks.items()}
        return taken


@wrong_chat("test_a_restored_window_keeps_its_order", "test_restore_into_another_store")
class RestoresUnordered(ChatState):
    async def restore(self, snapshot):
        if isinstance(snapshot, Snapshot):
            snapshot.dedupe_order = sorted(snapshot.dedupe_order)
        await super().restore(snapshot)


@wrong_chat("test_orphaned_pending_come_with_the_next_release")
class OrphansAreLost(ChatState):
    async def restore(self, snapshot):
        if isinstance(snapshot, Snapshot):
            held = {key: line for key, line in snapshot.pending_locks.items() if key in snapshot.locks}
            snapshot.pending_locks = held
        await super().restore(snapshot)


@wrong_chat("test_json_is_exact")
class SnapshotsInDoubles(Taking):
    def turned(self, taken):
        maps = json.loads(json.dumps(taken.channel_state), parse_int=float)
        taken.channel_state = {key: dict(map, tuple=()) for key, map in maps.items()}
        return taken


@wrong_chat("test_restore_takes_what_it_finds")
class RestoresSnapshotsOnly(ChatState):
    async def restore(self, snapshot):
        await super().restore(snapshot if isinstance(snapshot, Snapshot) else Snapshot())


@wrong_chat("test_a_missing_order_is_rebuilt")
class NoOrderNoWindow(ChatState):
    async def restore(self, snapshot):
        if isinstance(snapshot, Snapshot):
            snapshot.dedupe = set(snapshot.dedupe_order)
        await super().restore(snapshot)


# ------------------------------------------------------------------------------ on a store of this library


@wrong_chat("test_bots_have_their_own_chat_state")
class OneForAllBots(ChatState):
    """Restores what is there for every bot."""

    async def restore(self, snapshot):
        await super().restore(snapshot)
        await ChatState(self.store, "another").restore(snapshot)

    async def lock(self, key, owner, strategy="reject", metadata=None, ttl=None):
        await ChatState(self.store, "another").lock(key, owner, strategy, metadata, ttl)
        return await super().lock(key, owner, strategy, metadata, ttl)


@wrong_chat("test_conversations_are_not_touched")
class RestoringClearsTheBot(ChatState):
    async def restore(self, snapshot):
        await super().restore(snapshot)
        async for address in self.store.scan(self.bot, "all"):
            await self.store.clear(self.bot, address.key)


@wrong_chat("test_what_is_over_leaves_nothing_to_list")
class ReleasedIsListed(ChatState):
    async def restore(self, snapshot):
        await super().restore(snapshot)
        if snapshot == Snapshot():
            await super().subscribe("left over")

    async def snapshot(self):
        taken = await super().snapshot()
        taken.subscriptions.discard("left over")
        return taken


assert Record
