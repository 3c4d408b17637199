"""aiogram's own storage and isolation on our stores: the drop-in pair, for bots that keep their handlers.

HITHERTO_RUNS says how often the twenty messages are sent to each store.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any, TypedDict

import pytest
from aiogram import Dispatcher, F, Router
from aiogram.exceptions import DataNotDictLikeError
from aiogram.filters import Command, StateFilter
from aiogram.fsm.context import FSMContext
from aiogram.fsm.scene import After, Scene, SceneRegistry, on
from aiogram.fsm.state import State, StatesGroup
from aiogram.fsm.storage.base import DefaultKeyBuilder, StorageKey
from aiogram.fsm.strategy import FSMStrategy
from aiogram.types import Message
from aiogram_dialog import Dialog, DialogManager, StartMode, Window, setup_dialogs
from aiogram_dialog.widgets.kbd import Button
from aiogram_dialog.widgets.text import Const, Format

from aiogram_bots import TOKEN, a_bot, polling, until
from hitherto import MemoryStore
from hitherto.aiogram import HithertoIsolation, HithertoStorage
from hitherto.errors import DataError, Fenced, StoreUnavailable
from hitherto.stores.base import DEFAULT_TERMS, Store
from hitherto.testing import ManualClock
from hitherto.testing.proxy import Proxy
from hitherto.testing.telegram import FakeTelegram

KEY = StorageKey(bot_id=42, chat_id=-7, user_id=7)
RUNS = int(os.environ.get("HITHERTO_RUNS", "20"))


class Form(StatesGroup):
    name = State()
    size = State()


@pytest.fixture
async def telegram():
    async with FakeTelegram(TOKEN) as fake:
        yield fake
    assert fake.server.faults == []


@pytest.fixture(params=["memory", "sqlite", "redis"])
def url(request, tmp_path) -> str:
    """Each kind of store."""
    if request.param == "redis":
        return request.getfixturevalue("redis_aof_url")
    return "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/bot.db"


@pytest.fixture
async def storage(url) -> AsyncIterator[HithertoStorage]:
    storage = HithertoStorage(url)
    yield storage
    await storage.close()


# -------------------------------------------------------------------------------- the contract of a storage


async def test_states(storage):
    assert await storage.get_state(KEY) is None
    for state, text in [(Form.name, "Form:name"), ("alone", "alone"), ("a:b:c", "a:b:c"), (":x", ":x")]:
        await storage.set_state(KEY, state)
        assert await storage.get_state(KEY) == text
    await storage.set_state(KEY, State("x"))
    assert await storage.get_state(KEY) == "@:x"
    await storage.set_state(KEY)
    assert await storage.get_state(KEY) is None
    with pytest.raises(DataError):
        await storage.set_state(KEY, 7)


async def test_data(storage):
    assert await storage.get_data(KEY) == {}
    assert await storage.get_value(KEY, "x", 1) == 1
    await storage.set_data(KEY, {"x": [1, {"y": None}], "ключ": "значение"})
    data = await storage.get_data(KEY)
    assert data == {"x": [1, {"y": None}], "ключ": "значение"}
    data["x"].append("a copy")
    assert await storage.get_value(KEY, "x") == [1, {"y": None}]
    assert await storage.update_data(KEY, {"z": 1}) == {"x": [1, {"y": None}], "ключ": "значение", "z": 1}
    assert await storage.update_data(KEY, {}) == await storage.get_data(KEY)
    await storage.set_data(KEY, {})
    assert await storage.get_data(KEY) == {}


async def test_data_of_other_sorts(storage):
    class Some(TypedDict):
        name: str

    await storage.set_data(KEY, Some(name="Ann"))
    assert await storage.get_data(KEY) == {"name": "Ann"}
    for wrong in ((), [("a", 1)], None):
        with pytest.raises(DataNotDictLikeError):
            await storage.set_data(KEY, wrong)
        with pytest.raises(DataNotDictLikeError):
            await storage.update_data(KEY, wrong)
    with pytest.raises(DataError, match='data\\["a"\\]'):
        await storage.set_data(KEY, {"a": object()})
    assert await storage.get_data(KEY) == {"name": "Ann"}


async def test_state_and_data_are_independent_and_nothing_is_left_of_a_cleared_conversation(storage):
    await storage.set_data(KEY, {"a": 1})
    await storage.set_state(KEY, Form.name)
    await storage.set_data(KEY, {})
    assert await storage.get_state(KEY) == "Form:name"
    await storage.update_data(KEY, {"b": 1})
    await storage.set_state(KEY, None)
    assert await storage.get_data(KEY) == {"b": 1}
    await storage.set_data(KEY, {})
    assert await storage.store.get_state("aiogram", (42, -7, 7, None, None, "default")) is None


KEYS = [
    StorageKey(*key, thread_id=thread, business_connection_id=business, destiny=destiny)
    for key, thread, business, destiny in itertools.product(
        [(1, 7, 7), (2, 7, 7), (1, 7, 8), (1, 77, 7)], [None, 7], [None, "7", "7:7"], ["default", "scene"]
    )
]


async def test_no_two_keys_meet(storage):
    for number, key in enumerate(KEYS):
        await storage.update_data(key, {"number": number})
        await storage.set_state(key, f"S:{number}")
    for number, key in enumerate(KEYS):
        assert await storage.get_data(key) == {"number": number}
        assert await storage.get_state(key) == f"S:{number}"
    builder = DefaultKeyBuilder(with_destiny=True)
    assert len({builder.build(key, "state") for key in KEYS}) < len(KEYS)


async def test_it_is_opened_again_after_the_end(storage):
    """As a dispatcher does that polls again."""
    isolation = storage.create_isolation()
    for _ in range(2):
        async with isolation.lock(KEY):
            data = await storage.get_data(KEY)
            await storage.set_data(KEY, {"count": data.get("count", 0) + 1})
        await storage.close()
    if "memory" not in storage.store.url:
        assert await storage.get_data(KEY) == {"count": 2}


async def test_two_storages_of_different_names_share_a_store():
    store = MemoryStore()
    one, two = HithertoStorage(store, name="one"), HithertoStorage(store, name="two")
    await one.set_data(KEY, {"a": 1})
    assert await two.get_data(KEY) == {}


async def test_fifty_updates_at_once_keep_fifty_keys(storage):
    await asyncio.gather(*[storage.update_data(KEY, {f"k{number}": number}) for number in range(50)])
    assert await storage.get_data(KEY) == {f"k{number}": number for number in range(50)}


# ------------------------------------------------------------------------------------- a step under a lock


class Counting(MemoryStore):
    """Counts the calls that would be a trip each."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.trips: Counter[str] = Counter()

    def __getattribute__(self, name: str) -> Any:
        if name in (
            "acquire",
            "settle",
            "transact",
            "load",
            "swap",
            "read",
            "write",
            "update_data",
            "release",
        ):
            super().__getattribute__("trips")[name] += 1
        return super().__getattribute__(name)

    def taken(self) -> dict[str, int]:
        """The trips since the last time; what one of them is made of is not a trip of its own."""
        trips, self.trips = self.trips, Counter()
        inner = {"transact", "load"}
        return {name: count for name, count in trips.items() if name not in inner}


async def a_step(storage: HithertoStorage, isolation: HithertoIsolation, number: int = 1) -> None:
    async with isolation.lock(KEY):
        assert await storage.get_state(KEY) in (None, "Form:name")
        await storage.set_state(KEY, Form.name)
        data = await storage.get_data(KEY)
        await storage.update_data(KEY, {"seen": [*data.get("seen", []), number]})
        assert await storage.get_value(KEY, "seen")


async def test_a_step_is_two_trips_and_its_writes_are_one():
    store = Counting()
    storage = HithertoStorage(store)
    isolation = storage.create_isolation()
    await a_step(storage, isolation)
    store.taken()
    await a_step(storage, isolation, 2)
    assert store.taken() == {"acquire": 1, "settle": 1}
    async with isolation.lock(KEY):
        assert await storage.get_data(KEY) == {"seen": [1, 2]}
    assert store.taken() == {"acquire": 1, "settle": 1}


async def test_nothing_is_written_before_the_step_ends():
    storage = HithertoStorage(MemoryStore())
    async with storage.create_isolation().lock(KEY):
        await storage.set_state(KEY, Form.name)
        other = asyncio.get_running_loop().create_task(asyncio.sleep(0))
        await other
        assert await storage.store.get_state("aiogram", (42, -7, 7, None, None, "default")) is None
    assert await storage.get_state(KEY) == "Form:name"


async def test_tasks_of_a_handler_write_with_it_and_after_it():
    storage = HithertoStorage(MemoryStore())
    go = asyncio.Event()

    async def late() -> None:
        await go.wait()
        await storage.update_data(KEY, {"late": True})

    async with storage.create_isolation().lock(KEY):
        await asyncio.gather(*[storage.update_data(KEY, {f"k{number}": 1}) for number in range(50)])
        task = asyncio.create_task(late())
    assert len(await storage.get_data(KEY)) == 50
    go.set()
    await task
    assert len(await storage.get_data(KEY)) == 51


async def test_what_others_merge_meanwhile_is_kept():
    storage = HithertoStorage(MemoryStore())
    elsewhere = HithertoStorage(storage.store)
    async with storage.create_isolation().lock(KEY):
        await storage.update_data(KEY, {"mine": 1})
        await elsewhere.update_data(KEY, {"theirs": 1})
    assert await storage.get_data(KEY) == {"mine": 1, "theirs": 1}


async def test_locks_of_different_keys_nest():
    storage = HithertoStorage(MemoryStore())
    isolation = storage.create_isolation()
    inner = StorageKey(bot_id=42, chat_id=-7, user_id=7, destiny="inner")
    async with isolation.lock(KEY):
        await storage.update_data(KEY, {"a": 1})
        async with isolation.lock(inner):
            await storage.update_data(inner, {"b": 1})
            await storage.update_data(KEY, {"c": 1})
        assert await storage.get_data(KEY) == {"a": 1, "c": 1}
    assert await storage.get_data(KEY) == {"a": 1, "c": 1}
    assert await storage.get_data(inner) == {"b": 1}


@pytest.mark.parametrize(("rollback", "kept"), [(False, {"a": 1}), (True, {})])
async def test_what_a_step_wrote_before_it_raised(rollback, kept):
    storage = HithertoStorage(MemoryStore(), rollback=rollback)
    isolation = storage.create_isolation()

    async def step() -> None:
        async with isolation.lock(KEY):
            await storage.update_data(KEY, {"a": 1})
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await step()
    assert await storage.get_data(KEY) == kept
    async with isolation.lock(KEY):
        pass


async def test_first_come_first_served(storage):
    isolation, order = storage.create_isolation(), []

    async def step(number: int) -> None:
        async with isolation.lock(KEY):
            order.append(number)
            await asyncio.sleep(0)

    await asyncio.gather(*[step(number) for number in range(40)])
    assert order == list(range(40))


async def test_who_is_cancelled_while_waiting_leaves_the_line(storage):
    isolation, order = storage.create_isolation(), []
    go = asyncio.Event()

    async def step(number: int) -> None:
        async with isolation.lock(KEY):
            order.append(number)
            await go.wait()

    tasks = [asyncio.create_task(step(number)) for number in range(4)]
    await until(lambda: order)
    tasks[1].cancel()
    tasks[2].cancel()
    await asyncio.sleep(0)
    go.set()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert order == [0, 3]
    assert storage.holder.lines.waiting == {}


async def test_two_workers_exclude_each_other(tmp_path):
    url = f"sqlite:///{tmp_path}/bot.db"
    inside, most = 0, 0
    async with AsyncExitStack() as stack:
        storages = [HithertoStorage(url) for _ in range(2)]
        for storage in storages:
            stack.push_async_callback(storage.close)

        async def step(storage: HithertoStorage, number: int) -> None:
            nonlocal inside, most
            async with storage.create_isolation().lock(KEY):
                inside += 1
                most = max(most, inside)
                data = await storage.get_data(KEY)
                await asyncio.sleep(0.001)
                await storage.set_data(KEY, {"count": data.get("count", 0) + 1})
                inside -= 1

        await asyncio.gather(*[step(storages[number % 2], number) for number in range(20)])
        assert await storages[0].get_data(KEY) == {"count": 20}
    assert most == 1


# ------------------------------------------------------------------------------------- renewed, and fenced


async def test_a_long_step_is_renewed_and_keeps_its_lease():
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    storage, other = HithertoStorage(store, lease=30), HithertoStorage(store, lease=30)
    async with storage.create_isolation().lock(KEY):
        for _ in range(10):
            assert storage.holder._renewal is not None
            clock.advance(20)
            await storage.holder._renew()
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01), other.create_isolation().lock(KEY):
                    pass
        await storage.set_state(KEY, Form.name)
    assert await storage.get_state(KEY) == "Form:name"
    await storage.holder.drained(1)
    await other.holder.drained(1)


async def test_renewal_comes_by_itself():
    store = MemoryStore()
    storage, renewed = HithertoStorage(store, lease=0.03), asyncio.Event()
    renew = store.renew

    async def noted(*arguments: Any) -> Any:
        renewed.set()
        return await renew(*arguments)

    store.renew = noted
    async with asyncio.timeout(5), storage.create_isolation().lock(KEY):
        await renewed.wait()
    await storage.close()


async def test_who_lost_the_lease_writes_nothing():
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    storage, other = HithertoStorage(store, lease=30), HithertoStorage(store, lease=30)

    async def step() -> None:
        async with storage.create_isolation().lock(KEY):
            await storage.update_data(KEY, {"mine": 1})
            clock.advance(31)
            async with other.create_isolation().lock(KEY):
                await other.update_data(KEY, {"theirs": 1})

    with pytest.raises(Fenced):
        await step()
    assert await storage.get_data(KEY) == {"theirs": 1}


async def test_a_step_that_lost_the_lease_and_wrote_nothing_is_fine():
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    storage, other = HithertoStorage(store), HithertoStorage(store)
    async with storage.create_isolation().lock(KEY):
        clock.advance(31)
        async with other.create_isolation().lock(KEY):
            pass


async def test_data_too_large_is_refused_and_the_conversation_is_free(storage):
    isolation, elsewhere = storage.create_isolation(), HithertoStorage(storage.store)
    half = "x" * 600_000

    async def step() -> None:
        async with isolation.lock(KEY):
            await storage.update_data(KEY, {"b": half})
            with pytest.raises(DataError, match="bytes"):
                await storage.update_data(KEY, {"c": half})
            await elsewhere.update_data(KEY, {"a": half})

    with pytest.raises(DataError, match="bytes"):
        await step()
    async with asyncio.timeout(3), isolation.lock(KEY):
        assert await storage.get_data(KEY) == {"a": half}


async def test_a_store_that_is_away_is_said_and_leaves_nothing_behind():
    class Away(MemoryStore):
        away = False

        async def acquire(self, *arguments: Any) -> Any:
            if self.away:
                raise StoreUnavailable("it is away")
            return await super().acquire(*arguments)

    store = Away()
    storage = HithertoStorage(store, deadline=0.01)
    store.away = True
    with pytest.raises(StoreUnavailable):
        async with storage.create_isolation().lock(KEY):
            pass
    store.away = False
    async with storage.create_isolation().lock(KEY):
        pass
    assert (storage.holder.lines.waiting, storage.holder.units) == ({}, set())


async def test_idle_conversations_are_evicted():
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    storage = HithertoStorage(store)
    isolation = storage.create_isolation()
    for user in range(100):
        async with isolation.lock(StorageKey(bot_id=42, chat_id=user, user_id=user)):
            pass
    assert (storage.holder.lines.waiting, storage.holder.units) == ({}, set())
    assert len(store._documents) == 100
    clock.advance(DEFAULT_TERMS.tombstone + 1)
    storage.holder.tidy_at = 0.0
    async with isolation.lock(KEY):
        pass
    await storage.holder.drained(1)
    assert len(store._documents) == 1


async def test_closing_waits_for_the_step_that_runs():
    storage = HithertoStorage("memory://")
    entered = asyncio.Event()

    async def step() -> None:
        async with storage.create_isolation().lock(KEY):
            entered.set()
            await asyncio.sleep(0.05)
            await storage.set_state(KEY, Form.name)

    task = asyncio.create_task(step())
    await entered.wait()
    await storage.close()
    assert task.done()
    await task


async def test_a_store_that_was_given_is_not_closed():
    class Closing(MemoryStore):
        closed = False

        async def close(self) -> None:
            self.closed = True

    store = Closing()
    storage = HithertoStorage(store)
    await storage.set_state(KEY, "x")
    await storage.close()
    assert not store.closed


def test_nothing_private_is_in_the_repr():
    storage = HithertoStorage("memory://")
    assert "aiogram" in repr(storage)


# ------------------------------------------------------------------------------------------- whole bots


def a_dispatcher(store: str | Store | HithertoStorage, **options: Any) -> Dispatcher:
    storage = store if isinstance(store, HithertoStorage) else HithertoStorage(store)
    return Dispatcher(storage=storage, events_isolation=storage.create_isolation(), **options)


def an_update(
    number: int, text: str = "hello", chat: int = 7, user: int = 7, **message: Any
) -> dict[str, Any]:
    kind = "private" if chat > 0 else "supergroup"
    who = {"id": user, "is_bot": False, "first_name": "Ann"}
    place = {"id": chat, "type": kind, "first_name": "Ann"}
    body = {"message_id": number, "date": 1, "chat": place, "from": who, "text": text, **message}
    name = "business_message" if "business_connection_id" in message else "message"
    return {"update_id": number, name: body}


async def test_a_step_of_a_bot_is_two_trips_and_an_unhandled_update_too(telegram):
    store = Counting()
    dispatcher = a_dispatcher(store)

    @dispatcher.message(F.text == "go")
    async def go(message: Message, state: FSMContext) -> None:
        await state.set_state(Form.name)
        await state.update_data(text=message.text)

    bot = a_bot(telegram)
    await dispatcher.feed_raw_update(bot, an_update(1, "go"))
    store.taken()
    await dispatcher.feed_raw_update(bot, an_update(2, "go"))
    assert store.taken() == {"acquire": 1, "settle": 1}
    await dispatcher.feed_raw_update(bot, an_update(3, "unknown"))
    assert store.taken() == {"acquire": 1, "settle": 1}
    await bot.session.close()


async def test_a_step_on_redis_is_two_round_trips_and_an_unhandled_update_too(telegram, redis_aof_url):
    """Counted at the socket."""
    async with Proxy(redis_aof_url) as proxy:
        storage = HithertoStorage(proxy.url)
        dispatcher = a_dispatcher(storage)

        @dispatcher.message(F.text == "go")
        async def go(message: Message, state: FSMContext) -> None:
            assert await state.get_state() in (None, "Form:name")
            await state.set_state(Form.name)
            data = await state.get_data()
            await state.update_data(count=data.get("count", 0) + 1)

        bot = a_bot(telegram)
        await dispatcher.feed_raw_update(bot, an_update(1, "go"))
        for number, text in enumerate(["go", "unknown", "go", "unknown"], 2):
            proxy.reset_counts()
            await dispatcher.feed_raw_update(bot, an_update(number, text))
            assert proxy.reset_counts().round_trips == 2
        assert await storage.get_value(StorageKey(bot_id=42, chat_id=7, user_id=7), "count") == 3
        await bot.session.close()
        await storage.close()


PLACES = {
    "private": {},
    "topic": {"message_thread_id": 5, "is_topic_message": True},
    "business": {"business_connection_id": "7"},
    "business of another": {"business_connection_id": "7:7"},
    "business in a topic": {"business_connection_id": "7", "message_thread_id": 5, "is_topic_message": True},
}


async def test_a_thousand_updates_are_kept_apart(telegram, url):
    """Where aiogram's default keys collide: another bot, a business chat, a topic, the same numbers."""
    dispatcher = a_dispatcher(url, fsm_strategy=FSMStrategy.USER_IN_TOPIC)

    async def count(message: Message, state: FSMContext, bot: Any) -> None:
        data = await state.get_data()
        place = f"{bot.id}/{message.text}/{message.chat.id}"
        assert data.get("place", place) == place
        await state.update_data(place=place, count=data.get("count", 0) + 1)
        await state.set_state(f"{bot.id}:{message.text}")

    dispatcher.message.register(count)
    dispatcher.business_message.register(count)
    bots = a_bot(telegram, "7:TEST"), a_bot(telegram, "77:TEST")
    places = list(itertools.product(bots, PLACES.items(), [7, 77, -7]))
    updates = [
        dispatcher.feed_raw_update(bot, an_update(number, name, chat, 7, **extra))
        for number in range(1, 1002 // len(places) + 1)
        for bot, (name, extra), chat in places
    ]
    rounds = len(updates) // len(places)
    for start in range(0, len(updates), 100):
        await asyncio.gather(*updates[start : start + 100])
    storage = dispatcher.storage
    found = {address.key async for address in storage.store.scan(storage.name, "record")}
    assert len(found) == len(places)
    for key in found:
        assert (await storage.store.get_data(storage.name, key))["count"] == rounds
    assert len(updates) >= 990
    for bot in bots:
        await bot.session.close()
    await storage.close()


async def in_order(url: str, telegram: FakeTelegram, run: int) -> list[int]:
    """Twenty messages a millisecond apart to one bot; what the state says came when."""
    dispatcher = a_dispatcher(HithertoStorage(url, name=f"run {run}"))

    @dispatcher.message()
    async def note(message: Message, state: FSMContext) -> None:
        data = await state.get_data()
        await asyncio.sleep(0.0005 * (int(message.text) % 3))
        await state.update_data(seen=[*data.get("seen", []), int(message.text)])

    bot = a_bot(telegram)
    tasks = []
    for number in range(20):
        tasks.append(asyncio.create_task(dispatcher.feed_raw_update(bot, an_update(number + 1, str(number)))))
        await asyncio.sleep(0.001)
    await asyncio.gather(*tasks)
    seen = await dispatcher.storage.get_value(StorageKey(bot_id=42, chat_id=7, user_id=7), "seen")
    await bot.session.close()
    await dispatcher.storage.close()
    return seen


async def test_twenty_messages_a_millisecond_apart_come_in_order_each_time(telegram, url):
    for start in range(0, RUNS, 10):
        for seen in await asyncio.gather(*[in_order(url, telegram, start + run) for run in range(10)]):
            assert seen == list(range(20))


@pytest.mark.parametrize("isolated", [True, False])
async def test_fifty_updates_of_the_data_by_fifty_handlers(telegram, isolated):
    storage = HithertoStorage("memory://")
    dispatcher = a_dispatcher(storage) if isolated else Dispatcher(storage=storage)

    @dispatcher.message()
    async def note(message: Message, state: FSMContext) -> None:
        await state.update_data({message.text: True})

    bot = a_bot(telegram)
    await asyncio.gather(
        *[dispatcher.feed_raw_update(bot, an_update(number + 1, f"k{number}")) for number in range(50)]
    )
    assert len(await storage.get_data(StorageKey(bot_id=42, chat_id=7, user_id=7))) == 50
    await bot.session.close()


async def test_a_dialogue_goes_on_after_a_restart(telegram, tmp_path):
    def bot_of() -> Dispatcher:
        dispatcher = a_dispatcher(f"sqlite:///{tmp_path}/bot.db")

        @dispatcher.message(Command("start"))
        async def start(message: Message, state: FSMContext) -> None:
            await state.set_state(Form.name)
            await message.answer("name?")

        @dispatcher.message(Form.name)
        async def name(message: Message, state: FSMContext) -> None:
            await state.update_data(name=message.text)
            await state.set_state(Form.size)
            await message.answer("size?")

        @dispatcher.message(Form.size)
        async def size(message: Message, state: FSMContext) -> None:
            data = await state.get_data()
            await state.clear()
            await message.answer(f"{data['name']}: {message.text}")

        @dispatcher.message(StateFilter(None))
        async def nothing(message: Message) -> None:
            await message.answer("nothing")

        return dispatcher

    alice = telegram.user("Alice")
    for said, heard in [("/start", "name?"), ("Ann", "size?"), ("large", "Ann: large"), ("hm", "nothing")]:
        async with polling(telegram, bot_of()):
            alice.says(said)
            assert (await alice.hears()).text == heard


async def handled(dispatcher: Dispatcher) -> None:
    """Wait for the handlers: aiogram closes its storage without, and one that comes later opens it again."""
    if dispatcher._handle_update_tasks:
        await asyncio.wait(dispatcher._handle_update_tasks)


class Quiz(Scene, state="quiz"):
    @on.message.enter()
    async def enter(self, message: Message, state: FSMContext, step: int = 0) -> None:
        await state.update_data(step=step)
        await message.answer(f"question {step}")

    @on.message(F.text == "back")
    async def back(self, message: Message) -> None:
        await self.wizard.back()

    @on.message(F.text == "leave", after=After.exit())
    async def leave(self, message: Message) -> None:
        await message.answer("bye")

    @on.message(F.text)
    async def answer(self, message: Message, state: FSMContext) -> None:
        await self.wizard.retake(step=(await state.get_value("step")) + 1)


async def test_scenes(telegram, url):
    dispatcher = a_dispatcher(url)
    router = Router()
    router.message.register(Quiz.as_handler(), Command("quiz"))
    dispatcher.include_router(router)
    SceneRegistry(dispatcher).add(Quiz)
    alice = telegram.user("Alice")
    async with polling(telegram, dispatcher):
        alice.says("/quiz")
        assert (await alice.hears()).text == "question 0"
        for number in (1, 2):
            alice.says("an answer")
            assert (await alice.hears()).text == f"question {number}"
        alice.says("back")
        assert (await alice.hears()).text == "question 0"
        alice.says("leave")
        assert (await alice.hears()).text == "bye"
        alice.says("to nobody")
        await telegram.drained()
        await handled(dispatcher)
    assert len(alice.messages) == 5


class Shop(StatesGroup):
    menu = State()
    done = State()


async def chosen(query: Any, button: Any, manager: DialogManager) -> None:
    manager.dialog_data["count"] = manager.dialog_data.get("count", 0) + 1
    if manager.dialog_data["count"] == 3:
        await manager.switch_to(Shop.done)


async def counted(dialog_manager: DialogManager, **_: Any) -> dict[str, Any]:
    return {"count": dialog_manager.dialog_data.get("count", 0)}


async def test_aiogram_dialog(telegram, url):
    storage = HithertoStorage(url)
    dispatcher = a_dispatcher(storage)
    menu = Window(
        Format("{count} so far"), Button(Const("more"), id="more", on_click=chosen), state=Shop.menu
    )
    dispatcher.include_router(Dialog(menu, Window(Const("enough"), state=Shop.done), getter=counted))
    setup_dialogs(dispatcher, events_isolation=storage.create_isolation())

    @dispatcher.message(Command("shop"))
    async def shop(message: Message, dialog_manager: DialogManager) -> None:
        await dialog_manager.start(Shop.menu, mode=StartMode.RESET_STACK)

    alice = telegram.user("Alice")
    async with polling(telegram, dispatcher):
        alice.says("/shop")
        assert (await alice.hears()).text == "0 so far"
        for expected in ("1 so far", "2 so far", "enough"):
            alice.presses("more")
            assert (await alice.sees_edit()).text == expected
