"""Conversations held for a step that reads and writes one record: taken in one trip, committed in another.

For frameworks that bring a storage and a lock of their own and know no turn. Who waits in this process is
served in order of arrival; leases are renewed together; whoever lost one can commit nothing.
"""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any

from hitherto.addresses import Address, encode
from hitherto.errors import DataError
from hitherto.patience import Patience, SystemClock, resumed
from hitherto.protocol import Answer, Claim, Grant, Terms
from hitherto.records import BLANK, NO_PATCH, Patch, difference
from hitherto.stores.base import Store

__all__ = ["Holder", "Unit"]

_log = logging.getLogger("hitherto")
_TIDY, _TIDIED_AT_ONCE = 5.0, 200


class Unit:
    """What one step reads and writes while its conversation is held."""

    __slots__ = ("address", "base", "claim", "closed", "lost", "record")

    def __init__(self, address: Address, grant: Grant) -> None:
        self.address = address
        self.claim: Claim = grant.claim
        self.base = self.record = grant.record
        self.closed = self.lost = False

    def patch(self) -> Patch:
        """What the step changed."""
        if self.record is self.base:
            return NO_PATCH
        if self.record is None:
            return Patch(cleared=True)
        before, after = self.base or BLANK, self.record
        fields, removed = difference(before.fields, after.fields)
        moved = (before.flow, before.state) != (after.flow, after.state)
        return Patch(fields, removed, moved, after.flow, after.state)


class _Lines:
    """Who waits in this process for a conversation: first come, first served; empty ones cost nothing."""

    def __init__(self) -> None:
        self.waiting: dict[str, deque[asyncio.Future[None]]] = {}

    async def enter(self, text: str) -> None:
        """Wait for one's turn."""
        line = self.waiting.get(text)
        if line is None:
            self.waiting[text] = deque()
            return
        place = asyncio.get_running_loop().create_future()
        line.append(place)
        try:
            await place
        except asyncio.CancelledError:
            if place.cancelled():
                line.remove(place)
            else:
                self.leave(text)
            raise

    def leave(self, text: str) -> None:
        """Let the next one go on."""
        line = self.waiting[text]
        while line:
            place = line.popleft()
            if not place.done():
                place.set_result(None)
                return
        del self.waiting[text]


class Holder:
    """Holds conversations by their leases for the steps that run: takes, renews, commits, gives back."""

    def __init__(self, store: Store, bot: str, terms: Terms, deadline: float, owned: bool = False) -> None:
        self.owned = owned
        self.store, self.bot, self.terms = store, bot, terms
        self.opened = False
        self.owner = secrets.token_hex(8)
        self.patience = Patience(SystemClock(), deadline)
        self.lines = _Lines()
        self.units: set[Unit] = set()
        self.tidy_at = 0.0
        self._tasks: set[asyncio.Task[None]] = set()
        self._renewal: asyncio.TimerHandle | None = None

    async def open(self) -> None:
        """Make the store ready, if it is not."""
        if not self.opened:
            if self.owned:
                await self.store.open()  # it may have been closed with the bot before
            await self.store.init(self.bot)
            self.opened = True
            self.tidy_at = self.patience.clock() + _TIDY

    async def take(self, address: Address) -> Unit:
        """The unit of a conversation, as soon as nobody else holds it."""
        text, pause = encode(address), 0.005
        await self.lines.enter(text)
        while True:
            acquire = partial(self.store.acquire, address, self.owner, self.store.op(), self.terms)
            try:
                await self.open()
                answer = await self.patience(acquire)
                if answer.grant is not None:
                    break
                await asyncio.sleep(pause * (0.5 + random.random()))
            except asyncio.CancelledError as cancelled:
                self._spawn(self._unwanted(address, resumed(cancelled, acquire)))
                raise
            except BaseException:
                self.lines.leave(text)
                raise
            pause = min(pause * 2, 0.2)
        unit = Unit(address, answer.grant)
        self.units.add(unit)
        self._renew_later()
        if self.patience.clock() >= self.tidy_at:
            self.tidy_at = self.patience.clock() + _TIDY
            self._spawn(self._tidy())
        return unit

    async def settle(self, unit: Unit, patch: Patch) -> Answer:
        """Commit *patch* and give the conversation back; cancelled meanwhile, that is done all the same."""
        self.units.discard(unit)
        store, op = self.store, self.store.op()
        settle = partial(store.settle, unit.address, unit.claim, op, self.terms, patch=patch, keep=False)
        try:
            answer = await self.patience(settle)
        except asyncio.CancelledError as cancelled:
            self._spawn(self._finished(unit.address, resumed(cancelled, settle)))
            raise
        except DataError:  # this cannot be stored: nothing of it is, and the conversation is free again
            release = partial(store.release, unit.address, unit.claim, store.op(), self.terms)
            self._spawn(self._finished(unit.address, release))
            raise
        except BaseException:
            self.lines.leave(encode(unit.address))
            raise
        self.lines.leave(encode(unit.address))
        return answer

    async def _unwanted(self, address: Address, acquire: Callable[[], Awaitable[Answer]]) -> None:
        """Whoever wanted this conversation was cancelled while the store was asked: give it back."""
        try:
            grant = (await self.patience(acquire)).grant
            if grant is not None:
                op = self.store.op()
                await self.patience(lambda: self.store.release(address, grant.claim, op, self.terms))
        finally:
            self.lines.leave(encode(address))

    async def _finished(self, address: Address, ending: Callable[[], Awaitable[Answer]]) -> None:
        try:
            await self.patience(ending)
        finally:
            self.lines.leave(encode(address))

    def _renew_later(self) -> None:
        if self._renewal is None:
            loop = asyncio.get_running_loop()
            self._renewal = loop.call_later(self.terms.lease / 3, lambda: self._spawn(self._renew()))

    async def _renew(self) -> None:
        """Renew all leases in one trip, for as long as there are any."""
        self._renewal, units = None, list(self.units)
        if not units:
            return
        try:
            held = await self.store.renew([(unit.address, unit.claim) for unit in units], self.terms)
            for unit, good in zip(units, held, strict=True):
                unit.lost = unit.lost or (not good and unit in self.units)
        finally:
            self._renew_later()

    async def _tidy(self) -> None:
        """Nobody sweeps here, so that whoever holds also drops what idle conversations have left."""
        await self.store.expire(self.bot, _TIDIED_AT_ONCE, self.terms)

    async def drained(self, seconds: float) -> None:
        """Wait until nothing is held, at most so long."""
        end = asyncio.get_running_loop().time() + seconds
        while (self.units or self._tasks) and asyncio.get_running_loop().time() < end:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        if self._renewal is not None:
            self._renewal.cancel()
            self._renewal = None

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.warning("holding.failed error=%s", type(error).__name__)
