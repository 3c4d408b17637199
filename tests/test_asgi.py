"""Webhook endpoints: what is let in, what is answered, and that accepted means kept."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import logging
import subprocess
import sys
from urllib.parse import urlencode

import pytest
from fastapi import FastAPI
from httpx import ASGITransport, AsyncClient
from starlette.applications import Starlette
from starlette.routing import Mount, Route

from asgi_client import SIGNING_SECRET, ask, signed
from hitherto import Chat, ChatTopic, ChatTopicUser, Flow, Keeper, MemoryStore, Reject, State, User, asgi
from hitherto.adapting import slack_place
from hitherto.errors import StoreUnavailable

SECRET = "s3cret_-"
TOKEN = [(b"x-telegram-bot-api-secret-token", SECRET.encode())]
NOW = 1_531_420_618.0


class Order(Flow):
    size = State(initial=True)


def update(number=1, text="hello", chat=7):
    who = {"chat": {"id": chat, "type": "private"}, "from": {"id": chat}}
    return {"update_id": number, "message": {"message_id": number, "text": text, **who}}


def encoded(thing):
    return json.dumps(thing).encode()


async def note(turn):
    turn.update_data(texts=[*turn.data.get("texts", []), turn.event["message"]["text"]])


async def ignore(turn):
    pass


@pytest.fixture
async def keeper():
    async with Keeper("bot", flows=[Order]) as keeper:
        yield keeper


async def texts(keeper, key=(7, 7)):
    await keeper.idle(5)
    data = await keeper.store.get_data(keeper.bot, key)
    return None if data is None else data["texts"]


# ------------------------------------------------------------------------------------------------ telegram


async def test_an_update_with_the_secret_is_kept_answered_and_handled(keeper):
    response = await ask(asgi.telegram(keeper, note, secret=SECRET), encoded(update()), TOKEN)
    assert (response.status, response.body) == (200, b"")
    assert await texts(keeper) == ["hello"]


async def test_the_answer_does_not_wait_for_the_handler(keeper):
    go = asyncio.Event()

    async def slow(turn):
        await go.wait()
        await note(turn)

    app = asgi.telegram(keeper, slow, secret=SECRET)
    async with asyncio.timeout(2):
        assert (await ask(app, encoded(update(1)), TOKEN)).status == 200
        assert (await ask(app, encoded(update(2, "again")), TOKEN)).status == 200
    document = await keeper.inspect((7, 7))
    assert [entry.event_id for entry in document.inbox] == ["tg:1", "tg:2"]
    go.set()
    assert await texts(keeper) == ["hello", "again"]


async def test_a_redelivery_is_answered_and_not_handled(keeper):
    app = asgi.telegram(keeper, note, secret=SECRET)
    for _ in range(3):
        assert (await ask(app, encoded(update()), TOKEN)).status == 200
    assert await texts(keeper) == ["hello"]
    assert keeper.counts["duplicate"] == 2


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [(b"x-telegram-bot-api-secret-token", b"")],
        [(b"x-telegram-bot-api-secret-token", b"s3cret_")],
        [(b"x-telegram-bot-api-secret-token", b"s3cret_-x")],
        [(b"x-telegram-bot-api-secret-token", b"S3CRET_-")],
        [(b"x-telegram-bot-api-secret-token", "s3crét_-".encode())],
        [(b"x-telegram-bot-api-secret-token", "s3crét_-".encode("latin-1"))],
        [(b"x-telegram-bot-api-secret-token", b"\xff\x00")],
        [*TOKEN, *TOKEN],
        [*TOKEN, (b"x-telegram-bot-api-secret-token", b"other")],
        [(b"authorization", SECRET.encode())],
    ],
)
async def test_no_update_gets_in_without_the_secret(keeper, headers):
    app = asgi.telegram(keeper, note, secret=SECRET)
    assert (await ask(app, encoded(update()), headers)).status == 401
    assert await texts(keeper) is None


async def test_nothing_is_read_before_the_secret_is_checked(keeper):
    def forbidden():
        pytest.fail("the body was read")
        yield b""

    assert (await ask(asgi.telegram(keeper, note, secret=SECRET), forbidden())).status == 401


async def test_header_names_count_in_any_case(keeper):
    headers = [(b"X-Telegram-Bot-Api-Secret-Token", SECRET.encode())]
    assert (await ask(asgi.telegram(keeper, note, secret=SECRET), encoded(update()), headers)).status == 200


@pytest.mark.parametrize("secret", [None, "", "with space", "ümlaut", "x" * 257, "a\n"])
def test_a_missing_or_impossible_secret_is_refused_when_the_endpoint_is_built(secret):
    with pytest.raises(ValueError, match="secret="):
        asgi.telegram(Keeper("bot"), note, secret=secret)


async def test_insecure_must_be_said(keeper):
    app = asgi.telegram(keeper, note, insecure=True)
    assert (await ask(app, encoded(update()))).status == 200


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b"1",
        b'"x"',
        b"\xff",
        b"{}",
        b'{"update_id": true}',
        b'{"update_id": "1"}',
        b'{"update_id": -1}',
        b'{"update_id": 1.5}',
        b'{"update_id": 9223372036854775808}',
        b"[" * 100_000,
        b'{"update_id": 1, "a": ' + b"[" * 500 + b"]" * 500 + b"}",
        b'{"update_id": 1, "a": ' + b"[" * 64 + b"]" * 64 + b"}",
        b'{"update_id": 1, "a": NaN}',
        b'{"update_id": 1, "a": 1e999}',
        b'{"update_id": 1, "a": "\\ud800x"}',
        b"\xef\xbb\xbf" + encoded(update()),
        encoded(update()) + b"x",
        b"\x1f\x8b\x08\x00",
        b"update_id=1",
    ],
)
async def test_what_is_no_update_is_400(keeper, body):
    assert (await ask(asgi.telegram(keeper, note, secret=SECRET), body, TOKEN)).status == 400


async def test_sixty_four_levels_are_fine(keeper):
    body = b'{"update_id": 1, "a": ' + b"[" * 63 + b"]" * 63 + b"}"
    assert (await ask(asgi.telegram(keeper, ignore, secret=SECRET), body, TOKEN)).status == 200


@pytest.mark.parametrize("kind", [[], [(b"content-type", b"text/plain")], [(b"content-type", b"\xff")]])
async def test_any_content_type_will_do(keeper, kind):
    app = asgi.telegram(keeper, note, secret=SECRET)
    assert (await ask(app, encoded(update()), [*TOKEN, *kind])).status == 200


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "post"])
async def test_only_post(keeper, method):
    response = await ask(asgi.telegram(keeper, note, secret=SECRET), encoded(update()), TOKEN, method)
    assert response.status == 405
    assert response.headers[b"allow"] == b"POST"


async def test_an_update_without_a_conversation_is_handled_with_an_empty_record(keeper):
    seen = []

    async def handler(turn):
        seen.append(turn.key)

    app = asgi.telegram(keeper, handler, secret=SECRET)
    assert (await ask(app, b'{"update_id": 1, "poll": {"id": "p"}}', TOKEN)).status == 200
    await keeper.idle(5)
    assert seen == [None]


# -------------------------------------------------------------------------------------------------- limits


async def test_a_body_that_says_it_is_too_large_is_not_read(keeper):
    def forbidden():
        pytest.fail("the body was read")
        yield b""

    for length in (b"1048577", b"9" * 30, b"-1", b"1e3", b""):
        headers = [*TOKEN, (b"content-length", length)]
        assert (await ask(asgi.telegram(keeper, note, secret=SECRET), forbidden(), headers)).status == 413


async def test_a_body_that_grows_too_large_is_read_no_further(keeper):
    taken = 0

    def endless():
        nonlocal taken
        while True:
            taken += 1
            yield b"x" * 65_536

    assert (await ask(asgi.telegram(keeper, note, secret=SECRET), endless(), TOKEN)).status == 413
    assert taken == 17


async def test_the_limit_is_yours(keeper):
    app = asgi.telegram(keeper, note, secret=SECRET, max_body=len(encoded(update())))
    assert (await ask(app, encoded(update()), TOKEN)).status == 200
    assert (await ask(app, encoded(update()) + b" ", TOKEN)).status == 413


async def test_an_event_too_large_for_the_keeper_is_413():
    async with Keeper("bot", max_event_bytes=200) as keeper:
        app = asgi.telegram(keeper, note, secret=SECRET)
        assert (await ask(app, encoded(update(text="x" * 300)), TOKEN)).status == 413


async def test_a_body_may_come_in_pieces(keeper):
    body = encoded(update())
    pieces = [body[at : at + 1] for at in range(len(body))]
    assert (await ask(asgi.telegram(keeper, note, secret=SECRET), pieces, TOKEN)).status == 200
    assert await texts(keeper) == ["hello"]


async def test_a_client_that_goes_away_is_answered_nothing(keeper):
    assert await ask(asgi.telegram(keeper, note, secret=SECRET), b"{", TOKEN, disconnect=True) is None


async def test_a_body_that_never_comes_is_408(keeper, monkeypatch):
    monkeypatch.setattr(asgi, "_UPLOAD", 0.01)
    sent = []

    async def receive():
        await asyncio.Event().wait()

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "method": "POST", "headers": TOKEN}
    await asgi.telegram(keeper, note, secret=SECRET)(scope, receive, send)
    assert sent[0]["status"] == 408


async def test_too_many_requests_at_once_are_put_off(keeper, monkeypatch):
    monkeypatch.setattr(asgi, "_AT_ONCE", 2)
    app, waiting = asgi.telegram(keeper, note, secret=SECRET), asyncio.Event()

    async def receive():
        await waiting.wait()
        return {"type": "http.disconnect"}

    async def send(message):
        pytest.fail("whoever went away was answered")

    scope = {"type": "http", "method": "POST", "headers": TOKEN}
    stuck = [asyncio.create_task(app(scope, receive, send)) for _ in range(2)]
    await asyncio.sleep(0)
    assert (await ask(app, encoded(update()), TOKEN)).status == 503
    waiting.set()
    await asyncio.gather(*stuck)
    assert (await ask(app, encoded(update()), TOKEN)).status == 200


async def test_websockets_are_closed(keeper):
    sent = []

    async def send(message):
        sent.append(message)

    await asgi.telegram(keeper, note, secret=SECRET)({"type": "websocket"}, None, send)
    assert [message["type"] for message in sent] == ["websocket.close"]


# --------------------------------------------------------------------------------------------- 503: later


async def test_a_busy_conversation_is_503_and_its_redelivery_is_handled():
    go = asyncio.Event()

    async def handler(turn):
        await go.wait()
        await note(turn)

    async with Keeper("bot", overlap=Reject()) as keeper:
        app = asgi.telegram(keeper, handler, secret=SECRET)
        assert (await ask(app, encoded(update(1, "a")), TOKEN)).status == 200
        response = await ask(app, encoded(update(2, "b")), TOKEN)
        assert (response.status, response.headers[b"retry-after"]) == (503, b"2")
        go.set()
        await keeper.idle(5)
        assert (await ask(app, encoded(update(2, "b")), TOKEN)).status == 200
        assert await texts(keeper) == ["a", "b"]


class Away(MemoryStore):
    """A store that can be taken away."""

    away = False

    async def accept(self, *arguments, **options):
        if self.away:
            raise StoreUnavailable("the store is away")
        return await super().accept(*arguments, **options)


async def test_while_the_store_is_away_the_platform_keeps_the_event(caplog):
    store = Away()
    async with Keeper("bot", store=store, deadline=0.05) as keeper:
        app = asgi.telegram(keeper, note, secret=SECRET)
        store.away = True
        assert (await ask(app, encoded(update(text="private")), TOKEN)).status == 503
        store.away = False
        assert (await ask(app, encoded(update(text="private")), TOKEN)).status == 200
        assert await texts(keeper) == ["private"]
    assert "webhook.later error=StoreUnavailable" in caplog.text
    assert "private" not in caplog.text


async def test_a_store_that_takes_too_long_is_503_and_the_event_is_handled_once():
    go = asyncio.Event()

    class Slow(MemoryStore):
        async def accept(self, *arguments, **options):
            await go.wait()
            return await super().accept(*arguments, **options)

    async with Keeper("bot", store=Slow()) as keeper:
        app = asgi.telegram(keeper, note, secret=SECRET, answer_within=0.02)
        assert (await ask(app, encoded(update()), TOKEN)).status == 503
        go.set()
        assert await texts(keeper) == ["hello"]
        assert (await ask(app, encoded(update()), TOKEN)).status == 200
        assert await texts(keeper) == ["hello"]


async def test_a_keeper_that_does_not_run_is_503(caplog):
    keeper = Keeper("bot")
    app = asgi.telegram(keeper, note, secret=SECRET)
    assert (await ask(app, encoded(update()), TOKEN)).status == 503
    assert "lifespan=lifespan(keeper)" in caplog.text
    await keeper.start()
    await keeper.stop()
    assert (await ask(app, encoded(update()), TOKEN)).status == 503


async def test_a_key_function_that_fails_is_400(caplog):
    async with Keeper("bot", key=lambda event: (event["nothing"],)) as keeper:
        app = asgi.telegram(keeper, note, secret=SECRET)
        assert (await ask(app, encoded(update(text="private")), TOKEN)).status == 400
    assert "webhook.key error=KeyError" in caplog.text
    assert "private" not in caplog.text


async def test_an_overlap_function_that_fails_is_503(caplog):
    async with Keeper("bot", overlap=lambda event: event["nothing"]) as keeper:
        app = asgi.telegram(keeper, note, secret=SECRET)
        assert (await ask(app, encoded(update()), TOKEN)).status == 503
    assert "webhook.failed error=KeyError" in caplog.text


async def test_a_handler_that_fails_was_accepted_all_the_same():
    async def failing(turn):
        raise RuntimeError("no")

    async with Keeper("bot", max_attempts=1) as keeper:
        app = asgi.telegram(keeper, failing, secret=SECRET)
        assert (await ask(app, encoded(update()), TOKEN)).status == 200
        await keeper.idle(5)
        assert [dead.event_id for dead in await keeper.dead_letters((7, 7))] == ["tg:1"]


# --------------------------------------------------------------------------------------------------- slack


def slack_event(number=1, text="hello", **fields):
    event = {"type": "message", "channel": "C1", "user": "U1", "text": text, "ts": "1.2", **fields}
    return {"type": "event_callback", "team_id": "T1", "event_id": f"Ev{number}", "event": event}


async def note_slack(turn):
    turn.update_data(texts=[*turn.data.get("texts", []), turn.event["event"]["text"]])


def slack_app(keeper, handler=note_slack, **options):
    return asgi.slack(keeper, handler, signing_secret=SIGNING_SECRET, clock=lambda: NOW, **options)


def test_the_signature_is_the_one_of_slacks_documentation():
    body = (
        b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V&"
        b"channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=&"
        b"response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F"
        b"96rGlfmibIGlgcZRskXaIFfN&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"
    )
    documented = b"v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503"
    assert dict(signed(body, NOW))[b"x-slack-signature"] == documented


async def test_a_command_signed_as_documented_is_kept(keeper):
    seen = []

    async def handler(turn):
        seen.append((turn.event["command"], turn.event["text"], turn.event_id, turn.key))

    body = b"team_id=T1&channel_id=C1&user_id=U1&command=%2Forder&text=&trigger_id=13.2.ab"
    assert (await ask(slack_app(keeper, handler), body, signed(body, NOW))).status == 200
    await keeper.idle(5)
    assert seen == [("/order", "", "slack:13.2.ab", ("slack:T1", "C1", 0, "U1"))]


async def test_retries_with_their_number_are_handled_once(keeper):
    app, body = slack_app(keeper), encoded(slack_event())
    for retry in (b"0", b"1", b"2", b"3"):
        headers = [
            *signed(body, NOW),
            (b"x-slack-retry-num", retry),
            (b"x-slack-retry-reason", b"http_timeout"),
        ]
        assert (await ask(app, body, headers)).status == 200
    assert await texts(keeper, ("slack:T1", "C1", 0, "U1")) == ["hello"]


async def test_the_url_is_verified_only_for_slack(keeper):
    body = encoded({"type": "url_verification", "challenge": "3eZbrw1aB", "token": "x"})
    response = await ask(slack_app(keeper), body, signed(body, NOW))
    assert (response.status, response.body) == (200, b"3eZbrw1aB")
    assert (await ask(slack_app(keeper), body, signed(body, NOW, "other"))).status == 401


async def test_a_check_of_the_certificate_is_answered(keeper):
    body = b"ssl_check=1&token=x"
    assert (await ask(slack_app(keeper), body, signed(body, NOW))).status == 200


@pytest.mark.parametrize("off", [-301, 301, -86_400, 10**11])
async def test_an_old_signature_is_refused(keeper, off):
    body = encoded(slack_event())
    assert (await ask(slack_app(keeper), body, signed(body, NOW + off))).status == 401


@pytest.mark.parametrize("off", [-300, 300, 0])
async def test_five_minutes_are_in_time(keeper, off):
    body = encoded(slack_event())
    assert (await ask(slack_app(keeper), body, signed(body, NOW + off))).status == 200


def stamped(stamp, body=b"{}"):
    digest = hmac.new(SIGNING_SECRET.encode(), b"v0:" + stamp + b":" + body, hashlib.sha256).hexdigest()
    return [(b"x-slack-request-timestamp", stamp), (b"x-slack-signature", b"v0=" + digest.encode())]


@pytest.mark.parametrize(
    "headers",
    [
        [],
        stamped(b""),
        stamped(b"now"),
        stamped(b"1531420618.0"),
        stamped(b"+1531420618"),
        stamped(b" 1531420618"),
        stamped(b"1_531_420_618"),
        stamped("١٥٣١٤٢٠٦١٨".encode()),
        stamped(b"1" * 5000),
        stamped(b"nan"),
        stamped(b"1531420618")[:1],
        stamped(b"1531420618")[1:],
        [*stamped(b"1531420618"), stamped(b"1531420618")[0]],
        [*stamped(b"1531420618"), stamped(b"1531420618")[1]],
        [stamped(b"1531420618")[0], (b"x-slack-signature", b"")],
        [stamped(b"1531420618")[0], (b"x-slack-signature", b"v0=")],
        [stamped(b"1531420618")[0], (b"x-slack-signature", "v0=ü".encode())],
        [stamped(b"1531420618")[0], (b"x-slack-signature", stamped(b"1531420618")[1][1].upper())],
        [stamped(b"1531420618")[0], (b"x-slack-signature", stamped(b"1531420618")[1][1][3:])],
        [(b"x-slack-request-timestamp", b"1531420619"), stamped(b"1531420618")[1]],
    ],
)
async def test_a_strange_signature_is_401(keeper, headers):
    assert (await ask(slack_app(keeper), b"{}", headers)).status == 401


async def test_one_changed_byte_is_401(keeper):
    body = encoded(slack_event())
    headers = signed(body, NOW)
    for at in range(0, len(body), 7):
        changed = body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :]
        assert (await ask(slack_app(keeper), changed, headers)).status == 401
    assert await texts(keeper, ("slack:T1", "C1", 0, "U1")) is None


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"[]",
        b"{",
        b"x",
        b"payload=",
        b"payload=[]",
        b"payload=%FF",
        b"%FF=1",
        b"payload=%7B%22a%22",
        b"&".join([b"a=b"] * 200),
        b'{"event_id": ""}',
        b'{"event_id": {}}',
        b'{"event_id": "\\n"}',
        b'{"event_id": "' + b"x" * 300 + b'"}',
        b'{"type": 1}',
        b"=",
        b"a",
    ],
)
async def test_what_slack_would_not_say_is_400(keeper, body):
    assert (await ask(slack_app(keeper), body, signed(body, NOW))).status == 400


async def test_an_action_comes_in_a_form(keeper):
    seen = []

    async def handler(turn):
        seen.append((turn.event["type"], turn.key))

    action = {
        "type": "block_actions", "trigger_id": "1.2", "team": {"id": "T1"}, "user": {"id": "U1"},
        "channel": {"id": "C1"}, "message": {"ts": "5.6", "thread_ts": "3.4"},
    }  # fmt: skip
    body = urlencode({"payload": json.dumps(action)}).encode()
    assert (await ask(slack_app(keeper, handler), body, signed(body, NOW))).status == 200
    await keeper.idle(5)
    assert seen == [("block_actions", ("slack:T1", "C1", "3.4", "U1"))]


async def test_what_has_no_id_is_known_by_its_body(keeper):
    body = encoded({"type": "app_rate_limited", "team_id": "T1", "minute_rate_limited": 1})
    app = slack_app(keeper, ignore)
    assert (await ask(app, body, signed(body, NOW))).status == 200


@pytest.mark.parametrize("secret", [None, ""])
def test_a_missing_signing_secret_is_refused_when_the_endpoint_is_built(secret):
    with pytest.raises(ValueError, match="signing_secret="):
        asgi.slack(Keeper("bot"), note, signing_secret=secret)


async def test_slack_without_a_secret_must_be_said(keeper):
    app = asgi.slack(keeper, note_slack, insecure=True)
    assert (await ask(app, encoded(slack_event()))).status == 200


@pytest.mark.parametrize(
    ("strategy", "key"),
    [
        (ChatTopicUser(), ("slack:T1", "C1", "3.4", "U1")),
        (ChatTopic(), ("slack:T1", "C1", "3.4")),
        (Chat(), ("slack:T1", "C1")),
        (User(), ("slack:T1", "U1")),
        (lambda event: event["event"]["ts"], "1.2"),
    ],
)
async def test_the_key_strategies_mean_the_same_on_slack(strategy, key):
    body = encoded(slack_event(thread_ts="3.4"))
    async with Keeper("bot", key=strategy) as keeper:
        assert (await ask(slack_app(keeper), body, signed(body, NOW))).status == 200
        assert await texts(keeper, key) == ["hello"]
    async with Keeper("bot") as keeper:
        assert (await ask(slack_app(keeper, key=strategy), body, signed(body, NOW))).status == 200
        assert await texts(keeper, key) == ["hello"]


@pytest.mark.parametrize(
    ("body", "place"),
    [
        ({"team_id": "T1", "event": {"channel": "C1", "user": "U1"}}, ("slack:T1", "C1", None, "U1")),
        (
            {"team_id": "T1", "event": {"channel": {"id": "C1"}, "user": {"id": "U1"}}},
            ("slack:T1", "C1", None, "U1"),
        ),
        (
            {
                "team_id": "T1",
                "event": {
                    "type": "message",
                    "subtype": "message_changed",
                    "channel": "C1",
                    "message": {"user": "U1", "thread_ts": "3.4"},
                },
            },
            ("slack:T1", "C1", "3.4", "U1"),
        ),
        (
            {"team_id": "T1", "event": {"type": "reaction_added", "user": "U1", "item": {"channel": "C1"}}},
            ("slack:T1", "C1", None, "U1"),
        ),
        (
            {
                "team_id": "T1",
                "event": {"assistant_thread": {"channel_id": "D1", "thread_ts": "3.4", "user_id": "U1"}},
            },
            ("slack:T1", "D1", "3.4", "U1"),
        ),
        ({"team_id": "T1", "event": {"channel": "C1", "bot_id": "B1"}}, ("slack:T1", "C1", None, "B1")),
        (
            {"type": "view_submission", "team": {"id": "T1"}, "user": {"id": "U1"}},
            ("slack:T1", None, None, "U1"),
        ),
        (
            {"type": "shortcut", "team": None, "enterprise": {"id": "E1"}, "user": {"id": "U1"}},
            ("slack:E1", None, None, "U1"),
        ),
        ({"team": 5, "channel": [], "user": {"id": {}}, "message": "no"}, ("slack:", None, None, None)),
        ({}, ("slack:", None, None, None)),
    ],
)
def test_where_slack_payloads_come_from(body, place):
    assert slack_place(body) == place


@pytest.mark.parametrize("nothing", [None, [], "x", 1])
def test_what_is_no_payload_has_no_place(nothing):
    assert slack_place(nothing) is None


# -------------------------------------------------------------------------------------------- plain JSON


async def test_plain_json_reaches_the_conversation_it_names(keeper):
    async def paid(turn):
        turn.update_data(paid=turn.event["amount"])

    telegram, payments = asgi.telegram(keeper, note, secret=SECRET), asgi.json(keeper, paid, token="pay me")
    assert (await ask(telegram, encoded(update()), TOKEN)).status == 200
    event = encoded({"id": "paid-17", "chat": 7, "user": 7, "amount": 900})
    bearer = [(b"authorization", b"Bearer pay me")]
    first, second = [await ask(payments, event, bearer) for _ in range(2)]
    assert [json.loads(response.body) for response in (first, second)] == [
        {"status": "queued"}, {"status": "duplicate"}
    ]  # fmt: skip
    await keeper.idle(5)
    assert await keeper.store.get_data("bot", (7, 7)) == {"texts": ["hello"], "paid": 900}


@pytest.mark.parametrize(
    ("strategy", "key"),
    [
        (ChatTopicUser(), ("room", 3, "ann")),
        (ChatTopic(), ("room", 3)),
        (Chat(), ("room",)),
        (User(), ("ann",)),
        (lambda event: event["room"], "r"),
    ],
)
async def test_plain_json_by_every_strategy(strategy, key):
    seen = []

    async def handler(turn):
        seen.append(turn.key)

    async with Keeper("bot", key=strategy) as keeper:
        event = {"id": 1, "chat": "room", "thread": 3, "user": "ann", "room": "r"}
        assert (await ask(asgi.json(keeper, handler), encoded(event))).status == 200
    assert seen == [key]


@pytest.mark.parametrize(
    "header",
    [
        [],
        [(b"authorization", b"pay me")],
        [(b"authorization", b"Basic pay me")],
        [(b"authorization", b"Bearer")],
        [(b"authorization", b"Bearer  pay me")],
        [(b"authorization", b"Bearer pay m\xc3\xa9")],
        [(b"authorization", b"Bearer pay me"), (b"authorization", b"Bearer pay me")],
    ],
)
async def test_a_token_is_demanded(keeper, header):
    app = asgi.json(keeper, ignore, token="pay me")
    assert (await ask(app, b'{"id": 1, "user": 7}', header)).status == 401


def test_an_empty_token_is_refused():
    with pytest.raises(ValueError, match="token="):
        asgi.json(Keeper("bot"), ignore, token="")


@pytest.mark.parametrize(
    "event",
    [
        {},
        {"user": 7},
        {"id": None, "user": 7},
        {"id": "", "user": 7},
        {"id": True, "user": 7},
        {"id": 1.5, "user": 7},
        {"id": [], "user": 7},
        {"id": "x" * 257, "user": 7},
        {"id": "a\x00b", "user": 7},
        {"id": 10**30, "user": 7},
        {"id": 1},
        {"id": 1, "chat": [1]},
        {"id": 1, "chat": {"id": 1}, "user": 2},
    ],
)
async def test_json_without_id_or_conversation_is_400(keeper, event):
    assert (await ask(asgi.json(keeper, ignore), encoded(event))).status == 400


async def test_a_relayed_update_with_an_id_is_understood(keeper):
    event = encoded({"id": "relay-1", **update()})
    assert (await ask(asgi.json(keeper, note), event)).status == 200
    assert await texts(keeper) == ["hello"]


# ------------------------------------------------------------------------------------- lives and recoveries


async def test_lifespan_starts_and_drains_the_keeper():
    async def slow(turn):
        await asyncio.sleep(0.05)
        await note(turn)

    store = MemoryStore()
    keeper = Keeper("bot", store=store)
    app = FastAPI(lifespan=asgi.lifespan(keeper))
    app.add_route("/telegram", asgi.telegram(keeper, slow, secret=SECRET))
    async with app.router.lifespan_context(app):
        assert keeper.running
        async with AsyncClient(transport=ASGITransport(app), base_url="http://bot") as client:
            headers = {"X-Telegram-Bot-Api-Secret-Token": SECRET}
            assert (await client.post("/telegram", json=update(), headers=headers)).status_code == 200
            assert (await client.get("/telegram")).status_code == 405
            assert (await client.post("/telegram", json=update())).status_code == 401
    assert not keeper.running
    assert await store.get_data("bot", (7, 7)) == {"texts": ["hello"]}


async def test_a_keeper_that_runs_already_is_left_running(keeper):
    async with asgi.lifespan(keeper)(None):
        assert keeper.running
    assert keeper.running


async def test_starlette_routes_and_mounts(keeper):
    app = Starlette(
        routes=[
            Route("/telegram", asgi.telegram(keeper, note, secret=SECRET)),
            Mount("/slack", asgi.slack(keeper, note_slack, insecure=True)),
        ]
    )
    async with AsyncClient(transport=ASGITransport(app), base_url="http://bot") as client:
        headers = {"X-Telegram-Bot-Api-Secret-Token": SECRET}
        assert (await client.post("/telegram", json=update(), headers=headers)).status_code == 200
        assert (await client.post("/slack/", json=slack_event())).status_code == 200
    assert await texts(keeper) == ["hello"]
    assert await texts(keeper, ("slack:T1", "C1", 0, "U1")) == ["hello"]


async def live(app, until):
    told, sent = asyncio.Queue(), asyncio.Queue()
    task = asyncio.create_task(app({"type": "lifespan"}, told.get, sent.put))
    await told.put({"type": "lifespan.startup"})
    answers = [await sent.get()]
    until()
    if answers[0]["type"].endswith("complete"):
        await told.put({"type": "lifespan.shutdown"})
        answers.append(await sent.get())
    await task
    return [answer["type"] for answer in answers]


async def test_alone_an_endpoint_lives_by_the_protocol():
    keeper, phases = Keeper("bot"), []
    app = asgi.telegram(keeper, note, secret=SECRET)
    answers = await live(app, lambda: phases.append(keeper.running))
    assert answers == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
    assert [*phases, keeper.running] == [True, False]


async def test_a_start_that_fails_is_told_to_the_server(tmp_path, caplog):
    keeper = Keeper("bot", store=f"sqlite:///{tmp_path}/missing/bot.db")
    assert await live(asgi.telegram(keeper, note, secret=SECRET), lambda: None) == ["lifespan.startup.failed"]
    assert "lifespan.failed" in caplog.text


async def test_what_a_crash_left_behind_goes_back_to_the_endpoint_it_came_through():
    store, handled = MemoryStore(), []

    def to(name):
        async def handler(turn):
            handled.append((name, turn.event_id))

        return handler

    async def never(turn):
        await asyncio.Event().wait()

    async with Keeper("bot", store=store) as dying:
        for app, body in [
            (asgi.telegram(dying, never, insecure=True), update(1)),
            (asgi.slack(dying, never, insecure=True), slack_event(2)),
            (asgi.json(dying, never), {"id": 3, "user": 8}),
        ]:
            assert (await ask(app, encoded(body))).status == 200
        await dying.stop(grace=0)
    async with Keeper("bot", store=store) as keeper:
        asgi.json(keeper, to("json"))
        asgi.slack(keeper, to("slack"), insecure=True)
        asgi.telegram(keeper, to("telegram"), insecure=True)
        await keeper.sweep()
        await keeper.idle(5)
    assert sorted(handled) == [("json", "id:3"), ("slack", "slack:Ev2"), ("telegram", "tg:1")]


async def test_a_handler_of_the_keepers_own_goes_before_those_of_the_endpoints():
    async with Keeper("bot", handler=note) as keeper:
        asgi.telegram(keeper, ignore, insecure=True)
        assert keeper._runner.handler is note
        assert (await ask(asgi.telegram(keeper, insecure=True), encoded(update()))).status == 200
        assert await texts(keeper) == ["hello"]


async def test_nothing_private_is_logged_or_shown(keeper, caplog):
    caplog.set_level(logging.INFO)
    app = asgi.telegram(keeper, note, secret=SECRET)
    await ask(app, encoded(update(text="private-needle")), TOKEN)
    await ask(app, b"private-needle", TOKEN)
    await ask(app, encoded(update()), [(b"x-telegram-bot-api-secret-token", b"private-needle")])
    await keeper.idle(5)
    assert "private-needle" not in caplog.text
    assert SECRET not in repr(app) + caplog.text


def test_what_plain_servers_need_is_all_that_is_imported():
    code = (
        "import sys, hitherto.asgi; print(sorted({'starlette', 'fastapi', 'slack_bolt'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"
