"""Slack's Bolt on a keeper: listeners get the turn, states are matchers, and what was accepted is handled.

::

    app = AsyncApp(token=..., signing_secret=...)
    attach(app, keeper)

    @app.message(matchers=[when(Signup.ask_name)])
    async def name(message, say, turn: Turn): ...

A request is accepted before any listener or middleware of the app's own sees it, and answered at once when it
is an event; actions, commands, views and options are answered with what their listener gives to ``ack``.
Listeners then run inside the turn, to their end: one that raises commits nothing, and Bolt's error handler
hears of it as ever. Lazy listeners run outside. HTTP and socket mode are the same here.

The key is the keeper's strategy over workspace, channel, thread and user; see :mod:`hitherto.adapting`.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import msgspec

from hitherto.adapting import Condition, all_of, key_of, recover, slack_place
from hitherto.errors import MissingExtra
from hitherto.filters import DataIs, InFlow, InState, NoFlow
from hitherto.flows import Flow, State
from hitherto.keeper import Keeper
from hitherto.turns import Turn
from hitherto.webhooks import is_slack

try:
    from slack_bolt.context.ack.async_ack import AsyncAck
    from slack_bolt.listener.async_listener_error_handler import AsyncListenerErrorHandler
    from slack_bolt.listener.asyncio_runner import AsyncioListenerRunner
    from slack_bolt.middleware.async_middleware import AsyncMiddleware
    from slack_bolt.request.async_request import AsyncBoltRequest
    from slack_bolt.response import BoltResponse
except ImportError as error:  # pragma: no cover - the extra is there where this is tested
    raise MissingExtra("hitherto.slack", "slack") from error

if TYPE_CHECKING:
    from slack_bolt.async_app import AsyncApp

__all__ = ["DataIs", "InFlow", "InState", "NoFlow", "attach", "when"]

_ANSWER = 2.5
_FEED = "hitherto_feed"
_BOLTS = "slack_bolt.middleware."
_CUSTOM = "async_custom_middleware"


def when(*conditions: Condition | State | type[Flow]) -> Callable[[Turn], Awaitable[bool]]:
    """A matcher for ``matchers=[...]``: every condition holds; a state or a flow means being in it."""
    holds = all_of(conditions)

    async def matches(turn: Turn) -> bool:
        return holds(turn)

    return matches


def attach(app: AsyncApp, keeper: Keeper, *, answer_within: float = _ANSWER) -> Attached:
    """Let *keeper* keep the conversations of *app*; the keeper is started and stopped by whoever made it.

    An action whose turn has to wait is answered with an empty 200 after *answer_within* seconds.
    """
    if not hasattr(app, "async_dispatch"):
        raise TypeError(f"app={type(app).__name__}: a slack_bolt.async_app.AsyncApp; turns are asynchronous")
    return Attached(app, keeper, answer_within)


class Attached(AsyncMiddleware):
    """An app whose requests are handled by a keeper; it stands behind what Bolt itself checks."""

    def __init__(self, app: AsyncApp, keeper: Keeper, answer_within: float) -> None:
        self.app, self.keeper, self.answer_within = app, keeper, answer_within
        runner = app._async_listener_runner
        app._async_listener_runner = _Runner(
            runner.logger, runner.process_before_response, runner.listener_error_handler,
            runner.listener_start_handler, runner.listener_completion_handler, runner.lazy_listener_runner,
        )  # fmt: skip
        middleware = app._async_middleware_list
        place = sum(_is_bolts_own(one) for one in middleware)
        middleware.insert(place, self)
        recover(keeper, is_slack, lambda turn: self._run(_Feed(turn.event, {}), turn))

    async def async_process(
        self, *, req: AsyncBoltRequest, resp: BoltResponse, next: Callable[[], Awaitable[Any]]
    ) -> BoltResponse | None:
        """Into the keeper, or, already inside a turn, on to the app."""
        if _FEED in req.context or req.lazy_only or not is_slack(req.body):
            await next()
            return resp
        return await self._accept(_Feed(req.body, dict(req.headers)))

    async def _accept(self, feed: _Feed) -> BoltResponse:
        key = key_of(self.keeper.strategy, feed.body, slack_place(feed.body))

        async def run(turn: Turn) -> None:
            await self._run(feed, turn)

        outcome = await self.keeper.accept(feed.body, run, id=feed.id, key=key)
        if not outcome.accepted:
            return BoltResponse(status=503, body="later", headers={"retry-after": "2"})
        if feed.body.get("type") == "event_callback" or outcome.status in ("duplicate", "dropped"):
            return BoltResponse(status=200, body="")
        await asyncio.wait([feed.answered], timeout=self.answer_within)
        return feed.answered.result() if feed.answered.done() else BoltResponse(status=200, body="")

    async def _run(self, feed: _Feed, turn: Turn) -> None:
        """The app's own middleware and listeners, inside the turn."""
        context = {"turn": turn, "ack": _Ack(feed), _FEED: feed}
        # as in socket mode: whoever sent it was checked when it came
        request = AsyncBoltRequest(body=feed.body, headers=feed.headers, mode="socket_mode", context=context)
        try:
            feed.answer(await self.app.async_dispatch(request))
        finally:
            feed.answer(BoltResponse(status=200, body=""))
        if feed.error is not None:
            raise feed.error


class _Feed:
    """One request on its way through the keeper and the app."""

    def __init__(self, body: dict[str, Any], headers: dict[str, Any]) -> None:
        self.body, self.headers = body, headers
        self.answered: asyncio.Future[BoltResponse] = asyncio.get_running_loop().create_future()
        self.error: BaseException | None = None
        known = body.get("event_id") or body.get("trigger_id")
        self.id = f"slack:{known or hashlib.sha256(msgspec.json.encode(body)).hexdigest()}"

    def __deepcopy__(self, memo: object) -> _Feed:
        return self  # Bolt copies a request for its lazy listeners

    def answer(self, response: BoltResponse) -> None:
        """What Slack gets, unless it got something already."""
        if not self.answered.done():
            self.answered.set_result(response)


class _Ack(AsyncAck):
    """Slack's answer goes out when ``ack`` is called: the rest of the listener may take its time."""

    def __init__(self, feed: _Feed) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._feed = feed

    async def __call__(self, *given: Any, **named: Any) -> BoltResponse:
        response = await super().__call__(*given, **named)
        self._feed.answer(response)
        return response


class _Runner(AsyncioListenerRunner):
    """Runs listeners to their end where they are in a turn, and tells the turn what they raised."""

    async def run(
        self,
        request: AsyncBoltRequest,
        response: Any,
        listener_name: str,
        listener: Any,
        starting_time: float | None = None,
    ) -> BoltResponse | None:
        """Bolt's own, with Slack answered as soon as the listener says so."""
        feed: _Feed | None = request.context.get(_FEED)
        if feed is None:
            return await super().run(request, response, listener_name, listener, starting_time)
        whole = AsyncioListenerRunner(
            self.logger, True, _Noting(self.listener_error_handler, feed), self.listener_start_handler,
            self.listener_completion_handler, self.lazy_listener_runner,
        )  # fmt: skip
        return await whole.run(request, response, listener_name, listener, starting_time)


class _Noting(AsyncListenerErrorHandler):
    """The app's error handler, and the turn hears of it too."""

    def __init__(self, theirs: AsyncListenerErrorHandler, feed: _Feed) -> None:
        self._theirs, self._feed = theirs, feed

    async def handle(self, error: Exception, request: Any, response: Any) -> None:
        """Note it first: their handler may raise."""
        self._feed.error = error
        await self._theirs.handle(error, request, response)


def _is_bolts_own(middleware: Any) -> bool:
    module = type(middleware).__module__
    return module.startswith(_BOLTS) and not module.endswith(_CUSTOM)
