"""One run: a feeder that delivers like a platform does, a nemesis, and the judgement when all is drained.

The feeder sends each conversation's events one after the other and repeats a delivery until some worker has
said that it is kept; so the order of sending is the order of acceptance. Some are sent twice, some
conversations' events change places before they are sent.

A seed gives the same deeds in the same order, the same events and the same workers' pauses again; what the
machine does in between is its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from hitherto.addresses import Address
from hitherto.codec import decode
from hitherto.document import EMPTY, Document
from hitherto.errors import StoreError, redact
from hitherto.stores import Store, open_store
from hitherto.testing.chaos.crew import Crew
from hitherto.testing.chaos.plan import Fault, Plan, named
from hitherto.testing.chaos.report import Report, judge
from hitherto.testing.chaos.watch import Watch
from hitherto.testing.chaos.worker import KEPT, Settings, subject_of

__all__ = ["Fault", "Plan", "Run", "Settings", "run"]

_LONGEST_DRAIN = 60.0
_LOOK = 0.1
_REFUSED = 0.02


class Run:
    """The state of one run; faults may use ``crew``, ``settings``, ``peace`` and ``luck``."""

    def __init__(self, settings: Settings, plan: Plan, seed: int, faults: Sequence[Fault] = ()) -> None:
        self.settings = settings
        self.plan = plan
        self.seed = seed
        self.chance = random.Random(seed)
        self.luck = random.Random(f"{seed} luck")
        self.report = Report(seed=seed, url=redact(settings.url))
        self.sent: dict[int, list[str]] = {}
        self.faults = list(faults)
        self.statuses: Counter[str] = Counter()
        self.peace = asyncio.Lock()
        bound = settings.lease + settings.sweep + 2.0 + plan.slack
        self.watch = Watch(self.report, bound, settings.queue, plan.lossy)
        hiring = random.Random(f"{seed} hiring")
        self.crew = Crew(settings, self.watch, lambda: hiring.randrange(2**32))
        self._feeding = random.Random(f"{seed} feeding")
        self._now: list[int] = []
        self._number = 0
        self._stopped = asyncio.Event()

    async def do(self) -> Report:
        """Feed and harm until the plan is done, drain, judge."""
        if self.settings.subject:
            return await self._run(None)
        async with open_store(self.settings.direct or self.settings.url) as store:
            return await self._run(store)

    async def _run(self, store: Store | None) -> Report:
        """With the store opened, to look at it; with none when somebody else's way is harmed."""
        self.watch.began = began = time.monotonic()
        await self.crew.gather(self.plan.workers)
        feeders = [asyncio.create_task(self._feed(place)) for place in range(self.plan.conversations)]
        looking = asyncio.create_task(self._look(store))
        try:
            await self._harm(began)
            self._stopped.set()
            await asyncio.gather(*feeders)
            calm = time.monotonic()
            await self._drained(store)
            self.report.drained = time.monotonic() - calm
        finally:
            self._stopped.set()
            for task in (*feeders, looking):
                task.cancel()
            await asyncio.gather(*feeders, looking, return_exceptions=True)
            if not looking.cancelled() and (error := looking.exception()) is not None:
                self.watch.violation("look", f"looking at a conversation failed: {error!r}")
            await self.crew.dismiss()
        await self._judge(store)
        self.watch.over()
        self.report.seconds = time.monotonic() - began
        self.report.statuses = dict(self.statuses)
        return self.report

    # ---------------------------------------------------------------------------------------- nemesis

    async def _harm(self, began: float) -> None:
        if self.plan.duration:
            faults = asyncio.create_task(self._one_fault_after_another())
            try:
                await self._for_a_while(began + self.plan.duration)
            finally:
                self._stopped.set()
                await faults
            return
        deeds: list[Any] = ["kill"] * self.plan.kills + ["pause"] * self.plan.pauses
        self.chance.shuffle(deeds)
        for place, fault in enumerate(self.faults):
            deeds.insert((place + 1) * len(deeds) // (len(self.faults) + 1), fault)
        for deed in deeds:
            await asyncio.sleep(self.chance.random() * 2 * self.plan.between)
            if time.monotonic() - began > self.plan.seconds:
                break
            await self._deed(deed)

    async def _for_a_while(self, end: float) -> None:
        weights = [self.plan.kills, self.plan.pauses]
        untried = {fault.name for fault in self.faults}
        while time.monotonic() < end or not untried <= self.report.named_faults.keys():
            pause = self.chance.random() * 2 * self.plan.between
            (deed,) = self.chance.choices(["kill", "pause"], weights) if sum(weights) else ("",)
            await asyncio.sleep(pause)
            if deed:
                await self._deed(deed)

    async def _one_fault_after_another(self) -> None:
        chance = random.Random(f"{self.seed} faults")
        line: list[Fault] = []
        while self.faults and not self._stopped.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopped.wait(), chance.random() * 2 * self.plan.calm)
                break
            line = line or chance.sample(self.faults, len(self.faults))
            await self._deed(line.pop())

    async def _deed(self, deed: Fault | str) -> None:
        if isinstance(deed, Fault):
            begun = self.watch.fault_begins()
            try:
                await deed.do(self)
            finally:
                self.watch.fault_ends(deed.name, begun, deed.grace)
            return
        async with self.peace:
            place = self.chance.randrange(len(self.crew.workers))
            if self.plan.ready:
                await self.crew.workers[place].ready.wait()
                await asyncio.sleep(self.plan.between)
            if deed == "pause":
                self.report.pauses += 1
                self.crew.keep(self.crew.pause(place, self.plan.pause))
            else:
                self.report.kills += 1
                await self.crew.replace(place)

    # ----------------------------------------------------------------------------------------- feeder

    async def _feed(self, place: int) -> None:
        """One conversation after another."""
        while not self._stopped.is_set():
            key = len(self.sent)
            self.sent[key] = []
            self._now = [*self._now[:place], key, *self._now[place + 1 :]]
            await self._converse(key)

    async def _converse(self, key: int) -> None:
        chance = random.Random(f"{self.seed} {key}")
        for number in range(0, self.plan.length, 2):
            if self._stopped.is_set():
                return
            names = [f"{key}-{number}", f"{key}-{number + 1}"]
            if chance.random() < self.plan.reorder * 2:
                names.reverse()
                self.report.reordered += 1
            for name in names:
                await self._deliver(key, name)
                self.sent[key].append(name)
                self.report.events += 1
                if chance.random() < self.plan.duplicate:
                    self.report.duplicates += 1
                    await self._deliver(key, chance.choice(self.sent[key][-4:]))

    async def _deliver(self, key: int, name: str) -> None:
        """Until a worker has said that it is kept; what was perhaps lost with a worker is sent again."""
        while True:
            hired = self._feeding.choice(self.crew.workers)
            if self.plan.ready:
                await hired.ready.wait()
            self._number += 1
            number = self._number
            answer = self.crew.answers[number] = asyncio.get_running_loop().create_future()
            status = "silence"
            if hired.tell(n=number, key=key, id=name):
                self.report.deliveries += 1
                with contextlib.suppress(TimeoutError):
                    status = await asyncio.wait_for(answer, self.plan.patience)
            else:
                await asyncio.sleep(0.01)
            self.crew.answers.pop(number, None)
            self.statuses[status] += 1
            if status in KEPT:
                return
            if status != "silence":
                await asyncio.sleep(_REFUSED)

    # -------------------------------------------------------------------------------- looking and the end

    async def _conversation(self, store: Store, key: int) -> tuple[Document, dict[str, Any] | None]:
        document = await store.load(Address(self.settings.bot, "", (key,)))
        return document, None if document.record is None else decode(document.record.fields)

    async def _look(self, store: Store | None) -> None:
        """Look at one conversation after another while they are harmed."""
        while store is not None:
            await asyncio.sleep(_LOOK)
            key = random.choice(self._now)
            with contextlib.suppress(StoreError, OSError):
                document, data = await self._conversation(store, key)
                self.watch.looked(key, document, [] if data is None else data.get("log", []))

    async def _drained(self, store: Store | None) -> None:
        """Wait, with the workers left alone, until nothing waits anywhere."""
        if store is None:
            await asyncio.sleep(min(3 * self.settings.lease, 2.0))
            return
        end = time.monotonic() + _LONGEST_DRAIN
        left = set(self.sent)
        while left and time.monotonic() < end:
            for key in tuple(left):
                with contextlib.suppress(StoreError, OSError):
                    if not (await self._conversation(store, key))[0].inbox:
                        left.discard(key)
            await asyncio.sleep(0.02)

    async def _judge(self, store: Store | None) -> None:
        if store is None:
            await self._judge_subject()
            return
        for key, sent in self.sent.items():
            document, data = await self._conversation(store, key)
            self._find(key, sent, document, data)

    async def _judge_subject(self) -> None:
        subject = subject_of(self.settings, self.chance, lambda **_: None)
        await subject.start()
        try:
            for key, sent in self.sent.items():
                self._find(key, sent, EMPTY, await subject.data(key))
        finally:
            await subject.stop()

    def _find(self, key: int, sent: list[str], document: Document, data: dict[str, Any] | None) -> None:
        log = [] if data is None else data.get("log", [])
        self.report.lost += len(set(sent).difference(log)) if self.plan.lossy else 0
        for text in judge(document, data, key, sent, self.plan.lossy):
            self.watch.violation("end", text)
        if not self.settings.subject:
            self.watch.looked(key, document, log)


async def run(
    settings: Settings,
    plan: Plan | None = None,
    seed: int | None = None,
    faults: Sequence[Fault | Callable[[], Awaitable[object]]] | None = None,
) -> Report:
    """Do one run over the store at ``settings.url``; the report has the seed to repeat it.

    The store should hold nothing of the bot ``settings.bot``; what the run leaves there stays.
    """
    chosen = random.SystemRandom().randrange(2**32) if seed is None else seed
    what = [named(fault) for fault in faults or ()]
    return await Run(settings, Plan() if plan is None else plan, chosen, what).do()
