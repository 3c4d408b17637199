"""Slack's Bolt on a keeper, with the real AsyncApp: requests as Slack signs them, answers as it gets them."""

from __future__ import annotations

import asyncio
import json
import time
from urllib.parse import urlencode

import pytest
from slack_bolt.async_app import AsyncApp, AsyncBoltRequest
from slack_bolt.authorization import AuthorizeResult
from slack_sdk.signature import SignatureVerifier

from hitherto import Flow, Keeper, MemoryStore, Reject, State
from hitherto.addresses import Address
from hitherto.document import Event, Terms
from hitherto.overlap import Queue
from hitherto.slack import DataIs, InFlow, NoFlow, attach, when
from hitherto.testing import ManualClock

SECRET = "8f742231b10e8888abcd99yyyzzz85a5"
KEY = ("slack:T1", "C1", 0, "U1")


class Signup(Flow):
    ask_name = State(to="ask_email", initial=True)
    ask_email = State(to="done")
    done = State(to=[])


async def authorize(*_, **__):
    return AuthorizeResult(
        enterprise_id=None, team_id="T1", bot_user_id="UBOT", bot_id="B1", bot_token="xoxb-1"
    )


def new_app():
    return AsyncApp(signing_secret=SECRET, authorize=authorize)


def signed(body, content_type):
    stamp = str(int(time.time()))
    signature = SignatureVerifier(SECRET).generate_signature(timestamp=stamp, body=body)
    return {
        "content-type": [content_type], "x-slack-request-timestamp": [stamp], "x-slack-signature": [signature]
    }  # fmt: skip


def says(number, text, user="U1", **event):
    message = {"type": "message", "channel": "C1", "user": user, "text": text, "ts": f"{number}.0"}
    return {
        "team_id": "T1", "api_app_id": "A1", "type": "event_callback", "event_id": f"Ev{number}",
        "event": {**message, **event},
    }  # fmt: skip


def pressed(number, action="go"):
    return {
        "type": "block_actions", "api_app_id": "A1", "trigger_id": f"13.{number}", "team": {"id": "T1"},
        "user": {"id": "U1"}, "channel": {"id": "C1"}, "actions": [{"action_id": action, "block_id": "b"}],
    }  # fmt: skip


async def send(app, payload, **headers):
    if payload.get("type") in ("block_actions", "view_submission"):
        body, kind = urlencode({"payload": json.dumps(payload)}), "application/x-www-form-urlencoded"
    else:
        body, kind = json.dumps(payload), "application/json"
    request = AsyncBoltRequest(body=body, headers={**signed(body, kind), **headers})
    return await app.async_dispatch(request)


@pytest.fixture
async def keeper():
    async with Keeper("slack", flows=[Signup]) as keeper:
        yield keeper


def signup(app):
    @app.message("start", matchers=[when(NoFlow())])
    async def start(turn):
        turn.start(Signup)

    @app.message(matchers=[when(Signup.ask_name)])
    async def name(message, turn):
        turn.update_data(name=message["text"])
        turn.transition(Signup.ask_email)

    @app.message(matchers=[when(InFlow(Signup), DataIs(name="Ann"))])
    async def email(message, turn):
        turn.update_data(email=message["text"])
        turn.transition(Signup.done)


async def test_a_conversation(keeper):
    app = new_app()
    attach(app, keeper)
    signup(app)
    for number, text in enumerate(["start", "Ann", "ann@example.org"]):
        response = await send(app, says(number, text))
        assert (response.status, response.body) == (200, "")
        assert await keeper.idle()
    record = await keeper.store.get_state("slack", KEY)
    assert (record.flow, record.state) == ("signup", "done")
    assert record.data == {"name": "Ann", "email": "ann@example.org"}


async def test_a_retry_of_slacks_is_handled_once(keeper):
    app, seen = new_app(), []
    attach(app, keeper)

    @app.event("message")
    async def note(event):
        seen.append(event["text"])

    for retry in (None, "1", "2"):
        headers = {} if retry is None else {"x-slack-retry-num": [retry]}
        assert (await send(app, says(1, "once"), **headers)).status == 200
    await keeper.idle()
    assert seen == ["once"]


async def test_events_are_answered_before_they_are_handled(keeper):
    app, gate, seen = new_app(), asyncio.Event(), []
    attach(app, keeper)

    @app.event("message")
    async def slow(event):
        await gate.wait()
        seen.append(event["text"])

    for number in range(3):
        assert (await send(app, says(number, str(number)))).status == 200
    assert seen == []
    gate.set()
    assert await keeper.idle()
    assert seen == ["0", "1", "2"]


async def test_an_action_is_answered_by_its_listener_while_it_goes_on(keeper):
    app, gate = new_app(), asyncio.Event()
    attach(app, keeper)

    @app.action("go")
    async def go(ack, turn):
        await ack(text="working on it")
        await gate.wait()
        turn.update_data(done=True)

    response = await send(app, pressed(1))
    assert (response.status, "working on it" in response.body) == (200, True)
    assert await keeper.store.get_data("slack", KEY) is None
    gate.set()
    assert await keeper.idle()
    assert await keeper.store.get_data("slack", KEY) == {"done": True}


async def test_an_action_behind_a_long_turn_is_answered_all_the_same(keeper):
    app, gate, seen = new_app(), asyncio.Event(), []
    attach(app, keeper, answer_within=0.01)

    @app.event("message")
    async def slow():
        await gate.wait()

    @app.action("go")
    async def go(ack):
        await ack()
        seen.append("went")

    await send(app, says(1, "x"))
    assert (await send(app, pressed(1))).status == 200
    assert seen == []
    gate.set()
    assert await keeper.idle()
    assert seen == ["went"]


async def test_a_listener_that_raises_commits_nothing_and_bolts_handler_hears_of_it(keeper):
    app, heard = new_app(), []
    attach(app, keeper)

    @app.error
    async def trouble(error):
        heard.append(type(error).__name__)

    @app.event("message")
    async def fails(turn):
        turn.update_data(x=1)
        raise LookupError("no")

    steps = []
    keeper.listen(lambda step: steps.append(step.kind))
    await send(app, says(1, "x"))
    await keeper.idle()
    assert heard == ["LookupError"]
    assert "failed" in steps
    assert await keeper.store.get_data("slack", KEY) is None
    assert [entry.attempts for entry in (await keeper.inspect(KEY)).inbox] == [1]


async def test_the_apps_own_middleware_runs_once_and_inside_the_turn(keeper):
    app, seen = new_app(), []

    @app.middleware
    async def note(context, next):
        seen.append(context["turn"].attempt)
        await next()

    attach(app, keeper)

    @app.event("message")
    async def nothing():
        pass

    await send(app, says(1, "x"))
    await keeper.idle()
    assert seen == [1]


async def test_a_forged_request_is_refused_before_it_is_kept(keeper):
    app = new_app()
    attach(app, keeper)
    body = json.dumps(says(1, "x"))
    headers = {**signed(body, "application/json"), "x-slack-signature": ["v0=" + "0" * 64]}
    response = await app.async_dispatch(AsyncBoltRequest(body=body, headers=headers))
    assert response.status == 401
    assert keeper.counts == {}


async def test_the_bots_own_messages_open_no_turn(keeper):
    app = new_app()
    attach(app, keeper)
    await send(app, says(1, "mine", user="UBOT"))
    assert keeper.counts == {}


async def test_socket_mode_works_alike(keeper):
    app = new_app()
    attach(app, keeper)
    signup(app)
    request = AsyncBoltRequest(body=says(1, "start"), mode="socket_mode")
    assert (await app.async_dispatch(request)).status == 200
    await keeper.idle()
    assert (await keeper.store.get_state("slack", KEY)).state == "ask_name"


async def test_what_a_crash_left_behind_goes_through_the_app():
    clock = ManualClock()
    store, app = MemoryStore(clock=clock), new_app()
    payload = json.dumps(says(1, "start")).encode()
    await store.accept(
        Address("slack", "", KEY), Event("slack:Ev1", payload), Queue(), "dead worker", None, Terms(lease=5.0)
    )
    clock.advance(6)
    keeper = Keeper("slack", store, [Signup], clock=clock, lease=5.0)
    attach(app, keeper)
    signup(app)
    async with keeper:
        await keeper.sweep()
        assert await keeper.idle()
    assert (await store.get_state("slack", KEY)).state == "ask_name"


async def test_a_busy_conversation_says_later():
    app, gate = new_app(), asyncio.Event()
    async with Keeper("slack", overlap=Reject()) as keeper:
        attach(app, keeper)

        @app.event("message")
        async def slow():
            await gate.wait()

        await send(app, says(1, "x"))
        response = await send(app, says(2, "y"))
        assert (response.status, response.headers["retry-after"]) == (503, ["2"])
        gate.set()
        await keeper.idle()
        assert (await send(app, says(2, "y"))).status == 200


async def test_lazy_listeners_run(keeper):
    app, seen = new_app(), []
    attach(app, keeper)

    async def acknowledge(ack):
        await ack()

    async def later(body):
        seen.append(body["actions"][0]["action_id"])

    app.action("go")(ack=acknowledge, lazy=[later])
    assert (await send(app, pressed(1))).status == 200
    await keeper.idle()
    for _ in range(50):
        await asyncio.sleep(0.01)
        if seen:
            break
    assert seen == ["go"]


def test_a_synchronous_app_is_refused_clearly():
    with pytest.raises(TypeError, match="AsyncApp"):
        attach(object(), Keeper("slack"))
