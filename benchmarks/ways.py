"""The ordinary step on hitherto's stores and on its peers: an event that changes the state and the data.

A step of hitherto is the whole turn through ``Keeper.handle``: deduplicated, fenced, in order, recovered
after a crash. A step of a peer is what its users do for the same: lock, get_state, get_data, set_data,
set_state, unlock; or, of the Chat SDK, ``handleIncomingMessage`` with a handler that reads and writes.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.measure import Step, Way
from hitherto import Flow, Keeper, Queue, State, Turn, codec, open_store
from hitherto.addresses import Address
from hitherto.document import Event, Terms
from hitherto.records import Patch

MESSAGE = {"message": {"text": "hello", "from": {"id": 7, "first_name": "Ann"}}}
PAYLOAD = codec.encode_value(MESSAGE, "event")


ALONE = "without the keeper"


class Signup(Flow):
    here = State(to="there", initial=True)
    there = State(to="here")


async def handler(turn: Turn) -> None:
    """Another state, two fields."""
    if turn.flow is None:
        turn.start(Signup)
    turn.transition(Signup.there if turn.state is Signup.here else Signup.here)
    turn.update_data(name="Ann", step=turn.data.get("step", 0) + 1)


@asynccontextmanager
async def kept(url: str) -> AsyncIterator[Step]:
    """hitherto on a store."""
    async with Keeper("bench", url, [Signup]) as keeper:

        async def step(who: int, number: int) -> None:
            outcome = await keeper.handle(MESSAGE, handler, key=(who, who), id=f"{number:x}")
            assert outcome.status == "committed", outcome

        yield step


@asynccontextmanager
async def stored(url: str) -> AsyncIterator[Step]:
    """hitherto's store alone, as the storages of others are measured: accept (the lock, the record, the id
    that is kept) and commit (the patch, the id that was seen, the lock).
    """
    queue, terms = Queue(), Terms()
    async with open_store(url) as store:

        async def step(who: int, number: int) -> None:
            address = Address("stored", "", (who, who))
            event = Event(f"{number:x}", PAYLOAD)
            answer = await store.accept(address, event, queue, "bench", store.op(), terms)
            grant = answer.grant
            assert grant is not None, answer
            before = {} if grant.record is None else codec.decode(grant.record.fields)
            fields = codec.encode({"name": "Ann", "step": before.get("step", 0) + 1})
            patch = Patch(set=fields, moved=True, flow="signup", state=("here", "there")[number % 2])
            settled = await store.settle(address, grant.claim, store.op(), terms, patch=patch)
            assert settled.status == "committed", settled

        yield step


# --------------------------------------------------------------------------------------------------- aiogram


def _aiogram_step(storage: Any, isolation: Any) -> Step:
    from aiogram.fsm.storage.base import StorageKey

    async def step(who: int, number: int) -> None:
        key = StorageKey(1, who, who)
        async with isolation.lock(key):
            state = await storage.get_state(key)
            data = await storage.get_data(key) or {}
            await storage.set_data(key, {**data, "name": "Ann", "step": data.get("step", 0) + 1})
            await storage.set_state(key, "Signup:there" if state == "Signup:here" else "Signup:here")

    return step


@asynccontextmanager
async def aiogram_memory() -> AsyncIterator[Step]:
    """aiogram's MemoryStorage with SimpleEventIsolation."""
    from aiogram.fsm.storage.memory import MemoryStorage, SimpleEventIsolation

    yield _aiogram_step(MemoryStorage(), SimpleEventIsolation())


@asynccontextmanager
async def aiogram_redis(url: str) -> AsyncIterator[Step]:
    """aiogram's RedisStorage with RedisEventIsolation."""
    from aiogram.fsm.storage.redis import RedisEventIsolation, RedisStorage
    from redis.asyncio import Redis

    client = Redis.from_url(url)
    yield _aiogram_step(RedisStorage(client), RedisEventIsolation(client))
    await client.aclose()


@asynccontextmanager
async def aiogram_sqlite(kind: str, path: Path) -> AsyncIterator[Step]:
    """A published SQLite storage for aiogram, with SimpleEventIsolation since it has none of its own."""
    from aiogram.fsm.storage.memory import SimpleEventIsolation

    handlers = logging.root.handlers[:]
    if kind == "aiogram-sqlite-storage":
        from aiogram_sqlite_storage.sqlitestore import SQLStorage

        storage: Any = SQLStorage(str(path), serializing_method="json")
    else:
        from aiogram_fsm_sqlitestorage.storage import SQLiteStorage

        storage = SQLiteStorage(str(path))
    logging.root.handlers[:] = handlers
    yield _aiogram_step(storage, SimpleEventIsolation())
    await storage.close()


# --------------------------------------------------------------------------------------------- the others


@asynccontextmanager
async def telebot_redis(url: str) -> AsyncIterator[Step]:
    """pyTelegramBotAPI's StateRedisStorage, which has no lock."""
    from urllib.parse import urlsplit

    from telebot.asyncio_storage import StateRedisStorage

    parts = urlsplit(url)
    storage = StateRedisStorage(host=parts.hostname or "127.0.0.1", port=parts.port or 6379)

    async def step(who: int, number: int) -> None:
        state = await storage.get_state(who, who)
        data = await storage.get_data(who, who) or {}
        await storage.set_state(who, who, "there" if state == "here" else "here")
        await storage.set_data(who, who, "step", data.get("step", 0) + 1)

    yield step
    await storage.redis.aclose()


@asynccontextmanager
async def chat_sdk(state: Any) -> AsyncIterator[Step]:
    """The Python port of the Chat SDK, with its queue strategy."""
    from chat_sdk import Chat
    from chat_sdk.shared.mock_adapter import create_mock_adapter, create_test_message
    from chat_sdk.types import ConcurrencyConfig

    logging.getLogger("chat_sdk").setLevel(logging.CRITICAL)
    adapter = create_mock_adapter("slack")
    concurrency = ConcurrencyConfig(strategy="queue")
    chat = Chat(
        adapters={"slack": adapter}, state=state, user_name="bot", concurrency=concurrency, logger="silent"
    )

    @chat.on_message(r".")
    async def handled(thread: Any, message: Any, *_: Any) -> None:
        found = await thread.get_state() or {}
        await thread.set_state({**found, "name": "Ann", "step": found.get("step", 0) + 1})

    await chat.initialize()

    async def step(who: int, number: int) -> None:
        thread = f"slack:C{who}:{who}.1"
        message = create_test_message(f"{number:x}", "hello", thread_id=thread)
        await chat.handle_incoming_message(adapter, thread, message)

    yield step
    await chat.shutdown()


@asynccontextmanager
async def chat_sdk_on(place: str, url: str) -> AsyncIterator[Step]:
    """The Chat SDK on one of its stores."""
    if place == "redis":
        from chat_sdk.state.redis import create_redis_state

        state: Any = create_redis_state(url=url)
    else:
        from chat_sdk.state.postgres import create_postgres_state

        state = create_postgres_state(url=url)
    async with chat_sdk(state) as step:
        yield step


def ways(folder: Path, redis_url: str, postgres_url: str) -> list[Way]:
    """Everything that can do the ordinary step from Python, ours first on each place."""
    warnings.simplefilter("ignore")

    def opened(function: Any, *arguments: Any) -> Any:
        maker: AbstractAsyncContextManager[Step] = partial(function, *arguments)  # type: ignore[assignment]
        return maker

    return [
        Way("hitherto, memory", "memory", False, opened(kept, "memory://")),
        Way("aiogram, memory", "memory", True, opened(aiogram_memory), "forgets at the end"),
        Way("hitherto, SQLite", "sqlite", False, opened(kept, f"sqlite:///{folder}/hitherto.db")),
        Way("hitherto, SQLite store", "sqlite", False, opened(stored, f"sqlite:///{folder}/store.db"), ALONE),
        *[
            Way(name, "sqlite", True, opened(aiogram_sqlite, name, folder / f"{name}.db"))
            for name in ("aiogram-sqlite-storage", "aiogram-fsm-sqlitestorage")
        ],
        Way("hitherto, Redis", "redis", False, opened(kept, redis_url)),
        Way("hitherto, Redis store", "redis", False, opened(stored, redis_url), ALONE),
        Way("aiogram, Redis", "redis", True, opened(aiogram_redis, redis_url)),
        Way("pyTelegramBotAPI, Redis", "redis", True, opened(telebot_redis, redis_url), "no lock, no dedupe"),
        Way("Chat SDK for Python, Redis", "redis", True, opened(chat_sdk_on, "redis", redis_url)),
        Way("hitherto, PostgreSQL", "postgres", False, opened(kept, postgres_url)),
        Way("hitherto, PostgreSQL store", "postgres", False, opened(stored, postgres_url), ALONE),
        Way(
            "Chat SDK for Python, PostgreSQL", "postgres", True, opened(chat_sdk_on, "postgres", postgres_url)
        ),
    ]
