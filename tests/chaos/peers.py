"""Other ways to keep conversations, as thin as they can be put before the harness: the controls.

Each does with an event what its documentation shows, in a handler that appends the id to a log as ours does;
locks last as long as our leases. The harness has to find what they lose when workers die and pause.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from typing import Any

from hitherto.testing.chaos.worker import Settings


async def handled(data: dict[str, Any], key: int, name: str, settings: Settings) -> dict[str, Any]:
    """What the harness's own handler does."""
    await asyncio.sleep(random.random() * settings.slowest)
    log = [*data.get("log", []), name]
    await asyncio.sleep(random.random() * settings.slowest)
    return {"log": log, "needle": [key], "turns": len(log)}


class AiogramRedis:
    """aiogram's Redis storage with its event isolation."""

    def __init__(self, url: str, settings: Settings) -> None:
        self.url, self.settings = url, settings

    async def start(self) -> None:
        from aiogram.fsm.storage.redis import RedisStorage

        self.storage = RedisStorage.from_url(self.url)
        self.isolation = self.storage.create_isolation(lock_kwargs={"timeout": self.settings.lease})

    async def stop(self) -> None:
        await self.isolation.close()
        await self.storage.close()

    def _key(self, key: int) -> Any:
        from aiogram.fsm.storage.base import StorageKey

        return StorageKey(bot_id=42, chat_id=key, user_id=key)

    async def accept(self, key: int, name: str) -> str:
        from redis.exceptions import LockError, RedisError

        place = self._key(key)
        try:
            async with self.isolation.lock(place):
                data = await self.storage.get_data(place)
                await self.storage.set_data(place, await handled(data, key, name, self.settings))
        except LockError:
            return "committed"  # the lock was lost meanwhile, and all is written: nobody has told the caller
        except RedisError:
            return "error"
        return "committed"

    async def data(self, key: int) -> dict[str, Any] | None:
        return await self.storage.get_data(self._key(key)) or None


class Pickled:
    """python-telegram-bot's pickle persistence, by one worker; flushed as its application does, but often."""

    def __init__(self, url: str, settings: Settings) -> None:
        self.path, self.settings = url, settings
        self.turn = asyncio.Lock()
        self.changed: set[int] = set()

    async def start(self) -> None:
        from telegram.ext import PicklePersistence

        self.persistence: Any = PicklePersistence(self.path)
        self.chat_data: dict[int, dict[str, Any]] = {}
        with contextlib.suppress(TypeError, EOFError):  # a file that was cut off
            self.chat_data = dict(await self.persistence.get_chat_data())
        self.flushing = asyncio.create_task(self._flush())

    async def stop(self) -> None:
        self.flushing.cancel()

    async def _flush(self) -> None:
        while True:
            await asyncio.sleep(0.1)
            for key in tuple(self.changed):
                self.changed.discard(key)
                await self.persistence.update_chat_data(key, self.chat_data[key])

    async def accept(self, key: int, name: str) -> str:
        async with self.turn:  # one update at a time is its default
            self.chat_data[key] = await handled(self.chat_data.get(key, {}), key, name, self.settings)
            self.changed.add(key)
        return "committed"

    async def data(self, key: int) -> dict[str, Any] | None:
        return self.chat_data.get(key)


class MarkLockPop:
    """The pattern of many chat kits: mark the id as seen, push, take a lock, pop and handle until empty."""

    def __init__(self, url: str, settings: Settings) -> None:
        self.url, self.settings = url, settings

    async def start(self) -> None:
        from redis.asyncio import Redis

        self.redis: Any = Redis.from_url(self.url)

    async def stop(self) -> None:
        await self.redis.aclose()

    async def accept(self, key: int, name: str) -> str:
        if not await self.redis.set(f"seen:{name}", 1, nx=True, ex=600):
            return "duplicate"
        await self.redis.rpush(f"line:{key}", name)
        if not await self.redis.set(f"lock:{key}", 1, nx=True, px=int(self.settings.lease * 1000)):
            return "queued"
        while (event := await self.redis.lpop(f"line:{key}")) is not None:
            data = await self.data(key) or {}
            data = await handled(data, key, event.decode(), self.settings)
            await self.redis.set(f"data:{key}", json.dumps(data))
        await self.redis.delete(f"lock:{key}")
        return "committed"

    async def data(self, key: int) -> dict[str, Any] | None:
        text = await self.redis.get(f"data:{key}")
        return None if text is None else json.loads(text)
