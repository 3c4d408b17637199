"""Bots that note each message in the state, slowly, and expect to be killed in the middle of it.

Each tells the fake Telegram with ``sendChatAction`` that a handler has begun.
"""

from __future__ import annotations

import asyncio
import json
import random
from os import environ
from typing import Any

from hitherto import Keeper, Turn
from hitherto.testing.http import fetch

TOKEN, SECRET = "42:TEST", "s3cret"
SLOWEST = 0.02


def keeper() -> Keeper:
    """Leases that are soon over, since their holders are."""
    return Keeper("killed", environ["STORE"], lease=0.6, sweep=0.1, max_attempts=1000, seen_limit=10_000)


async def note(turn: Turn, text: str, began: Any) -> None:
    """Half of it before a while, half after."""
    turn.update_data(seen=[*turn.data.get("seen", []), int(text)])
    await began
    await asyncio.sleep(random.random() * SLOWEST)
    turn.update_data(count=turn.data.get("count", 0) + 1)


def aiogram_bot() -> None:
    """By polling."""
    from aiogram import Bot, Dispatcher
    from aiogram.client.session.aiohttp import AiohttpSession
    from aiogram.client.telegram import TelegramAPIServer

    from hitherto.aiogram import attach

    dispatcher = Dispatcher()
    attach(dispatcher, keeper())

    @dispatcher.message()
    async def message(message: Any, turn: Turn, bot: Bot) -> None:
        await note(turn, message.text, bot.send_chat_action(message.chat.id, "typing"))

    bot = Bot(TOKEN, AiohttpSession(api=TelegramAPIServer.from_base(environ["API"])))
    dispatcher.run_polling(bot, polling_timeout=5)


def ptb_bot() -> None:
    """By polling."""
    from telegram.ext import Application, MessageHandler, filters

    from hitherto.ptb import attach

    builder = Application.builder().token(TOKEN).base_url(f"{environ['API']}/bot").concurrent_updates(True)
    application = attach(builder.build(), keeper())

    async def message(update: Any, context: Any) -> None:
        await note(context.turn, update.message.text, update.message.chat.send_action("typing"))

    application.add_handler(MessageHandler(filters.TEXT, message))
    application.run_polling(poll_interval=0, timeout=5)


def fastapi_bot() -> None:
    """By a webhook."""
    import uvicorn
    from fastapi import FastAPI

    from hitherto import asgi

    async def handler(turn: Turn) -> None:
        message = turn.event["message"]
        body = json.dumps({"chat_id": message["chat"]["id"], "action": "typing"}).encode()
        url, headers = f"{environ['API']}/bot{TOKEN}/sendChatAction", {"Content-Type": "application/json"}
        await note(turn, message["text"], fetch(url, method="POST", body=body, headers=headers))

    kept = keeper()
    app = FastAPI(lifespan=asgi.lifespan(kept))
    app.add_route("/telegram", asgi.telegram(kept, handler, secret=SECRET))
    uvicorn.run(app, fd=int(environ["FD"]), log_level="error")
