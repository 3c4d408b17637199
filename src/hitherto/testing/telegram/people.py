"""The people of the fake Telegram and the places they talk in: what they do becomes updates, and what the bot
answers can be heard there.

    alice = telegram.user("Alice")
    alice.says("/start")
    message = await alice.hears()
    alice.presses(message.button("Yes"))
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from .world import BotMessage, Button, Json, World, buttons_of, content_of

PATIENCE = 5.0
ANONYMOUS = {"id": 1087968824, "is_bot": True, "first_name": "Group", "username": "GroupAnonymousBot"}
MEMBER_RIGHTS = ("member", "administrator", "creator", "restricted", "left", "kicked")
_ADMIN_RIGHTS = [
    "can_be_edited",
    "is_anonymous",
    "can_manage_chat",
    "can_delete_messages",
    "can_manage_video_chats",
    "can_restrict_members",
    "can_promote_members",
    "can_change_info",
    "can_invite_users",
    "can_post_stories",
    "can_edit_stories",
    "can_delete_stories",
    "can_send_welcome_messages",
]


class Post(Protocol):
    """Makes an update of a kind and a payload, and owes it to the bot if it wants that kind."""

    def __call__(self, kind: str, payload: Json) -> Json: ...


class Place:
    """Somewhere the bot can speak: a private chat, a group, a topic, a channel or a business chat."""

    kind = "message"

    def __init__(
        self, world: World, post: Post, chat: Json, *, thread: int | None = None, business: str = ""
    ) -> None:
        self.world = world
        self.post = post
        self.chat = chat
        self.thread = thread
        self.business = business
        self._heard = 0
        self._seen = 0

    def __repr__(self) -> str:
        return f"{type(self).__name__}(chat_id={self.chat_id})"

    @property
    def chat_id(self) -> int:
        """The id of the chat."""
        return int(self.chat["id"])

    @property
    def messages(self) -> list[BotMessage]:
        """All messages the bot sent here, oldest first."""
        return list(self._here(self.world.sent))

    @property
    def unheard(self) -> list[BotMessage]:
        """Those that `hears` has not returned yet."""
        return self.messages[self._heard :]

    async def hears(self, timeout: float = PATIENCE) -> BotMessage:
        """The next message the bot sent here; each is heard once. `TimeoutError` if none comes in time."""
        await self._until(lambda: len(self._here(self.world.sent)) > self._heard, timeout, "said nothing new")
        self._heard += 1
        return self._here(self.world.sent)[self._heard - 1]

    async def sees_edit(self, timeout: float = PATIENCE) -> BotMessage:
        """The next edit of one of the bot's messages here, as it then reads."""
        await self._until(lambda: len(self._here(self.world.edited)) > self._seen, timeout, "edited nothing")
        self._seen += 1
        return self._here(self.world.edited)[self._seen - 1]

    def topic(self, name: str = "topic", *, thread: int | None = None) -> Topic:
        """A forum topic of this chat (private chats can have topics too)."""
        self.chat["is_forum"] = True
        return Topic(self, thread if thread is not None else 1000 + self.world.serial(), name)

    def fields(self) -> Json:
        """What a message written here carries beside its content."""
        return {}

    def receive(self, content: Json, sender: Json | None, **fields: Any) -> Json:
        """Somebody writes here: a new message, and the update that tells the bot."""
        content = {**self.fields(), **content, **fields}
        message = self.world.write(self.chat, content, sender=sender, business=self.business)
        return self.post(self.kind, message)

    def _here(self, pile: dict[tuple[str, int], list[BotMessage]]) -> list[BotMessage]:
        found = pile.get((self.business, self.chat_id), [])
        return found if self.thread is None else [m for m in found if m.thread_id == self.thread]

    async def _until(self, arrived: Callable[[], bool], timeout: float, complaint: str) -> None:
        try:
            async with asyncio.timeout(timeout):
                while not arrived():
                    await self.world.bell.wait()
        except TimeoutError:
            raise TimeoutError(f"within {timeout} s the bot {complaint} in {self!r}") from None


class Topic(Place):
    """A forum topic; messages in it say so."""

    def __init__(self, parent: Place, thread: int, name: str) -> None:
        super().__init__(parent.world, parent.post, parent.chat, thread=thread)
        self.name = name

    def fields(self) -> Json:
        return {"message_thread_id": self.thread, "is_topic_message": True}


class Group(Place):
    """A supergroup. Whoever writes in it becomes a member."""

    def add(self, person: Person, status: str = "member") -> None:
        """Make somebody a member (or administrator, creator, restricted, left, kicked) without any update."""
        if status not in MEMBER_RIGHTS:
            raise ValueError(f"no such status: {status!r}")
        self.world.members[self.chat_id, person.id] = status


class Channel(Place):
    """A channel: it posts in its own name."""

    kind = "channel_post"

    def posts(self, text: str, **fields: Any) -> Json:
        """A new post; the update for it."""
        return self.receive({"sender_chat": self.chat, **content_of(text)}, None, **fields)

    def edits(self, update: Json, text: str) -> Json:
        """A post is edited; the update for it."""
        return edit(self.world, self.post, update, text)


class BusinessChat(Place):
    """A private chat that the bot serves for somebody else, through a business connection."""

    kind = "business_message"


class BusinessConnection:
    """An account that lets the bot speak for it."""

    def __init__(self, owner: Person, connection_id: str) -> None:
        self.owner = owner
        self.id = connection_id

    def with_(self, person: Person) -> BusinessChat:
        """The chat between the account's owner and this person: give it as `to=`, or listen in it."""
        return BusinessChat(person.world, person.post, person.chat, business=self.id)

    def changes(self, *, is_enabled: bool) -> Json:
        """The update that tells the bot of the connection."""
        return self.owner.post("business_connection", self.as_json(is_enabled=is_enabled))

    def as_json(self, *, is_enabled: bool = True) -> Json:
        """The connection as the Bot API shows it."""
        date, user = int(self.owner.world.clock()), self.owner
        shown = {"id": self.id, "user": user.user, "user_chat_id": user.id, "date": date}
        return {**shown, "rights": {"can_reply": True}, "is_enabled": is_enabled}


def edit(world: World, post: Post, update: Json, text: str) -> Json:
    """Somebody edits the message of an earlier update; the update for it."""
    kind, old = _message_in(update)
    place = str(old.get("business_connection_id", "")), int(old["chat"]["id"]), int(old["message_id"])
    message = world.messages[place]
    for name in ("text", "entities"):
        message.pop(name, None)
    message.update(content_of(text), edit_date=int(world.clock()))
    return post(f"edited_{kind}", message)


def _message_in(update: Json) -> tuple[str, Json]:
    for kind in ("message", "channel_post", "business_message"):
        for name in (kind, f"edited_{kind}"):
            if name in update:
                return kind, update[name]
    raise ValueError("this update carries no message that can be edited")


class Person(Place):
    """A user; as a place, their private chat with the bot. Every verb returns the update that it made."""

    def __init__(self, world: World, post: Post, user: Json) -> None:
        super().__init__(world, post, world.chats[user["id"]])
        self.user = user

    @property
    def id(self) -> int:
        """The user's id, which is also the id of the private chat."""
        return int(self.user["id"])

    def says(self, text: str, *, to: Place | None = None, **fields: Any) -> Json:
        """Write a text, in the private chat unless another place is given; `fields` go into the message."""
        return self.writes(content_of(text), to=to, **fields)

    def writes(self, content: Json, *, to: Place | None = None, **fields: Any) -> Json:
        """Write anything: the content is the part of the message that makes its kind, as in `{"dice":
        {...}}`."""
        place = to or self
        if isinstance(place, Group | Topic):
            self.world.members.setdefault((place.chat_id, self.id), "member")
        return place.receive(content, self.user, **fields)

    def says_anonymously(self, text: str, *, to: Place, **fields: Any) -> Json:
        """Write in a group as its anonymous administrator: the sender is the group itself."""
        return to.receive({**content_of(text), "sender_chat": to.chat}, dict(ANONYMOUS), **fields)

    def replies(self, message: BotMessage, text: str, **fields: Any) -> Json:
        """Answer a message of the bot in the chat where it is."""
        quoted = self.world.reply_target(message.chat_id, message.message_id, message.business)
        if message.thread_id is not None:
            fields = {"message_thread_id": message.thread_id, "is_topic_message": True, **fields}
        return self._beside(message).receive(content_of(text), self.user, reply_to_message=quoted, **fields)

    def _beside(self, message: BotMessage) -> Place:
        place = BusinessChat if message.business else Place
        return place(self.world, self.post, self.world.chats[message.chat_id], business=message.business)

    def sends_photo(self, caption: str = "", *, to: Place | None = None, **fields: Any) -> Json:
        """Send a photo."""
        unique = f"photo{self.world.serial()}"
        size = {"file_id": unique, "file_unique_id": unique, "width": 90, "height": 90, "file_size": 1000}
        content: Json = {"photo": [size], **({"caption": caption} if caption else {})}
        return self.writes(content, to=to, **fields)

    def sends_album(self, *captions: str, to: Place | None = None, **fields: Any) -> list[Json]:
        """Send photos as one album: one update for each caption, tied by their media_group_id."""
        album = str(13_000_000_000_000_000 + self.world.serial())
        return [self.sends_photo(caption, to=to, media_group_id=album, **fields) for caption in captions]

    def edits(self, update: Json, text: str) -> Json:
        """Edit what an earlier update brought."""
        return edit(self.world, self.post, update, text)

    def presses(
        self, button: Button | str, *, inaccessible: bool = False, to: Place | None = None, **fields: Any
    ) -> Json:
        """Press an inline button: one of a message, or by its text the newest one with it in the chat. An
        inaccessible message is one that the bot may not see any more."""
        if isinstance(button, str):
            button = newest_button(to or self, button)
        if button.data is None:
            raise ValueError(f"the button {button.text!r} sends no callback")
        message = button.message
        stored = self.world.messages.get(
            (str(message.get("business_connection_id", "")), message["chat"]["id"], message["message_id"]),
            message,
        )
        if inaccessible:
            stored = {"chat": message["chat"], "message_id": message["message_id"], "date": 0}
        return self._calls_back(
            {"message": stored, "data": button.data, **fields}, str(message["chat"]["id"])
        )

    def presses_inline(self, data: str, inline_message_id: str, **fields: Any) -> Json:
        """Press a button under a message that was sent by way of the bot, somewhere it cannot see."""
        payload = {"inline_message_id": inline_message_id, "data": data, **fields}
        return self._calls_back(payload, inline_message_id)

    def _calls_back(self, payload: Json, instance: str) -> Json:
        query_id = str(4_000_000_000_000_000 + self.world.serial())
        return self.post(
            "callback_query", {"id": query_id, "from": self.user, "chat_instance": instance, **payload}
        )

    def asks_inline(self, query: str, *, offset: str = "", **fields: Any) -> Json:
        """Type an inline query."""
        query_id = str(5_000_000_000_000_000 + self.world.serial())
        asked = {"id": query_id, "from": self.user, "query": query, "offset": offset}
        return self.post("inline_query", {**asked, **fields})

    def chooses(self, result_id: str, query: str = "", **fields: Any) -> Json:
        """Choose a result of an inline query."""
        chosen = {"result_id": result_id, "from": self.user, "query": query}
        return self.post("chosen_inline_result", {**chosen, **fields})

    def reacts(self, message: BotMessage, emoji: str | None) -> Json:
        """Put a reaction on a message of the bot, or take it away (only bots that ask for these updates get
        it)."""
        new = [{"type": "emoji", "emoji": emoji}] if emoji else []
        about = {"chat": message.message["chat"], "message_id": message.message_id, "user": self.user}
        date = int(self.world.clock())
        return self.post("message_reaction", {**about, "date": date, "old_reaction": [], "new_reaction": new})

    def joins(self, group: Group) -> Json:
        """Become a member (only bots that ask for chat_member updates hear of it)."""
        return self._becomes(group, "member")

    def leaves(self, group: Group) -> Json:
        """Be a member no longer."""
        return self._becomes(group, "left")

    def _becomes(self, group: Group, status: str) -> Json:
        key = group.chat_id, self.id
        before = member(self.user, self.world.members.get(key, "left"))
        self.world.members[key] = status
        change = {"old_chat_member": before, "new_chat_member": member(self.user, status)}
        about = {"chat": group.chat, "from": self.user, "date": int(self.world.clock())}
        return self.post("chat_member", {**about, **change})

    def blocks(self) -> Json:
        """Block the bot: it hears of that, and can write here no more."""
        self.world.blocked.add(self.id)
        return self._lets_bot("member", "kicked")

    def unblocks(self) -> Json:
        """Let the bot in again."""
        self.world.blocked.discard(self.id)
        return self._lets_bot("kicked", "member")

    def _lets_bot(self, before: str, after: str) -> Json:
        bot = self.world.bot
        change = {"old_chat_member": member(bot, before), "new_chat_member": member(bot, after)}
        about = {"chat": self.chat, "from": self.user, "date": int(self.world.clock())}
        return self.post("my_chat_member", {**about, **change})


def newest_button(place: Place, text: str) -> Button:
    """The inline button with this text that was sent last in a place, as its message now reads."""
    seen: list[str] = []
    for said in reversed(place.messages):
        message = place.world.find(said.chat_id, said.message_id, said.business)
        for button in buttons_of(message or {}):
            if button.text == text:
                return button
            seen.append(button.text)
    raise LookupError(f"no button {text!r} in {place!r}; there are {seen}")


def member(user: Json, status: str) -> Json:
    """A ChatMember as the Bot API shows it."""
    shown: Json = {"status": status, "user": user}
    if status == "kicked":
        shown["until_date"] = 0
    elif status == "creator":
        shown["is_anonymous"] = False
    elif status == "administrator":
        shown.update(dict.fromkeys(_ADMIN_RIGHTS, False))
    elif status == "restricted":
        shown.update({"is_member": True, "until_date": 0})
    return shown
