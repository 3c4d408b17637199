"""The inspector in a real browser: every page seen, every action done, at both widths, in light and dark."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any
from urllib.parse import urlencode

import pytest
import uvicorn
from playwright.sync_api import Page, expect

from hitherto import Flow, Keeper, MemoryStore, Queue, State
from hitherto.addresses import Address, key_text
from hitherto.document import Document, Event, Terms
from hitherto.inspector import inspector
from hitherto.records import Record

FOREVER = Terms(lease=1e6)
LOOKS = [(phone, dark) for phone in (False, True) for dark in (False, True)]


class Order(Flow):
    size = State(to="toppings", initial=True, label="what size?")
    toppings = State(to=["toppings", "address"], label="what on it?")
    address = State(to="confirm", label="where to?")
    confirm = State(to="size", final=True, label="all right?")


class Signup(Flow):
    ask_name = State(to="ask_email", initial=True)
    ask_email = State(to=["ask_name", "done"])
    done = State(to=[], final=True)


async def handler(turn: Any) -> None:
    """Order, step by step; what is bad raises."""
    if turn.event["text"] == "bad":
        raise KeyError("no such topping")
    if turn.flow is None:
        turn.start(Order)
        turn.update_data(name="Ann", items=["olives", "ham"], paid=False)
    elif turn.state == Order.size:
        turn.transition(Order.toppings)


async def fill(store: MemoryStore, keeper: Keeper) -> None:
    """People everywhere; one conversation that a dead worker held, one with a dead letter."""
    for number in range(130):
        flow = Order if number % 3 else Signup
        states = [state.name for state in flow]
        place = Record(flow.name, states[number % 7 % len(states)], {"name": "Ann", "n": number})
        await store.set_state("pizza_bot", (100 + number, 100 + number), place)
    await store.set_state("pizza_bot", ("room 4", 1), Record("old_flow", "asking", {}))
    stuck = Address("pizza_bot", "", (7, 7))
    await store.set_state("pizza_bot", (7, 7), Record("order", "address", {"name": "Zoe", "size": "large"}))
    for number in range(4):
        payload = json.dumps({"update_id": number, "message": {"text": f"hello? {number}"}}).encode()
        await store.accept(stuck, Event(f"u{number}", payload), Queue(), "host-1:4711", None, FOREVER)
    for number, text in enumerate(["/order", "large", "bad", "olives"]):
        event = {"id": number, "who": 21, "text": text}
        try:
            await keeper.handle(event, id=f"u{number}")
        except KeyError:
            continue


class Served:
    """An inspector of a keeper, served on loopback by a thread with an event loop of its own."""

    def __init__(self, write: bool) -> None:
        self.store = MemoryStore()
        self.keeper = Keeper(
            "pizza_bot", self.store, [Order, Signup], handler=handler, max_attempts=1, sweep=1000.0,
            key=lambda event: (event["who"], event["who"]),
        )  # fmt: skip
        app = inspector(self.keeper, write=write)
        config = uvicorn.Config(app, port=0, log_level="warning", lifespan="off", timeout_graceful_shutdown=1)
        self.server = uvicorn.Server(config)
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self._main)
        self._ready = threading.Event()
        self.thread.start()
        assert self._ready.wait(60)
        sockets = self.server.servers[0].sockets
        self.base = f"http://127.0.0.1:{sockets[0].getsockname()[1]}"
        self.link = app.link(self.base)

    def _main(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_until_complete(self._serve())
        self.loop.close()

    async def _serve(self) -> None:
        async with self.keeper:
            await fill(self.store, self.keeper)
            serving = asyncio.ensure_future(self.server.serve())
            while not self.server.started:  # noqa: ASYNC110 - uvicorn has no event for it
                await asyncio.sleep(0.01)
            self._ready.set()
            await serving

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Do this where the store is."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(60)

    def document(self, *key: int) -> Document:
        """What the store has."""
        found: Document = self.run(self.store.load(Address("pizza_bot", "", key)))
        return found

    def close(self) -> None:
        """End it."""
        self.server.should_exit = True
        self.thread.join(60)
        assert not self.thread.is_alive()


@pytest.fixture
def writing() -> Iterator[Served]:
    """An inspector that may write."""
    served = Served(write=True)
    yield served
    served.close()


@pytest.fixture
def reading() -> Iterator[Served]:
    """An inspector that may not."""
    served = Served(write=False)
    yield served
    served.close()


def enter(page: Page, served: Served, path: str = "/") -> Page:
    """Come by the link, then go there."""
    page.goto(served.link)
    assert "token" not in page.url
    if path != "/":
        page.goto(served.base + path)
    return page


def awake(page: Page) -> None:
    """Wait until the page's script runs; before that, links lead to pages of their own."""
    expect(page.locator("body[data-state]")).to_have_count(1)


def act(page: Page, button: str) -> Any:
    """Press what opens the question; the dialog."""
    awake(page)
    page.get_by_role("link", name=button, exact=True).first.click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_be_visible()
    return dialog


SHOTS = {
    "overview": "/",
    "list": "/conversations",
    "conversation": "/conversation?key=7/7&reveal=data,event-1",
    "history": "/conversation?key=21/21",
    "queues": "/queues",
    "leases": "/leases",
    "dead": "/dead",
    "health": "/health",
    "person": "/person?part=21",
    "edit": "/act/edit?key=7/7",
    "problem": "/conversation?key=nonsense",
}


@pytest.mark.parametrize(("phone", "dark"), LOOKS)
def test_every_page_is_fit_to_be_seen(
    writing: Served, new_page: Callable[..., Page], shot: Any, axe: Any, watch: Any, phone: bool, dark: bool
) -> None:
    watch.expect("status of 400")
    page = enter(new_page(phone=phone, dark=dark), writing)
    expect(page.get_by_text("counted")).to_be_visible()
    for name, path in SHOTS.items():
        page.goto(writing.base + path)
        if name == "overview":
            expect(page.get_by_text("counted")).to_be_visible()
        look = f"{'phone' if phone else 'desktop'}-{'dark' if dark else 'light'}"
        shot(page, f"inspector-{name}-{look}")
        assert axe(page) == [], name
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), name
    page.goto(f"{writing.base}/conversation?key=7/7")
    act(page, "Edit data")
    shot(page, f"inspector-dialog-{look}")
    assert axe(page) == []


def test_the_page_follows_what_happens(writing: Served, page: Page) -> None:
    enter(page, writing, "/conversation?key=50/50")
    expect(page.get_by_text("No record: it is in no flow.")).to_be_visible()
    event = {"who": 50, "text": "/order"}
    writing.run(writing.keeper.handle(event, id="first"))
    expect(page.locator('[data-state="size"].map-here')).to_be_visible()
    writing.run(writing.keeper.handle({"who": 50, "text": "large"}, id="second"))
    expect(page.locator('[data-state="toppings"].map-here')).to_be_visible()
    expect(page.locator('.map-taken[data-from="size"]')).to_have_count(1)
    expect(page.locator("#part-seen")).to_contain_text("second")
    expect(page.locator("#part-history")).to_contain_text("committed")


def test_values_are_hidden_until_they_are_asked_for(writing: Served, page: Page) -> None:
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    enter(page, writing, "/conversation?key=7/7")
    expect(page.locator("#part-record .masked")).to_have_count(2)
    awake(page)
    assert "Zoe" not in page.content()
    assert not any("reveal" in url for url in requests)
    page.get_by_role("link", name="Show values").click()
    expect(page.locator("#part-record")).to_contain_text("Zoe")
    assert any("reveal=data" in url for url in requests)
    assert page.evaluate("document.activeElement.textContent") == "Hide values"
    page.get_by_role("link", name="Show text").first.click()
    expect(page.locator("#part-inbox")).to_contain_text("hello? 0")
    page.get_by_role("link", name="Hide values").click()
    expect(page.locator("#part-record .masked")).to_have_count(2)


def test_every_action_works_and_asks_once(writing: Served, page: Page, caplog: Any, watch: Any) -> None:
    watch.expect("status of 422")
    caplog.set_level(logging.INFO, logger="hitherto.audit")
    enter(page, writing, "/conversation?key=7/7")
    dialog = act(page, "Edit data")
    expect(dialog.get_by_label("Data")).to_be_focused()
    dialog.get_by_label("Data").fill('{"name": [1, NaN]}')
    dialog.get_by_role("button", name="Save").click()
    expect(dialog.get_by_role("alert")).to_contain_text('data["name"][1]')
    dialog.get_by_label("Data").fill('{"name": "Bob"}')
    dialog.get_by_role("button", name="Save").click()
    expect(page.get_by_text("The data was changed.")).to_be_visible()
    expect(dialog).to_be_hidden()
    assert writing.run(writing.store.get_data("pizza_bot", (7, 7))) == {"name": "Bob"}

    dialog = act(page, "Move")
    dialog.get_by_label("Flow and state").select_option(label="order / confirm")
    dialog.get_by_role("button", name="Move").click()
    expect(page.locator('[data-state="confirm"].map-here')).to_be_visible()

    dialog = act(page, "Clear")
    dialog.get_by_role("link", name="Cancel").click()
    expect(dialog).to_be_hidden()
    assert writing.document(7, 7).record is not None
    act(page, "Clear").get_by_role("button", name="Clear").click()
    expect(page.get_by_text("The record was removed.")).to_be_visible()
    assert writing.document(7, 7).record is None

    act(page, "Force release").get_by_role("button", name="Release").click()
    expect(page.get_by_text("It was released")).to_be_visible()
    expect(page.locator("#part-seen")).to_contain_text("u3")

    page.goto(f"{writing.base}/conversation?key=21/21")
    act(page, "Retry").get_by_role("button", name="Retry").click()
    expect(page.get_by_text("The event is in line again.")).to_be_visible()
    expect(page.locator("#part-dead")).to_contain_text("Attempts")
    act(page, "Drop").get_by_role("button", name="Drop").click()
    expect(page.get_by_text("The dead letter was dropped.")).to_be_visible()
    assert writing.document(21, 21).dead == ()

    act(page, "Forget").get_by_role("button", name="Forget it").click()
    expect(page.get_by_text("Everything about it was erased.")).to_be_visible()
    assert writing.document(21, 21).seen == {}

    page.goto(f"{writing.base}/person?part=100")
    page.get_by_role("button", name="Forget them all").click()
    expect(page.get_by_text("Everything about it was erased.")).to_be_visible()
    assert writing.document(100, 100).record is None

    lines = [json.loads(record.message) for record in caplog.records if record.name == "hitherto.audit"]
    done = [line["action"] for line in lines if line["outcome"].startswith("done")]
    assert done == ["edit", "move", "clear", "release", "retry", "drop", "forget", "person"]
    assert [line["action"] for line in lines if line["outcome"] == "refused: DataError"] == ["edit"]


def test_actions_work_without_script(writing: Served, new_page: Callable[..., Page]) -> None:
    page = enter(new_page(java_script_enabled=False), writing, "/conversation?key=7/7")
    page.get_by_role("link", name="Show values").click()
    assert "Zoe" in page.content()
    page.get_by_role("link", name="Force release").click()
    page.get_by_role("button", name="Release").click()
    expect(page.get_by_text("It was released")).to_be_visible()


def test_hostile_text_does_nothing_in_a_browser(writing: Served, page: Page) -> None:
    hostile = (
        "\"></textarea><script>window.hacked=1</script><img src=x onerror='window.hacked=1'>\u202e</title>"
    )
    key = (hostile, 1)
    writing.run(writing.store.set_state("pizza_bot", key, Record(hostile, hostile, {hostile: hostile})))
    event = Event(hostile, json.dumps({"text": hostile}).encode())
    writing.run(writing.store.accept(Address("pizza_bot", "", key), event, Queue(), hostile, None, FOREVER))
    shown = hostile.replace("\u202e", "\\u202e")
    query = urlencode({"key": key_text(key)})
    for path in ("/", "/conversations", "/leases", f"/conversation?{query}&reveal=data,event-1"):
        enter(page, writing, path)
        awake(page)
        if path != "/leases":
            expect(page.get_by_text(shown).first).to_be_visible()
        assert page.evaluate("window.hacked") is None
    dialog = act(page, "Edit data")
    expect(dialog.get_by_label("Data")).to_have_value(re.compile("window.hacked=1"))
    dialog.get_by_role("button", name="Save").click()
    expect(page.get_by_text("The data was changed.")).to_be_visible()
    assert writing.run(writing.store.get_data("pizza_bot", key)) == {hostile: hostile}
    assert page.evaluate("window.hacked") is None


def test_read_only_draws_no_action_and_refuses_it(reading: Served, page: Page, watch: Any) -> None:
    watch.expect("status of 404")
    for path in ("/", "/conversation?key=7/7", "/conversation?key=21/21", "/leases"):
        enter(page, reading, path)
        expect(page.locator("main")).to_be_visible()
        assert page.locator(".act, form[method=post]").count() == 0
    before = reading.document(7, 7)
    post = "fetch('/act/clear', {method: 'POST', body: new URLSearchParams({key: '7/7'})})"
    status = page.evaluate(f"async () => (await {post}).status")
    assert status == 404
    assert reading.document(7, 7) == before


def test_it_says_when_nobody_answers_and_goes_on_when_somebody_does(
    writing: Served, page: Page, watch: Any
) -> None:
    watch.expect("net::ERR_")
    enter(page, writing, "/conversation?key=7/7")
    expect(page.locator("#live")).to_have_text("live")
    page.route("**/*pieces=1*", lambda route: route.abort())
    expect(page.locator("#live")).to_have_text("not connected")
    expect(page.locator("#part-record")).to_contain_text("order")
    page.unroute("**/*pieces=1*")
    expect(page.locator("#live")).to_have_text("live", timeout=60_000)


def test_it_can_be_used_by_keyboard(writing: Served, page: Page) -> None:
    enter(page, writing)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("document.querySelector('main').contains(document.activeElement)")
    page.get_by_label("Conversation").focus()
    page.keyboard.type("7/7")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="7/7")).to_be_visible()
    awake(page)
    page.get_by_role("link", name="Clear", exact=True).focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()
    assert page.evaluate("document.activeElement.textContent") == "Clear"


def test_the_map_leads_to_those_who_are_there(writing: Served, page: Page) -> None:
    enter(page, writing)
    expect(page.get_by_text("counted")).to_be_visible()
    page.locator('[data-state="ask_email"]').click()
    expect(page.get_by_role("heading", name="Conversations", level=1)).to_be_visible()
    assert page.url.endswith("/conversations?flow=signup&state=ask_email")
    page.locator("tbody a").first.click()
    expect(page.locator('[data-state="ask_email"].map-here')).to_be_visible()


def test_a_page_elsewhere_can_do_nothing(writing: Served, page: Page, watch: Any) -> None:
    for text in ("status of 403", "CORS", "net::ERR_"):
        watch.expect(text)
    enter(page, writing)
    before = writing.document(7, 7)
    # another port of this machine: the browser sends our cookie along, only the Origin tells
    elsewhere = "http://127.0.0.1:9/"
    fields = "<input name=key value=7/7><button>x</button>"
    form = f"<form method=post action='{writing.base}/act/clear'>{fields}</form>"
    page.route(elsewhere, lambda route: route.fulfill(body=form, content_type="text/html"))
    page.goto(elsewhere)
    page.evaluate(
        """async (base) => {
            const sent = {method: 'POST', credentials: 'include', body: 'key=7/7'};
            for (const mode of ['no-cors', 'cors'])
                await fetch(base + '/act/clear', {...sent, mode}).catch(() => 0);
        }""",
        writing.base,
    )
    read = "fetch(base + '/conversation?key=7/7', {mode: 'no-cors', credentials: 'include'})"
    came = page.evaluate(
        f"async (base) => await {read}.then(() => 'something', () => 'nothing')", writing.base
    )
    assert came == "nothing"
    page.get_by_role("button").click()
    expect(page.get_by_text("Another site sent this.")).to_be_visible()
    assert writing.document(7, 7) == before
