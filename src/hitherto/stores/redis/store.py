"""The store on Redis or Valkey: each operation of the protocol is one Lua script and one round trip.

Operations that wait at the same moment travel together. What changes a whole document (chat state, an import)
is loaded, decided here, compared and swapped: two round trips.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from hitherto import codec
from hitherto.addresses import Address, Key
from hitherto.document import Answer, Claim, Document, Event, Terms, Verdict
from hitherto.errors import SchemaError, StoreClosed, StoreConflict, StoreUnavailable
from hitherto.overlap import Overlap
from hitherto.records import NO_PATCH, Patch, Record, Stored, from_record
from hitherto.stores.base import DEFAULT_TERMS, Facts, Kind, Listed, Store, protocol_address
from hitherto.stores.redis import calls
from hitherto.stores.redis.calls import Op, pack_words
from hitherto.stores.redis.checks import examine, lost_in_a_crash, software
from hitherto.stores.redis.documents import answer_of, document_of, record_of, words_of
from hitherto.stores.redis.failures import translated
from hitherto.stores.redis.layout import Layout, Place
from hitherto.stores.redis.links import Lost
from hitherto.stores.redis.listing import Lists
from hitherto.stores.redis.nodes import Cluster, Single, nodes_of
from hitherto.stores.redis.scripts import script
from hitherto.stores.redis.urls import checked, servers_of_client, servers_of_url
from hitherto.stores.redis.wire import ServerError, pack

__all__ = ["RedisStore"]

_T = TypeVar("_T")
_SWAPS: Final = 200
_SCAN_AT_ONCE: Final = 5000


class RedisStore(Store):
    """Conversations in Redis or Valkey, found by a URL or through a client of your own; opened on first use.

    Redis' own clock decides; *clock* replaces it in tests. *prefix* begins every key. *shards*, fixed for a
    bot once it has conversations, is over how many hash slots they are spread. *timeout* is how many seconds
    one call may take, its repetitions included. A client is never closed for you.
    """

    def __init__(
        self,
        client: str | Any,
        *,
        prefix: str = "hitherto",
        shards: int = 64,
        timeout: float = 5.0,
        clock: Callable[[], float] | None = None,
    ) -> None:
        super().__init__(clock=time.time if clock is None else clock)
        self._is_manual = clock is not None
        if isinstance(client, str):
            self._servers, own = servers_of_url(client)
            prefix, shards = own.get("prefix", prefix), own.get("shards", shards)
            timeout = own.get("timeout", timeout)
        else:
            self._servers = servers_of_client(client)
        self.url = self._servers.url
        checked(prefix, shards, timeout)
        self._timeout = timeout
        self._layout = Layout(prefix, shards)
        self._lists = Lists(self._layout, self._ask, self._glance)
        self._nodes: Single | None = None
        self._opening: asyncio.Lock | None = None
        self._home: tuple[int, asyncio.AbstractEventLoop] | None = None
        self._closed = False
        self._infos: list[dict[str, str]] = []
        self._words: dict[int, tuple[object, Any]] = {}
        self._rounds_at: dict[str, tuple[int, str]] = {}

    @classmethod
    def from_url(cls, url: str) -> RedisStore:
        """``redis://[user:password@]host:port/db`` and its relatives, with ``?prefix=``, ``shards=``,
        ``timeout=`` and the options of the connection; an unknown one is an error that lists them.
        """
        return cls(url)

    def __repr__(self) -> str:
        return f"RedisStore({self.url!r})"

    def op(self) -> str:
        """A fresh operation id."""
        return Op(next(self._ops))

    # ------------------------------------------------------------------------------------- open and close

    async def open(self) -> None:
        """Connect and check the server; a ``StoreError`` says what is wrong."""
        self._closed = False
        await self._opened()

    async def close(self) -> None:
        """Let what is under way come to its end and the connections go; a client of yours stays as it is."""
        nodes, self._nodes = self._nodes, None
        self._closed = True
        if nodes is None or self._home is None or self._home[0] != os.getpid():
            return
        home = self._home[1]
        if home is asyncio.get_running_loop():
            await nodes.close(self._closed_error())
        elif home.is_running():
            closing = asyncio.run_coroutine_threadsafe(nodes.close(self._closed_error()), home)
            await asyncio.wrap_future(closing)

    def _closed_error(self) -> StoreClosed:
        return StoreClosed("the store was closed; open() it again before using it", url=self.url)

    async def _opened(self) -> Single:
        nodes = self._nodes
        if nodes is not None:
            if self._home != (os.getpid(), asyncio.get_running_loop()):
                raise StoreClosed(
                    "the store was opened in another process or event loop; open one of its own there",
                    url=self.url,
                )
            return nodes
        if self._closed:
            raise self._closed_error()
        if self._opening is None:
            self._opening = asyncio.Lock()
        async with self._opening:
            return self._nodes or await self._open()

    async def _open(self) -> Single:
        nodes = nodes_of(self._servers, self._timeout)
        try:
            await nodes.open()
            self._infos = await examine(nodes.all(), self.url, cluster=isinstance(nodes, Cluster))
        except BaseException as error:
            await nodes.close(self._closed_error())
            if isinstance(error, ServerError):
                raise translated(error, self.url) from None
            raise
        self._home = (os.getpid(), asyncio.get_running_loop())
        self._nodes = nodes
        return nodes

    async def init(self, bot: str, **options: object) -> None:
        """Make ready for *bot*, and see that it is laid out over as many shards as this store thinks."""
        protocol_address(bot, ())
        (slot, about), shards = self._layout.about(bot), self._layout.shards
        await self._ask(slot, "SET", about, shards, "NX")
        found = int(await self._ask(slot, "GET", about))
        if found != shards:
            raise SchemaError(
                f"this bot's conversations lie in {found} shards: open the store with ?shards={found}",
                url=self.url,
            )

    async def facts(self) -> Facts:
        """The server's version, the layout, and what a crash would take."""
        await self._opened()
        shards = f"{self._layout.shards} shards for each bot, keys begin with {self._layout.prefix}"
        return Facts(software(self._infos), shards, lost_in_a_crash(self._infos))

    # ------------------------------------------------------------------------------ the five primitives

    async def load(self, address: Address) -> Document:
        """The document at the address."""
        return (await self._loaded(address))[0]

    async def _loaded(self, address: Address) -> tuple[Document, float]:
        return document_of(await self._run("load", address, harmless=True))

    async def swap(self, address: Address, expected_version: int, document: Document) -> bool:
        """Replace the document if it is still the version expected."""
        kept, parts = words_of(document)
        params = (expected_version, kept, *map(len, parts))
        words = [word for part in parts for word in part]
        return bool(await self._run("swap", address, params, b"", *words))

    async def scan(self, bot: str, kind: Kind) -> AsyncIterator[Address]:
        """List page by page along the indexes of the shards."""
        if kind == "due":
            for address in await self.due(bot, 1_000_000):
                yield address
        elif kind == "everything":
            for realm in await self._realms(bot):
                async for address in self._lists.members(bot, realm):
                    yield address
        else:
            async for address, _ in self._lists.found(bot, kind):
                yield address

    async def _realms(self, bot: str) -> list[str]:
        """The realms in which a bot has anything, found by the names of their indexes on every server."""
        pattern, found = self._layout.indexes(bot), {""}
        for node in (await self._opened()).all():
            cursor = b"0"
            while True:
                cursor, names = await node.ask("SCAN", cursor, "MATCH", pattern, "COUNT", _SCAN_AT_ONCE)
                found |= {self._layout.realm_of(name) for name in names}
                if cursor == b"0":
                    break
        return sorted(found)

    # --------------------------------------------------------------------------------------- the engine

    async def now(self) -> float:
        """The server's time."""
        if self._is_manual:
            return self.clock()
        seconds, micros = await self._ask(0, "TIME")
        return int(seconds) + int(micros) / 1_000_000

    async def transact(
        self, address: Address, change: Callable[[Document, float], tuple[Document, _T]]
    ) -> _T:
        """Apply a pure change by compare-and-swap: two round trips when nobody is in between."""
        loop = asyncio.get_running_loop()
        end = loop.time() + self._timeout
        for attempt in range(_SWAPS):
            before, now = await self._loaded(address)
            after, answer = change(before, now)
            try:
                if after is before or await self.swap(address, before.version, after):
                    return answer
            except Lost:  # whether it was done is seen when the document is loaded again
                if loop.time() > end:
                    raise
            await asyncio.sleep(random.random() * min(attempt, 20) / 1000)
        raise StoreConflict(
            f"{_SWAPS} attempts to change one conversation met another writer each time", url=self.url
        )

    # ------------------------------------------------------------------------------------ FSM storage

    async def read(self, address: Address) -> Stored | None:
        """The record, unless it has expired."""
        return record_of(await self._run("read", address, harmless=True))

    async def set_state(self, bot: str, key: Key, record: Record) -> None:
        """Create or overwrite the record."""
        stored = from_record(record)
        await self._remember(bot, key, "state", stored.fields, record)

    async def set_data(self, bot: str, key: Key, data: dict[str, Any]) -> None:
        """Overwrite the data."""
        await self._remember(bot, key, "data", codec.encode(data))

    async def update_data(self, bot: str, key: Key, new: dict[str, Any]) -> dict[str, Any]:
        """Merge *new* in, on the server."""
        stored = await self._remember(bot, key, "update", codec.encode(new))
        return {} if stored is None else codec.decode(stored.fields)

    async def clear(self, bot: str, key: Key) -> None:
        """Remove the record."""
        await self._remember(bot, key, "clear", {})

    async def _remember(
        self, bot: str, key: Key, how: str, fields: codec.Fields, record: Record | None = None
    ) -> Stored | None:
        words = calls.field_words(fields)
        params, address = calls.record_words(how, words, record), Address(bot, "", key)
        return record_of(await self._run("remember", address, params, b"", *words, op=self.op()))

    # ----------------------------------------------------------------------------------------- turns

    async def accept(
        self, address: Address, event: Event, overlap: Overlap, owner: str, op: str | None, terms: Terms
    ) -> Answer:
        """See :func:`hitherto.protocol.accept`."""
        policy, gather = self._kept(overlap, calls.policy_words)
        params = calls.accept_words(event, owner, gather, terms)
        reply = await self._run("accept", address, params, policy, event.payload, op=op, terms=terms)
        return answer_of(reply, event.payload)

    async def settle(
        self, address: Address, claim: Claim, op: str | None, terms: Terms, *, patch: Patch = NO_PATCH,
        verdict: Verdict = "done", delay: float = 0.0, error: str = "", keep: bool = True,
    ) -> Answer:  # fmt: skip
        """See :func:`hitherto.protocol.settle`."""
        words = calls.field_words(patch.set)
        params = calls.settle_words(claim, patch, words, verdict, delay, error, keep, terms)
        shown = pack_words(calls.claim_words(claim))
        return answer_of(await self._run("settle", address, params, shown, *words, op=op, terms=terms))

    async def take_over(self, address: Address, owner: str, op: str | None, terms: Terms) -> Answer:
        """See :func:`hitherto.protocol.take_over`."""
        return answer_of(await self._run("take_over", address, (owner,), op=op, terms=terms))

    async def acquire(self, address: Address, owner: str, op: str | None, terms: Terms) -> Answer:
        """See :func:`hitherto.protocol.acquire`."""
        return answer_of(await self._run("acquire", address, (owner,), op=op, terms=terms))

    async def renew(self, claims: Sequence[tuple[Address, Claim]], terms: Terms) -> list[bool]:
        """Renew many claims in one go: the calls travel together."""
        renewed = await asyncio.gather(
            *[
                self._run("renew", address, (calls.claim_words(claim),), terms=terms, harmless=True)
                for address, claim in claims
            ]
        )
        return list(map(bool, renewed))

    async def release(self, address: Address, claim: Claim, op: str | None, terms: Terms) -> Answer:
        """See :func:`hitherto.protocol.release`."""
        words = (calls.claim_words(claim),)
        return answer_of(await self._run("release", address, words, op=op, terms=terms))

    async def force_release(self, address: Address, op: str | None, terms: Terms) -> Answer:
        """See :func:`hitherto.protocol.force_release`."""
        return answer_of(await self._run("force_release", address, op=op, terms=terms))

    async def retry_dead(self, address: Address, seq: int, op: str | None, terms: Terms) -> Answer:
        """See :func:`hitherto.protocol.retry_dead`."""
        return answer_of(await self._run("dead", address, (seq, True), op=op, terms=terms))

    async def drop_dead(self, address: Address, seq: int, op: str | None, terms: Terms) -> Answer:
        """See :func:`hitherto.protocol.drop_dead`."""
        return answer_of(await self._run("dead", address, (seq, False), op=op, terms=terms))

    async def forget(self, address: Address) -> None:
        """Erase everything at the address."""
        await self._run("forget", address, harmless=True)

    # ------------------------------------------------------------------------------- lists and housekeeping

    async def counts(self, bot: str) -> list[tuple[str | None, str | None, int]]:
        """How many records there are in each state of each flow."""
        return await self._lists.counts(bot)

    async def browse(
        self, bot: str, *, flow: str | None = None, state: str | None = None, after: str = "", limit: int = 50
    ) -> list[Listed]:
        """See :meth:`hitherto.stores.base.Store.browse`."""
        return await self._lists.browse(bot, flow, state, after, limit)

    async def due(self, bot: str, limit: int) -> list[Address]:
        """What has waited longest for the sweeper."""
        now = repr(self.clock()) if self._is_manual else ""
        return await self._lists.due(bot, now, limit)

    async def expire(self, bot: str, limit: int, terms: Terms) -> int:
        """Tidy what is over in the next *limit* conversations, going round; remove what is void."""
        addresses, self._rounds_at[bot] = await self._lists.round(bot, self._rounds_at.get(bot), limit)
        tidied = await asyncio.gather(
            *[self._run("expire", address, terms=terms, harmless=True) for address in addresses]
        )
        return sum(tidied)

    # ------------------------------------------------------------------------------------------- pieces

    async def _run(
        self,
        name: str,
        address: Address,
        params: tuple[Any, ...] = (),
        *words: bytes,
        op: str | None = None,
        terms: Terms = DEFAULT_TERMS,
        harmless: bool = False,
    ) -> Any:
        """The reply of a script about one conversation; *harmless*: it may be done twice, as may all with an
        operation id.
        """
        nodes, loop = self._nodes, asyncio.get_running_loop()
        if nodes is None or self._home != (os.getpid(), loop):
            nodes = await self._opened()
        place = self._kept(address, self._layout.place)
        called = script(name)
        limits = self._kept(terms, calls.terms_words)
        pieces = (called.sha, place, op, params, limits, words)
        packed = self._packed(*pieces, calls.may_repeat(op))
        began = loop.time()
        try:
            return await nodes.node(place.slot).gather(packed, len(packed))
        except (ServerError, StoreUnavailable) as error:
            again = partial(self._packed, *pieces, op is not None)
            return await nodes.again(place.slot, error, began, again, harmless or op is not None)

    def _packed(
        self, sha: bytes, place: Place, op: str | None, params: tuple[Any, ...], limits: bytes,
        words: tuple[bytes, ...], is_repeat: bool,
    ) -> bytes:  # fmt: skip
        """The command; what every script is told comes first."""
        now = self.clock() if self._is_manual else False
        known = False if op is None else str(op)
        told = pack_words((now, known, place.member, place.indexed, is_repeat, *params))
        return pack((b"EVALSHA", sha, len(place.keys), *place.keys, told, limits, *words))

    async def _ask(self, slot: int, *words: bytes | str | int) -> Any:
        """The reply of a slot's server to a command that may be done twice."""
        nodes, packed = await self._opened(), pack(words)
        began = asyncio.get_running_loop().time()
        try:
            return await nodes.node(slot).gather(packed, len(packed))
        except (ServerError, StoreUnavailable) as error:
            return await nodes.again(slot, error, began, lambda: packed, True)

    async def _glance(self, address: Address) -> bytes | None:
        found: bytes | None = await self._run("glance", address, harmless=True)
        return found

    def _kept(self, value: Any, words: Callable[[Any], Any]) -> Any:
        """What *words* makes of a frozen value, remembered by its identity."""
        known = self._words.get(id(value))
        if known is None:
            if len(self._words) > 1000:
                self._words.clear()
            known = self._words[id(value)] = (value, words(value))
        return known[1]
