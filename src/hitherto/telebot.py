"""pyTelegramBotAPI on a keeper, and its state storage on any store; ``TeleBot`` and ``AsyncTeleBot`` alike.

::

    bot = TeleBot(TOKEN, use_class_middlewares=True)
    attach(bot, keeper)                              # a hitherto.sync.Keeper; AsyncTeleBot: a hitherto.Keeper

    @bot.message_handler(state=Signup.ask_name)      # or when=[InFlow(Signup), DataIs(size="large")]
    def name(message, turn: Turn):
        turn.update_data(name=message.text)
        turn.transition(Signup.ask_email)

Every update goes to the keeper first and through telebot's middlewares and handlers when it is its turn.
Polling confirms an update only when it is accepted, and then goes on; updates of a webhook, and all updates
of a bot with ``threaded=False``, are handled when ``process_new_updates`` returns. A handler that raises
changes nothing and is tried again, unless the bot's exception handler took care of the error. The keeper is
started and stopped by whoever made it.

Bots that use telebot's own states may keep their handlers as they are, with a storage from here::

    bot = TeleBot(TOKEN, state_storage=HithertoStorage("sqlite:///bot.db"))          # AsyncHithertoStorage

``with bot.retrieve_data(...)`` writes what the block changed, not the whole: other changes are not lost.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from functools import partial
from typing import Any, ClassVar, Final

from hitherto import sync
from hitherto.adapting import all_of, recover
from hitherto.errors import MissingExtra
from hitherto.filters import DataIs, InFlow, InState, NoFlow
from hitherto.flows import State
from hitherto.keeper import Keeper
from hitherto.outcomes import Outcome
from hitherto.turns import Turn

try:
    from telebot import TeleBot, asyncio_filters, custom_filters, types, util
    from telebot.async_telebot import AsyncTeleBot

    from hitherto.telebot_polling import Held, NotAccepted, check
    from hitherto.telebot_storage import AsyncHithertoStorage, HithertoStorage, dump, key_of
except ImportError as missing:
    raise MissingExtra("hitherto.telebot", "telebot") from missing

__all__ = [
    "AsyncHithertoStorage", "DataIs", "HithertoStorage", "InFlow", "InState", "NoFlow", "NotAccepted",
    "attach", "key_of",
]  # fmt: skip

_PAUSE: Final = 0.1
_log = logging.getLogger("hitherto")
_now: ContextVar[_Feed | None] = ContextVar("hitherto_telebot", default=None)
"""The update that runs in this thread or task."""


def attach(bot: TeleBot | AsyncTeleBot, keeper: sync.Keeper | Keeper) -> None:
    """Have every update of *bot* handled by *keeper*: see the module's docstring."""
    given: Any = bot
    if "process_new_updates" in vars(given):
        raise ValueError("this bot has a keeper already")
    if isinstance(bot, AsyncTeleBot):
        if not isinstance(keeper, Keeper):
            raise TypeError("keeper: an AsyncTeleBot takes a hitherto.Keeper")
        _Async(given, keeper)
        return
    if not isinstance(keeper, sync.Keeper):
        raise TypeError("keeper: a TeleBot takes a hitherto.sync.Keeper")
    if not bot.use_class_middlewares:
        raise ValueError("handlers cannot be given a turn: make the bot with use_class_middlewares=True")
    _Sync(given, keeper)


class _Feed:
    """One update on its way through the keeper and the bot."""

    def __init__(self, turn: Turn, update: types.Update | None, feeds: list[_Feed]) -> None:
        self.turn, self._update = turn, update
        self.error: Exception | None = None
        feeds.append(self)

    def update(self) -> Any:
        """What the bot gets: the update that came here, or what another process had accepted."""
        kind: Any = types.Update
        return kind.de_json(self.turn.event) if self._update is None else self._update

    def failed(self, error: Exception, handled: bool) -> None:
        """Its handler raised: nothing is changed, and the keeper hears of it unless it was taken care of."""
        self.turn.revert()
        self.error = None if handled else error

    def end(self) -> None:
        """It was run."""
        if self.error is not None:
            raise self.error


def _asynchronous(function: Callable[..., object]) -> Any:
    async def call(*given: Any) -> object:
        return function(*given)

    return call


class _Turns:
    """A middleware of telebot's that gives handlers their turn."""

    update_sensitive = False
    update_types: ClassVar[list[str]] = util.update_types

    def pre_process(self, message: Any, data: dict[str, Any]) -> None:
        feed = _now.get()
        if feed is not None:
            data["turn"] = feed.turn

    def post_process(self, *_: Any) -> None:
        """Nothing."""


class _AsyncTurns(_Turns):
    """The same for AsyncTeleBot."""

    pre_process = _asynchronous(_Turns.pre_process)
    post_process = _asynchronous(_Turns.post_process)


def _holds(given: Any) -> bool:
    """Whether a filter of a handler holds: of a list of states any, of other conditions all."""
    feed = _now.get()
    if feed is None:
        raise TypeError("a filter was asked without a turn: the update came past the keeper")
    several: list[Any] = list(given) if isinstance(given, list | tuple) else [given]
    states = [one for one in several if isinstance(one, State)]
    return InState(*states)(feed.turn) if states and states == several else all_of(several)(feed.turn)


def _filter(base: type[Any], key: str) -> Any:
    """A custom filter of telebot's by the name *key*."""
    check: Any = lambda self, message, given: _holds(given)  # noqa: E731
    if base is asyncio_filters.AdvancedCustomFilter:
        check = _asynchronous(check)
    return type("Filter", (base,), {"key": key, "check": check})()


def _install(bot: Any, middleware: Any, base: type[Any], **methods: Callable[..., Any]) -> None:
    bot.middlewares.insert(0, middleware)
    for key in ("when", "state"):
        if key not in bot.custom_filters:
            bot.add_custom_filter(_filter(base, key))
    for name, method in methods.items():
        setattr(bot, name, method)


def _is_ours(event: Any) -> bool:
    return isinstance(event, dict) and "update_id" in event


class _Sync:
    """A TeleBot whose updates are handled by a keeper."""

    def __init__(self, bot: Any, keeper: sync.Keeper) -> None:
        self.bot, self.keeper, self.held = bot, keeper, Held()
        self._process, self._get = bot.process_new_updates, bot.get_updates
        self._exec, self._excepted = bot._exec_task, bot._handle_exception
        _install(
            bot, _Turns(), custom_filters.AdvancedCustomFilter, process_new_updates=self.process,
            get_updates=self.poll, _exec_task=self.execute, _handle_exception=self.excepted,
        )  # fmt: skip
        keeper.recover(_is_ours, self.run)

    def poll(self, offset: int | None = None, *given: Any, **named: Any) -> list[types.Update]:
        """``get_updates``, which asks again for what was not accepted."""
        held = self.held.take()
        if held is not None:
            time.sleep(_PAUSE)
            offset = held
        updates: list[types.Update] = self._get(offset, *given, **named)
        self.held.polled = {update.update_id for update in updates}
        return updates

    def process(self, updates: list[types.Update]) -> None:
        """``process_new_updates``: into the keeper, in order."""
        if not self.held.knows(updates):
            for update in updates:
                check(self._handled(update))
            return
        self.held.refused.clear()
        for update in updates:
            event = dump(update)
            if self.held.comes_before(event, self.keeper):
                continue
            try:
                if self.bot.threaded:
                    outcome = self.keeper.accept(event, partial(self.run, update=update))
                else:
                    outcome = self._handled(update)
            except BaseException:
                self.held.hold(event)
                raise
            if not outcome.accepted:
                self.held.hold(event, self.keeper)
            self.bot.last_update_id = max(self.bot.last_update_id, update.update_id)

    def _handled(self, update: types.Update) -> Outcome:
        feeds: list[_Feed] = []
        try:
            return self.keeper.handle(dump(update), partial(self.run, update=update, feeds=feeds))
        except Exception as error:
            if not any(error is feed.error for feed in feeds):
                raise
            return Outcome("failed")  # telebot has told whoever looks after it

    def run(self, turn: Turn, update: types.Update | None = None, feeds: list[_Feed] | None = None) -> None:
        """The turn of an update: telebot's own way with it, in this thread."""
        feed = _Feed(turn, update, [] if feeds is None else feeds)
        token = _now.set(feed)
        try:
            self._process([feed.update()])
        finally:
            _now.reset(token)
        feed.end()

    def execute(self, task: Callable[..., object], *given: Any, **named: Any) -> None:
        """``_exec_task``: inside a turn at once."""
        if _now.get() is None:
            self._exec(task, *given, **named)
            return
        try:
            task(*given, **named)
        except Exception as error:
            if not self.bot._handle_exception(error):
                raise

    def excepted(self, error: Exception) -> bool:
        """``_handle_exception``: the turn hears of it too."""
        handled, feed = bool(self._excepted(error)), _now.get()
        if feed is not None:
            feed.failed(error, handled)
        return handled


class _Async:
    """An AsyncTeleBot whose updates are handled by a keeper."""

    def __init__(self, bot: Any, keeper: Keeper) -> None:
        self.bot, self.keeper, self.held = bot, keeper, Held()
        self._door = asyncio.Lock()
        self._process, self._get = bot.process_new_updates, bot.get_updates
        self._excepted: Callable[[Exception], Awaitable[bool]] = bot._handle_exception
        _install(
            bot, _AsyncTurns(), asyncio_filters.AdvancedCustomFilter, process_new_updates=self.process,
            get_updates=self.poll, _handle_exception=self.excepted,
        )  # fmt: skip
        recover(keeper, _is_ours, self.run)

    async def poll(self, offset: int | None = None, *given: Any, **named: Any) -> list[types.Update]:
        """``get_updates``, which confirms the last ones: they are accepted first, or asked for again."""
        await asyncio.sleep(0)  # the task that was made for them comes to the door first
        async with self._door:
            held = self.held.take()
        if held is not None:
            await asyncio.sleep(_PAUSE)
            offset = held
        updates: list[types.Update] = await self._get(offset, *given, **named)
        self.held.polled = {update.update_id for update in updates}
        return updates

    async def process(self, updates: list[types.Update]) -> None:
        """``process_new_updates``: into the keeper, in order."""
        if not self.held.knows(updates):
            for update in updates:
                check(await self._handled(update))
            return
        async with self._door:
            self.held.refused.clear()
            for update in updates:
                event = dump(update)
                if self.held.comes_before(event, self.keeper):
                    continue
                try:
                    outcome = await self.keeper.accept(event, partial(self.run, update=update))
                except Exception as error:  # noqa: BLE001 - nobody waits for this task
                    self.held.hold(event)
                    _log.warning("polling.later error=%s", type(error).__name__)
                    return
                if not outcome.accepted:
                    self.held.hold(event, self.keeper)

    async def _handled(self, update: types.Update) -> Outcome:
        feeds: list[_Feed] = []
        try:
            return await self.keeper.handle(dump(update), partial(self.run, update=update, feeds=feeds))
        except Exception as error:
            if not any(error is feed.error for feed in feeds):
                raise
            return Outcome("failed")  # telebot has told whoever looks after it

    async def run(
        self, turn: Turn, update: types.Update | None = None, feeds: list[_Feed] | None = None
    ) -> None:
        """The turn of an update: telebot's own way with it."""
        feed = _Feed(turn, update, [] if feeds is None else feeds)
        token = _now.set(feed)
        try:
            await self._process([feed.update()])
        finally:
            _now.reset(token)
        feed.end()

    async def excepted(self, error: Exception) -> bool:
        """``_handle_exception``: the turn hears of it too."""
        handled, feed = bool(await self._excepted(error)), _now.get()
        if feed is not None:
            feed.failed(error, handled)
        return handled
