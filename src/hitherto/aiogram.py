"""aiogram 3 on a keeper: handlers get the turn, states are filters, and what was accepted is handled.

    dispatcher = Dispatcher()
    attach(dispatcher, Keeper("my_bot", "sqlite:///my_bot.db", [Signup]))

    @dispatcher.message(Signup.ask_name)
    async def name(message: Message, turn: Turn) -> None:
        turn.update_data(name=message.text)
        turn.transition(Signup.ask_email)

Every update goes to the keeper first, and through all middlewares and routers when it is its turn: at once,
after those that wait before it, or in another process after a crash.

* Errors reach aiogram's error handlers, which get the turn as well. A handler that raises changes nothing;
  when an error handler takes care of it the event is done, otherwise the keeper tries it again.
* Polling confirms an update only when the keeper has accepted it, whatever ``handle_as_tasks`` says; what is
  refused is asked for again. Webhooks answer as soon as it is accepted, and 500 when it is not.
* The keeper is started and stopped with the dispatcher, unless you started it yourself.

A keeper keeps the conversations of one bot. For bots that use ``state: FSMContext`` and should stay as they
are there is :class:`HithertoStorage`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from hitherto import filters
from hitherto.aiogram_storage import HithertoIsolation, HithertoStorage
from hitherto.door import Door, Place
from hitherto.errors import HithertoError, KeeperClosed, MissingExtra, NotStarted, StoreError
from hitherto.flows import Flow, State
from hitherto.keeper import Keeper
from hitherto.outcomes import Outcome
from hitherto.turns import Turn

try:
    from aiogram import Bot, Dispatcher, loggers
    from aiogram.dispatcher.event.bases import CancelHandler, SkipHandler
    from aiogram.dispatcher.middlewares.error import ErrorsMiddleware
    from aiogram.filters import Filter
    from aiogram.methods import GetUpdates, TelegramMethod
    from aiogram.types import TelegramObject, Update
except ImportError as missing:
    raise MissingExtra("hitherto.aiogram", "aiogram") from missing

__all__ = [
    "DataIs", "HithertoIsolation", "HithertoStorage", "InFlow", "InState", "NoFlow", "NotAccepted", "attach"
]  # fmt: skip

_Next = Callable[[Any, dict[str, Any]], Awaitable[Any]]
_EARLY = "hitherto_answer_early"
_NOT_CONTEXT = frozenset({"bot", "dispatcher", "router"})
_PASSING = (StoreError, OSError, KeeperClosed, NotStarted, asyncio.CancelledError)
_LAST_GRACE = 10.0


class NotAccepted(HithertoError):
    """The conversation is busy or full, and the overlap policy refuses the update: it has to come again."""


def attach(dispatcher: Dispatcher, keeper: Keeper) -> Dispatcher:
    """Have every update of *dispatcher* handled by *keeper*, and give it back: see the module."""
    if any(isinstance(other, Attached) for other in dispatcher.update.outer_middleware):
        raise ValueError("this dispatcher has a keeper already")
    Attached(dispatcher, keeper)
    return dispatcher


class _Asks(Filter):
    """A question about the turn, as a filter of aiogram."""

    def __init__(self, question: Callable[[Turn], bool]) -> None:
        self._question = question

    async def __call__(self, event: TelegramObject, turn: Turn | None = None) -> bool:
        if turn is None:
            raise TypeError(
                f"{type(self).__name__} was asked without a turn: attach(dispatcher, keeper) first"
            )
        return self._question(turn)


class InFlow(_Asks):
    """In one of these flows; without any named, in any flow at all."""

    def __init__(self, *flows: type[Flow]) -> None:
        super().__init__(filters.InFlow(*flows))


class InState(_Asks):
    """In one of these states."""

    def __init__(self, *states: State) -> None:
        super().__init__(filters.InState(*states))


class NoFlow(_Asks):
    """In no flow."""

    def __init__(self) -> None:
        super().__init__(filters.NoFlow())


class DataIs(_Asks):
    """The data holds these values under these keys."""

    def __init__(self, **values: Any) -> None:
        super().__init__(filters.DataIs(**values))


class _Feed:
    """One update on its way through the keeper and the dispatcher."""

    def __init__(self, attached: Attached, handler: _Next, event: Update, data: dict[str, Any]) -> None:
        self.attached, self.handler, self.event, self.data = attached, handler, event, data
        self.task = asyncio.current_task()
        self.place: Place | None = None
        self.answer: Any = None
        self.stopped: Exception | None = None
        self.began = False

    async def run(self, turn: Turn) -> None:
        """The turn of this update: for its caller, who gets the answer, or later on."""
        self.began = True
        self.enter_no_more()
        inside = self.handler(self.event, {**self.data, "turn": turn})
        if asyncio.current_task() is not self.task:
            await self.attached.answered(self.data["bot"], self.event, inside)
            return
        try:
            self.answer = await inside
        except (SkipHandler, CancelHandler) as stopped:
            self.stopped = stopped

    def enter_no_more(self) -> None:
        """It is accepted, or will not be."""
        if self.place is not None:
            self.attached.door.leave(self.place)


class Attached:
    """A dispatcher whose updates are handled by a keeper; as a middleware it stands before all others."""

    def __init__(self, dispatcher: Dispatcher, keeper: Keeper) -> None:
        self.dispatcher, self.keeper = dispatcher, keeper
        self.door, self.polling = Door(), False
        self.bot: Bot | None = None
        self.context: dict[str, Any] = {}
        self._bots: list[Bot] = []
        self._started = False
        keeper.serve(None, self._decode)
        self._stand_first()
        for observer, callback in ((dispatcher.startup, self._start), (dispatcher.shutdown, self._stop)):
            observer.register(callback)
            observer.handlers.insert(0, observer.handlers.pop())

    def _stand_first(self) -> None:
        manager = self.dispatcher.update.outer_middleware
        others = list(manager)
        errors = [place for place, one in enumerate(others) if isinstance(one, ErrorsMiddleware)]
        place = errors[0] + 1 if errors else 0
        for other in others:
            manager.unregister(other)
        ordered: list[Any] = [self, *others[:place], self._undone, *others[place:]]
        for middleware in ordered:
            manager.register(middleware)

    async def __call__(self, handler: _Next, event: Any, data: dict[str, Any]) -> Any:
        """The outermost middleware of updates: into the keeper, and from there on to the others."""
        if isinstance(data.get("turn"), Turn):
            return await handler(event, data)
        self._meet(data["bot"])
        early = data.pop(_EARLY, False)
        feed = _Feed(self, handler, event, data)
        key = self.keeper.strategy.extract(event)
        try:
            feed.place = self.door.come(key)
            await feed.place.reached()
            put = self.keeper.accept if early else self.keeper.handle
            outcome = await put(event, feed.run, key=key)
            self._check(outcome, event)
        except _PASSING:
            if not feed.began:
                self.door.hold(event.update_id)
            raise
        finally:
            feed.enter_no_more()
        if feed.stopped is not None:
            raise feed.stopped
        return feed.answer

    async def _ask(self, make_request: Any, bot: Bot, method: Any) -> Any:
        """A request of the bot while it polls: asking for more confirms what came before."""
        if not isinstance(method, GetUpdates) or bot.id != self._bots[0].id:
            return await make_request(bot, method)  # sessions may be shared with other bots

        def request(offset: int | None) -> Any:
            return make_request(bot, method.model_copy(update={"offset": offset}))

        return await self.door.ask(method.offset, request)

    def _check(self, outcome: Outcome, event: Update) -> None:
        """Refused: polling asks for it again, a webhook says so."""
        if not outcome.accepted and self.polling:
            self.door.hold(event.update_id)
        elif not outcome.accepted:
            raise NotAccepted(f"the conversation is {outcome.status}: the update was not accepted")

    async def _undone(self, handler: _Next, event: TelegramObject, data: dict[str, Any]) -> Any:
        """A handler that raises changes nothing, also when an error handler takes care of the error."""
        try:
            return await handler(event, data)
        except Exception:
            data["turn"].revert()
            raise

    async def _recovered(self, turn: Turn) -> None:
        """What a crash left behind, or what nobody in this process remembers."""
        assert self.bot is not None  # noqa: S101 - it is served only then
        update: Update = turn.event
        fed = self.dispatcher.feed_update(self.bot, update, **{**self.context, "turn": turn})
        await self.answered(self.bot, update, fed)

    async def answered(self, bot: Bot, update: Update, inside: Awaitable[Any]) -> None:
        """Run an update that nobody waits for: its answer is sent, its error is logged as aiogram does."""
        try:
            answer = await inside
            if isinstance(answer, TelegramMethod):
                await self.dispatcher.silent_call_request(bot, answer)
        except (SkipHandler, CancelHandler):
            return
        except Exception as error:
            loggers.event.exception(
                "Cause exception while process update id=%d by bot id=%d\n%s: %s",
                update.update_id, bot.id, type(error).__name__, error,
            )  # fmt: skip
            raise

    def _decode(self, payload: bytes) -> Update:
        return Update.model_validate_json(payload, context={"bot": self.bot})

    # -------------------------------------------------------------------------------------- start and stop

    def _meet(self, bot: Bot) -> None:
        """The bot of this keeper; another one's conversations would be taken for the same."""
        if self.bot is None:
            self.bot = bot
            self.keeper.serve(self._recovered, self._decode)
        elif self.bot.id != bot.id:
            raise ValueError(
                "a keeper keeps one bot's conversations: give each bot a dispatcher and a keeper"
            )

    async def _start(self, **context: Any) -> None:
        """Before all other startup handlers; what was left behind is run after all of them."""
        self.context = {name: value for name, value in context.items() if name not in _NOT_CONTEXT}
        bots = [*context.get("bots", ())]
        for webhook in self._webhooks(context.get("app")):
            self.context.update(webhook.data)
            bots.append(getattr(webhook, "bot", None))
            if webhook.handle_in_background:
                webhook.handle_in_background, webhook.data[_EARLY] = False, True
        self._bots = [bot for bot in [*bots, context.get("bot")] if bot is not None]
        if len({bot.id for bot in self._bots}) > 1:
            raise ValueError(
                "a keeper keeps one bot's conversations: give each bot a dispatcher and a keeper"
            )
        self.polling = "bots" in context
        if self.polling:
            self._bots[0].session.middleware.register(self._ask)
        if not self.keeper.running:
            await self.keeper.start()
            self._started = True
        last = [*self.dispatcher.chain_tail][-1]
        last.startup.register(self._begin)

    def _webhooks(self, app: Any) -> Iterator[Any]:
        if app is None:
            return
        from aiogram.webhook.aiohttp_server import BaseRequestHandler

        for route in app.router.routes():
            owner = getattr(route.handler, "__self__", None)
            if isinstance(owner, BaseRequestHandler) and owner.dispatcher is self.dispatcher:
                yield owner

    async def _begin(self) -> None:
        """Everything else has started: run what was left behind."""
        if self._bots and self.keeper.running:
            self._meet(self._bots[0])
            await self.keeper.sweep()

    async def _stop(self) -> None:
        """Before all other shutdown handlers, so that what runs can still use what they close."""
        if self.polling:
            self._bots[0].session.middleware.unregister(self._ask)
            self.polling = False
        if self._started:
            await self.keeper.stop()
        elif self.keeper.running:
            await self.keeper.idle(_LAST_GRACE)
