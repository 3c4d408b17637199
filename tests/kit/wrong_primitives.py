"""Wrong stores whose primitives are mistaken: opening, loading, swapping, listing."""

from __future__ import annotations

import asyncio
import itertools

from msgspec.structs import force_setattr, replace

from hitherto import protocol
from hitherto.addresses import Address, decode, encode
from hitherto.errors import DataError
from hitherto.protocol import EMPTY
from hitherto.records import BLANK
from hitherto.stores.base import Store, is_filed
from kit.wrong import Plain, Shared, wrong


@wrong("test_opening_twice_does_nothing")
class OpeningErases(Shared):
    async def open(self):
        self._documents.clear()


@wrong("test_a_turn_goes_on_after_reopening", "test_closing_twice_does_nothing")
class ClosesForGood(Shared):
    closed = False

    async def close(self):
        self.closed = True

    def _put(self, text, document):
        if not self.closed:
            super()._put(text, document)


@wrong("test_a_store_is_a_context")
class EntersAnother(Shared):
    async def __aenter__(self):
        return self.another()


@wrong("test_the_time_is_the_injected_one")
class ItsOwnClock(Shared):
    def __init__(self, *, clock):
        moment = clock()
        super().__init__(clock=lambda: moment)


@wrong("test_another_respects_the_lease")
class ClocksOfTheirOwn(Shared):
    """Every worker goes by its own clock, and that of the second is an hour ahead."""

    def another(self):
        twin = super().another()
        twin.clock = lambda: self.clock() + 3600
        return twin


@wrong("test_data_is_that_of_the_state")
class OneOperationId(Shared):
    def op(self):
        return "op"


@wrong("test_operation_ids_differ")
class FewOperationIds(Shared):
    def op(self):
        self.count = (getattr(self, "count", 0) + 1) % 10
        return f"op-{self.count}"


@wrong("test_what_was_written_outlives_the_store")
class ForgetsWhatWaits(Shared):
    async def close(self):
        for text, document in self._documents.items():
            self._documents[text] = replace(document, inbox=tuple(e for e in document.inbox if e.claimed))


@wrong("test_a_turn_goes_on_after_reopening")
class FencesOnClosing(Shared):
    async def close(self):
        for text, document in list(self._documents.items()):
            self._documents[text] = replace(document, epoch=document.epoch + 1)


@wrong("test_another_sees_what_one_wrote", "test_two_stores_lose_no_update")
class SeesItsOwnOnly(Shared):
    def another(self):
        return type(self)(clock=self.clock)


@wrong("test_another_respects_the_lease")
class LeasesInMemory(Shared):
    """Keeps leases to itself: another object sees none."""

    foreign = False

    def another(self):
        twin = super().another()
        twin.foreign = True
        return twin

    async def accept(self, address, event, overlap, owner, op, terms):
        if self.foreign:
            document = await self.load(address)
            self._put(encode(address), replace(document, lease=None))
        return await super().accept(address, event, overlap, owner, op, terms)


@wrong("test_another_fences")
class EpochsInMemory(Shared):
    """Each object counts epochs by itself."""

    foreign = False

    def another(self):
        twin = super().another()
        twin.foreign = True
        return twin

    async def take_over(self, address, owner, op, terms):
        answer = await super().take_over(address, owner, op, terms)
        if self.foreign and answer.grant is not None:
            document = await self.load(address)
            self._put(encode(address), replace(document, epoch=document.epoch - 1))
        return answer


@wrong("test_one_of_many_is_granted")
class WritesWithoutComparing(Shared):
    """Reads, is interrupted, and writes."""

    async def transact(self, address, change):
        before = await self.load(address)
        after, answer = change(before, self.clock())
        await asyncio.sleep(0)
        if after is not before:
            self._put(encode(address), after)
        return answer

    accept, settle = Store.accept, Store.settle


@wrong("test_load_of_nothing_is_empty")
class NothingHasATime(Shared):
    async def load(self, address):
        document = await super().load(address)
        return replace(document, touched=self.clock()) if document is EMPTY else document


@wrong("test_swap_creates")
class LosesTheSeenOrder(Shared):
    async def load(self, address):
        document = await super().load(address)
        return replace(document, seen=dict(sorted(document.seen.items())))


@wrong("test_a_loaded_document_stands_still", "test_swap_creates")
class LosesDeadLetters(Shared):
    async def swap(self, address, expected_version, document):
        return await super().swap(address, expected_version, replace(document, dead=()))


@wrong("test_swap_replaces")
class Merges(Shared):
    async def swap(self, address, expected_version, document):
        before = await self.load(address)
        if document.record is None:
            document = replace(document, record=before.record)
        return await super().swap(address, expected_version, document)


@wrong("test_versions_move_on")
class VersionsStandStill(Plain):
    async def load(self, address):
        document = await super().load(address)
        return document if document is EMPTY else replace(document, version=1)


@wrong("test_one_of_many_swaps_wins")
class NeverRefuses(Shared):
    async def swap(self, address, expected_version, document):
        self._put(encode(address), document)
        return True


@wrong("test_swap_does_not_create_twice")
class CreatesTwice(Shared):
    async def swap(self, address, expected_version, document):
        if expected_version == 0:
            self._put(encode(address), document)
            return True
        return await super().swap(address, expected_version, document)


@wrong("test_swap_of_what_is_not_there_is_refused")
class CreatesWhatIsExpected(Shared):
    async def swap(self, address, expected_version, document):
        if await self.load(address) is EMPTY:
            self._put(encode(address), document)
            return True
        return await super().swap(address, expected_version, document)


@wrong("test_one_of_many_swaps_wins")
class ComparesThenWrites(Shared):
    async def swap(self, address, expected_version, document):
        same = (await self.load(address)).version == expected_version
        await asyncio.sleep(0)
        if same:
            self._put(encode(address), document)
        return same


@wrong("test_swap_touches_one_address")
class IgnoresRealms(Shared):
    async def load(self, address):
        return await super().load(Address(address.bot, "", address.key))

    async def swap(self, address, expected_version, document):
        return await super().swap(Address(address.bot, "", address.key), expected_version, document)

    async def transact(self, address, change):
        return await super().transact(Address(address.bot, "", address.key), change)


@wrong("test_addresses_that_look_alike_differ")
class PlacesAsPythonSeesThem(Shared):
    """``(1,)``, ``(True,)`` and ``(1.0,)`` are one place to it."""

    def __init__(self, *, clock):
        super().__init__(clock=clock)
        self.first = {}

    async def load(self, address):
        return await super().load(self.first.setdefault(address, address))

    async def swap(self, address, expected_version, document):
        return await super().swap(self.first.setdefault(address, address), expected_version, document)


@wrong("test_a_loaded_document_stands_still", "test_swap_of_an_old_version_is_refused")
class ChangesInPlace(Shared):
    def _put(self, text, document):
        before = self._documents.get(text)
        if before is None:
            super()._put(text, replace(document))
            return
        for name in document.__struct_fields__:
            force_setattr(before, name, getattr(document, name))


@wrong("test_large_documents")
class HalfAMegabyte(Shared):
    async def swap(self, address, expected_version, document):
        inbox = tuple([replace(entry, payload=entry.payload[:65_535]) for entry in document.inbox])
        return await super().swap(address, expected_version, replace(document, inbox=inbox))


@wrong("test_a_record_has_a_limit")
class NoLimit(Shared):
    async def set_data(self, bot, key, data):
        try:
            await super().set_data(bot, key, data)
        except DataError as error:
            if error.path != "data":
                raise


@wrong("test_refusals_name_the_place")
class NowhereInParticular(Shared):
    async def set_data(self, bot, key, data):
        try:
            await super().set_data(bot, key, data)
        except DataError as error:
            raise DataError("no", path="data") from error


@wrong("test_a_bot_has_a_name")
class AnyBot(Shared):
    async def init(self, bot, **options):
        await self.open()


class Lister(Shared):
    """Lists as told by ``lists``."""

    def lists(self, bot, address, document, kind, now):
        return address.bot == bot and is_filed(address, document, kind, now)

    async def scan(self, bot, kind):
        for text, document in list(self._documents.items()):
            address = decode(text)
            if self.lists(bot, address, document, kind, self.clock()):
                yield address


@wrong("test_scan_of_nothing")
class ListsEveryBot(Lister):
    def lists(self, bot, address, document, kind, now):
        return is_filed(address, document, kind, now)


@wrong("test_scan_keeps_bots_apart")
class ListsByPrefix(Lister):
    def lists(self, bot, address, document, kind, now):
        return address.bot.startswith(bot) and is_filed(address, document, kind, now)


@wrong("test_scan_keeps_bots_apart")
class ListsLike(Lister):
    def lists(self, bot, address, document, kind, now):
        alike = len(bot) == len(address.bot) and all(
            a in (b, "_", "%") for a, b in zip(bot, address.bot, strict=True)
        )
        return alike and is_filed(address, document, kind, now)


@wrong("test_scan_all")
class AllMeansRecords(Lister):
    def lists(self, bot, address, document, kind, now):
        return super().lists(bot, address, document, "record" if kind == "all" else kind, now)


@wrong("test_scan_everything")
class EverythingMeansConversations(Lister):
    def lists(self, bot, address, document, kind, now):
        return super().lists(bot, address, document, "all" if kind == "everything" else kind, now)


@wrong("test_scan_record")
class RecordsMeanData(Lister):
    def lists(self, bot, address, document, kind, now):
        empty = kind == "record" and (document.record or BLANK).fields == {}
        return super().lists(bot, address, document, kind, now) and not empty


@wrong("test_scan_pending")
class PendingMeansWaiting(Lister):
    def lists(self, bot, address, document, kind, now):
        waiting = [entry for entry in document.inbox if not entry.claimed]
        return super().lists(bot, address, document, kind, now) and (kind != "pending" or bool(waiting))


@wrong("test_scan_lease")
class LeasesMustLive(Lister):
    def lists(self, bot, address, document, kind, now):
        alive = protocol.is_busy(document, now)
        return super().lists(bot, address, document, kind, now) and (kind != "lease" or alive)


@wrong("test_scan_dead")
class DeadForEver(Lister):
    ever = frozenset()

    def lists(self, bot, address, document, kind, now):
        if document.dead:
            self.ever = self.ever | {address}
        return (kind == "dead" and address in self.ever) or super().lists(bot, address, document, kind, now)


@wrong("test_scan_due_follows_the_lease", "test_scan_due_follows_what_waits")
class DueAtOnce(Lister):
    def lists(self, bot, address, document, kind, now):
        return super().lists(bot, address, document, kind, now + 5 if kind == "due" else now)


@wrong("test_scan_due_follows_the_lease")
class DueByTheFirstDeadline(Lister):
    """The index of what is due is written once and not moved by a renewal."""

    def __init__(self, *, clock):
        super().__init__(clock=clock)
        self.first = {}

    def lists(self, bot, address, document, kind, now):
        if document.lease is not None:
            self.first.setdefault(address, document.lease.deadline)
        if kind == "due" and address in self.first and self.first[address] <= now:
            return True
        return super().lists(bot, address, document, kind, now)


@wrong("test_a_commit_may_give_the_lease_up")
class DueMeansDeadLeases(Lister):
    def lists(self, bot, address, document, kind, now):
        return super().lists(bot, address, document, kind, now) and (
            kind != "due" or document.lease is not None
        )


@wrong("test_scan_due_follows_lone_turns")
class DueForgetsLoneTurns(Lister):
    def lists(self, bot, address, document, kind, now):
        bare = replace(document, inbox=tuple([entry for entry in document.inbox if entry.lone_until is None]))
        return super().lists(bot, address, bare, kind, now)


@wrong("test_scan_due_leaves_out_what_is_at_rest")
class DueForDeadLetters(Lister):
    def lists(self, bot, address, document, kind, now):
        stuck = kind == "due" and bool(document.dead) and address.bot == bot
        return stuck or super().lists(bot, address, document, kind, now)


@wrong("test_scan_gives_the_keys_back")
class KeysWithoutTypes(Shared):
    async def scan(self, bot, kind):
        async for address in super().scan(bot, kind):
            key = address.key
            if isinstance(key, tuple) and key and type(key[-1]) is float and key[-1].is_integer():
                key = (*key[:-1], int(key[-1]))
            yield Address(bot, address.realm, key)


@wrong("test_scan_lists_each_once")
class PagesOverlap(Shared):
    async def scan(self, bot, kind):
        found = [address async for address in super().scan(bot, kind)]
        for start in range(0, len(found), 100):
            for address in found[max(start - 1, 0) : start + 100]:
                yield address


@wrong("test_scan_lists_each_once")
class OnePageOnly(Shared):
    async def scan(self, bot, kind):
        async for address in super().scan(bot, kind):
            yield address
            self.count = getattr(self, "count", 0) + 1
            if self.count % 500 == 0:
                break


@wrong("test_scan_of_a_realm")
class RealmsInAll(Lister):
    def lists(self, bot, address, document, kind, now):
        return super().lists(bot, address, document, kind, now) or (kind == "all" and address.bot == bot)


@wrong("test_scan_stands_changes_meanwhile")
class PagesByOffset(Shared):
    """Pages through a list that moves under it."""

    async def scan(self, bot, kind):
        for offset in itertools.count():
            found = sorted([text for text in self._documents if decode(text).bot == bot])
            if offset >= len(found):
                return
            if is_filed(decode(found[offset]), self._documents[found[offset]], kind, self.clock()):
                yield decode(found[offset])


@wrong("test_a_scan_may_be_left")
class LockedByScans(Shared):
    scans = 0

    async def scan(self, bot, kind):
        self.scans += 1
        async for address in super().scan(bot, kind):
            yield address
        self.scans -= 1

    def _put(self, text, document):
        if self.scans < 10:
            super()._put(text, document)


@wrong("test_due_has_a_limit")
class DueWithoutLimit(Shared):
    async def due(self, bot, limit):
        return [address async for address in self.scan(bot, "due")]


@wrong("test_due_has_a_limit")
class DueByLease(Shared):
    async def due(self, bot, limit):
        return [address async for address in self.scan(bot, "lease")][:limit]


@wrong("test_a_transaction_that_fails_changes_nothing")
class SwallowsErrors(Shared):
    async def transact(self, address, change):
        try:
            return await super().transact(address, change)
        except LookupError:
            return None


@wrong("test_a_transaction_that_fails_changes_nothing")
class OneErrorForAll(Shared):
    """What is done at the same moment as a failing change fails with it."""

    failed = False

    async def transact(self, address, change):
        await asyncio.sleep(0)
        if self.failed:
            raise LookupError("no")
        try:
            return await super().transact(address, change)
        except LookupError:
            self.failed = True
            raise

    async def update_data(self, bot, key, new):
        try:
            return await super().update_data(bot, key, new)
        except LookupError:
            return {}


@wrong("test_expire_goes_round")
class NeverGoesRound(Plain):
    async def expire(self, bot, limit, terms):
        self._rounds.clear()
        return await super().expire(bot, limit, terms)


@wrong("test_expire_is_of_one_bot")
class TidiesEveryBot(Plain):
    async def expire(self, bot, limit, terms):
        for other in {decode(text).bot for text in list(self._documents)}:
            await super().expire(other, limit, terms)
        return 0


@wrong("test_two_stores_lose_no_update")
class ReadsTwice(Shared):
    """Lets others in between reading and writing a record, but compares nothing."""

    async def write(self, address, change):
        stored = change(await self.read(address))
        await asyncio.sleep(0)
        return await super().write(address, lambda _: stored)
