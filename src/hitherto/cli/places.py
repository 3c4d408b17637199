"""Where a command works: the store, the bot and the key that its arguments name."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from hitherto.addresses import Address, encode, key_text, parse_key
from hitherto.cli.codes import NOT_FOUND
from hitherto.cli.output import safe
from hitherto.errors import HithertoError, StoreWarning, did_you_mean
from hitherto.stores import Store, open_store


def add_place(command: argparse.ArgumentParser, *, bot: bool = True) -> None:
    """``--store`` and ``--bot``, or the environment."""
    command.add_argument("--store", "-s", metavar="URL", default=os.environ.get("HITHERTO_STORE"))
    if bot:
        command.add_argument("--bot", "-b", metavar="NAME", default=os.environ.get("HITHERTO_BOT"))


def add_key(command: argparse.ArgumentParser) -> None:
    """The conversation."""
    command.add_argument("key", metavar="KEY", help="the conversation, as ls prints it: 7/7 or .room/7")


def address_of(arguments: argparse.Namespace) -> Address:
    """The conversation that the arguments name."""
    return Address(bot_of(arguments), "", parse_key(arguments.key))


async def unknown(store: Store, address: Address) -> int:
    """Say that there is no such conversation, and which is nearest among the first and those beside it."""
    beside = encode(address)[: -len(key_text(address.key)) // 2]
    listed = [
        one for after in ("", beside) for one in await store.browse(address.bot, after=after, limit=100)
    ]
    key = key_text(address.key)
    hint = did_you_mean(key, [key_text(one.key) for one in listed])
    print(f"hitherto: nothing is known of {safe(key)}{hint}", file=sys.stderr)
    return NOT_FOUND


def bot_of(arguments: argparse.Namespace) -> str:
    """The bot that the arguments name."""
    if not arguments.bot:
        raise HithertoError("which bot? give --bot NAME or set HITHERTO_BOT")
    return str(arguments.bot)


def run(arguments: argparse.Namespace, work: Callable[[Store], Awaitable[int]]) -> int:
    """Open the store, do the work in an event loop of its own, close it."""

    async def go() -> int:
        async with opened(arguments.store) as store:
            return await work(store)

    return asyncio.run(go())


@asynccontextmanager
async def opened(url: str | None) -> AsyncIterator[Store]:
    """A store by its URL, without its warnings: ``doctor`` is for those."""
    if not url:
        raise HithertoError("which store? give --store URL (sqlite:///bot.db) or set HITHERTO_STORE")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StoreWarning)
        async with open_store(url) as store:
            yield store
