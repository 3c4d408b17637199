"""python-telegram-bot's persistence: by its contract on every store, in a real Application, and killed."""

from __future__ import annotations

import asyncio
import enum
import subprocess
import sys
import textwrap
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest
from telegram import CallbackQuery, Chat, InlineKeyboardButton, InlineKeyboardMarkup, Message, Update, User
from telegram.ext import (
    Application,
    CallbackQueryHandler,
    ContextTypes,
    ConversationHandler,
    MessageHandler,
    PersistenceInput,
    filters,
)

from hitherto import DataError, MemoryStore, StoreError
from hitherto.addresses import Address
from hitherto.packing import pack, unpack
from hitherto.ptb_persistence import CALLBACK, CHATS, USERS, HithertoPersistence
from hitherto.testing.telegram import FakeTelegram

STORES = ("memory", "sqlite", "redis_aof", "postgres")


@pytest.fixture(params=STORES)
def again(request: pytest.FixtureRequest, tmp_path):
    """Makes a persistence of what is stored, as often as one likes: each is what a new process would have."""
    if request.param == "memory":
        store = MemoryStore()
        return lambda **options: HithertoPersistence(store, **options)
    url = f"sqlite:///{tmp_path}/bot.db"
    if request.param != "sqlite":
        url = request.getfixturevalue(f"{request.param}_url")
    return lambda **options: HithertoPersistence(url, **options)


@pytest.fixture
def persistence(again):
    return again()


USER_DATA = {12345: {"test1": "test2", "test3": {"test4": "test5"}}, 67890: {3: "test4"}}
CHAT_DATA = {-12345: {"test1": "test2", "test3": {"test4": "test5"}}, -67890: {3: "test4"}}
CALLBACK_DATA = ([("test1", 1000, {"button1": "test0", "button2": "test1"})], {"test1": "test2"})
CONVERSATIONS = {"name1": {(123, 123): 3, (456, 654): 4}, "name2": {(123, 321, "inline"): "a", (8, 8): 2}}


async def fill(persistence: HithertoPersistence) -> None:
    for user, data in USER_DATA.items():
        await persistence.update_user_data(user, data)
    for chat, data in CHAT_DATA.items():
        await persistence.update_chat_data(chat, data)
    await persistence.update_bot_data({"test1": "test2", "test3": {"test4": "test5"}})
    await persistence.update_callback_data(CALLBACK_DATA)
    for name, states in CONVERSATIONS.items():
        for key, state in states.items():
            await persistence.update_conversation(name, key, state)


async def test_it_is_opened_again_after_the_end(persistence) -> None:
    """As an application does that is initialized again after its shutdown."""
    for count in (1, 2):
        data = await persistence.get_user_data()
        await persistence.update_user_data(count, {"count": len(data)})
        await persistence.flush()
    assert await persistence.get_user_data() == {1: {"count": 0}, 2: {"count": 1}}
    await persistence.flush()


async def test_nothing_is_there_at_first(persistence) -> None:
    assert await persistence.get_user_data() == {}
    assert await persistence.get_chat_data() == {}
    assert await persistence.get_bot_data() == {}
    assert await persistence.get_callback_data() is None
    assert await persistence.get_conversations("noname") == {}
    await persistence.flush()


async def test_what_is_put_is_there_in_the_next_process(again) -> None:
    first = again()
    await fill(first)
    await first.flush()
    then = again()
    assert await then.get_user_data() == USER_DATA
    assert await then.get_chat_data() == CHAT_DATA
    assert await then.get_bot_data() == {"test1": "test2", "test3": {"test4": "test5"}}
    assert await then.get_callback_data() == CALLBACK_DATA
    for name, states in CONVERSATIONS.items():
        assert await then.get_conversations(name) == states
    assert await then.get_conversations("name") == {}
    await then.flush()


async def test_what_is_dropped_is_gone_and_leaves_no_row(again) -> None:
    persistence = again()
    await fill(persistence)
    await persistence.drop_user_data(67890)
    await persistence.drop_chat_data(-67890)
    await persistence.drop_chat_data(404)
    await persistence.update_conversation("name1", (123, 123), None)
    await persistence.update_callback_data(([], {}))
    await persistence.flush()
    then = again()
    assert set(await then.get_user_data()) == {12345}
    assert set(await then.get_chat_data()) == {-12345}
    assert await then.get_callback_data() is None
    assert await then.get_conversations("name1") == {(456, 654): 4}
    listed = [address.key async for address in then.store.scan("ptb", CALLBACK)]
    assert listed == []
    await then.flush()


async def test_an_update_replaces_and_what_is_given_out_is_the_callers_own(persistence) -> None:
    await persistence.update_user_data(1, {"a": {"b": 1}, "c": 2})
    mine = (await persistence.get_user_data())[1]
    mine["a"]["b"] = 99
    assert (await persistence.get_user_data())[1] == {"a": {"b": 1}, "c": 2}
    await persistence.update_user_data(1, {"a": 5})
    assert await persistence.get_user_data() == {1: {"a": 5}}
    await persistence.flush()


async def test_bots_of_different_names_do_not_meet(again) -> None:
    one, other = again(), again(name="other")
    await one.update_user_data(1, {"a": 1})
    assert await other.get_user_data() == {}
    await one.flush()
    await other.flush()


class Step(int, enum.Enum):
    FIRST = 1


class Word(enum.Enum):
    FIRST = "first"


async def test_states_are_json_or_equal_to_it(persistence) -> None:
    for place, state in enumerate([0, -1, "text", Step.FIRST, True, 1.5, ["a", {"b": 1}], {"a": 1}]):
        await persistence.update_conversation("handler", (place,), state)
        assert (await persistence.get_conversations("handler"))[place,] == state
    with pytest.raises(DataError, match="state: Word"):
        await persistence.update_conversation("handler", (9,), Word.FIRST)
    await persistence.flush()


@pytest.mark.parametrize(
    ("data", "path"),
    [
        ({"when": datetime.now(UTC)}, 'user_data["when"]'),
        ({"a": {"b": [1, {2}]}}, 'user_data["a"]["b"][1]'),
        ({"a": float("nan")}, 'user_data["a"]'),
        ({"a": {(1, 2): 3}}, "user_data"),
        ({(1, 2): 3}, "user_data"),
        ({"a": User(1, "Ann", is_bot=False)}, 'user_data["a"]'),
    ],
)
async def test_what_cannot_be_stored_is_refused_with_its_path_and_changes_nothing(data, path) -> None:
    persistence = HithertoPersistence(MemoryStore())
    await persistence.update_user_data(1, {"good": 1})
    with pytest.raises(DataError) as caught:
        await persistence.update_user_data(1, data)
    assert caught.value.path == path
    assert await persistence.get_user_data() == {1: {"good": 1}}


def test_a_dict_that_contains_itself_is_refused() -> None:
    data: dict[str, Any] = {}
    data["self"] = data
    with pytest.raises(DataError, match="deeper"):
        pack(data)


@pytest.mark.parametrize(
    "data",
    [{}, {"#": 1}, {"##a": {"#": 2}}, {1: {2: [{3: 4}]}}, {None: 1, True: 2}, {1.5: "x"}, {"1": 1, 1: 2},
     5, "text", [1, {2: 3}], None, {"#1": "a", 1: "b"}],
)  # fmt: skip
def test_packing_is_exact(data) -> None:
    back = unpack(pack(data))
    assert back == data
    assert repr(back) == repr(data)


async def test_one_keyboard_that_cannot_be_stored_does_not_keep_back_the_others() -> None:
    persistence = HithertoPersistence(MemoryStore())
    with pytest.raises(DataError, match="callback_data"):
        await persistence.update_callback_data(([("a", 1.0, {"x": {1}}), ("b", 2.0, {"y": 3})], {}))
    assert await persistence.get_callback_data() == ([("b", 2.0, {"y": 3})], {})


async def test_only_what_changed_is_written() -> None:
    persistence = HithertoPersistence(MemoryStore())

    async def versions() -> dict[tuple[str, Any], int]:
        places = [(realm, key) for realm in (USERS, CHATS, CALLBACK) for key in await keys(realm)]
        return {
            (realm, key): (await persistence.store.load(Address("ptb", realm, key))).version
            for realm, key in places
        }

    async def keys(realm: str) -> list[Any]:
        return [address.key async for address in persistence.store.scan("ptb", realm)]

    await fill(persistence)
    before = await versions()
    await fill(persistence)
    assert await versions() == before
    keyboards, queries = CALLBACK_DATA
    await persistence.update_callback_data(([*keyboards, ("new", 2000.0, {"b": 1})], queries))
    await persistence.update_user_data(12345, {"test1": "other"})
    after = await versions()
    changed = {place for place in after if after[place] != before.get(place)}
    assert changed == {(CALLBACK, ("keyboard", "new")), (USERS, (12345,))}


# ------------------------------------------------------------------------------------------ data of one's own


@dataclass
class Person:
    name: str = ""
    tags: list[str] = field(default_factory=list)


class Special(dict[str, Any]):
    pass


async def test_data_classes_are_kept_as_what_they_are(again) -> None:
    types = ContextTypes(user_data=Person, chat_data=Special, bot_data=Person)
    first = again(context_types=types)
    assert await first.get_bot_data() == Person()
    await first.update_user_data(1, Person("Ann", ["x"]))
    await first.update_chat_data(1, Special(a=1))
    await first.update_bot_data(Person("Bot"))
    await first.flush()
    then = again(context_types=types)
    assert await then.get_user_data() == {1: Person("Ann", ["x"])}
    assert type((await then.get_chat_data())[1]) is Special
    assert await then.get_bot_data() == Person("Bot")
    await then.flush()


@pytest.mark.parametrize("kind", [int, float])
async def test_numbers_do_as_well(kind) -> None:
    persistence = HithertoPersistence(
        MemoryStore(), context_types=ContextTypes(user_data=kind, chat_data=kind, bot_data=kind)
    )
    assert await persistence.get_bot_data() == 0
    await persistence.update_user_data(1, kind(1))
    assert repr((await persistence.get_user_data())[1]) == repr(kind(1))


# --------------------------------------------------------------------------------------------------- lazily


async def test_lazily_each_is_loaded_when_first_seen_and_others_stay_as_they_are(again) -> None:
    first = again()
    await fill(first)
    await first.flush()
    lazy = again(lazy=True)
    assert await lazy.get_user_data() == await lazy.get_chat_data() == {}
    mine: dict[Any, Any] = {"test1": "set before it was loaded"}
    await lazy.refresh_user_data(12345, mine)
    assert mine == {"test1": "set before it was loaded", "test3": {"test4": "test5"}}
    del mine["test3"]
    await lazy.refresh_user_data(12345, mine)
    await lazy.update_user_data(12345, mine)
    await lazy.update_user_data(67890, {"written": "unseen"})
    await lazy.flush()
    then = again()
    assert await then.get_user_data() == {
        12345: {"test1": "set before it was loaded"}, 67890: {3: "test4", "written": "unseen"}
    }  # fmt: skip
    assert await then.get_chat_data() == CHAT_DATA
    await then.flush()


def test_lazily_only_with_dicts() -> None:
    with pytest.raises(TypeError, match="dicts"):
        HithertoPersistence(MemoryStore(), lazy=True, context_types=ContextTypes(user_data=Person))


# ---------------------------------------------------------------------------------- through an Application


def message(number: int, text: str, user: int = 7, chat: int = 7) -> Update:
    person = User(user, "Ann", is_bot=False)
    said = Message(number, datetime.now(UTC), Chat(chat, "private"), from_user=person, text=text)
    return Update(number, message=said)


def application(telegram: FakeTelegram, persistence: HithertoPersistence, **more: Any) -> Any:
    builder = Application.builder().token(telegram.token).base_url(f"{telegram.url}/bot")
    return builder.job_queue(None).persistence(persistence).arbitrary_callback_data(True).build()


NAME, EMAIL = range(2)


def with_handlers(app: Any) -> Any:
    async def start(update, context):
        context.user_data["started"] = context.user_data.get("started", 0) + 1
        context.bot_data["starts"] = context.bot_data.get("starts", 0) + 1
        return NAME

    async def name(update, context):
        context.user_data["name"] = update.message.text
        context.chat_data[update.effective_user.id] = update.message.text
        return EMAIL

    async def email(update, context):
        context.user_data["email"] = update.message.text
        return ConversationHandler.END

    handler = ConversationHandler(
        entry_points=[MessageHandler(filters.Regex("^/start"), start)],
        states={NAME: [MessageHandler(filters.TEXT, name)], EMAIL: [MessageHandler(filters.TEXT, email)]},
        fallbacks=[],
        name="signup",
        persistent=True,
    )
    app.add_handler(handler)
    return app


@pytest.mark.parametrize("lazy", [False, True])
async def test_a_conversation_goes_on_in_the_next_process(again, lazy) -> None:
    async with FakeTelegram() as telegram:
        async with with_handlers(application(telegram, again(lazy=lazy))) as app:
            await app.process_update(message(1, "/start"))
            await app.update_persistence()
        async with with_handlers(application(telegram, again(lazy=lazy))) as app:
            await app.process_update(message(2, "Ann"))
        async with with_handlers(application(telegram, again(lazy=lazy))) as app:
            await app.process_update(message(3, "ann@example.org"))
            assert app.user_data[7] == {"started": 1, "name": "Ann", "email": "ann@example.org"}
            assert app.bot_data == {"starts": 1}
        then = again()
        assert await then.get_conversations("signup") == {}
        assert await then.get_user_data() == {7: {"started": 1, "name": "Ann", "email": "ann@example.org"}}
        assert await then.get_chat_data() == {7: {7: "Ann"}}
        await then.flush()


async def test_dropping_and_migrating_by_the_application(again) -> None:
    async with FakeTelegram() as telegram:
        async with application(telegram, again()) as app:
            app.mark_data_for_update_persistence(chat_ids=[1, 2], user_ids=[1, 2])
            for one in (1, 2):
                app.chat_data[one]["a"] = one
                app.user_data[one]["a"] = one
        async with application(telegram, again()) as app:
            assert dict(app.chat_data) == dict(app.user_data) == {1: {"a": 1}, 2: {"a": 2}}
            app.drop_user_data(1)
            app.migrate_chat_data(old_chat_id=2, new_chat_id=-100)
        async with application(telegram, again()) as app:
            assert dict(app.user_data) == {2: {"a": 2}}
            assert dict(app.chat_data) == {1: {"a": 1}, -100: {"a": 2}}


async def test_a_button_of_the_last_process_still_brings_its_object(again) -> None:
    pressed = []

    async def press(update, context):
        pressed.append(update.callback_query.data)

    async with FakeTelegram() as telegram:
        ann = telegram.user("Ann")
        async with application(telegram, again()) as app:
            keyboard = InlineKeyboardMarkup.from_button(
                InlineKeyboardButton("Large", callback_data={"size": [1]})
            )
            await app.bot.send_message(ann.id, "?", reply_markup=keyboard)
        data = ann.messages[-1].button("Large").data
        async with application(telegram, again()) as app:
            app.add_handler(CallbackQueryHandler(press))
            update = Update(1, callback_query=CallbackQuery("q", User(ann.id, "Ann", False), "c", data=data))
            app.bot.insert_callback_data(update)
            await app.process_update(update)
    assert pressed == [{"size": [1]}]


async def test_errors_of_data_reach_the_error_handlers_and_the_rest_is_written(again) -> None:
    errors = []

    async def on_error(update, context):
        errors.append(context.error)

    async with FakeTelegram() as telegram:
        async with application(telegram, again()) as app:
            app.add_error_handler(on_error)
            app.user_data[1]["when"] = {1, 2}
            app.user_data[2]["fine"] = True
            app.mark_data_for_update_persistence(user_ids=[1, 2])
            await app.update_persistence()
            assert [error.path for error in errors] == ['user_data["when"]']
            app.user_data[1].clear()
            app.mark_data_for_update_persistence(user_ids=[1])
        then = again()
        assert await then.get_user_data() == {1: {}, 2: {"fine": True}}
        await then.flush()


async def test_only_what_is_wanted_is_stored(again) -> None:
    wanted = PersistenceInput(bot_data=False, chat_data=False, callback_data=False)
    async with FakeTelegram() as telegram:
        async with with_handlers(application(telegram, again(store_data=wanted))) as app:
            await app.process_update(message(1, "/start"))
        then = again()
        assert await then.get_user_data() == {7: {"started": 1}}
        assert await then.get_bot_data() == await then.get_chat_data() == {}
        await then.flush()


async def test_a_store_that_fails_says_so(tmp_path) -> None:
    (tmp_path / "bot.db").write_bytes(
        b"this is no database at all, but it is long enough to be looked at" * 20
    )
    persistence = HithertoPersistence(f"sqlite:///{tmp_path}/bot.db", deadline=0.1)
    with pytest.raises(StoreError):
        await persistence.get_user_data()


# ------------------------------------------------------------------------------------------------- killed

WRITER = """
import asyncio, sys, warnings
warnings.simplefilter("ignore")
from hitherto.ptb_persistence import HithertoPersistence

async def main():
    persistence = HithertoPersistence(sys.argv[1])
    known = await persistence.get_user_data()
    number = max([one["n"] for one in known.values()], default=0)
    while True:
        number += 1
        data = {"n": number, "text": "x" * 500, "again": number}
        await asyncio.gather(*[persistence.update_user_data(user, data) for user in range(3)])
        print(number, flush=True)

asyncio.run(main())
"""


def test_a_kill_at_any_moment_loses_nothing_that_was_written(tmp_path) -> None:
    url, told = f"sqlite:///{tmp_path}/bot.db", 0
    for kill in range(5):
        process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(WRITER), url], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        for _ in range(10 + 7 * kill):
            told = int(process.stdout.readline())
        process.kill()
        rest, _ = process.communicate()
        told = max([told, *map(int, rest.split())])

        async def read() -> dict[int, Any]:
            persistence = HithertoPersistence(url)
            try:
                return await persistence.get_user_data()
            finally:
                await persistence.flush()

        found = asyncio.run(read())
        assert set(found) == {0, 1, 2}
        for data in found.values():
            assert told <= data["n"] <= told + 1
            assert data == {"n": data["n"], "text": "x" * 500, "again": data["n"]}


async def test_every_store_lists_its_records(again) -> None:
    """What the persistence loads by: only the realm, with what was put there."""
    persistence = again()
    await fill(persistence)
    found = {
        address.key: unpack(stored.fields)
        async for address, stored in persistence.store.records("ptb", CHATS)
    }
    assert found == {(chat,): data for chat, data in CHAT_DATA.items()}
    await persistence.flush()


async def test_more_records_than_fit_a_page_are_listed(again) -> None:
    persistence = again()
    await asyncio.gather(*[persistence.update_user_data(user, {"n": user}) for user in range(1201)])
    assert await persistence.get_user_data() == {user: {"n": user} for user in range(1201)}
    await persistence.flush()
