"""pyTelegramBotAPI: its storages and bots with a keeper, real bots of both kinds at the fake Telegram."""

from __future__ import annotations

import asyncio
import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress

import pytest
import telebot
from telebot import TeleBot, apihelper, asyncio_filters, asyncio_helper, custom_filters, types
from telebot.async_telebot import AsyncTeleBot
from telebot.asyncio_storage import StateMemoryStorage as AsyncMemory
from telebot.states import State as TheirState
from telebot.states import StatesGroup
from telebot.states.asyncio.middleware import StateMiddleware as AsyncStateMiddleware
from telebot.states.sync.middleware import StateMiddleware
from telebot.storage import StateMemoryStorage

from hitherto import Flow, Keeper, MemoryStore, Reject, State, keys, sync
from hitherto.stores.sqlite import SQLiteStore
from hitherto.telebot import (
    AsyncHithertoStorage,
    DataIs,
    HithertoStorage,
    InFlow,
    NoFlow,
    NotAccepted,
    attach,
    dump,
    key_of,
)
from hitherto.testing.telegram import FakeTelegram
from telegram_updates import CASES

TOKEN = "42:TEST"
LONG = 60.0


class Signup(Flow):
    ask_name = State(to="ask_email", initial=True)
    ask_email = State(to="done")
    done = State(to=[])


class Form(StatesGroup):
    name = TheirState()
    age = TheirState()


@pytest.fixture(autouse=True)
def quiet(monkeypatch):
    """No shared connections: they would be left open in threads of telebot's."""
    monkeypatch.setattr(apihelper, "SESSION_TIME_TO_LIVE", 0)
    monkeypatch.setattr(telebot.logger, "level", logging.CRITICAL)


@pytest.fixture
async def telegram(monkeypatch):
    async with FakeTelegram(TOKEN) as telegram:
        monkeypatch.setattr(apihelper, "API_URL", telegram.url + "/bot{0}/{1}")
        monkeypatch.setattr(asyncio_helper, "API_URL", telegram.url + "/bot{0}/{1}")
        yield telegram


def update(number, text="hi", who=7, **more):
    person = {"chat": {"id": who, "type": "private"}, "from": {"id": who, "is_bot": False, "first_name": "A"}}
    message = {"message_id": number, "date": 1, "text": text, **person, **more}
    return types.Update.de_json({"update_id": number, "message": message})


# ----------------------------------------------------------------------------------------------- the storage


class Blocking:
    """An asynchronous storage with the verbs of a blocking one: both are held to the same."""

    def __init__(self, storage):
        self._storage, self._loop = storage, asyncio.new_event_loop()

    def __getattr__(self, name):
        verb = getattr(self._storage, name)
        if name == "get_interactive_data":
            return lambda *given, **named: self._Block(self, verb(*given, **named))
        return lambda *given, **named: self._loop.run_until_complete(verb(*given, **named))

    class _Block:
        def __init__(self, outer, inner):
            self.outer, self.inner = outer, inner

        def __enter__(self):
            return self.outer._loop.run_until_complete(self.inner.__aenter__())

        def __exit__(self, *error):
            return self.outer._loop.run_until_complete(self.inner.__aexit__(*error))

    def end(self):
        if hasattr(self._storage, "close"):
            self._loop.run_until_complete(self._storage.close())
        self._loop.close()


@pytest.fixture(params=["theirs", "theirs async", "ours", "ours async"])
def storage(request, tmp_path):
    """Telebot's own memory storage answers first what ours has to answer."""
    url = f"sqlite:///{tmp_path / 'bot.db'}"
    if request.param == "theirs":
        yield StateMemoryStorage()
    elif request.param == "ours":
        storage = HithertoStorage(url)
        yield storage
        storage.close()
    else:
        storage = Blocking(AsyncHithertoStorage(url) if request.param == "ours async" else AsyncMemory())
        yield storage
        storage.end()


def test_the_contract(storage):
    where = {"bot_id": 42}
    assert storage.get_state(7, 8, **where) is None
    assert storage.get_data(7, 8, **where) == {}
    assert storage.delete_state(7, 8, **where) is False
    assert storage.reset_data(7, 8, **where) is False
    assert storage.save(7, 8, {"x": 1}, **where) is False
    with pytest.raises(RuntimeError, match=r"not exist|no such record"):
        storage.set_data(7, 8, "x", 1, **where)
    assert storage.get_data(7, 8, **where) == {}
    assert storage.set_state(7, 8, Form.name, **where) is True
    assert storage.get_state(7, 8, **where) == "Form:name"
    assert storage.set_data(7, 8, "x", 1, **where) is True
    assert storage.set_data(7, 8, "y", [1, {"z": None}], **where) is True
    assert storage.set_state(7, 8, "Form:age", **where) is True
    assert storage.get_data(7, 8, **where) == {"x": 1, "y": [1, {"z": None}]}
    with storage.get_interactive_data(7, 8, **where) as data:
        assert data == {"x": 1, "y": [1, {"z": None}]}
        data["y"].append(2)
        del data["x"]
        data["new"] = "é"
    assert storage.get_data(7, 8, **where) == {"y": [1, {"z": None}, 2], "new": "é"}
    assert storage.save(7, 8, {"only": 1}, **where) is True
    assert storage.get_data(7, 8, **where) == {"only": 1}
    assert storage.reset_data(7, 8, **where) is True
    assert (storage.get_state(7, 8, **where), storage.get_data(7, 8, **where)) == ("Form:age", {})
    assert storage.delete_state(7, 8, **where) is True
    assert storage.get_state(7, 8, **where) is None


@pytest.mark.parametrize("state", ["plain", "a:b:c", ":x", "x:", "#1", "##", 1, 0, -5, Form.age, "é ü"])
def test_states_come_back_as_they_were(storage, state):
    storage.set_state(7, 8, state)
    assert storage.get_state(7, 8) == getattr(state, "name", state)
    assert type(storage.get_state(7, 8)) is type(getattr(state, "name", state))


def test_no_state_is_a_record_all_the_same(storage):
    storage.set_state(7, 8, None)
    assert storage.get_state(7, 8) is None
    assert storage.set_data(7, 8, "x", 1) is True
    assert storage.get_data(7, 8) == {"x": 1}
    assert storage.delete_state(7, 8) is True


def test_every_place_is_its_own(storage):
    places = [
        {"chat_id": chat, "user_id": user, "bot_id": bot, "message_thread_id": thread,
         "business_connection_id": business}
        for chat in (7, 8) for user in (7, 8) for bot in (None, 42, 43) for thread in (None, 7)
        for business in (None, "7", "42:7")
    ]  # fmt: skip
    for number, place in enumerate(places):
        storage.set_state(state=f"s{number}", **place)
    found = [storage.get_state(**place) for place in places]
    if not isinstance(storage, StateMemoryStorage) and not isinstance(
        getattr(storage, "_storage", None), AsyncMemory
    ):
        assert found == [f"s{number}" for number in range(len(places))]
    else:
        assert len(set(found)) < len(places)  # theirs collide: this is why


def test_what_a_block_did_is_written_even_when_it_raises():
    storage = HithertoStorage("memory://")
    storage.set_state(7, 8, "s")
    with pytest.raises(KeyError), storage.get_interactive_data(7, 8) as data:  # noqa: PT012
        data["x"] = 1
        raise KeyError("mine")
    assert storage.get_data(7, 8) == {"x": 1}
    storage.close()


def test_zero_is_what_telebot_takes_for_missing():
    assert key_of(7, 8, "", 0, 0) == key_of(7, 8) == (None, 7, 8, None, None)


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_fifty_threads_leave_fifty_keys(tmp_path, kind):
    url = "memory://" if kind == "memory" else f"sqlite:///{tmp_path / 'bot.db'}"
    storage = HithertoStorage(url)
    storage.set_state(7, 8, "s")
    start = threading.Barrier(50)

    def work(number):
        with storage.get_interactive_data(7, 8) as data:
            start.wait(LONG)
            data[f"block{number}"] = number
        storage.set_data(7, 8, f"set{number}", number)

    with ThreadPoolExecutor(50) as threads:
        list(threads.map(work, range(50)))
    assert len(storage.get_data(7, 8)) == 100
    storage.close()


def test_on_redis_and_postgres(redis_aof_url, postgres_url):
    for url in (redis_aof_url, postgres_url):
        storage = HithertoStorage(url)
        storage.set_state(7, 8, Form.name, bot_id=42)
        storage.set_data(7, 8, "x", {"n": 2**70}, bot_id=42)
        storage.close()
        storage = HithertoStorage(url)
        assert storage.get_state(7, 8, bot_id=42) == "Form:name"
        assert storage.get_data(7, 8, bot_id=42) == {"x": {"n": 2**70}}
        storage.close()


async def test_a_store_of_ones_own_stays_open():
    async with MemoryStore() as store:
        storage = AsyncHithertoStorage(store, name="mine")
        await asyncio.gather(*(storage.set_state(n, n, "s:t") for n in range(20)))
        await storage.close()
        record = await store.get_state("mine", key_of(3, 3))
        assert (record.flow, record.state) == ("s", "t")


# -------------------------------------------------------------- telebot's own filters, middleware and context


def conversation(bot, storage_class):
    """A bot in telebot's own style, blocking or not by what decorators get."""
    said = []

    @bot.message_handler(commands=["start"])
    def start(message, state):
        state.set(Form.name)

    @bot.message_handler(state=Form.name)
    def name(message, state):
        state.add_data(name=message.text)
        state.set(Form.age)

    @bot.message_handler(state=[Form.age])
    def age(message, state):
        with state.data() as data:
            data["age"] = int(message.text)
            said.append(dict(data))
        state.delete()

    @bot.message_handler(state="*")
    def lost(message, state):
        said.append("lost")

    return said


def test_a_bot_in_telebots_own_style(tmp_path):
    url = f"sqlite:///{tmp_path / 'bot.db'}"
    said = []
    for batch in (["/start", "Ann"], ["33", "33"]):  # a restart in between
        storage = HithertoStorage(url)
        bot = TeleBot(TOKEN, state_storage=storage, use_class_middlewares=True, threaded=False)
        bot.add_custom_filter(custom_filters.StateFilter(bot))
        bot.setup_middleware(StateMiddleware(bot))
        said = conversation(bot, HithertoStorage)
        bot.process_new_updates([update(number, text) for number, text in enumerate(batch, 1)])
        storage.close()
    assert said == [{"name": "Ann", "age": 33}]


async def test_an_async_bot_in_telebots_own_style():
    storage, said = AsyncHithertoStorage("memory://"), []
    bot = AsyncTeleBot(TOKEN, state_storage=storage)
    bot.add_custom_filter(asyncio_filters.StateFilter(bot))
    bot.setup_middleware(AsyncStateMiddleware(bot))

    @bot.message_handler(commands=["start"])
    async def start(message, state):
        await state.set(Form.name)

    @bot.message_handler(state=Form.name)
    async def name(message, state):
        await state.add_data(name=message.text, more=[1])
        async with state.data() as data:
            data["more"].append(2)
            said.append(dict(data))
        await state.reset_data()
        said.append((await state.get(), await storage.get_data(7, 7, bot_id=42)))

    for number, text in enumerate(["hi", "/start", "Ann"], 1):
        await bot.process_new_updates([update(number, text)])
    assert said == [{"name": "Ann", "more": [1, 2]}, ("Form:name", {})]
    await storage.close()


def test_topics_and_business_chats_have_states_of_their_own():
    storage = HithertoStorage("memory://")
    bot = TeleBot(TOKEN, state_storage=storage, use_class_middlewares=True, threaded=False)
    bot.setup_middleware(StateMiddleware(bot))

    @bot.message_handler(content_types=["text"])
    def handler(message, state):
        state.set(message.text)

    bot.business_message_handler(content_types=["text"])(handler)
    bot.process_new_updates([update(1, "private")])
    bot.process_new_updates([update(2, "topic", is_topic_message=True, message_thread_id=5)])
    raw = dump(update(3, "business", business_connection_id="b"))
    bot.process_new_updates([types.Update.de_json({"update_id": 3, "business_message": raw["message"]})])
    assert storage.get_state(7, 7, bot_id=42) == "private"
    assert storage.get_state(7, 7, bot_id=42, message_thread_id=5) == "topic"
    assert storage.get_state(7, 7, bot_id=42, business_connection_id="b") == "business"
    storage.close()


# ------------------------------------------------------------------------------------------- what is dumped


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_an_update_is_dumped_so_that_the_key_is_the_same(case):
    """Whatever telebot makes of an update of any kind: the key of it is that of what Telegram sent."""
    if case.kind == "poll":
        case.body["options"] = [{"text": "yes", "voter_count": 1}]  # telebot loses an empty list
    try:
        parsed = types.Update.de_json(case.update)
    except Exception:  # what telebot itself cannot read never gets here
        return
    if all(value is None for name, value in vars(parsed).items() if name != "update_id"):
        return
    dumped = dump(parsed)
    for strategy in (keys.ChatUser(), keys.User(), keys.Chat(), keys.ChatTopic(), keys.ChatTopicUser()):
        assert strategy.extract(dumped) == strategy.extract(case.update)
    assert types.Update.de_json(dumped).update_id == 10_000


# --------------------------------------------------------------------------------- attached: a blocking bot


def signup(bot, said):
    @bot.message_handler(state=Signup.ask_name)
    def name(message, turn):
        turn.update_data(name=message.text)
        turn.transition(Signup.ask_email)

    @bot.message_handler(when=[InFlow(Signup), DataIs(name="Ann")])
    def email(message, turn):
        said.append((turn.state.name, dict(turn.data)))
        turn.transition(Signup.done)

    @bot.message_handler(when=NoFlow())
    def start(message, turn):
        turn.start(Signup)


def a_bot(**options):
    return TeleBot(TOKEN, use_class_middlewares=True, **options)


def test_the_turn_is_an_argument_and_states_are_filters():
    said = []
    with sync.Keeper("bot", flows=[Signup]) as keeper:
        bot = a_bot(threaded=False)
        attach(bot, keeper)
        signup(bot, said)
        for number, text in enumerate(["/start", "Ann", "x"], 1):
            for _ in range(2):  # each comes twice
                bot.process_new_updates([update(number, text)])
        with keeper.open((7, 7)) as turn:
            assert (turn.state, turn.data) == (Signup.done, {"name": "Ann"})
    assert said == [("ask_email", {"name": "Ann"})]


def test_a_handler_that_raises_changes_nothing_and_is_tried_again():
    tried, done = [], threading.Event()
    with sync.Keeper("bot", backoff=lambda attempt: 0.0) as keeper:
        bot = a_bot(threaded=False)
        attach(bot, keeper)

        @bot.message_handler(content_types=["text"])
        def handler(message, turn):
            turn.update_data(n=turn.data.get("n", 0) + 1)
            tried.append(turn.attempt)
            if turn.attempt == 1:
                raise ValueError("once")
            done.set()

        bot.process_new_updates([update(1)])
        assert done.wait(LONG)
        assert keeper.idle()
        with keeper.open((7, 7)) as turn:
            assert turn.data == {"n": 1}
    assert tried == [1, 2]


def test_an_error_that_was_taken_care_of_is_not_tried_again():
    class Caring(telebot.ExceptionHandler):
        def handle(self, exception):
            return True

    with sync.Keeper("bot") as keeper:
        bot = a_bot(threaded=False, exception_handler=Caring())
        attach(bot, keeper)

        @bot.message_handler(content_types=["text"])
        def handler(message, turn):
            turn.update_data(n=1)
            raise ValueError("always")

        bot.process_new_updates([update(1)])
        assert keeper.idle()
        assert list(keeper.inspect((7, 7)).seen) == ["tg:1"]
        with keeper.open((7, 7)) as turn:
            assert turn.data == {}


def test_a_webhook_that_finds_it_busy_is_told():
    began, go = threading.Event(), threading.Event()
    with sync.Keeper("bot", overlap=Reject()) as keeper, ThreadPoolExecutor(1) as other:
        bot = a_bot(threaded=False)
        attach(bot, keeper)

        @bot.message_handler(content_types=["text"])
        def handler(message):
            began.set()
            assert go.wait(LONG)

        first = other.submit(bot.process_new_updates, [update(1)])
        assert began.wait(LONG)
        with pytest.raises(NotAccepted):
            bot.process_new_updates([update(2)])
        go.set()
        first.result(LONG)


@asynccontextmanager
async def polling(bot):
    """A blocking bot that polls in a thread of its own."""
    thread = threading.Thread(target=bot.infinity_polling, kwargs={
        "timeout": 5, "long_polling_timeout": 1, "logger_level": None, "interval": 0})  # fmt: skip
    thread.start()
    try:
        yield
    finally:
        bot.stop_polling()
        await asyncio.to_thread(thread.join)
        bot.stop_bot()


async def test_polling_in_order_and_once(telegram):
    """Five people at once: each hears what they said, in order."""
    people = [telegram.user(f"P{number}") for number in range(5)]
    said = {person.id: [] for person in people}
    keeper = sync.Keeper("bot")
    await asyncio.to_thread(keeper.start)
    bot = a_bot(num_threads=2)
    attach(bot, keeper)

    @bot.message_handler(content_types=["text"])
    def handler(message, turn):
        turn.update_data(n=turn.data.get("n", 0) + 1)
        said[message.from_user.id].append(message.text)
        bot.send_message(message.chat.id, f"{turn.data['n']}")

    for number in range(6):
        for person in people:
            person.says(f"t{number}")
    async with polling(bot):
        for person in people:
            heard = [(await person.hears(LONG)).text for _ in range(6)]
            assert heard == [str(number + 1) for number in range(6)]
    await asyncio.to_thread(keeper.stop)
    assert all(texts == [f"t{number}" for number in range(6)] for texts in said.values())


async def test_what_is_refused_is_asked_for_again(telegram):
    ann = telegram.user("Ann")
    keeper = sync.Keeper("bot", overlap=Reject())
    await asyncio.to_thread(keeper.start)
    bot, go, said = a_bot(), threading.Event(), []
    attach(bot, keeper)

    @bot.message_handler(content_types=["text"])
    def handler(message):
        said.append(message.text)
        assert go.wait(LONG)
        bot.send_message(message.chat.id, message.text)

    for text in ("one", "two", "three"):
        ann.says(text)
    async with polling(bot):
        before = len(telegram.calls_of("getUpdates"))
        await telegram.called("getUpdates", before + 3)
        assert said == ["one"]
        go.set()
        assert [(await ann.hears(LONG)).text for _ in range(3)] == ["one", "two", "three"]
    await asyncio.to_thread(keeper.stop)
    assert said == ["one", "two", "three"]


# ----------------------------------------------------------------------------------- attached: an async bot


async def test_an_async_bot_gets_its_turns():
    async with Keeper("bot", flows=[Signup]) as keeper:
        bot = AsyncTeleBot(TOKEN)
        attach(bot, keeper)

        @bot.message_handler(state=[Signup.ask_name, Signup.done])
        async def name(message, turn):
            turn.update_data(name=message.text)
            turn.transition(Signup.ask_email)

        @bot.message_handler(when=NoFlow())
        async def start(message, turn):
            turn.start(Signup)

        for number, text in enumerate(["/start", "Ann", "nobody wants this"], 1):
            for _ in range(2):
                await bot.process_new_updates([update(number, text)])
        record = await keeper.store.get_state("bot", (7, 7))
        assert (record.state, record.data) == ("ask_email", {"name": "Ann"})
        assert keeper.counts["committed"] == 3


async def test_an_async_handler_that_raises_is_tried_again():
    tried, done = [], asyncio.Event()
    async with Keeper("bot", backoff=lambda attempt: 0.0) as keeper:
        bot = AsyncTeleBot(TOKEN)
        attach(bot, keeper)

        @bot.message_handler(content_types=["text"])
        async def handler(message, turn):
            turn.update_data(n=turn.data.get("n", 0) + 1)
            tried.append(turn.attempt)
            if turn.attempt == 1:
                raise ValueError("once")
            done.set()

        await bot.process_new_updates([update(1)])
        await asyncio.wait_for(done.wait(), LONG)
        assert await keeper.idle()
        assert (await keeper.store.get_state("bot", (7, 7))).data == {"n": 1}
    assert tried == [1, 2]


async def test_async_polling_with_refusals_and_a_store_that_fails(telegram):
    """Nothing is lost though one is refused while another runs, and the store fails now and then."""
    people = [telegram.user(f"P{number}") for number in range(3)]
    async with Keeper("bot", overlap=Reject(), deadline=0.01) as keeper:
        bot = AsyncTeleBot(TOKEN)
        attach(bot, keeper)
        real, calls = keeper.accept, 0

        async def accept(*given, **named):
            nonlocal calls
            calls += 1
            if calls in (2, 5):
                raise OSError("away")
            return await real(*given, **named)

        keeper.accept = accept

        @bot.message_handler(content_types=["text"])
        async def handler(message, turn):
            turn.update_data(n=turn.data.get("n", 0) + 1)
            await asyncio.sleep(0.01)
            await bot.send_message(message.chat.id, f"{message.text} {turn.data['n']}")

        for number in range(4):
            for person in people:
                person.says(f"t{number}")
        task = asyncio.create_task(bot.infinity_polling(timeout=1, request_timeout=5, logger_level=None))
        for person in people:
            heard = [(await person.hears(LONG)).text for _ in range(4)]
            assert heard == [f"t{number} {number + 1}" for number in range(4)]
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        await bot.close_session()
    assert calls > 14


async def test_what_a_crash_left_behind_goes_through_the_bot(tmp_path):
    from hitherto.addresses import Address
    from hitherto.document import Event, Terms
    from hitherto.overlap import Queue
    from hitherto.telegram import update_json

    async with SQLiteStore(tmp_path / "bot.db") as store:
        event = Event("tg:1", update_json(dump(update(1, "left"))))
        await store.accept(Address("bot", "", (7, 7)), event, Queue(), "dead", None, Terms(lease=0.01))
        said, done = [], asyncio.Event()
        async with Keeper("bot", store, sweep=0.05) as keeper:
            bot = AsyncTeleBot(TOKEN)
            attach(bot, keeper)

            @bot.message_handler(content_types=["text"])
            async def handler(message, turn):
                said.append(message.text)
                done.set()

            await asyncio.wait_for(done.wait(), LONG)
            assert await keeper.idle()
    assert said == ["left"]


def test_wrong_pairs_are_refused_with_the_way_out():
    with pytest.raises(TypeError, match=r"hitherto\.sync\.Keeper"):
        attach(a_bot(threaded=False), Keeper("bot"))
    with pytest.raises(TypeError, match=r"takes a hitherto\.Keeper"):
        attach(AsyncTeleBot(TOKEN), sync.Keeper("bot"))
    with pytest.raises(ValueError, match="use_class_middlewares=True"):
        attach(TeleBot(TOKEN, threaded=False), sync.Keeper("bot"))
    bot = a_bot(threaded=False)
    attach(bot, sync.Keeper("bot"))
    with pytest.raises(ValueError, match="already"):
        attach(bot, sync.Keeper("bot"))
