"""python-telegram-bot's persistence on any store: one row for each user, chat, conversation and keyboard.

    persistence = HithertoPersistence("sqlite:///bot.db")
    application = Application.builder().token(TOKEN).persistence(persistence).build()

What changed is written, each row by itself and atomically: there is no moment at which a kill leaves less
than was there before, and a changed user costs one row however many users there are. Data is what JSON can
hold, and also numbers as keys; tuples become lists, and everything else is a ``DataError`` that names the
path and reaches the error handlers. States of conversations may also be members of an int or str Enum, and
come back as the number or text, which are equal to them.

The application asks for all users and chats when it starts, and gets them. A bot that only uses
``context.user_data`` and ``context.chat_data`` may say ``lazy=True``: then nothing is loaded at the start,
each user and chat when it is first seen, and ``application.user_data[somebody_else]`` may be empty although
there is something stored, which is kept: what is written for somebody who was not loaded is merged.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from enum import Enum
from typing import Any, Final, TypeAlias, TypeVar

from msgspec.structs import replace

from hitherto import protocol
from hitherto.addresses import Address, Key
from hitherto.codec import Fields, Shape
from hitherto.document import Document
from hitherto.errors import DataError, MissingExtra
from hitherto.packing import pack, unpack
from hitherto.patience import Patience, SystemClock
from hitherto.records import Stored, merged
from hitherto.stores import Store, open_store
from hitherto.stores.base import DEFAULT_TERMS

try:
    from telegram.ext import BasePersistence, ContextTypes, PersistenceInput
except ImportError as missing:
    raise MissingExtra("hitherto.ptb", "ptb") from missing

__all__ = [
    "BOT",
    "CALLBACK",
    "CHATS",
    "CONVERSATIONS",
    "NAME",
    "USERS",
    "HithertoPersistence",
    "conversations_of",
    "pack",
    "unpack",
]

NAME: Final = "ptb"
BOT, USERS, CHATS = "ptb.bot", "ptb.user", "ptb.chat"
CONVERSATIONS, CALLBACK = "ptb.conversation", "ptb.callback"
_KEYBOARD, _QUERY = "keyboard", "query"
_PLAIN: Final = (dict, list, str, int, float, complex, type(None))
_WORDS: Final = {BOT: "bot_data", USERS: "user_data", CHATS: "chat_data"}
_T = TypeVar("_T")
Callbacks: TypeAlias = tuple[list[tuple[str, float, dict[str, Any]]], dict[str, str]]


class HithertoPersistence(BasePersistence[Any, Any, Any]):
    """A complete ``BasePersistence`` on a URL, or on a Store, which then is not closed with the bot.

    *name* is the bot in the store: bots that share one need different names. *update_interval* is how often
    the application hands over what changed, in seconds: so much can a kill lose; writing is cheap, and it is
    5 rather than PTB's 60. *context_types*: data classes of yours for user, chat and bot data (dataclass,
    Struct, pydantic). *lazy*: see the module. *deadline*: how long the store may be away before it is an
    error.
    """

    __slots__ = (
        "_loaded",
        "_opened",
        "_owned",
        "_patience",
        "_rows",
        "_shapes",
        "_types",
        "lazy",
        "name",
        "store",
    )

    def __init__(
        self,
        store: str | Store,
        *,
        name: str = NAME,
        store_data: PersistenceInput | None = None,
        update_interval: float = 5.0,
        context_types: ContextTypes[Any, Any, Any, Any] | None = None,
        lazy: bool = False,
        deadline: float = 10.0,
    ) -> None:
        super().__init__(store_data=store_data, update_interval=update_interval)
        self._owned = isinstance(store, str)
        self.store: Store = open_store(store) if isinstance(store, str) else store
        self.name = name
        self.lazy = lazy
        types = context_types or ContextTypes()
        self._types = {BOT: types.bot_data, USERS: types.user_data, CHATS: types.chat_data}
        self._loaded: dict[str, set[int]] = {USERS: set(), CHATS: set()}
        self._shapes = {realm: _shape(kind) for realm, kind in self._types.items()}
        if lazy and not (self._types[USERS] is dict and self._types[CHATS] is dict):
            raise TypeError("lazy=True is for users and chats whose data are dicts")
        self._rows: dict[tuple[str, str], Fields] | None = None
        self._patience = Patience(SystemClock(), deadline)
        self._opened = False

    def __repr__(self) -> str:
        return f"HithertoPersistence({self.store!r}, name={self.name!r})"

    # ------------------------------------------------------------------------------------ users and chats

    async def get_user_data(self) -> dict[int, Any]:
        """All users that have data; none with ``lazy``."""
        return await self._everybody(USERS)

    async def get_chat_data(self) -> dict[int, Any]:
        """All chats that have data; none with ``lazy``."""
        return await self._everybody(CHATS)

    async def update_user_data(self, user_id: int, data: Any) -> None:
        """Write one user, if anything changed."""
        await self._update(USERS, user_id, data)

    async def update_chat_data(self, chat_id: int, data: Any) -> None:
        """Write one chat, if anything changed."""
        await self._update(CHATS, chat_id, data)

    async def refresh_user_data(self, user_id: int, user_data: Any) -> None:
        """With ``lazy``: load a user who is seen for the first time."""
        await self._refresh(USERS, user_id, user_data)

    async def refresh_chat_data(self, chat_id: int, chat_data: Any) -> None:
        """With ``lazy``: load a chat that is seen for the first time."""
        await self._refresh(CHATS, chat_id, chat_data)

    async def drop_user_data(self, user_id: int) -> None:
        """Forget a user."""
        await self._write(USERS, (user_id,), None)

    async def drop_chat_data(self, chat_id: int) -> None:
        """Forget a chat."""
        await self._write(CHATS, (chat_id,), None)

    # ------------------------------------------------------------------------------------------- the bot

    async def get_bot_data(self) -> Any:
        """The bot's data; new if there is none."""
        stored = await self._call(lambda: self.store.read(Address(self.name, BOT, ())))
        return self._types[BOT]() if stored is None else self._load(BOT, stored.fields)

    async def update_bot_data(self, data: Any) -> None:
        """Write the bot's data, if it changed."""
        await self._write(BOT, (), self._dump(BOT, data))

    async def refresh_bot_data(self, bot_data: Any) -> None:
        """Nothing: it is loaded."""

    # ------------------------------------------------------------------------------------- conversations

    async def get_conversations(self, name: str) -> dict[tuple[int | str, ...], object]:
        """The states of all conversations of one handler."""
        return {key: unpack(stored.fields) async for key, stored in self._records(conversations_of(name))}

    async def update_conversation(
        self, name: str, key: tuple[int | str, ...], new_state: object | None
    ) -> None:
        """Write the state of one conversation; ``None`` is its end."""
        if isinstance(new_state, Enum) and isinstance(new_state, int | str):
            new_state = new_state.value
        fields = None if new_state is None else pack(new_state, "state", whole=True)
        await self._write(conversations_of(name), key, fields)

    # ------------------------------------------------------------------------------------- callback data

    async def get_callback_data(self) -> Callbacks | None:
        """The keyboards that the bot has sent, least recently used first, and the queries about them."""
        rows = await self._callbacks()
        if not rows:
            return None
        keyboards: list[tuple[str, float, dict[str, Any]]] = []
        queries: dict[str, str] = {}
        for (kind, name), fields in rows.items():
            if kind == _QUERY:
                queries[name] = unpack(fields)
            else:
                found = unpack(fields)
                keyboards.append((name, found["at"], found["buttons"]))
        return sorted(keyboards, key=lambda keyboard: keyboard[1]), queries

    async def update_callback_data(self, data: Callbacks) -> None:
        """Write the keyboards that are new or were used, and remove those that are gone."""
        rows, troubles = await self._callbacks(), []
        keyboards, queries = data
        wanted: dict[tuple[str, str], Fields] = {(_QUERY, name): pack(uuid) for name, uuid in queries.items()}
        for uuid, at, buttons in keyboards:
            try:
                wanted[_KEYBOARD, uuid] = pack({"at": at, "buttons": buttons}, "callback_data")
            except DataError as trouble:
                troubles.append(trouble)
        changed = [row for row, fields in wanted.items() if rows.get(row) != fields]
        gone = [row for row in rows if row not in wanted]
        await asyncio.gather(*[self._write(CALLBACK, row, wanted.get(row)) for row in (*changed, *gone)])
        self._rows = wanted
        if troubles:
            raise troubles[0]

    async def _callbacks(self) -> dict[tuple[str, str], Fields]:
        """What is stored of them, read once."""
        if self._rows is None:
            self._rows = {key: stored.fields async for key, stored in self._records(CALLBACK)}
        return self._rows

    async def flush(self) -> None:
        """Everything is written already; the store is closed if it was given as a URL."""
        if self._owned and self._opened:
            self._opened = False
            await self.store.close()

    # -------------------------------------------------------------------------------------------- pieces

    async def _everybody(self, realm: str) -> dict[int, Any]:
        if self.lazy:
            return {}
        return {key[0]: self._load(realm, stored.fields) async for key, stored in self._records(realm)}

    async def _update(self, realm: str, id: int, data: Any) -> None:
        fields = self._dump(realm, data)
        await self._write(realm, (id,), fields, merge=self.lazy and id not in self._loaded[realm])

    async def _refresh(self, realm: str, id: int, data: Any) -> None:
        if not self.lazy or id in self._loaded[realm]:
            return
        stored = await self._call(lambda: self.store.read(Address(self.name, realm, (id,))))
        if id not in self._loaded[realm]:
            self._loaded[realm].add(id)
            for name, value in ({} if stored is None else unpack(stored.fields)).items():
                data.setdefault(name, value)

    def _dump(self, realm: str, data: Any) -> Fields:
        shape = self._shapes[realm]
        return pack(data, _WORDS[realm]) if shape is None else shape.encode(data)

    def _load(self, realm: str, fields: Fields) -> Any:
        shape, kind = self._shapes[realm], self._types[realm]
        if shape is not None:
            return shape.decode(fields)
        found = unpack(fields)
        return found if kind is dict else kind(found)

    async def _records(self, realm: str) -> AsyncIterator[tuple[Any, Stored]]:
        await self._open()
        async for address, stored in self.store.records(self.name, realm):
            yield address.key, stored

    async def _write(self, realm: str, key: Key, fields: Fields | None, merge: bool = False) -> None:
        address = Address(self.name, realm, key)

        def become(stored: Stored | None) -> Stored | None:
            if merge and stored is not None:
                return merged(stored, fields or {})
            return stored if stored is not None and stored.fields == fields else Stored(fields=fields or {})

        if fields is None:
            await self._call(lambda: self.store.transact(address, _blank))
        else:
            await self._call(lambda: self.store.write(address, become))

    async def _call(self, call: Callable[[], Awaitable[_T]]) -> _T:
        await self._open()
        return await self._patience(call)

    async def _open(self) -> None:
        if not self._opened:
            if self._owned:
                await self._patience(self.store.open)  # it may have been closed with the application before
            await self._patience(lambda: self.store.init(self.name))
            self._opened = True


def _blank(document: Document, now: float) -> tuple[Document, None]:
    """Nothing is kept at this address: the store drops the row."""
    if document.record is None:
        return document, None
    return replace(protocol.remembered(document, now, None, None, DEFAULT_TERMS), ops=()), None


def _shape(kind: type[Any]) -> Shape | None:
    """How a class of the user's own travels; plain values need none."""
    return None if issubclass(kind, _PLAIN) else Shape(kind)


def conversations_of(handler: str) -> str:
    """The realm of a conversation handler."""
    return f"{CONVERSATIONS}.{handler}"
