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


@wrong()
class OpeningErases(Shared):
    async def open(self):
        self._documents.clear()


@wrong()
class ClosesForGood(Shared):
    closed = False

    async def close(self):
        self.closed = True

    def _put(self, text, document):
        if not self.closed:
            super()._put(text, document)


@wrong()
class EntersAnother(Shared):
    async def __aenter__(self):
        return self.another()


@wrong()
class ItsOwnClock(Shared):
    def __init__(self, *, clock):
        moment = clock()
        super().__init__(clock=lambda: moment)


@wrong()
class OneOperationId(Shared):
    def op(self):
        return "op"


@wrong()
class FewOperationIds(Shared):
    def op(self):
        self.count = (getattr(self, "count", 0) + 1) % 10
        return f"op-{self.count}"


@wrong()
class ForgetsWhatWaits(Shared):
    async def close(self):
        for text, document in self._documents.items():
            self._documents[text] = replace(document, inbox=tuple(e for e in document.inbox if e.claimed))


@wrong()
class FencesOnClosing(Shared):
    async def close(self):
        for text, document in list(self._documents.items()):
            self._documents[text] = replace(document, epoch=document.epoch + 1)


@wrong()
class SeesItsOwnOnly(Shared):
    def another(self):
        return type(self)(clock=self.clock)


@wrong()
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


@wrong()
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


@wrong()
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


@wrong()
class NothingHasATime(Shared):
    async def load(self, address):
        document = await super().load(address)
        return replace(document, touched=self.clock()) if document is EMPTY else document


@wrong()
class LosesTheSeenOrder(Shared):
    async def load(self, address):
        document = await super().load(address)
        return replace(document, seen=dict(sorted(document.seen.items())))


@wrong()
class LosesDeadLetters(Shared):
    async def swap(self, address, expected_version, document):
        return await super().swap(address, expected_version, replace(document, dead=()))


@wrong()
class Merges(Shared):
    async def swap(self, address, expected_version, document):
        before = await self.load(address)
        if document.record is None:
            document = replace(document, record=before.record)
        return await super().swap(address, expected_version, document)


@wrong()
class VersionsStandStill(Plain):
    async def load(self, address):
        document = await super().load(address)
        return document if document is EMPTY else replace(document, version=1)


@wrong()
class NeverRefuses(Shared):
    async def swap(self, address, expected_version, document):
        self._put(encode(address), document)
        return True


@wrong()
class CreatesTwice(Shared):
    async def swap(self, address, expected_version, document):
        if expected_version == 0:
            self._put(encode(address), document)
            return True
        return await super().swap(address, expected_version, document)


@wrong()
class CreatesWhatIsExpected(Shared):
    async def swap(self, address, expected_version, document):
        if await self.load(address) is EMPTY:
            self._put(encode(address), document)
            return True
        return await super().swap(address, expected_version, document)


@wrong()
class ComparesThenWrites(Shared):
    async def swap(self, address, expected_version, document):
        same = (await self.load(address)).version == expected_version
        await asyncio.sleep(0)
        if same:
            self._put(encode(address), document)
        return same


@wrong()
class IgnoresRealms(Shared):
    async def load(self, address):
        return await super().load(Address(address.bot, "", address.key))

    async def swap(self, address, expected_version, document):
        return await super().swap(Address(address.bot, "", address.key), expected_version, document)

    async def transact(self, address, change):
        return await super().transact(Address(address.bot, "", address.key), change)


@wrong()
class PlacesAsPythonSeesThem(Shared):
    """``(1,)``, ``(True,)`` and ``(1.0,)`` are one place to it."""

    def __init__(self, *, clock):
        super().__init__(clock=clock)
        self.first = {}

    async def load(self, address):
        return await super().load(self.first.setdefault(address, address))

    async def swap(self, address, expected_version, document):
        return await super().swap(self.first.setdefault(address, address), expected_version, document)


@wrong()
class ChangesInPlace(Shared):
    def _put(self, text, document):
        before = self._documents.get(text)
        if before is None:
            super()._put(text, replace(document))
            return
        for name in document.__struct_fields__:
            force_setattr(before, name, getattr(document, name))


@wrong()
class HalfAMegabyte(Shared):
    async def swap(self, address, expected_version, document):
        inbox = tuple([replace(entry, payload=entry.payload[:65_535]) for entry in document.inbox])
        return await super().swap(address, expected_version, replace(document, inbox=inbox))


@wrong()
class NoLimit(Shared):
    async def set_data(self, bot, key, data):
        try:
            await super().set_data(bot, key, data)
        except DataError as error:
            if error.path != "data":
                raise


@wrong()
class NowhereInParticular(Shared):
    async def set_data(self, bot, key, data):
        try:
            await super().set_data(bot, key, data)
        except DataError as error:
            raise DataError("no", path="data") from error


@wrong()
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


@wrong()
class ListsEveryBot(Lister):
    def lists(self, bot, address, document, kind, now):
        return is_filed(address, document, kind, now)


@wrong()
class ListsByPrefix(Lister):
    def lists(self, bot, address, document, kind, now):
        return address.bot.startswith(bot) and is_filed(address, document, kind, now)


@wrong()
class ListsLike(Lister):
    def lists(self, bot, address, document, kind, now):
        alike = len(bot) == len(address.bot) and all(
            a in (b, "_", "%") for a, b in zip(bot, address.bot, strict=True)
        )
        return alike and is_filed(address, document, kind, now)


@wrong()
class AllMeansRecords(Lister):
    def lists(self, bot, address, document, kind, now):
        return super().lists(bot, address, document, "record" if kind == "all" else kind, now)


@wrong()
class RecordsMeanData(Lister):
    def lists(self, bot, address, document, kind, now):
        empty = kind == "record" and (document.record or BLANK).fields == {}
        return super().lists(bot, address, document, kind, now) and not empty


@wrong()
class PendingMeansWaiting(Lister):
    def lists(self, bot, address, document, kind, now):
        waiting = [entry for entry in document.inbox if not entry.claimed]
        return super().lists(bot, address, document, kind, now) and (kind != "pending" or bool(waiting))


@wrong()
class LeasesMustLive(Lister):
    def lists(self, bot, address, document, kind, now):
        alive = protocol.is_busy(document, now)
        return super().lists(bot, address, document, kind, now) and (kind != "lease" or alive)


@wrong()
class DeadForEver(Lister):
    ever = frozenset()

    def lists(self, bot, address, document, kind, now):
        if document.dead:
            self.ever = self.ever | {address}
        return (kind == "dead" and address in self.ever) or super().lists(bot, address, document, kind, now)


@wrong()
class DueAtOnce(Lister):
    def lists(self, bot, address, document, kind, now):
        return super().lists(bot, address, document, kind, now + 5 if kind == "due" else now)


@wrong()
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


@wrong()
class DueMeansDeadLeases(Lister):
    def lists(self, bot, address, document, kind, now):
        return super().lists(bot, address, document, kind, now) and (
            kind != "due" or document.lease is not None
        )


@wrong()
class DueForgetsLoneTurns(Lister):
    def lists(self, bot, address, document, kind, now):
        bare = replace(document, inbox=tuple([entry for entry in document.inbox if entry.lone_until is None]))
        return super().lists(bot, address, bare, kind, now)


@wrong()
class DueForDeadLetters(Lister):
    def lists(self, bot, address, document, kind, now):
        stuck = kind == "due" and bool(document.dead) and address.bot == bot
        return stuck or super().lists(bot, address, document, kind, now)


@wrong()
class KeysWithoutTypes(Shared):
    async def scan(self, bot, kind):
        async for address in super().scan(bot, kind):
            key = address.key
            if isinstance(key, tuple) and key and type(key[-1]) is float and key[-1].is_integer():
                key = (*key[:-1], int(key[-1]))
            yield Address(bot, address.realm, key)


@wrong()
class PagesOverlap(Shared):
    async def scan(self, bot, kind):
        found = [address async for address in super().scan(bot, kind)]
        for start in range(0, len(found), 100):
            for address in found[max(start - 1, 0) : start + 100]:
                yield address


@wrong()
class OnePageOnly(Shared):
    async def scan(self, bot, kind):
        async for address in super().scan(bot, kind):
            yield address
            self.count = getattr(self, "count", 0) + 1
            if self.count % 500 == 0:
                break


@wrong()
class RealmsInAll(Lister):
    def lists(self, bot, address, document, kind, now):
        return super().lists(bot, address, document, kind, now) or (kind == "all" and address.bot == bot)


@wrong()
class PagesByOffset(Shared):
    """Pages through a list that moves under it."""

    async def scan(self, bot, kind):
        for offset in itertools.count():
            found = sorted([text for text in self._documents if decode(text).bot == bot])
            if offset >= len(found):
                return
            if is_filed(decode(found[offset]), self._documents[found[offset]], kind, self.clock()):
                yield decode(found[offset])


@wrong()
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


@wrong()
class DueWithoutLimit(Shared):
    async def due(self, bot, limit):
        return [address async for address in self.scan(bot, "due")]


@wrong()
class DueByLease(Shared):
    async def due(self, bot, limit):
        return [address async for address in self.scan(bot, "lease")][:limit]


@wrong()
class SwallowsErrors(Shared):
    async def transact(self, address, change):
        try:
            return await super().transact(address, change)
        except LookupError:
            return None


@wrong()
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


@wrong()
class NeverGoesRound(Plain):
    async def expire(self, bot, limit, terms):
        self._rounds.clear()
        return await super().expire(bot, limit, terms)


@wrong()
class TidiesEveryBot(Plain):
    async def expire(self, bot, limit, terms):
        for other in {decode(text).bot for text in list(self._documents)}:
            await super().expire(other, limit, terms)
        return 0


@wrong()
class ReadsTwice(Shared):
    """Lets others in between reading and writing a record, but compares nothing."""

    async def write(self, address, change):
        stored = change(await self.read(address))
        await asyncio.sleep(0)
        return await super().write(address, lambda _: stored)
