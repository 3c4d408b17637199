"""What the tests of python-telegram-bot share: a real application at the fake, by polling or by a webhook."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from telegram.ext import Application, ApplicationBuilder

from hitherto.testing.telegram import FakeTelegram

TOKEN = "42:TEST"
SECRET = "s3cret"


def a_builder(telegram: FakeTelegram) -> ApplicationBuilder:
    """What builds an application that talks to the fake."""
    return Application.builder().token(TOKEN).base_url(f"{telegram.url}/bot")


@asynccontextmanager
async def polling(telegram: FakeTelegram, application: Any, **options: Any) -> AsyncIterator[None]:
    """An application that polls while the block runs, started and stopped as ``run_polling`` does it."""
    async with application:
        before = len(telegram.calls_of("getUpdates"))
        await application.updater.start_polling(**{"poll_interval": 0, "timeout": 5, **options})
        await application.start()
        try:
            await telegram.called("getUpdates", before + 1)
            yield
        finally:
            await application.updater.stop()
            await application.stop()


@asynccontextmanager
async def webhook(telegram: FakeTelegram, application: Any) -> AsyncIterator[None]:
    """An application behind PTB's own server, which the fake posts to."""
    async with application:
        listening = socket.create_server(("127.0.0.1", 0))
        listening.setblocking(False)
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/hook"
        await application.updater.start_webhook(
            url_path="hook", webhook_url=url, secret_token=SECRET, unix=listening
        )
        await application.start()
        try:
            yield
        finally:
            await telegram.webhook.stop()
            await application.updater.stop()
            await application.stop()
