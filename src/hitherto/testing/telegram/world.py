"""What the fake Telegram knows: users, chats, messages, and what the bot said in them.

Nothing here speaks HTTP. People (`people.py`) and the Bot API (`methods.py`) both work on one `World`.
"""

from __future__ import annotations

import asyncio
import copy
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]
Clock = Callable[[], float]
Sleep = Callable[[float], Awaitable[None]]

_COMMAND = re.compile(r"(?<![\w/@])/[A-Za-z0-9_]{1,32}(?:@[A-Za-z0-9_]{3,32})?")


class ApiError(Exception):
    """An answer with `ok: false`, as the Bot API gives it."""

    def __init__(self, code: int, description: str, **parameters: int) -> None:
        super().__init__(description)
        self.code = code
        self.description = description
        self.parameters = parameters


class Bell:
    """Wakes everyone who waits for something to change."""

    def __init__(self) -> None:
        self._waiting: set[asyncio.Future[None]] = set()

    def ring(self) -> None:
        """Wake all who wait now."""
        for waiter in tuple(self._waiting):
            if not waiter.done():
                waiter.set_result(None)

    def wait(self) -> asyncio.Future[None]:
        """The next ring; it is listened for from this call on, awaited or not."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(waiter)
        waiter.add_done_callback(self._waiting.discard)
        return waiter


async def first_of(*waits: Awaitable[object]) -> None:
    """Wait until one of them is through, and raise what it raised; the others are cancelled."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a Bot API method: its name as Telegram spells it, and what was given (JSON parts
    decoded)."""

    method: str
    parameters: Mapping[str, Any] = field(repr=False)

    def __getitem__(self, name: str) -> Any:
        """The parameter of this name, or `KeyError`."""
        return self.parameters[name]

    def get(self, name: str, default: Any = None) -> Any:
        """The parameter of this name, or the default."""
        return self.parameters.get(name, default)


@dataclass(frozen=True, slots=True)
class Button:
    """An inline button on a message of the bot; `person.presses(button)` presses it."""

    text: str
    data: str | None
    message: Json = field(repr=False)


@dataclass(frozen=True, slots=True)
class BotMessage:
    """A message of the bot as its readers see it, beside the parameters it was sent with."""

    message: Json = field(repr=False)
    call: Call

    @property
    def text(self) -> str:
        """The text or the caption; empty when there is neither."""
        return str(self.message.get("text", self.message.get("caption", "")))

    @property
    def chat_id(self) -> int:
        """Where it was sent."""
        return int(self.message["chat"]["id"])

    @property
    def message_id(self) -> int:
        """Its number in that chat."""
        return int(self.message["message_id"])

    @property
    def thread_id(self) -> int | None:
        """The topic it was sent to, if any."""
        return self.message.get("message_thread_id")

    @property
    def business(self) -> str:
        """The business connection it was sent through, or nothing."""
        return str(self.message.get("business_connection_id", ""))

    @property
    def buttons(self) -> tuple[Button, ...]:
        """Its inline buttons, row after row."""
        return buttons_of(self.message)

    def button(self, text: str) -> Button:
        """The button with this text, or `LookupError` naming those there are."""
        for button in self.buttons:
            if button.text == text:
                return button
        raise LookupError(f"no button {text!r}; there are {[button.text for button in self.buttons]}")


def buttons_of(message: Json) -> tuple[Button, ...]:
    """The inline buttons of a message, row after row."""
    rows = message.get("reply_markup", {}).get("inline_keyboard", [])
    return tuple(Button(str(b.get("text", "")), b.get("callback_data"), message) for row in rows for b in row)


def content_of(text: str) -> Json:
    """A text message's content; commands in it become entities, counted in UTF-16 units as Telegram does."""
    found = [
        {"type": "bot_command", "offset": _units(text[: match.start()]), "length": len(match[0])}
        for match in _COMMAND.finditer(text)
    ]
    return {"text": text, "entities": found} if found else {"text": text}


def _units(text: str) -> int:
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


MessageKey = tuple[str, int, int]


class World:
    """Everyone and everything on the other side of the bot. A message's address is business connection (or
    nothing), chat and number: a business chat is another place than the private chat with the same id."""

    def __init__(self, bot: Json, clock: Clock) -> None:
        self.bot = bot
        self.clock = clock
        self.users: dict[int, Json] = {bot["id"]: bot}
        self.chats: dict[int, Json] = {}
        self.members: dict[tuple[int, int], str] = {}
        self.blocked: set[int] = set()
        self.messages: dict[MessageKey, Json] = {}
        self.sent: dict[tuple[str, int], list[BotMessage]] = {}
        self.edited: dict[tuple[str, int], list[BotMessage]] = {}
        self.bell = Bell()
        self._numbers: dict[tuple[str, int], int] = {}
        self._serial = 0

    def serial(self) -> int:
        """A number never given before."""
        self._serial += 1
        return self._serial

    def add_user(self, user: Json) -> Json:
        """Know this user, and the private chat with them."""
        self.users[user["id"]] = user
        names: Json = {k: user[k] for k in ("first_name", "last_name", "username") if k in user}
        self.chats.setdefault(user["id"], {"id": user["id"], "type": "private", **names})
        return user

    def learn(self, value: Any) -> None:
        """Know every chat that a raw update speaks of, and the messages in it, so that the bot can answer
        there."""
        if isinstance(value, list):
            for item in value:
                self.learn(item)
        if not isinstance(value, dict):
            return
        chat = value.get("chat")
        if isinstance(chat, dict) and isinstance(chat.get("id"), int) and "type" in chat:
            self.chats.setdefault(chat["id"], chat)
            if isinstance(value.get("message_id"), int) and "date" in value:
                self._keep(value)
        for item in value.values():
            self.learn(item)

    def _keep(self, message: Json) -> None:
        place = (str(message.get("business_connection_id", "")), int(message["chat"]["id"]))
        self._numbers[place] = max(self._numbers.get(place, 0), message["message_id"])
        self.messages.setdefault((*place, message["message_id"]), message)

    def write(self, chat: Json, content: Json, *, sender: Json | None = None, business: str = "") -> Json:
        """A new message in a chat, numbered, dated and kept."""
        place = (business, int(chat["id"]))
        number = self._numbers.get(place, 0) + 1
        message: Json = {"message_id": number, "date": int(self.clock()), "chat": chat}
        if sender is not None:
            message["from"] = sender
        if business:
            message["business_connection_id"] = business
        message.update(content)
        self._numbers[place] = message["message_id"]
        self.messages[(*place, message["message_id"])] = message
        return message

    def find(self, chat_id: int, message_id: int, business: str = "") -> Json | None:
        """The message at that address, or nothing."""
        return self.messages.get((business, chat_id, message_id))

    def say(self, message: Json, call: Call) -> Json:
        """The bot has sent this message: whoever listens hears it."""
        self._tell(self.sent, message, call)
        return message

    def change(self, message: Json, call: Call) -> Json:
        """The bot has edited this message."""
        message["edit_date"] = int(self.clock())
        self._tell(self.edited, message, call)
        return message

    def _tell(self, pile: dict[tuple[str, int], list[BotMessage]], message: Json, call: Call) -> None:
        said = BotMessage(copy.deepcopy(message), call)
        pile.setdefault((said.business, said.chat_id), []).append(said)
        self.bell.ring()

    def reply_target(self, chat_id: int, message_id: int, business: str) -> Json | None:
        """The message a reply quotes, without what that one quoted itself."""
        found = self.find(chat_id, message_id, business)
        return {k: v for k, v in found.items() if k != "reply_to_message"} if found else None
