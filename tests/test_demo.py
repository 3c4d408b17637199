"""The demo: the chat in the terminal, which of the two it is to be, the playground without a browser."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import asynccontextmanager

import httpx
import pytest

from hitherto import maps
from hitherto.cli import main, parser
from hitherto.demo import page, starting
from hitherto.demo.people import NAMES, People
from hitherto.demo.plug import Plug
from hitherto.demo.worker import BOT, POLICIES, Settings
from hitherto.inspector.guard import Guard
from hitherto.stores import open_store

LONG = 30.0  # only a demo that hangs needs so long


def demo(tmp_path, *words, given=None):
    return subprocess.run(
        [sys.executable, "-m", "hitherto", "demo", *words],
        cwd=tmp_path, input=given, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


# ------------------------------------------------------------------------------------------ the terminal


def test_lines_from_a_pipe_are_a_chat_in_the_terminal(tmp_path):
    done = demo(tmp_path, given="/order\nlarge\n")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == "[order: toppings]"
    again = demo(tmp_path, "--say", "/where")
    assert "You are at toppings of order. A large pizza with nothing on it yet." in again.stdout


def test_an_order_from_beginning_to_end(tmp_path):
    said = ["/order", "huge", "small", "ham", "/undo", "olives", "done", "Harbour 1", "/map", "yes"]
    done = demo(tmp_path, *[word for text in said for word in ("--say", text)])
    assert "We have small, medium, large." in done.stdout
    assert "One step back." in done.stdout
    assert "=> confirm" in done.stdout
    assert "It is on its way: A small pizza with olives, to Harbour 1." in done.stdout
    assert done.stdout.splitlines()[-1] == "[no order]"


def test_a_store_that_cannot_be_opened_is_one_sentence(tmp_path):
    done = demo(tmp_path, "--say", "hi", "--store", "nonsense://x")
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("words", "terminal", "is_page"),
    [
        ([], True, True),
        ([], False, False),
        (["--terminal"], True, False),
        (["--say", "hi"], True, False),
        (["--store", "memory://"], True, False),
        (["--page"], False, True),
    ],
)
def test_it_is_a_page_where_one_can_be_shown(monkeypatch, words, terminal, is_page):
    monkeypatch.setattr(sys, "stdin", type("In", (), {"isatty": lambda self: terminal})())
    assert starting.wants_page(parser().parse_args(["demo", *words])) is is_page


def test_without_the_packages_of_the_page_it_is_the_terminal(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", type("In", (), {"isatty": lambda self: True})())
    monkeypatch.setattr(starting, "find_spec", lambda name: None)
    assert not starting.wants_page(parser().parse_args(["demo"]))
    assert main(["demo", "--page"]) == 1
    assert 'pip install "hitherto[inspector]"' in capsys.readouterr().err


@pytest.mark.parametrize(
    ("platform", "screen", "can"),
    [
        ("linux", {}, False),
        ("linux", {"DISPLAY": ":0"}, True),
        ("linux", {"WAYLAND_DISPLAY": "w"}, True),
        ("darwin", {}, True),
    ],
)
def test_a_browser_is_opened_only_where_there_is_a_screen(monkeypatch, platform, screen, can):
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setattr(os, "environ", screen)
    assert page.can_open() is can


# --------------------------------------------------------------------------------------- the page, served


class Tab:
    """What a browser's tab would do, by hand."""

    def __init__(self, client, who):
        self.client, self.who = client, who

    @classmethod
    async def opened(cls, client, who):
        tab = cls(client, who)
        text = (await client.get("/", params={"who": who})).text
        tab.csrf = re.search(r'name="csrf" content="([^"]+)"', text)[1]
        return tab

    async def post(self, path, *, csrf=None, headers=None, **body):
        headers = {
            "Origin": "http://127.0.0.1",
            "X-CSRF": self.csrf if csrf is None else csrf,
            **(headers or {}),
        }
        return await self.client.post(path, json={"who": self.who, **body}, headers=headers)

    async def say(self, *texts, **more):
        assert (await self.post("/say", texts=list(texts), **more)).status_code == 200


@asynccontextmanager
async def playing(tmp_path):
    """A playground with its worker, its guard, and a client that was let in."""
    url = f"sqlite:///{tmp_path / 'play.db'}"
    async with open_store(url) as store:
        await store.init(BOT)
        playground = page.Playground(url, store, back_after=0.1)
        guard = Guard(page.Web(playground).app)
        transport = httpx.ASGITransport(app=guard)
        async with (
            playground.plug,
            httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client,
        ):
            try:
                await client.get(guard.link("http://127.0.0.1"))
                yield playground, client
            finally:
                playground.close()


async def come(true):
    async with asyncio.timeout(LONG):
        while not true():  # noqa: ASYNC110 - it is another process that makes it so
            await asyncio.sleep(0.02)


async def until(playground, who, wanted):
    """The view of a person, when it is as wanted."""
    view = {}
    async with asyncio.timeout(LONG):
        while True:
            view = await playground.view(playground.people.of(who))
            if wanted(view):
                return view
            await asyncio.sleep(0.02)


def statuses(view):
    return [one.status for one in view["messages"] if one.mine]


async def test_two_people_order_and_each_map_shows_their_own_state(tmp_path):
    async with playing(tmp_path) as (playground, client):
        ann, ben = await Tab.opened(client, "Ann"), await Tab.opened(client, "Ben")
        for tab in (ann, ben):
            await tab.post("/set", settings={"slow": 0})
        await ann.say("/order", "large")
        await ben.say("/order")
        taken = 'map-taken" data-from="{}" data-to="{}"'.format
        seen = await until(playground, "Ann", lambda view: taken("size", "toppings") in view["map"])
        assert seen["here"] == "toppings"
        assert 'map-here" data-state="toppings"' in seen["map"]
        assert seen["data"]["size"] == "large"
        other = await until(playground, "Ben", lambda view: taken("", "size") in view["map"])
        assert other["here"] == "size"
        assert (
            statuses(await until(playground, "Ann", lambda v: "handled" in statuses(v)[1:]))
            == ["handled"] * 2
        )


async def test_the_same_message_twice_is_handled_once(tmp_path):
    async with playing(tmp_path) as (playground, client):
        ann = await Tab.opened(client, "Ann")
        await ann.say("/order", twice=True)
        view = await until(playground, "Ann", lambda view: statuses(view) == ["handled", "duplicate"])
        assert len([one for one in view["messages"] if not one.mine]) == 1
        assert view["seen"] == [view["messages"][0].id]


async def test_five_at_once_wait_in_line_and_are_handled_in_order(tmp_path):
    async with playing(tmp_path) as (playground, client):
        ann = await Tab.opened(client, "Ann")
        await ann.post("/set", settings={"slow": 2})
        await ann.say("/order", "medium", "olives", "ham", "done")
        full = await until(playground, "Ann", lambda view: len(view["inbox"]) == 5)
        assert [one["is"] for one in full["inbox"]] == ["claimed"] + ["waiting"] * 4
        await ann.post("/set", settings={"slow": 0})
        assert full["lease"]["alive"]
        done = await until(playground, "Ann", lambda view: view["here"] == "address")
        assert done["data"]["toppings"] == ["olives", "ham"]
        done = await until(playground, "Ann", lambda view: statuses(view) == ["handled"] * 5)
        assert (done["inbox"], done["lease"]) == ([], None)


async def test_the_plug_is_pulled_in_mid_handler_and_the_order_goes_on(tmp_path):
    async with playing(tmp_path) as (playground, client):
        ann = await Tab.opened(client, "Ann")
        await ann.post("/set", settings={"slow": 0})
        await ann.say("/order")
        await until(playground, "Ann", lambda view: view["here"] == "size")
        await ann.post("/set", settings={"slow": 9})
        await ann.say("small")
        claimed = await until(playground, "Ann", lambda view: statuses(view)[-1] == "running")
        pid = claimed["worker"]["pid"]
        assert (await ann.post("/plug")).status_code == 200
        dead = await until(playground, "Ann", lambda view: view["worker"]["deaths"] == 1)
        assert dead["here"] == "size"
        await ann.post("/set", settings={"slow": 0})
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
        await ann.say("ham")  # nobody is there: the platform brings it when somebody is
        gone_on = await until(playground, "Ann", lambda view: view["data"].get("toppings") == ["ham"])
        gone_on = await until(playground, "Ann", lambda view: statuses(view) == ["handled"] * 3)
        assert gone_on["worker"]["pid"] != pid
        assert gone_on["messages"][2].attempt == 2


async def test_what_raises_is_tried_again_and_ends_as_a_dead_letter_that_can_be_retried(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("PYTHONUNBUFFERED", "1")
    async with playing(tmp_path) as (playground, client):
        ann = await Tab.opened(client, "Ann")
        await ann.post("/set", settings={"slow": 0, "trouble": "once"})
        await ann.say("/order")
        first = await until(playground, "Ann", lambda view: statuses(view) == ["handled"])
        assert first["messages"][0].attempt == 2
        await ann.post("/set", settings={"slow": 0, "trouble": "always"})
        await ann.say("large")
        dead = await until(playground, "Ann", lambda view: view["dead"])
        assert dead["here"] == "size"
        assert (dead["dead"][0]["text"], dead["dead"][0]["attempts"]) == ("large", 4)
        await until(playground, "Ann", lambda view: statuses(view)[-1] == "dead")
        await ann.post("/set", settings={"slow": 0, "trouble": "no"})
        letter = dead["dead"][0]
        await ann.post("/dead", seq=letter["seq"], id=letter["id"], verb="retry")
        mended = await until(playground, "Ann", lambda view: view["here"] == "toppings")
        assert mended["dead"] == []


async def test_every_overlap_policy_can_be_tried(tmp_path):
    """By five people at the same time."""
    wanted = {
        "queue": ["handled"] * 3,
        "reject": ["handled"] * 3,
        "debounce": ["handled", "replaced", "handled"],
        "burst": ["folded", "folded", "handled"],
        "concurrent": ["handled"] * 3,
    }
    assert set(wanted) == set(POLICIES)
    async with playing(tmp_path) as (playground, client):
        tabs = {overlap: await Tab.opened(client, overlap) for overlap in wanted}
        for overlap, tab in tabs.items():
            await tab.post("/set", settings={"slow": 2.5, "overlap": overlap})
            await tab.say("/where", "/where", "/where")
        for overlap in wanted:
            await until(playground, overlap, lambda view: "sending" not in statuses(view))
            await tabs[overlap].post("/set", settings={"slow": 0, "overlap": overlap})
        kinds = {}
        for overlap, ends in wanted.items():
            view = await until(playground, overlap, lambda view, ends=ends: statuses(view) == ends)
            kinds[overlap] = {one["kind"] for one in view["log"]}
        assert [overlap for overlap in wanted if "busy" in kinds[overlap]] == ["reject"]


async def test_a_tab_is_told_when_something_changes_and_let_go_at_the_end(tmp_path):
    async with playing(tmp_path) as (playground, client):
        ann = await Tab.opened(client, "Ann")
        seen = []

        async def look():
            async for event in playground.watch("Ann", lambda: False):
                seen.extend([json.loads(event[6:])] if event.startswith(b"data: ") else [])

        looking = asyncio.create_task(look())
        await until(playground, "Ann", lambda view: view["worker"]["state"] == "up")
        await ann.say("/order")
        await until(playground, "Ann", lambda view: statuses(view) == ["handled"])
        await come(lambda: seen and seen[-1]["here"] == "size")
        assert playground.people.of("Ann").watching == 1
        playground.close()
        async with asyncio.timeout(LONG):
            await looking
        assert playground.people.of("Ann").watching == 0


# -------------------------------------------------------------------------------------------- security


async def test_nobody_comes_in_without_the_link(tmp_path):
    async with playing(tmp_path) as (_, client):
        client.cookies.clear()
        for path in ("/", "/events?who=Ann", "/static/page.js"):
            assert (await client.get(path)).status_code == 401


async def test_actions_need_their_token_and_come_from_the_page_itself(tmp_path):
    async with playing(tmp_path) as (playground, client):
        ann = await Tab.opened(client, "Ann")
        for path, body in (("/say", {"texts": ["x"]}), ("/plug", {}), ("/set", {}), ("/dead", {"seq": 1})):
            assert (await ann.post(path, csrf="", **body)).status_code == 403
            assert (await ann.post(path, csrf="0" * 64, **body)).status_code == 403
            foreign = {"Origin": "http://example.org"}
            assert (await ann.post(path, headers=foreign, **body)).status_code == 403
            assert (await ann.post(path, headers={"Host": "example.org"}, **body)).status_code == 421
            assert (await client.get(path)).status_code == 405
        assert playground.plug.deaths == 0
        assert not playground.people.of("Ann").messages


async def test_every_answer_carries_a_policy_that_lets_nothing_in(tmp_path):
    async with playing(tmp_path) as (_, client):
        for path in ("/?who=Ann", "/static/page.js", "/static/nothing", "/nowhere"):
            policy = (await client.get(path)).headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
        assert (await client.get("/static/map.css")).text == maps.STYLE


async def test_a_hostile_name_is_text_and_an_impossible_one_is_refused(tmp_path):
    async with playing(tmp_path) as (_, client):
        text = (await client.get("/", params={"who": "<script>\"'&"})).text
        assert '<script>"' not in text
        assert "&lt;script&gt;&quot;&#x27;&amp;" in text
        for name in ("x" * 25, "a\nb", "a\u202eb"):
            assert (await client.get("/", params={"who": name})).status_code == 400


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/say", {"texts": ["x" * 501]}, 400),
        ("/say", {"texts": [3]}, 400),
        ("/say", {}, 400),
        ("/set", {"settings": {"slow": 99}}, 400),
        ("/set", {"settings": {"overlap": "none"}}, 400),
        ("/set", {"settings": {"trouble": "some"}}, 400),
        ("/dead", {"seq": 1, "verb": "eat"}, 400),
        ("/say", {"texts": ["x" * 20_000]}, 413),
    ],
)
async def test_nonsense_is_refused(tmp_path, path, body, status):
    async with playing(tmp_path) as (_, client):
        ann = await Tab.opened(client, "Ann")
        assert (await ann.post(path, **body)).status_code == status


async def test_a_tab_without_a_name_gets_one_that_is_free(tmp_path):
    async with playing(tmp_path) as (_, client):
        names = [(await client.get("/")).headers["location"] for _ in range(3)]
        assert names == [f"/?who={name}" for name in NAMES[:3]]


def test_names_run_on_when_all_are_taken():
    people = People(lambda command: False)
    given = [people.free_name() for _ in range(len(NAMES) + 2)]
    assert given[-2:] == ["Guest 1", "Guest 2"]


def test_a_message_that_nobody_took_is_brought_when_somebody_comes():
    brought, there = [], False
    people = People(lambda command: there and (brought.append(command) or True))
    message = people.say("Ann", "hello")
    people.set("Ann", Settings(slow=1.0))
    there = True
    people.worker_is_up()
    assert [one["do"] for one in brought] == ["settings", "accept"]
    people.outcome({"n": message.n, "status": "queued"})
    people.worker_is_up()
    assert [one["do"] for one in brought] == ["settings", "accept", "settings"]


# ---------------------------------------------------------------------------------------- processes


async def test_a_worker_that_is_killed_comes_back_and_ends_with_its_page(tmp_path):
    told = []
    async with Plug(f"sqlite:///{tmp_path / 'plug.db'}", told.append, back_after=0.05) as plug:
        for lives in (1, 2):
            await come(lambda lives=lives: plug.state == "up" and plug.deaths == lives - 1)
            pid = plug.pid
            assert plug.pull()
        await come(lambda: plug.state == "up" and plug.deaths == 2)
        last = plug.pid
    assert pid != last
    with pytest.raises(ProcessLookupError):
        os.kill(last, 0)
    assert [one["state"] for one in told].count("dead") == 2
    assert [one["code"] for one in told if one["state"] == "dead"] == [-signal.SIGKILL] * 2


def test_the_page_starts_prints_its_link_and_ends_with_ctrl_c(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-m", "hitherto", "demo", "--page", "--no-open"],
        cwd=tmp_path, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    with process:
        try:
            link = next(line.strip() for line in process.stdout if "http" in line)
            assert re.fullmatch(r"http://127\.0\.0\.1:\d+/\?token=[\w-]{40,}", link)
            with httpx.Client(follow_redirects=True) as client:
                deadline = time.monotonic() + LONG
                while True:
                    try:
                        answer = client.get(link)
                        break
                    except httpx.ConnectError:
                        assert time.monotonic() < deadline
                        time.sleep(0.05)
                assert "playground" in answer.text
                with client.stream("GET", answer.url.join("/events?who=Ann")) as events:
                    assert next(events.iter_text()).startswith("data: ")
                    process.send_signal(signal.SIGINT)
                    assert process.wait(LONG) == 0
            assert "Bye." in process.stdout.read()
        finally:
            process.kill()
