"""Running turns: from a grant to its settlement, and on to whatever waits behind.

A grant is run inline for the caller whose event it is, and in a task of the runner's own for everything else.
Every way out of a handler ends in exactly one settlement, also when its task is cancelled in the middle: then
another task finishes the same operation under the same operation id, and goes on with what waits.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeVar

import msgspec

from hitherto import addresses, failures
from hitherto.addresses import Address
from hitherto.errors import DataError, Fenced, KeeperClosed, StoreError
from hitherto.failures import OnError
from hitherto.leases import Leases, Running
from hitherto.outcomes import Listeners
from hitherto.overlap import Overlap
from hitherto.patience import Patience
from hitherto.protocol import Answer, Event, Grant, Terms, Verdict
from hitherto.records import NO_PATCH, Patch
from hitherto.remembered import Handler, Remembered
from hitherto.stores.base import Store
from hitherto.turns import Rules, Turn

_T = TypeVar("_T")
_log = logging.getLogger("hitherto")
_TROUBLE = (StoreError, OSError, asyncio.CancelledError)


class Conduct(msgspec.Struct, frozen=True):
    """How turns are run: what a keeper was told about failures and time."""

    on_error: OnError = "retry"
    backoff: Callable[[int], float] = failures.doubling
    timeout: float | None = None


class Runner:
    """Runs the turns of one keeper in this process.

    A *slot* is held for each turn that runs; it is taken before an event is accepted and passed on, with the
    answer, to :meth:`follow`, which gives it to the next turn of the conversation or back.
    """

    def __init__(
        self,
        bot: str,
        store: Store,
        owner: str,
        terms: Terms,
        rules: Rules,
        conduct: Conduct,
        leases: Leases,
        patience: Patience,
        listeners: Listeners,
        max_turns: int,
    ) -> None:
        self.bot = bot
        self.store = store
        self.owner = owner
        self.terms = terms
        self.rules = rules
        self.conduct = conduct
        self.leases = leases
        self.patience = patience
        self.listeners = listeners
        self.slots = asyncio.Semaphore(max_turns)
        self.handler: Handler | None = None
        self.stopping = False
        self.remembered = Remembered()
        self.alarms: dict[str, tuple[float, Address]] = {}
        self.alarm_set = asyncio.Event()
        self._freed: dict[str, list[asyncio.Future[None]]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()

    # -------------------------------------------------------------------------------------- into the store

    async def accept(
        self, address: Address, event: Event, overlap: Overlap, original: Any, handler: Handler | None
    ) -> Answer:
        """Take an event in, with a slot held; cancelled meanwhile, the runner runs it."""
        op = self.store.op()
        try:
            answer = await self.store.accept(address, event, overlap, self.owner, op, self.terms)
        except _TROUBLE as trouble:

            def orphaned(answer: Answer) -> None:
                self.listeners.accepted(address, answer)
                self.queued(address, answer, original, handler)

            accept = partial(self.store.accept, address, event, overlap, self.owner, op, self.terms)
            answer = await self._insist(trouble, accept, orphaned)
        self.listeners.accepted(address, answer)
        return answer

    async def take_over(self, address: Address) -> None:
        """Run what was left behind in a conversation, with a slot held; nothing if there is nothing."""
        op = self.store.op()
        answer = await self._or_slot(
            self._surely(
                lambda: self.store.take_over(address, self.owner, op, self.terms),
                lambda answer: self.follow(address, answer),
            )
        )
        if answer.grant is not None or answer.dropped:
            self.listeners.recovered(address, answer)
        self.follow(address, answer)

    async def settle(
        self,
        address: Address,
        grant: Grant,
        patch: Patch = NO_PATCH,
        verdict: Verdict = "done",
        delay: float = 0.0,
        error: str = "",
    ) -> Answer:
        """End a turn in the store; cancelled meanwhile, it is ended all the same and the runner goes on."""
        op, claim, keep = self.store.op(), grant.claim, not self.stopping
        settle = partial(
            self.store.settle, address, claim, op, self.terms,
            patch=patch, verdict=verdict, delay=delay, error=error, keep=keep,
        )  # fmt: skip
        try:
            return await settle()
        except _TROUBLE as trouble:
            return await self._insist(trouble, settle, partial(self.follow, address))

    async def release(self, address: Address, grant: Grant) -> Answer:
        """Give a turn back unrun."""
        op, claim = self.store.op(), grant.claim
        return await self._surely(
            lambda: self.store.release(address, claim, op, self.terms),
            lambda answer: self.follow(address, answer),
        )

    async def _surely(self, call: Callable[[], Awaitable[_T]], orphaned: Callable[[_T], None]) -> _T:
        try:
            return await call()
        except _TROUBLE as trouble:
            return await self._insist(trouble, call, orphaned)

    async def _insist(
        self, trouble: BaseException, call: Callable[[], Awaitable[_T]], orphaned: Callable[[_T], None]
    ) -> _T:
        """The answer of a call in trouble: repeated with patience, and by a task of ours if the caller is
        cancelled.

        The slot goes with the answer: *orphaned* gets both, so that after CancelledError the caller has it no
        more; after any other error it does.
        """
        try:
            if isinstance(trouble, Exception):
                return await self.patience.again(call, trouble)
            raise trouble
        except asyncio.CancelledError:
            self.spawn(self._instead(call, orphaned))
            raise

    async def _instead(self, call: Callable[[], Awaitable[_T]], orphaned: Callable[[_T], None]) -> None:
        try:
            answer = await self.patience(call)
        except BaseException:
            self.slots.release()
            raise
        orphaned(answer)

    # -------------------------------------------------------------------------------------------- one turn

    async def turn(
        self, address: Address, grant: Grant, handler: Handler | None, original: Any
    ) -> tuple[Answer, BaseException | None]:
        """Run one turn to its settlement: the store's answer, and what the handler raised, if it did."""
        events, own = self.remembered.take(address, grant, original)
        handler = handler or own or self.handler
        running, error = await self._handled(address, grant, handler, events)
        if error is None and running is not None:
            try:
                await running.returned()
                answer = await self.settle(address, grant, running.turn.patch())
                self.listeners.settled(address, running, answer, self._seconds(running))
                return answer, None
            except DataError as refused:
                error = refused
            finally:
                self.leases.remove(running)
        assert error is not None  # noqa: S101 - one of the two is there
        self.remembered.keep(address, grant, events, handler)
        if running is not None and running.cancelled and isinstance(error, asyncio.CancelledError):
            return await self._interrupted(address, grant, running)
        return await self._failed(address, grant, running, error), error

    async def _handled(
        self, address: Address, grant: Grant, handler: Handler | None, events: list[Any]
    ) -> tuple[Running | None, BaseException | None]:
        """Run the handler; on success the lease stays registered until the commit, so that it is renewed."""
        running = None
        try:
            turn = self._turn(address, grant, events)
            running = Running(address, grant.claim, turn, self.patience.clock())
            self.leases.add(running)
            self.listeners.started(address, running)
            await self.call(handler, turn)
        except BaseException as error:  # noqa: BLE001 - whatever it is, the store must know first
            if running is not None:
                self.leases.remove(running)
            return running, error
        return running, None

    def _turn(self, address: Address, grant: Grant, events: list[Any]) -> Turn:
        if not events:
            return Turn(self.rules, self.bot, address.key, grant.record, epoch=grant.epoch)
        newest = grant.entries[-1]
        return Turn(
            self.rules, self.bot, address.key, grant.record, event=events[-1], event_id=newest.event_id,
            skipped=tuple(events[:-1]), attempt=newest.attempts, epoch=grant.epoch,
        )  # fmt: skip

    def _seconds(self, running: Running | None) -> float:
        return 0.0 if running is None else self.patience.clock() - running.started

    async def call(self, handler: Handler | None, turn: Turn) -> None:
        """Run a handler, within its time."""
        if handler is None:
            raise RuntimeError("no handler for this event: give one to handle() or to Keeper(handler=...)")
        result = handler(turn)
        if not hasattr(result, "__await__"):
            raise TypeError(
                f"the handler answered {type(result).__name__}; write it as 'async def handler(turn)'"
            )
        if self.conduct.timeout is None:
            await result
        else:
            async with asyncio.timeout(self.conduct.timeout):
                await result

    async def _interrupted(
        self, address: Address, grant: Grant, running: Running
    ) -> tuple[Answer, BaseException | None]:
        """A handler that we cancelled ourselves: its lease is lost, or the keeper stops."""
        if running.task is not None:
            running.task.uncancel()
        answer = await self.release(address, grant)
        self.listeners.released(address, running, answer)
        if running.turn.lost:
            return msgspec.structs.replace(answer, status="fenced"), None
        return answer, KeeperClosed()

    async def _failed(
        self, address: Address, grant: Grant, running: Running | None, error: BaseException
    ) -> Answer:
        """Tell the store what became of a turn whose handler raised."""
        verdict: Verdict = "retry"
        turn = None if running is None else running.turn
        if turn is not None:
            try:
                verdict = await failures.verdict(self.conduct.on_error, turn, error)
            except Exception as worse:  # noqa: BLE001 - the user's own function
                _log.exception("on_error.failed")
                error = worse
        attempt = grant.entries[-1].attempts if grant.entries else 1
        cancelled = isinstance(error, asyncio.CancelledError)
        delay = self.conduct.backoff(attempt) if verdict == "retry" and not cancelled else 0.0
        answer = await self.settle(
            address, grant, verdict=verdict, delay=delay, error=failures.redacted(error)
        )
        self.listeners.failed(address, running, answer, error, self._seconds(running))
        return answer

    # ------------------------------------------------------------------------------- a turn without an event

    @asynccontextmanager
    async def held(self, address: Address, timeout: float | None) -> AsyncIterator[Turn]:
        """Hold a conversation while the block runs, and commit what it changed; it waits until it is free."""
        grant = await self._acquired(address, timeout)
        turn = Turn(self.rules, self.bot, address.key, grant.record, epoch=grant.epoch)
        running = Running(address, grant.claim, turn, self.patience.clock())
        self.leases.add(running)
        try:
            yield turn
            await running.returned()
            patch = turn.patch()
        except BaseException as error:
            self.leases.remove(running)
            self.follow(address, await self._or_slot(self.release(address, grant)))
            if running.cancelled and isinstance(error, asyncio.CancelledError) and running.task is not None:
                running.task.uncancel()
                raise (Fenced(epoch=grant.epoch) if turn.lost else KeeperClosed()) from None
            raise
        try:
            answer = await self._or_slot(self.settle(address, grant, patch))
        finally:
            self.leases.remove(running)
        self.listeners.settled(address, running, answer, self._seconds(running))
        self.follow(address, answer)
        if answer.status == "fenced":
            raise Fenced(epoch=grant.epoch)

    async def _acquired(self, address: Address, timeout: float | None) -> Grant:
        """Take a slot and the lease; a turn that ends here wakes who waits."""
        async with asyncio.timeout(timeout):
            pause = 0.005
            while True:
                await self.slots.acquire()
                acquire = partial(self.store.acquire, address, self.owner, self.store.op(), self.terms)
                unwanted = partial(self._unwanted, address)
                answer: Answer = await self._or_slot(self._surely(acquire, unwanted))
                if answer.grant is not None:
                    return answer.grant
                self.slots.release()
                await self.freed(address, pause * (0.5 + random.random()))
                pause = min(pause * 2, 0.2)

    def _unwanted(self, address: Address, answer: Answer) -> None:
        """The lease came after whoever wanted it had been cancelled."""
        if answer.grant is None:
            self.slots.release()
        else:
            self.spawn(self._handed_back(address, answer.grant))

    async def _handed_back(self, address: Address, grant: Grant) -> None:
        self.follow(address, await self._or_slot(self.release(address, grant)))

    async def _or_slot(self, answer: Awaitable[_T]) -> _T:
        """The answer; the slot is given back when there is none (a cancelled call has passed it on)."""
        try:
            return await answer
        except asyncio.CancelledError:
            raise
        except BaseException:
            self.slots.release()
            raise

    # ------------------------------------------------------------------------------------- and what follows

    def queued(self, address: Address, answer: Answer, original: Any, handler: Handler | None) -> None:
        """Remember an event that waits, and go on with the turn that was granted instead, if one was."""
        self.remembered.put(address, answer.seq, original, handler)
        self.follow(address, answer)

    def follow(self, address: Address, answer: Answer) -> None:
        """Pass the slot on to the next turn of the conversation, or give it back."""
        if answer.grant is not None:
            self.spawn(self._drain(address, answer.grant))
            return
        self.slots.release()
        self._freed_now(address)
        if answer.wake_at is not None and not self.stopping:
            self.set_alarm(address, answer.wake_at - answer.at)

    async def _drain(self, address: Address, grant: Grant) -> None:
        """Run turn after turn until nothing is handed on."""
        while True:
            answer, error = await self._or_slot(self.turn(address, grant, None, None))
            if answer.grant is None:
                self.follow(address, answer)
                return
            if error is not None and not isinstance(error, Exception):
                self.slots.release()
                await self.store.release(address, answer.grant.claim, self.store.op(), self.terms)
                raise error
            grant = answer.grant

    def set_alarm(self, address: Address, delay: float) -> None:
        """Have the pump look at a conversation after *delay* seconds."""
        text, due = addresses.encode(address), self.patience.clock() + max(delay, 0.0)
        known = self.alarms.get(text)
        if known is None or due < known[0]:
            self.alarms[text] = (due, address)
            self.alarm_set.set()

    def can_run(self, address: Address) -> bool:
        """Whether there is a handler for what was left behind in this conversation."""
        return self.handler is not None or self.remembered.knows(address)

    async def freed(self, address: Address, patience: float) -> None:
        """Wait until a turn of this conversation ends in this process, or for *patience* seconds."""
        text = addresses.encode(address)
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._freed.setdefault(text, []).append(future)
        try:
            async with asyncio.timeout(patience):
                await future
        except TimeoutError:
            pass
        finally:
            waiting = self._freed.get(text)
            if waiting is not None and future in waiting:
                waiting.remove(future)
                if not waiting:
                    del self._freed[text]

    def _freed_now(self, address: Address) -> None:
        if self._freed:
            for future in self._freed.pop(addresses.encode(address), ()):
                if not future.done():
                    future.set_result(None)

    # --------------------------------------------------------------------------------------------- own tasks

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run something in a task of our own, whose failure is logged."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("task.failed error=%s", type(error).__name__, exc_info=error)

    @property
    def idle(self) -> bool:
        """Whether nothing runs."""
        return not self._tasks and not self.leases

    def interrupt(self) -> None:
        """Cancel every handler that still runs; each is given back."""
        for running in self.leases:
            running.cancel()

    async def finish(self, seconds: float) -> bool:
        """Wait until nothing runs, at most so long."""
        end = asyncio.get_running_loop().time() + seconds
        while not self.idle and asyncio.get_running_loop().time() < end:
            tasks = [*self._tasks, *(running.task for running in self.leases if running.task is not None)]
            tasks = [task for task in tasks if task is not asyncio.current_task()]
            if tasks:
                await asyncio.wait(tasks, timeout=min(seconds, 0.05), return_when=asyncio.FIRST_COMPLETED)
            else:
                await asyncio.sleep(0)
        return self.idle
