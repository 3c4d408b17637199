"""The inspector: what it shows and hides, who is let in, what each action does and writes down."""

from __future__ import annotations

from contextlib import asynccontextmanager

import httpx
import pytest

from hitherto import Flow, MemoryStore, Queue, State
from hitherto.addresses import Address
from hitherto.document import Event, Terms
from hitherto.inspector import inspector
from hitherto.records import Record

BASE = "http://127.0.0.1:8000"
FOREVER = Terms(lease=1e6)


class Order(Flow):
    size = State(to="toppings", initial=True)
    toppings = State(to=["size", "done"])
    done = State(to=[], final=True)


async def fill(store, bot="bot"):
    """One conversation with an event running and one waiting, one with a dead letter, one in no flow."""
    await store.set_state(bot, (7, 7), Record("order", "size", {"name": "Ann", "n": 2**70}))
    await store.set_state(bot, (8, 7), Record(None, None, {"x": 1e16}))
    await store.set_state(bot, ("room", 9), Record("order", "toppings", {}))
    busy, dying = Address(bot, "", (7, 7)), Address(bot, "", ("room", 9))
    for number in ("1", "2"):
        event = Event(number, b'{"text":"whispered %s"}' % number.encode())
        await store.accept(busy, event, Queue(), "worker-1", store.op(), FOREVER)
    answer = await store.accept(
        dying, Event("3", b'{"text":"poison"}'), Queue(), "worker-1", store.op(), FOREVER
    )
    await store.settle(
        dying, answer.grant.claim, store.op(), FOREVER, verdict="dead", error="bot.py:7 in order\nKeyError"
    )


@pytest.fixture
async def store():
    store = MemoryStore()
    await fill(store)
    return store


def client(app, base=BASE):
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=base)


@asynccontextmanager
async def entered(app, base=BASE):
    """A client that came by the link."""
    async with client(app, base) as browser:
        assert (await browser.get(app.link(base))).status_code == 303
        yield browser


async def test_the_link_is_exchanged_for_a_cookie_and_leaves_the_address(store):
    app = inspector(store, bot="bot")
    async with client(app) as browser:
        assert (await browser.get("/")).status_code == 401
        answer = await browser.get(app.link(BASE))
        assert answer.status_code == 303
        assert answer.headers["location"] == "/"
        cookie = answer.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=Strict" in cookie
        token = app.link(BASE).partition("token=")[2]
        assert token not in cookie
        assert (await browser.get("/")).status_code == 200
        assert (await browser.get("/?token=wrong")).status_code == 401


async def test_a_conversation_is_shown_and_what_people_wrote_only_when_asked_for(store):
    async with entered(inspector(store, bot="bot", flows=[Order])) as browser:
        page = (await browser.get("/conversation", params={"key": "7/7"})).text
        assert "worker-1" in page
        assert 'class="map"' in page
        assert "Ann" not in page
        assert "whispered" not in page
        shown = (await browser.get("/conversation", params={"key": "7/7", "reveal": "data"})).text
        assert "Ann" in shown
        assert str(2**70) in shown
        assert "whispered" not in shown
        shown = (await browser.get("/conversation", params={"key": "7/7", "reveal": "event-2"})).text
        assert "whispered 2" in shown
        assert "whispered 1" not in shown
