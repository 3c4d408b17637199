"""The store on PostgreSQL: turns in one trip each way, everything else by load, decide, compare and swap.

*One trip*: accepting under ``Queue`` and ``Reject``, duplicates, refusals, settling with what is handed on,
fenced commits, retries with a delay, renewing, reading a record. *Two trips after one that says so*:
leftovers of a dead lease, a repeat after a lost reply, ``Debounce`` and ``Burst`` behind a running turn,
handing on a burst, a full queue that drops, expired entries and records. *Two trips*: ``Concurrent``,
``Burst(gather=True)``, dead letters, retries in order, taking over, what an operator does, writing by FSM
storage.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from hitherto import protocol
from hitherto.addresses import Address, decode
from hitherto.document import Answer, Claim, Document, Event, Terms, Verdict
from hitherto.errors import StoreClosed, redact
from hitherto.overlap import Overlap
from hitherto.records import NO_PATCH, Patch, Stored
from hitherto.stores.base import Facts, Kind, Listed, Store
from hitherto.stores.postgres import calls, listing, options, schema
from hitherto.stores.postgres.calls import Settle
from hitherto.stores.postgres.columns import Change, place_of, short_op
from hitherto.stores.postgres.link import Link, Own, Users
from hitherto.stores.postgres.session import LOST, SETTINGS, Session, examined, prepare_schema

LONGEST_OPENING = 30.0
"""Seconds that a migration, or waiting for somebody else's, may take at least."""

_T = TypeVar("_T")


class PostgresStore(Store):
    """Conversations in one schema of a PostgreSQL database; it is opened on first use.

    *pool*: an asyncpg pool of your own instead of a URL; it is never closed for you. *schema*: where tables
    and functions are. *auto_migrate*: whether opening creates and migrates them; if not, a missing schema is
    a ``SchemaError``. *timeout*: how many seconds an operation may take before ``StoreUnavailable``.
    *connections*: one to three. *clock* is for tests: the store goes by the server's.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        pool: Any = None,
        schema: str | None = None,
        auto_migrate: bool | None = None,
        timeout: float | None = None,
        connections: int | None = None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        super().__init__(clock=time.time if clock is None else clock)
        if (url is None) == (pool is None):
            raise ValueError("PostgresStore: give it either a URL or pool=")
        said = options.Options("") if url is None else options.parse(url)
        self._source: Own | Users = Users(pool) if url is None else Own(said.dsn)
        self.url = "postgresql://<pool>" if url is None else redact(url)
        self.schema = said.schema if schema is None else schema
        self._auto_migrate = said.auto_migrate if auto_migrate is None else auto_migrate
        self._timeout = said.timeout if timeout is None else timeout
        self._connections = said.connections if connections is None else connections
        options.check(self.schema, self._timeout, self._connections)
        self._own_clock = clock
        self._opening: asyncio.Lock | None = None
        self._session: Session | None = None
        self._rounds_behind: dict[str, str] = {}
        self._closed = False

    @classmethod
    def from_url(cls, url: str) -> PostgresStore:
        """``postgresql://user:password@host/database``, with libpq's options and ``?schema=``,
        ``auto_migrate=``, ``timeout=`` and ``connections=``.
        """
        return cls(url)

    def __repr__(self) -> str:
        return f"PostgresStore({self.url!r}, schema={self.schema!r})"

    # ---------------------------------------------------------------------------------- open, close, migrate

    async def open(self) -> None:
        """Connect, check the server, create or migrate the schema; a ``StoreError`` says what is wrong."""
        self._closed = False
        await self._opened()

    async def close(self) -> None:
        """Let what was asked before come to its end, and give the connections back."""
        session, self._session = self._session, None
        self._closed, self._opening = True, None
        if session is not None and session.pid == os.getpid():
            await session.close()

    def migration_sql(self) -> str:
        """What :meth:`migrate` does as SQL, for people whose database role may not do it."""
        return schema.migration_sql(self.schema)

    async def facts(self) -> Facts:
        """The server's version, the newest migration, and what its settings promise."""

        async def ask(connection: Any) -> Facts:
            server = await connection.fetchrow(SETTINGS)
            lost = LOST["off" if server["fsync"] == "off" else server["durability"]]
            newest = await schema.version_of(connection, self.schema)
            return Facts(f"PostgreSQL {server['software']}", f"{self.schema}, migration {newest}", lost)

        facts: Facts = await self._once(ask)
        return facts

    async def migrate(self) -> list[str]:
        """Apply every migration that is missing, *pre* and *post*; their names."""
        applied: list[str] = await self._once(
            partial(schema.migrate, schema=self.schema, url=self.url, post=True)
        )
        return applied

    async def _opened(self) -> Session:
        session = self._session
        if session is not None:
            if session.pid != os.getpid() or session.loop is not asyncio.get_running_loop():
                raise StoreClosed(
                    "the store was opened in another process or event loop; open one of its own there",
                    url=self.url,
                )
            return session
        if self._closed:
            raise StoreClosed("the store was closed; open() it again before using it", url=self.url)
        if self._opening is None:
            self._opening = asyncio.Lock()
        async with self._opening:
            return self._session or await self._open()

    async def _open(self) -> Session:
        async def check(connection: Any) -> None:
            self._source.pooled = await examined(connection, self.url)
            await prepare_schema(connection, self.schema, self.url, self._auto_migrate)

        await self._once(check)
        if self._closed:
            raise StoreClosed("the store was closed while it was being opened", url=self.url)
        self._session = Session(
            self._source, self.url, self.schema, self._timeout, self._connections, self._own_clock
        )
        return self._session

    async def _once(self, work: Callable[[Any], Any]) -> Any:
        """Do *work* with a connection that is given back; nothing prepared on it stays behind."""
        source = self._source if isinstance(self._source, Users) else self._source.careful()
        link = Link(source, self.url, max(self._timeout, LONGEST_OPENING))
        try:
            return await link.run(work)
        finally:
            await link.close()

    def go_by(self, clock: Callable[[], float]) -> None:
        """Before it is opened: go by *clock* instead of the server's. For tests."""
        super().go_by(clock)
        self._own_clock = clock

    # ------------------------------------------------------------------------------ the five primitives

    async def load(self, address: Address) -> Document:
        """The document at the address."""
        return (await (await self._opened()).loads(place_of(address))).document

    async def swap(self, address: Address, expected_version: int, document: Document) -> bool:
        """Replace the document if it is still the version expected."""
        session, place = await self._opened(), place_of(address)
        loaded = await session.loads(place)
        if loaded.document.version != expected_version:
            return False
        return await session.put(Change(place, loaded, document, protocol.is_blank(document)))

    async def scan(self, bot: str, kind: Kind) -> AsyncIterator[Address]:
        """List page by page along an index."""
        session = await self._opened()
        async for text in listing.scan(session.query, bot, kind, session.moment):
            yield decode(text)

    # --------------------------------------------------------------------------------------- the engine

    async def now(self) -> float:
        """The server's time."""
        if self._own_clock is not None:
            return self._own_clock()
        at: float = (await (await self._opened()).query(listing.NOW))[0]["at"]
        return at

    async def transact(
        self, address: Address, change: Callable[[Document, float], tuple[Document, _T]]
    ) -> _T:
        """Load, change, compare and swap; changes of one conversation that wait together share the trips."""
        answer: _T = await (await self._opened()).combine(place_of(address), change)
        return answer

    async def read(self, address: Address) -> Stored | None:
        """The record, unless it has expired."""
        return await (await self._opened()).reads(place_of(address))

    # -------------------------------------------------------------------------------------------- turns

    async def accept(
        self, address: Address, event: Event, overlap: Overlap, owner: str, op: str | None, terms: Terms
    ) -> Answer:
        """See :func:`hitherto.protocol.accept`."""
        session, place, op = await self._opened(), place_of(address), short_op(op)
        item = calls.accept_item(place, event, overlap, owner, op, terms)
        if not (calls.is_slow_accept(overlap) or session.combine.is_busy(place)):
            answer = await session.accepts(item, len(event.payload))
            if answer is not None:
                return answer

        def step(document: Document, now: float) -> tuple[Document, Answer]:
            return protocol.accept(document, now, op, event, overlap, owner, terms)

        long_way: Answer = await session.combine(place, step)
        return long_way

    async def settle(
        self, address: Address, claim: Claim, op: str | None, terms: Terms, *, patch: Patch = NO_PATCH,
        verdict: Verdict = "done", delay: float = 0.0, error: str = "", keep: bool = True,
    ) -> Answer:  # fmt: skip
        """See :func:`hitherto.protocol.settle`; *delay* is how long a retry waits at least."""
        session, place, op = await self._opened(), place_of(address), short_op(op)
        calls.check_patch(patch)
        if not (calls.is_slow_settle(claim, verdict, terms, patch) or session.combine.is_busy(place)):
            item = Settle(place, claim, op, terms, patch, verdict, delay, keep)
            answer = await session.settles(item, sum(map(len, patch.set.values())))
            if answer is not None:
                return answer

        def step(document: Document, now: float) -> tuple[Document, Answer]:
            not_before = now + delay if delay else 0.0
            return protocol.settle(
                document, now, op, claim, terms,
                patch=patch, verdict=verdict, not_before=not_before, error=error, keep=keep,
            )  # fmt: skip

        long_way: Answer = await session.combine(place, step)
        return long_way

    async def renew(self, claims: Sequence[tuple[Address, Claim]], terms: Terms) -> list[bool]:
        """Renew many claims in one trip; those without a lease take the long way, together."""
        session = await self._opened()
        renewed = [False] * len(claims)
        leased = [index for index, (_, claim) in enumerate(claims) if not claim.lone]
        lone = [index for index, (_, claim) in enumerate(claims) if claim.lone]
        if leased:
            held = await session.renew([(place_of(claims[i][0]), claims[i][1]) for i in leased], terms)
            for index in held:
                renewed[leased[index]] = True
        together = [super(PostgresStore, self).renew([claims[index]], terms) for index in lone]
        for index, [good] in zip(lone, await asyncio.gather(*together), strict=True):
            renewed[index] = good
        return renewed

    # ------------------------------------------------------------------------------- lists and housekeeping

    async def counts(self, bot: str) -> list[tuple[str | None, str | None, int]]:
        """How many records there are in each state of each flow."""
        return await listing.counts((await self._opened()).query, bot)

    async def browse(
        self, bot: str, *, flow: str | None = None, state: str | None = None, after: str = "", limit: int = 50
    ) -> list[Listed]:
        """See :meth:`hitherto.stores.base.Store.browse`."""
        return await listing.browse((await self._opened()).query, bot, flow, state, after, limit)

    async def due(self, bot: str, limit: int) -> list[Address]:
        """What has waited longest for the sweeper."""
        session = await self._opened()
        return [decode(text) for text in await listing.due(session.query, bot, session.moment, limit)]

    async def expire(self, bot: str, limit: int, terms: Terms) -> int:
        """Tidy what is over in the next *limit* conversations, going round; remove what is void."""
        session = await self._opened()
        behind = self._rounds_behind.pop(bot, "")
        page, stale = await listing.stale(session.query, bot, behind, session.moment, limit, terms)
        if len(page) == limit:
            self._rounds_behind[bot] = page[-1]
        tidied = await asyncio.gather(*[_tidied(session, decode(text), terms) for text in stale])
        return sum(tidied)


async def _tidied(session: Session, address: Address, terms: Terms) -> bool:
    place = place_of(address)
    loaded = await session.loads(place)
    after = protocol.expire(loaded.document, loaded.at, terms)
    void = protocol.is_void(after, loaded.at, terms)
    if after is loaded.document and not void:
        return False
    return await session.put(Change(place, loaded, after, void))
