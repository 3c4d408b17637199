"""What the adapters share: places on platforms other than Telegram, conditions on a turn, and who runs what a
crash left behind.

A place is read from an event by whoever knows the platform; the key strategies then mean the same everywhere:

==================  ==============================
strategy            key
==================  ==============================
`ChatUser()`        (realm, channel, thread, user)
`ChatTopicUser()`   (realm, channel, thread, user)
`ChatTopic()`       (realm, channel, thread)
`Chat()`            (realm, channel)
`User()`            (realm, user)
==================  ==============================

`ChatUser()`, the default, tells threads apart here: a thread is where a conversation takes place. A part that
is missing is 0; without the one part a strategy is about, the event belongs to no conversation.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, NamedTuple, TypeAlias

from hitherto.addresses import Key
from hitherto.filters import InFlow, InState
from hitherto.flows import Flow, State
from hitherto.keeper import Keeper
from hitherto.keys import Chat, ChatTopic, ChatTopicUser, ChatUser, Strategy, User
from hitherto.turns import Turn

Condition: TypeAlias = Callable[[Turn], bool]
Mine: TypeAlias = Callable[[Any], bool]
Handler: TypeAlias = Callable[[Turn], Awaitable[object]]
Part: TypeAlias = str | int | None

_THREADED = (ChatUser, ChatTopicUser)
_WHAT = "a condition is a state, a flow, a filter or a function of the turn"
_INNER = ("message", "item", "container", "assistant_thread", "previous_message")
_OURS = (*_THREADED, ChatTopic, Chat, User)


class Place(NamedTuple):
    """Where something was said, and by whom; None is what the event does not say."""

    realm: str
    channel: Part = None
    thread: Part = None
    user: Part = None


def key_of(strategy: Strategy, event: Any, place: Place | None) -> Key:
    """The key of an event by a strategy: ours read the place, one of the user's own reads the event."""
    if not isinstance(strategy, _OURS):
        return strategy.extract(event)
    if place is None:
        return None
    realm, channel, thread, user = place
    if isinstance(strategy, User):
        return None if user is None else (realm, user)
    if isinstance(strategy, _THREADED):
        return None if channel is None and user is None else (realm, channel or 0, thread or 0, user or 0)
    if channel is None:
        return None
    return (realm, channel) if isinstance(strategy, Chat) else (realm, channel, thread or 0)


def split_state(text: str) -> tuple[str | None, str]:
    """The flow and state that a framework's ``Group:name`` stands for; no group: a state of no flow."""
    flow, _, name = text.rpartition(":")
    return (flow, name) if flow and name else (None, text)


def join_state(flow: str | None, state: str | None) -> str | None:
    """The text that :func:`split_state` was given."""
    return state if flow is None or state is None else f"{flow}:{state}"


def condition(given: Condition | State | type[Flow]) -> Condition:
    """A question about a turn: a filter or a function as it is, a state or a flow as being in it."""
    if isinstance(given, State):
        return InState(given)
    if isinstance(given, type):
        if not issubclass(given, Flow):
            raise TypeError(f"{given.__name__} is no flow; {_WHAT}")
        return InFlow(given)
    if not callable(given):
        raise TypeError(f"{given!r} is no condition; {_WHAT}")
    return given


def all_of(given: Iterable[Condition | State | type[Flow]]) -> Condition:
    """Every condition holds."""
    conditions = [condition(one) for one in given]
    return lambda turn: all(one(turn) for one in conditions)


class Recovered:
    """The handler of a keeper that several adapters share: events go back to whom they came through."""

    def __init__(self) -> None:
        self._routes: list[tuple[Mine, Handler]] = []

    def add(self, mine: Mine, handler: Handler) -> None:
        """Events that *mine* knows are this handler's, unless one that was added before knows them too."""
        self._routes.append((mine, handler))

    async def __call__(self, turn: Turn) -> None:
        for mine, handler in self._routes:
            if mine(turn.event):
                await handler(turn)
                return
        raise LookupError("an event was left behind that none of this keeper's adapters knows")


def recover(keeper: Keeper, mine: Mine, handler: Handler) -> None:
    """Have *handler* run what was left behind of *mine*; a handler that the keeper was given goes first."""
    runner = keeper._runner
    if runner.handler is None:
        keeper.serve(Recovered(), runner.remembered.decode)
    if isinstance(runner.handler, Recovered):
        runner.handler.add(mine, handler)


# ------------------------------------------------------------------------------------------------- Slack


def slack_place(body: Any) -> Place | None:
    """Where a Slack payload comes from: an event, action, view, shortcut or command; None if it is none."""
    if not isinstance(body, dict):
        return None
    event = body.get("event")
    teams = (
        body.get("team_id"),
        _id(body.get("team")),
        body.get("enterprise_id"),
        _id(body.get("enterprise")),
    )
    return Place(f"slack:{_first(*teams) or ''}", *_where(event if isinstance(event, dict) else body))


def _where(body: dict[str, Any]) -> tuple[Part, Part, Part]:
    """Channel, thread and user: the payload's own, else those of what it is about."""
    parts = [body, *(part for name in _INNER if isinstance(part := body.get(name), dict))]
    channels = (one for part in parts for one in (part.get("channel_id"), _id(part.get("channel"))))
    users = (one for part in parts for one in (part.get("user_id"), _id(part.get("user"))))
    threads = (part.get("thread_ts") for part in parts)
    return _first(*channels), _first(*threads), _first(*users, body.get("bot_id"))


def _id(thing: Any) -> Any:
    return thing.get("id") if isinstance(thing, dict) else thing


def _first(*found: Any) -> str | None:
    return next((one for one in found if isinstance(one, str) and one), None)
