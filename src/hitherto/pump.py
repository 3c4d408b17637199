"""The keeper's one background task: renews all leases together, sweeps, and rings when a window ends.

Its failures are logged, counted and retried with back-off; they never end it.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import msgspec

from hitherto.patience import Clock
from hitherto.runner import Runner

_log = logging.getLogger("hitherto")
_SWEPT_AT_ONCE = 100
_TIDIED_AT_ONCE = 200
_LONGEST_BACKOFF = 30.0


class Health(msgspec.Struct, frozen=True):
    """How a keeper is: ``ok`` is false while its background task cannot do its work."""

    ok: bool
    running: int
    swept: float | None
    failures: int
    error: str


class Pump:
    """Renews at a third of the lease, sweeps every *sweep* seconds, and takes over what an alarm names."""

    def __init__(self, runner: Runner, clock: Clock, sweep: float) -> None:
        self._runner = runner
        self._clock = clock
        self._every = sweep
        self._renew_at = 0.0
        self._sweep_at = 0.0
        self._swept: float | None = None
        self._failures = 0
        self._error = ""
        self._warned = False

    async def run(self) -> None:
        """Until cancelled."""
        self._renew_at = self._clock() + self._runner.terms.lease / 3
        while True:
            try:
                await self._once()
                self._failures, self._error = 0, ""
                pause = 0.0
            except Exception as error:  # noqa: BLE001 - it must go on, and say so
                self._failures += 1
                self._error = type(error).__name__
                _log.warning("pump.failed error=%s failures=%d", self._error, self._failures)
                pause = min(_LONGEST_BACKOFF, self._runner.terms.lease / 6, 0.1 * 2**self._failures)
            await self._wait(pause)

    def health(self) -> Health:
        """How it is going."""
        ago = None if self._swept is None else self._clock() - self._swept
        return Health(self._failures == 0, len(self._runner.leases), ago, self._failures, self._error)

    async def _once(self) -> None:
        now = self._clock()
        if now >= self._renew_at:
            await self.renew()
            self._renew_at = now + self._runner.terms.lease / 3
        await self._ring(now)
        if now >= self._sweep_at and not self._runner.stopping:
            await self.sweep()
            self._sweep_at = now + self._every

    async def _wait(self, pause: float) -> None:
        """Sleep until the next thing is due; an alarm that is set meanwhile wakes us."""
        runner = self._runner
        runner.alarm_set.clear()
        due = min([self._renew_at, self._sweep_at, *(at for at, _ in runner.alarms.values())])
        seconds = max(pause, due - self._clock(), 0.0)
        tasks: list[asyncio.Future[Any]] = [
            asyncio.ensure_future(self._clock.sleep(seconds)),
            asyncio.ensure_future(runner.alarm_set.wait()),
        ]
        try:
            await asyncio.wait(tasks[: 1 if pause else 2], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()

    async def renew(self) -> None:
        """Renew every running turn's lease in one trip, and tell those that have lost theirs."""
        runner = self._runner
        kept, lost = await runner.leases.renew(runner.store, runner.terms)
        for running in kept:
            runner.listeners.renewed(running)
        for running in lost:
            runner.listeners.lost(running)

    async def sweep(self) -> None:
        """Take over what was left behind, as far as there are slots; tidy a part of the store."""
        runner = self._runner
        for address in await runner.store.due(runner.bot, _SWEPT_AT_ONCE):
            if not runner.can_run(address):
                self._warn()
            elif runner.slots.locked():
                break
            else:
                await runner.slots.acquire()
                await runner.take_over(address)
        await runner.store.expire(runner.bot, _TIDIED_AT_ONCE, runner.terms)
        self._swept = self._clock()

    async def _ring(self, now: float) -> None:
        runner = self._runner
        for text, (at, address) in list(runner.alarms.items()):
            if at <= now and not runner.stopping and not runner.slots.locked():
                runner.alarms.pop(text, None)
                if runner.can_run(address):
                    await runner.slots.acquire()
                    await runner.take_over(address)

    def _warn(self) -> None:
        if not self._warned:
            self._warned = True
            _log.warning(
                "sweep.no_handler: events wait that nobody runs; give the keeper one: Keeper(handler=...)"
            )
