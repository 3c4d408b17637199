"""The inspector: what it shows and hides, who is let in, what each action does and writes down."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import signal
import socket
import stat
import subprocess
import sys
from contextlib import asynccontextmanager, contextmanager
from html import unescape
from html.parser import HTMLParser
from itertools import product
from urllib.parse import urlencode, urlsplit

import httpx
import msgspec
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from hitherto import Flow, Keeper, MemoryStore, Queue, State
from hitherto.addresses import Address, key_text
from hitherto.document import Event, Terms
from hitherto.inspector import audit, inspector
from hitherto.inspector.guard import HEADERS
from hitherto.inspector.html import Html, tag, visible
from hitherto.inspector.looking import PAGE, Looker
from hitherto.records import Record
from hitherto.stores import open_store
from hitherto.stores.sqlite import SQLiteStore

BASE = "http://127.0.0.1:8000"
OURS = {"origin": BASE}
FOREVER = Terms(lease=1e6)
WHISPER, POISON = b'{"text":"whispered %s"}', b'{"text":"poison"}'


class OrderData(msgspec.Struct):
    name: str = ""
    n: int = 0


class Order(Flow):
    size = State(to="toppings", initial=True)
    toppings = State(to=["size", "done"])
    done = State(to=[], final=True)


class Typed(Flow, data=OrderData):
    asked = State(to=[], initial=True)


async def fill(store, bot="bot"):
    """One conversation with an event running and one waiting, one with a dead letter, one in no flow."""
    await store.set_state(bot, (7, 7), Record("order", "size", {"name": "Ann", "n": 2**70}))
    await store.set_state(bot, (8, 7), Record(None, None, {"x": 1e16}))
    await store.set_state(bot, ("room", 9), Record("order", "toppings", {}))
    busy, dying = Address(bot, "", (7, 7)), Address(bot, "", ("room", 9))
    for number in ("1", "2"):
        event = Event(number, WHISPER % number.encode())
        await store.accept(busy, event, Queue(), "worker-1", store.op(), FOREVER)
    answer = await store.accept(dying, Event("3", POISON), Queue(), "worker-1", store.op(), FOREVER)
    error = "bot.py:7 in order\nbuiltins.KeyError"
    await store.settle(dying, answer.grant.claim, store.op(), FOREVER, verdict="dead", error=error)


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


def fields_of(page):
    """The hidden fields of the form that asks."""
    form = page[page.index('class="asking"') :]
    found = re.findall(r'<input type="hidden" name="([^"]*)" value="([^"]*)"', form)
    return {name: unescape(value) for name, value in found}


async def act(browser, name, key, given=None, query=None, root=""):
    """Open the page that asks, fill it in, send it."""
    asked = await browser.get(f"{root}/act/{name}", params={"key": key, **(query or {})})
    assert asked.status_code == 200, asked.text
    form = fields_of(asked.text) | (given or {})
    return await browser.post(f"{root}/act/{name}", data=form, headers=OURS)


def paths_of(app):
    """Every route there is, with an action's name in it."""
    names = ["edit", "move", "clear", "release", "retry", "drop", "forget", "person", "nonsense"]
    found = set()
    for route in app._app.routes:
        found |= {route.path.replace("{name}", name) for name in [*names, "inspector.css", "inspector.js"]}
    return sorted(found)


PAGES = ("/", "/conversations", "/conversation?key=7/7", "/conversation?key=.room/9", "/queues", "/leases",
         "/dead", "/health", "/person", "/person?part=7", "/act/edit?key=7/7", "/act/move?key=7/7",
         "/act/clear?key=7/7", "/act/release?key=7/7", "/act/retry?key=.room/9&seq=1",
         "/nowhere")  # fmt: skip
READING = PAGES[:8]
REVEALED = "&reveal=data,event-1,event-2,dead-1"


# ------------------------------------------------------------------------------------------ who is let in


async def test_the_link_is_exchanged_for_a_cookie_and_leaves_the_address(store):
    app = inspector(store, bot="bot")
    async with client(app) as browser:
        assert (await browser.get("/")).status_code == 401
        answer = await browser.get(app.link(BASE))
        assert answer.status_code == 303
        assert answer.headers["location"] == "/"
        cookie, token = answer.headers["set-cookie"], app.link(BASE).partition("token=")[2]
        assert "HttpOnly" in cookie
        assert "SameSite=Strict" in cookie
        assert len(token) >= 40
        assert token not in cookie
        assert token not in repr(app)
        assert (await browser.get("/")).status_code == 200
        assert (await browser.get("/?token=wrong")).status_code == 401


async def test_two_inspectors_do_not_share_a_link_or_a_cookie(store):
    one, other = inspector(store, bot="bot"), inspector(store, bot="bot")
    async with entered(one) as browser:
        cookies = dict(browser.cookies)
    async with client(other) as browser:
        browser.cookies.update(cookies)
        assert (await browser.get("/")).status_code == 401
        assert (await browser.get(one.link(BASE))).status_code == 401


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"])
async def test_no_route_answers_without_the_cookie(store, method):
    app = inspector(store, bot="bot", write=True)
    async with client(app) as browser:
        paths = paths_of(app)
        assert len(paths) > 15
        for path in paths:
            answer = await browser.request(method, path, headers=OURS)
            assert answer.status_code == 401, path
            assert b"Ann" not in answer.content
        for cookie in ("x", "", "a" * 43, '"', "é"):
            name = next(iter(await _cookies(app)))
            answer = await browser.request(
                method, "/", headers={**OURS, "cookie": f"{name}={cookie}".encode()}
            )
            assert answer.status_code == 401, cookie


async def _cookies(app):
    async with entered(app) as browser:
        return dict(browser.cookies)


async def test_a_socket_is_refused(store):
    sent = []

    async def send(message):
        sent.append(message)

    await inspector(store)({"type": "websocket", "headers": []}, None, send)
    assert sent == [{"type": "websocket.close", "code": 1008}]


@pytest.mark.parametrize(
    ("host", "status"),
    [("127.0.0.1:8000", 200), ("localhost:1", 200), ("LOCALHOST", 200), ("[::1]:8000", 200),
     ("evil.example", 421),
     ("127.0.0.1.evil.example", 421),
     ("localhost.evil.example:8000", 421), ("", 421), ("127.0.0.1:x", 421),
     ("evil.example, 127.0.0.1", 421), ("0.0.0.0:8000", 421)],
)  # fmt: skip
async def test_only_its_own_host_names_are_answered_to(store, host, status):
    async with entered(inspector(store, bot="bot")) as browser:
        assert (await browser.get("/", headers={"host": host})).status_code == status


async def test_hosts_can_be_named(store):
    async with client(inspector(store, lambda _: True, bot="bot", hosts=["bots.example"])) as browser:
        assert (await browser.get("/", headers={"host": "bots.example"})).status_code == 200
        assert (await browser.get("/")).status_code == 421


ELSEWHERE = [
    {"origin": "http://evil.example"},
    {"origin": "http://127.0.0.1:9999"},
    {"origin": "null"},
    {"origin": ""},
    {},
    {"sec-fetch-site": "none"},
    {"origin": BASE, "sec-fetch-site": "cross-site"},
    {"origin": BASE, "sec-fetch-site": "same-site"},
    {"origin": f"{BASE}.evil.example"},
]


@pytest.mark.parametrize("headers", ELSEWHERE, ids=str)
async def test_an_action_that_another_site_sends_is_refused(store, headers):
    async with entered(inspector(store, bot="bot", write=True)) as browser:
        form = fields_of((await browser.get("/act/clear?key=7/7")).text)
        answer = await browser.post("/act/clear", data=form, headers=headers)
        assert answer.status_code == 403
        assert await store.get_state("bot", (7, 7)) is not None


async def test_another_site_cannot_read_a_page_into_itself(store):
    async with entered(inspector(store, bot="bot")) as browser:
        for site in ("cross-site", "same-site"):
            sent = {"sec-fetch-site": site, "sec-fetch-mode": "no-cors"}
            assert (await browser.get("/", headers=sent)).status_code == 403
            assert (await browser.get("/", headers={**sent, "sec-fetch-mode": "navigate"})).status_code == 200


@pytest.mark.parametrize("csrf", [None, "", "0" * 64, "é"])
@pytest.mark.parametrize("name", ["edit", "move", "clear", "release", "retry", "drop", "forget", "person"])
async def test_no_action_without_the_token_of_its_form(store, name, csrf, caplog):
    caplog.set_level(logging.INFO)
    async with entered(inspector(store, bot="bot", write=True)) as browser:
        before = {key: await store.load(Address("bot", "", key)) for key in [(7, 7), ("room", 9)]}
        for key in ("7/7", ".room/9"):
            form = {"key": key, "seq": "1", "data": "{}", "place": "[null, null]", "part": "7"}
            form |= {} if csrf is None else {"csrf": csrf}
            assert (await browser.post(f"/act/{name}", data=form, headers=OURS)).status_code == 403
        assert {key: await store.load(Address("bot", "", key)) for key in before} == before
        assert "hitherto.audit" not in [record.name for record in caplog.records]


async def test_the_token_of_another_session_does_not_fit(store):
    app = inspector(store, lambda _: True, bot="bot", write=True)
    async with client(app) as mine, client(app) as theirs:
        form = fields_of((await theirs.get("/act/clear?key=7/7")).text)
        await mine.get("/")
        assert (await mine.post("/act/clear", data=form, headers=OURS)).status_code == 403
        assert (await theirs.post("/act/clear", data=form, headers=OURS)).status_code == 303


async def test_every_answer_lets_a_page_run_nothing_but_ours_and_keep_nothing(store):
    app = inspector(store, bot="bot", write=True)
    async with entered(app) as browser, client(app) as stranger:
        answers = [await browser.get(page) for page in (*PAGES, "/static/inspector.js", "/static/none")]
        answers += [await stranger.get("/"), await stranger.get(app.link(BASE))]
        answers += [await browser.post("/act/clear", headers=OURS), await browser.post("/act/clear")]
    for answer in answers:
        for name, value in HEADERS:
            assert answer.headers.get_list(name.decode()) == [value.decode()], answer.url
    policy = dict(HEADERS)[b"content-security-policy"].decode()
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
    assert "unsafe" not in policy
    assert dict(HEADERS)[b"cache-control"] == b"no-store"


async def test_no_page_has_script_or_style_of_its_own(store):
    async with entered(inspector(store, bot="bot", write=True, flows=[Order])) as browser:
        for page in PAGES:
            text = (await browser.get(page)).text
            assert not re.search(r"<style|\sstyle=|\son\w+=|javascript:", text), page
            assert re.findall(r"<script[^>]*>([^<]*)</script>", text) == [""]
            assert re.findall(r'(?:src|href)="(?:https?:)?//', text) == []


# --------------------------------------------------------------------------------------- mounted, with auth


class Guest:
    """Who is let in by a mounted inspector's *auth*."""

    async def later(self, request):
        return "ann" if request.headers.get("authorization") == "let me in" else None

    def at_once(self, request):
        return request.headers.get("authorization") == "let me in"


@pytest.mark.parametrize("auth", [Guest().later, Guest().at_once])
async def test_mounted_under_a_path_every_link_and_action_stays_there(store, auth, caplog):
    caplog.set_level(logging.INFO, logger="hitherto.audit")
    async with Keeper("bot", store, [Order], handler=_nothing) as keeper:
        app = Starlette(routes=[Mount("/admin/hitherto", inspector(keeper, auth, write=True))])
        async with client(app, "http://bots.example") as browser:
            assert (await browser.get("/admin/hitherto/")).status_code == 401
            assert (await browser.get("/admin/hitherto/static/inspector.css")).status_code == 401
            browser.headers["authorization"] = "let me in"
            for page in PAGES[:-1]:
                answer = await browser.get(f"/admin/hitherto{page}")
                assert answer.status_code == 200, page
                for href in re.findall(r'(?:href|src|action)="([^"#][^"]*)"', answer.text):
                    assert href.startswith("/admin/hitherto/"), href
            assert (await browser.get("/admin/hitherto/static/inspector.js")).status_code == 200
            form = fields_of((await browser.get("/admin/hitherto/act/clear?key=8/7")).text)
            sent = await browser.post(
                "/admin/hitherto/act/clear", data=form, headers={"origin": "https://bots.example"}
            )
            assert sent.headers["location"].startswith("/admin/hitherto/conversation?")
            assert await store.get_state("bot", (8, 7)) is None
    [line] = [json.loads(record.message) for record in caplog.records if record.name == "hitherto.audit"]
    assert line["who"] == ("ann" if auth.__name__ == "later" else "operator")


async def _nothing(turn):
    return None


async def test_with_auth_no_link_needs_a_token(store):
    app = inspector(store, lambda _: True, bot="bot")
    assert app.link("http://x/hitherto") == "http://x/hitherto"
    async with client(app) as browser:
        answer = await browser.get("/")
        assert "HttpOnly; SameSite=Strict" in answer.headers["set-cookie"]
        assert "set-cookie" not in (await browser.get("/")).headers
    async with client(app, "https://bots.example") as browser:
        assert "; Secure" in (await browser.get("/")).headers["set-cookie"]


# ----------------------------------------------------------------------------------------- what it shows


async def test_what_people_wrote_is_shown_only_when_asked_for(store):
    async with entered(inspector(store, bot="bot", flows=[Order])) as browser:
        page = (await browser.get("/conversation", params={"key": "7/7"})).text
        assert "worker-1" in page
        assert 'class="map"' in page
        assert re.search(r'class="[^"]*map-here', page)
        assert "Ann" not in page
        assert "whispered" not in page
        shown = (await browser.get("/conversation", params={"key": "7/7", "reveal": "data"})).text
        assert "Ann" in shown
        assert str(2**70) in shown
        assert "whispered" not in shown
        shown = (await browser.get("/conversation", params={"key": "7/7", "reveal": "event-2"})).text
        assert "whispered 2" in shown
        assert "whispered 1" not in shown
        letter = (await browser.get("/conversation?key=.room/9")).text
        assert "builtins.KeyError" in letter
        assert "bot.py:7" not in letter
        assert "poison" not in letter
        letter = (await browser.get("/conversation?key=.room/9&reveal=dead-1")).text
        assert "bot.py:7" in letter
        assert "poison" in letter
        everything = "".join([(await browser.get(f"{page}&reveal=*")).text for page in READING[2:4]])
        assert "Ann" not in everything
        lists = "".join([(await browser.get(page)).text for page in (*READING[:2], *READING[4:])])
        assert not any(word in lists for word in ("Ann", "whispered", "poison", "bot.py:7"))


async def test_the_map_has_the_counts_that_the_store_made_in_the_background(store):
    async with entered(inspector(store, bot="bot", flows=[Order])) as browser:
        assert "counting" in (await browser.get("/")).text
        page = await _counted(browser)
        assert "2 conversations" in page
        assert page.count("map-count") == 2
        assert "In flows without a map" in page
        assert 'href="/conversations?flow=order&amp;state=size"' in page


async def _counted(browser):
    async with asyncio.timeout(30):
        while "counted" not in (page := (await browser.get("/")).text):  # noqa: ASYNC110 - as a browser does
            await asyncio.sleep(0)
    return page


async def test_no_page_waits_for_the_counts_and_they_are_made_seldom(store):
    asked, go_on = [], asyncio.Event()

    class Slow(MemoryStore):
        async def counts(self, bot):
            asked.append(bot)
            await go_on.wait()
            return [("order", "size", 3)]

    slow = Slow()
    async with entered(inspector(slow, bot="bot", flows=[Order])) as browser:
        for _ in range(5):
            assert "counting" in (await browser.get("/")).text
        await asyncio.sleep(0)
        assert asked == ["bot"]
        go_on.set()
        assert "3 conversations" in await _counted(browser)
        for _ in range(5):
            await browser.get("/")
        assert asked == ["bot"]


async def test_counts_are_made_again_when_they_are_old(store, monkeypatch):
    looker = Looker(store)
    assert looker.counts("bot") is None
    await looker._counting["bot"]
    first = looker.counts("bot")
    assert first.total == 3
    monkeypatch.setattr(
        looker, "_counts", {"bot": msgspec.structs.replace(first, at=first.at - 100, seconds=3.0)}
    )
    assert looker.counts("bot").total == 3
    assert looker._counting == {}, "they took long and are not old enough"
    monkeypatch.setattr(looker, "_counts", {"bot": msgspec.structs.replace(first, at=first.at - 100)})
    await store.clear("bot", (8, 7))
    assert looker.counts("bot").total == 3
    await looker._counting["bot"]
    assert looker.counts("bot").total == 2


async def test_a_list_is_paged_and_can_be_of_one_state(store):
    for number in range(2 * PAGE + 7):
        await store.set_state("many", (number, 1), Record("order", ("size", "done")[number % 2], {}))
    async with entered(inspector(store, bot="many", flows=[Order])) as browser:
        found, address = [], "/conversations"
        for _ in range(3):
            page = (await browser.get(address)).text
            found.append(re.findall(r'conversation\?key=([^"]*)"', page))
            nexts = re.findall(r'href="([^"]*)"[^>]*rel="next"', page)
            address = unescape(nexts[0]) if nexts else ""
        assert [len(keys) for keys in found] == [PAGE, PAGE, 7]
        assert len({key for keys in found for key in keys}) == 2 * PAGE + 7
        assert address == ""
        page = (await browser.get("/conversations?flow=order&state=done")).text
        assert len(re.findall(r"conversation\?key=", page)) == PAGE
        assert "size" not in page[page.index("<tbody") :]


async def test_the_lists_of_what_needs_a_look(store):
    async with entered(inspector(store, bot="bot")) as browser:
        queues, leases, dead = [(await browser.get(page)).text for page in ("/queues", "/leases", "/dead")]
        assert "7/7" in queues
        assert ".room/9" not in queues[queues.index("<tbody>") :]
        assert "worker-1" in leases
        assert "builtins.KeyError" in dead
        assert "7/7" not in dead[dead.index("<tbody>") :]
        assert "None." in (await browser.get("/dead?page=1")).text
        assert (await browser.get("/dead?page=-1")).status_code == 200
        overview = (await browser.get("/")).text
        assert len(re.findall(r'class="value">1<', overview)) == 3


async def test_dead_letters_of_many_conversations_are_paged(store):
    for number in range(PAGE + 3):
        address = Address("many", "", (number,))
        answer = await store.accept(address, Event("1", b"{}"), Queue(), "w", None, FOREVER)
        await store.settle(address, answer.grant.claim, None, FOREVER, verdict="dead", error="KeyError")
    async with entered(inspector(store, bot="many")) as browser:
        first, second = [(await browser.get(page)).text for page in ("/dead", "/dead?page=1")]
        assert first.count("KeyError") == PAGE
        assert second.count("KeyError") == 3
        assert 'href="/dead?page=1"' in first
        assert 'rel="next"' not in second


async def test_turns_are_told_by_a_keeper_and_without_one_it_says_so(store):
    async def handler(turn):
        if turn.event == "bad":
            raise KeyError("secret words")
        if turn.flow is None:
            turn.start(Order)
        else:
            turn.transition(Order.toppings)

    async with Keeper("bot", store, [Order], handler=handler, max_attempts=1) as keeper:
        app = inspector(keeper)
        for number, event in enumerate(["a", "b"]):
            await keeper.handle(event, id=f"e{number}", key=(1, 1))
        with pytest.raises(KeyError):
            await keeper.handle("bad", id="e9", key=(1, 1))
        async with entered(app) as browser:
            page = (await browser.get("/conversation?key=1/1")).text
            assert "handler raised" in page
            assert "KeyError" in page
            assert "secret words" not in page
            assert "e0" in page
            assert re.search(r'map-taken[^>]*data-from="size" data-to="toppings"', page)
            overview = (await browser.get("/")).text
            assert "became a dead letter" in overview
            health = (await browser.get("/health")).text
            assert "committed" in health
            assert "works" in health
    async with entered(inspector(store, bot="bot")) as browser:
        assert (
            "Not known here: turns are told by a keeper" in (await browser.get("/conversation?key=1/1")).text
        )
        assert "no keeper runs in this process" in (await browser.get("/")).text
        assert "e0" in (await browser.get("/conversation?key=1/1")).text, "the seen window knows"


async def test_history_is_bounded(store):
    async with Keeper("bot", store, [Order], handler=_nothing) as keeper:
        looker = Looker(store, keeper)
        looker.history._conversations = 5
        for number in range(8):
            for again in range(30):
                await keeper.handle("x", id=f"{number}-{again}", key=(number,))
        assert len(looker.history._steps) == 5
        assert len(looker.history.of("bot//7")) == 40
        assert looker.history.of("bot//0") == []
        assert looker.history.of("bot//7")[0].step.event_id == "7-29"
        assert len(looker.history.latest) == 40
        looker.history.stop()
        await keeper.handle("x", id="late", key=(7,))
        assert looker.history.of("bot//7")[0].step.event_id == "7-29"


async def test_the_pieces_of_a_page_are_those_of_the_page(store):
    async with entered(inspector(store, bot="bot", flows=[Order])) as browser:
        for address in READING:
            page = (await browser.get(address)).text
            mark = "&" if "?" in address else "?"
            sent = (await browser.get(f"{address}{mark}pieces=1")).json()
            assert sent["now"] > 0
            assert sent["pieces"]
            for name, html in sent["pieces"].items():
                assert f'data-part="{name}"' in page, address
                assert html.startswith("<") or not html


async def test_a_store_without_a_bot_asks_which(store):
    await fill(store, "other & bot")
    async with entered(inspector(store)) as browser:
        assert "Which bot?" in (await browser.get("/")).text
        assert (await browser.get("/conversations")).status_code == 400
        query = urlencode({"bot": "other & bot"})
        page = (await browser.get(f"/conversations?{query}")).text
        for href in re.findall(r'href="(/[^"]*)"', page):
            assert query in href or "/static/" in href, href
        assert 'name="bot" value="other &amp; bot"' in page
        assert "worker-1" in (await browser.get(f"/conversation?{query}&key=7/7")).text


async def test_a_keeper_shows_its_own_bot_only(store):
    with pytest.raises(ValueError, match="the keeper keeps 'bot'"):
        inspector(Keeper("bot", store), bot="other")
    async with entered(inspector(Keeper("bot", store))) as browser:
        assert "Ann" in (await browser.get("/conversation?bot=other&key=7/7&reveal=data")).text


@pytest.mark.parametrize(
    ("address", "status"),
    [("/conversation?key=", 400), ("/conversation?key=nonsense", 400), ("/conversation", 400), ("/x", 404),
     ("/conversation?key=1/2", 200), ("/act/nonsense?key=7/7", 404), ("/act/person?key=7/7", 404),
     ("/person?part=nonsense", 400), ("/person?part=7/7", 400), ("/act/retry?key=7/7", 400)],
)  # fmt: skip
async def test_what_cannot_be_is_said_in_words(store, address, status):
    async with entered(inspector(store, bot="bot", write=True)) as browser:
        answer = await browser.get(address)
        assert answer.status_code == status
        assert "<h1>" in answer.text


async def test_a_store_that_is_away_is_said_so_on_every_page():
    app = inspector("postgresql://me:hunter2@127.0.0.1:1/db?timeout=0.2", bot="bot")
    async with entered(app) as browser:
        answer = await browser.get("/")
        assert answer.status_code == 503
        assert "The store cannot answer" in answer.text
        health = await browser.get("/health")
        assert health.status_code == 200
        assert "does not answer" in health.text


# --------------------------------------------------------------------------------------------- actions


async def test_each_action_does_what_it_says(store, caplog):
    caplog.set_level(logging.INFO, logger="hitherto.audit")
    async with entered(inspector(store, bot="bot", write=True, flows=[Order])) as browser:
        answer = await act(browser, "edit", "7/7", {"data": '{"name": "Bob", "n": 1180591620717411303424}'})
        assert (answer.status_code, answer.headers["location"]) == (303, "/conversation?key=7%2F7&said=edit")
        assert "The data was changed." in (await browser.get(answer.headers["location"])).text
        record = await store.get_state("bot", (7, 7))
        assert record == Record("order", "size", {"name": "Bob", "n": 2**70})
        await act(browser, "move", "7/7", {"place": '["order", "done"]'})
        assert (await store.get_state("bot", (7, 7))).state == "done"
        await act(browser, "release", "7/7")
        document = await store.load(Address("bot", "", (7, 7)))
        assert document.lease is None
        assert document.epoch == 2
        await act(browser, "retry", ".room/9", query={"seq": "1"})
        document = await store.load(Address("bot", "", ("room", 9)))
        assert [entry.event_id for entry in document.inbox] == ["3"]
        assert document.dead == ()
        await act(browser, "clear", "7/7")
        assert await store.get_state("bot", (7, 7)) is None
        await act(browser, "forget", "7/7")
        assert (await store.load(Address("bot", "", (7, 7)))).seen == {}
        answer = await act(browser, "release", "7/7")
        assert answer.headers["location"].endswith("said=nothing")
    lines = [json.loads(record.message) for record in caplog.records]
    names = ["edit", "move", "release", "retry", "clear", "forget", "release"]
    assert [line["action"] for line in lines] == names
    assert [line["outcome"] for line in lines] == ["done"] * 6 + ["nothing"]
    assert lines[0].keys() == {"at", "action", "who", "bot", "on", "outcome"}
    assert lines[0]["on"] == "7/7"
    assert "Bob" not in caplog.text


async def test_a_dead_letter_is_dropped(store):
    async with entered(inspector(store, bot="bot", write=True)) as browser:
        assert (await act(browser, "drop", ".room/9", query={"seq": "1"})).status_code == 303
        assert (await store.load(Address("bot", "", ("room", 9)))).dead == ()
        again = await browser.get("/conversation?key=.room/9")
        assert "Dead letters:" not in again.text


async def test_a_person_is_forgotten_wherever_they_are(store, caplog):
    caplog.set_level(logging.INFO, logger="hitherto.audit")
    await store.set_state("bot", ("7", 1), Record(None, None, {"a": 1}))
    await store.set_state("bot", (True, 7.0), Record(None, None, {"a": 1}))
    async with entered(inspector(store, bot="bot", write=True)) as browser:
        page = (await browser.get("/person?part=7")).text
        assert re.findall(r"<li><code>([^<]*)</code></li>", page) == ["7/7", "8/7"]
        assert "data-live" not in page, "it would go through all keys again and again"
        assert page.count("<main") == 1
        answer = await browser.post("/act/person", data=fields_of(page), headers=OURS)
        assert answer.headers["location"] == "/?said=forget"
        assert await store.get_state("bot", (7, 7)) is None
        assert await store.get_state("bot", (8, 7)) is None
        assert await store.get_state("bot", ("7", 1)) is not None
        assert await store.get_state("bot", (True, 7.0)) is not None
        assert "No conversation has it" in (await browser.get("/person?part=7")).text
        assert ".7/1" in (await browser.get("/person?part=.7")).text
    [line] = [json.loads(record.message) for record in caplog.records]
    assert (line["on"], line["outcome"]) == ("7", "done: 2 conversations")


async def test_a_keeper_looks_at_once_at_what_an_action_freed(store):
    handled = asyncio.Event()

    async def handler(turn):
        handled.set()

    keeper = Keeper("bot", store, [Order], handler=handler, sweep=1000.0)
    async with keeper, entered(inspector(keeper, write=True)) as browser:
        await keeper.sweep()  # the next is in 1000 seconds
        await act(browser, "retry", ".room/9", query={"seq": "1"})
        async with asyncio.timeout(30):
            await handled.wait()
        handled.clear()
        await act(browser, "release", "7/7")
        async with asyncio.timeout(30):
            await handled.wait()


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ('{"a": {"b": [1, NaN]}}', 'data["a"]["b"][1]: nan is not a JSON number'),
        ('{"a": 1e999}', 'data["a"]: inf is not a JSON number'),
        ("[1]", "data: an object is needed"),
        ('{"a": 1', "data: not JSON"),
        ('{"a": 1, "a": 2}', "data: a key is there twice"),
        ("", "data: not JSON"),
        ('{"a": "\\ud800"}', "lone surrogate"),
        ('{"a": ' + "[" * 5000 + "]" * 5000 + "}", "nested"),
        ('{"a": ' + "9" * 5000 + "}", "data"),
    ],
    ids=lambda text: text[:20],
)
async def test_data_that_cannot_be_stored_is_refused_and_kept_in_the_form(store, data, says, caplog):
    caplog.set_level(logging.INFO, logger="hitherto.audit")
    async with entered(inspector(store, bot="bot", write=True, flows=[Order])) as browser:
        answer = await act(browser, "edit", "7/7", {"data": data})
        assert answer.status_code == 422
        error = unescape(re.search(r'role="alert">([^<]*)<', answer.text)[1])
        assert says in error
        kept = unescape(re.search(r"<textarea[^>]*>([^<]*)<", answer.text)[1])
        assert kept.removeprefix("\n") == data or not data
    assert (await store.get_state("bot", (7, 7))).data["name"] == "Ann"
    [line] = [json.loads(record.message) for record in caplog.records]
    assert line["outcome"] == "refused: DataError"


async def test_data_has_to_fit_the_flows_data_class(store):
    await store.set_state("bot", (5, 5), Record("typed", "asked", {"name": "Ann", "n": 1}))
    async with entered(inspector(store, bot="bot", write=True, flows=[Typed])) as browser:
        answer = await act(browser, "edit", "5/5", {"data": '{"name": "Ann", "n": "two"}'})
        assert answer.status_code == 422
        assert "data[&quot;n&quot;]: Expected `int`, got `str`" in answer.text
        assert (await act(browser, "edit", "5/5", {"data": '{"name": "Bob", "n": 2}'})).status_code == 303
        assert await store.get_data("bot", (5, 5)) == {"name": "Bob", "n": 2}


async def test_data_that_changed_meanwhile_is_not_overwritten(store):
    async with entered(inspector(store, bot="bot", write=True)) as browser:
        form = fields_of((await browser.get("/act/edit?key=7/7")).text)
        await store.update_data("bot", (7, 7), {"name": "Eve"})
        mine = {**form, "data": '{"name": "Bob"}'}
        answer = await browser.post("/act/edit", data=mine, headers=OURS)
        assert answer.status_code == 409
        assert "changed meanwhile" in answer.text
        assert "Bob" in answer.text
        assert (await store.get_data("bot", (7, 7)))["name"] == "Eve"


async def test_what_the_form_shows_saves_as_it_was(store):
    odd = {"big": 2**70, "float": 1e16, "text": "a\u202eb\x00\r\n<b>", "deep": [{"x": None}, True], "": 0.1}
    await store.set_state("bot", (6, 6), Record("order", "size", odd))
    async with entered(inspector(store, bot="bot", write=True)) as browser:
        page = (await browser.get("/act/edit?key=6/6")).text
        written = unescape(re.search(r"<textarea[^>]*>([^<]*)<", page)[1]).removeprefix("\n")
        before = await store.load(Address("bot", "", (6, 6)))
        assert (await act(browser, "edit", "6/6", {"data": written.replace("\n", "\r\n")})).status_code == 303
        assert (await store.load(Address("bot", "", (6, 6)))).record == before.record


@pytest.mark.parametrize(
    ("place", "status", "says"),
    [('["order", "gone"]', 422, "gone"), ('["nope", "size"]', 422, "nope"), ("x", 422, "choose one"),
     ('["order", null]', 303, ""), ("[null, null]", 303, ""), ('[1, "x"]', 422, ""), ("[[], {}]", 422, "")],
)  # fmt: skip
async def test_a_move_goes_to_states_that_there_are(store, place, status, says):
    async with entered(inspector(store, bot="bot", write=True, flows=[Order])) as browser:
        answer = await act(browser, "move", "7/7", {"place": place})
        assert answer.status_code == status
        assert says in answer.text
        kept = await store.get_state("bot", (7, 7))
        assert kept.data["name"] == "Ann"
        assert kept.state == ("size" if status == 422 else None)


async def test_without_flows_a_move_takes_what_is_written(store):
    async with entered(inspector(store, bot="bot", write=True)) as browser:
        assert (await act(browser, "move", "7/7", {"flow": "new", "state": "there"})).status_code == 303
        record = await store.get_state("bot", (7, 7))
        assert (record.flow, record.state) == ("new", "there")


async def test_read_only_draws_no_action_and_does_none(store):
    app = inspector(store, bot="bot", flows=[Order])
    writing = inspector(store, bot="bot", write=True, flows=[Order])
    drawn = re.compile(r'/act/|method="post"|class="asking"|/person')
    async with entered(app) as browser, entered(writing) as writer:
        for page in READING:
            assert not drawn.search((await browser.get(page)).text), page
        assert drawn.search((await writer.get("/conversation?key=7/7")).text)
        before = {key: await store.load(Address("bot", "", key)) for key in [(7, 7), (8, 7), ("room", 9)]}
        csrf = fields_of((await writer.get("/act/clear?key=7/7")).text)["csrf"]
        for name in ("edit", "move", "clear", "release", "retry", "drop", "forget", "person"):
            form = {"csrf": csrf, "key": "7/7", "seq": "1", "part": "7", "data": "{}"}
            assert (await browser.post(f"/act/{name}", data=form, headers=OURS)).status_code == 404
            assert (await browser.get(f"/act/{name}?key=7/7")).status_code == 404
        assert (await browser.get("/person?part=7")).status_code == 404
        assert {key: await store.load(Address("bot", "", key)) for key in before} == before


async def test_a_form_that_is_too_long_or_none_is_refused(store):
    async with entered(inspector(store, bot="bot", write=True)) as browser:
        assert (await browser.post("/act/clear", content=b"x" * 5_000_000, headers=OURS)).status_code == 413
        assert (await browser.post("/act/clear", content=b"\xff=\xff", headers=OURS)).status_code == 400
        many = b"&".join(b"a%d=1" % number for number in range(50))
        assert (await browser.post("/act/clear", content=many, headers=OURS)).status_code == 400


async def test_an_action_on_a_store_that_fails_is_told_and_written_down(store, caplog, monkeypatch):
    from hitherto.errors import StoreUnavailable

    caplog.set_level(logging.INFO, logger="hitherto.audit")

    async def fail(bot, key):
        raise StoreUnavailable("the store is away; try again", url="memory://")

    async with entered(inspector(store, bot="bot", write=True)) as browser:
        monkeypatch.setattr(store, "clear", fail)
        answer = await act(browser, "clear", "7/7")
        assert answer.status_code == 409
        assert "the store is away" in answer.text
    assert json.loads(caplog.records[-1].message)["outcome"] == "refused: StoreUnavailable"


async def test_forgetting_a_person_that_fails_half_way_is_written_down(store, caplog, monkeypatch):
    from hitherto.errors import StoreUnavailable

    caplog.set_level(logging.INFO, logger="hitherto.audit")
    forget, forgotten = store.forget, []

    async def fail(address):
        if forgotten:
            raise StoreUnavailable("the store is away; try again", url="memory://")
        forgotten.append(address)
        await forget(address)

    monkeypatch.setattr(store, "forget", fail)
    async with entered(inspector(store, bot="bot", write=True)) as browser:
        page = (await browser.get("/person?part=7")).text
        answer = await browser.post("/act/person", data=fields_of(page), headers=OURS)
        assert answer.status_code == 503
    [line] = [json.loads(record.message) for record in caplog.records if record.name == "hitherto.audit"]
    assert line["outcome"] == "failed: StoreUnavailable after 1"


async def test_served_by_itself_it_closes_the_store_it_opened(url, store, monkeypatch):
    closed = []

    async def close():
        closed.append(1)

    for source in (url, store):
        app = inspector(source, bot="bot")
        monkeypatch.setattr(app._looker.store, "close", close)
        came = iter([{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}])

        async def receive(came=came):
            return next(came)

        sent = []

        async def send(message, sent=sent):
            sent.append(message["type"])

        await app({"type": "lifespan", "state": {}}, receive, send)
        assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
    assert closed == [1]


def test_the_audit_file_is_its_owners_only_and_is_appended_to(tmp_path):
    path = tmp_path / "audit.jsonl"
    for action in ("clear", "release"):
        handler = audit.to_file(path)
        audit.record(action, "ann", "bot", "7/7", "done")
        audit.LOGGER.removeHandler(handler)
        handler.close()
    audit.LOGGER.setLevel(logging.NOTSET)
    assert [json.loads(line)["action"] for line in path.read_text().splitlines()] == ["clear", "release"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


# --------------------------------------------------------------------------------- hostile text, passwords

HOSTILE = (
    "<script>alert(1)</script>",
    "\"><img src=x onerror='alert(1)'>",
    "' onmouseover='alert(1)",
    "</textarea></title></script><svg onload=alert(1)>",
    "<!-- --><b>",
    "a\u202egnp.exe\u2066x",
    "\x00\x07\x1b[31m\x7f\u0085",
    "&lt;b&gt; &amp; &#x3c;",
    "javascript:alert(1)",
    "{{7*7}} ${7*7} %3Cscript%3E",
    "\u2028\u2029\ufeff\u200b\u061c",
    "\r\nset-cookie: a=b\r\n\r\n<html>",
)


class Shape(HTMLParser):
    """The markup of a page without its text: tags and names of attributes, and the text apart."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.words = [], []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, tuple(sorted(name for name, _ in attrs))))
        for name, value in attrs:
            assert not name.startswith("on"), (tag, name)
            if name in ("href", "src", "action"):
                assert value.startswith(("/", "#")), value

    def handle_data(self, data):
        self.words.append(data)


async def poisoned(text):
    """A store in which everything that somebody else can name is named *text*."""
    store = MemoryStore()
    await store.set_state(text, (text, 1), Record(text, text, {text: text}))
    address = Address(text, "", (text, 1))
    payload = json.dumps({"text": text}).encode()
    for number in range(3):
        event = Event(f"{number}{text}", payload)
        answer = await store.accept(address, event, Queue(), text, None, FOREVER)
        if number == 0:
            await store.settle(address, answer.grant.claim, None, FOREVER, verdict="done")
        if number == 1:
            await store.settle(address, answer.grant.claim, None, FOREVER, verdict="dead", error=text)
    return store


async def _walked(text):
    """Every page of the poisoned store, each after the counts were made."""
    pages, store = [], await poisoned(text)
    async with Keeper(text, store, handler=_nothing, sweep=1000.0) as keeper:
        app = inspector(keeper, write=True)
        await keeper.handle("x", id=text, key=(text, 1, "kept"))
        async with entered(app) as browser:
            await _counted(browser)
            query = urlencode({"key": key_text((text, 1))})
            place = urlencode({"flow": text, "state": text})
            one = f"/conversation?{query}{REVEALED},event-3,dead-2"
            for page in ("/", "/conversations", f"/conversations?{place}", one,
                         "/queues", "/leases", "/dead", "/health", f"/act/edit?{query}", f"/act/move?{query}",
                         f"/act/forget?{query}"):  # fmt: skip
                answer = await browser.get(page)
                assert answer.status_code == 200, page
                pages.append(answer.text)
            for odd in ("key", "said", "reveal", "flow", "after", "page"):
                answer = await browser.get("/conversation?" + urlencode({odd: text}))
                pages.append(answer.text)
                assert "set-cookie" not in answer.headers
            pages.append((await browser.get("/person?" + urlencode({"part": f".{text}"}))).text)
    return pages


async def test_hostile_text_shows_as_text_and_changes_no_markup():
    plain = [Shape(page).tags for page in await _walked("plain")]
    for text in HOSTILE:
        pages = await _walked(text)
        for page, shape in zip(pages, plain, strict=True):
            found = Shape(page)
            if "cannot be" not in page and "Not found" not in page:
                assert found.tags == shape, text
            assert found.tags.count(("script", ("src", "type"))) == 1
            assert not set("".join(found.words)) & set("\x00\x07\x1b\x7f\u0085\u202e\u2066\u2028\ufeff\u200b")
        words = "".join(Shape(pages[3]).words)
        assert visible(text).replace("\r\n", "\n") in words.replace("\r\n", "\n")


def test_two_thousand_payloads_are_text_wherever_they_stand():
    openings = [
        "",
        '"',
        "'",
        "`",
        ">",
        '">',
        "'>",
        "-->",
        "</textarea>",
        "</title>",
        "</script>",
        "]]>",
        "\x00",
    ]
    tags = ["script", "img", "svg", "iframe", "math", "details", "body", "a", "style", "object"]
    acts = [
        " onerror=alert(1)",
        " onload='x'",
        ' href="javascript:x"',
        "/onfocus=x autofocus",
        " style=x",
        "",
        "\n",
        " src=//x",
    ]
    ends = [">", "/>"]
    payloads = [f"{a}<{b}{c}{d}" for a, b, c, d in product(openings, tags, acts, ends)]
    assert len(payloads) >= 2000
    for payload in payloads:
        made = tag("p", payload, title=payload)
        shape = Shape(made)
        assert shape.tags == [("p", ("title",))], payload
        assert "".join(shape.words) == visible(payload)


def test_markup_comes_from_tag_alone():
    assert tag("p", "<b>", Html("<i>"), None, [1, ["x"]]) == "<p>&lt;b&gt;<i>1x</p>"
    assert (
        tag("input", disabled=True, value=None, class_="a", data_x="1")
        == '<input disabled class="a" data-x="1">'
    )
    assert visible("a\u202eb\n\tc") == "a\\u202eb\n\tc"


async def test_the_password_of_a_url_is_nowhere(caplog, capsys, monkeypatch):
    caplog.set_level(logging.DEBUG)
    for url in (
        "redis://me:hunter2@127.0.0.1:1/0?timeout=0.2",
        "postgresql://me:hunter2@127.0.0.1:1/db?timeout=0.2",
    ):
        app = inspector(url, bot="bot", write=True)
        async with entered(app) as browser:
            for page in ("/", "/conversation?key=7/7", "/health", "/act/edit?key=7/7"):
                answer = await browser.get(page)
                assert "hunter2" not in answer.text
                assert "hunter2" not in str(answer.headers)
        assert "hunter2" not in repr(app)
        await app._looker.store.close()
    store = MemoryStore()
    monkeypatch.setattr(store, "url", "redis://me:hunter2@example/0?password=hunter2")
    async with entered(inspector(store, bot="bot")) as browser:
        page = (await browser.get("/health")).text
        assert "redis://***@example/0" in page
        assert "hunter2" not in page
    printed = capsys.readouterr()
    assert "hunter2" not in caplog.text + printed.out + printed.err


# ------------------------------------------------------------------------------------------ on every store


@pytest.fixture(params=["sqlite", "redis", "postgres"])
def store_url(request, tmp_path):
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'bot.db'}?synchronous=NORMAL"
    return request.getfixturevalue("redis_aof_url" if request.param == "redis" else "postgres_url")


async def test_every_page_and_action_on_every_store(store_url):
    async with open_store(store_url) as store:
        await fill(store)
        async with entered(inspector(store, bot="bot", write=True, flows=[Order])) as browser:
            page = await _counted(browser)
            assert "2 conversations" in page
            for address in PAGES[:-1]:
                answer = await browser.get(
                    address + ("&reveal=data,event-1" if "conversation?" in address else "")
                )
                assert answer.status_code == 200, address
            await act(browser, "edit", "7/7", {"data": '{"name": "Bob"}'})
            await act(browser, "move", "7/7", {"place": '["order", "done"]'})
            await act(browser, "release", "7/7")
            await act(browser, "retry", ".room/9", query={"seq": "1"})
            assert await store.get_state("bot", (7, 7)) == Record("order", "done", {"name": "Bob"})
            assert (await store.load(Address("bot", "", (7, 7)))).lease is None
            assert (await store.load(Address("bot", "", ("room", 9)))).dead == ()
            page = (await browser.get("/person?part=7")).text
            await browser.post("/act/person", data=fields_of(page), headers=OURS)
            assert await store.get_state("bot", (7, 7)) is None
            stale = fields_of((await browser.get("/act/edit?key=.room/9")).text)
            await store.update_data("bot", ("room", 9), {"x": 1})
            answer = await browser.post("/act/edit", data={**stale, "data": "{}"}, headers=OURS)
            assert answer.status_code == 409


# ----------------------------------------------------------------------------------------- the command line


@pytest.fixture
async def url(tmp_path):
    async with SQLiteStore(tmp_path / "bot.db", synchronous="NORMAL") as store:
        await fill(store)
    return f"sqlite:///{tmp_path / 'bot.db'}"


@contextmanager
def started(*words, cwd, **environment):
    """The command in a process of its own, which ends with the block."""
    program = [sys.executable, "-W", "ignore", "-m", "hitherto", "inspect", *words]
    process = subprocess.Popen(
        program, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1", **environment},
    )  # fmt: skip
    with process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def test_the_command_serves_on_loopback_until_it_is_interrupted(url, tmp_path):
    (tmp_path / "flows.py").write_text(
        "from hitherto import Flow, State\n\nclass Order(Flow):\n"
        "    size = State(to='toppings', initial=True)\n    toppings = State(to=[])\n"
    )
    words = ("--bot", "bot", "--write", "--module", "flows")
    with started(url, *words, cwd=tmp_path) as process:
        link = ""
        while "token=" not in link:
            link = process.stdout.readline()
            assert link, process.stderr.read()
        link = link.strip()
        assert urlsplit(link).hostname == "127.0.0.1"
        with httpx.Client(timeout=60, follow_redirects=True) as browser:
            page = browser.get(link)
            assert page.status_code == 200
            assert "token" not in str(page.url)
            assert 'class="map"' in page.text
            base = str(page.url).rstrip("/")
            form = fields_of(browser.get(f"{base}/act/clear?key=8/7").text)
            done = browser.post(f"{base}/act/clear", data=form, headers={"origin": base})
            assert "The record was removed." in done.text
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode in (0, 130)
    assert link.partition("token=")[2] not in out + err
    [line] = (tmp_path / "hitherto-audit.jsonl").read_text().splitlines()
    assert json.loads(line)["action"] == "clear"


def test_the_command_says_what_is_wrong(url, tmp_path, capsys):
    from hitherto.cli import main

    assert main(["inspect"]) == 1
    assert "which store?" in capsys.readouterr().err
    assert main(["inspect", "nosuch://x:hunter2@y"]) == 1
    said = capsys.readouterr().err
    assert "hunter2" not in said
    assert "no store for" in said
    assert main(["inspect", f"sqlite:///{tmp_path}/typo.db"]) == 1
    assert "there is no file" in capsys.readouterr().err
    assert not (tmp_path / "typo.db").exists()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        assert main(["inspect", url, "--bot", "bot", "--port", port]) == 1
        assert "give another --port" in capsys.readouterr().err


def test_without_the_extra_it_says_how_to_install_it(monkeypatch):
    from hitherto.errors import MissingExtra

    for name in [name for name in sys.modules if name.startswith("hitherto.inspector.app")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "starlette", None)
    monkeypatch.setitem(sys.modules, "starlette.applications", None)
    with pytest.raises(MissingExtra, match=r"hitherto\[inspector\]"):
        inspector(MemoryStore())
