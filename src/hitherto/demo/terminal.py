"""The pizza bot as a chat in the terminal, on an SQLite file: kill it at any point, start it again, go on.

With ``--say`` it needs no terminal; when standard input is none, it reads the messages from there.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import threading
import uuid
from collections.abc import AsyncIterator, Iterable
from typing import Any

from hitherto.demo.pizza import HELP, Order, answer
from hitherto.errors import HithertoError
from hitherto.keeper import Keeper
from hitherto.outcomes import Outcome
from hitherto.turns import Turn

BOT = "pizza"
_ME = (1, 1)


def main(arguments: argparse.Namespace) -> int:
    """Run the chat; the exit code."""
    try:
        asyncio.run(chat(arguments.store, arguments.say))
    except HithertoError as error:
        print(f"hitherto demo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nBye. Start me again and we go on from here.")
    return 0


async def chat(store: str, say: Iterable[str] | None) -> None:
    """Talk until there is nothing more to say."""

    async def handler(turn: Turn) -> None:
        if turn.attempt > 1:
            print("(picked up where the last run ended)")
        await answer(turn, _print)

    interactive = say is None and sys.stdin.isatty()
    async with Keeper(BOT, store, [Order], handler=handler, lease=2.0, sweep=0.5, max_attempts=20) as keeper:
        await _settle_leftovers(keeper)
        if interactive:
            print(f"{HELP}\nCtrl-C leaves; nothing is lost, not even by kill -9.")
        await _where(keeper)
        async for text in _typed() if interactive else _given(say):
            if not interactive:
                print(f"> {text}")
            await _say(keeper, text)
            await _where(keeper)


async def _say(keeper: Keeper, text: str) -> Outcome:
    event: dict[str, Any] = {"id": uuid.uuid4().hex, "text": text}
    outcome = await keeper.handle(event, key=_ME)
    await keeper.idle()
    return outcome


async def _settle_leftovers(keeper: Keeper) -> None:
    """Let what a killed run left behind be handled before anything new, once its lease is over."""
    for _ in range(80):
        if not (await keeper.inspect(_ME)).inbox:
            return
        await asyncio.sleep(0.05)


async def _where(keeper: Keeper) -> None:
    record = await keeper.store.get_state(BOT, _ME)
    place = f"{record.flow}: {record.state}" if record is not None and record.flow else "no order"
    print(f"[{place}]")


async def _typed() -> AsyncIterator[str]:
    """Lines from the terminal, read in a thread of their own so that the keeper goes on meanwhile."""
    loop, lines = asyncio.get_running_loop(), asyncio.Queue[str | None]()

    def read() -> None:
        line: str | None = ""
        while line is not None:
            try:
                line = input("> ")
            except (EOFError, KeyboardInterrupt):
                line = None
            loop.call_soon_threadsafe(lines.put_nowait, line)
            asked.acquire()

    asked = threading.Semaphore(0)
    threading.Thread(target=read, daemon=True, name="hitherto-demo-input").start()
    while (line := await lines.get()) is not None:
        if line.strip():
            yield line.strip()
        asked.release()


async def _given(say: Iterable[str] | None) -> AsyncIterator[str]:
    for line in sys.stdin if say is None else say:
        if line.strip():
            yield line.strip()


def _print(text: str) -> None:
    print(text, flush=True)
