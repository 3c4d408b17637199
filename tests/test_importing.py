"""hitherto import: what aiogram, python-telegram-bot and pyTelegramBotAPI have stored, made by themselves."""

from __future__ import annotations

import asyncio
import collections
import datetime
import hashlib
import json
import os
import pickle
import sqlite3

import pytest
import redis
from aiogram import Bot, Dispatcher
from aiogram.fsm.context import FSMContext
from aiogram.fsm.state import State as TheirState
from aiogram.fsm.state import StatesGroup
from aiogram.fsm.storage.base import DefaultKeyBuilder, StorageKey
from aiogram.fsm.storage.redis import RedisStorage
from aiogram.types import Update
from telebot.storage import StateRedisStorage
from telegram import Chat, Message, User
from telegram.ext import ExtBot, PicklePersistence

from hitherto import Flow, Keeper, State
from hitherto.aiogram import HithertoStorage, attach
from hitherto.cli import main
from hitherto.importers.unpickling import Refused, unpickle
from hitherto.ptb_persistence import HithertoPersistence
from hitherto.stores.sqlite import SQLiteStore
from hitherto.telebot import HithertoStorage as TelebotStorage

BOT = 42
GROUP = -1001000000001


class Form(StatesGroup):
    name = TheirState()
    age = TheirState()


class Signup(Flow, name="Form"):
    first = State(name="name", to="age", initial=True)
    age = State(to=[])


class Own:
    """A class of a bot's own."""


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path / 'target.db'}"


@pytest.fixture
def run(url, capsys):
    def call(*words):
        code = main(["import", "--store", url, *map(str, words)])
        return code, capsys.readouterr().err

    return call


def looked_at(redis_url):
    """Everything that is in a Redis, with what would change if it was written to."""
    with redis.Redis.from_url(redis_url) as client:
        return {key: (client.dump(key), client.ttl(key)) for key in client.keys("*")}


def digest(*paths):
    return [
        (path.name, hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns) for path in paths
    ]


KEYS = [
    StorageKey(BOT, 7, 7),
    StorageKey(BOT, GROUP, 7),
    StorageKey(BOT, GROUP, 7, thread_id=5),
    StorageKey(BOT, 8, 8, thread_id=3),
]
MORE = [
    StorageKey(BOT, 7, 7, business_connection_id="conn_x"),
    StorageKey(BOT, 7, 7, destiny="aiogd:stack:"[:5]),
    StorageKey(BOT, GROUP, 7, 5, "conn_x", "other"),
]


async def fill(storage, keys):
    """One after the other: a state with data, a state alone, data alone."""
    for number, key in enumerate(keys):
        if number % 3 != 2:
            await storage.set_state(key, Form.name)
        if number % 3 != 1:
            await storage.set_data(key, {"n": number, "big": 2**70, "text": "é", "list": [1, {"x": None}]})


async def read_all(storage, keys):
    return [(await storage.get_state(key), await storage.get_data(key)) for key in keys]


# --------------------------------------------------------------------------------------------------- aiogram


@pytest.mark.parametrize("built", ["plain", "full"])
def test_a_bot_with_redis_storage_goes_on_where_it_was(redis_url, url, run, built):
    """What aiogram's own storage answered before, the drop-in storage answers after."""
    full = {"with_bot_id": True, "with_business_connection_id": True, "with_destiny": True}
    builder = DefaultKeyBuilder(**(full if built == "full" else {}))
    keys = [*KEYS, *(MORE if built == "full" else [])]

    async def before():
        storage = RedisStorage.from_url(redis_url, key_builder=builder)
        await fill(storage, keys)
        await storage.redis.set("somebody:else", "1")
        await storage.redis.set("fsm:7:7:lock", "1")
        await storage.close()
        return await read_all(RedisStorage.from_url(redis_url, key_builder=builder), keys)

    async def after():
        storage = HithertoStorage(url)
        found = await read_all(storage, keys)
        await storage.close()
        return found

    expected, source = asyncio.run(_closing(before())), looked_at(redis_url)
    code, err = run("aiogram-redis", redis_url, "--bot-id", BOT)
    assert (code, err) == (0, f"{len(keys)} read, {len(keys)} imported, 0 there already\n")
    assert asyncio.run(after()) == expected
    assert run("aiogram-redis", redis_url, "--bot-id", BOT)[1].startswith(f"{len(keys)} read, 0 imported")
    assert looked_at(redis_url) == source


async def _closing(work):
    """Run it, and let the connections that redis-py leaves open be closed."""
    import gc

    import redis.asyncio as client

    made, real = [], client.ConnectionPool.from_url.__func__

    def noted(cls, *given, **named):
        made.append(real(cls, *given, **named))
        return made[-1]

    client.ConnectionPool.from_url = classmethod(noted)
    try:
        return await work
    finally:
        client.ConnectionPool.from_url = classmethod(real)
        for pool in made:
            await pool.disconnect()
        gc.collect()


def test_a_keepers_keys(redis_url, url, run):
    """With --keys chat-user an attached keeper finds the person in the flow named as the group was."""

    async def before():
        storage = RedisStorage.from_url(redis_url)
        await fill(storage, KEYS[:2])
        await storage.close()

    async def after():
        seen = []
        async with Keeper("shop", url, [Signup]) as keeper:
            dispatcher = Dispatcher()
            attach(dispatcher, keeper)

            @dispatcher.message(Signup.first)
            async def name(message, turn):
                seen.append((turn.state, dict(turn.data)))
                turn.transition(Signup.age)

            who = {"id": 7, "is_bot": False, "first_name": "A"}
            message = {
                "message_id": 1,
                "date": 1,
                "chat": {"id": 7, "type": "private"},
                "from": who,
                "text": "x",
            }
            bot = Bot(f"{BOT}:TEST")
            await dispatcher.feed_update(bot, Update(update_id=1, message=message))
        return seen

    asyncio.run(_closing(before()))
    code, _ = run("--bot", "shop", "aiogram-redis", redis_url, "--bot-id", BOT, "--keys", "chat-user")
    assert code == 0
    ((state, data),) = asyncio.run(after())
    assert state == Signup.first
    assert data["n"] == 0


def test_what_redis_holds_that_cannot_be_understood_is_counted_without_names(redis_url, run):
    with redis.Redis.from_url(redis_url) as client:
        client.mset({
            "fsm:7:7:data": "no json", "fsm:8:8:data": "[1]", "fsm:43:9:10:state": "x", "fsm:1:state": "x",
            "fsm:1:2:3:4:5:state": "x", "fsm:7:8:data": '{"x": NaN}', "fsm:5:6:data": "{}",
            "fsm:5:7:state": "a", "fsm:secret:other:7:7:data": "{}", "fsm:7:7:strange": "x",
        })  # fmt: skip
    code, err = run("aiogram-redis", redis_url, "--bot-id", BOT)
    lines = err.splitlines()
    assert code == 4
    assert lines[0] == "9 read, 1 imported, 0 there already, 1 with nothing in them"
    assert lines[1] == "not understood: 8"
    assert {line.split(":")[0].strip() for line in lines[2:]} == {
        "2 x data that is no JSON object", "1 x a conversation of another bot",
        "4 x a key of an unknown form", "1 x data that cannot be stored as JSON",
    }  # fmt: skip
    assert not any(text in err for text in ("43", "10", "secret", "no json"))


def test_the_bots_id_is_asked_for(redis_url, run):
    with redis.Redis.from_url(redis_url) as client:
        client.set("fsm:7:7:state", "x")
    code, err = run("aiogram-redis", redis_url)
    assert code == 1
    assert "--bot-id" in err


def test_other_prefixes_and_separators(redis_url, url, run):
    with redis.Redis.from_url(redis_url) as client:
        client.mset({"my*bot/7/7/state": "a:b", "myXbot/8/8/state": "a:b"})
    code, err = run("aiogram-redis", redis_url, "--bot-id", BOT, "--prefix", "my*bot", "--separator", "/")
    assert (code, err) == (0, "1 read, 1 imported, 0 there already\n")


def test_what_is_there_is_kept_or_replaced(redis_url, url, run):
    async def moved_on():
        storage = HithertoStorage(url)
        await storage.set_state(StorageKey(BOT, 7, 7), "went:on")
        await storage.close()

    async def look():
        storage = HithertoStorage(url)
        state = await storage.get_state(StorageKey(BOT, 7, 7))
        await storage.close()
        return state

    with redis.Redis.from_url(redis_url) as client:
        client.set("fsm:7:7:state", "was:here")
    asyncio.run(moved_on())
    words = ("aiogram-redis", redis_url, "--bot-id", BOT)
    assert run(*words)[1] == "1 read, 0 imported, 1 there already\n"
    assert asyncio.run(look()) == "went:on"
    assert run(*words, "--existing", "replace", "--dry-run")[1] == "1 read, 1 imported, 0 there already\n"
    assert asyncio.run(look()) == "went:on"
    assert run(*words, "--existing", "replace")[1] == "1 read, 1 imported, 0 there already\n"
    assert asyncio.run(look()) == "was:here"
    assert run(*words, "--existing", "replace")[1] == "1 read, 0 imported, 1 there already\n"


# ------------------------------------------------------------------------------------------- aiogram, SQLite


def made(path, table, *rows):
    connection = sqlite3.connect(path)
    connection.execute(table)
    name = table.split()[2]
    for row in rows:
        connection.execute(f"INSERT INTO {name} VALUES ({', '.join('?' * len(row))})", row)
    connection.commit()
    connection.close()


FSM_DATA = "CREATE TABLE fsm_data (key TEXT PRIMARY KEY, state TEXT, data TEXT)"
STATES = (
    "CREATE TABLE states (id INTEGER NOT NULL PRIMARY KEY, key TEXT NOT NULL, state TEXT NOT NULL, data TEXT)"
)
MODEL = "CREATE TABLE anything (id VARCHAR PRIMARY KEY, state VARCHAR, data VARCHAR)"
DATA = {"name": "Ann", "n": [1, 2]}
SEVEN, GROUPED = StorageKey(BOT, 7, 7), StorageKey(BOT, GROUP, 7)
LAYOUTS = {
    "aiogram-sqlite-storage 0.x": (FSM_DATA, [
        ("42:7:7", pickle.dumps(Form.name), pickle.dumps(DATA)),
        (f"42:{GROUP}:7", pickle.dumps("Form:age"), pickle.dumps({})), ("42:9:9", pickle.dumps(None), None)]),
    "aiogram-sqlite-storage 1.x": (FSM_DATA, [
        ("42:7:7", "Form:name", pickle.dumps(DATA)), (f"42:{GROUP}:7", "Form:age", None),
        ("42:9:9", None, None)]),
    "aiogram-sqlite-storage 1.x json": (FSM_DATA, [
        ("42:7:7", "Form:name", json.dumps(DATA)), (f"42:{GROUP}:7", "Form:age", "{}"),
        ("42:9:9", None, "{}")]),
    "aiogram-fsm-sqlitestorage": (FSM_DATA, [
        ("fsm:7:7:default", "Form:name", json.dumps(DATA)), (f"fsm:{GROUP}:7:default", "Form:age", "{}"),
        ("fsm:9:9:default", "", "{}")]),
    "sqlite-fsm-storage": (STATES, [
        (1, "fsm:7:7:data", "Form:name", str(DATA)), (2, f"fsm:{GROUP}:7:data", "Form:age", "{}"),
        (3, "fsm:9:9:data", "NONE", "{}")]),
    "aiogram-sqlalchemy-storage": (MODEL, [
        ("fsm:7:7", "Form:name", json.dumps(DATA)), (f"fsm:{GROUP}:7", "Form:age", None),
        ("fsm:9:9", None, "{}")]),
}  # fmt: skip


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_published_sqlite_layout(tmp_path, url, run, layout):
    path = tmp_path / "fsm storage?#%.db"
    table, rows = LAYOUTS[layout]
    made(path, table, *rows)
    before, files = digest(path), sorted(os.listdir(tmp_path))
    code, err = run("aiogram-sqlite", path, "--bot-id", BOT)
    assert (code, err) == (0, "3 read, 2 imported, 0 there already, 1 with nothing in them\n")
    assert digest(path) == before
    assert [name for name in sorted(os.listdir(tmp_path)) if not name.startswith("target")] == files

    async def after():
        storage = HithertoStorage(url)
        found = await read_all(storage, [SEVEN, GROUPED])
        await storage.close()
        return found

    assert asyncio.run(after()) == [("Form:name", DATA), ("Form:age", {})]


def test_the_file_is_opened_for_reading_only(tmp_path, run, monkeypatch):
    opened, real = [], sqlite3.connect
    made(tmp_path / "fsm.db", FSM_DATA, ("42:7:7", "x", None))

    def connect(address, **options):
        opened.append(str(address))
        return real(address, **options)

    monkeypatch.setattr("hitherto.importers.aiogram_sqlite.sqlite3.connect", connect)
    assert run("aiogram-sqlite", tmp_path / "fsm.db", "--dry-run")[0] == 0
    source = [address for address in opened if "fsm.db" in address]
    assert len(source) == 1
    assert source[0].endswith("?mode=ro")


def test_strange_sqlite_rows_are_counted(tmp_path, run):
    path = tmp_path / "fsm.db"
    made(path, FSM_DATA, ("42:7:7", None, payload(tmp_path)), ("43:7:7", "x", None),
         ("42:x:7", "x", None), ("42:8:8", "x", "[1]"), ("42:9:9", "x", "__import__('os')"),
         ("42:1:1", pickle.dumps(5), None))  # fmt: skip
    code, err = run("aiogram-sqlite", path, "--bot-id", BOT)
    assert code == 4
    assert err.splitlines()[:2] == ["6 read, 0 imported, 0 there already", "not understood: 6"]
    assert "a pickle that was refused: row 1 of fsm_data" in err
    assert "a conversation of another bot: row 2 of fsm_data" in err
    assert not (tmp_path / "pwned").exists()


def test_files_that_are_none(tmp_path, run):
    (tmp_path / "text.db").write_text("hello, this is no database at all" * 100)
    made(tmp_path / "other.db", "CREATE TABLE users (id INTEGER)")
    assert run("aiogram-sqlite", tmp_path / "none.db")[0] == 1
    assert not (tmp_path / "none.db").exists()
    assert "cannot be read as SQLite" in run("aiogram-sqlite", tmp_path / "text.db")[1]
    assert "no table of a known layout" in run("aiogram-sqlite", tmp_path / "other.db")[1]


# ----------------------------------------------------------------------------------------------------- pickle


def payload(tmp_path):
    """A pickle that would make a file if it was simply loaded."""

    class Exploit:
        def __reduce__(self):
            return os.system, (f"touch {tmp_path / 'pwned'}",)

    return pickle.dumps({"user_data": {7: {"x": Exploit()}}, "chat_data": {}, "conversations": {}})


MALICIOUS = [
    b"cos\nsystem\n(S'false'\ntR.", b"cposix\nsystem\n(S'false'\ntR.", b"cbuiltins\neval\n(S'1'\ntR.",
    b"cbuiltins\ngetattr\n(cos\nsystem\nS'x'\ntR.", b"c__builtin__\nexec\n(S'1'\ntR.",
    b"csubprocess\nPopen\n(S'false'\ntR.", b"cimportlib\nimport_module\n(S'os'\ntR.",
    b"cpickle\nloads\n(S'1'\ntR.", b"ccopyreg\n_reconstructor\n(cos\nsystem\nNNtR.",
    b"chitherto.cli\nmain\n(tR.", b"cdatetime\nsys.modules\n.", b"(S'false'\nios\nsystem\n.",
    b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x05false\x85R.",
    b"\x80\x04\x8c\x08datetime\x8c\x0fsys.modules.get\x93\x8c\x02os\x85R.",
    b"\x80\x02\x82\x01.", b"not a pickle", b"", b"\x80\x05.",
]  # fmt: skip


@pytest.mark.parametrize("data", MALICIOUS, ids=range(len(MALICIOUS)))
@pytest.mark.parametrize("strangers", ["refuse", "opaque", "named"])
def test_pickles_that_name_what_they_should_not(data, strangers, monkeypatch):
    ran = []
    for name in ("system", "popen", "execv"):
        monkeypatch.setattr(os, name, lambda *given, name=name: ran.append(name))
    if b"hitherto" in data and strangers == "opaque":
        assert type(unpickle(data, strangers)).__name__ == "Opaque"  # a class of somebody's: it does nothing
    else:
        with pytest.raises(Refused):
            unpickle(data, strangers)
    assert ran == []


def test_a_malicious_file_is_refused_and_nothing_is_run(tmp_path, url, run):
    path = tmp_path / "bot.pickle"
    path.write_bytes(payload(tmp_path))
    for option in ([], ["--leave-out"]):
        code, err = run("ptb-pickle", path, *option)
        assert code == 1
        assert "system" in err
        assert "nothing of it was run" in err
    assert not (tmp_path / "pwned").exists()
    pickle.loads(path.read_bytes())  # it was a real one
    assert (tmp_path / "pwned").exists()


def a_message():
    chat, user = Chat(7, "private"), User(7, "Ann", is_bot=False)
    return Message(1, datetime.datetime.now(datetime.UTC), chat, from_user=user, text="private text")


CONVERSATION = {(7, 7): 1, (GROUP, 7): "typing", (8, 8, "x"): ("a", 1)}
CALLBACKS = ([("uuid-1", 1.5, {"button": {"x": 1}}), ("uuid-2", 2.5, {"button": [1]})], {"query": "uuid-1"})


async def stored(path, single):
    """As an application stores it."""
    persistence = PicklePersistence(path, single_file=single, on_flush=False)
    persistence.set_bot(ExtBot("42:TEST", arbitrary_callback_data=True))
    await persistence.get_bot_data()
    await persistence.update_bot_data({"started": 3})
    await persistence.update_user_data(7, {"name": "Ann", 5: "number", "when": [1, 2]})
    await persistence.update_user_data(8, {"message": a_message(), "kept": True})
    await persistence.update_user_data(9, {})
    await persistence.update_chat_data(GROUP, {"title": "é"})
    for key, state in CONVERSATION.items():
        await persistence.update_conversation("signup", key, state)
    await persistence.update_callback_data(CALLBACKS)
    await persistence.flush()


@pytest.mark.parametrize("single", [True, False])
def test_a_bot_with_pickle_persistence_goes_on_where_it_was(tmp_path, url, run, single):
    path = tmp_path / "bot.pickle"
    asyncio.run(stored(path, single))
    files = sorted(file for file in tmp_path.iterdir() if file.name.startswith("bot.pickle"))
    assert len(files) == (1 if single else 5)
    before = digest(*files)
    code, err = run("ptb-pickle", path)
    assert code == 4
    assert err.splitlines() == [
        "11 read, 10 imported, 0 there already, 1 with nothing in them", "not understood: 1",
        "  1 x a value that is no plain data: user_data, entry 2",
    ]  # fmt: skip
    assert run("ptb-pickle", path)[1].startswith("11 read, 0 imported, 10 there already")
    assert digest(*files) == before

    async def after():
        persistence = HithertoPersistence(url)
        found = [
            await persistence.get_bot_data(), await persistence.get_user_data(),
            await persistence.get_chat_data(), await persistence.get_conversations("signup"),
            await persistence.get_callback_data(),
        ]  # fmt: skip
        await persistence.flush()
        return found

    bot, users, chats, conversations, callbacks = asyncio.run(after())
    assert bot == {"started": 3}
    assert users == {7: {"name": "Ann", 5: "number", "when": [1, 2]}, 8: {"kept": True}}
    assert chats == {GROUP: {"title": "é"}}
    assert conversations == {(7, 7): 1, (GROUP, 7): "typing", (8, 8, "x"): ["a", 1]}
    assert callbacks == CALLBACKS


def test_the_layout_of_version_13(tmp_path, url, run):
    """Default dicts, and no bot data or callback data in the oldest ones."""
    users = collections.defaultdict(dict, {7: {"a": 1}})
    whole = {
        "conversations": {"h": {(7, 7): 0}},
        "user_data": users,
        "chat_data": collections.defaultdict(dict),
    }
    path = tmp_path / "bot.pickle"
    for protocol in (2, 3, 4, 5):
        path.write_bytes(pickle.dumps(whole, protocol))
        code, err = run("ptb-pickle", path, "--existing", "replace")
        assert (code, err.split()[:2]) == (0, ["2", "read,"])


def test_classes_of_ones_own_are_refused_or_left_out(tmp_path, url, run):
    whole = {"conversations": {}, "user_data": {7: {"own": Own(), "x": 1}}, "chat_data": {}}
    path = tmp_path / "bot.pickle"
    path.write_bytes(pickle.dumps(whole))
    code, err = run("ptb-pickle", path)
    assert code == 1
    assert "test_importing.Own" in err
    assert "--leave-out" in err
    code, err = run("ptb-pickle", path, "--leave-out")
    assert code == 4
    assert err.splitlines()[0] == "1 read, 1 imported, 0 there already"


# ---------------------------------------------------------------------------------------------------- telebot


def test_a_bot_with_telebots_redis_storage_goes_on_where_it_was(redis_url, url, run):
    places = [
        {"chat_id": 7, "user_id": 7, "bot_id": BOT}, {"chat_id": GROUP, "user_id": 7, "bot_id": BOT},
        {"chat_id": GROUP, "user_id": 7, "bot_id": BOT, "message_thread_id": 5},
        {"chat_id": 7, "user_id": 7, "bot_id": BOT, "business_connection_id": "conn_x"},
        {"chat_id": 7, "user_id": 8, "bot_id": BOT, "business_connection_id": "c", "message_thread_id": 5},
        {"chat_id": 7, "user_id": 7},
    ]  # fmt: skip
    theirs = StateRedisStorage(redis_url=redis_url)
    for number, place in enumerate(places):
        theirs.set_state(state=f"Form:s{number}" if number else "#odd", **place)
        if number % 2:
            theirs.set_data(key="#x", value={"n": number}, **place)

    def answers(storage):
        return [(storage.get_state(**place), storage.get_data(**place)) for place in places]

    expected, source = answers(theirs), looked_at(redis_url)
    theirs.redis.close()
    code, err = run("telebot-redis", redis_url)
    assert (code, err) == (0, "6 read, 6 imported, 0 there already\n")
    ours = TelebotStorage(url)
    assert answers(ours) == expected
    ours.close()
    assert run("telebot-redis", redis_url)[1] == "6 read, 0 imported, 6 there already\n"
    assert looked_at(redis_url) == source


def test_the_keys_of_telebot_before_4_23(redis_url, url, run):
    with redis.Redis.from_url(redis_url) as client:
        client.set("telebot_7", json.dumps({"7": {"state": "Form:name", "data": {"x": 1}},
                                            "8": {"state": None, "data": {}}, "x": 5}))  # fmt: skip
        client.set("telebot_8", "broken")
    assert "--bot-id" in run("telebot-redis", redis_url)[1]
    code, err = run("telebot-redis", redis_url, "--bot-id", BOT)
    assert code == 4
    assert err.splitlines()[0] == "3 read, 1 imported, 0 there already, 1 with nothing in them"
    ours = TelebotStorage(url)
    assert ours.get_state(7, 7, bot_id=BOT) == "Form:name"
    assert ours.get_data(7, 7, bot_id=BOT) == {"x": 1}
    ours.close()


# ------------------------------------------------------------------------------------------------ wrong usage


def test_wrong_words(run):
    assert "no kind of source" in run("aiogram-radis", "redis://x")[1]
    assert "takes one URL or FILE" in run("ptb-pickle")[1]


async def test_nothing_is_left_behind_in_the_target_by_a_dry_run(tmp_path, redis_url):
    async with SQLiteStore(tmp_path / "target.db") as store:
        from hitherto.importers import Report, put
        from hitherto.importers.aiogram_redis import read

        with redis.Redis.from_url(redis_url) as client:
            client.set("fsm:7:7:state", "x")
        report = Report()
        rows = read(redis_url, report, keys="storage", bot_id=BOT)
        await put(store, "aiogram", rows, report, dry=True)
        assert (report.imported, [address async for address in store.scan("aiogram", "all")]) == (1, [])


def test_their_context_reads_what_was_imported(redis_url, url, run):
    """A real FSMContext, as handlers have it."""
    with redis.Redis.from_url(redis_url) as client:
        client.mset({"fsm:7:7:state": "Form:age", "fsm:7:7:data": '{"name": "Ann"}'})
    assert run("aiogram-redis", redis_url, "--bot-id", BOT)[0] == 0

    async def look():
        storage = HithertoStorage(url)
        context = FSMContext(storage, SEVEN)
        found = await context.get_state(), await context.update_data(age=3)
        await storage.close()
        return found

    assert asyncio.run(look()) == (Form.age.state, {"name": "Ann", "age": 3})
