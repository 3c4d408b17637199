"""Key strategies: which conversation an event belongs to.

A strategy has one method, `extract(event)`, whose answer is the key, or None when the event belongs to no
conversation: the turn then runs with an empty record, and nothing is loaded or stored.

==================  =====================  =====================  ===========
strategy            key                    no user                no chat
==================  =====================  =====================  ===========
`ChatUser()`        (chat, user)           (chat, 0)              (0, user)
`User()`            (user,)                None                   (user,)
`Chat()`            (chat,)                (chat,)                None
`ChatTopic()`       (chat, thread)         (chat, thread)         None
`ChatTopicUser()`   (chat, thread, user)   (chat, thread, 0)      None
==================  =====================  =====================  ===========

A message outside a topic has thread 0. An update with neither chat nor user (`poll`) gives None, as does
what is no update. `hitherto.telegram` says what counts as chat, user and topic in each kind of update.

**Realms.** A key from a business chat, a guest message or a topic of a channel's direct messages starts
with one text element that names its realm: `("business:<connection id>", chat, user)`, `("guest", chat,
user)`, `("dm:<topic id>", chat, user)`. Ids are always ints, so these never equal the key of an ordinary
chat with the same id. This holds for `User()` too: who writes to a business account may not know that they
talk to the bot they also have a private chat with. To share one record all the same, give a function::

    Keeper("my_bot", key=lambda event: None if sender(event) is None else (sender(event),))

Both sides of a business chat write in it, each with their own id; `Chat()` gives them one conversation.

**Chat-less kinds.** Inline queries, payments, poll answers and the like have a user and no chat. With
`chatless="zero"`, the default, they are as in the table. `chatless="private"` joins them with the person's
private chat, whose id is the user's: `ChatUser(chatless="private")` gives (user, user). This includes
`business_connection`, which concerns the owner of the account. Who acts as a chat has no private chat; the
default then holds.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias, cast, runtime_checkable

from hitherto.addresses import Key, check_key
from hitherto.errors import BadKey
from hitherto.telegram import facts

__all__ = ["Chat", "ChatTopic", "ChatTopicUser", "ChatUser", "Strategy", "User", "as_strategy"]

Chatless: TypeAlias = Literal["zero", "private"]
_Dimensions: TypeAlias = tuple[int, ...] | None


@runtime_checkable
class Strategy(Protocol):
    """What makes keys: `extract` answers the key of an event, or None if it belongs to no conversation."""

    def extract(self, event: Any, /) -> Key:
        """The key of the event, or None; the same event always gives the same key."""
        ...


class _FromTelegram:
    """A strategy over the dimensions of a Telegram update; immutable, equal to its like."""

    __slots__ = ()

    def extract(self, event: object, /) -> tuple[int | str, ...] | None:
        """The key of a Telegram update, or None; never an exception."""
        found = facts(event)
        if found is None:
            return None
        chat, realm = found.chat, found.realm
        if chat is None and found.user is not None and found.user > 0 and self._is_private():
            chat, realm = found.user, ""
        dimensions = self._dimensions(chat, found.user, found.thread or 0)
        return (realm, *dimensions) if realm and dimensions else dimensions

    def _dimensions(self, chat: int | None, user: int | None, thread: int) -> _Dimensions:
        raise NotImplementedError

    def _is_private(self) -> bool:
        return False


@dataclass(frozen=True, slots=True, repr=False)
class _WithChat(_FromTelegram):
    chatless: Chatless = "zero"

    def __post_init__(self) -> None:
        if self.chatless not in ("zero", "private"):
            raise ValueError(f"chatless must be 'zero' or 'private', not {self.chatless!r}")

    def __repr__(self) -> str:
        changed = "" if self.chatless == "zero" else f"chatless={self.chatless!r}"
        return f"{type(self).__name__}({changed})"

    def _is_private(self) -> bool:
        return self.chatless == "private"


@dataclass(frozen=True, slots=True, repr=False)
class ChatUser(_WithChat):
    """Each person in each chat: `(chat, user)`. The default."""

    def _dimensions(self, chat: int | None, user: int | None, thread: int) -> _Dimensions:
        return None if chat is None and user is None else (chat or 0, user or 0)


@dataclass(frozen=True, slots=True)
class User(_FromTelegram):
    """Each person, wherever they are in a realm: `(user,)`."""

    def _dimensions(self, chat: int | None, user: int | None, thread: int) -> _Dimensions:
        return None if user is None else (user,)


@dataclass(frozen=True, slots=True, repr=False)
class Chat(_WithChat):
    """Each chat, shared by everybody in it: `(chat,)`."""

    def _dimensions(self, chat: int | None, user: int | None, thread: int) -> _Dimensions:
        return None if chat is None else (chat,)


@dataclass(frozen=True, slots=True, repr=False)
class ChatTopic(_WithChat):
    """Each topic of each chat, shared by everybody in it: `(chat, thread)`."""

    def _dimensions(self, chat: int | None, user: int | None, thread: int) -> _Dimensions:
        return None if chat is None else (chat, thread)


@dataclass(frozen=True, slots=True, repr=False)
class ChatTopicUser(_WithChat):
    """Each person in each topic of each chat: `(chat, thread, user)`."""

    def _dimensions(self, chat: int | None, user: int | None, thread: int) -> _Dimensions:
        return None if chat is None else (chat, thread, user or 0)


_BUILT_IN = (ChatUser, User, Chat, ChatTopic, ChatTopicUser)


@dataclass(frozen=True, slots=True)
class _Custom:
    """A strategy of the user's own, whose keys are checked before anybody relies on them."""

    given: Any
    function: Callable[[Any], Any]

    def extract(self, event: object, /) -> Key:
        """The key that the user's own strategy answers, in plain types; `BadKey` if it cannot be one."""
        key = self.function(event)
        if key is None:
            return None
        try:
            return check_key(key)
        except BadKey as error:
            raise BadKey(f"{_name(self.given)} answered what cannot be a key: {error}") from None

    def __repr__(self) -> str:
        return f"as_strategy({_name(self.given)})"


def as_strategy(given: Strategy | Callable[[Any], Key]) -> Strategy:
    """A key strategy from an object with `extract` or from a plain function of the event.

    The answers of the user's own are checked: text, a number or a tuple of such is a key, None is no
    conversation, anything else is `BadKey`. What is neither an object with `extract` nor a function is a
    `TypeError`.
    """
    if isinstance(given, type):
        raise TypeError(f"a key strategy is an object, not a class: write {given.__name__}()")
    if type(given) in (*_BUILT_IN, _Custom):
        return cast("Strategy", given)
    function = getattr(given, "extract", given)
    if not callable(function):
        raise TypeError(
            f"{type(given).__name__} is no key strategy: give ChatUser(), another of hitherto.keys, "
            "an object with extract(event), or a function of the event"
        )
    if any(inspect.iscoroutinefunction(one) for one in (function, type(function).__call__)):
        raise TypeError(f"{_name(given)} is async; a key is extracted without waiting: use a plain function")
    return _Custom(given, function)


def _name(given: Any) -> str:
    return str(getattr(given, "__qualname__", None) or type(given).__qualname__)
