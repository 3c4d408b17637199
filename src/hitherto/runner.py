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
from typing import Any, TypeAlias, TypeVar

import msgspec

from hitherto import addresses, failures
from hitherto.addresses import Address
from hitherto.alarms import Alarms
from hitherto.errors import DataError, Fenced, KeeperClosed, StoreError
from hitherto.failures import OnError
from hitherto.leases import Handler, Leases, Running
from hitherto.outcomes import Listeners
from hitherto.overlap import Overlap
from hitherto.patience import Patience, resumed
from hitherto.protocol import Answer, Event, Grant, Terms, Verdict
from hitherto.records import NO_PATCH, Patch
from hitherto.remembered import Remembered
from hitherto.slots import Slots
from hitherto.stores.base import Store
from hitherto.turns import Rules, Turn

_T = TypeVar("_T")
_log = logging.getLogger("hitherto")
_TROUBLE = (StoreError, OSError, asyncio.CancelledError)

Ended: TypeAlias = tuple[Answer, BaseException | None]
"""How a turn ended: the store's answer, and what the handler raised, if it did."""


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
        self.slots = Slots(max_turns)
        self.handler: Handler | None = None
        self.expecting = False
        self.stopping = self.interrupted = False
        self.remembered = Remembered()
        self.alarms = Alarms()
        self._freed: dict[str, list[asyncio.Future[None]]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()

    # -------------------------------------------------------------------------------------- into the store

    async def accept(
        self, address: Address, event: Event, overlap: Overlap, original: Any, handler: Handler | None
    ) -> Answer:
        """Take an event in, with a slot held; cancelled meanwhile, the runner runs it."""
        op = self.store.op()
        coming = None if op is None else self.remembered.coming(address, event, original, handler)
        try:
            answer = await self.store.accept(address, event, overlap, self.owner, op, self.terms)
        except _TROUBLE as trouble:

            def orphaned(answer: Answer) -> None:
                self.listeners.accepted(address, event.id, answer)
                self.queued(address, answer, original, handler)

            accept = partial(self.store.accept, address, event, overlap, self.owner, op, self.terms)
            answer = await self._insist(trouble, accept, orphaned)
        finally:
            if coming is not None:
                self.remembered.arrived(address, coming)
        self.listeners.accepted(address, event.id, answer)
        return answer

    async def take_over(self, address: Address) -> None:
        """Run what was left behind in a conversation, with a slot held; nothing if there is nothing."""
        take_over = partial(self.store.take_over, address, self.owner, self.store.op(), self.terms)
        go_on = partial(self._taken_over, address)
        go_on(await self._or_slot(self._surely(take_over, go_on)))

    def _taken_over(self, address: Address, answer: Answer) -> None:
        grant = answer.grant
        ours = grant is None or self.remembered.has(address, grant)
        self.listeners.taken_over(address, answer, recovered=not ours)
        self.follow(address, answer)

    async def settle(
        self, running: Running, patch: Patch = NO_PATCH, failure: BaseException | None = None,
        verdict: Verdict = "done", delay: float = 0.0,
    ) -> Answer:  # fmt: skip
        """End a turn in the store; cancelled meanwhile, it is ended all the same and the runner goes on."""
        store, address, claim, keep = self.store, running.address, running.claim, not self.stopping
        op, error = store.op(), "" if failure is None else failures.redacted(failure)
        try:
            answer = await store.settle(
                address,
                claim,
                op,
                self.terms,
                patch=patch,
                verdict=verdict,
                delay=delay,
                error=error,
                keep=keep,
            )
        except _TROUBLE as trouble:

            def orphaned(answer: Answer) -> None:
                self._settled(running, answer, failure)
                self.follow(address, answer)

            settle = partial(
                store.settle, address, claim, op, self.terms,
                patch=patch, verdict=verdict, delay=delay, error=error, keep=keep,
            )  # fmt: skip
            self._remember(running)
            answer = await self._insist(trouble, settle, orphaned)
        self._settled(running, answer, failure)
        return answer

    async def release(self, running: Running) -> Answer:
        """Give a turn back unrun."""
        release = partial(self.store.release, running.address, running.claim, self.store.op(), self.terms)
        return await self._surely(release, partial(self.follow, running.address))

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
        except asyncio.CancelledError as cancelled:
            self.spawn(self._instead(resumed(cancelled, call), orphaned))
            raise

    async def _instead(self, call: Callable[[], Awaitable[_T]], orphaned: Callable[[_T], None]) -> None:
        try:
            answer = await self.patience(call)
        except BaseException:
            self.slots.free()
            raise
        orphaned(answer)

    # -------------------------------------------------------------------------------------------- one turn

    async def turn(
        self, address: Address, grant: Grant, handler: Handler | None = None, original: Any = None
    ) -> Ended:
        """Run one turn to its settlement: the store's answer, and what the handler raised, if it did."""
        running = Running(address, grant, self.patience.clock())
        self.leases.add(running)
        try:
            turn = self._turn(running, handler, original)
            if self.interrupted:
                running.over = True
                return await self._given_back(running)
            await self.begun(running.handler, turn)
            patch = turn.patch()
            running.end()
            return await self.settle(running, patch), None
        except BaseException as error:
            over = running.over and not isinstance(error, DataError)
            if over or isinstance(error, GeneratorExit):
                raise
            return await self._failed(running, error)
        finally:
            self.leases.remove(running)

    def _turn(self, running: Running, handler: Handler | None, original: Any) -> Turn:
        address, grant = running.address, running.grant
        events, own = self.remembered.take(address, grant, original)
        running.events, running.handler = events, handler or own or self.handler
        newest = grant.entries[-1]
        turn = Turn(
            self.rules, self.bot, address.key, grant.record, events[-1], newest.event_id,
            () if len(events) == 1 else tuple(events[:-1]), newest.attempts, grant.epoch,
        )  # fmt: skip
        running.turn = turn
        self.listeners.started(running)
        return turn

    def begun(self, handler: Handler | None, turn: Turn) -> Awaitable[object]:
        """Call a handler; what it answers is to be awaited, and ends within its time."""
        if handler is None:
            raise RuntimeError("no handler for this event: give one to handle() or to Keeper(handler=...)")
        result = handler(turn)
        if not hasattr(result, "__await__"):
            raise TypeError(
                f"the handler answered {type(result).__name__}; write it as 'async def handler(turn)'"
            )
        return result if self.conduct.timeout is None else _within(self.conduct.timeout, result)

    def _settled(self, running: Running, answer: Answer, failure: BaseException | None) -> None:
        """Tell those who listen, and forget or remember what came with the turn."""
        if answer.status == "fenced":
            self._remember(running)
        elif answer.wake_at is None and (self.alarms.due or self.remembered.lines):
            self.alarms.drop(running.address)
            if running.grant.entries:
                self.remembered.forget(running.address, running.grant.entries[-1].seq)
        seconds = self.patience.clock() - running.started
        if failure is None:
            self.listeners.settled(running, answer, seconds)
        else:
            self.listeners.failed(running, answer, failure, seconds)

    def _remember(self, running: Running) -> None:
        self.remembered.keep(running.address, running.grant, running.events, running.handler)

    async def _failed(self, running: Running, error: BaseException) -> Ended:
        """Tell the store what became of a turn whose handler raised."""
        if running.end(error):
            return await self._given_back(running)
        verdict, error = await self._verdict(running, error)
        delay = 0.0
        if verdict == "retry":
            self._remember(running)
            if not isinstance(error, asyncio.CancelledError):
                delay = self._backoff(running.grant.entries[-1].attempts)
        return await self.settle(running, NO_PATCH, error, verdict, delay), error

    async def _verdict(self, running: Running, error: BaseException) -> tuple[Verdict, BaseException]:
        """What the user wants; a function of theirs that fails itself wants a retry."""
        try:
            return await failures.verdict(self.conduct.on_error, running.turn, error), error
        except BaseException as worse:  # noqa: BLE001 - the turn must be settled first
            failures.log("on_error.failed", worse)
            return "retry", worse

    def _backoff(self, attempt: int) -> float:
        try:
            return max(0.0, float(self.conduct.backoff(attempt)))
        except Exception as error:  # noqa: BLE001 - the user's own function
            failures.log("backoff.failed", error)
            return failures.doubling(attempt)

    async def _given_back(self, running: Running) -> Ended:
        """A handler that we cancelled ourselves: its lease is lost, or the keeper stops."""
        self._remember(running)
        answer = await self.release(running)
        self.listeners.released(running, answer)
        if running.unwanted:
            return answer, asyncio.CancelledError()
        if running.lost:
            return msgspec.structs.replace(answer, status="fenced"), None
        return answer, KeeperClosed()

    async def without_key(self, event: Any, handler: Handler | None) -> None:
        """Run a handler with an empty record, of which nothing is kept; with a slot held."""
        address = Address(self.bot, "", None)
        running = Running(address, Grant(0, (), None, 0.0), 0.0, leased=False)
        self.leases.add(running)
        try:
            await self.begun(handler or self.handler, Turn(self.rules, self.bot, None, None, event))
        except BaseException as error:
            if running.end(error) and not running.unwanted:
                raise KeeperClosed() from None
            raise
        finally:
            self.leases.remove(running)

    # ------------------------------------------------------------------------------- a turn without an event

    @asynccontextmanager
    async def held(self, address: Address, timeout: float | None) -> AsyncIterator[Turn]:
        """Hold a conversation while the block runs, and commit what it changed; it waits until it is free."""
        grant = await self._acquired(address, timeout)
        running = Running(address, grant, self.patience.clock())
        self.leases.add(running)
        try:
            turn = Turn(self.rules, self.bot, address.key, grant.record, epoch=grant.epoch)
            running.turn = turn
            self.listeners.started(running)
            if self.interrupted:
                raise KeeperClosed()
            yield turn
            patch = turn.patch()
            running.end()
            answer = await self.settle(running, patch)
        except BaseException as error:
            await self._let_go(running, error)
            raise
        finally:
            self.leases.remove(running)
        self.follow(address, answer)
        if answer.status == "fenced":
            raise Fenced(epoch=grant.epoch)

    async def _let_go(self, running: Running, error: BaseException) -> None:
        """Give back the lease and the slot of a block that ended with *error*; raise what is truer."""
        if running.over and not isinstance(error, DataError):
            if not isinstance(error, asyncio.CancelledError):
                self.slots.free()
            return
        ours = running.end(error)
        answer = await self._or_slot(self.release(running))
        self.listeners.released(running, answer)
        self.follow(running.address, answer)
        if ours and not running.unwanted:
            raise (Fenced(epoch=running.grant.epoch) if running.lost else KeeperClosed()) from None

    async def _acquired(self, address: Address, timeout: float | None) -> Grant:
        """Take a slot and the lease; a turn that ends here wakes who waits."""
        async with asyncio.timeout(timeout):
            pause = 0.005
            while True:
                await self.slots.wait()
                acquire = partial(self.store.acquire, address, self.owner, self.store.op(), self.terms)
                unwanted = partial(self._unwanted, address)
                answer: Answer = await self._or_slot(self._surely(acquire, unwanted))
                if answer.grant is not None:
                    return answer.grant
                self.slots.free()
                self._check_not_mine(address)
                await self._until_freed(address, pause * (0.5 + random.random()))
                pause = min(pause * 2, 0.2)

    def _check_not_mine(self, address: Address) -> None:
        task, text = asyncio.current_task(), addresses.encode(address)
        for running in self.leases:
            if running.task is task and addresses.encode(running.address) == text:
                raise RuntimeError(
                    "this task holds the conversation already and would wait for itself; use the turn it has"
                )

    def _unwanted(self, address: Address, answer: Answer) -> None:
        """The lease came after whoever wanted it had been cancelled."""
        if answer.grant is None:
            self.slots.free()
        else:
            self.spawn(self._handed_back(address, answer.grant))

    async def _handed_back(self, address: Address, grant: Grant) -> None:
        """Give back what was granted and is not run here; not we, but whoever can run it is to look."""
        release = partial(self.store.release, address, grant.claim, self.store.op(), self.terms)
        go_on = partial(self.follow, address, look=False)
        go_on(await self._or_slot(self._surely(release, go_on)))

    async def _or_slot(self, answer: Awaitable[_T]) -> _T:
        """The answer; the slot is given back when there is none (a cancelled call has passed it on)."""
        try:
            return await answer
        except asyncio.CancelledError:
            raise
        except BaseException:
            self.slots.free()
            raise

    # ------------------------------------------------------------------------------------- and what follows

    def queued(self, address: Address, answer: Answer, original: Any, handler: Handler | None) -> None:
        """Remember an event that waits, and go on with the turn that was granted instead, if one was."""
        self.remembered.put(address, answer.seq, original, handler)
        self.follow(address, answer)

    def follow(self, address: Address, answer: Answer, look: bool = True) -> None:
        """Pass the slot on to the next turn of the conversation, or give it back.

        A grant without entries is that of a repeated call whose lease was lost meanwhile: nothing to run.
        *look* again as soon as there is something to do, before the next sweep.
        """
        grant = answer.grant
        if grant is not None and grant.entries:
            runs = self._runs(address, grant)
            self.spawn(self._drain(address, grant) if runs else self._handed_back(address, grant))
            return
        self.slots.free()
        if self._freed:
            self._wake(address)
        if look and answer.wake_at is not None and not self.stopping:
            self.alarms.set(address, self.patience.clock() + max(answer.wake_at - answer.at, 0.0))

    async def _drain(self, address: Address, grant: Grant) -> None:
        """Run turn after turn until nothing is handed on."""
        while True:
            answer, error = await self._or_slot(self.turn(address, grant))
            if error is not None and _ends_task(error):
                await self._abandoned(address, answer)
                raise error
            following = answer.grant
            if following is None or not self._runs(address, following):
                self.follow(address, answer)
                return
            grant = following

    def _runs(self, address: Address, grant: Grant) -> bool:
        """Whether a grant is run here: not when the keeper stops, nor when only others have a handler."""
        if self.stopping or not grant.entries:
            return False
        return self.handler is not None or self.remembered.handler(address, grant.entries[-1]) is not None

    async def _abandoned(self, address: Address, answer: Answer) -> None:
        """The task must end at once; what was handed on to it is for others."""
        if answer.grant is None:
            self.follow(address, answer)
        else:
            await self._handed_back(address, answer.grant)

    def can_run(self, address: Address) -> bool:
        """Whether there is a handler for what was left behind in this conversation."""
        return self.handler is not None or self.remembered.knows(address)

    def look_at(self, address: Address) -> None:
        """Have the pump look at a conversation at once, if somebody here can run what it finds."""
        if not self.stopping and self.can_run(address):
            self.alarms.set(address, self.patience.clock())

    async def _until_freed(self, address: Address, seconds: float) -> None:
        """Wait until a turn of this conversation ends in this process, or for so long."""
        text = addresses.encode(address)
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._freed.setdefault(text, []).append(future)
        try:
            await asyncio.wait([future], timeout=seconds)
        finally:
            waiting = self._freed.get(text, [])
            if future in waiting:
                waiting.remove(future)
                if not waiting:
                    del self._freed[text]

    def _wake(self, address: Address) -> None:
        for future in self._freed.pop(addresses.encode(address), ()):
            future.set_result(None)

    # --------------------------------------------------------------------------------------------- own tasks

    def spawn(self, work: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
        """Run something in a task of our own, whose failure is logged."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            failures.log("task.failed", error)

    def interrupt(self) -> None:
        """Cancel every handler that still runs, and begin none; each is given back."""
        self.interrupted = True
        for running in self.leases:
            running.cancel()


async def _within(seconds: float, result: Awaitable[object]) -> None:
    async with asyncio.timeout(seconds):
        await result


def _ends_task(error: BaseException) -> bool:
    """Whether it is meant for the task, and not something that happened inside the handler."""
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        return task is not None and task.cancelling() > 0
    return not isinstance(error, Exception)
