"""The workers of a run: processes that are hired, told what to do, paused and killed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import time
from collections.abc import Callable
from multiprocessing import get_context
from typing import Any

import msgspec

from hitherto.testing.chaos import worker
from hitherto.testing.chaos.watch import Watch
from hitherto.testing.chaos.worker import Settings

_MODULES = [  # loaded once for all workers; what is not installed is left out
    "hitherto.testing.chaos.worker", "hitherto.keeper", "hitherto.stores.sqlite.store", "unittest.mock",
    "hitherto.stores.redis.store", "hitherto.stores.postgres.store", "redis.asyncio", "asyncpg",
]  # fmt: skip


class Worker:
    """A worker process and the line to it; ``running`` has the conversations it runs turns of."""

    def __init__(self, settings: Settings, seed: int) -> None:
        ours, theirs = socket.socketpair()
        context = get_context("forkserver")
        context.set_forkserver_preload([*_MODULES, *settings.preload])
        self.process = context.Process(target=worker.main, args=(settings, theirs, seed), daemon=True)
        self.process.start()
        theirs.close()
        self.socket = ours
        self.writer: asyncio.StreamWriter | None = None
        self.running: dict[int, None] = {}
        self.killed_at = 0.0
        self.paused = False
        self.ready = asyncio.Event()

    def bury(self) -> None:
        """Wait for its end and forget the process."""
        self.signal(signal.SIGKILL)
        self.process.join(10)
        self.process.close()

    def signal(self, number: int) -> None:
        """Send a signal, if there is still somebody to get it."""
        with contextlib.suppress(ProcessLookupError, ValueError):
            if self.process.pid is not None and self.process.is_alive():
                os.kill(self.process.pid, number)

    def tell(self, **order: Any) -> bool:
        """Send an order; whether there is a line to send it on."""
        if self.writer is None or self.writer.is_closing():
            return False
        self.writer.write(msgspec.json.encode(order) + b"\n")
        return True


class Crew:
    """All workers of a run, and what they answer."""

    def __init__(self, settings: Settings, watch: Watch, seeds: Callable[[], int]) -> None:
        self.settings = settings
        self.workers: list[Worker] = []
        self.answers: dict[int, asyncio.Future[str]] = {}
        self._watch = watch
        self._seeds = seeds
        self._tasks: set[asyncio.Task[Any]] = set()

    async def gather(self, number: int) -> None:
        """Hire so many."""
        self.workers = [await self._hire() for _ in range(number)]

    async def _hire(self) -> Worker:
        hired = Worker(self.settings, self._seeds())
        reader, hired.writer = await asyncio.open_connection(sock=hired.socket)
        self.keep(self._listen(hired, reader))
        return hired

    def keep(self, work: Any) -> None:
        """Run something beside, to the end of the run at most."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _listen(self, hired: Worker, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(ConnectionError, asyncio.CancelledError):
            while line := await reader.readline():
                message = msgspec.json.decode(line)
                if "step" in message:
                    self._watch.step(hired.running, message)
                elif message.get("status") == "ready":
                    hired.ready.set()
                elif "n" in message:
                    answer = self.answers.pop(message["n"], None)
                    if answer is not None and not answer.done():
                        answer.set_result(message["status"])
        hired.ready.set()
        if hired.killed_at:
            self._watch.killed(hired.running, hired.killed_at)
        if hired.writer is not None:
            hired.writer.close()
            with contextlib.suppress(ConnectionError):
                await hired.writer.wait_closed()
        await asyncio.to_thread(hired.bury)

    async def replace(self, place: int) -> None:
        """SIGKILL one and hire another."""
        victim = self.workers[place]
        victim.killed_at = time.monotonic()
        victim.signal(signal.SIGKILL)
        self.workers[place] = await self._hire()

    async def pause(self, place: int, seconds: float) -> None:
        """SIGSTOP one for a while."""
        victim = self.workers[place]
        victim.paused = True
        victim.signal(signal.SIGSTOP)
        self._watch.paused(victim.running)
        await asyncio.sleep(seconds)
        victim.signal(signal.SIGCONT)
        victim.paused = False

    def order(self, **order: Any) -> None:
        """Tell all of them something."""
        for each in self.workers:
            each.tell(**order)

    async def dismiss(self) -> None:
        """Kill all, and wait until they are gone."""
        for each in self.workers:
            each.killed_at = 0.0
            each.signal(signal.SIGKILL)
        while self._tasks:
            await asyncio.wait(list(self._tasks), timeout=15)
            for task in self._tasks:
                task.cancel()
