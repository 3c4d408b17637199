"""aiogram's ``RedisStorage``: two strings for each conversation, ``...:state`` and ``...:data``."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

from msgspec.structs import replace

from hitherto.errors import MissingExtra
from hitherto.importers import Placed, Report, aiogram_row
from hitherto.importers.aiogram_keys import parse, shape

__all__ = ["connected", "read", "scanned"]


def connected(url: str) -> Any:
    """A client of the source; only commands that read are ever sent."""
    try:
        from redis.asyncio import Redis
    except ImportError as missing:
        raise MissingExtra("importing from Redis", "redis") from missing
    return Redis.from_url(url)


async def scanned(client: Any, prefix: str) -> AsyncIterator[str]:
    """The keys that begin with *prefix*, whatever is in it."""
    pattern = "".join(f"\\{one}" if one in r"\*?[]^-" else one for one in prefix) + "*"
    async for key in client.scan_iter(match=pattern, count=1000):
        yield key.decode(errors="surrogateescape")


async def read(
    url: str, report: Report, *, keys: str, bot_id: int | None, prefix: str = "fsm", separator: str = ":"
) -> AsyncIterator[Placed]:
    """All conversations of a bot."""
    async with connected(url) as client:
        async for key in scanned(client, prefix + separator):
            base, _, part = key.rpartition(separator)
            if part == "lock":
                continue
            if part not in ("state", "data"):
                report.left_out("a key of an unknown form", shape(key))
                continue
            names = [f"{base}{separator}{one}".encode(errors="surrogateescape") for one in ("state", "data")]
            state, data = await client.mget(names)
            if part == "state" and data is not None:
                continue  # it comes with its data
            row = _row(
                key, base[len(prefix) + len(separator) :], state, data, report, keys, bot_id, separator
            )
            if row is not None:
                yield row


def _row(
    key: str, base: str, state: bytes | None, data: bytes | None, report: Report, keys: str,
    bot_id: int | None, separator: str,
) -> Placed | None:  # fmt: skip
    report.read += 1
    found = parse(base, bot_id, separator)
    if isinstance(found, str):
        report.left_out(found, shape(key))
        return None
    try:
        values = {} if data is None else json.loads(data)
        text = None if state is None else state.decode()
    except ValueError:
        values, text = None, None
    if not isinstance(values, dict):
        report.left_out("data that is no JSON object", shape(key))
        return None
    return aiogram_row(replace(found, state=text or None, data=values), keys, report, shape(key))
