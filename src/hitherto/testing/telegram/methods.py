"""The Bot API methods the fake knows, working on its `World`.

A method that is not here but whose name begins like one that answers `true` (set*, delete*, answer*, pin*,
...) answers `true`, and another send* answers an empty message; every other name is unknown, a 404 as from
the real one.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from html import unescape
from typing import Any

from hitherto.testing.http import Upload

from .parameters import Parameters
from .people import member
from .world import ApiError, Call, Json, World

TEXT_LIMIT = 4096
CAPTION_LIMIT = 1024
DATA_LIMIT = 64
_TRUE = re.compile(
    r"(?:set|delete|answer|pin|unpin|ban|unban|restrict|promote|approve|decline|close|reopen|edit|hide|"
    r"unhide|leave|logOut|remove|revoke|verify|upgrade|transfer|convert|read|gift|"
    r"refund|sendGift)(?:[A-Z]\w*)?"
)
_TAG = re.compile(r"</?[a-zA-Z][^<>]*>")
_MEDIA = {
    "sendPhoto": "photo",
    "sendDocument": "document",
    "sendVideo": "video",
    "sendAnimation": "animation",
    "sendAudio": "audio",
    "sendVoice": "voice",
    "sendVideoNote": "video_note",
    "sendSticker": "sticker",
}
_MEDIA_FIELDS: dict[str, Json] = {
    "video": {"width": 90, "height": 90, "duration": 1},
    "animation": {"width": 90, "height": 90, "duration": 1},
    "audio": {"duration": 1},
    "voice": {"duration": 1},
    "video_note": {"length": 90, "duration": 1},
    "sticker": {"width": 90, "height": 90, "type": "regular", "is_animated": False, "is_video": False},
}
_PLAIN = {
    "sendLocation": ("location", ("latitude", "longitude")),
    "sendContact": ("contact", ("phone_number", "first_name", "last_name")),
}


def is_true_method(name: str) -> bool:
    """Whether a method that is not written here answers `true` all the same."""
    return _TRUE.fullmatch(name) is not None


@dataclass(frozen=True, slots=True)
class Target:
    """Where a call wants to write."""

    chat: Json
    chat_id: int
    business: str


class Methods:
    """Everything a bot can call that concerns chats and messages. `find` gives the method for a name."""

    def __init__(self, world: World, *, strict: bool = True) -> None:
        self.world = world
        self.strict = strict
        self.commands: dict[str, list[Any]] = {}
        self.files: dict[str, Upload] = {}
        self.queries: set[str] = set()
        self._known: dict[str, Callable[[Parameters, Call], Awaitable[Any]]] = {
            "sendMessage": self._send_message,
            "sendMediaGroup": self._send_media_group,
            "sendPoll": self._send_poll,
            "sendDice": self._send_dice,
            "sendChatAction": self._in_chat,
            "editMessageText": self._edit_text,
            "editMessageCaption": self._edit_caption,
            "editMessageMedia": self._edit_media,
            "editMessageReplyMarkup": self._edit_markup,
            "deleteMessage": self._delete_message,
            "deleteMessages": self._delete_messages,
            "answerCallbackQuery": self._answer_callback,
            "answerInlineQuery": self._answer_inline,
            "copyMessage": self._copy,
            "forwardMessage": self._forward,
            "setMessageReaction": self._on_message,
            "pinChatMessage": self._on_message,
            "unpinChatMessage": self._in_chat,
            "getMe": self._get_me,
            "getChat": self._get_chat,
            "getChatMember": self._get_chat_member,
            "getChatAdministrators": self._get_administrators,
            "getChatMemberCount": self._get_member_count,
            "getFile": self._get_file,
            "setMyCommands": self._set_commands,
            "deleteMyCommands": self._delete_commands,
            "getMyCommands": self._get_commands,
            "createForumTopic": self._create_topic,
        }
        self._known.update(dict.fromkeys(_MEDIA, self._send_media))
        self._known.update(dict.fromkeys(_PLAIN, self._send_plain))
        self._names = {name.lower(): name for name in self._known}

    def name(self, raw: str) -> str:
        """The method's name as Telegram spells it (case does not matter to the real server)."""
        return self._names.get(raw.lower(), raw)

    def find(self, name: str) -> Callable[[Parameters, Call], Awaitable[Any]]:
        """The method, or a 404."""
        if name in self._known:
            return self._known[name]
        if is_true_method(name):
            return self._true
        if re.fullmatch(r"send[A-Z]\w*", name):
            return self._send_anything
        raise ApiError(404, "Not Found: method not found")

    async def _true(self, given: Parameters, call: Call) -> bool:
        return True

    def _target(self, given: Parameters, name: str = "chat_id") -> Target:
        business = given.text("business_connection_id")
        raw = given.get(name)
        chat = self._chat_named(raw) if isinstance(raw, str) else self.world.chats.get(given.number(name))
        if chat is None and not self.strict and isinstance(raw, int) and raw:
            kind = "private" if raw > 0 else "supergroup"
            chat = self.world.chats.setdefault(raw, {"id": raw, "type": kind})
        if chat is None:
            raise ApiError(400, "Bad Request: chat not found")
        if chat["id"] in self.world.blocked and not business:
            raise ApiError(403, "Forbidden: bot was blocked by the user")
        return Target(chat, int(chat["id"]), business)

    def _chat_named(self, name: str) -> Json | None:
        known = self.world.chats.values()
        return next(
            (chat for chat in known if name.startswith("@") and chat.get("username") == name[1:]), None
        )

    def _say(self, given: Parameters, call: Call, content: Json, **fields: Any) -> Json:
        target = self._target(given)
        if target.chat["type"] != "channel" or target.business:
            sender: Json | None = self.world.bot
        else:
            sender, fields = None, {"sender_chat": target.chat, **fields}
        if (thread := given.get("message_thread_id")) is not None:
            fields |= {"message_thread_id": thread, "is_topic_message": True}
        fields |= self._reply(given, target) | _inline(given)
        message = self.world.write(
            target.chat, {**content, **fields}, sender=sender, business=target.business
        )
        return self.world.say(message, call)

    def _reply(self, given: Parameters, target: Target) -> Json:
        wish = given.mapping("reply_parameters")
        number = wish.get("message_id", given.get("reply_to_message_id"))
        if not isinstance(number, int):
            return {}
        quoted = self.world.reply_target(target.chat_id, number, target.business)
        if quoted is None and not (
            wish.get("allow_sending_without_reply") or given.get("allow_sending_without_reply")
        ):
            raise ApiError(400, "Bad Request: message to be replied not found")
        return {"reply_to_message": quoted} if quoted else {}

    def _message(self, given: Parameters, complaint: str) -> Json:
        target = self._target(given)
        found = self.world.find(target.chat_id, given.number("message_id"), target.business)
        if found is None:
            raise ApiError(400, f"Bad Request: {complaint}")
        return found

    async def _send_message(self, given: Parameters, call: Call) -> Json:
        return self._say(given, call, _text(given))

    async def _send_anything(self, given: Parameters, call: Call) -> Json:
        return self._say(given, call, {})

    async def _send_media(self, given: Parameters, call: Call) -> Json:
        kind = _MEDIA[call.method]
        return self._say(given, call, self._media(kind, given.file(kind)) | _caption(given))

    def _media(self, kind: str, file: Upload | str) -> Json:
        if isinstance(file, Upload):
            file_id = f"{kind}{self.world.serial()}"
            self.files[file_id] = file
        else:
            file_id = file
        shown = {"file_id": file_id, "file_unique_id": f"u-{file_id}", **_MEDIA_FIELDS.get(kind, {})}
        return {kind: [{**shown, "width": 90, "height": 90}] if kind == "photo" else shown}

    async def _send_plain(self, given: Parameters, call: Call) -> Json:
        kind, names = _PLAIN[call.method]
        if names[0] not in given:
            raise ApiError(400, f"Bad Request: parameter {names[0]} is required")
        return self._say(given, call, {kind: {name: given[name] for name in names if name in given}})

    async def _send_dice(self, given: Parameters, call: Call) -> Json:
        value = 1 + self.world.serial() % 6
        return self._say(given, call, {"dice": {"emoji": given.text("emoji", "🎲"), "value": value}})

    async def _send_poll(self, given: Parameters, call: Call) -> Json:
        raw = given.listed("options")
        texts = [option.get("text", "") if isinstance(option, dict) else str(option) for option in raw]
        if not given.text("question") or not texts:
            raise ApiError(400, "Bad Request: poll must have a question and options")
        poll = {
            "id": str(6_000_000_000_000_000 + self.world.serial()),
            "question": given.text("question"),
            "options": [
                {"text": text, "voter_count": 0, "persistent_id": str(n)} for n, text in enumerate(texts)
            ],
            "total_voter_count": 0,
            "is_closed": False,
            "is_anonymous": given.get("is_anonymous", True),
            "type": given.text("type", "regular"),
            "allows_multiple_answers": given.get("allows_multiple_answers", False),
            "allows_revoting": False,
            "members_only": False,
        }
        return self._say(given, call, {"poll": poll})

    async def _send_media_group(self, given: Parameters, call: Call) -> list[Json]:
        album = str(14_000_000_000_000_000 + self.world.serial())
        contents = [self._input_media(given, item) for item in given.listed("media")]
        if not 1 < len(contents) <= 10:
            raise ApiError(400, "Bad Request: an album has 2 to 10 items")
        return [self._say(given, call, content, media_group_id=album) for content in contents]

    def _input_media(self, given: Parameters, item: Any) -> Json:
        if not isinstance(item, dict) or item.get("type") not in _MEDIA.values():
            raise ApiError(400, "Bad Request: can't parse InputMedia")
        source = Parameters({**given, "media": item.get("media"), "caption": item.get("caption", "")})
        return self._media(item["type"], source.file("media")) | _caption(source)

    async def _copy(self, given: Parameters, call: Call) -> Json:
        source = self._source(given)
        own = (
            "message_id",
            "date",
            "chat",
            "from",
            "sender_chat",
            "reply_to_message",
            "reply_markup",
            "edit_date",
        )
        content = {
            k: v for k, v in source.items() if k not in (*own, "business_connection_id", "message_thread_id")
        }
        content |= _caption(given) if "caption" in given else {}
        return {"message_id": self._say(given, call, content)["message_id"]}

    async def _forward(self, given: Parameters, call: Call) -> Json:
        source = self._source(given)
        origin: Json = {"type": "hidden_user", "date": source["date"], "sender_user_name": "somebody"}
        if "from" in source:
            origin = {"type": "user", "date": source["date"], "sender_user": source["from"]}
        own = (
            "message_id",
            "date",
            "chat",
            "from",
            "sender_chat",
            "reply_to_message",
            "business_connection_id",
        )
        content = {k: v for k, v in source.items() if k not in own}
        return self._say(given, call, {**content, "forward_origin": origin})

    def _source(self, given: Parameters) -> Json:
        origin = self._target(given, "from_chat_id")
        found = self.world.find(origin.chat_id, given.number("message_id"))
        if found is None:
            raise ApiError(400, "Bad Request: message to copy not found")
        return found

    def _edit(self, given: Parameters, call: Call, content: Json, forget: tuple[str, ...]) -> Json | bool:
        """Replace what `forget` names, and the buttons, by the new content. Edits of inline messages are
        `true`."""
        if "inline_message_id" in given:
            return True
        message = self._message(given, "message to edit not found")
        if message.get("from", self.world.bot)["id"] != self.world.bot["id"]:
            raise ApiError(400, "Bad Request: message can't be edited")
        changed = {k: v for k, v in message.items() if k not in (*forget, "reply_markup", "edit_date")}
        changed |= content | _inline(given)
        if changed == {k: v for k, v in message.items() if k != "edit_date"}:
            raise ApiError(400, _NOT_MODIFIED)
        message.clear()
        message.update(changed)
        return self.world.change(message, call)

    async def _edit_text(self, given: Parameters, call: Call) -> Json | bool:
        return self._edit(given, call, _text(given), ("text", "entities"))

    async def _edit_caption(self, given: Parameters, call: Call) -> Json | bool:
        return self._edit(given, call, _caption(given), ("caption", "caption_entities"))

    async def _edit_media(self, given: Parameters, call: Call) -> Json | bool:
        content = self._input_media(given, given.mapping("media"))
        return self._edit(
            given, call, content, (*_MEDIA.values(), "caption", "caption_entities", "text", "entities")
        )

    async def _edit_markup(self, given: Parameters, call: Call) -> Json | bool:
        return self._edit(given, call, {}, ())

    async def _delete_message(self, given: Parameters, call: Call) -> bool:
        message = self._message(given, "message to delete not found")
        del self.world.messages[
            str(message.get("business_connection_id", "")), message["chat"]["id"], message["message_id"]
        ]
        return True

    async def _delete_messages(self, given: Parameters, call: Call) -> bool:
        target = self._target(given)
        for number in given.listed("message_ids"):
            self.world.messages.pop((target.business, target.chat_id, number), None)
        return True

    async def _on_message(self, given: Parameters, call: Call) -> bool:
        self._message(given, "message not found")
        return True

    async def _in_chat(self, given: Parameters, call: Call) -> bool:
        self._target(given)
        return True

    async def _answer_callback(self, given: Parameters, call: Call) -> bool:
        return self._answer(given.text("callback_query_id"))

    async def _answer_inline(self, given: Parameters, call: Call) -> bool:
        given.listed("results")
        return self._answer(given.text("inline_query_id"))

    def _answer(self, query_id: str) -> bool:
        if self.strict and query_id not in self.queries:
            raise ApiError(
                400, "Bad Request: query is too old and response timeout expired or query ID is invalid"
            )
        return True

    async def _get_me(self, given: Parameters, call: Call) -> Json:
        flags = (
            "can_join_groups",
            "can_read_all_group_messages",
            "supports_inline_queries",
            "has_topics_enabled",
        )
        more = (
            "can_connect_to_business",
            "has_main_web_app",
            "allows_users_to_create_topics",
            "can_manage_bots",
        )
        return {**self.world.bot, **dict.fromkeys((*flags, *more), True)}

    async def _get_chat(self, given: Parameters, call: Call) -> Json:
        gifts = (
            "unlimited_gifts",
            "limited_gifts",
            "unique_gifts",
            "premium_subscription",
            "gifts_from_channels",
        )
        full = {
            "accent_color_id": 0,
            "max_reaction_count": 11,
            "accepted_gift_types": dict.fromkeys(gifts, False),
        }
        return {**self._target(given).chat, **full}

    async def _get_chat_member(self, given: Parameters, call: Call) -> Json:
        target, user_id = self._target(given), given.number("user_id")
        user = self.world.users.get(user_id)
        if user is None:
            raise ApiError(400, "Bad Request: member not found")
        alone = target.chat["type"] == "private" and user_id in (target.chat_id, self.world.bot["id"])
        default = "member" if alone else "left"
        return member(user, self.world.members.get((target.chat_id, user_id), default))

    def _members(self, chat_id: int, *statuses: str) -> list[Json]:
        return [
            member(self.world.users[user_id], status)
            for (chat, user_id), status in self.world.members.items()
            if chat == chat_id and status in statuses and user_id in self.world.users
        ]

    async def _get_administrators(self, given: Parameters, call: Call) -> list[Json]:
        return self._members(self._target(given).chat_id, "administrator", "creator")

    async def _get_member_count(self, given: Parameters, call: Call) -> int:
        return 1 + len(
            self._members(self._target(given).chat_id, "member", "administrator", "creator", "restricted")
        )

    async def _get_file(self, given: Parameters, call: Call) -> Json:
        file_id = given.text("file_id")
        if file_id not in self.files:
            raise ApiError(400, "Bad Request: invalid file_id")
        size = len(self.files[file_id].content)
        return {
            "file_id": file_id,
            "file_unique_id": f"u-{file_id}",
            "file_size": size,
            "file_path": f"files/{file_id}",
        }

    async def _set_commands(self, given: Parameters, call: Call) -> bool:
        self.commands[_scope(given)] = given.listed("commands")
        return True

    async def _delete_commands(self, given: Parameters, call: Call) -> bool:
        self.commands.pop(_scope(given), None)
        return True

    async def _get_commands(self, given: Parameters, call: Call) -> list[Any]:
        return self.commands.get(_scope(given), [])

    async def _create_topic(self, given: Parameters, call: Call) -> Json:
        self._target(given)
        return {
            "message_thread_id": 1000 + self.world.serial(),
            "name": given.text("name"),
            "icon_color": 7322096,
        }


_NOT_MODIFIED = (
    "Bad Request: message is not modified: specified new message content and reply markup are exactly the "
    "same as a current content and reply markup of the message"
)


def _scope(given: Parameters) -> str:
    scope = given.mapping("scope") or {"type": "default"}
    return f"{sorted(scope.items(), key=str)} {given.text('language_code')}"


def _inline(given: Parameters) -> Json:
    markup = given.mapping("reply_markup")
    rows = markup.get("inline_keyboard")
    if rows is None:
        return {}
    if not isinstance(rows, list) or not all(isinstance(row, list) for row in rows):
        raise ApiError(400, 'Bad Request: field "inline_keyboard" must be an Array of Arrays')
    for button in (button for row in rows for button in row):
        if not isinstance(button, dict) or not isinstance(button.get("text"), str):
            raise ApiError(400, "Bad Request: inline keyboard button must have a text")
        if len(str(button.get("callback_data", "")).encode()) > DATA_LIMIT:
            raise ApiError(400, "Bad Request: BUTTON_DATA_INVALID")
    return {"reply_markup": {"inline_keyboard": rows}} if rows else {}


def _plain(given: Parameters, name: str) -> str:
    text = given.text(name)
    return unescape(_TAG.sub("", text)) if given.text("parse_mode").lower() == "html" else text


def _text(given: Parameters) -> Json:
    text = _plain(given, "text").strip()
    if not text:
        raise ApiError(400, "Bad Request: message text is empty")
    if len(text) > TEXT_LIMIT:
        raise ApiError(400, "Bad Request: message is too long")
    entities = given.listed("entities")
    return {"text": text, "entities": entities} if entities else {"text": text}


def _caption(given: Parameters) -> Json:
    caption = _plain(given, "caption").strip()
    if len(caption) > CAPTION_LIMIT:
        raise ApiError(400, "Bad Request: message caption is too long")
    entities = given.listed("caption_entities")
    shown: Json = {"caption": caption} if caption else {}
    return shown | ({"caption_entities": entities} if entities and caption else {})
