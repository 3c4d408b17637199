"""The store for tests, prototypes and bots that may forget: documents in a dict.

Linearizable within one event loop, because no step awaits. A busy conversation is listed in a small index for
the sweeper; an idle one costs its document and nothing else.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from typing import TypeVar

from hitherto import protocol, quick
from hitherto.addresses import Address, decode, encode
from hitherto.errors import BadStoreURL
from hitherto.overlap import Overlap
from hitherto.protocol import EMPTY, Answer, Claim, Document, Event, Terms, Verdict
from hitherto.records import NO_PATCH, Patch
from hitherto.stores.base import Facts, Kind, Store, is_filed

_T = TypeVar("_T")


class MemoryStore(Store):
    """Everything in this process's memory, gone when it ends."""

    url = "memory://"
    abilities = frozenset({"reopens"})

    def __init__(self, *, clock: Callable[[], float] = time.time) -> None:
        super().__init__(clock=clock)
        self._documents: dict[str, Document] = {}
        self._active: set[str] = set()
        self._round: list[str] = []

    @classmethod
    def from_url(cls, url: str) -> MemoryStore:
        """``memory://``; it takes no options."""
        if url.rstrip("/") != "memory:":
            raise BadStoreURL(
                f"{url}: the memory store is just memory:// and takes no path or options", url=url
            )
        return cls()

    def __repr__(self) -> str:
        return f"MemoryStore(<{len(self._documents)} conversations>)"

    def op(self) -> None:
        """No id: a reply cannot be lost here."""
        return

    async def open(self) -> None:
        """Nothing to open."""

    async def close(self) -> None:
        """Nothing to close; what was kept stays, for as long as the object does."""

    async def facts(self) -> Facts:
        """Nothing is durable here."""
        return Facts("this process", "none", "everything, also when the process just ends")

    async def load(self, address: Address) -> Document:
        """The document, shared and immutable."""
        return self._documents.get(encode(address), EMPTY)

    async def swap(self, address: Address, expected_version: int, document: Document) -> bool:
        """Replace the document if it is still the version expected."""
        text = encode(address)
        if self._documents.get(text, EMPTY).version != expected_version:
            return False
        self._put(text, document)
        return True

    async def scan(self, bot: str, kind: Kind) -> AsyncIterator[Address]:
        """Go through a copy of the index that fits, so that changes meanwhile do no harm."""
        now = self.clock()
        for text in list(self._active if kind in ("due", "lease", "pending") else self._documents):
            document = self._documents.get(text)
            if document is not None:
                address = decode(text)
                if address.bot == bot and is_filed(address, document, kind, now):
                    yield address

    async def transact(
        self, address: Address, change: Callable[[Document, float], tuple[Document, _T]]
    ) -> _T:
        """Apply the change at once: nothing can come in between."""
        text = encode(address)
        before = self._documents.get(text, EMPTY)
        after, answer = change(before, self.clock())
        if after is not before:
            self._put(text, after)
        return answer

    async def accept(
        self, address: Address, event: Event, overlap: Overlap, owner: str, op: str | None, terms: Terms
    ) -> Answer:
        """The protocol's accept, by the short way where it is one."""
        text = encode(address)
        before = self._documents.get(text, EMPTY)
        after, answer = quick.accept(before, self.clock(), op, event, overlap, owner, terms)
        if after is not before:
            self._put(text, after)
        return answer

    async def settle(
        self, address: Address, claim: Claim, op: str | None, terms: Terms, *, patch: Patch = NO_PATCH,
        verdict: Verdict = "done", delay: float = 0.0, error: str = "", keep: bool = True,
    ) -> Answer:  # fmt: skip
        """The protocol's settle, by the short way where it is one."""
        text, now = encode(address), self.clock()
        before = self._documents.get(text, EMPTY)
        after, answer = quick.settle(
            before, now, op, claim, terms,
            patch=patch, verdict=verdict, not_before=now + delay if delay else 0.0, error=error, keep=keep,
        )  # fmt: skip
        if after is not before:
            self._put(text, after)
        return answer

    async def expire(self, bot: str, limit: int, terms: Terms) -> int:
        """Tidy the next *limit* conversations, going round; remove what is void."""
        if not self._round:
            self._round = list(self._documents)
        changed, now = 0, self.clock()
        for _ in range(min(limit, len(self._round))):
            text = self._round.pop()
            before = self._documents.get(text)
            if before is None or decode(text).bot != bot:
                continue
            after = protocol.expire(before, now, terms)
            if protocol.is_void(after, now, terms):
                self._documents.pop(text, None)
                self._active.discard(text)
                changed += 1
            elif after is not before:
                self._put(text, after)
                changed += 1
        return changed

    def _put(self, text: str, document: Document) -> None:
        if document.lease is None and not document.inbox:
            self._active.discard(text)
            if protocol.is_blank(document):
                self._documents.pop(text, None)
                return
        else:
            self._active.add(text)
        self._documents[text] = document
