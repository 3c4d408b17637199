"""Webhooks: ASGI endpoints for Telegram, Slack and plain JSON, which answer 200 only when an event is kept.

::

    app = FastAPI(lifespan=asgi.lifespan(keeper))
    app.add_route("/telegram", asgi.telegram(keeper, handler, secret=os.environ["WEBHOOK_SECRET"]))

An endpoint is a plain ASGI application: give it to a route of Starlette or FastAPI, to any other router, or
to the server as it is (it then starts and stops the keeper by the lifespan protocol). The handler gets the
turn; ``turn.event`` is the JSON as a dict. What is answered:

===  ==================================================================================================
200  the event is kept (or was before); its handler runs afterwards, in the keeper's own tasks
400  authentic, and no event that can be kept
401  not authentic; nothing was parsed
405  no POST
408  the body did not come in time
413  too large; found while it is read
503  the conversation is busy by its policy, the store is away or the keeper stops: send it again later
===  ==================================================================================================

Nothing is decompressed. A retry that Slack counts in `x-slack-retry-num` has the `event_id` of what it
repeats and is handled once, like every redelivery.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any, TypeAlias

from hitherto import failures
from hitherto.adapting import Handler, recover
from hitherto.addresses import Key
from hitherto.errors import BadEvent, BadKey, EventTooLarge, KeeperClosed, NotStarted, StoreError
from hitherto.keeper import Keeper
from hitherto.keys import Strategy, as_strategy
from hitherto.webhooks import Headers, Incoming, PlainJson, Platform, Refused, Reply, Slack, Telegram

__all__ = ["Endpoint", "json", "lifespan", "slack", "telegram"]

Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
KeyOf: TypeAlias = Strategy | Callable[[Any], Key]

_log = logging.getLogger("hitherto")
_BODY = 1_048_576
_AT_ONCE = 256
_UPLOAD = 10.0
_ANSWER = 2.5
_RETRY_AFTER = (b"retry-after", b"2")
_SWITCHED_OFF = "an endpoint was reached whose keeper does not run; give the app lifespan=lifespan(keeper)"


def telegram(
    keeper: Keeper,
    handler: Handler | None = None,
    *,
    secret: str | None = None,
    insecure: bool = False,
    max_body: int = _BODY,
    answer_within: float = _ANSWER,
) -> Endpoint:
    """The webhook of a Telegram bot; *secret* is the `secret_token` that `setWebhook` was given.

    Without one anybody could send updates, so that is refused unless it is said: `insecure=True`. An event
    that is not kept within *answer_within* seconds is answered with 503.
    """
    platform = Telegram(keeper.strategy, secret, insecure)
    return Endpoint(keeper, handler, platform, max_body=max_body, answer_within=answer_within)


def slack(
    keeper: Keeper,
    handler: Handler | None = None,
    *,
    signing_secret: str | None = None,
    insecure: bool = False,
    key: KeyOf | None = None,
    max_body: int = _BODY,
    answer_within: float = _ANSWER,
    clock: Callable[[], float] = time.time,
) -> Endpoint:
    """The request URL of a Slack app, for events, actions, views, shortcuts and commands alike.

    The key is the keeper's strategy over workspace, channel, thread and user (see `hitherto.adapting`), or
    *key*. What was signed more than five minutes ago, or will be, is refused.
    """
    platform = Slack(_strategy(keeper, key), signing_secret, insecure, clock)
    return Endpoint(keeper, handler, platform, max_body=max_body, answer_within=answer_within)


def json(
    keeper: Keeper,
    handler: Handler | None = None,
    *,
    token: str | None = None,
    key: KeyOf | None = None,
    max_body: int = _BODY,
    answer_within: float = _ANSWER,
) -> Endpoint:
    """Any service of yours that posts JSON objects with an `id`, by which a repetition is known.

    The key is that of `chat`, `user` and `thread` beside it by the keeper's strategy, so that
    `{"id": "paid-17", "chat": 7, "user": 7}` reaches the conversation of Telegram's chat 7; or *key*. With a
    *token*, `Authorization: Bearer <token>` is demanded; without one, whoever gets here is believed.
    """
    platform = PlainJson(_strategy(keeper, key), token)
    return Endpoint(keeper, handler, platform, max_body=max_body, answer_within=answer_within)


def lifespan(*keepers: Keeper) -> Callable[[Any], AbstractAsyncContextManager[None]]:
    """For `Starlette(lifespan=...)` and `FastAPI(lifespan=...)`: start the keepers; at the end drain and stop
    them.

    One that runs already belongs to whoever started it.
    """

    @asynccontextmanager
    async def run(app: Any) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            for keeper in keepers:
                if not keeper.running:
                    await stack.enter_async_context(keeper)
            yield

    return run


def _strategy(keeper: Keeper, key: KeyOf | None) -> Strategy:
    return keeper.strategy if key is None else as_strategy(key)


class Endpoint:
    """One webhook as an ASGI application; made by `telegram`, `slack` and `json`."""

    def __init__(
        self,
        keeper: Keeper,
        handler: Handler | None,
        platform: Platform,
        *,
        max_body: int = _BODY,
        answer_within: float = _ANSWER,
    ) -> None:
        self.keeper = keeper
        self._handler = handler
        self._platform = platform
        self._max_body = max_body
        self._answer_within = answer_within
        self._inside = 0
        if handler is not None:
            recover(keeper, platform.mine, handler)

    def __repr__(self) -> str:
        return f"Endpoint({type(self._platform).__name__}, {self.keeper!r})"

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _live(self.keeper, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            await self._respond(scope, receive, send)

    async def _respond(self, scope: Message, receive: Receive, send: Send) -> None:
        if self._inside >= _AT_ONCE:
            await _answer(_later(), send)
            return
        self._inside += 1
        try:
            reply = await self._reply(scope, receive)
        except Refused as refused:
            reply = refused.reply
        finally:
            self._inside -= 1
        if reply is not None:
            await _answer(reply, send)

    async def _reply(self, scope: Message, receive: Receive) -> Reply | None:
        """The answer to a request; None when whoever asked has gone."""
        headers = [(name.lower(), value) for name, value in scope["headers"]]
        if scope["method"] != "POST":
            raise Refused(405, b"POST only", (b"allow", b"POST"))
        _check_length(headers, self._max_body)
        self._platform.admit(headers)
        body = await _body(receive, self._max_body)
        if body is None:
            return None
        incoming = self._platform.read(headers, body)
        return incoming if isinstance(incoming, Reply) else await self._accept(incoming)

    async def _accept(self, incoming: Incoming) -> Reply:
        """Keep an event, if that is possible now and in time."""
        event, id, key = incoming
        try:
            async with asyncio.timeout(self._answer_within):
                outcome = await self.keeper.accept(event, self._handler, id=id, key=key)
        except EventTooLarge:
            raise Refused(413, b"the event is too large") from None
        except (BadEvent, BadKey):
            raise Refused(400, b"not an event that can be kept") from None
        except NotStarted:
            _log.error(_SWITCHED_OFF)
            return _later()
        except (StoreError, OSError, KeeperClosed) as error:
            _log.warning("webhook.later error=%s", type(error).__name__)
            return _later()
        except Exception as error:  # noqa: BLE001 - a function of the user's own; the platform keeps the event
            failures.log("webhook.failed", error)
            return _later()
        return self._platform.kept(outcome.status) if outcome.accepted else _later()


# ---------------------------------------------------------------------------------------------------- ASGI


def _later() -> Reply:
    return Reply(503, b"later", headers=(_RETRY_AFTER,))


def _check_length(headers: Headers, limit: int) -> None:
    """Refuse what says of itself that it is too large."""
    for name, value in headers:
        if name == b"content-length" and (not value.isdigit() or len(value) > 18 or int(value) > limit):
            raise Refused(413, b"too large")


async def _body(receive: Receive, limit: int) -> bytes | None:
    """The whole body, never more than *limit* bytes of it; None when the client has gone."""
    body = bytearray()
    try:
        async with asyncio.timeout(_UPLOAD):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    return None
                body += message.get("body", b"")
                if len(body) > limit:
                    raise Refused(413, b"too large")
                if not message.get("more_body", False):
                    return bytes(body)
    except TimeoutError:
        raise Refused(408, b"the body did not come in time") from None


async def _answer(reply: Reply, send: Send) -> None:
    headers = [
        (b"content-type", reply.content_type), (b"content-length", b"%d" % len(reply.body)), *reply.headers
    ]  # fmt: skip
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": reply.body})


async def _live(keeper: Keeper, receive: Receive, send: Send) -> None:
    """The lifespan protocol, for an endpoint that is the whole application."""
    phase = "startup"
    await receive()
    try:
        async with lifespan(keeper)(None):
            await send({"type": "lifespan.startup.complete"})
            phase = "shutdown"
            await receive()
    except Exception as error:  # noqa: BLE001 - the protocol has a word for it
        failures.log("lifespan.failed", error)
        await send({"type": f"lifespan.{phase}.failed", "message": type(error).__name__})
        return
    await send({"type": "lifespan.shutdown.complete"})
