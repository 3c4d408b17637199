"""python-telegram-bot on a keeper: the turn is ``context.turn``, states are filters, the accepted is handled.

    application = Application.builder().token(TOKEN).build()
    attach(application, Keeper("my_bot", "sqlite:///my_bot.db", [Signup]))

    async def name(update: Update, context: Context) -> None:
        context.turn.update_data(name=update.message.text)
        context.turn.transition(Signup.ask_email)

    application.add_handler(MessageHandler(filters.TEXT & InState(Signup.ask_name), name))

Every update goes to the keeper first, and through the application with all its groups when it is its turn: at
once, after those that wait before it, or in another process after a crash.

* Polling confirms an update only when the keeper has accepted it; what is refused is asked for again.
  Webhooks, PTB's own and those that put updates into ``application.update_queue``, answer when ``put``
  returns: it is accepted then; ``put`` raises if it is not. ``application.process_update(update)`` returns
  when it is settled.
* A handler that raises changes nothing and ends its update, in all groups. The error handlers hear of it,
  with the turn; one that raises ``ApplicationHandlerStop`` has taken care of it, and what it did to the turn
  is committed. Otherwise the keeper's ``on_error`` says what becomes of the update: it is tried again.
* Filters ask where the update found the conversation, whatever a handler of an earlier group has done.
* Handlers with ``block=False`` belong to the turn, which ends when they have ended. Tasks of
  ``application.create_task`` do not.
* Without ``concurrent_updates`` one handler runs at a time, as ever; with it, one for each conversation.
* The keeper is started and stopped with the application, unless you started it yourself.

For bots that use ``context.user_data`` and should stay as they are there is :class:`HithertoPersistence`.
"""

from __future__ import annotations

import asyncio
import logging
import types
from collections.abc import Awaitable, Coroutine
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import msgspec

from hitherto.door import Door, Place
from hitherto.errors import HithertoError, KeeperClosed, MissingExtra, NotStarted, StoreError
from hitherto.keeper import Keeper
from hitherto.outcomes import Outcome
from hitherto.turns import Turn

try:
    from telegram import Bot, Update
    from telegram.ext import Application, ContextTypes
except ImportError as missing:
    raise MissingExtra("hitherto.ptb", "ptb") from missing

from hitherto.ptb_persistence import HithertoPersistence
from hitherto.ptb_turns import (
    App,
    Context,
    DataIs,
    InFlow,
    Inside,
    InState,
    NoFlow,
    When,
    WithTurn,
    inside_now,
)  # fmt: skip

__all__ = [
    "Context", "DataIs", "HithertoPersistence", "InFlow", "InState", "NoFlow", "NotAccepted", "When", "attach"
]  # fmt: skip

if TYPE_CHECKING:
    _Application: TypeAlias = Application[Any, Any, Any, Any, Any, Any]
    _Bot: TypeAlias = Bot
else:
    # a class may take another's place if it adds nothing: these come before it, not between it and its base
    _Application = _Bot = object

_T = TypeVar("_T")
_A = TypeVar("_A", bound=App)
_NOT_BLOCKING = "non_blocking"
_LAST_GRACE = 10.0
_log = logging.getLogger("hitherto")


class NotAccepted(HithertoError):
    """The conversation is busy or full, and the overlap policy refuses the update: it has to come again."""


_PASSING = (StoreError, OSError, KeeperClosed, NotStarted, NotAccepted)


def attach(application: _A, keeper: Keeper) -> _A:
    """Have every update of *application* handled by *keeper*, and give it back: see the module."""
    if isinstance(application, _Kept):
        raise ValueError("this application has a keeper already")
    if getattr(application.bot, "callback_data_cache", None) is not None:
        raise ValueError(
            "arbitrary_callback_data: its buttons carry objects of this process, which cannot be kept; "
            "give buttons text, and put what it means into turn.data"
        )
    Attached(application, keeper)
    return application


class _Kept(_Application):
    """An application whose updates are handled by a keeper."""

    __slots__ = ()
    attached: Attached

    async def initialize(self) -> None:
        await super().initialize()
        await self.attached.open()

    async def start(self) -> None:
        await super().start()
        await self.attached.begin()

    async def stop(self) -> None:
        if self.running:
            await self.attached.close()
        await super().stop()

    async def shutdown(self) -> None:
        if not self.running:
            await self.attached.close()
        await super().shutdown()

    async def process_update(self, update: object) -> None:
        inside = inside_now.get()
        if not isinstance(update, Update) or (inside is not None and inside.turn.event is update):
            await super().process_update(update)
        else:
            await self.attached.handle(update)

    async def process_error(
        self, update: object, error: Exception, job: Any = None, coroutine: Any = None
    ) -> bool:
        inside = inside_now.get()
        if inside is None or inside.turn.event is not update or job is not None:
            return await super().process_error(update, error, job, coroutine)
        if coroutine is not None and coroutine not in inside.tasks:
            return await super().process_error(update, error, job, coroutine)
        inside.turn.revert()
        if not await super().process_error(update, error, job, coroutine):
            inside.error = inside.error or error
        return True

    def create_task(
        self, coroutine: Any, update: object = None, *, name: str | None = None
    ) -> asyncio.Task[Any]:
        task = super().create_task(coroutine, update, name=name)
        inside = inside_now.get()
        if inside is not None and inside.turn.event is update and _NOT_BLOCKING in (name or ""):
            inside.tasks[coroutine] = task
        return task


class _Asking(_Bot):
    """A bot that confirms only updates which are accepted."""

    __slots__ = ()
    attached: Attached

    async def get_updates(self, offset: int | None = None, *given: Any, **named: Any) -> tuple[Update, ...]:
        def request(offset: int | None) -> Coroutine[Any, Any, tuple[Update, ...]]:
            return super(_Asking, self).get_updates(offset, *given, **named)

        self.attached.polled = await self.attached.door.ask(offset, request)
        return self.attached.polled


class _Line(asyncio.Queue[Any]):
    """The application's queue, in which no update waits unaccepted."""

    attached: Attached

    async def put(self, item: Any) -> None:
        if isinstance(item, Update):
            await self.attached.take(item)
        else:
            await super().put(item)

    def put_nowait(self, item: Any) -> None:
        if isinstance(item, Update):
            self.attached.take_later(item)
        else:
            super().put_nowait(item)


class Attached:
    """An application, its bot and its queue, which become ours where they are: others hold on to them."""

    def __init__(self, application: App, keeper: Keeper) -> None:
        self.application, self.keeper, self.door = application, keeper, Door()
        self.polled: tuple[Update, ...] = ()
        self._started, self._serving, self._running = False, False, asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        keeper.serve(None, self._decode)
        kinds = application.context_types
        if not issubclass(kinds.context, WithTurn):
            context = _mixed(WithTurn, kinds.context)
            application.context_types = ContextTypes(
                context, kinds.bot_data, kinds.chat_data, kinds.user_data
            )  # fmt: skip
        _become(application, _Kept, self)
        _become(application.bot, _Asking, self)
        _become(application.update_queue, _Line, self)

    def _decode(self, payload: bytes) -> Update:
        return Update.de_json(msgspec.json.decode(payload), self.application.bot)

    # ------------------------------------------------------------------------------------ into the keeper

    async def handle(self, update: Update) -> None:
        """The whole turn of an update that somebody feeds to the application."""
        known: list[BaseException] = []

        async def run(turn: Turn) -> None:
            try:
                await self._within(turn, self.application.process_update(turn.event))
            except BaseException as error:
                known.append(error)
                raise

        self._serve()
        try:
            _check(await self.keeper.handle(update, run))
        except Exception as error:
            if error not in known:
                raise

    async def take(self, update: Update) -> None:
        """An update of the queue is accepted when this returns, or raises.

        One that was polled is accepted before the next request, or asked for again.
        """
        if any(update is one for one in self.polled):
            self.take_later(update, polled=True)
        else:
            await self._enter(update, self._come(update))

    def take_later(self, update: Update, polled: bool = False) -> None:
        """Accept it as soon as can be."""
        task = asyncio.get_running_loop().create_task(self._enter_later(update, self._come(update), polled))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _come(self, update: Update) -> Place:
        try:
            return self.door.come(self.keeper.strategy.extract(update))
        except Exception:  # noqa: BLE001 - the keeper will raise it again, where somebody hears of it
            return self.door.come(None)

    async def _enter_later(self, update: Update, place: Place, polled: bool) -> None:
        try:
            await self._enter(update, place)
        except _PASSING as error:
            if not polled:
                await self.application.process_error(update, error)
                return
            self.door.hold(update.update_id)
            _log.warning("ptb.not_accepted error=%s: it is asked for again", type(error).__name__)

    async def _enter(self, update: Update, place: Place) -> None:
        try:
            await place.reached()
            _check(await self.keeper.accept(update, self.run))
        except _PASSING:
            raise
        except Exception as error:  # noqa: BLE001 - it can never be accepted, however often it comes
            await self.application.process_error(update, error)
        finally:
            self.door.leave(place)

    async def run(self, turn: Turn) -> None:
        """The turn of an update that was queued, as soon as the application runs."""
        await self._running.wait()
        await self.recovered(turn)

    async def recovered(self, turn: Turn) -> None:
        """Through the application, as its processor of updates wants it; also what a crash left behind."""
        work = self.application.process_update(turn.event)
        await self._within(turn, self.application.update_processor.process_update(turn.event, work))

    async def _within(self, turn: Turn, work: Awaitable[None]) -> None:
        inside = Inside(turn)
        token = inside_now.set(inside)
        try:
            await work
            await inside.ended()
        finally:
            inside_now.reset(token)
            for task in inside.tasks.values():
                task.cancel()
        if inside.error is not None:
            raise inside.error

    # -------------------------------------------------------------------------------------- start and stop

    def _serve(self) -> None:
        """From now on, what a crash left behind is run here."""
        if not self._serving:
            self._serving = True
            self.keeper.serve(self.recovered, self._decode)

    async def open(self) -> None:
        """The application is initialized: updates can be accepted."""
        if not self.keeper.running:
            await self.keeper.start()
            self._started = True

    async def begin(self) -> None:
        """The application runs: so do the turns, those first that were left behind."""
        self._running.set()
        self._serve()
        await self.keeper.sweep()

    async def close(self) -> None:
        """Before the application stops: what runs can still use it."""
        if self._started:
            await self.keeper.stop()
        elif self.keeper.running:
            await self.keeper.idle(_LAST_GRACE)
            self.keeper.serve(None, self._decode)
        self._running.clear()
        self._serving = False


def _check(outcome: Outcome) -> None:
    if not outcome.accepted:
        raise NotAccepted(f"the conversation is {outcome.status}: the update was not accepted")


def _mixed(mixin: type[Any], kind: type[_T], **given: Any) -> type[_T]:
    """*kind* with *mixin* before it, under its own name."""
    given |= {"__slots__": (), "__module__": kind.__module__, "__qualname__": kind.__qualname__}
    return types.new_class(kind.__name__, (mixin, kind), {}, lambda space: space.update(given))


def _become(thing: object, mixin: type[Any], attached: Attached) -> None:
    """Change what a thing is, where it is: others hold on to it already."""
    object.__setattr__(thing, "__class__", _mixed(mixin, type(thing), attached=attached))
