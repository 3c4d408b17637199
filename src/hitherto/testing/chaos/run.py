"""One run: a feeder that delivers like a platform does, a nemesis, and the judgement when all is drained.

The feeder sends each conversation's events one after the other and repeats a delivery until some worker has
said that it is kept; so the order of sending is the order of acceptance. Some are sent twice, some
conversations' events change places before they are sent.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import socket
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from multiprocessing import get_context
from typing import Any

import msgspec

from hitherto.addresses import Address
from hitherto.codec import decode
from hitherto.stores import open_store
from hitherto.testing.chaos import worker
from hitherto.testing.chaos.report import Report, judge
from hitherto.testing.chaos.worker import BOT, Settings

Fault = Callable[[], Awaitable[object]]
_MODULES = ["hitherto.testing.chaos.worker", "hitherto.stores.sqlite", "hitherto.keeper"]
_PATIENCE = 0.5
_LONGEST_DRAIN = 60.0


class Plan(msgspec.Struct, frozen=True):
    """How much of everything."""

    workers: int = 4
    conversations: int = 12
    kills: int = 300
    pauses: int = 0
    duplicate: float = 0.10
    reorder: float = 0.05
    seconds: float = 600.0
    between: float = 0.05
    pause: float = 1.0


class Worker:
    """A worker process and the line to it."""

    def __init__(self, settings: Settings, seed: int) -> None:
        ours, theirs = socket.socketpair()
        context = get_context("forkserver")
        context.set_forkserver_preload(_MODULES)
        self.process = context.Process(target=worker.main, args=(settings, theirs, seed), daemon=True)
        self.process.start()
        theirs.close()
        self.socket = ours
        self.writer: asyncio.StreamWriter | None = None
        self.paused = False

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


class Run:
    """The state of one run."""

    def __init__(self, settings: Settings, plan: Plan, seed: int, faults: list[Fault] | None = None) -> None:
        self.settings = settings
        self.plan = plan
        self.chance = random.Random(seed)
        self.report = Report(seed=seed, url=settings.url)
        self.sent: dict[int, list[str]] = {key: [] for key in range(plan.conversations)}
        self.faults = faults or []
        self.statuses: Counter[str] = Counter()
        self._workers: list[Worker] = []
        self._answers: dict[int, asyncio.Future[str]] = {}
        self._number = 0
        self._stopped = asyncio.Event()
        self._tasks: set[asyncio.Task[Any]] = set()

    async def do(self) -> Report:
        """Feed and harm until the plan is done, drain, judge."""
        began = time.monotonic()
        self._workers = [await self._hire() for _ in range(self.plan.workers)]
        feeders = [asyncio.create_task(self._feed(key)) for key in self.sent]
        try:
            await self._harm(began)
            self._stopped.set()
            await asyncio.gather(*feeders)
            calm = time.monotonic()
            await self._drained()
            self.report.slowest_recovery = time.monotonic() - calm
        finally:
            self._stopped.set()
            for each in self._workers:
                each.signal(signal.SIGKILL)
            for task in feeders:
                task.cancel()
            await asyncio.gather(*feeders, *self._tasks, return_exceptions=True)
        await self._judge()
        self.report.seconds = time.monotonic() - began
        self.report.statuses = dict(self.statuses)
        return self.report

    # ---------------------------------------------------------------------------------------- workers

    async def _hire(self) -> Worker:
        hired = Worker(self.settings, self.chance.randrange(2**32))
        reader, hired.writer = await asyncio.open_connection(sock=hired.socket)
        self._keep(self._listen(hired, reader))
        return hired

    def _keep(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _listen(self, hired: Worker, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(ConnectionError, asyncio.CancelledError):
            while line := await reader.readline():
                message = msgspec.json.decode(line)
                if "step" in message:
                    self._count(message["step"])
                elif "n" in message:
                    answer = self._answers.pop(message["n"], None)
                    if answer is not None and not answer.done():
                        answer.set_result(message["status"])
        if hired.writer is not None:
            hired.writer.close()
            with contextlib.suppress(ConnectionError):
                await hired.writer.wait_closed()
        await asyncio.to_thread(hired.bury)

    def _count(self, step: str) -> None:
        counts = {"fenced": "fenced", "recovered": "recovered", "committed": "commits"}
        if step in counts:
            setattr(self.report, counts[step], getattr(self.report, counts[step]) + 1)

    # ---------------------------------------------------------------------------------------- nemesis

    async def _harm(self, began: float) -> None:
        deeds = ["kill"] * self.plan.kills + ["pause"] * self.plan.pauses
        self.chance.shuffle(deeds)
        for place, fault in enumerate(self.faults):
            deeds.insert((place + 1) * len(deeds) // (len(self.faults) + 1), fault)  # type: ignore[arg-type]
        for deed in deeds:
            await asyncio.sleep(self.chance.random() * 2 * self.plan.between)
            if time.monotonic() - began > self.plan.seconds:
                break
            place = self.chance.randrange(len(self._workers))
            if deed == "pause":
                self._keep(self._pause(self._workers[place]))
            elif deed == "kill":
                self._workers[place].signal(signal.SIGKILL)
                self.report.kills += 1
                self._workers[place] = await self._hire()
            else:
                await deed()  # type: ignore[operator]
                self.report.faults += 1

    async def _pause(self, victim: Worker) -> None:
        victim.paused = True
        victim.signal(signal.SIGSTOP)
        self.report.pauses += 1
        await asyncio.sleep(self.plan.pause)
        victim.signal(signal.SIGCONT)
        victim.paused = False

    # ----------------------------------------------------------------------------------------- feeder

    async def _feed(self, key: int) -> None:
        number = 0
        while not self._stopped.is_set():
            names = [f"{key}-{number}", f"{key}-{number + 1}"]
            number += 2
            if self.chance.random() < self.plan.reorder * 2:
                names.reverse()
                self.report.reordered += 1
            for name in names:
                await self._deliver(key, name)
                self.sent[key].append(name)
                self.report.events += 1
                if self.chance.random() < self.plan.duplicate:
                    self.report.duplicates += 1
                    again = self.chance.choice(self.sent[key][-4:])
                    await self._deliver(key, again)

    async def _deliver(self, key: int, name: str) -> None:
        """Until a worker has said that it is kept; what was perhaps lost with a worker is sent again."""
        while True:
            hired = self.chance.choice(self._workers)
            self._number += 1
            answer = self._answers[self._number] = asyncio.get_running_loop().create_future()
            order = {"n": self._number, "key": key, "id": name}
            status = "silence"
            if hired.writer is not None and not hired.writer.is_closing():
                hired.writer.write(msgspec.json.encode(order) + b"\n")
                self.report.deliveries += 1
                with contextlib.suppress(TimeoutError):
                    status = await asyncio.wait_for(answer, _PATIENCE)
            else:
                await asyncio.sleep(0.01)
            self._answers.pop(order["n"], None)  # type: ignore[call-overload]
            self.statuses[status] += 1
            if status in ("queued", "duplicate", "committed"):
                return

    # -------------------------------------------------------------------------------------- the end

    async def _drained(self) -> None:
        """Wait, with the workers left alone, until nothing waits anywhere."""
        end = time.monotonic() + _LONGEST_DRAIN
        async with open_store(self.settings.url) as store:
            while time.monotonic() < end:
                for key in self.sent:
                    if (await store.load(Address(BOT, "", (key,)))).inbox:
                        break
                else:
                    return
                await asyncio.sleep(0.05)

    async def _judge(self) -> None:
        async with open_store(self.settings.url) as store:
            for key, sent in self.sent.items():
                document = await store.load(Address(BOT, "", (key,)))
                data = None if document.record is None else decode(document.record.fields)
                self.report.violations += judge(document, data, key, sent)


async def run(
    settings: Settings, plan: Plan | None = None, seed: int | None = None, faults: list[Fault] | None = None
) -> Report:
    """Do one run over the store at ``settings.url``, which should be empty; print the seed to repeat it."""
    chosen = random.SystemRandom().randrange(2**32) if seed is None else seed
    return await Run(settings, Plan() if plan is None else plan, chosen, faults).do()
