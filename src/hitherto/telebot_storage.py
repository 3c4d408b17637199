"""pyTelegramBotAPI's state storages on any store: `HithertoStorage` for TeleBot, the same for AsyncTeleBot.

Bot, chat, user, topic and business connection are separate parts of a key, so that nothing collides. A state
``Form:name`` is kept as state ``name`` of flow ``Form``. Data is what JSON can hold, numbers as keys too.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Final, TypeVar

from hitherto.adapting import join_state, split_state
from hitherto.addresses import Address, Key
from hitherto.errors import MissingExtra
from hitherto.packing import pack, unpack
from hitherto.patience import Patience, SystemClock
from hitherto.records import BLANK, Stored, difference
from hitherto.stores import Store, open_store
from hitherto.threads import Background

try:
    from telebot import types
    from telebot.asyncio_storage import StateStorageBase as AsyncBase
    from telebot.storage import StateStorageBase
except ImportError as missing:
    raise MissingExtra("hitherto.telebot", "telebot") from missing

__all__ = ["AsyncHithertoStorage", "HithertoStorage", "key_of", "state_of", "state_text"]

NAME: Final = "telebot"
_NUMBER: Final = "#"
_NAMES: Final = {"from_user": "from"}
_T = TypeVar("_T")
State = str | int | None


def key_of(
    chat_id: Any,
    user_id: Any,
    business_connection_id: str | None = None,
    message_thread_id: int | None = None,
    bot_id: int | None = None,
) -> Key:
    """The conversation of a person in a place, as telebot names both; what it takes for missing is None."""
    return (bot_id or None, chat_id, user_id, message_thread_id or None, business_connection_id or None)


def state_text(state: Any) -> tuple[str | None, str | None]:
    """The flow and state that are stored for a state of telebot's: its State, text, a number or None."""
    name = getattr(state, "name", state)
    if name is None:
        return None, None
    if isinstance(name, int):
        return None, f"{_NUMBER}{name}"
    text = str(name)
    return split_state(_NUMBER + text if text.startswith(_NUMBER) else text)


def state_of(stored: Stored | None) -> State:
    """The state that :func:`state_text` was given."""
    text = None if stored is None else join_state(stored.flow, stored.state)
    if text is None or not text.startswith(_NUMBER):
        return text
    return text[1:] if text.startswith(_NUMBER * 2) else int(text[1:])


def dump(thing: Any) -> Any:
    """What Telegram sent, of an object of telebot's."""
    if isinstance(thing, list):
        return [dump(one) for one in thing]
    if not isinstance(thing, types.JsonDeserializable):
        return thing
    raw = getattr(thing, "json", None)
    if isinstance(raw, dict):
        return raw
    parts = ((name, value) for name, value in vars(thing).items() if value is not None and name[0] != "_")
    return {_NAMES.get(name, name): dump(value) for name, value in parts}


class _Kept:
    """The records of a store as telebot wants them."""

    def __init__(self, store: str | Store, name: str, deadline: float) -> None:
        self.owned = isinstance(store, str)
        self.store: Store = open_store(store) if isinstance(store, str) else store
        self.name = name
        self.patience = Patience(SystemClock(), deadline)
        self._opened = False
        self._opening: asyncio.Lock | None = None

    async def open(self) -> None:
        if self._opened:
            return
        if self._opening is None:
            self._opening = asyncio.Lock()
        async with self._opening:
            if not self._opened:
                await self.patience(lambda: self.store.init(self.name))
                self._opened = True

    async def close(self, grace: float | None = None) -> None:
        self._opened = False
        if self.owned:
            await self.store.close()

    async def read(self, key: Key) -> Stored | None:
        await self.open()
        return await self.patience(lambda: self.store.read(Address(self.name, "", key)))

    async def data(self, key: Key) -> Any:
        stored = await self.read(key)
        return {} if stored is None else unpack(stored.fields)

    async def change(self, key: Key, change: Callable[[Stored], Stored | None], make: bool = False) -> bool:
        """Change a record, if there is one or one may be made; whether there was."""
        there = False

        def become(stored: Stored | None) -> Stored | None:
            nonlocal there
            there = stored is not None
            return change(stored or BLANK) if there or make else None

        await self.open()
        await self.patience(lambda: self.store.write(Address(self.name, "", key), become))
        return there

    async def set_state(self, key: Key, state: Any) -> bool:
        flow, name = state_text(state)
        await self.change(
            key, lambda old: Stored(flow, name, old.version, old.fields, old.expires_at), make=True
        )
        return True

    async def set_value(self, key: Key, name: Any, value: Any) -> bool:
        fields = pack({name: value})
        if not await self.change(key, lambda old: _with(old, {**old.fields, **fields})):
            raise RuntimeError("data cannot be set before a state is: there is no such record")
        return True

    async def save(self, key: Key, data: Any) -> bool:
        fields = pack(data)
        return await self.change(key, lambda old: _with(old, fields))

    async def merge(self, key: Key, before: Any, after: Any) -> bool:
        """Write what makes *after* of *before*, and nothing else."""
        fields, removed = difference(pack(before), pack(after))
        if not fields and not removed:
            return await self.read(key) is not None

        def become(old: Stored) -> Stored:
            kept = {name: text for name, text in old.fields.items() if name not in removed}
            return _with(old, {**kept, **fields})

        return await self.change(key, become)


def _with(stored: Stored, fields: Any) -> Stored:
    return Stored(stored.flow, stored.state, stored.version, fields, stored.expires_at)


class AsyncHithertoStorage(AsyncBase):
    """A complete asynchronous ``StateStorageBase`` on a URL, or on a Store, which then is not closed with it.

    *name* is the bot in the store; the bot's own id is part of the keys. *deadline*: how long the store may
    be away before it is an error.
    """

    def __init__(self, store: str | Store, *, name: str = NAME, deadline: float = 10.0) -> None:
        super().__init__()
        self._kept = _Kept(store, name, deadline)

    def __repr__(self) -> str:
        return f"AsyncHithertoStorage({self._kept.store!r}, name={self._kept.name!r})"

    async def close(self) -> None:
        """Close the store if it was given as a URL."""
        await self._kept.close()

    async def set_state(self, chat_id: Any, user_id: Any, state: Any, *where: Any, **place: Any) -> bool:
        """Set the state; the data stays."""
        return await self._kept.set_state(key_of(chat_id, user_id, *where, **place), state)

    async def get_state(self, chat_id: Any, user_id: Any, *where: Any, **place: Any) -> State:
        """The state, or None."""
        return state_of(await self._kept.read(key_of(chat_id, user_id, *where, **place)))

    async def delete_state(self, chat_id: Any, user_id: Any, *where: Any, **place: Any) -> bool:
        """Remove state and data; whether there was any."""
        return await self._kept.change(key_of(chat_id, user_id, *where, **place), lambda old: None)

    async def set_data(
        self, chat_id: Any, user_id: Any, key: Any, value: Any, *where: Any, **place: Any
    ) -> bool:
        """Set one value; an error if no state was set before."""
        return await self._kept.set_value(key_of(chat_id, user_id, *where, **place), key, value)

    async def get_data(self, chat_id: Any, user_id: Any, *where: Any, **place: Any) -> Any:
        """The data, the caller's own to change."""
        return await self._kept.data(key_of(chat_id, user_id, *where, **place))

    async def reset_data(self, chat_id: Any, user_id: Any, *where: Any, **place: Any) -> bool:
        """Empty the data; whether there was a record."""
        return await self._kept.save(key_of(chat_id, user_id, *where, **place), {})

    async def save(self, chat_id: Any, user_id: Any, data: Any, *where: Any, **place: Any) -> bool:
        """Replace the data; whether there was a record."""
        return await self._kept.save(key_of(chat_id, user_id, *where, **place), data)

    def get_interactive_data(self, chat_id: Any, user_id: Any, *where: Any, **place: Any) -> _AsyncData:
        """The data to be changed in an ``async with`` block; what the block changed is written at its end."""
        return _AsyncData(self._kept, key_of(chat_id, user_id, *where, **place))


class HithertoStorage(StateStorageBase):
    """The same for TeleBot: it works in one background thread, which starts with the first use.

    After a fork it is used in the children only, as with :class:`hitherto.sync.Keeper`.
    """

    def __init__(self, store: str | Store, *, name: str = NAME, deadline: float = 10.0) -> None:
        super().__init__()
        self._kept = _Kept(store, name, deadline)
        self._background = Background("the storage", self._kept.open, self._kept.close)

    def __repr__(self) -> str:
        return f"HithertoStorage({self._kept.store!r}, name={self._kept.name!r})"

    def close(self) -> None:
        """Close the store if it was given as a URL, and end the thread."""
        self._background.stop()

    def _wait(self, work: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        self._background.start()
        return self._background.wait(work)

    def set_state(self, chat_id: Any, user_id: Any, state: Any, *where: Any, **place: Any) -> bool:
        """Set the state; the data stays."""
        key = key_of(chat_id, user_id, *where, **place)
        return self._wait(lambda: self._kept.set_state(key, state))

    def get_state(self, chat_id: Any, user_id: Any, *where: Any, **place: Any) -> State:
        """The state, or None."""
        key = key_of(chat_id, user_id, *where, **place)
        return state_of(self._wait(lambda: self._kept.read(key)))

    def delete_state(self, chat_id: Any, user_id: Any, *where: Any, **place: Any) -> bool:
        """Remove state and data; whether there was any."""
        key = key_of(chat_id, user_id, *where, **place)
        return self._wait(lambda: self._kept.change(key, lambda old: None))

    def set_data(self, chat_id: Any, user_id: Any, key: Any, value: Any, *where: Any, **place: Any) -> bool:
        """Set one value; an error if no state was set before."""
        at = key_of(chat_id, user_id, *where, **place)
        return self._wait(lambda: self._kept.set_value(at, key, value))

    def get_data(self, chat_id: Any, user_id: Any, *where: Any, **place: Any) -> Any:
        """The data, the caller's own to change."""
        key = key_of(chat_id, user_id, *where, **place)
        return self._wait(lambda: self._kept.data(key))

    def reset_data(self, chat_id: Any, user_id: Any, *where: Any, **place: Any) -> bool:
        """Empty the data; whether there was a record."""
        return self.save(chat_id, user_id, {}, *where, **place)

    def save(self, chat_id: Any, user_id: Any, data: Any, *where: Any, **place: Any) -> bool:
        """Replace the data; whether there was a record."""
        key = key_of(chat_id, user_id, *where, **place)
        return self._wait(lambda: self._kept.save(key, data))

    def get_interactive_data(self, chat_id: Any, user_id: Any, *where: Any, **place: Any) -> _Data:
        """The data to be changed in a ``with`` block; what the block changed is written at its end."""
        return _Data(self, key_of(chat_id, user_id, *where, **place))


class _Data:
    """The data of one record in a ``with`` block; as telebot has it, an error in it does not undo it."""

    def __init__(self, storage: HithertoStorage, key: Key) -> None:
        self._storage, self._key = storage, key
        self.data: Any = storage._wait(lambda: storage._kept.data(key))
        self._before = copy.deepcopy(self.data)

    def __enter__(self) -> Any:
        return self.data

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        kept = self._storage._kept
        self._storage._wait(lambda: kept.merge(self._key, self._before, self.data))


class _AsyncData:
    """The same in an ``async with`` block."""

    def __init__(self, kept: _Kept, key: Key) -> None:
        self._kept, self._key = kept, key
        self.data: Any = None
        self._before: Any = None

    async def __aenter__(self) -> Any:
        self.data = await self._kept.data(self._key)
        self._before = copy.deepcopy(self.data)
        return self.data

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._kept.merge(self._key, self._before, self.data)
