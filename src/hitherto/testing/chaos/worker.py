"""One worker process: accepts the events it is sent, appends their ids to the log, and expects to be killed.

It speaks over a socket, one JSON text a line: it is sent ``{"n": 7, "key": 3, "id": "3-12"}`` and answers
``{"n": 7, "status": "queued"}`` once the event is kept.
"""

from __future__ import annotations

import asyncio
import os
import random
import socket
import warnings
from collections.abc import Callable
from typing import Any

import msgspec

from hitherto.errors import StoreError, StoreWarning
from hitherto.keeper import Keeper
from hitherto.outcomes import Step
from hitherto.testing.chaos.spoiled import SPOILERS
from hitherto.turns import Turn

BOT = "chaos"


class Settings(msgspec.Struct, frozen=True):
    """What every worker of a run is told."""

    url: str
    lease: float = 0.6
    sweep: float = 0.1
    slowest: float = 0.004
    deadline: float = 20.0
    spoil: str = ""


def main(settings: Settings, channel: socket.socket, seed: int) -> None:
    """Run one worker until its channel is closed or it is killed."""
    warnings.simplefilter("ignore", StoreWarning)
    if settings.spoil:
        SPOILERS[settings.spoil]()
    asyncio.run(_work(settings, channel, random.Random(seed)))


async def _work(settings: Settings, channel: socket.socket, chance: random.Random) -> None:
    reader, writer = await asyncio.open_connection(sock=channel)

    def tell(**message: Any) -> None:
        writer.write(msgspec.json.encode({"pid": os.getpid(), **message}) + b"\n")

    keeper = Keeper(
        BOT, settings.url, handler=_handler(settings, chance), lease=settings.lease, sweep=settings.sweep,
        deadline=settings.deadline, max_attempts=1000, backoff=lambda attempt: 0.05,
    )  # fmt: skip
    keeper.listen(_teller(tell))
    tasks: set[asyncio.Task[None]] = set()
    async with keeper:
        tell(status="ready")
        while line := await reader.readline():
            task = asyncio.create_task(_accept(keeper, msgspec.json.decode(line), tell))
            tasks.add(task)
            task.add_done_callback(tasks.discard)


async def _accept(keeper: Keeper, order: dict[str, Any], tell: Callable[..., None]) -> None:
    try:
        outcome = await keeper.accept({"id": order["id"]}, id=order["id"], key=(order["key"],))
    except StoreError as error:
        tell(n=order["n"], status="error", error=type(error).__name__)
    else:
        tell(n=order["n"], status=outcome.status)


def _handler(settings: Settings, chance: random.Random) -> Callable[[Turn], Any]:
    async def handler(turn: Turn) -> None:
        await asyncio.sleep(chance.random() * settings.slowest)
        log = [*turn.data.get("log", []), turn.event_id]
        await asyncio.sleep(chance.random() * settings.slowest)
        turn.update_data(log=log, needle=turn.key, turns=turn.data.get("turns", 0) + 1)

    return handler


def _teller(tell: Callable[..., None]) -> Callable[[Step], None]:
    def listen(step: Step) -> None:
        if step.kind in ("fenced", "lost", "recovered", "committed", "failed", "dead"):
            tell(step=step.kind, epoch=step.epoch, conversation=step.conversation)

    return listen
