"""One worker process: accepts the events it is sent, appends their ids to the log, and expects to be killed.

It speaks over a socket, one JSON text a line: it is sent ``{"n": 7, "key": 3, "id": "3-12"}`` and answers
``{"n": 7, "status": "queued"}`` once the event is kept. ``{"clock": 3600}`` sets its clock wrong by so much,
``{"disk": 4096}`` lets no file grow beyond (-1: all is well again). Every step of its keeper is told.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import random
import resource
import socket
import time
import warnings
from collections.abc import Callable
from typing import Any, Protocol
from unittest import mock

import msgspec

from hitherto.addresses import Address
from hitherto.codec import decode
from hitherto.errors import StoreError, StoreWarning
from hitherto.keeper import Keeper
from hitherto.outcomes import Step
from hitherto.overlap import Queue
from hitherto.testing.chaos.spoiled import SPOILERS
from hitherto.turns import Turn

BOT = "chaos"
KEPT = frozenset({"queued", "duplicate", "committed"})
_TOLD = frozenset({"started", "fenced", "lost", "recovered", "committed", "failed", "dead", "released"})


class Settings(msgspec.Struct, frozen=True):
    """What every worker of a run is told.

    ``direct``: the store as the judge reaches it, when ``url`` leads through a proxy. ``subject``: what is
    harmed, if it is not a keeper: ``module:function`` of the URL and these settings; ``preload`` has
    the modules that take long to import.
    """

    url: str
    lease: float = 0.6
    sweep: float = 0.1
    slowest: float = 0.004
    deadline: float = 20.0
    spoil: str = ""
    bot: str = BOT
    queue: int = 100
    direct: str = ""
    subject: str = ""
    preload: tuple[str, ...] = ()
    clock: float = 0.0


class Tell(Protocol):
    """How a worker says something."""

    def __call__(self, **message: Any) -> None: ...


class Subject(Protocol):
    """What is harmed: it is given events, and tells in the end what it has made of them."""

    async def start(self) -> None:
        """Get ready."""

    async def stop(self) -> None:
        """Close what was opened."""

    async def accept(self, key: int, name: str) -> str:
        """Take an event of a conversation; one of ``KEPT`` says that it need not be sent again."""
        ...

    async def data(self, key: int) -> dict[str, Any] | None:
        """What is remembered of the conversation; ``log`` has the ids of its events."""
        ...


class Kept:
    """A keeper as the subject."""

    def __init__(self, settings: Settings, chance: random.Random, tell: Tell) -> None:
        self.tell = tell
        self.bot = settings.bot
        self.keeper = Keeper(
            settings.bot, settings.url, handler=_handler(settings, chance), lease=settings.lease,
            sweep=settings.sweep, deadline=settings.deadline, max_attempts=1000,
            backoff=lambda attempt: 0.05, overlap=Queue(limit=settings.queue),
        )  # fmt: skip
        self.keeper.listen(self._listen)
        if settings.url.startswith("sqlite:"):
            self.keeper.store.go_by(lambda: time.time())  # the host's clock, which may be set while it runs

    async def start(self) -> None:
        """Start the keeper."""
        await self.keeper.start()

    async def stop(self) -> None:
        """Stop it."""
        await self.keeper.stop()

    async def accept(self, key: int, name: str) -> str:
        """As a webhook does."""
        outcome = await self.keeper.accept({"id": name}, id=name, key=(key,))
        return outcome.status

    async def data(self, key: int) -> dict[str, Any] | None:
        """The record's data."""
        stored = await self.keeper.store.read(Address(self.bot, "", (key,)))
        return None if stored is None else decode(stored.fields)

    def _listen(self, step: Step) -> None:
        if step.kind in _TOLD:
            key = int(step.conversation.rpartition("/")[2])
            self.tell(step=step.kind, key=key, id=step.event_id, epoch=step.epoch)


def subject_of(settings: Settings, chance: random.Random, tell: Tell) -> Subject:
    """The keeper, or whatever else is to be harmed."""
    if not settings.subject:
        return Kept(settings, chance, tell)
    module, _, name = settings.subject.partition(":")
    subject: Subject = getattr(importlib.import_module(module), name)(settings.url, settings)
    return subject


def main(settings: Settings, channel: socket.socket, seed: int) -> None:
    """Run one worker until its channel is closed or it is killed."""
    warnings.simplefilter("ignore", StoreWarning)
    logging.getLogger("hitherto").setLevel(logging.ERROR)  # lost leases and retries are what we are here for
    if settings.spoil:
        SPOILERS[settings.spoil]()
    set_clock(settings.clock)
    asyncio.run(_work(settings, channel, random.Random(seed)))


_honest_time = time.time


def set_clock(offset: float) -> None:
    """Let ``time.time()`` be wrong from now on; the monotonic clock, as on real machines, is not set."""
    if offset or time.time is not _honest_time:
        mock.patch.object(time, "time", lambda: _honest_time() + offset).start()


def set_disk(limit: int) -> None:
    """Let no file of this process grow beyond *limit* bytes; a write there fails, as on a full disk."""
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY if limit < 0 else limit, hard))


async def _work(settings: Settings, channel: socket.socket, chance: random.Random) -> None:
    reader, writer = await asyncio.open_connection(sock=channel)

    def tell(**message: Any) -> None:
        if not writer.is_closing():
            writer.write(msgspec.json.encode({"pid": os.getpid(), **message}) + b"\n")

    subject = subject_of(settings, chance, tell)
    tasks: set[asyncio.Task[None]] = set()
    await _started(subject, tell)
    while line := await reader.readline():
        order = msgspec.json.decode(line)
        if "clock" in order:
            set_clock(order["clock"])
        elif "disk" in order:
            set_disk(order["disk"])
        else:
            task = asyncio.create_task(_accept(subject, order, tell))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
    await subject.stop()


async def _started(subject: Subject, tell: Tell) -> None:
    """As an init system does: again, when the store is away."""
    while True:
        try:
            await subject.start()
        except (StoreError, OSError) as error:
            tell(status="away", error=type(error).__name__)
            await asyncio.sleep(0.2)
        else:
            tell(status="ready")
            return


async def _accept(subject: Subject, order: dict[str, Any], tell: Tell) -> None:
    try:
        status = await subject.accept(order["key"], order["id"])
    except (StoreError, OSError) as error:
        tell(n=order["n"], status="error", error=type(error).__name__)
    else:
        tell(n=order["n"], status=status)


def _handler(settings: Settings, chance: random.Random) -> Callable[[Turn], Any]:
    async def handler(turn: Turn) -> None:
        await asyncio.sleep(chance.random() * settings.slowest)
        log = [*turn.data.get("log", []), turn.event_id]
        marks = [*turn.data.get("marks", []), [turn.epoch, os.getpid()]]
        await asyncio.sleep(chance.random() * settings.slowest)
        turn.update_data(log=log, marks=marks, needle=turn.key, turns=turn.data.get("turns", 0) + 1)

    return handler
