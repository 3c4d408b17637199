"""aiogram's own storage and event isolation on any store: for bots that keep their handlers as they are.

    storage = HithertoStorage("sqlite:///bot.db")
    dispatcher = Dispatcher(storage=storage, events_isolation=storage.create_isolation())

Each ``StorageKey`` is a conversation of its own: bot, chat, user, topic, business connection and destiny are
separate parts of its key, so that nothing collides. A state ``Form:name`` is kept as state ``name`` of flow
``Form``.

Used together, the isolation takes the lease of a conversation and its record in one trip; what the handler
reads and writes is that record, in memory; and one more trip commits what changed and gives the lease back.
What is written elsewhere, without the isolation, goes straight to the store, and merging is atomic there too.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any, Final

from hitherto import adapting, codec
from hitherto.adapting import join_state
from hitherto.addresses import Address, Key
from hitherto.errors import DataError, Fenced, MissingExtra, StoreError
from hitherto.holding import Holder, Unit
from hitherto.protocol import Terms
from hitherto.records import BLANK, NO_PATCH, Stored, merged
from hitherto.stores import Store, open_store

try:
    from aiogram.dispatcher.event.bases import CancelHandler, SkipHandler
    from aiogram.exceptions import DataNotDictLikeError
    from aiogram.fsm.state import State
    from aiogram.fsm.storage.base import BaseEventIsolation, BaseStorage, StateType, StorageKey
except ImportError as missing:
    raise MissingExtra("hitherto.aiogram", "aiogram") from missing

__all__ = ["HithertoIsolation", "HithertoStorage", "join_state", "key_of", "split_state"]

NAME: Final = "aiogram"
_CONTROL = (CancelHandler, SkipHandler)
_LAST_GRACE = 5.0
_log = logging.getLogger("hitherto")


def key_of(key: StorageKey) -> Key:
    """The conversation of a StorageKey: all its parts, each in its place."""
    return (
        key.bot_id, key.chat_id, key.user_id, key.thread_id, key.business_connection_id, key.destiny
    )  # fmt: skip


def split_state(state: StateType) -> tuple[str | None, str | None]:
    """The flow and state that aiogram's text stands for; what has no group is a state of no flow."""
    text = state.state if isinstance(state, State) else state
    if text is None:
        return None, None
    if not isinstance(text, str):
        raise DataError(f"state: {type(text).__name__}; a state is text, a State or None", path="state")
    text = str.__str__(text)
    codec.check(text, "state")
    return adapting.split_state(text)


_open_units: ContextVar[Mapping[tuple[int, StorageKey], Unit]] = ContextVar("hitherto_units")
"""The units that the running handler is in, by the holder that opened them."""


class HithertoStorage(BaseStorage):
    """aiogram's FSM storage on any store: a URL, or a Store, which then is not closed with the storage.

    Data is what JSON can hold; everything else is a ``DataError`` that names the path. What a handler wrote
    before it raised is kept, as with aiogram's storages; ``rollback=True`` lets a step that raises write
    nothing. *lease* is how long a conversation stays locked after a crash. *name* is the bot in the store.
    """

    def __init__(
        self,
        store: str | Store,
        *,
        name: str = NAME,
        lease: float = 30.0,
        deadline: float = 10.0,
        rollback: bool = False,
    ) -> None:
        self._owned = isinstance(store, str)
        self.store = open_store(store) if isinstance(store, str) else store
        self.name = name
        self.rollback = rollback
        self.holder = Holder(self.store, name, Terms(lease=lease), deadline, self._owned)

    def __repr__(self) -> str:
        return f"HithertoStorage({self.store!r}, name={self.name!r})"

    def create_isolation(self) -> HithertoIsolation:
        """The event isolation that goes with this storage."""
        return HithertoIsolation(self)

    async def close(self) -> None:
        """Let the steps that run finish, for a few seconds, and close the store if it was given as a URL."""
        await self.holder.drained(_LAST_GRACE)
        self.holder.opened = False
        if self._owned:
            await self.store.close()

    async def set_state(self, key: StorageKey, state: StateType = None) -> None:
        """Set the state; the data stays."""
        flow, name = split_state(state)

        def moved(stored: Stored | None) -> Stored | None:
            base = stored or BLANK
            return _or_none(Stored(flow, name, base.version, base.fields, base.expires_at))

        await self._write(key, moved)

    async def get_state(self, key: StorageKey) -> str | None:
        """The state, or None."""
        stored = await self._read(key)
        return None if stored is None else join_state(stored.flow, stored.state)

    async def set_data(self, key: StorageKey, data: Mapping[str, Any]) -> None:
        """Replace the data; the state stays."""
        fields = _fields(data)

        def replaced(stored: Stored | None) -> Stored | None:
            base = stored or BLANK
            return _or_none(Stored(base.flow, base.state, base.version, fields, base.expires_at))

        await self._write(key, replaced)

    async def get_data(self, key: StorageKey) -> dict[str, Any]:
        """The data, a dict of the caller's own."""
        stored = await self._read(key)
        return {} if stored is None else codec.decode(stored.fields)

    async def get_value(self, storage_key: StorageKey, dict_key: str, default: Any = None) -> Any:
        """One value of the data."""
        stored = await self._read(storage_key)
        if stored is None or dict_key not in stored.fields:
            return default
        return codec.decode({dict_key: stored.fields[dict_key]})[dict_key]

    async def update_data(self, key: StorageKey, data: Mapping[str, Any]) -> dict[str, Any]:
        """Merge into the data, atomically, and give the whole of it."""
        fields, unit = _fields(data), self.unit(key)
        if not fields:
            return await self.get_data(key)
        if unit is not None:
            unit.record = merged(unit.record, fields)
            return codec.decode(unit.record.fields)
        await self.holder.open()
        place = key_of(key)
        return await self.holder.patience(lambda: self.store.update_data(self.name, place, dict(data)))

    # -------------------------------------------------------------------------------------------- pieces

    def address(self, key: StorageKey) -> Address:
        """Where a key is kept."""
        return Address(self.name, "", key_of(key))

    def unit(self, key: StorageKey) -> Unit | None:
        """The unit of the step that runs now, if it holds this key."""
        unit = _open_units.get({}).get((id(self.holder), key))
        return None if unit is None or unit.closed else unit

    async def _read(self, key: StorageKey) -> Stored | None:
        unit = self.unit(key)
        if unit is not None:
            return unit.record
        await self.holder.open()
        return await self.holder.patience(lambda: self.store.read(self.address(key)))

    async def _write(self, key: StorageKey, change: Callable[[Stored | None], Stored | None]) -> None:
        unit = self.unit(key)
        if unit is not None:
            unit.record = change(unit.record)
            return
        await self.holder.open()
        await self.holder.patience(lambda: self.store.write(self.address(key), change))


class HithertoIsolation(BaseEventIsolation):
    """One step of a conversation at a time, over all workers: in order of arrival here, renewed, fenced.

    A step that lost its lease commits nothing: ``Fenced`` is raised where the lock ends, unless nothing was
    to be written, or the handler has raised already.
    """

    def __init__(self, storage: HithertoStorage) -> None:
        self.storage = storage

    @asynccontextmanager
    async def lock(self, key: StorageKey) -> AsyncGenerator[None, None]:
        """Hold the conversation of *key* while the block runs, and commit what it wrote."""
        holder = self.storage.holder
        unit = await holder.take(self.storage.address(key))
        units = _open_units.get({})
        _open_units.set({**units, (id(holder), key): unit})
        try:
            yield
        except BaseException as error:
            await self._end(unit, error)
            raise
        else:
            await self._end(unit)

    async def close(self) -> None:
        """Nothing: the storage closes what both of them use."""

    async def _end(self, unit: Unit, error: BaseException | None = None) -> None:
        unit.closed = True
        _open_units.set({key: one for key, one in _open_units.get({}).items() if one is not unit})
        discard = self.storage.rollback and error is not None and not isinstance(error, _CONTROL)
        patch = NO_PATCH if discard else unit.patch()
        try:
            answer = await self.storage.holder.settle(unit, patch)
        except StoreError as trouble:
            _log.warning("isolation.uncommitted error=%s", type(trouble).__name__)
            if error is None:
                raise
            return
        if answer.status == "fenced":
            _log.warning("isolation.fenced: the lease was lost, nothing was written")
            if patch and error is None:
                raise Fenced(epoch=unit.claim.epoch)


def _or_none(stored: Stored) -> Stored | None:
    """Nothing to remember is no record."""
    return stored if stored.state is not None or stored.fields or stored.flow is not None else None


def _fields(data: object) -> codec.Fields:
    if not isinstance(data, dict):
        raise DataNotDictLikeError(f"Data must be a dict or dict-like object, got {type(data).__name__}")
    return codec.encode(dict(data))
