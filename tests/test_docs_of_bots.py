"""The programs in the pages about aiogram and python-telegram-bot run as they stand there."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from aiogram_bots import TOKEN, polling
from hitherto.testing.telegram import FakeTelegram
from ptb_bots import polling as ptb_polling

DOCS = Path(__file__).parents[1] / "docs"


def blocks(page: str) -> list[str]:
    """The Python of a page, without the examples, which have tests of their own."""
    found = re.findall(r"^```python\n(.*?)^```", (DOCS / page).read_text(), re.DOTALL | re.MULTILINE)
    assert len(found) == 2
    return found


@pytest.fixture
def page(request, tmp_path, monkeypatch) -> Any:
    """A page's blocks, as one module."""
    monkeypatch.chdir(tmp_path)
    module = ModuleType("page")
    monkeypatch.setitem(sys.modules, "page", module)
    for block in blocks(request.param):
        exec(compile(block, request.param, "exec"), module.__dict__)
    return module


@pytest.mark.parametrize("page", ["aiogram.md"], indirect=True)
async def test_aiogram(page):
    async with FakeTelegram(TOKEN) as telegram:
        alice, bob = telegram.user("Alice"), telegram.user("Bob")
        async with polling(telegram, page.dispatcher):
            for said, heard in (
                ("hi", "small or large?"),
                ("large", "thank you"),
                ("hm", "your large pizza is in the oven"),
            ):
                alice.says(said)
                assert (await alice.hears()).text == heard
            for said, heard in (
                ("hi", "small or large?"),
                ("hm", "small or large, please?"),
                ("so", "another day, then"),
            ):
                bob.says(said)
                assert (await bob.hears()).text == heard
    await page.storage.close()


@pytest.mark.parametrize("page", ["ptb.md"], indirect=True)
async def test_ptb(page):
    async with FakeTelegram(TOKEN) as telegram:
        object.__setattr__(page.application.bot, "_base_url", f"{telegram.url}/bot{TOKEN}")
        alice = telegram.user("Alice")
        async with ptb_polling(telegram, page.application):
            alice.says("hi")
            assert (await alice.hears()).text == "small or large?"
            alice.says("well")
            assert (await alice.hears()).text == "it is in the oven"
            alice.presses("large")
            await telegram.called("answerCallbackQuery")
            alice.says("and now?")
            assert (await alice.hears()).text == "a large one takes its time"
