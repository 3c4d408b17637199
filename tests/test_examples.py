"""The examples are as short as they are said to be, and bear being killed, restarted, told things twice."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from hitherto.addresses import Address
from hitherto.stores import open_store
from hitherto.testing.http import fetch
from hitherto.testing.telegram import FakeTelegram
from zygote import Zygote

HERE = Path(__file__).parent
EXAMPLES = HERE.parent / "examples"
LIMITS = {"aiogram_signup": 25, "ptb_signup": 30, "fastapi_signup": 30}
TOKEN, SECRET = "42:TEST", "s3cret"
PATIENCE = 60.0


@pytest.mark.parametrize("name", LIMITS)
def test_it_is_short(name):
    lines = [line.strip() for line in (EXAMPLES / f"{name}.py").read_text().splitlines()]
    assert len([line for line in lines if line and not line.startswith("#")]) <= LIMITS[name]


class Bot:
    """An example in a process of its own, started and killed at will."""

    def __init__(self, zygote: Zygote, name: str, telegram: FakeTelegram, store: str) -> None:
        self.zygote, self.name, self.telegram, self.pid = zygote, name, telegram, 0
        self.environment = {"API": telegram.url, "TOKEN": TOKEN, "STORE": store, "SECRET": SECRET}
        self.listening = socket.create_server(("127.0.0.1", 0)) if name.startswith("fastapi") else None

    async def start(self) -> None:
        """Start it; one with a webhook says where it is."""
        fd = 0 if self.listening is None else self.listening.fileno()
        file = str(EXAMPLES / f"{self.name}.py")
        self.pid = self.zygote.fork("run_example:main", file, environment=self.environment, fd=fd)
        if self.listening is not None and not self.telegram.calls_of("setWebhook"):
            hook = f"http://127.0.0.1:{self.listening.getsockname()[1]}/telegram"
            body = json.dumps({"url": hook, "secret_token": SECRET}).encode()
            headers = {"Content-Type": "application/json"}
            url = f"{self.telegram.url}/bot{TOKEN}/setWebhook"
            assert (await fetch(url, method="POST", body=body, headers=headers)).status == 200

    async def end(self, kill: bool) -> None:
        """End it as an operator does, or as the power does."""
        if self.pid:
            os.kill(self.pid, signal.SIGKILL if kill else signal.SIGTERM)
            await asyncio.to_thread(self.zygote.wait, self.pid)
            self.pid = 0


@asynccontextmanager
async def running(zygote: Zygote, name: str, store: str) -> AsyncIterator[tuple[Bot, FakeTelegram]]:
    async with FakeTelegram(TOKEN) as telegram:
        bot = Bot(zygote, name, telegram, store)
        try:
            await bot.start()
            yield bot, telegram
        finally:
            await telegram.webhook.stop()
            await bot.end(kill=True)
            if bot.listening is not None:
                bot.listening.close()


async def settled(store: Any, *people: Any) -> None:
    """Wait until every update of these people is committed: whoever is killed later leaves nothing behind."""
    async with asyncio.timeout(PATIENCE):
        for person in people:
            while (await store.load(Address("signup", "", (person.id, person.id)))).inbox:  # noqa: ASYNC110
                await asyncio.sleep(0.01)


async def hears(person: Any) -> str:
    said: str = (await person.hears(PATIENCE)).text
    return said


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", LIMITS)
async def test_a_sign_up(name, zygote, redis_aof_url):
    """In three steps, everything told twice, killed and restarted on the way; Bob's come all at once."""
    async with open_store(redis_aof_url) as store, running(zygote, name, redis_aof_url) as (bot, telegram):
        telegram.mischief(duplicate=1.0)
        alice, bob = telegram.user("Alice"), telegram.user("Bob")
        first = alice.says("/start")
        assert await hears(alice) == "What is your name?"
        for text in ("/start", "Bob", "bob@example.org"):
            bob.says(text)
        assert [await hears(bob) for _ in range(3)] == [
            "What is your name?", "And your e-mail?", "Thank you, Bob!",
        ]  # fmt: skip
        await telegram.drained(PATIENCE)
        await settled(store, alice, bob)
        await bot.end(kill=True)
        alice.says("Ann")
        await bot.start()
        assert await hears(alice) == "And your e-mail?"
        await telegram.drained(PATIENCE)
        await bot.end(kill=False)
        await bot.start()
        telegram.redeliver(first["update_id"])
        alice.says("ann@example.org")
        assert await hears(alice) == "Thank you, Ann!"
        await telegram.drained(PATIENCE)
        assert (len(alice.messages), len(bob.messages)) == (3, 3)
        await settled(store, alice, bob)
        for person, mail in ((alice, "ann@example.org"), (bob, "bob@example.org")):
            record = await store.get_state("signup", (person.id, person.id))
            assert (record.flow, record.state) == ("signup", "done")
            assert record.data == {"name": mail[:3].title(), "email": mail}
