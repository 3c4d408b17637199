"""The inspector's web application: which address shows what, and which does what."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from importlib.resources import files
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from hitherto import failures, maps
from hitherto.addresses import Address, Key, key_text, parse_key
from hitherto.errors import BadKey, DataError, HithertoError, redact
from hitherto.inspector import audit, pages, parts
from hitherto.inspector.acting import ASKS, Acts, Form
from hitherto.inspector.guard import App, Auth, Guard, Refused, check_form
from hitherto.inspector.html import Child, Html, tag
from hitherto.inspector.looking import Looker, conversation_of
from hitherto.inspector.parts import View

_LONGEST_FORM: Final = 4_194_304
_MOST_NAMED: Final = 200
_FILED: Final = {"queues": "pending", "leases": "lease", "dead": "dead"}
_TITLES: Final = {"queues": "Queues", "leases": "Leases", "dead": "Dead letters"}
_TYPES: Final = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}


class Inspector(Guard):
    """An ASGI application; made by :func:`hitherto.inspector.inspector`."""

    def __init__(
        self,
        looker: Looker,
        *,
        bot: str | None,
        write: bool,
        auth: Auth | None,
        hosts: Iterable[str] | None,
        owned: bool = False,
    ) -> None:
        self._owned = owned
        self._looker, self._bot, self._write = looker, bot, write
        self._acts = Acts(looker)
        super().__init__(self._routes(), auth, hosts)

    def __repr__(self) -> str:
        return f"Inspector(write={self._write})"

    def _routes(self) -> App:
        pages_of = {name: partial(self._filed, name) for name in _FILED}
        routes = [
            Route("/", self._overview),
            Route("/conversations", self._conversations),
            Route("/conversation", self._conversation),
            *[Route(f"/{name}", shown) for name, shown in pages_of.items()],
            Route("/health", self._health),
            Route("/static/{name}", _static),
        ]
        if self._write:
            routes += [
                Route("/person", self._person, methods=["GET"]),
                Route("/act/person", self._forget_person, methods=["POST"]),
                Route("/act/{name}", self._ask, methods=["GET"]),
                Route("/act/{name}", self._act, methods=["POST"]),
            ]
        handlers: dict[Any, Any] = {
            Refused: self._refused, HithertoError: self._failed, OSError: self._failed, 404: self._missing,
        }  # fmt: skip
        return Starlette(routes=routes, exception_handlers=handlers, lifespan=self._lifespan)

    @asynccontextmanager
    async def _lifespan(self, app: Any) -> AsyncIterator[None]:
        """When it is served by itself: at the end, close a store that was opened by its URL."""
        yield
        if self._owned:
            await self._looker.store.close()

    # ------------------------------------------------------------------------------------------- looking

    async def _overview(self, request: Request) -> Response:
        bot = self._bot_of(request)
        if not bot:
            return _page(pages.which_bot(await self._view(request)))
        looker = self._looker
        tallies = {kind: await looker.tally(bot, kind) for kind in ("pending", "lease", "dead")}
        view = await self._view(request)
        counts = looker.counts(bot)
        age = Html("") if counts is None else tag("span", "counted ", parts.when(view.now - counts.age()))
        beside = tag("span", age, class_="soft", data_part="age")
        head = tag("div", tag("h1", tag("bdi", bot)), beside, class_="title")
        found = pages.overview(looker, view, counts, tallies)
        return self._shown(request, view, "", bot, head, found, {"age": age})

    async def _conversations(self, request: Request) -> Response:
        bot, query = self._some_bot(request), request.query_params
        chosen = {name: query[name] for name in ("flow", "state", "after") if name in query}
        listed = await self._looker.page(
            bot, chosen.get("flow"), chosen.get("state"), chosen.get("after", "")
        )
        view = await self._view(request)
        found = pages.conversations(view, listed, chosen, self._looker.counts(bot))
        return self._shown(request, view, "conversations", bot, tag("h1", "Conversations"), found)

    async def _filed(self, name: str, request: Request) -> Response:
        bot = self._some_bot(request)
        number = _number(request.query_params.get("page", "0"))
        found, more = await self._looker.filed(bot, _FILED[name], number)
        view = await self._view(request)
        shown = pages.filed(view, name, found, number, more)
        return self._shown(request, view, name, bot, tag("h1", _TITLES[name]), shown)

    async def _conversation(self, request: Request) -> Response:
        bot, key = self._some_bot(request), _key_of(request.query_params)
        seen = await self._looker.one(bot, key)
        view, document = await self._view(request, seen.now, key_text(key)), seen.document
        history = self._looker.history
        moments = None if history is None else history.of(conversation_of(seen))
        shown = {
            "where": parts.where(document, self._looker.flows, view, moments or ()),
            "record": parts.record(document, view),
            "lease": parts.lease(document, view),
            "inbox": parts.inbox(document, view),
            "dead": parts.dead(document, view),
            "seen": parts.seen(document, view),
            "history": parts.history(moments),
        }
        head = tag(
            "div", tag("h1", tag("code", view.key, class_="key")),
            tag("span", parts.status(document, seen.now), data_part="status"),
            view.action("forget", "Forget"), class_="title",
        )  # fmt: skip
        more = {"status": parts.status(document, seen.now)}
        return self._shown(request, view, "conversation", bot, head, shown, more)

    async def _health(self, request: Request) -> Response:
        bot = self._some_bot(request)
        found = await self._looker.health(bot)
        view = await self._view(request, 0.0 if found.error else None)
        shown = pages.health(self._looker, found, redact(self._looker.store.url))
        return self._shown(request, view, "health", bot, tag("h1", "Health"), shown)

    def _shown(
        self, request: Request, view: View, at: str, bot: str, head: Child, found: pages.Pieces,
        more: pages.Pieces | None = None,
    ) -> Response:  # fmt: skip
        """The whole page, or only the pieces of it that its script asks for."""
        if request.query_params.get("pieces") is not None:
            body = json.dumps({"now": view.now, "pieces": {**found, **(more or {})}}).encode()
            return Response(body, media_type="application/json")
        said = request.query_params.get("said", "")
        title = f"{view.key or _TITLES.get(at) or at.title() or 'Overview'} · {bot}"
        return _page(pages.frame(view, title=title, at=at, bot=bot, head=head, pieces=found, said=said))

    # -------------------------------------------------------------------------------------------- acting

    async def _ask(self, request: Request) -> Response:
        bot, name = self._some_bot(request), request.path_params["name"]
        if name not in ASKS or name == "person":
            return await self._missing(request)
        form = dict(request.query_params)
        return await self._form(request, bot, name, _key_of(form), form)

    async def _form(
        self, request: Request, bot: str, name: str, key: Key, form: Form, error: str = "", status: int = 200
    ) -> Response:
        """The page that asks, with what was wrong before."""
        view, ask = await self._view(request, None, key_text(key)), ASKS[name]
        fields = await self._acts.fields(name, bot, key, form)
        hidden = [tag("input", type="hidden", name="key", value=view.key)]
        back = view.link("conversation", key=view.key)
        form_ = _asking(view, request, name, tag("div", hidden, fields), error, back)
        main = tag("main", tag("h1", ask.title), form_, id="main", class_="ask-page")
        return _page(pages.document(view, ask.title, pages.banner(view, "act", bot), main), status)

    async def _act(self, request: Request) -> Response:
        bot, name, form = self._some_bot(request), request.path_params["name"], await _form_of(request)
        if name not in ASKS:
            return await self._missing(request)
        key, who = _key_of(form), request.scope["hitherto.who"]
        try:
            outcome = await self._acts.do(name, bot, key, form)
        except (HithertoError, OSError) as error:
            audit.record(name, who, bot, key_text(key), f"refused: {type(error).__name__}")
            status = 422 if isinstance(error, DataError | LookupError) else 409
            return await self._form(request, bot, name, key, form, str(error), status)
        audit.record(name, who, bot, key_text(key), outcome)
        said = name if outcome == "done" else "nothing"
        view = await self._view(request, 0.0)
        return RedirectResponse(view.link("conversation", key=key_text(key), said=said) or "/", 303)

    async def _person(self, request: Request) -> Response:
        """Who is to be forgotten, and what that would erase."""
        bot, written = self._some_bot(request), request.query_params.get("part", "")
        view = await self._view(request)
        field = tag("input", name="part", id="part", value=written or None, required=True, autocomplete="off")
        kept = [tag("input", type="hidden", name=name, value=value) for name, value in view.keep.items()]
        label = tag("label", "Id: a number, or text behind a dot, as in .U024BE7LH", for_="part")
        row = tag("div", field, tag("button", "Find"), class_="row")
        form = tag("form", kept, label, row, class_="ask", action=view.link("person"))
        found = await self._named(request, view, bot, written) if written else None
        title = ASKS["person"].title
        shown = {"person": parts.card("person", "Whom", form, found)}
        head = tag("h1", title)
        page = pages.frame(view, title=title, at="person", bot=bot, head=head, pieces=shown, live=False)
        return _page(page)

    async def _named(self, request: Request, view: View, bot: str, written: str) -> Html:
        """The conversations with this in their key, and the form that forgets them."""
        theirs = self._looker.of_person(bot, _part_of(written))
        found = [address async for address in _first(theirs, _MOST_NAMED + 1)]
        if not found:
            return parts.none("No conversation has it in its key.")
        keys = [tag("li", tag("code", key_text(address.key))) for address in found[:_MOST_NAMED]]
        more = tag("li", "and more") if len(found) > _MOST_NAMED else None
        hidden = tag("input", type="hidden", name="part", value=written)
        return tag("div", tag("ul", keys, more), _asking(view, request, "person", hidden), class_="found")

    async def _forget_person(self, request: Request) -> Response:
        bot, form = self._some_bot(request), await _form_of(request)
        written, who = form.get("part", ""), request.scope["hitherto.who"]
        part, number = _part_of(written), 0
        try:
            async for _ in self._acts.forget_person(bot, part):
                number += 1
        except BaseException as error:
            audit.record("person", who, bot, written, f"failed: {type(error).__name__} after {number}")
            raise
        audit.record("person", who, bot, written, f"done: {number} conversations")
        view = await self._view(request, 0.0)
        return RedirectResponse(view.link("", said="forget" if number else "nothing") or "/", 303)

    # --------------------------------------------------------------------------------------------- pieces

    async def _view(self, request: Request, now: float | None = None, key: str = "") -> View:
        moment = await self._looker.store.now() if now is None else now
        query = request.query_params
        asked = frozenset(filter(None, query.get("reveal", "").split(","))) - parts.EVERYTHING
        bot = "" if self._bot else query.get("bot", "")
        keep = {"bot": bot} if bot else {}
        link = partial(_link, request.scope.get("root_path", "").rstrip("/"), keep)
        return View(moment, asked, link, self._write, key, keep)

    def _bot_of(self, request: Request) -> str:
        return self._bot or request.query_params.get("bot", "")

    def _some_bot(self, request: Request) -> str:
        if not (bot := self._bot_of(request)):
            raise BadKey("which bot? the address names none")
        return bot

    async def _refused(self, request: Request, error: Exception) -> Response:
        status = error.status if isinstance(error, Refused) else 403
        return await self._problem(request, status, "Refused", str(error))

    async def _missing(self, request: Request, error: Exception | None = None) -> Response:
        return await self._problem(request, 404, "Not found", "There is no such page.")

    async def _failed(self, request: Request, error: Exception) -> Response:
        if isinstance(error, BadKey | DataError):
            return await self._problem(request, 400, "That cannot be", str(error))
        failures.log("inspector.failed", error)
        says = "It does not answer in time." if isinstance(error, TimeoutError) else redact(str(error))
        return await self._problem(request, 503, "The store cannot answer", says)

    async def _problem(self, request: Request, status: int, title: str, says: str) -> Response:
        view = await self._view(request, 0.0)
        return _page(pages.problem(view, title, says, self._bot_of(request)), status)


def _asking(
    view: View, request: Request, name: str, fields: Child, error: str = "", back: str | None = None
) -> Html:
    """The form that asks once: what it says, its fields, what was wrong with them before."""
    ask = ASKS[name]
    csrf = tag("input", type="hidden", name="csrf", value=request.scope["hitherto.csrf"])
    wrong = tag("p", error, class_="error", role="alert") if error else None
    no = tag("a", "Cancel", href=back, class_="button quiet cancel") if back else None
    row = tag("div", tag("button", ask.button, class_="danger" if ask.danger else None), no, class_="row")
    says = tag("p", ask.says, " ", tag("code", view.key) if view.key else None)
    action = view.link(f"act/{name}")
    return tag("form", csrf, says, fields, wrong, row, method="post", action=action, class_="asking")


def _link(root: str, keep: Mapping[str, str], page: str, /, **query: str) -> str:
    if page == "static" or "bare" in query:
        return f"{root}/{page}"
    given = urlencode({**keep, **query})
    return f"{root}/{page}{'?' if given else ''}{given}"


def _page(content: Html, status: int = 200) -> Response:
    return Response(content.encode("utf-8", "replace"), status, media_type="text/html")


def _key_of(query: Mapping[str, str]) -> Key:
    return parse_key(query.get("key", "").strip())


def _part_of(written: str) -> object:
    key = parse_key(written.strip())
    if not isinstance(key, tuple) or len(key) != 1:
        raise BadKey("a person is one part of a key: 7, or .U024BE7LH")
    return key[0]


def _number(written: str) -> int:
    return min(int(written), 100_000) if written.isascii() and written.isdecimal() and len(written) < 7 else 0


async def _first(found: AsyncIterator[Address], limit: int) -> AsyncIterator[Address]:
    number = 0
    async for one in found:
        yield one
        number += 1
        if number >= limit:
            return


async def _form_of(request: Request) -> dict[str, str]:
    """The form that was sent, whose token is right."""
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > _LONGEST_FORM:
            raise Refused(413, "This is too long.")
    try:
        form = dict(parse_qsl(body.decode(), keep_blank_values=True, strict_parsing=True, max_num_fields=20))
    except ValueError:
        raise Refused(400, "This is not a form.") from None
    check_form(request.scope, form)
    return form


def _content(name: str) -> bytes:
    if name == "map.css":
        return maps.STYLE.encode()
    return files("hitherto.inspector").joinpath("static", name).read_bytes()


_NAMES: Final = ("inspector.css", "map.css", "inspector.js", "live.js", "icon.svg")
_STATIC: Final = {name: _content(name) for name in _NAMES}


async def _static(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in _STATIC:
        return Response(status_code=404)
    return Response(_STATIC[name], media_type=_TYPES[name.rpartition(".")[2]])
