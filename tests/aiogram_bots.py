"""What the tests of aiogram share: a real bot at the fake Telegram, by long polling or by a webhook."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

from aiogram import Bot, Dispatcher
from aiogram.client.session.aiohttp import AiohttpSession
from aiogram.client.telegram import TelegramAPIServer
from aiogram.webhook.aiohttp_server import SimpleRequestHandler, setup_application
from aiohttp import web

from hitherto.testing.telegram import FakeTelegram

TOKEN = "42:TEST"
SECRET = "s3cret"


def a_bot(telegram: FakeTelegram, token: str = TOKEN) -> Bot:
    """A bot that talks to the fake."""
    return Bot(token, session=AiohttpSession(api=TelegramAPIServer.from_base(telegram.url)))


@asynccontextmanager
async def polling(telegram: FakeTelegram, dispatcher: Dispatcher, **options: Any) -> AsyncIterator[Bot]:
    """A bot that polls while the block runs, and is stopped the way a signal does it."""
    bot = a_bot(telegram)
    options = {"polling_timeout": 5, "handle_signals": False, **options}
    task = asyncio.create_task(dispatcher.start_polling(bot, **options))
    try:
        before = len(telegram.calls_of("getUpdates"))
        asked = asyncio.create_task(telegram.called("getUpdates", before + 1))
        await asyncio.wait([task, asked], return_when=asyncio.FIRST_COMPLETED)
        asked.cancel()
        if task.done():
            task.result()
        yield bot
    finally:
        with suppress(RuntimeError):
            await dispatcher.stop_polling()
        await asyncio.wait([task], timeout=10)
        await bot.session.close()
    task.result()


@asynccontextmanager
async def webhook(telegram: FakeTelegram, dispatcher: Dispatcher, **options: Any) -> AsyncIterator[Bot]:
    """A bot behind aiogram's own aiohttp handler, which the fake posts to."""
    bot = a_bot(telegram)
    app = web.Application()
    SimpleRequestHandler(dispatcher, bot, secret_token=SECRET, **options).register(app, path="/hook")
    setup_application(app, dispatcher, bot=bot)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        await bot.set_webhook(f"http://127.0.0.1:{port}/hook", secret_token=SECRET)
        yield bot
    finally:
        await telegram.webhook.stop()
        await runner.cleanup()
        await bot.session.close()


async def until(come: Callable[[], object], seconds: float = 10.0) -> None:
    """Let others run until it is true; fail when it never is."""
    async with asyncio.timeout(seconds):
        while not come():  # noqa: ASYNC110 - what is waited for rings no bell
            await asyncio.sleep(0.002)
