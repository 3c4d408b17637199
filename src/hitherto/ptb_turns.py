"""The turn in python-telegram-bot: filters that ask about it, and contexts that have it.

While a keeper runs an update through the application, the turn is that of the running task, and of those it
starts; see :mod:`hitherto.ptb`. Filters ask where the update found the conversation: what a handler of one
group does to the turn does not make the same update fit a handler of a later group.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, TypeAlias

from hitherto import filters as questions
from hitherto.adapting import Condition, all_of
from hitherto.errors import MissingExtra
from hitherto.flows import Flow, State
from hitherto.turns import Turn

try:
    from telegram import Update
    from telegram.ext import Application, BaseHandler, CallbackContext, ExtBot
    from telegram.ext.filters import UpdateFilter
except ImportError as missing:
    raise MissingExtra("hitherto.ptb", "ptb") from missing

__all__ = ["Context", "DataIs", "InFlow", "InState", "Inside", "NoFlow", "When", "WithTurn", "inside_now"]

App: TypeAlias = "Application[Any, Any, Any, Any, Any, Any]"


class Inside:
    """The turn that runs, with what the application does about it."""

    def __init__(self, turn: Turn) -> None:
        self.turn, self.before = turn, turn.as_it_began()
        self.tasks: dict[object, asyncio.Task[Any]] = {}
        self.error: Exception | None = None

    async def ended(self) -> None:
        """Wait for the handlers that were started with ``block=False``."""
        while running := [task for task in self.tasks.values() if not task.done()]:
            await asyncio.wait(running)


inside_now: ContextVar[Inside | None] = ContextVar("hitherto_inside", default=None)


def _inside(what: str) -> Inside:
    inside = inside_now.get()
    if inside is None:
        raise TypeError(f"{what} was asked without a turn: attach(application, keeper) first; jobs have none")
    return inside


class _Asks(UpdateFilter):
    """A question about the turn, as a filter of messages; called with a turn it answers for any update."""

    __slots__ = ("_question",)

    def __init__(self, question: Callable[[Turn], bool]) -> None:
        super().__init__()
        self._question = question

    def __call__(self, turn: Turn) -> bool:
        return self._question(turn)

    def filter(self, update: Update) -> bool:
        """Asked by PTB."""
        return self._question(_inside(self.name).before)


class InFlow(_Asks):
    """In one of these flows; without any named, in any flow at all."""

    __slots__ = ()

    def __init__(self, *flows: type[Flow]) -> None:
        super().__init__(questions.InFlow(*flows))


class InState(_Asks):
    """In one of these states."""

    __slots__ = ()

    def __init__(self, *states: State) -> None:
        super().__init__(questions.InState(*states))


class NoFlow(_Asks):
    """In no flow."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(questions.NoFlow())


class DataIs(_Asks):
    """The data holds these values under these keys."""

    __slots__ = ()

    def __init__(self, **values: Any) -> None:
        super().__init__(questions.DataIs(**values))


class When(BaseHandler[Update, Any, Any]):
    """A handler of any kind, where all conditions hold: for buttons and other updates that take no filters.

    ``When(CallbackQueryHandler(size, "large|small"), Signup.ask_size)``: a condition is a state, a flow, one
    of the filters here, or a function of the turn.
    """

    __slots__ = ("_handler", "_holds")

    def __init__(
        self, handler: BaseHandler[Any, Any, Any], *conditions: Condition | State | type[Flow]
    ) -> None:
        super().__init__(handler.callback, handler.block)
        self._handler, self._holds = handler, all_of(conditions)

    def check_update(self, update: object) -> Any:
        """Asked by PTB."""
        if not isinstance(update, Update) or not self._holds(_inside(type(self).__name__).before):
            return None
        return self._handler.check_update(update)

    async def handle_update(self, update: Update, application: App, check_result: Any, context: Any) -> Any:
        """Called by PTB."""
        return await self._handler.handle_update(update, application, check_result, context)


class WithTurn:
    """What is added to the application's class of contexts."""

    __slots__ = ()

    @property
    def turn(self) -> Turn:
        """The turn of the update that is handled."""
        return _inside("context.turn").turn


class Context(WithTurn, CallbackContext[ExtBot[None], dict[Any, Any], dict[Any, Any], dict[Any, Any]]):
    """A context with a turn, to annotate handlers with."""

    __slots__ = ()
