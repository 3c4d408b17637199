"""Conversations in Redis or Valkey: one server, sentinels or a cluster, shared by as many workers as like.

Each operation of the protocol is one Lua script and one round trip; operations that wait at the same moment
travel together. How keys are laid out is told in :mod:`hitherto.stores.redis.layout`.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Final, TypeVar

import msgspec

from hitherto import addresses, codec
from hitherto.addresses import Address, Key
from hitherto.errors import BadStoreURL, DataError, StoreConflict, StoreUnavailable
from hitherto.overlap import Burst, ByFlow, Concurrent, Debounce, Overlap, Policy, Queue, Reject
from hitherto.protocol import Answer, Claim, Document, Event, Terms, Verdict
from hitherto.records import NO_PATCH, Patch, Record, Stored, from_record
from hitherto.stores.base import DEFAULT_TERMS, KINDS, Kind, Store
from hitherto.stores.redis.documents import answer_of, document_of, record_of, words_of
from hitherto.stores.redis.layout import Layout, Place
from hitherto.stores.redis.nodes import Single
from hitherto.stores.redis.scripts import Script, script
from hitherto.stores.redis.urls import Servers, servers_of_client, servers_of_url
from hitherto.stores.redis.wire import ServerError, pack

__all__ = ["RedisStore"]

_T = TypeVar("_T")
_encode = msgspec.msgpack.Encoder().encode
_SWAPS: Final = 200
_NO_PATCH: Final = (False, False, False, False, 1, 0, False, False)
_SCRIPTS: Final = {name: script(name) for name in ("accept", "settle")}


class RedisStore(Store):
    """Conversations in Redis or Valkey, found by a URL or through a client of your own.

    Redis' own clock decides; *clock* replaces it in tests. *shards* is fixed for a bot once it has
    conversations. *timeout* is how many seconds one call may take. A client is never closed for you.
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
            servers, own = servers_of_url(client)
            prefix, shards = own.get("prefix", prefix), own.get("shards", shards)
            timeout = own.get("timeout", timeout)
        else:
            servers = servers_of_client(client)
        self.url = servers.url
        self._servers, self._timeout = servers, timeout
        self._layout = Layout(prefix, shards)
        self._nodes: Single | None = None
        self._words: dict[int, tuple[object, Any]] = {}

    @classmethod
    def from_url(cls, url: str) -> RedisStore:
        """``redis://[user:password@]host:port/db`` and its relatives; see the module's list of options."""
        return cls(url)

    def __repr__(self) -> str:
        return f"RedisStore({self.url!r})"

    # ------------------------------------------------------------------------------ the five primitives

    async def open(self) -> None:
        """Connect and check the server."""
        if self._nodes is None:
            assert self._servers.make is not None
            nodes = Single(self._servers.make, self._timeout, self.url)
            await nodes.open()
            self._nodes = nodes

    async def close(self) -> None:
        """Let go of the connections; a client of your own stays as it is."""
        nodes, self._nodes = self._nodes, None
        if nodes is not None:
            await nodes.close()

    async def load(self, address: Address) -> Document:
        """The document at the address."""
        return (await self._loaded(address))[0]

    async def _loaded(self, address: Address) -> tuple[Document, float]:
        place = self._layout.place(address)
        return document_of(await self._run("load", place, DEFAULT_TERMS, self._common(place, None)))

    async def swap(self, address: Address, expected_version: int, document: Document) -> bool:
        """Replace the document if it is still the version expected."""
        place = self._layout.place(address)
        kept, words = words_of(document)
        params = (*self._common(place, None), expected_version, kept, *map(len, words))
        return bool(
            await self._run(
                "swap", place, DEFAULT_TERMS, params, b"", *[word for part in words for word in part]
            )
        )

    async def scan(self, bot: str, kind: Kind) -> AsyncIterator[Address]:
        """TODO."""
        if False:
            yield Address(bot, "", ())

    # --------------------------------------------------------------------------------------- the engine

    async def now(self) -> float:
        """The server's time."""
        if self._is_manual:
            return self.clock()
        seconds, micros = await self._any_node().ask("TIME")
        return int(seconds) + int(micros) / 1_000_000

    def op(self) -> str:
        """A fresh operation id."""
        return _Op(next(self._ops))

    async def transact(
        self, address: Address, change: Callable[[Document, float], tuple[Document, _T]]
    ) -> _T:
        """Apply a pure change by compare-and-swap: two round trips when nobody is in between."""
        for attempt in range(_SWAPS):
            before, now = await self._loaded(address)
            after, answer = change(before, now)
            if after is before or await self.swap(address, before.version, after):
                return answer
            await asyncio.sleep(random.random() * min(attempt, 20) / 1000)
        raise StoreConflict(f"{_SWAPS} attempts to change one conversation met another writer each time")

    # ----------------------------------------------------------------------------------------- turns

    async def accept(
        self, address: Address, event: Event, overlap: Overlap, owner: str, op: str | None, terms: Terms
    ) -> Answer:
        """See :func:`hitherto.protocol.accept`."""
        place = self._layout.place(address)
        policy, gather = self._kept(overlap, _policy_words)
        params = (
            *self._common(place, op), owner, False if event.id is None else event.id, gather,
            terms.lease, terms.ops_limit, terms.ops_age,
        )  # fmt: skip
        return answer_of(
            await self._run("accept", place, terms, params, policy, event.payload), event.payload
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
        """See :func:`hitherto.protocol.settle`."""
        place = self._layout.place(address)
        words = _field_words(patch.set)
        one = len(claim.seqs) == 1 and not claim.lone
        params = (
            *self._common(place, op), claim.epoch if one else False, verdict, delay, error, keep,
            *(_patch_words(patch, words) if patch else _NO_PATCH), claim.seqs[0] if one else 0,
            terms.ops_limit, terms.ops_age, terms.seen_limit, terms.seen_age, terms.record_ttl is not None,
            codec.MAX_BYTES,
        )  # fmt: skip
        return answer_of(await self._run("settle", place, terms, params, _claim_words(claim), *words))

    # ------------------------------------------------------------------------------------------- pieces

    def _common(self, place: Place, op: str | None) -> tuple[Any, ...]:
        return (
            self.clock() if self._is_manual else False,
            False if op is None else str(op),
            place.member,
            place.indexed,
            _may_repeat(op),
        )

    def _kept(self, value: Any, words: Callable[[Any], Any]) -> Any:
        """What *words* makes of a frozen value, remembered by its identity."""
        known = self._words.get(id(value))
        if known is None:
            if len(self._words) > 1000:
                self._words.clear()
            known = self._words[id(value)] = (value, words(value))
        return known[1]

    def _any_node(self) -> Any:
        assert self._nodes is not None
        return self._nodes.node(0)

    async def _run(
        self, name: str, place: Place, terms: Terms, params: tuple[Any, ...], *words: bytes
    ) -> Any:
        nodes = self._nodes
        if nodes is None:
            await self.open()
            nodes = self._nodes
            assert nodes is not None
        called = script(name)
        packed = pack(
            (b"EVALSHA", called.sha, 8, *place.keys, _encode(params), self._kept(terms, _terms_words), *words)
        )
        return await nodes.node(place.slot).gather(packed, len(packed))


class _Op(str):
    """An operation id of this process, which knows whether it was sent: what was not cannot be a repeat."""

    __slots__ = ("sent",)


def _may_repeat(op: str | None) -> bool:
    if type(op) is not _Op:
        return op is not None
    if hasattr(op, "sent"):
        return True
    op.sent = True
    return False


def _terms_words(terms: Terms) -> bytes:
    return _encode((
        terms.lease, terms.max_attempts, terms.seen_limit, terms.seen_age, terms.ops_limit, terms.ops_age,
        terms.dead_limit, False if terms.record_ttl is None else terms.record_ttl, terms.tombstone,
        terms.retry_in_order, codec.MAX_BYTES,
    ))  # fmt: skip


def _policy_words(overlap: Overlap) -> tuple[bytes, str | bool]:
    """A policy, packed, and what an entry of a free conversation gathers when nothing has to be asked."""
    simple = not isinstance(overlap, ByFlow | Concurrent) and not (
        isinstance(overlap, Burst) and overlap.gather and overlap.window > 0
    )
    gather = "burst" if isinstance(overlap, Burst) else ""
    return _encode(_overlap_words(overlap)), gather if simple else False


def _overlap_words(overlap: Overlap) -> Any:
    if isinstance(overlap, ByFlow):
        flows = {name: _overlap_words(policy) for name, policy in overlap.flows.items()}
        return ("by_flow", _overlap_words(overlap.default), flows)
    if isinstance(overlap, Queue):
        expires = False if overlap.expires is None else overlap.expires
        return ("queue", overlap.limit, overlap.on_full, expires, 0, False)
    if isinstance(overlap, Debounce):
        return ("debounce", 0, "", False, overlap.window, False)
    if isinstance(overlap, Burst):
        return ("burst", overlap.limit, "", False, overlap.window, overlap.gather)
    if isinstance(overlap, Concurrent):
        return ("concurrent", overlap.limit, "", False, 0, False)
    return ("reject", 0, "", False, 0, False)


def _claim_words(claim: Claim) -> Any:
    return _encode((claim.epoch, claim.seqs, claim.lone, claim.attempt))


def _field_words(fields: dict[str, bytes]) -> list[bytes]:
    words: list[bytes] = []
    for key, text in fields.items():
        words += (key.encode(), text)
    return words


def _patch_words(patch: Patch, words: list[bytes]) -> Any:
    removed = patch.removed and [key for key in patch.removed if key not in patch.set]
    flow = False if patch.flow is None else patch.flow
    state = False if patch.state is None else patch.state
    size = sum(map(len, words))
    return (True, patch.moved, flow, state, patch.version, size, patch.cleared, removed or False)
