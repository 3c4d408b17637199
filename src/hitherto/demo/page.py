"""The playground: a page on which people order pizza, and which shows what the library keeps of it meanwhile.

This process serves the page and plays the messaging platform; the bot and its keeper run in a worker of their
own, which the page may kill.  What is shown is read from the store, as an operator would: the worker is asked
for nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import html
import os
import socket
import sys
import time
import webbrowser
from collections.abc import AsyncIterator, Callable
from importlib.resources import files
from typing import Any, Final

import msgspec
import uvicorn
from msgspec import structs
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from hitherto import maps
from hitherto.addresses import Address
from hitherto.codec import decode
from hitherto.demo.people import People, Person
from hitherto.demo.pizza import SIZES, TOPPINGS, Order
from hitherto.demo.plug import Plug
from hitherto.demo.worker import BOT, LEASE, Settings
from hitherto.document import Document
from hitherto.flows import spec
from hitherto.inspector.guard import Guard, Refused, check_form
from hitherto.protocol import is_busy, live_record
from hitherto.stores import Store, open_store

_LOOK: Final = 0.25
_AGAIN: Final = 1.0
_BEAT: Final = 10.0
_LONGEST_NAME: Final = 24
_LONGEST_TEXT: Final = 500
_LARGEST: Final = 16_384
_SEEN_SHOWN: Final = 12
_TYPES: Final = {
    "page.css": "text/css", "page.js": "text/javascript", "icon.svg": "image/svg+xml", "map.css": "text/css",
}  # fmt: skip
_SAYS: Final = {
    None: ["/order", "/help"],
    "size": [*SIZES],
    "toppings": [*TOPPINGS, "done"],
    "address": ["12 Harbour Street", "the office, third floor"],
    "confirm": ["yes", "no"],
}
_FIVE: Final = {
    None: ["/order", "medium", "olives", "ham", "done"],
    "size": ["medium", "olives", "ham", "rocket", "done"],
    "toppings": ["cheese", "olives", "ham", "rocket", "mushrooms"],
    "address": ["12 Harbour Street", "no", "small", "olives", "done"],
    "confirm": ["no", "large", "ham", "olives", "done"],
}


class Playground:
    """The page's side: the people, the plug, and everyone who looks."""

    def __init__(self, url: str, store: Store, *, back_after: float = 1.5) -> None:
        self._store, self._url = store, url
        self.plug = Plug(url, self._heard, back_after=back_after)
        self.people = People(self.plug.send)
        self._changed = asyncio.Event()
        self._later: set[asyncio.TimerHandle] = set()
        self.closing = False

    def _heard(self, told: dict[str, Any]) -> None:
        """The worker, or what became of it."""
        if told["is"] == "worker":
            if told["state"] == "up":
                self.people.worker_is_up()
            elif told["state"] == "dead":
                self.people.worker_died()
        elif told["is"] == "outcome":
            if again := self.people.outcome(told):
                self._in_a_while(self.people.bring_again, again[0].name, again[1].n)
        elif told["is"] == "said":
            self.people.said(told)
        else:
            self.people.step(told)
        self.look()

    def look(self) -> None:
        """Let everyone who looks see what is new."""
        self._changed.set()

    def close(self) -> None:
        """Let those who look go."""
        self.closing = True
        for handle in self._later:
            handle.cancel()
        self.look()

    def _in_a_while(self, work: Callable[..., object], *given: Any) -> None:
        def do() -> None:
            self._later.discard(handle)
            work(*given)

        handle = asyncio.get_running_loop().call_later(_AGAIN, do)
        self._later.add(handle)

    # ------------------------------------------------------------------------------------------- looking

    async def watch(self, name: str, gone: Callable[[], bool]) -> AsyncIterator[bytes]:
        """What one tab sees, as server-sent events: everything at first, then whenever it has changed."""
        person = self.people.of(name)
        person.watching += 1
        shown, beat = b"", time.monotonic()
        try:
            while not self.closing and not gone():
                view = msgspec.json.encode(await self.view(person))
                if view != shown:
                    shown, beat = view, time.monotonic()
                    yield b"data: " + view + b"\n\n"
                elif time.monotonic() - beat > _BEAT:
                    beat = time.monotonic()
                    yield b": still here\n\n"
                await self._until_changed()
        finally:
            person.watching -= 1
            person.seen_at = time.monotonic()

    async def _until_changed(self) -> None:
        """Until something was heard of, or for so long that what time changes is not missed."""
        self._changed.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LOOK):
                await self._changed.wait()

    async def view(self, person: Person) -> dict[str, Any]:
        """All that the page shows of a person: the store is read last, so that no card is behind the chat."""
        messages = [structs.replace(one) for one in person.messages]
        log, worker = list(person.log), {
            "state": self.plug.state, "pid": self.plug.pid, "deaths": self.plug.deaths,
        }  # fmt: skip
        document = await self._store.load(Address(BOT, "", (person.name,)))
        now = await self._store.now()
        record = live_record(document, now)
        here = None if record is None or record.flow is None else record.state
        taken = person.taken if person.taken is not None and person.taken[1] == here else None
        return {
            "who": person.name,
            "here": here,
            "map": maps.svg(spec(Order), here=here, taken=taken),
            "worker": worker,
            "settings": person.settings,
            "says": _SAYS.get(here, []),
            "five": _FIVE.get(here, []),
            "messages": messages,
            "log": log,
            **_kept(document, now),
        }


def _kept(document: Document, now: float) -> dict[str, Any]:
    """What the store keeps of a conversation, for the cards beneath the map."""
    record, lease, busy = live_record(document, now), document.lease, is_busy(document, now)
    return {
        "data": {} if record is None else decode(record.fields),
        "version": document.version,
        "epoch": document.epoch,
        "lease": None
        if lease is None
        else {"owner": lease.owner[:8], "alive": busy, "until": lease.deadline, "length": LEASE},
        "inbox": [
            {
                "seq": entry.seq,
                "id": entry.event_id,
                "text": _text_of(entry.payload),
                "is": "claimed" if busy and (entry.claimed or entry.lone_until) else
                "left behind" if entry.claimed else "retry" if entry.not_before > now else "waiting",
                "attempts": entry.attempts,
            }
            for entry in document.inbox
        ],
        "dead": [
            {
                "seq": letter.seq, "id": letter.event_id, "text": _text_of(letter.payload),
                "error": _kind_of(letter.error), "attempts": letter.attempts,
            }
            for letter in document.dead
        ],
        "seen": list(document.seen)[-_SEEN_SHOWN:],
        "seen_count": len(document.seen),
    }  # fmt: skip


def _kind_of(error: str) -> str:
    """What was raised, without its module."""
    return error.strip().rpartition("\n")[2].rpartition(".")[2]


def _text_of(payload: bytes) -> str:
    event = msgspec.json.decode(payload)
    return str(event.get("text", "")) if isinstance(event, dict) else ""


# ----------------------------------------------------------------------------------------------- the web


class Web:
    """Addresses of the page."""

    def __init__(self, playground: Playground) -> None:
        self._playground = playground
        self._text = files("hitherto.demo").joinpath("static/page.html").read_text(encoding="utf-8")
        self.app = Starlette(
            routes=[
                Route("/", self._page),
                Route("/events", self._events),
                Route("/static/{name}", _static),
                *[
                    Route(f"/{verb}", self._action(work), methods=["POST"])
                    for verb, work in (
                        ("say", self._say), ("set", self._set), ("plug", self._plug), ("dead", self._dead),
                    )
                ],
            ],
            exception_handlers={Refused: _refused},
        )  # fmt: skip

    async def _page(self, request: Request) -> Response:
        name = request.query_params.get("who", "").strip()
        if not name:
            return RedirectResponse(f"/?who={self._playground.people.free_name()}", 303)
        shown = html.escape(_name(name))
        text = self._text.replace("{csrf}", request.scope["hitherto.csrf"]).replace("{who}", shown)
        return Response(text, media_type="text/html")

    async def _events(self, request: Request) -> Response:
        name, gone = _name(request.query_params.get("who", "")), False

        async def until_gone() -> None:
            nonlocal gone
            while not gone:
                gone = (await request.receive())["type"] == "http.disconnect"

        async def stream() -> AsyncIterator[bytes]:
            watching = asyncio.create_task(until_gone())
            try:
                async for event in self._playground.watch(name, lambda: gone):
                    yield event
            finally:
                watching.cancel()

        return StreamingResponse(stream(), media_type="text/event-stream")

    def _action(self, work: Callable[[dict[str, Any]], object]) -> Callable[[Request], Any]:
        """Something that a page asks for, with the token it was given."""

        async def act(request: Request) -> Response:
            check_form(request.scope, {"csrf": request.headers.get("x-csrf", "")})
            body = b""
            async for part in request.stream():
                body += part
                if len(body) > _LARGEST:
                    raise Refused(413, "That is too much.")
            try:
                work(msgspec.json.decode(body, type=dict[str, Any]))
            except (KeyError, TypeError, ValueError) as error:
                raise Refused(400, f"This cannot be done: {type(error).__name__}.") from error
            self._playground.look()
            return JSONResponse({"done": True})

        return act

    def _say(self, asked: dict[str, Any]) -> None:
        """Some texts, in order; twice: the last one again, as a platform does that got no answer."""
        name, texts = _name(asked["who"]), [_text(one) for one in asked["texts"]][:10]
        for text in texts:
            message = self._playground.people.say(name, text)
            if asked.get("twice"):
                self._playground.people.say(name, text, event_id=message.id)

    def _set(self, asked: dict[str, Any]) -> None:
        self._playground.people.set(_name(asked["who"]), msgspec.convert(asked["settings"], Settings))

    def _plug(self, asked: dict[str, Any]) -> None:
        self._playground.plug.pull()

    def _dead(self, asked: dict[str, Any]) -> None:
        if asked["verb"] not in ("retry", "drop"):
            raise ValueError(asked["verb"])
        self._playground.people.mend(_name(asked["who"]), int(asked["seq"]), asked.get("id"), asked["verb"])


def _name(text: Any) -> str:
    name = str(text).strip()
    if not name or len(name) > _LONGEST_NAME or not name.isprintable():
        raise Refused(400, f"A name has 1 to {_LONGEST_NAME} characters that can be seen.")
    return name


def _text(text: Any) -> str:
    if not isinstance(text, str) or not text.strip() or len(text) > _LONGEST_TEXT:
        raise ValueError("a text has 1 to 500 characters")
    return text.strip()


async def _static(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in _TYPES:
        raise Refused(404, "There is nothing here.")
    if name == "map.css":
        return Response(maps.STYLE, media_type=_TYPES[name])
    return Response(files("hitherto.demo").joinpath("static", name).read_bytes(), media_type=_TYPES[name])


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)  # noqa: S101 - it is registered for these
    return JSONResponse({"error": str(error)}, error.status)


# ------------------------------------------------------------------------------------------------ running


def main(store: str, port: int, *, open_it: bool) -> int:
    """Serve the page until Ctrl-C; the exit code."""
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve(store, port, open_it=open_it))
    print("\nBye. Start me again and we go on from here.")
    return 0


async def serve(url: str, port: int = 0, *, open_it: bool = False) -> None:
    """Serve the page on a port of this machine, and say where."""
    async with open_store(url) as store:
        await store.init(BOT)
        playground = Playground(url, store)
        guard = Guard(Web(playground).app)
        with socket.create_server(("127.0.0.1", port)) as listening:
            server = _Server(guard, playground)
            link = guard.link(f"http://127.0.0.1:{listening.getsockname()[1]}")
            print(
                f"The playground is at\n\n    {link}\n\nCtrl-C ends it. In the terminal: --terminal",
                flush=True,
            )
            if open_it:
                webbrowser.open(link)
            async with playground.plug:
                await server.serve(sockets=[listening])


class _Server(uvicorn.Server):
    """Lets those who look go before it waits for them."""

    def __init__(self, app: Any, playground: Playground) -> None:
        self._playground = playground
        super().__init__(
            uvicorn.Config(
                app, log_level="warning", access_log=False, lifespan="off", ws="none", server_header=False,
                timeout_graceful_shutdown=3,
            )
        )  # fmt: skip

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close: here, because what comes after a signal is cancelled."""
        self._playground.close()
        await self._playground.plug.close()
        await super().shutdown(sockets)


def can_open() -> bool:
    """Whether this machine has a screen to show a page on."""
    if sys.platform in ("darwin", "win32"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
