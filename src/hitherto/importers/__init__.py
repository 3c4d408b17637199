"""What other libraries have remembered, as our records: one file for each source, read and never written to.

A source gives `Found` conversations and tells its `Report` what it could not understand, by reason and place,
without ids or contents. `put` writes them at the addresses that our adapters use for the same person; doing
it again changes nothing.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterable, Callable
from typing import Any, Final, Literal, TypeAlias

import msgspec

from hitherto import codec
from hitherto.adapting import split_state
from hitherto.addresses import Address, Key
from hitherto.errors import DataError, HithertoError
from hitherto.keys import Chat, ChatTopic, ChatTopicUser, ChatUser, User
from hitherto.packing import pack
from hitherto.records import Stored
from hitherto.stores import Store

__all__ = ["KEYS", "Existing", "Found", "Placed", "Report", "Rows", "aiogram_row", "put", "telebot_row"]

Existing: TypeAlias = Literal["keep", "replace"]
Rows: TypeAlias = "AsyncIterable[Placed]"

_AT_ONCE: Final = 200
_SHOWN: Final = 5
_STRATEGIES: Final = {
    "chat-user": ChatUser(), "user": User(), "chat": Chat(), "chat-topic": ChatTopic(),
    "chat-topic-user": ChatTopicUser(),
}  # fmt: skip
KEYS: Final = ("storage", *_STRATEGIES)
"""Where a conversation goes: where the drop-in storage looks for it, or where a keeper with that key does."""


class Found(msgspec.Struct, frozen=True):
    """A conversation of aiogram or pyTelegramBotAPI, as it was found."""

    bot: int | None
    chat: int
    user: int
    thread: int | None = None
    business: str | None = None
    destiny: str = "default"
    state: str | None = None
    data: dict[str, Any] = {}


class Placed(msgspec.Struct, frozen=True):
    """A record and where it goes: realm and key in the bot of the store."""

    realm: str
    key: Key
    stored: Stored


class Report:
    """What became of what was read."""

    def __init__(self) -> None:
        self.read = self.imported = self.there = self.empty = 0
        self._reasons: Counter[str] = Counter()
        self._places: dict[str, list[str]] = {}

    def left_out(self, reason: str, place: str) -> None:
        """Something was not understood; *place* says where, and nothing about whom."""
        self._reasons[reason] += 1
        places = self._places.setdefault(reason, [])
        if len(places) < _SHOWN and place not in places:
            places.append(place)

    @property
    def problems(self) -> int:
        """How much was not understood."""
        return self._reasons.total()

    def lines(self) -> list[str]:
        """For people."""
        first = f"{self.read} read, {self.imported} imported, {self.there} there already"
        if self.empty:
            first += f", {self.empty} with nothing in them"
        rest = [f"  {number} x {reason}: {self._where(reason)}" for reason, number in self._reasons.items()]
        return [first, *([f"not understood: {self.problems}"] if rest else []), *rest]

    def _where(self, reason: str) -> str:
        places = ", ".join(self._places[reason])
        return places + (", ..." if self._reasons[reason] > _SHOWN else "")


def aiogram_row(found: Found, keys: str, report: Report, place: str) -> Placed | None:
    """A conversation of aiogram's where `hitherto.aiogram` looks for it."""
    key: Key = (found.bot, found.chat, found.user, found.thread, found.business, found.destiny)
    return _row(found, key, keys, codec.encode, report, place)


def telebot_row(found: Found, keys: str, report: Report, place: str) -> Placed | None:
    """A conversation of pyTelegramBotAPI's where `hitherto.telebot` looks for it."""
    key: Key = (found.bot, found.chat, found.user, found.thread, found.business)
    if keys == "storage" and found.state is not None and found.state.startswith("#"):
        found = msgspec.structs.replace(found, state="#" + found.state)
    return _row(found, key, keys, pack, report, place)


def _row(
    found: Found, key: Key, keys: str, encode: Callable[[Any], Any], report: Report, place: str
) -> Placed | None:
    if found.state is None and not found.data:
        report.empty += 1
        return None
    if keys != "storage":
        strategy = _STRATEGIES[keys]
        if found.destiny != "default":
            report.left_out("has a destiny, which a keeper's key has no place for", place)
            return None
        dimensions = strategy._dimensions(found.chat, found.user, found.thread or 0) or ()
        key, encode = (
            (f"business:{found.business}", *dimensions) if found.business else dimensions,
            codec.encode,
        )
    try:
        flow, state = (None, None) if found.state is None else split_state(found.state)
        return Placed("", key, Stored(flow, state, 1, encode(found.data)))
    except DataError:
        report.left_out("data that cannot be stored as JSON", place)
        return None


async def put(
    store: Store, bot: str, rows: Rows, report: Report, existing: Existing = "keep", *, dry: bool = False
) -> None:
    """Write what is found; what is there already is kept, or replaced."""
    batch: list[Placed] = []
    async for row in rows:
        batch.append(row)
        if len(batch) >= _AT_ONCE:
            await _put_all(store, bot, batch, report, existing, dry)
            batch = []
    await _put_all(store, bot, batch, report, existing, dry)


async def _put_all(
    store: Store, bot: str, batch: list[Placed], report: Report, existing: Existing, dry: bool
) -> None:
    merged: dict[str, Placed] = {}
    for row in batch:
        merged.setdefault(repr((row.realm, row.key)), row)
    report.there += len(batch) - len(merged)
    done = await asyncio.gather(*(_put_one(store, bot, row, existing, dry) for row in merged.values()))
    report.imported += sum(done)
    report.there += len(done) - sum(done)


async def _put_one(store: Store, bot: str, row: Placed, existing: Existing, dry: bool) -> bool:
    """Whether it was written."""
    written = False

    def become(before: Stored | None) -> Stored | None:
        nonlocal written
        written = before is None or (existing == "replace" and before != row.stored)
        return row.stored if written else before

    address = Address(bot, row.realm, row.key)
    if dry:
        become(await store.read(address))
    else:
        await store.write(address, become)
    return written


def need_bot(bot_id: int | None) -> int:
    """The bot's id, where the source does not say it."""
    if bot_id is None:
        raise HithertoError("which bot is it? give --bot-id, the number before the colon in its token")
    return bot_id
