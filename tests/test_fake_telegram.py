"""The fake Telegram server, against real bots and against raw bytes."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
from collections import Counter
from contextlib import asynccontextmanager, suppress
from itertools import pairwise
from urllib.parse import urlencode

import pytest
from aiogram import Bot, Dispatcher, F
from aiogram.client.session.aiohttp import AiohttpSession
from aiogram.client.telegram import TelegramAPIServer
from aiogram.exceptions import TelegramBadRequest, TelegramNetworkError, TelegramRetryAfter
from aiogram.filters import CommandStart
from aiogram.types import (
    BotCommand,
    BufferedInputFile,
    CallbackQuery,
    ChatMemberAdministrator,
    InlineKeyboardButton,
    InlineKeyboardMarkup,
    InlineQuery,
    InlineQueryResultArticle,
    InputMediaPhoto,
    InputTextMessageContent,
    Message,
    MessageReactionUpdated,
    ReactionTypeEmoji,
)
from aiogram.webhook.aiohttp_server import SimpleRequestHandler
from aiohttp import web
from hypothesis import given, settings
from hypothesis import strategies as st
from telegram import Bot as PtbBot
from telegram import InlineKeyboardButton as PtbButton
from telegram import InlineKeyboardMarkup as PtbMarkup
from telegram.error import BadRequest as PtbBadRequest
from telegram.error import Forbidden, InvalidToken, NetworkError, RetryAfter
from telegram.ext import Application, CallbackQueryHandler, CommandHandler, MessageHandler, filters

from hitherto.testing.http import BadRequest as HttpBadRequest
from hitherto.testing.http import HttpServer, Response, Wire, fetch, read_multipart
from hitherto.testing.telegram import ApiError, FakeTelegram, Mischief
from hitherto.testing.telegram.delivery import Updates, chat_of

TOKEN = "42:TEST"
PATIENCE = 5.0


@pytest.fixture
async def telegram():
    async with FakeTelegram(TOKEN) as fake:
        yield fake
    assert fake.server.faults == []


async def ask(telegram, method, *, token=TOKEN, **parameters):
    """One call the plainest way; the whole answer."""
    headers = {"Content-Type": "application/json"}
    url = f"{telegram.url}/bot{token}/{method}"
    answer = await fetch(
        url, method="POST", body=json.dumps(parameters).encode(), headers=headers, timeout=PATIENCE
    )
    return json.loads(answer.body)


async def api(telegram, method, **parameters):
    answer = await ask(telegram, method, **parameters)
    assert answer["ok"], answer
    return answer["result"]


async def until(come):
    async with asyncio.timeout(PATIENCE):
        while not come():  # noqa: ASYNC110  what is waited for rings no bell
            await asyncio.sleep(0.005)


async def ids(telegram, **parameters):
    return [update["update_id"] for update in await api(telegram, "getUpdates", **parameters)]


def keyboard(*texts):
    return InlineKeyboardMarkup(
        inline_keyboard=[[InlineKeyboardButton(text=t, callback_data=t)] for t in texts]
    )


@asynccontextmanager
async def aiogram_bot(telegram):
    bot = Bot(TOKEN, session=AiohttpSession(api=TelegramAPIServer.from_base(telegram.url)))
    try:
        yield bot
    finally:
        await bot.session.close()


@asynccontextmanager
async def polling(telegram, dispatcher):
    async with aiogram_bot(telegram) as bot:
        task = asyncio.create_task(dispatcher.start_polling(bot, handle_signals=False, polling_timeout=5))
        try:
            await telegram.called("getUpdates")
            yield bot
        finally:
            await dispatcher.stop_polling()
            await task


# --- offsets


async def test_an_update_is_given_again_until_a_later_offset_is_asked_for(telegram):
    alice = telegram.user("Alice", id=7)
    one, two, three = (alice.says(text)["update_id"] for text in "abc")
    assert (one, two, three) == (100_000_001, 100_000_002, 100_000_003)
    assert await ids(telegram) == [one, two, three]
    assert await ids(telegram, limit=2) == [one, two]
    assert await ids(telegram, offset=one) == [one, two, three]
    assert telegram.confirmed == ()
    assert await ids(telegram, offset=two) == [two, three]
    assert await ids(telegram) == [two, three]
    assert [u["update_id"] for u in telegram.confirmed] == [one]
    assert [u["message"]["text"] for u in telegram.pending] == ["b", "c"]
    assert await ids(telegram, offset=three + 1) == []
    assert telegram.pending == ()
    assert [u["update_id"] for u in telegram.confirmed] == [one, two, three]


async def test_a_negative_offset_counts_from_the_end_and_forgets_what_is_before(telegram):
    alice = telegram.user("Alice")
    made = [alice.says(str(n))["update_id"] for n in range(5)]
    assert await ids(telegram, offset=-9) == made
    assert await ids(telegram, offset=-2) == made[-2:]
    assert await ids(telegram) == made[-2:]


@settings(max_examples=60)
@given(
    st.lists(
        st.one_of(
            st.integers(1, 4).map(lambda n: ("push", n)),
            st.tuples(st.just("get"), st.integers(-6, 30), st.integers(1, 5)),
        ),
        max_size=30,
    )
)
def test_the_queue_agrees_with_the_rule(steps):
    updates, owed, born = Updates(lambda: 0.0, 1), [], 0
    for step in steps:
        if step[0] == "push":
            for _ in range(step[1]):
                born += 1
                owed.append(updates.add({"message": {}})["update_id"])
            continue
        _, offset, limit = step
        if offset > 0:
            owed = [n for n in owed if n >= offset]
        elif offset < 0:
            owed = owed[offset:]
        if offset:
            updates.confirm(offset)
        assert [e.update_id for e in updates.ready(limit)] == owed[:limit]
    assert sorted([*updates.confirmed, *owed]) == list(range(1, born + 1))


async def test_a_long_poll_waits_for_news_and_no_longer(telegram):
    waiting = asyncio.create_task(api(telegram, "getUpdates", timeout=30))
    await telegram.called("getUpdates")
    assert not waiting.done()
    telegram.user("Alice").says("at last")
    assert [u["message"]["text"] for u in await waiting] == ["at last"]


async def test_a_long_poll_that_brings_nothing_ends_when_its_time_is_over():
    slept = []

    async def sleep(seconds):
        slept.append(seconds)

    async with FakeTelegram(TOKEN, sleep=sleep) as telegram:
        assert await ids(telegram, timeout=20) == []
        assert await ids(telegram, timeout=900) == []
    assert slept == [20, 50]


async def test_the_older_of_two_polls_is_told_of_the_conflict(telegram):
    older = asyncio.create_task(ask(telegram, "getUpdates", timeout=30))
    await telegram.called("getUpdates")
    newer = asyncio.create_task(ids(telegram, timeout=30))
    assert (await older)["error_code"] == 409
    update = telegram.user("Alice").says("hi")
    assert await newer == [update["update_id"]]


async def test_a_client_that_hung_up_takes_nothing_with_it(telegram):
    _, writer = await asyncio.open_connection("127.0.0.1", telegram.server.port)
    writer.write(f"GET /bot{TOKEN}/getUpdates?timeout=30&offset=1 HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    await telegram.called("getUpdates")
    writer.close()
    await writer.wait_closed()
    await until(lambda: telegram.server.connections == 0)
    update = telegram.user("Alice").says("hi")
    assert await ids(telegram, timeout=5) == [update["update_id"]]


async def test_allowed_updates_are_remembered_and_some_kinds_come_on_request_only(telegram):
    alice, group = telegram.user("Alice"), telegram.group("Team")
    alice.joins(group)
    alice.says("hi")
    assert [set(u) - {"update_id"} for u in telegram.pending] == [{"message"}]
    assert [set(u) for u in telegram.withheld] == [{"chat_member"}]
    await ids(telegram, allowed_updates=["chat_member"])
    await ids(telegram)
    alice.leaves(group)
    alice.says("still there?")
    telegram.push({"message": {"text": "a raw update comes in any case"}})
    assert [list(u)[1] for u in telegram.pending] == ["message", "chat_member", "message"]
    await ids(telegram, allowed_updates=[])
    alice.says("back to the usual")
    assert [list(u)[1] for u in telegram.pending][-1] == "message"


async def test_what_nobody_fetches_for_a_day_is_gone():
    now = 1_000.0
    async with FakeTelegram(TOKEN, clock=lambda: now) as telegram:
        alice = telegram.user("Alice")
        old = alice.says("old")
        assert old["message"]["date"] == 1000
        now += 80_000
        young = alice.says("young")
        now += 10_000
        assert await ids(telegram) == [young["update_id"]]
        assert telegram.updates.expired == [old]


# --- a bad day


def simple_bot(updates, clock):
    """What every polling bot does: take a batch, then ask for what is behind its last update."""
    received, offset = [], 0
    for _ in range(10_000):
        if offset:
            updates.confirm(offset)
        if not updates.ready(7):
            if updates.next_ready_in() is None:
                return received
            clock[0] += updates.next_ready_in()
            continue
        received += [update["update_id"] for update in updates.give(7)]
        updates.arrived()
        offset = received[-1] + 1
    raise AssertionError("the bot never got to the end")


def bad_day(day, count=40):
    clock = [0.0]
    updates = Updates(lambda: clock[0], 1)
    updates.mischief(day)
    for _ in range(count):
        updates.add({"message": {}})
    return simple_bot(updates, clock)


chance = st.floats(0, 1)


@settings(max_examples=150)
@given(chance, chance, st.sampled_from([0.0, 2.0, (0.0, 5.0)]), st.integers())
def test_whatever_goes_wrong_every_update_arrives_and_the_end_is_reached(duplicate, reorder, delay, seed):
    received = bad_day(Mischief(duplicate=duplicate, reorder=reorder, delay=delay, seed=seed))
    assert set(received) == set(range(1, 41))


def test_the_same_seed_gives_the_same_day_and_it_is_a_bad_one():
    day = Mischief(duplicate=0.2, reorder=0.2, seed=1)
    assert bad_day(day) == bad_day(day)
    assert bad_day(day) != bad_day(Mischief(duplicate=0.2, reorder=0.2, seed=2))
    assert bad_day(Mischief(seed=1)) == list(range(1, 41))
    twice = Counter(bad_day(Mischief(duplicate=1.0)))
    assert min(twice.values()) >= 2
    order = bad_day(Mischief(reorder=0.3))
    assert any(a > b for a, b in pairwise(order))


async def test_a_redelivery_comes_once_more_even_after_its_confirmation(telegram):
    alice = telegram.user("Alice")
    one, two = alice.says("a")["update_id"], alice.says("b")["update_id"]
    assert await ids(telegram, offset=two + 1) == []
    telegram.redeliver(one)
    assert await ids(telegram, offset=two + 1) == [one]
    await telegram.hang_up()
    assert await ids(telegram, offset=two + 1) == [one]
    assert await ids(telegram, offset=two + 1) == []
    with pytest.raises(LookupError):
        telegram.redeliver(5)


async def test_a_reordered_update_is_held_until_the_next_overtakes_it(telegram):
    alice = telegram.user("Alice")
    telegram.mischief(reorder=1.0, hold=1000)
    late = alice.says("late")["update_id"]
    assert await ids(telegram) == []
    telegram.mischief()
    early = alice.says("early")["update_id"]
    assert await ids(telegram, offset=late) == [early, late]


async def test_an_update_can_be_delayed():
    now = 0.0
    async with FakeTelegram(TOKEN, clock=lambda: now) as telegram:
        telegram.mischief(delay=3.0)
        update = telegram.user("Alice").says("slow")["update_id"]
        assert await ids(telegram) == []
        now = 3.0
        assert await ids(telegram) == [update]


async def test_a_lost_reply_means_done_but_not_known(telegram):
    alice = telegram.user("Alice", id=7)
    telegram.lose_replies("sendMessage")
    with pytest.raises((OSError, HttpBadRequest)):
        await api(telegram, "sendMessage", chat_id=7, text="once")
    await api(telegram, "sendMessage", chat_id=7, text="twice")
    assert [m.text for m in telegram.sent_to(7)] == ["once", "twice"]
    assert (await alice.hears()).text == "once"


async def test_a_poll_cut_in_the_middle_leaves_its_updates_owed(telegram):
    update = telegram.user("Alice").says("x" * 500)["update_id"]
    telegram.drop("getUpdates")
    with pytest.raises(HttpBadRequest, match="ended in the middle"):
        await ids(telegram)
    assert await ids(telegram) == [update]


async def test_errors_and_lost_replies_by_chance_follow_the_seed(telegram):
    telegram.user("Alice", id=7)

    async def day():
        telegram.mischief(errors=0.3, lose_replies=0.3, seed=4)
        outcomes = []
        for _ in range(30):
            try:
                outcomes.append((await ask(telegram, "getMe")).get("error_code", 200))
            except (OSError, HttpBadRequest):
                outcomes.append(0)
        return outcomes

    first = await day()
    assert first == await day()
    assert set(first) == {0, 200, 502}


@pytest.mark.parametrize("seed", range(6))
async def test_what_a_broken_reply_held_is_given_again_even_out_of_order(telegram, seed):
    telegram.mischief(duplicate=0.2, delay=(0.0, 0.02), drop=0.3, lose_replies=0.2, errors=0.1, seed=seed)
    alice, received, offset = telegram.user("Alice"), [], 0
    for _ in range(2000):
        if len(telegram.updates.history) < 30:
            alice.says("x")
        elif not telegram.pending:
            break
        with suppress(OSError, HttpBadRequest):
            answer = await ask(telegram, "getUpdates", offset=offset)
            received += [update["update_id"] for update in answer.get("result", ())]
            offset = received[-1] + 1 if received else 0
    assert telegram.pending == ()
    assert set(received) == set(telegram.updates.history)


async def test_hanging_up_breaks_a_waiting_poll_and_nothing_else(telegram):
    waiting = asyncio.create_task(api(telegram, "getUpdates", timeout=30))
    await telegram.called("getUpdates")
    await telegram.hang_up()
    with pytest.raises((OSError, HttpBadRequest)):
        await waiting
    update = telegram.user("Alice").says("hi")["update_id"]
    assert await ids(telegram) == [update]


# --- calls


def as_json(fields):
    return "application/json", json.dumps(fields).encode()


def as_form(fields):
    return "application/x-www-form-urlencoded", urlencode(as_texts(fields)).encode()


def as_multipart(fields):
    parts = [
        f'--xyz\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{text}\r\n'
        for name, text in as_texts(fields).items()
    ]
    return 'multipart/form-data; boundary="xyz"', ("".join(parts) + "--xyz--\r\n").encode()


def as_texts(fields):
    return {k: v if isinstance(v, str) else json.dumps(v) for k, v in fields.items()}


@pytest.mark.parametrize("encode", [as_json, as_form, as_multipart])
async def test_every_way_to_send_parameters_says_the_same(telegram, encode):
    telegram.user("Alice", id=7)
    markup = {"inline_keyboard": [[{"text": "Ja", "callback_data": "1"}]]}
    fields = {
        "chat_id": 7,
        "text": "[1] 5 & 6 = ä\r\n--b",
        "disable_notification": True,
        "reply_markup": markup,
    }
    kind, body = encode(fields)
    answer = await fetch(
        f"{telegram.url}/bot42%3ATEST/SENDMESSAGE", method="POST", body=body, headers={"Content-Type": kind}
    )
    assert answer.status == 200, answer.body
    assert telegram.calls[0].method == "sendMessage"
    assert dict(telegram.calls[0].parameters) == fields
    with pytest.raises(TypeError):
        telegram.calls[0].parameters["text"] = "other"


async def test_parameters_in_the_query_and_a_chunked_body(telegram):
    telegram.user("Alice", id=7)
    chunks = b"6\r\ntext=h\r\n4;x=y\r\nello\r\n0\r\nTrailer: x\r\n\r\n"
    head = (
        f"POST /bot{TOKEN}/sendMessage?chat_id=7 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n"
        "Content-Type: application/x-www-form-urlencoded\r\nConnection: close\r\n\r\n"
    )
    assert b"200 OK" in await raw(telegram.server.port, head.encode() + chunks)
    assert [m.text for m in telegram.sent_to(7)] == ["hello"]


async def test_refusals_are_those_of_telegram(telegram):
    telegram.user("Alice", id=7)
    assert (await ask(telegram, "getMe", token="42:OTHER"))["error_code"] == 401
    assert (await ask(telegram, "getMe", token="nonsense"))["error_code"] == 404
    unknown = await ask(telegram, "doSomething")
    assert unknown == {"ok": False, "error_code": 404, "description": "Not Found: method not found"}
    assert await api(telegram, "setChatTitle", chat_id=7, title="x") is True
    said = await ask(telegram, "sendMessage", chat_id=8, text="x")
    assert said["description"] == "Bad Request: chat not found"
    assert (await ask(telegram, "sendMessage", chat_id=7, text=" "))["description"].endswith("text is empty")
    assert (await ask(telegram, "sendMessage", chat_id=7, text="x" * 4097))["description"].endswith(
        "too long"
    )
    assert (await ask(telegram, "answerCallbackQuery", callback_query_id="1"))["error_code"] == 400
    assert telegram.sent_to(7) == ()
    assert [call.method for call in telegram.calls][:2] == ["doSomething", "setChatTitle"]


async def test_a_method_can_be_answered_by_the_test(telegram):
    async def refuse(call):
        raise ApiError(400, f"Bad Request: not {call['name']}")

    telegram.on("getStickerSet", refuse)
    telegram.on("getMyName", {"name": "Bot"})
    assert (await ask(telegram, "getStickerSet", name="x"))["description"] == "Bad Request: not x"
    assert await api(telegram, "getMyName") == {"name": "Bot"}


async def test_a_lenient_fake_lets_the_bot_write_anywhere():
    async with FakeTelegram(TOKEN, strict=False) as telegram:
        await api(telegram, "sendMessage", chat_id=99, text="hi")
        assert await api(telegram, "answerCallbackQuery", callback_query_id="never asked") is True
        assert [m.text for m in telegram.sent_to(99)] == ["hi"]


async def test_silence_has_a_name(telegram):
    alice = telegram.user("Alice", id=7)
    with pytest.raises(TimeoutError, match=r"said nothing new in Person\(chat_id=7\)"):
        await alice.hears(timeout=0.01)
    with pytest.raises(TimeoutError, match="called sendPhoto 1 times"):
        await telegram.called("sendPhoto", timeout=0.01)
    with pytest.raises(LookupError, match="no button 'Yes'"):
        alice.presses("Yes")
    alice.says("hi")
    with pytest.raises(TimeoutError, match="confirmed all updates"):
        await telegram.drained(timeout=0.01)


def test_importing_the_fake_needs_no_extra():
    code = (
        "import sys, hitherto.testing.telegram;"
        "extras = 'aiogram', 'telegram', 'aiohttp', 'httpx', 'pytest', 'starlette';"
        "print([m for m in extras if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"


# --- webhooks


class Receiver:
    """The bot's side of a webhook, in plain asyncio. `answer` decides the status of each request."""

    def __init__(self):
        self.requests = []
        self.running = Counter()
        self.most = self.most_of_one_chat = 0
        self.answer = lambda update: 200
        self.body = b""
        self.gate = asyncio.Event()
        self.gate.set()

    async def __aenter__(self):
        self.server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        self.port = self.server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/hook"
        return self

    async def __aexit__(self, *_):
        self.gate.set()
        self.server.close()
        await self.server.wait_closed()

    async def serve(self, reader, writer):
        with suppress(asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            headers = dict(line.split(": ", 1) for line in head.split("\r\n")[1:] if line)
            update = json.loads(await reader.readexactly(int(headers["Content-Length"])))
            chat = chat_of(update)
            self.running[chat] += 1
            self.most_of_one_chat = max(self.most_of_one_chat, self.running[chat])
            self.requests.append((headers.get("X-Telegram-Bot-Api-Secret-Token"), update))
            self.most = max(self.most, sum(self.running.values()))
            await self.gate.wait()
            self.running[chat] -= 1
            if status := self.answer(update):
                head = f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\n"
                writer.write(f"{head}Content-Length: {len(self.body)}\r\n\r\n".encode() + self.body)
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()

    @property
    def texts(self):
        return [update["message"]["text"] for _, update in self.requests]


@pytest.fixture
async def receiver():
    async with Receiver() as it:
        yield it


async def test_a_webhook_gets_what_was_owed_and_what_comes_with_its_secret(telegram, receiver):
    alice = telegram.user("Alice")
    alice.says("before")
    await api(telegram, "setWebhook", url=receiver.url, secret_token="s3cret")
    alice.says("after")
    await telegram.drained()
    assert receiver.texts == ["before", "after"]
    assert {secret for secret, _ in receiver.requests} == {"s3cret"}
    assert [(a.status, a.error) for a in telegram.attempts] == [(200, "")] * 2
    assert (await ask(telegram, "getUpdates"))["error_code"] == 409
    assert (await ask(telegram, "setWebhook", url=receiver.url, secret_token="spa ce"))["error_code"] == 400


async def test_a_webhook_is_tried_again_until_it_accepts(telegram, receiver):
    waits = []
    telegram.webhook.backoff = lambda attempt: waits.append(attempt) or 0.0
    answers = iter([500, 0, 404, 204])
    receiver.answer = lambda update: next(answers)
    await api(telegram, "setWebhook", url=receiver.url)
    telegram.user("Alice").says("hi")
    await telegram.drained()
    assert [a.status for a in telegram.attempts] == [500, 0, 404, 204]
    assert waits == [1, 2, 3]
    assert receiver.texts == ["hi"] * 4
    assert "404" in (await api(telegram, "getWebhookInfo"))["last_error_message"]


async def test_a_webhook_nobody_listens_at_keeps_its_updates(telegram, receiver):
    telegram.webhook.backoff = lambda attempt: 0.01
    receiver.server.close()
    await receiver.server.wait_closed()
    await api(telegram, "setWebhook", url=receiver.url)
    update = telegram.user("Alice").says("hi")
    await until(lambda: len(telegram.attempts) >= 3)
    info = await api(telegram, "getWebhookInfo")
    assert info["pending_update_count"] == 1
    assert info["last_error_message"]
    await api(telegram, "deleteWebhook")
    assert await ids(telegram) == [update["update_id"]]


@pytest.mark.parametrize(("max_connections", "at_once"), [(3, 3), (40, 4)])
async def test_one_chat_in_sequence_and_different_chats_in_parallel(
    telegram, receiver, max_connections, at_once
):
    receiver.gate.clear()
    people = [telegram.user(f"P{n}") for n in range(4)]
    await api(telegram, "setWebhook", url=receiver.url, max_connections=max_connections)
    for text in "abc":
        for person in people:
            person.says(f"{person.id} {text}")
    await until(lambda: len(receiver.requests) >= at_once)
    receiver.gate.set()
    await telegram.drained()
    assert receiver.most == at_once
    assert receiver.most_of_one_chat == 1
    for person in people:
        mine = [text for text in receiver.texts if text.startswith(f"{person.id} ")]
        assert mine == [f"{person.id} {text}" for text in "abc"]


async def test_an_acceptance_that_is_lost_is_delivered_again(telegram, receiver):
    telegram.webhook.backoff = lambda attempt: 0.0
    await api(telegram, "setWebhook", url=receiver.url)
    telegram.lose_replies("webhook", times=2)
    telegram.user("Alice").says("hi")
    await telegram.drained()
    assert receiver.texts == ["hi"] * 3


async def test_mischief_reaches_webhooks_too(telegram, receiver):
    telegram.webhook.backoff = lambda attempt: 0.0
    telegram.mischief(duplicate=0.3, reorder=0.3, lose_replies=0.2, hold=0.01, seed=3)
    await api(telegram, "setWebhook", url=receiver.url)
    alice = telegram.user("Alice")
    for n in range(40):
        alice.says(f"{n:02}")
    await telegram.drained()
    assert set(receiver.texts) == {f"{n:02}" for n in range(40)}
    assert len(receiver.texts) > 50
    assert list(dict.fromkeys(receiver.texts)) != sorted(set(receiver.texts))


async def test_a_webhook_may_answer_with_a_call(telegram, receiver):
    alice = telegram.user("Alice", id=7)
    receiver.body = json.dumps({"method": "sendMessage", "chat_id": 7, "text": "by the way"}).encode()
    await api(telegram, "setWebhook", url=receiver.url)
    alice.says("hi")
    assert (await alice.hears()).text == "by the way"


async def test_pending_updates_can_be_dropped(telegram, receiver):
    alice = telegram.user("Alice")
    alice.says("never mind")
    await api(telegram, "setWebhook", url=receiver.url, drop_pending_updates=True)
    alice.says("this")
    await telegram.drained()
    assert receiver.texts == ["this"]
    assert (await api(telegram, "getWebhookInfo"))["url"] == receiver.url
    await api(telegram, "setWebhook", url="")
    assert (await api(telegram, "getWebhookInfo"))["url"] == ""


def test_what_makes_two_updates_of_a_webhook_follow_each_other():
    chat, person = {"id": 7, "type": "private"}, {"id": 7}
    same = [
        {"update_id": 1, "message": {"chat": chat}},
        {"edited_message": {"chat": chat}},
        {"callback_query": {"from": {"id": 8}, "message": {"chat": chat}}},
        {"my_chat_member": {"chat": chat}},
    ]
    other = [
        {"business_message": {"chat": chat, "business_connection_id": "b"}},
        {"inline_query": {"from": person}},
        {"poll": {"id": "1"}},
        {"something_new": 5},
    ]
    assert len({chat_of(update) for update in same}) == 1
    assert len({chat_of(update) for update in same + other}) == 1 + len(other)


# --- aiogram


async def test_aiogram_talks_by_polling(telegram):
    dispatcher = Dispatcher()

    @dispatcher.message(CommandStart())
    async def start(message: Message):
        await message.answer("Sure?", reply_markup=keyboard("Yes", "No"))

    @dispatcher.callback_query(F.data == "Yes")
    async def pressed(query: CallbackQuery):
        await query.answer("noted", show_alert=True)
        await query.message.edit_text("<b>Done</b> &amp; dusted", parse_mode="HTML")

    alice = telegram.user("Alice", id=7)
    async with polling(telegram, dispatcher):
        alice.says("/start")
        question = await alice.hears()
        assert question.text == "Sure?"
        assert [b.text for b in question.buttons] == ["Yes", "No"]
        alice.presses(question.button("Yes"))
        assert (await alice.sees_edit()).text == "Done & dusted"
        assert (await telegram.called("answerCallbackQuery"))["show_alert"] is True
        await telegram.drained()
    assert alice.unheard == []


def witness(seen):
    """A dispatcher that notes what it sees and answers a little."""
    dispatcher = Dispatcher()
    observers = [dispatcher.chosen_inline_result, dispatcher.business_connection, dispatcher.chat_member]

    @dispatcher.message()
    async def message(m: Message):
        album = m.media_group_id and "album"
        seen.append(("message", m.chat.type, m.is_topic_message, m.sender_chat and m.sender_chat.id, album))
        if m.text:
            await m.answer(f"heard {m.text}")

    @dispatcher.edited_message()
    @dispatcher.edited_channel_post()
    async def edited(m: Message):
        seen.append(("edited", m.chat.type, m.text))

    @dispatcher.channel_post()
    @dispatcher.business_message()
    async def elsewhere(m: Message):
        await m.answer("at your service")

    @dispatcher.inline_query()
    async def inline(q: InlineQuery):
        content = InputTextMessageContent(message_text=q.query)
        await q.answer([InlineQueryResultArticle(id="1", title="t", input_message_content=content)])

    @dispatcher.message_reaction()
    async def reaction(r: MessageReactionUpdated):
        seen.append(("reaction", r.new_reaction[0].emoji))

    @dispatcher.callback_query()
    async def pressed(q: CallbackQuery):
        seen.append(("pressed", q.data, type(q.message).__name__, q.inline_message_id))

    @dispatcher.my_chat_member()
    async def blocked(m):
        seen.append(("bot", m.new_chat_member.status))

    for observer in observers:
        observer.register(lambda event: seen.append(type(event).__name__))
    return dispatcher


async def test_aiogram_sees_every_kind_of_place_and_update(telegram):
    seen = []
    dispatcher = witness(seen)
    alice, bob = telegram.user("Alice", id=7), telegram.user("Bob")
    group, channel = telegram.group("Team"), telegram.channel("News")
    topic, other_topic = group.topic("one"), group.topic("two")
    desk = telegram.business(bob, connection_id="b1").with_(alice)
    async with polling(telegram, dispatcher) as bot:
        alice.says("hello", to=topic)
        heard = await topic.hears()
        assert (heard.text, heard.thread_id) == ("heard hello", topic.thread)
        assert (await group.hears()).text == "heard hello"
        assert other_topic.unheard == []
        alice.edits(alice.says("tpyo", to=group), "typo")
        assert (await group.hears()).text == "heard tpyo"
        alice.says_anonymously("boo", to=group)
        alice.sends_album("one", "two")
        post_update = channel.posts("news")
        assert (await channel.hears()).text == "at your service"
        channel.edits(post_update, "more news")
        alice.says("a customer", to=desk)
        served = await desk.hears()
        assert (served.business, served.chat_id) == ("b1", 7)
        assert alice.unheard == []
        alice.asks_inline("cats")
        assert (await telegram.called("answerInlineQuery"))["results"][0]["id"] == "1"
        alice.reacts(heard, "👍")
        with_buttons = await bot.send_message(7, "choose", reply_markup=keyboard("A"))
        alice.presses("A", inaccessible=True)
        alice.presses_inline("B", "inline1")
        alice.chooses("1")
        alice.replies(await alice.hears(), "an answer")
        alice.joins(group)
        telegram.business(bob).changes(is_enabled=True)
        alice.blocks()
        await telegram.drained()
        with pytest.raises(Exception, match="blocked by the user"):
            await bot.send_message(7, "hello?")
        alice.unblocks()
        await telegram.drained()
    assert with_buttons.message_id == 3
    assert ("message", "supergroup", True, None, None) in seen
    assert ("message", "supergroup", None, group.chat_id, None) in seen
    assert seen.count(("message", "private", None, None, "album")) == 2
    for expected in [
        ("edited", "supergroup", "typo"),
        ("edited", "channel", "more news"),
        ("reaction", "👍"),
        ("pressed", "A", "InaccessibleMessage", None),
        ("pressed", "B", "NoneType", "inline1"),
        ("bot", "kicked"),
        ("bot", "member"),
        "ChosenInlineResult",
        "BusinessConnection",
        "ChatMemberUpdated",
    ]:
        assert expected in seen, expected


async def test_aiogram_can_call_what_bots_call(telegram):
    alice, group = telegram.user("Alice", id=7, username="alice"), telegram.group("Team")
    admin = telegram.user("Ada")
    group.add(admin, "administrator")
    async with aiogram_bot(telegram) as bot:
        assert (await bot.me()).username == "test_bot"
        photo = await bot.send_photo(7, BufferedInputFile(b"\x00\xff--b\r\n", "a.png"), caption="look")
        downloaded = await bot.download(photo.photo[-1])
        assert downloaded.read() == b"\x00\xff--b\r\n"
        again = await bot.send_photo(7, photo.photo[-1].file_id)
        assert again.photo[0].file_id == photo.photo[0].file_id
        album = await bot.send_media_group(
            7, [InputMediaPhoto(media=BufferedInputFile(b"1", "1")) for _ in "ab"]
        )
        assert len({m.media_group_id for m in album}) == 1
        await bot.edit_message_caption(chat_id=7, message_id=photo.message_id, caption="see")
        assert (await alice.sees_edit()).text == "see"
        await bot.edit_message_media(InputMediaPhoto(media="new"), chat_id=7, message_id=photo.message_id)
        copied = await bot.copy_message(group.chat_id, 7, photo.message_id, caption="copied")
        forwarded = await bot.forward_message("@alice", 7, photo.message_id)
        assert forwarded.forward_origin.sender_user.id == bot.id
        assert (await group.hears()).text == "copied"
        await bot.set_message_reaction(group.chat_id, copied.message_id, [ReactionTypeEmoji(emoji="👍")])
        await bot.pin_chat_message(group.chat_id, copied.message_id)
        await bot.unpin_chat_message(group.chat_id)
        await bot.send_chat_action(7, "typing")
        assert (await bot.send_poll(7, "which?", ["a", "b"])).poll.options[1].text == "b"
        assert 1 <= (await bot.send_dice(7)).dice.value <= 6
        assert (await bot.send_location(7, 1.5, 2.5)).location.latitude == 1.5
        assert (await bot.send_document(7, "file1")).document.file_id == "file1"
        assert (await bot.send_venue(7, 1, 2, "t", "a")).chat.id == 7
        answer = await bot.send_message(7, "reply", reply_to_message_id=photo.message_id)
        assert answer.reply_to_message.message_id == photo.message_id
        assert (await bot.get_chat(group.chat_id)).title == "Team"
        assert (await bot.get_chat_member(group.chat_id, 7)).status == "left"
        alice.says("hi", to=group)
        assert (await bot.get_chat_member(group.chat_id, 7)).status == "member"
        assert isinstance((await bot.get_chat_administrators(group.chat_id))[0], ChatMemberAdministrator)
        assert await bot.get_chat_member_count(group.chat_id) >= 2
        await bot.set_my_commands([BotCommand(command="go", description="Go")], language_code="de")
        assert await bot.get_my_commands() == []
        assert (await bot.get_my_commands(language_code="de"))[0].command == "go"
        await bot.delete_my_commands(language_code="de")
        assert await bot.get_my_commands(language_code="de") == []
        assert (await bot.create_forum_topic(group.chat_id, "new")).name == "new"
        assert await bot.delete_messages(7, [answer.message_id])
        assert await bot.delete_message(7, photo.message_id)
        with pytest.raises(TelegramBadRequest, match="message to delete not found"):
            await bot.delete_message(7, photo.message_id)
        with pytest.raises(TelegramBadRequest, match="message to edit not found"):
            await bot.edit_message_text("x", chat_id=7, message_id=photo.message_id)
        assert await bot.log_out()
        assert await bot.close()


async def test_aiogram_is_refused_as_by_telegram(telegram):
    alice = telegram.user("Alice", id=7)
    update = alice.says("mine")
    async with aiogram_bot(telegram) as bot:
        sent = await bot.send_message(7, "same", reply_markup=keyboard("A"))
        with pytest.raises(TelegramBadRequest, match="message is not modified"):
            await sent.edit_text("same", reply_markup=keyboard("A"))
        await sent.edit_reply_markup(reply_markup=keyboard("B"))
        assert [b.text for b in (await alice.sees_edit()).buttons] == ["B"]
        with pytest.raises(LookupError):
            alice.presses("A")
        with pytest.raises(TelegramBadRequest, match="can't be edited"):
            await bot.edit_message_text("x", chat_id=7, message_id=update["message"]["message_id"])
        with pytest.raises(TelegramBadRequest, match="BUTTON_DATA_INVALID"):
            await bot.send_message(7, "x", reply_markup=keyboard("x" * 65))
        with pytest.raises(TelegramBadRequest, match="message to be replied not found"):
            await bot.send_message(7, "x", reply_to_message_id=999)
        telegram.flood("sendMessage", retry_after=3)
        with pytest.raises(TelegramRetryAfter) as flood:
            await bot.send_message(7, "x")
        assert flood.value.retry_after == 3
        telegram.lose_replies("sendMessage")
        with pytest.raises(TelegramNetworkError):
            await bot.send_message(7, "lost")
        assert [m.text for m in alice.messages] == ["same", "lost"]


async def test_aiogram_survives_a_bad_day(telegram):
    dispatcher, handled = Dispatcher(), []

    @dispatcher.message()
    async def handle(message: Message):
        handled.append(message.text)

    alice = telegram.user("Alice")
    telegram.mischief(duplicate=0.2, reorder=0.2, seed=11, hold=0.01)
    async with polling(telegram, dispatcher):
        for n in range(60):
            alice.says(str(n))
            if n % 10 == 0:
                await asyncio.sleep(0)
        await telegram.drained()
        await telegram.hang_up()
    assert set(handled) == {str(n) for n in range(60)}
    assert len(handled) > 60


async def test_aiogram_talks_by_webhook(telegram):
    dispatcher = Dispatcher()

    @dispatcher.message()
    async def handle(message: Message):
        return message.answer(f"you said {message.text}", reply_markup=keyboard("A"))

    async with aiogram_bot(telegram) as bot:
        app = web.Application()
        SimpleRequestHandler(dispatcher, bot, handle_in_background=False, secret_token="s").register(
            app, "/hook"
        )
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        try:
            alice = telegram.user("Alice", id=7)
            await bot.set_webhook(f"http://127.0.0.1:{port}/hook", secret_token="s")
            alice.says("hi")
            answer = await alice.hears()
            assert answer.text == "you said hi"
            assert answer.buttons[0].data == "A"
            await bot.set_webhook(f"http://127.0.0.1:{port}/hook", secret_token="other")
            alice.says("forged")
            await until(lambda: telegram.attempts[-1].status == 401)
        finally:
            await runner.cleanup()


# --- python-telegram-bot


def ptb_application(telegram, token=TOKEN):
    base = telegram.url
    return (
        Application.builder().token(token).base_url(f"{base}/bot").base_file_url(f"{base}/file/bot").build()
    )


async def test_ptb_talks_by_polling(telegram):
    application = ptb_application(telegram)

    async def start(update, context):
        markup = PtbMarkup([[PtbButton("Yes", callback_data="y")]])
        await update.message.reply_text("Sure?", reply_markup=markup)

    async def pressed(update, context):
        await update.callback_query.answer()
        await update.callback_query.edit_message_text("Done")

    async def text(update, context):
        await update.effective_message.reply_text(f"edited to {update.effective_message.text}")

    application.add_handler(CommandHandler("start", start))
    application.add_handler(CallbackQueryHandler(pressed))
    application.add_handler(MessageHandler(filters.UpdateType.EDITED_MESSAGE, text))
    alice = telegram.user("Alice")
    async with application:
        await application.updater.start_polling(timeout=5)
        await application.start()
        update = alice.says("/start")
        assert update["message"]["entities"] == [{"type": "bot_command", "offset": 0, "length": 6}]
        assert (await alice.hears()).text == "Sure?"
        alice.presses("Yes")
        assert (await alice.sees_edit()).text == "Done"
        alice.edits(update, "/stop")
        assert (await alice.hears()).text == "edited to /stop"
        await telegram.drained()
        await application.updater.stop()
        await application.stop()
    assert telegram.server.faults == []


@pytest.mark.filterwarnings("ignore:.*retry_after:telegram.warnings.PTBDeprecationWarning")
async def test_ptb_calls_and_is_refused(telegram):
    alice = telegram.user("Alice", id=7)
    application = ptb_application(telegram)
    async with application:
        bot = application.bot
        photo = await bot.send_photo(7, b"\x89PNG\r\n\x00", caption="look")
        file = await bot.get_file(photo.photo[-1].file_id)
        assert bytes(await file.download_as_bytearray()) == b"\x89PNG\r\n\x00"
        await bot.send_message(7, "true", disable_notification=True)
        assert telegram.calls_of("sendMessage")[0].parameters == {
            "chat_id": 7,
            "text": "true",
            "disable_notification": True,
        }
        assert (await bot.get_chat(7)).first_name == "Alice"
        assert (await bot.get_chat_member(7, 7)).status == "member"
        telegram.flood(retry_after=2)
        with pytest.raises(RetryAfter):
            await bot.get_me()
        telegram.fail("getMe", 502, "Bad Gateway")
        with pytest.raises(NetworkError, match="Bad Gateway"):
            await bot.get_me()
        with pytest.raises(PtbBadRequest, match="hat not found"):
            await bot.send_message(8, "x")
        alice.blocks()
        with pytest.raises(Forbidden):
            await bot.send_message(7, "x")
    with pytest.raises(InvalidToken):
        async with PtbBot("42:WRONG", base_url=f"{telegram.url}/bot"):
            pass


# --- HTTP


async def raw(port, data, *, end=False):
    """Send these bytes on a connection of their own; all that comes back."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        with suppress(OSError):
            writer.write(data)
            await writer.drain()
            if end:
                writer.write_eof()
        received = b""
        with suppress(OSError):
            async with asyncio.timeout(PATIENCE):
                received = await reader.read(-1)
        return received
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


POST = f"POST /bot{TOKEN}/getMe HTTP/1.1\r\nHost: x\r\nConnection: close\r\n".encode()


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
        (b"GET\r\n\r\n", 400),
        (b"GET / HTTP/2.0\r\n\r\n", 400),
        (b"get / HTTP/1.1\r\n\r\n", 400),
        (POST + b"no colon here\r\n\r\n", 400),
        (POST + b"spaced : x\r\n\r\n", 400),
        (POST + b" folded: x\r\n\r\n", 400),
        (POST + b"X: a\nY: b\r\n\r\n", 400),
        (POST + b"Content-Length: -1\r\n\r\n", 400),
        (POST + b"Content-Length: +5\r\n\r\n", 400),
        (POST + b"Content-Length: 1e3\r\n\r\n", 400),
        (POST + "Content-Length: ٣\r\n\r\n".encode(), 400),
        (POST + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef", 400),
        (POST + b"Content-Length: " + b"9" * 17 + b"\r\n\r\n", 413),
        (POST + b"Content-Length: " + b"9" * 5000 + b"\r\n\r\n", 400),
        (POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        (POST + b"Transfer-Encoding: gzip\r\n\r\n", 501),
        (POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
        (POST + b"Transfer-Encoding: chunked\r\n\r\n-1\r\n", 400),
        (POST + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabcdef", 400),
        (POST + b"Transfer-Encoding: chunked\r\n\r\nffffffff\r\n", 413),
        (POST + b"X-Long: " + b"x" * 100_000 + b"\r\n\r\n", 431),
        (b"GET /" + b"x" * 100_000, 431),
        (POST + b"Content-Type: application/json\r\nContent-Length: 2\r\n\r\n[]", 400),
        (POST + b"Content-Type: application/json\r\nContent-Length: 3\r\n\r\nNaN", 400),
        (POST + b"Content-Type: application/json\r\nContent-Length: 1\r\n\r\n\xff", 400),
        (POST + b"Content-Type: application/json\r\nContent-Length: 99999\r\n\r\n" + b"[" * 99999, 400),
        (POST + b"Content-Type: multipart/form-data\r\nContent-Length: 1\r\n\r\nx", 400),
        (POST + b"Content-Type: multipart/form-data; boundary=b\r\nContent-Length: 5\r\n\r\n--b\r\n", 400),
        (POST + b"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 5\r\n\r\na=%ff", 400),
        (POST + b"Expect: 100-continue\r\nContent-Length: 0\r\n\r\n", 100),
        (b"GET /%00%ff/../bot HTTP/1.1\r\nConnection: close\r\n\r\n", 404),
        (f"GET /bot{TOKEN}/getUpdates?limit=x&offset={'9' * 5000} HTTP/1.0\r\n\r\n".encode(), 400),
    ],
)
async def test_bad_http_gets_a_4xx_and_the_server_stays(telegram, data, status):
    received = await raw(telegram.server.port, data)
    assert received.startswith(f"HTTP/1.1 {status} ".encode()), received[:200]
    assert (await api(telegram, "getMe"))["id"] == 42


async def test_any_bytes_at_all_leave_the_server_standing(telegram):
    port = telegram.server.port

    @settings(max_examples=60)
    @given(
        st.binary(max_size=200), st.sampled_from([b"", POST, POST + b"Content-Type: application/json\r\n"])
    )
    def throw(data, prefix):
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as connection:
            connection.sendall(prefix + data)
            connection.shutdown(socket.SHUT_WR)
            answer = connection.recv(65536)
            assert answer == b"" or answer.startswith((b"HTTP/1.1 4", b"HTTP/1.1 200", b"HTTP/1.1 501"))

    await asyncio.to_thread(throw)
    assert (await api(telegram, "getMe"))["id"] == 42
    assert telegram.server.faults == []


async def test_requests_sent_in_one_piece_are_answered_one_after_the_other(telegram):
    one = f"GET /bot{TOKEN}/getMe HTTP/1.1\r\nHost: x\r\n\r\n".encode()
    last = f"GET /bot{TOKEN}/close HTTP/1.0\r\n\r\n".encode()
    received = await raw(telegram.server.port, one * 3 + last)
    assert received.count(b"HTTP/1.1 200 OK") == 4
    assert [c.method for c in telegram.calls] == ["getMe"] * 3 + ["close"]


async def test_a_connection_is_used_again_and_a_slow_writer_is_given_up():
    async def echo(request):
        return Response(200, request.body, "text/plain")

    async with HttpServer(echo, patience=0.05) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        wire = Wire(reader)
        for body in (b"one", b"two"):
            for piece in (b"POST / HTTP/1.1\r\nContent-Le", b"ngth: 3\r\n\r\n", body[:1], body[1:]):
                writer.write(piece)
                await asyncio.sleep(0)
            assert b"keep-alive" in await wire.until(b"\r\n\r\n", 1000)
            assert await wire.exactly(3) == body
        writer.write(b"POST / HTTP/1.1\r\n")
        assert await reader.read() == b""
        writer.close()
        await writer.wait_closed()


async def test_a_handler_that_raises_is_a_500_and_is_remembered():
    async def broken(request):
        raise ZeroDivisionError

    async with HttpServer(broken) as server:
        assert (await fetch(f"{server.url}/x")).status == 500
        assert [type(fault) for fault in server.faults] == [ZeroDivisionError]


async def test_a_server_keeps_its_port_when_it_starts_again():
    async def fine(request):
        return Response(200, request.path.encode())

    server = HttpServer(fine)
    await server.start()
    url = server.url
    await server.aclose()
    with pytest.raises(ConnectionRefusedError):
        await fetch(url)
    await server.start()
    assert (await fetch(f"{url}/a%20b")).body == b"/a b"
    await server.aclose()


@given(st.dictionaries(st.text("abc", min_size=1), st.text(max_size=20)), st.binary(max_size=60))
def test_multipart_gives_back_what_was_put_in(fields, content):
    if b"--b" in content or any("--b" in value for value in fields.values()):
        return
    body = b"".join(
        b'--b\r\nContent-Disposition: form-data; name="%s"\r\n\r\n%s\r\n' % (k.encode(), v.encode())
        for k, v in fields.items()
    )
    body += (
        b'--b\r\nContent-Disposition: form-data; name="f"; filename="x"\r\n\r\n' + content + b"\r\n--b--\r\n"
    )
    found = read_multipart(body, "b")
    assert found.pop("f").content == content
    assert found == fields
