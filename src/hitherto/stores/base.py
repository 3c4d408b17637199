"""The store contract: five primitives that an author writes, and everything else derived from them.

``open``, ``close``, ``load(address)``, ``swap(address, expected_version, document)`` and ``scan(bot, kind)``
are enough: FSM storage, turns, dead letters and housekeeping follow from :mod:`hitherto.protocol` by
compare-and-swap. A store may override any compound operation with something faster, as long as it answers
what the protocol answers.
"""

from __future__ import annotations

import itertools
import random
import secrets
import time
from abc import ABC, abstractmethod
from asyncio import gather, sleep
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from heapq import nsmallest
from typing import Any, ClassVar, Final, Literal, Self, TypeAlias, TypeVar

import msgspec

from hitherto import codec, protocol
from hitherto.addresses import Address, Key, encode
from hitherto.errors import StoreConflict
from hitherto.overlap import Overlap
from hitherto.protocol import Answer, Claim, Document, Event, Terms, Verdict
from hitherto.records import NO_PATCH, Patch, Record, Stored, from_record, merged

Kind: TypeAlias = Literal["all", "record", "due", "pending", "lease", "dead", "everything"] | str
"""What to list: ``all`` conversations, those with a ``record``, a ``lease``, ``pending`` events, ``dead``
letters or ``due`` for the sweeper; ``everything`` in every realm, as an export does; any other word is a
realm of the library's own, and lists the records in it.
"""

KINDS: Final = frozenset({"all", "record", "due", "pending", "lease", "dead", "everything"})
DEFAULT_TERMS: Final = Terms()
_SWAPS = 200
_READ_AT_ONCE = 200
_T = TypeVar("_T")


def is_filed(address: Address, document: Document, kind: Kind, now: float) -> bool:
    """Whether ``scan(bot, kind)`` lists this document: the definition, for stores without an index of their
    own.
    """
    if kind not in KINDS:
        return address.realm == kind and document.record is not None
    if kind == "everything":
        return True
    if kind == "dead":
        return address.realm == "" and bool(document.dead)
    if kind == "lease":
        return address.realm == "" and document.lease is not None
    if kind == "pending":
        return address.realm == "" and bool(document.inbox)
    if kind == "due":
        wake = protocol.wake_at(document)
        return address.realm == "" and wake is not None and wake <= now
    return address.realm == "" and (kind == "all" or document.record is not None)


class Listed(msgspec.Struct, frozen=True):
    """One line of a list of conversations; *cursor* is what to go on after."""

    cursor: str
    key: Key
    flow: str | None
    state: str | None
    recorded: bool
    version: int
    touched: float
    pending: int
    dead: int
    lease_until: float | None
    wake_at: float | None

    def __repr__(self) -> str:
        return f"Listed(flow={self.flow!r}, state={self.state!r}, pending={self.pending}, dead={self.dead})"


class Facts(msgspec.Struct, frozen=True):
    """What a store says of itself to people: what it runs on, its schema, and what a crash would take."""

    software: str
    schema: str
    lost_in_a_crash: str


class Store(ABC):
    """Where all of it lives.  Subclass it, write the five primitives, run the kit of :mod:`hitherto.testing`.

    *clock* gives the time in seconds; every store answers by one clock, its own.
    """

    url: str = ""
    abilities: ClassVar[frozenset[str]] = frozenset({"reopens", "shared"})
    """What the kit may ask beyond what every store can do; see :data:`hitherto.testing.ABILITIES`."""

    def __init__(self, *, clock: Callable[[], float] = time.time) -> None:
        self.clock = clock
        self._rounds: dict[str, int] = {}
        self._ops = map(f"{secrets.token_hex(6)}-{{:x}}".format, itertools.count(1))

    # ------------------------------------------------------------------------------- the five primitives

    @abstractmethod
    async def open(self) -> None:
        """Connect, check and prepare; opening twice does nothing."""

    @abstractmethod
    async def close(self) -> None:
        """Let go of what ``open`` took; closing twice does nothing."""

    @abstractmethod
    async def load(self, address: Address) -> Document:
        """The document at *address*, or ``protocol.EMPTY``."""

    @abstractmethod
    async def swap(self, address: Address, expected_version: int, document: Document) -> bool:
        """Put *document* in place of the version expected (0: there is none), atomically; ``False`` if it is
        not.
        """

    @abstractmethod
    def scan(self, bot: str, kind: Kind) -> AsyncIterator[Address]:
        """The addresses of *bot* filed under *kind* (see :func:`is_filed`), in any order, each once."""

    # --------------------------------------------------------------------------------------- the engine

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def now(self) -> float:
        """The store's own time."""
        return self.clock()

    def go_by(self, clock: Callable[[], float]) -> None:
        """Before it is opened: go by *clock* instead of the store's own time. For tests."""
        self.clock = clock

    async def facts(self) -> Facts:
        """What ``hitherto doctor`` tells about an open store."""
        return Facts(type(self).__name__, "its own", "it does not say")

    async def migrate(self) -> list[str]:
        """Bring what is stored up to date; the names of what was done. Stores without a schema only open."""
        await self.open()
        return []

    async def transact(
        self, address: Address, change: Callable[[Document, float], tuple[Document, _T]]
    ) -> _T:
        """Apply a pure change to one document, atomically, and give its answer.

        *change* may run several times: it is repeated on a fresh document until nobody was in between.
        """
        for attempt in range(_SWAPS):
            before = await self.load(address)
            after, answer = change(before, await self.now())
            if after is before or await self.swap(address, before.version, after):
                return answer
            await sleep(random.random() * min(attempt, 20) / 1000)
        raise StoreConflict(f"{_SWAPS} attempts to change one conversation met another writer each time")

    def op(self) -> str | None:
        """A fresh operation id for a change that could be repeated after a lost reply."""
        return next(self._ops)

    # ---------------------------------------------------------------------------------- FSM storage

    async def init(self, bot: str, **options: object) -> None:
        """Make ready for *bot*; as often as one likes.  Options of a keeper are taken and need not matter."""
        protocol_address(bot, ())
        await self.open()

    async def get_state(self, bot: str, key: Key) -> Record | None:
        """The record of a conversation, or ``None``."""
        stored = await self.read(Address(bot, "", key))
        return None if stored is None else stored.to_record()

    async def set_state(self, bot: str, key: Key, record: Record) -> None:
        """Create or overwrite the record: flow, state and data."""
        stored = from_record(record)
        await self.write(Address(bot, "", key), lambda _: stored)

    async def get_data(self, bot: str, key: Key) -> dict[str, Any] | None:
        """The data of a conversation, or ``None`` when there is no record."""
        stored = await self.read(Address(bot, "", key))
        return None if stored is None else codec.decode(stored.fields)

    async def set_data(self, bot: str, key: Key, data: dict[str, Any]) -> None:
        """Overwrite the data, keep flow and state; a record with state ``None`` is made if there was none."""
        fields = codec.encode(data)

        def overwritten(stored: Stored | None) -> Stored:
            base = protocol.blank_if_none(stored)
            return Stored(base.flow, base.state, base.version, fields, base.expires_at)

        await self.write(Address(bot, "", key), overwritten)

    async def update_data(self, bot: str, key: Key, new: dict[str, Any]) -> dict[str, Any]:
        """Merge *new* in, atomically (new keys win), and give the whole data as it is then."""
        fields = codec.encode(new)
        stored = await self.write(Address(bot, "", key), lambda stored: merged(stored, fields))
        return codec.decode(protocol.blank_if_none(stored).fields)

    async def clear(self, bot: str, key: Key) -> None:
        """Remove the record; no error if there is none."""
        await self.write(Address(bot, "", key), lambda _: None)

    async def read(self, address: Address) -> Stored | None:
        """The stored record at *address*, unless it has expired."""
        return protocol.live_record(await self.load(address), await self.now())

    async def write(
        self, address: Address, change: Callable[[Stored | None], Stored | None]
    ) -> Stored | None:
        """Replace the record by what *change* makes of it, atomically; the new one is the answer."""
        op = self.op()

        def step(document: Document, now: float) -> tuple[Document, Stored | None]:
            before = protocol.live_record(document, now)
            if protocol.is_repeated(document, op):
                return document, before
            after = change(before)
            if after is before or (after == before and before == document.record):
                return document, before
            return protocol.remembered(document, now, op, after, DEFAULT_TERMS), after

        return await self.transact(address, step)

    # ----------------------------------------------------------------------------------------- turns

    async def accept(
        self, address: Address, event: Event, overlap: Overlap, owner: str, op: str | None, terms: Terms
    ) -> Answer:
        """See :func:`hitherto.protocol.accept`."""
        return await self.transact(
            address, lambda document, now: protocol.accept(document, now, op, event, overlap, owner, terms)
        )

    async def take_over(self, address: Address, owner: str, op: str | None, terms: Terms) -> Answer:
        """See :func:`hitherto.protocol.take_over`."""
        return await self.transact(
            address, lambda document, now: protocol.take_over(document, now, op, owner, terms)
        )

    async def acquire(self, address: Address, owner: str, op: str | None, terms: Terms) -> Answer:
        """See :func:`hitherto.protocol.acquire`."""
        return await self.transact(
            address, lambda document, now: protocol.acquire(document, now, op, owner, terms)
        )

    async def settle(
        self,
        address: Address,
        claim: Claim,
        op: str | None,
        terms: Terms,
        *,
        patch: Patch = NO_PATCH,
        verdict: Verdict = "done",
        delay: float = 0.0,
        error: str = "",
        keep: bool = True,
    ) -> Answer:
        """See :func:`hitherto.protocol.settle`; *delay* is how long a retry waits at least."""
        return await self.transact(
            address,
            lambda document, now: protocol.settle(
                document,
                now,
                op,
                claim,
                terms,
                patch=patch,
                verdict=verdict,
                not_before=now + delay if delay else 0.0,
                error=error,
                keep=keep,
            ),
        )

    async def renew(self, claims: Sequence[tuple[Address, Claim]], terms: Terms) -> list[bool]:
        """Renew many claims in one go; ``False`` for each that is lost."""
        return [
            await self.transact(address, partial(_renewed, claim=claim, terms=terms))
            for address, claim in claims
        ]

    async def release(self, address: Address, claim: Claim, op: str | None, terms: Terms) -> Answer:
        """See :func:`hitherto.protocol.release`."""
        return await self.transact(
            address, lambda document, now: protocol.release(document, now, op, claim, terms)
        )

    async def force_release(self, address: Address, op: str | None, terms: Terms) -> Answer:
        """See :func:`hitherto.protocol.force_release`."""
        return await self.transact(
            address, lambda document, now: protocol.force_release(document, now, op, terms)
        )

    async def retry_dead(self, address: Address, seq: int, op: str | None, terms: Terms) -> Answer:
        """See :func:`hitherto.protocol.retry_dead`."""
        return await self.transact(
            address, lambda document, now: protocol.retry_dead(document, now, op, seq, terms)
        )

    async def drop_dead(self, address: Address, seq: int, op: str | None, terms: Terms) -> Answer:
        """See :func:`hitherto.protocol.drop_dead`."""
        return await self.transact(
            address, lambda document, now: protocol.drop_dead(document, now, op, seq, terms)
        )

    async def forget(self, address: Address) -> None:
        """Erase everything at *address*; whoever runs it now can commit nothing any more."""
        await self.transact(address, lambda document, now: (_forgotten(document, now), None))

    # ----------------------------------------------------------------------------------------- lists

    async def counts(self, bot: str) -> list[tuple[str | None, str | None, int]]:
        """How many records there are in each state of each flow, sorted, ``None`` first."""
        found: Counter[tuple[str | None, str | None]] = Counter()
        async for address in self.scan(bot, "record"):
            record = (await self.load(address)).record
            if record is not None:
                found[record.flow, record.state] += 1
        return sorted([(*place, number) for place, number in found.items()], key=none_first)

    async def browse(
        self, bot: str, *, flow: str | None = None, state: str | None = None, after: str = "", limit: int = 50
    ) -> list[Listed]:
        """The next *limit* conversations behind the cursor *after*, in the order of their addresses.

        With *flow*, only those whose record is in that flow (``""``: in none), and with *state* too, only
        those in that state of it (``""``: in none). The store filters; nothing loads everything, unless it
        has no better way.
        """
        found: list[Listed] = []
        async for address in self.scan(bot, "all"):
            text = encode(address)
            if text > after:
                listed = _listed(text, address, await self.load(address))
                if flow is None or is_in(listed, flow, state):
                    found.append(listed)
        return nsmallest(limit, found, key=lambda listed: listed.cursor)

    async def records(self, bot: str, kind: Kind) -> AsyncIterator[tuple[Address, Stored]]:
        """The addresses filed under *kind* that have a record, with it; many are read at a time."""
        page: list[Address] = []
        async for address in self.scan(bot, kind):
            page.append(address)
            if len(page) == _READ_AT_ONCE:
                for pair in await self._read_all(page):
                    yield pair
                page = []
        for pair in await self._read_all(page):
            yield pair

    async def _read_all(self, page: list[Address]) -> list[tuple[Address, Stored]]:
        found = await gather(*[self.read(address) for address in page])
        return [(address, stored) for address, stored in zip(page, found, strict=True) if stored is not None]

    # ------------------------------------------------------------------------------- housekeeping

    async def due(self, bot: str, limit: int) -> list[Address]:
        """At most *limit* conversations that a sweeper should take over now."""
        return await _first(self.scan(bot, "due"), limit)

    async def expire(self, bot: str, limit: int, terms: Terms) -> int:
        """Tidy up to *limit* conversations; how many were changed. Call it again and again: it goes round."""
        start = self._rounds.pop(bot, 0)
        addresses = await _first(self.scan(bot, "all"), start + limit)
        if len(addresses) == start + limit:
            self._rounds[bot] = start + limit
        changed = 0
        for address in addresses[start:]:
            changed += await self.transact(address, lambda document, now: _tidied(document, now, terms))
        return changed


def protocol_address(bot: str, key: Key) -> Address:
    """The address of a conversation, its bot checked at once."""
    if type(bot) is not str or not bot:
        raise ValueError(f"bot={bot!r}: the bot's name is a text that is not empty")
    return Address(bot, "", key)


def none_first(row: tuple[str | None, str | None, int]) -> tuple[bool, str, bool, str]:
    """The order of ``counts``."""
    flow, state, _ = row
    return flow is not None, flow or "", state is not None, state or ""


def is_in(listed: Listed, flow: str, state: str | None) -> bool:
    """Whether ``browse(flow=..., state=...)`` lists this conversation."""
    if not listed.recorded or listed.flow != (flow or None):
        return False
    return state is None or listed.state == (state or None)


def _listed(text: str, address: Address, document: Document) -> Listed:
    record, lease = document.record, document.lease
    return Listed(
        text,
        address.key,
        None if record is None else record.flow,
        None if record is None else record.state,
        record is not None,
        document.version,
        document.touched,
        len(document.inbox),
        len(document.dead),
        None if lease is None else lease.deadline,
        protocol.wake_at(document),
    )


def _renewed(document: Document, now: float, claim: Claim, terms: Terms) -> tuple[Document, bool]:
    return protocol.renew(document, now, claim, terms)


def _forgotten(document: Document, now: float) -> Document:
    return document if document == protocol.EMPTY else protocol.forget(document, now)


def _tidied(document: Document, now: float, terms: Terms) -> tuple[Document, bool]:
    after = protocol.expire(document, now, terms)
    return after, after is not document


async def _first(addresses: AsyncIterator[Address], limit: int) -> list[Address]:
    found: list[Address] = []
    async for address in addresses:
        found.append(address)
        if len(found) >= limit:
            break
    return found
