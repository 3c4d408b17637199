"""pyTelegramBotAPI's ``StateRedisStorage``: a hash with ``state`` and ``data`` for each conversation.

Before 4.23 it was one string for each chat, ``telebot_<chat>``, with all its users; that is read as well.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Iterator
from typing import Any

from hitherto.importers import Found, Placed, Report, need_bot, telebot_row
from hitherto.importers.aiogram_keys import shape
from hitherto.importers.aiogram_redis import connected, scanned

__all__ = ["read"]

_is_number = re.compile(r"-?[0-9]{1,20}").fullmatch
_NOT_JSON = "data that is no JSON object"
_UNKNOWN = "a key of an unknown form"


async def read(
    url: str, report: Report, *, keys: str, bot_id: int | None, prefix: str = "telebot", separator: str = ":"
) -> AsyncIterator[Placed]:
    """All conversations."""
    async with connected(url) as client:
        async for key in scanned(client, prefix):
            raw = key.encode(errors="surrogateescape")
            kind = await client.type(raw)
            if kind == b"hash" and key.startswith(prefix + separator):
                state, data = await client.hmget(raw, ["state", "data"])
                base = key[len(prefix) + len(separator) :]
                rows: Iterator[Found | None] = iter([_new(key, base, state, data, report, bot_id, separator)])
            elif kind == b"string" and _is_number(key[len(prefix) + 1 :]):
                rows = _old(key, int(key[len(prefix) + 1 :]), await client.get(raw), report, bot_id)
            else:
                report.left_out(_UNKNOWN, shape(key))
                continue
            for found in rows:
                row = None if found is None else telebot_row(found, keys, report, shape(key))
                if row is not None:
                    yield row


def _new(
    key: str, base: str, state: bytes | None, data: bytes | None, report: Report, bot_id: int | None,
    separator: str,
) -> Found | None:  # fmt: skip
    report.read += 1
    place = _place(base.split(separator), bot_id)
    values = _json(data) if data is not None else {}
    if place is None or not isinstance(values, dict):
        report.left_out(_UNKNOWN if place is None else _NOT_JSON, shape(key))
        return None
    bot, chat, user, thread, business = place
    text = None if state is None else state.decode(errors="replace")
    return Found(bot, chat, user, thread, business, state=text, data=values)


def _place(
    words: list[str], bot_id: int | None
) -> tuple[int | None, int, int, int | None, str | None] | None:
    """``[bot]:[business]:[thread]:chat:user``, the bot being there unless its id is known and is not."""
    texts = [word for word in words if not _is_number(word)]
    if len(texts) > 1 or (texts and words.index(texts[0]) > 1):
        return None
    numbers = [int(word) for word in words if _is_number(word)]
    if not 2 <= len(numbers) <= 4:
        return None
    *others, chat, user = numbers
    first_is_bot = bool(others) and (bot_id is None or others[0] == bot_id or len(others) == 2)
    bot = others.pop(0) if first_is_bot else None
    return bot, chat, user, others[0] if others else None, texts[0] if texts else None


def _old(
    key: str, chat: int, text: bytes | None, report: Report, bot_id: int | None
) -> Iterator[Found | None]:
    users = _json(text or b"")
    if not isinstance(users, dict):
        report.left_out(_NOT_JSON, shape(key))
        return
    for user, kept in users.items():
        report.read += 1
        if not _is_number(user) or not isinstance(kept, dict) or not isinstance(kept.get("data"), dict):
            report.left_out("a user's entry of an unknown form", shape(key))
            continue
        state = kept.get("state")
        named = None if state is None else str(state)
        yield Found(need_bot(bot_id), chat, int(user), state=named, data=kept["data"])


def _json(text: bytes) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None
