"""A storage of your own, with only the seven methods of the FSM contract, made into a store.

Records live in the storage; leases, the inbox, seen ids and everything else live in memory of this process,
which is one for all stores around one storage. So turns are ordered and exclusive within the process, and a
warning says that they are only there. A turn's record is loaded before it is granted; when it commits, the
storage is written first and the turn counts as done only after that: a failing storage loses no event.
"""

from __future__ import annotations

import asyncio
import sys
import time
import warnings
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from inspect import isawaitable
from typing import Any, Final, TypeAlias
from weakref import WeakValueDictionary, finalize

from msgspec.structs import replace

from hitherto import addresses, codec, protocol
from hitherto.addresses import Address, Key
from hitherto.errors import DataError, HithertoError, StoreError, StoreUnavailable, StoreWarning
from hitherto.overlap import ByFlow, Overlap
from hitherto.patience import UNDER_WAY
from hitherto.protocol import Answer, Claim, Document, Event, Step, Terms, Verdict
from hitherto.records import NO_PATCH, Patch, Record, Stored, from_record
from hitherto.stores.memory import MemoryStore

METHODS: Final = ("init", "get_state", "set_state", "get_data", "set_data", "update_data", "clear")

_Change: TypeAlias = Callable[[Document, float], Step]


class AdaptedStore(MemoryStore):
    """A store around *storage*, any object with the seven methods of :class:`hitherto.contracts.FSMStorage`.

    Its records may be :class:`Record`, dicts, or objects with ``flow``, ``state`` and ``data``. It expires no
    records, and it can list only the conversations that are busy in this process.
    """

    url = ""

    def __init__(self, storage: Any, *, clock: Callable[[], float] = time.time) -> None:
        missing = [name for name in METHODS if not callable(getattr(storage, name, None))]
        if missing:
            raise TypeError(
                f"{type(storage).__name__} is no storage: it lacks {', '.join(missing)}; "
                "give a URL, a Store, or an object with the seven methods of hitherto.contracts.FSMStorage"
            )
        super().__init__(clock=clock)
        self.storage = storage
        self._documents, self._active, self._alone = _shared(storage)
        self._finishing: set[asyncio.Task[Any]] = set()
        self._warn("turns are ordered and exclusive within this process only")

    def _warn(self, what: str) -> None:
        warnings.warn(
            f"{type(self.storage).__name__} is a storage with the seven methods only, so {what}; "
            "use SQLite, Redis or PostgreSQL for more",
            StoreWarning,
            stacklevel=_callers_level(),
        )

    def __repr__(self) -> str:
        return f"AdaptedStore({type(self.storage).__name__})"

    # ------------------------------------------------------------------------------------- FSM storage

    async def init(self, bot: str, **options: object) -> None:
        """Handed to the storage, with every option."""
        await super().init(bot)
        if options.get("record_ttl") is not None:
            self._warn("records never expire: record_ttl has no effect")
        await self._ask("init", bot, **options)

    async def get_state(self, bot: str, key: Key) -> Record | None:
        """Asked of the storage."""
        stored = await self._fetch(Address(bot, "", key))
        return None if stored is None else stored.to_record()

    async def set_state(self, bot: str, key: Key, record: Record) -> None:
        """Handed to the storage, after the data was checked."""
        stored = from_record(record)
        async with self._only(Address(bot, "", key)):
            await self._ask("set_state", bot, key, stored.to_record())

    async def get_data(self, bot: str, key: Key) -> dict[str, Any] | None:
        """Asked of the storage."""
        data = await self._ask("get_data", bot, key)
        return None if data is None else codec.decode(codec.encode(data))

    async def set_data(self, bot: str, key: Key, data: dict[str, Any]) -> None:
        """Handed to the storage, after the data was checked."""
        fields = codec.encode(data)
        async with self._only(Address(bot, "", key)):
            await self._ask("set_data", bot, key, codec.decode(fields))

    async def update_data(self, bot: str, key: Key, new: dict[str, Any]) -> dict[str, Any]:
        """Handed to the storage, after the data was checked; one at a time in this process."""
        fields = codec.encode(new)
        async with self._only(Address(bot, "", key)):
            data = await self._ask("update_data", bot, key, codec.decode(fields))
        return codec.decode(codec.encode(data))

    async def clear(self, bot: str, key: Key) -> None:
        """Handed to the storage."""
        async with self._only(Address(bot, "", key)):
            await self._ask("clear", bot, key)

    async def read(self, address: Address) -> Stored | None:
        """The record, from the storage for a conversation."""
        return await super().read(address) if address.realm else await self._fetch(address)

    async def write(
        self, address: Address, change: Callable[[Stored | None], Stored | None]
    ) -> Stored | None:
        """Replace the record, in the storage for a conversation, with nobody of this process in between."""
        if address.realm:
            return await super().write(address, change)
        async with self._only(address):
            before = await self._fetch(address)
            after = change(before)
            await self._keep(address, before, after)
        return after

    # ------------------------------------------------------------------------------------------- turns

    async def accept(
        self, address: Address, event: Event, overlap: Overlap, owner: str, op: str | None, terms: Terms
    ) -> Answer:
        """As every store; the record of what is granted comes from the storage."""
        return await self._turn(
            address,
            lambda doc, now: protocol.accept(doc, now, op, event, overlap, owner, terms),
            by_record=isinstance(overlap, ByFlow),
        )

    async def take_over(self, address: Address, owner: str, op: str | None, terms: Terms) -> Answer:
        """As every store; the record of what is granted comes from the storage."""
        return await self._turn(address, lambda doc, now: protocol.take_over(doc, now, op, owner, terms))

    async def acquire(self, address: Address, owner: str, op: str | None, terms: Terms) -> Answer:
        """As every store; the record of what is granted comes from the storage."""
        return await self._turn(address, lambda doc, now: protocol.acquire(doc, now, op, owner, terms))

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
        """As every store, and the storage is written before anything counts as done.

        Once begun it is finished, also when the caller is cancelled meanwhile.
        """

        def change(document: Document, now: float) -> Step:
            return protocol.settle(
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
            )

        if not patch:
            return await self._turn(address, change)
        finishing = asyncio.ensure_future(self._commit(address, claim, terms, change))
        self._finishing.add(finishing)
        finishing.add_done_callback(self._finished)
        try:
            return await asyncio.shield(finishing)
        except asyncio.CancelledError as cancelled:
            setattr(cancelled, UNDER_WAY, partial(asyncio.shield, finishing))
            raise

    def _finished(self, task: asyncio.Task[Any]) -> None:
        self._finishing.discard(task)
        if not task.cancelled():
            task.exception()

    async def release(self, address: Address, claim: Claim, op: str | None, terms: Terms) -> Answer:
        """As every store, but not while a commit is under way."""
        return await self._turn(address, lambda doc, now: protocol.release(doc, now, op, claim, terms))

    async def force_release(self, address: Address, op: str | None, terms: Terms) -> Answer:
        """As every store, but not while a commit is under way."""
        return await self._turn(address, lambda doc, now: protocol.force_release(doc, now, op, terms))

    async def forget(self, address: Address) -> None:
        """Erase everything, the record in the storage too."""
        if not address.realm:
            await self.clear(address.bot, address.key)
        await super().forget(address)

    async def _turn(self, address: Address, change: _Change, by_record: bool = False) -> Answer:
        """Apply a change to the document in memory; the storage is asked only when the record matters."""
        async with self._only(address):
            _, answer = change(await self.load(address), self.clock())
            needed = by_record or answer.grant is not None
            stored = await self._fetch(address) if needed else None
            return await self.transact(address, _with(stored, change))

    async def _commit(self, address: Address, claim: Claim, terms: Terms, change: _Change) -> Answer:
        async with self._only(address):
            before = await self._fetch(address)
            after, _ = change(replace(await self.load(address), record=before), self.clock())
            await self.transact(address, lambda doc, now: protocol.renew(doc, now, claim, terms))
            await self._keep(address, before, after.record)
            return await self.transact(address, _with(before, change))

    # ------------------------------------------------------------------------------------- the storage

    @asynccontextmanager
    async def _only(self, address: Address) -> AsyncIterator[None]:
        """One at a time per conversation; the lock is gone when nobody uses it."""
        text = addresses.encode(address)
        lock = self._alone.get(text)
        if lock is None:
            lock = self._alone[text] = asyncio.Lock()
        async with lock:
            yield

    async def _fetch(self, address: Address) -> Stored | None:
        found = await self._ask("get_state", address.bot, address.key)
        return None if found is None else from_record(_as_record(found))

    async def _keep(self, address: Address, before: Stored | None, after: Stored | None) -> None:
        if after == before:
            return
        if after is None:
            await self._ask("clear", address.bot, address.key)
        else:
            await self._ask("set_state", address.bot, address.key, after.to_record())

    async def _ask(self, method: str, *arguments: object, **options: object) -> Any:
        """Call the storage; whatever it raises becomes a StoreError with its cause."""
        try:
            answer = getattr(self.storage, method)(*arguments, **options)
            return await answer if isawaitable(answer) else answer
        except HithertoError:
            raise
        except Exception as error:
            away = isinstance(error, OSError)
            raise (StoreUnavailable if away else StoreError)(
                f"{type(self.storage).__name__}.{method} failed with {type(error).__name__}; nothing was "
                "marked as done: see the cause"
            ) from error


def _callers_level() -> int:
    """How far above the caller of this the first frame outside the package is, for a warning."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).startswith("hitherto."):
        level, frame = level + 1, frame.f_back
    return level


_Shared: TypeAlias = tuple[dict[str, Document], set[str], WeakValueDictionary[str, asyncio.Lock]]
_SHARED: Final[dict[int, _Shared]] = {}


def _shared(storage: Any) -> _Shared:
    """What all stores around one storage share, so that the keepers of a process see each other."""
    known = _SHARED.get(id(storage))
    if known is None:
        known = ({}, set(), WeakValueDictionary())
        try:
            finalize(storage, _SHARED.pop, id(storage), None)
        except TypeError:
            return known
        _SHARED[id(storage)] = known
    return known


def _with(stored: Stored | None, change: _Change) -> _Change:
    """The change made with the storage's record in the document, and the document kept without it."""

    def changed(document: Document, now: float) -> Step:
        whole = replace(document, record=stored)
        after, answer = change(whole, now)
        return (document if after is whole else replace(after, record=None)), answer

    return changed


def _as_record(found: Any) -> Record:
    """A storage's record as ours: a Record, a dict, or an object with flow, state and data."""
    if isinstance(found, Record):
        return found
    names = ("flow", "state", "data", "version")
    parts = found if isinstance(found, Mapping) else {name: getattr(found, name, None) for name in names}
    if not isinstance(found, Mapping) and not hasattr(found, "state"):
        raise DataError(
            f"get_state gave {type(found).__name__}; it gives a Record, a dict, or flow, state and data",
            path="record",
        )
    return Record(parts.get("flow"), parts.get("state"), parts.get("data") or {}, parts.get("version") or 1)
