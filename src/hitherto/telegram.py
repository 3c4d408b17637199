"""Telegram updates, read without any framework: one table says for every kind where chat, user and topic are.

`facts(event)` understands plain dicts and the update objects of aiogram, python-telegram-bot and whatever
else has the Bot API's names as attributes (`from` may be called `from_user`). It never raises: what is not
an update, or is of a kind that the table does not know, gives None, and a part that is missing or of the
wrong type is missing. The table covers Bot API 10.3 (27 kinds). Where Telegram leaves a choice, we made it
so:

* A topic is one only if Telegram says so (`is_topic_message`, in groups and private chats alike): replies
  in an ordinary supergroup also carry a `message_thread_id`. A button press has the topic of its message,
  as long as that is accessible. `stopped_message_generation` has its thread without the flag, as drafts
  know no other threads.
* Realms: a message of a business connection is in `business:<connection id>`, a guest message
  (`guest_query_id`) in `guest`, a message in a channel's direct messages in `dm:<topic id>` (`dm:0` if the
  topic is not told); everything else is in the ordinary realm, which is empty. Telegram warns that chats
  of different realms may share an id.
* Somebody who acts as a chat (an anonymous administrator, a channel) is that chat: `sender_chat`,
  `actor_chat`, `voter_chat`. The fake users that stand beside it are nobody: GroupAnonymousBot without a
  `sender_chat`, as in `chat_member`, is the chat itself, Channel_Bot and the user 777000 are missing.
* A channel post has no user unless `from` tells one; its `sender_chat` is only the channel again.
* `chat_member` and `my_chat_member` have the user who made the change, not the one it is about.
* `chat_join_request` is about the group, though the talk that follows may be private.
* `stopped_message_generation` names no user; in a private chat that is the person whose chat it is.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

import msgspec

from hitherto.errors import BadEvent

__all__ = ["KINDS", "Facts", "event_id", "facts", "media_group", "sender", "update_json"]

_Path: TypeAlias = tuple[str, ...]
_encode = msgspec.json.Encoder().encode

_GROUP_ANONYMOUS = 1087968824
_CHANNEL_BOT = 136817688
_SERVICE = 777000
_FAKE_USERS = frozenset({_GROUP_ANONYMOUS, _CHANNEL_BOT, _SERVICE})


class Facts(msgspec.Struct, frozen=True, gc=False):
    """What one update says about the conversation it belongs to; None is what it does not say.

    `user` is who acts: a user's id, or the (negative) id of the chat they act as. `realm` is empty for
    ordinary chats, otherwise `business:<connection id>`, `guest` or `dm:<topic id>`.
    """

    kind: str
    update_id: int | None = None
    chat: int | None = None
    user: int | None = None
    thread: int | None = None
    realm: str = ""
    chat_type: str | None = None
    media_group_id: str | None = None


class _Row(NamedTuple):
    """Where one kind of update has its parts, as paths from its body.

    `actors` are tried in turn; `message` is the path of the message that tells topic, realm and album.
    """

    kind: str
    chat: _Path | None
    actors: tuple[_Path, ...]
    message: _Path | None = None
    realm: str = ""
    connection: str = "business_connection_id"
    draft: bool = False


_DICTS = (dict, MappingProxyType)
_CHAT: _Path = ("chat",)
_FROM: tuple[_Path, ...] = (("from",),)
_USER: tuple[_Path, ...] = (("user",),)
_SENDER: tuple[_Path, ...] = (("sender_chat",), ("from",))

_TABLE = (
    _Row("message", _CHAT, _SENDER, message=()),
    _Row("callback_query", ("message", "chat"), _FROM, message=("message",)),
    _Row("edited_message", _CHAT, _SENDER, message=()),
    _Row("channel_post", _CHAT, _FROM, message=()),
    _Row("edited_channel_post", _CHAT, _FROM, message=()),
    _Row("business_connection", None, _USER, message=(), realm="business:", connection="id"),
    _Row("business_message", _CHAT, _SENDER, message=(), realm="business:"),
    _Row("edited_business_message", _CHAT, _SENDER, message=(), realm="business:"),
    _Row("deleted_business_messages", _CHAT, (), message=(), realm="business:"),
    _Row("guest_message", _CHAT, _SENDER, message=(), realm="guest"),
    _Row("message_reaction", _CHAT, (("actor_chat",), ("user",))),
    _Row("message_reaction_count", _CHAT, ()),
    _Row("inline_query", None, _FROM),
    _Row("chosen_inline_result", None, _FROM),
    _Row("shipping_query", None, _FROM),
    _Row("pre_checkout_query", None, _FROM),
    _Row("purchased_paid_media", None, _FROM),
    _Row("poll", None, ()),
    _Row("poll_answer", None, (("voter_chat",), ("user",))),
    _Row("my_chat_member", _CHAT, _FROM),
    _Row("chat_member", _CHAT, _FROM),
    _Row("chat_join_request", _CHAT, _FROM),
    _Row("chat_boost", _CHAT, (("boost", "source", "user"),)),
    _Row("removed_chat_boost", _CHAT, (("source", "user"),)),
    _Row("managed_bot", None, _USER),
    _Row("subscription", None, _USER),
    _Row("stopped_message_generation", _CHAT, (), draft=True),
)

KINDS: tuple[str, ...] = tuple(row.kind for row in _TABLE)
"""Every kind of update that the table knows, as the Bot API names them."""


def facts(event: object) -> Facts | None:
    """What the update says, or None if it is no update or of an unknown kind; never an exception."""
    try:
        return _read(event)
    except Exception:  # noqa: BLE001 - objects of others run code when they are read
        return None


def sender(event: object) -> int | None:
    """The id of the user, or of the chat somebody acts as, that an update comes from, or None."""
    found = facts(event)
    return None if found is None else found.user


def media_group(event: object) -> str | None:
    """The album that the message of an update is part of, or None."""
    found = facts(event)
    return None if found is None else found.media_group_id


def event_id(event: object) -> str | None:
    """The text by which a redelivery of the same event is known, or None if the event carries no id.

    ============================  =======================  ==================
    Telegram                      `update_id`              `tg:10000`
    Slack Events API              `event_id`               `slack:Ev08MFMKH6`
    Slack actions and commands    `trigger_id`             `slack:13345224609`
    Discord and any other         `id`, an int or text     `id:1042`
    ============================  =======================  ==================

    The first that is there counts, as an item of a dict (or of the dict in Slack's `payload` envelope) or
    an attribute of an object. An edit with the `id` of what it edits looks like a redelivery: give an id
    of your own.
    """
    for name, prefix in _EVENT_IDS:
        for place in (event, _safe_get(event, "payload")):
            found = _id_text(_safe_get(place, name))
            if found is not None:
                return prefix + found
    return None


def update_json(event: object) -> bytes:
    """The event as JSON bytes that a handler in another process can be given; `BadEvent` if it has none.

    Bytes are checked and passed on; aiogram's and python-telegram-bot's objects become the update as
    Telegram sent it; everything else is what msgspec makes of it (NaN becomes null, a number as dict key
    becomes text).
    """
    try:
        if type(event) is dict:
            return _encode(event)
        if isinstance(event, bytes | bytearray | memoryview):
            return _checked(bytes(event))
        if not isinstance(event, dict | type):
            for method, write in _WRITERS:
                if callable(getattr(event, method, None)):
                    return _checked(write(event))
        return _encode(event)
    except (msgspec.MsgspecError, TypeError, ValueError, RecursionError) as error:
        raise BadEvent(
            f"{type(event).__name__} is not an event that can be written as JSON: {_why(error)}"
        ) from None


def _read(event: Any) -> Facts | None:
    row, body = _find(event)
    if row is None:
        return None
    chat = None if row.chat is None else _walk(body, row.chat)
    chat_id = _id(chat)
    message = None if row.message is None else _walk(body, row.message)
    user = _actor(row, body, chat_id)
    kind = _plain_text(_get(chat, "type"))
    if row.draft and kind == "private" and user is None:
        user = chat_id
    return Facts(
        row.kind,
        _int(_get(event, "update_id")),
        chat_id,
        user,
        _int(_get(body, "message_thread_id")) if row.draft else _topic(message),
        _realm(row, message, chat),
        kind,
        _plain_text(_get(message, "media_group_id")),
    )


def _find(event: Any) -> tuple[_Row | None, Any]:
    if isinstance(event, _DICTS):
        for row in _TABLE:
            body = event.get(row.kind)
            if body is not None:
                return row, body
        return None, None
    for row in _TABLE:
        body = getattr(event, row.kind, None)
        if body is not None:
            return row, body
    unknown = _unknown(event)
    return _find(unknown) if unknown else (None, None)


def _actor(row: _Row, body: Any, chat: int | None) -> int | None:
    for path in row.actors:
        found = _id(_walk(body, path))
        if found is not None:
            if found in _FAKE_USERS:
                return chat if found == _GROUP_ANONYMOUS else None
            return found
    return None


def _topic(message: Any) -> int | None:
    return _int(_get(message, "message_thread_id")) if _get(message, "is_topic_message") is True else None


def _realm(row: _Row, message: Any, chat: Any) -> str:
    connection = _plain_text(_get(message, row.connection))
    if connection is not None or row.realm == "business:":
        return f"business:{connection or ''}"
    if row.realm or _get(message, "guest_query_id") is not None or _answers_a_guest(row, message):
        return "guest"
    topic = _get(message, "direct_messages_topic")
    if topic is not None or _get(chat, "is_direct_messages") is True:
        return f"dm:{_int(_get(topic, 'topic_id')) or 0}"
    return ""


def _answers_a_guest(row: _Row, message: Any) -> bool:
    """Whether a button was pressed under what this bot itself said as a guest."""
    if row.kind != "callback_query":
        return False
    caller = _get(message, "guest_bot_caller_user")
    return caller is not None or _get(message, "guest_bot_caller_chat") is not None


def _get(node: Any, name: str) -> Any:
    if node is None:
        return None
    if type(node) is dict:
        return node.get(name)
    return _get_elsewhere(node, name)


def _get_elsewhere(node: Any, name: str) -> Any:
    if isinstance(node, _DICTS):
        return node.get(name)
    found = getattr(node, "from_user" if name == "from" else name, None)
    return _unknown(node).get(name) if found is None else found


def _unknown(node: Any) -> Any:
    """What python-telegram-bot was sent and does not know yet."""
    kind: Any = type(node)
    fields = node.api_kwargs if _keeps_unknown(kind) else None
    return fields if isinstance(fields, _DICTS) else {}


@lru_cache(maxsize=128)
def _keeps_unknown(kind: type) -> bool:
    return hasattr(kind, "api_kwargs")


def _safe_get(node: Any, name: str) -> Any:
    with suppress(Exception):
        return _get(node, name)
    return None


def _walk(node: Any, path: _Path) -> Any:
    for name in path:
        node = _get(node, name)
    return node


def _id(node: Any) -> int | None:
    return _int(_get(node, "id"))


def _int(value: Any) -> int | None:
    return value if type(value) is int and value != 0 else None


def _plain_text(value: Any) -> str | None:
    """Text that can be stored, in its plain type; None for everything else, empty text included."""
    if not isinstance(value, str) or not value:
        return None
    plain = str.__str__(value)
    if not plain.isascii():
        try:
            plain.encode()
        except UnicodeEncodeError:
            return None
    return plain


_EVENT_IDS = (("update_id", "tg:"), ("event_id", "slack:"), ("trigger_id", "slack:"), ("id", "id:"))


def _id_text(value: Any) -> str | None:
    return str(value) if type(value) is int else _plain_text(value)


def _from_pydantic(event: Any) -> bytes:
    try:
        text = event.model_dump_json(by_alias=True, exclude_none=True)
    except ValueError:
        text = event.model_dump_json(by_alias=True, exclude_none=True, exclude_unset=True)
    return str(text).encode()


def _from_telegram_object(event: Any) -> bytes:
    return str(event.to_json()).encode()


_WRITERS: tuple[tuple[str, Callable[[Any], bytes]], ...] = (
    ("model_dump_json", _from_pydantic),
    ("to_json", _from_telegram_object),
)


def _checked(document: bytes) -> bytes:
    msgspec.json.decode(document)
    return document


def _why(error: Exception) -> str:
    return "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
