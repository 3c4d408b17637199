"""Who may see and do what: everything that reaches the inspector passes here first.

A request is refused (421) for a Host that is not ours, which is how a page elsewhere reaches a server on this
machine through DNS; (401) without the cookie that the printed link is exchanged for, or when ``auth`` says
no; (403) when a browser says that another site sent it, and for any action without the token of its form.
Every answer, refusals too, carries the headers that let a page run nothing that is not ours and keep nothing.
"""

from __future__ import annotations

import hashlib
import hmac
import inspect
import secrets
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from http.cookies import CookieError, SimpleCookie
from typing import Any, Final, TypeAlias
from urllib.parse import parse_qsl, urlencode, urlsplit

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]
Auth: TypeAlias = Callable[[Any], "bool | str | Awaitable[bool | str | None] | None"]

LOOPBACK: Final = ("localhost", "127.0.0.1", "[::1]")
HEADERS: Final = (
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        b"form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    ),
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"same-origin"),  # with no-referrer a form would send "Origin: null"
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
)
_SAFE: Final = frozenset({"GET", "HEAD"})
_LONG: Final = 32


class Refused(Exception):
    """This request goes no further."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class Guard:
    """An ASGI application in front of *app*.

    Without *auth*, a token is demanded once, in the link, and kept as a cookie. *auth* is given the request
    and answers whether it may pass, or who it is. *hosts* are the names it may be reached by: loopback alone
    without *auth*, any with it.
    """

    def __init__(self, app: App, auth: Auth | None = None, hosts: Iterable[str] | None = None) -> None:
        self._app, self._auth = app, auth
        self._hosts = None if hosts is None and auth is not None else frozenset(hosts or LOOPBACK)
        self._token = secrets.token_urlsafe(_LONG)
        self._session = secrets.token_urlsafe(_LONG)
        name = "mounted" if auth else hashlib.blake2s(self._token.encode(), digest_size=6).hexdigest()
        self._cookie = f"hitherto_{name}"

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    def link(self, base: str) -> str:
        """The address to open, with the token in it where one is needed."""
        return base if self._auth else f"{base.rstrip('/')}/?token={self._token}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let through, or refuse."""
        if scope["type"] == "lifespan":
            return await self._app(scope, receive, send)
        if scope["type"] != "http":
            return await send({"type": "websocket.close", "code": 1008})
        try:
            headers = _headers_of(scope)
            self._check_host(headers)
            _check_site(scope, headers)
            if await self._exchanged(scope, headers, send):
                return None
            cookie = await self._let_in(scope, headers)
        except Refused as refused:
            return await _answer(send, refused.status, [], str(refused))
        await self._app(scope, receive, self._wrapped(scope, send, cookie))
        return None

    def _wrapped(self, scope: Scope, send: Send, cookie: str | None) -> Send:
        """Every answer with our headers, and with a new cookie where there was none."""
        new = [] if cookie is None else [self._set_cookie(scope, cookie)]

        async def guarded(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), *HEADERS, *new]}
            await send(message)

        return guarded

    def _check_host(self, headers: dict[str, str]) -> None:
        if self._hosts is not None and _without_port(headers.get("host", "")) not in self._hosts:
            raise Refused(421, "This host name is not one of the inspector's.")

    async def _exchanged(self, scope: Scope, headers: dict[str, str], send: Send) -> bool:
        """The first hop: a link with the right token becomes a cookie, and leaves the address."""
        query = dict(parse_qsl(scope.get("query_string", b"").decode("latin-1"), keep_blank_values=True))
        token = query.pop("token", None)
        if self._auth is not None or token is None or scope["method"] not in _SAFE:
            return False
        if not _equal(token, self._token):
            raise Refused(401, "This link is not of this inspector. Open the one that it printed.")
        path = f"{_root(scope)}/{'?' if query else ''}{urlencode(query)}"
        location = (b"location", path.encode("latin-1", "replace"))
        await _answer(send, 303, [location, self._set_cookie(scope, self._session)], "")
        return True

    async def _let_in(self, scope: Scope, headers: dict[str, str]) -> str | None:
        """Who it is and which forms are theirs, for what comes after; a cookie that is still to be set."""
        given = _cookie_of(headers, self._cookie)
        if self._auth is None:
            if not _equal(given, self._session):
                raise Refused(401, "Open the link that the inspector printed when it started.")
            scope["hitherto.who"] = "operator"
        else:
            scope["hitherto.who"] = await _asked(self._auth, scope)
        cookie = given if len(given) >= _LONG else secrets.token_urlsafe(_LONG)
        scope["hitherto.csrf"] = hashlib.blake2s(cookie.encode(), person=b"csrf").hexdigest()
        return None if cookie == given else cookie

    def _set_cookie(self, scope: Scope, value: str) -> tuple[bytes, bytes]:
        secure = "; Secure" if scope.get("scheme") == "https" else ""
        path = urlsplit(_root(scope) or "/").path
        return (
            b"set-cookie",
            f"{self._cookie}={value}; Path={path}; HttpOnly; SameSite=Strict{secure}".encode(),
        )


def check_form(scope: Scope, form: dict[str, str]) -> None:
    """An action carries the token of the page its form was on."""
    if not _equal(form.get("csrf", ""), scope["hitherto.csrf"]):
        raise Refused(403, "The form is out of date. Go back, reload the page and try again.")


async def _asked(auth: Auth, scope: Scope) -> str:
    from starlette.requests import Request

    answer = auth(Request(scope))
    if inspect.isawaitable(answer):
        answer = await answer
    if not answer:
        raise Refused(401, "You may not see this.")
    return answer if isinstance(answer, str) else "operator"


def _check_site(scope: Scope, headers: dict[str, str]) -> None:
    """Refuse what a browser was made to send by another site."""
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if scope["method"] in _SAFE:
        if site in ("cross-site", "same-site") and headers.get("sec-fetch-mode") != "navigate":
            raise Refused(403, "Another site asked for this.")
        return
    if origin is None and site != "same-origin":
        raise Refused(403, "An action needs an Origin.")
    ours = origin is None or urlsplit(origin).netloc.lower() == headers.get("host", "").lower()
    if not ours or site not in (None, "same-origin"):
        raise Refused(403, "Another site sent this.")


def _headers_of(scope: Scope) -> dict[str, str]:
    """Each header once; one that is repeated is no header that can be relied on."""
    found: dict[str, str] = {}
    for name, value in scope["headers"]:
        text = name.decode("latin-1").lower()
        more = value.decode("latin-1")
        found[text] = f"{found[text]}{'; ' if text == 'cookie' else ', '}{more}" if text in found else more
    return found


def _cookie_of(headers: dict[str, str], name: str) -> str:
    try:
        found = SimpleCookie(headers.get("cookie", "")).get(name)
    except CookieError:
        return ""
    return "" if found is None else found.value


def _without_port(host: str) -> str:
    name, colon, port = host.lower().rpartition(":")
    return name if colon and port.isdigit() else host.lower()


def _root(scope: Scope) -> str:
    return str(scope.get("root_path", "")).rstrip("/")


def _equal(given: str, wanted: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "replace"), wanted.encode())


async def _answer(send: Send, status: int, headers: list[tuple[bytes, bytes]], says: str) -> None:
    start = [(b"content-type", b"text/plain; charset=utf-8"), *headers, *HEADERS]
    await send({"type": "http.response.start", "status": status, "headers": start})
    await send({"type": "http.response.body", "body": says.encode() + b"\n" if says else b""})
