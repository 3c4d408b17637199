"""Bots killed in the middle of handlers, while Telegram delivers again: every message is answered for once.

HITHERTO_KILLS says how often each is killed.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import socket
from typing import Any

import pytest

from hitherto.addresses import Address
from hitherto.stores import open_store
from hitherto.testing.http import fetch
from hitherto.testing.telegram import FakeTelegram
from killed_bots import SECRET, SLOWEST, TOKEN
from zygote import Zygote

KILLS = int(os.environ.get("HITHERTO_KILLS", "12"))
PATIENCE = 90.0


async def set_webhook(telegram: FakeTelegram, listening: socket.socket) -> None:
    hook = f"http://127.0.0.1:{listening.getsockname()[1]}/telegram"
    body = json.dumps({"url": hook, "secret_token": SECRET}).encode()
    url, headers = f"{telegram.url}/bot{TOKEN}/setWebhook", {"Content-Type": "application/json"}
    assert (await fetch(url, method="POST", body=body, headers=headers)).status == 200


async def settled(store: Any, people: dict[int, list[int]]) -> None:
    """Wait until nothing of anybody's waits or runs."""
    async with asyncio.timeout(PATIENCE):
        for person in people:
            while (await store.load(Address("killed", "", (person, person)))).inbox:  # noqa: ASYNC110
                await asyncio.sleep(0.02)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ["aiogram_bot", "ptb_bot", "fastapi_bot"])
async def test_killed_in_the_middle(name, zygote: Zygote, tmp_path):
    chance = random.Random(name)
    url = f"sqlite:///{tmp_path}/bot.db"
    async with FakeTelegram(TOKEN) as telegram:
        environment = {"API": telegram.url, "STORE": url}
        listening = socket.create_server(("127.0.0.1", 0)) if name == "fastapi_bot" else None
        fd = 0 if listening is None else listening.fileno()
        telegram.mischief(duplicate=0.3, seed=7)
        people = [telegram.user(f"Person {number}") for number in range(5)]
        said: dict[int, list[int]] = {person.id: [] for person in people}
        updates: list[int] = []
        number = inside = 0
        bot = zygote.fork(f"killed_bots:{name}", environment=environment, fd=fd)
        try:
            if listening is not None:
                await set_webhook(telegram, listening)
            for _ in range(KILLS):
                for person in chance.sample(people, 3):
                    number += 1
                    updates.append(person.says(str(number))["update_id"])
                    said[person.id].append(number)
                begun = len(telegram.calls_of("sendChatAction"))
                await telegram.called("sendChatAction", begun + 1, PATIENCE)
                await asyncio.sleep(chance.random() * SLOWEST / 2)
                zygote.kill(bot)
                inside += await running(url, said)
                bot = zygote.fork(f"killed_bots:{name}", environment=environment, fd=fd)
            await telegram.drained(PATIENCE)
            async with open_store(url) as store:
                await settled(store, said)
                for update in chance.sample(updates, len(updates) // 2):
                    telegram.redeliver(update)
                await telegram.drained(PATIENCE)
                await settled(store, said)
                found = {person: await store.get_data("killed", (person, person)) for person in said}
        finally:
            await telegram.webhook.stop()
            zygote.kill(bot)
            if listening is not None:
                listening.close()
    assert inside >= KILLS / 2
    for person, numbers in said.items():
        assert sorted(found[person]["seen"]) == numbers
        assert found[person]["count"] == len(numbers)


async def running(url: str, people: dict[int, list[int]]) -> bool:
    """Whether the killed one has left a claimed event behind."""
    async with open_store(url) as store:
        documents = [await store.load(Address("killed", "", (person, person))) for person in people]
    return any(document.lease is not None and document.inbox for document in documents)
