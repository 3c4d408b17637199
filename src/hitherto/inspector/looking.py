"""What the pages show, read from the store a page at a time: nothing here loads everything.

Counting a million conversations takes a store a while. So no page waits for it: counts are made in the
background when somebody looks, at most so often that they cost the store a fiftieth of its time, and are
shown with their age.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from itertools import groupby
from typing import Any, Final

import msgspec

from hitherto.addresses import Address, Key, encode
from hitherto.document import Document
from hitherto.errors import HithertoError
from hitherto.flows import Flow, FlowRegistry
from hitherto.inspector.history import History
from hitherto.keeper import Keeper
from hitherto.protocol import is_bare
from hitherto.stores.base import Facts, Kind, Listed, Store

PAGE: Final = 50
MOST: Final = 1000
_PATIENCE: Final = 30.0
_SHARE: Final = 50
_BOTS: Final = 50

Place = tuple[str | None, str | None]


class Counts(msgspec.Struct, frozen=True):
    """How many conversations were where, at a time."""

    at: float
    seconds: float
    places: dict[Place, int]

    def age(self) -> float:
        """How many seconds ago."""
        return time.monotonic() - self.at

    @property
    def total(self) -> int:
        """All of them."""
        return sum(self.places.values())

    def of(self, flow: str | None) -> dict[str, int]:
        """Those of one flow, by state; those in no state of it under the empty text."""
        return {state or "": number for (name, state), number in self.places.items() if name == flow}


class Tally(msgspec.Struct, frozen=True):
    """How many there are, up to a limit."""

    number: int
    more: bool

    def __str__(self) -> str:
        return f"{self.number}+" if self.more else str(self.number)


class Seen(msgspec.Struct, frozen=True):
    """One conversation as it was at a time of the store's clock."""

    address: Address
    document: Document
    now: float


class Health(msgspec.Struct, frozen=True):
    """How the store is: what it says of itself, how long an answer takes, how far its clock is off."""

    facts: Facts | None
    seconds: float
    skew: float
    error: str


class Looker:
    """One store, seen for one bot at a time; *keeper* where one runs in this process."""

    def __init__(
        self, store: Store, keeper: Keeper | None = None, flows: Iterable[type[Flow]] | None = None
    ) -> None:
        self.store, self.keeper = store, keeper
        known = flows if flows is not None else keeper.flows if keeper is not None else ()
        self.flows = FlowRegistry(known)
        self.history = None if keeper is None else History(keeper)
        self._counts: dict[str, Counts] = {}
        self._counting: dict[str, asyncio.Task[None]] = {}

    # ------------------------------------------------------------------------------------------- counts

    def counts(self, bot: str) -> Counts | None:
        """The newest counts there are; newer ones are begun when it is time."""
        known = self._counts.get(bot)
        task = self._counting.get(bot)
        old = known is None or time.monotonic() - known.at > max(2.0, _SHARE * known.seconds)
        if old and (task is None or task.done()):
            if len(self._counts) > _BOTS:
                self._counts.clear()
            self._counting[bot] = asyncio.get_running_loop().create_task(self._count(bot))
        return known

    async def _count(self, bot: str) -> None:
        began = time.monotonic()
        with suppress(HithertoError, OSError):  # the page says itself that the store is away
            found = await self.store.counts(bot)
            now = time.monotonic()
            places = {(flow, state): number for flow, state, number in found}
            self._counts[bot] = Counts(now, now - began, places)
        self._counting.pop(bot, None)

    async def tally(self, bot: str, kind: Kind) -> Tally:
        """How many conversations are filed so, at most a thousand."""
        number = 0
        async with _scanned(self.store, bot, kind) as found:
            async for _ in found:
                number += 1
                if number > MOST:
                    return Tally(MOST, True)
        return Tally(number, False)

    # ------------------------------------------------------------------------------------ conversations

    async def one(self, bot: str, key: Key) -> Seen:
        """Everything about one conversation."""
        address = Address(bot, "", key)
        async with asyncio.timeout(_PATIENCE):
            return Seen(address, await self.store.load(address), await self.store.now())

    async def page(self, bot: str, flow: str | None, state: str | None, after: str) -> list[Listed]:
        """The next conversations in the order of their addresses; one more than a page if there are more."""
        async with asyncio.timeout(_PATIENCE):
            return await self.store.browse(bot, flow=flow, state=state, after=after, limit=PAGE + 1)

    async def filed(self, bot: str, kind: Kind, number: int) -> tuple[list[Seen], bool]:
        """Page *number* of the conversations filed under *kind*, whole; and whether there are more."""
        first, found = number * PAGE, list[Address]()
        place = 0
        async with _scanned(self.store, bot, kind) as addresses:
            async for address in addresses:
                if place >= first:
                    found.append(address)
                place += 1
                if len(found) > PAGE:
                    break
        shown = found[:PAGE]
        documents = await asyncio.gather(*[self.store.load(address) for address in shown])
        now = await self.store.now()
        pairs = zip(shown, documents, strict=True)
        return [Seen(address, document, now) for address, document in pairs], len(found) > PAGE

    async def of_person(self, bot: str, part: object) -> AsyncIterator[Address]:
        """Every conversation with this part in its key, and something in it; it goes through all keys."""
        async with _scanned(self.store, bot, "all") as addresses:
            async for address in addresses:
                parts = address.key if isinstance(address.key, tuple) else (address.key,)
                theirs = any(type(one) is type(part) and one == part for one in parts)
                if theirs and not is_bare(await self.store.load(address)):
                    yield address

    # ------------------------------------------------------------------------------------------- health

    async def health(self, bot: str) -> Health:
        """How the store is now."""
        began, before = time.perf_counter(), time.time()
        try:
            async with asyncio.timeout(_PATIENCE):
                theirs = await self.store.now()
                skew = theirs - (before + time.time()) / 2
                await self.store.load(Address(bot, "", ("inspector", "probe")))
                seconds = time.perf_counter() - began
                return Health(await self.store.facts(), seconds, skew, "")
        except (HithertoError, OSError) as error:
            says = "no answer" if isinstance(error, TimeoutError) else str(error)
            return Health(None, time.perf_counter() - began, 0.0, says)


def conversation_of(seen: Seen) -> str:
    """The text that steps of this conversation go by."""
    return encode(seen.address)


def unknown_flows(
    counts: Counts | None, known: FlowRegistry
) -> list[tuple[str | None, list[tuple[str | None, int]]]]:
    """What is stored in flows that no map can be drawn of, flow by flow."""
    names = {flow.name for flow in known}
    places = (
        [] if counts is None else [(place, n) for place, n in counts.places.items() if place[0] not in names]
    )
    return [
        (flow, [(state, number) for (_, state), number in group])
        for flow, group in groupby(places, key=lambda one: one[0][0])
    ]


@asynccontextmanager
async def _scanned(store: Store, bot: str, kind: Kind) -> AsyncIterator[AsyncIterator[Address]]:
    """A scan that may be left before its end."""
    found: Any = store.scan(bot, kind)
    try:
        yield found
    finally:
        if hasattr(found, "aclose"):
            await found.aclose()
