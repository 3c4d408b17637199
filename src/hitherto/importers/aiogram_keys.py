"""The keys that aiogram's ``DefaultKeyBuilder`` joins with colons, taken apart again.

``prefix:[bot]:[business]:chat:[thread]:user:[destiny]:[part]``: what is in brackets may be missing, and
nothing says which it is. Numbers are told from text, the bot by its id, and topics by where they can be: in
groups, whose ids are negative, and in private chats, whose ids are the user's.
"""

from __future__ import annotations

import re

from hitherto.importers import Found, need_bot

__all__ = ["parse", "shape"]

_is_number = re.compile(r"-?[0-9]{1,20}").fullmatch


def parse(text: str, bot_id: int | None, separator: str = ":") -> Found | str:
    """Whose conversation a key without prefix and part names, or why that cannot be told."""
    words = text.split(separator)
    destiny = "default"
    if len(words) > 2 and not _is_number(words[-1]):
        destiny = words.pop()
    texts = [word for word in words if not _is_number(word)]
    numbers = [int(word) for word in words if _is_number(word)]
    if len(texts) > 1 or (texts and words.index(texts[0]) > 1) or not 2 <= len(numbers) <= 4:
        return "a key of an unknown form"
    known = need_bot(bot_id)
    if len(numbers) > 2 and numbers[0] == known:
        numbers = numbers[1:]
    elif len(numbers) == 4 or (len(numbers) == 3 and not _has_topics(numbers)):
        return "a conversation of another bot"
    thread = numbers.pop(1) if len(numbers) == 3 else None
    chat, user = numbers
    return Found(known, chat, user, thread, texts[0] if texts else None, destiny)


def _has_topics(numbers: list[int]) -> bool:
    return numbers[0] < 0 or numbers[0] == numbers[2]


def shape(text: str) -> str:
    """What a key looks like, without anything about whom."""
    return re.sub(r"[^\W\d_]+", "a", re.sub(r"-?[0-9]+", "N", text))[:60]
