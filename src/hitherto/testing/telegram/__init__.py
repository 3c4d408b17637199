"""A fake Telegram Bot API server: real HTTP on a loopback port, people who write, and all that can go wrong.

    async with FakeTelegram(token="42:TEST") as telegram:
        alice = telegram.user("Alice")
        ...start a bot on telegram.url...
        alice.says("/start")
        assert (await alice.hears()).text == "Hello!"

Only the standard library is needed. Long polling follows Telegram's rule of offsets, webhooks are tried again
until they are accepted, and `telegram.mischief(...)` duplicates, reorders, delays and loses things by a seed.
"""

from __future__ import annotations

from .delivery import Attempt, Mischief
from .people import BusinessChat, BusinessConnection, Channel, Group, Person, Place, Topic
from .server import FakeTelegram
from .world import ApiError, BotMessage, Button, Call

__all__ = [
    "ApiError",
    "Attempt",
    "BotMessage",
    "BusinessChat",
    "BusinessConnection",
    "Button",
    "Call",
    "Channel",
    "FakeTelegram",
    "Group",
    "Mischief",
    "Person",
    "Place",
    "Topic",
]
