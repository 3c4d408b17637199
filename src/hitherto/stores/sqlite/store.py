"""``SQLiteStore``: what callers await, each as one operation for the engine's thread."""

from __future__ import annotations

import asyncio
import math
import os
import sqlite3
import time
import warnings
import weakref
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl, unquote

from hitherto import protocol, quick
from hitherto.addresses import Address, decode, encode
from hitherto.document import Answer, Claim, Document, Event, Terms, Verdict
from hitherto.errors import BadStoreURL, StoreClosed, StoreWarning
from hitherto.overlap import Overlap
from hitherto.records import NO_PATCH, Patch, Stored
from hitherto.stores.base import KINDS, Facts, Kind, Listed, Store
from hitherto.stores.sqlite import changes, listing, schema
from hitherto.stores.sqlite.engine import Engine
from hitherto.stores.sqlite.opening import MEMORY, SAFE_SINCE, forked, open_file, version_at
from hitherto.stores.sqlite.session import Session

_OPTIONS: Final = ("cache", "synchronous", "timeout")
_LEVELS: Final = ("FULL", "NORMAL", "EXTRA")
_T = TypeVar("_T")
_LOST: Final = {
    "FULL": "nothing that was acknowledged, power cuts included",
    "EXTRA": "nothing that was acknowledged, power cuts included",
    "NORMAL": "nothing when a process dies; the newest commits when the power fails (synchronous=NORMAL)",
}
_warned: list[bool] = []


class SQLiteStore(Store):
    """Conversations in one SQLite file, or in memory; it is opened on first use.

    *synchronous*: ``"FULL"`` keeps every acknowledged change through a power cut, ``"NORMAL"`` may lose the
    newest. *timeout*: how many seconds to wait while other processes write. *cache*: how many conversations
    this process remembers between transactions.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        synchronous: str = "FULL",
        timeout: float = 10.0,
        cache: int = 4096,
        group: bool = True,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(clock=clock)
        name = os.fspath(path)
        if synchronous.upper() not in _LEVELS:
            raise ValueError(f"synchronous={synchronous!r}: one of {', '.join(_LEVELS)}")
        if not (timeout >= 0 and math.isfinite(timeout)):
            raise ValueError(f"timeout={timeout!r}: seconds, zero or more")
        if cache < 0:
            raise ValueError(f"cache={cache!r}: a number of conversations, zero or more")
        self.path = name if name == MEMORY else os.path.abspath(name)
        self.url = f"sqlite://{MEMORY}" if name == MEMORY else f"sqlite:///{name}"
        self._synchronous, self._timeout, self._cache = synchronous.upper(), timeout, cache
        self._group = group
        self._engine: Engine[Session] | None = None
        self._closed = False
        self._tidied: dict[str, str] = {}

    @classmethod
    def from_url(cls, url: str) -> SQLiteStore:
        """``sqlite:///relative.db``, ``sqlite:////absolute.db`` or ``sqlite://:memory:``.

        Options: ``?synchronous=FULL`` (or ``NORMAL``, ``EXTRA``), ``?timeout=10`` (seconds) and
        ``?cache=4096`` (conversations).
        """
        place, _, query = url.removeprefix("sqlite:").partition("?")
        given = dict(parse_qsl(query, keep_blank_values=True))
        if unknown := sorted(set(given) - set(_OPTIONS)):
            raise BadStoreURL(
                f"unknown option {', '.join(unknown)}; there are {', '.join(_OPTIONS)}", url=url
            )
        options: dict[str, Any] = {}
        try:
            for name, kind in (("synchronous", str), ("timeout", float), ("cache", int)):
                if name in given:
                    options[name] = _value_of(name, kind, given[name])
            return cls(_path_in(place, url), **options)
        except ValueError as error:
            if isinstance(error, BadStoreURL):
                raise
            raise BadStoreURL(str(error), url=url) from None

    def __repr__(self) -> str:
        return f"SQLiteStore({self.path!r})"

    def op(self) -> None:
        """No id: an operation that raised was not applied, and no reply is lost on the way."""
        return

    # ------------------------------------------------------------------------------ the five primitives

    async def open(self) -> None:
        """Open the file, create or migrate it if need be; a ``StoreError`` says what is wrong with it."""
        self._closed = False
        await self._running().submit(_nothing, writes=False)

    async def close(self) -> None:
        """Wait for what was asked before, put the log into the file, let go of it."""
        engine, self._engine = self._engine, None
        self._closed = True
        if engine is not None and engine.is_ours():
            await engine.stopped()

    async def facts(self) -> Facts:
        """SQLite's version, the file's schema, and what *synchronous* promises."""
        in_memory = self.path == MEMORY
        lost = "everything: it is in memory" if in_memory else _LOST[self._synchronous]
        return Facts(f"SQLite {sqlite3.sqlite_version}", str(schema.version()), lost)

    async def migrate(self) -> list[str]:
        """Open the file, which takes every step that is missing; their names."""
        before = 0 if self.path == MEMORY else await asyncio.to_thread(version_at, self.path, self.url)
        await self.open()
        return [f"step {number}" for number in range(before + 1, schema.version() + 1)]

    async def load(self, address: Address) -> Document:
        """The document, shared and immutable."""
        text = encode(address)
        return await self._running().submit(lambda session: changes.load(session, text), writes=False)

    async def swap(self, address: Address, expected_version: int, document: Document) -> bool:
        """Replace the document if it is still the version expected."""
        text = encode(address)
        return await self._running().submit(
            lambda session: changes.swap(session, text, expected_version, document)
        )

    async def scan(self, bot: str, kind: Kind) -> AsyncIterator[Address]:
        """List page by page along an index; what changes meanwhile may be missed."""
        last: Any = 0
        now = self.clock()
        while True:
            look = partial(listing.page, bot=bot, kind=kind, last=last, now=now)
            texts, last = await self._running().submit(look, writes=False)
            for text in texts:
                yield decode(text)
            if len(texts) < listing.PAGE:
                return

    # --------------------------------------------------------------------------------------- the engine

    async def transact(
        self, address: Address, change: Callable[[Document, float], tuple[Document, _T]]
    ) -> _T:
        """Apply the change to the whole document within the next transaction, in the store's thread."""
        text = encode(address)
        return await self._running().submit(lambda session: changes.whole(session, text, change))

    async def read(self, address: Address) -> Stored | None:
        """The stored record, unless it has expired."""
        text = encode(address)
        return await self._running().submit(
            lambda session: protocol.live_record(session.row(text).document, session.clock()), writes=False
        )

    async def _step(
        self, address: Address, terms: Terms, change: Callable[[Document, float], tuple[Document, _T]]
    ) -> _T:
        """Apply a step of a turn, which needs only the row."""
        text = encode(address)
        return await self._running().submit(lambda session: changes.lean(session, text, terms, change))

    def _running(self) -> Engine[Session]:
        engine = self._engine
        if engine is None or not engine.is_ours():
            return self._start()
        return engine

    def _start(self) -> Engine[Session]:
        if self._closed:
            raise StoreClosed("the store was closed; open() it again before using it", url=self.url)
        if self._engine is not None:
            raise forked(self.url)
        path, url, clock, cache = self.path, self.url, self.clock, self._cache
        if path != MEMORY:
            _warn_if_unsafe()
        engine = self._engine = Engine(
            partial(open_file, path, url, self._synchronous, self._timeout),
            lambda connection: Session(connection, path=path, url=url, clock=clock, kept=cache),
            url=url,
            timeout=self._timeout,
            group=self._group,
        )
        weakref.finalize(self, engine.stop)
        return engine

    # -------------------------------------------------------------------------------------------- turns

    async def accept(
        self, address: Address, event: Event, overlap: Overlap, owner: str, op: str | None, terms: Terms
    ) -> Answer:
        """See :func:`hitherto.protocol.accept`."""
        text = encode(address)
        return await self._running().submit(
            lambda session: changes.accept(session, text, event, overlap, owner, op, terms)
        )

    async def settle(
        self, address: Address, claim: Claim, op: str | None, terms: Terms, *, patch: Patch = NO_PATCH,
        verdict: Verdict = "done", delay: float = 0.0, error: str = "", keep: bool = True,
    ) -> Answer:  # fmt: skip
        """See :func:`hitherto.protocol.settle`; *delay* is how long a retry waits at least."""

        def change(document: Document, now: float) -> tuple[Document, Answer]:
            return quick.settle(
                document, now, op, claim, terms,
                patch=patch, verdict=verdict, not_before=now + delay if delay else 0.0, error=error,
                keep=keep,
            )  # fmt: skip

        return await self._step(address, terms, change)

    async def take_over(self, address: Address, owner: str, op: str | None, terms: Terms) -> Answer:
        """See :func:`hitherto.protocol.take_over`."""
        return await self._step(
            address, terms, lambda document, now: protocol.take_over(document, now, op, owner, terms)
        )

    async def acquire(self, address: Address, owner: str, op: str | None, terms: Terms) -> Answer:
        """See :func:`hitherto.protocol.acquire`."""
        return await self._step(
            address, terms, lambda document, now: protocol.acquire(document, now, op, owner, terms)
        )

    async def release(self, address: Address, claim: Claim, op: str | None, terms: Terms) -> Answer:
        """See :func:`hitherto.protocol.release`."""
        return await self._step(
            address, terms, lambda document, now: protocol.release(document, now, op, claim, terms)
        )

    async def renew(self, claims: Sequence[tuple[Address, Claim]], terms: Terms) -> list[bool]:
        """Renew many claims in one transaction; ``False`` for each that is lost."""
        held = [(encode(address), claim) for address, claim in claims]
        return await self._running().submit(lambda session: changes.renew(session, held, terms))

    # ------------------------------------------------------------------------------------- housekeeping

    async def due(self, bot: str, limit: int) -> list[Address]:
        """At most *limit* conversations that a sweeper should take over now, the longest waiting first."""
        texts = await self._running().submit(lambda session: listing.due(session, bot, limit), writes=False)
        return [decode(text) for text in texts]

    async def expire(self, bot: str, limit: int, terms: Terms) -> int:
        """Tidy the next *limit* conversations in one transaction, going round; remove what is void."""
        after = self._tidied.pop(bot, "")
        look = partial(listing.everything, bot=bot, after=after, limit=limit)
        texts = await self._running().submit(look, writes=False)
        if len(texts) == limit:
            self._tidied[bot] = texts[-1]
        if not texts:
            return 0
        return await self._running().submit(
            lambda session: sum([changes.expire(session, text, terms) for text in texts])
        )

    async def counts(self, bot: str) -> list[tuple[str | None, str | None, int]]:
        """How many records there are in each state of each flow, from an index, a part at a time."""
        counted = listing.Counted()
        while counted.left is None or counted.left:
            count = partial(listing.count, bot=bot, so_far=counted)
            counted = await self._running().submit(count, writes=False)
        return [(*place, number) for place, number in counted.numbers.items() if number]

    async def records(self, bot: str, kind: Kind) -> AsyncIterator[tuple[Address, Stored]]:
        """Addresses with their records, page by page along an index."""
        if kind in KINDS - {"all", "record"}:
            async for pair in super().records(bot, kind):
                yield pair
            return
        last, url = "", self.url
        while True:
            look = partial(listing.records, bot=bot, kind=kind, last=last, url=url)
            found, last = await self._running().submit(look, writes=False)
            for text, stored in found:
                yield decode(text), stored
            if not last:
                return

    async def browse(
        self, bot: str, *, flow: str | None = None, state: str | None = None, after: str = "", limit: int = 50
    ) -> list[Listed]:
        """The next *limit* conversations in the order of their addresses, from an index."""
        look = partial(listing.browse, bot=bot, flow=flow, state=state, after=after, limit=limit)
        return await self._running().submit(look, writes=False)


def _path_in(place: str, url: str) -> str:
    """The file that the part behind ``sqlite:`` names."""
    if place in ("//" + MEMORY, "///" + MEMORY):
        return MEMORY
    if not place.startswith("///") or len(place) < 4:
        raise BadStoreURL("write sqlite:///relative.db, sqlite:////absolute.db or sqlite://:memory:", url=url)
    return unquote(place[3:])


def _value_of(name: str, kind: Callable[[str], Any], text: str) -> Any:
    try:
        return kind(text)
    except ValueError:
        raise ValueError(f"{name}={text!r}: a number") from None


def _nothing(session: Session) -> None:
    """The operation that only makes the engine open its file."""


def _warn_if_unsafe() -> None:
    """Say once per process that this SQLite can damage a file that several processes write."""
    if _warned or sqlite3.sqlite_version_info >= SAFE_SINCE:
        return
    _warned.append(True)
    warnings.warn(
        f"SQLite {sqlite3.sqlite_version} has the WAL-reset bug (fixed in 3.51.3): in rare cases several "
        "processes writing to one file can damage it; use a Python linked to a newer SQLite, or one process",
        StoreWarning,
        stacklevel=4,
    )
