"""The keeper's one background task: renews all leases together, sweeps, and rings when a window ends.

Its failures are logged, counted and retried with back-off; they never end it.
"""

from __future__ import annotations

import asyncio
import logging

import msgspec

from hitherto.addresses import Address
from hitherto.patience import Clock
from hitherto.runner import Runner

_log = logging.getLogger("hitherto")
_PAGE = 100
_PAGES = 50
_TIDIED_AT_ONCE = 200
_LONGEST_BACKOFF = 30.0
_FULL = 0.05


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
        self._renew_at = clock() + runner.terms.lease / 3
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
                pause = min(
                    _LONGEST_BACKOFF, self._runner.terms.lease / 6, 0.1 * 2 ** min(self._failures, 10)
                )
            await self._wait(pause)

    def health(self) -> Health:
        """How it is going."""
        ago = None if self._swept is None else self._clock() - self._swept
        return Health(self._failures == 0, len(self._runner.leases), ago, self._failures, self._error)

    async def _once(self) -> None:
        if self._clock() >= self._renew_at:
            await self.renew()
        await self._take_over(self._rung())
        if self._clock() >= self._sweep_at and not self._runner.stopping:
            await self.sweep()

    async def _wait(self, pause: float) -> None:
        """Sleep until the next thing is due; an alarm that is set meanwhile wakes us."""
        runner, now = self._runner, self._clock()
        due = self._renew_at
        if not runner.stopping:
            due = min(due, self._sweep_at, max(runner.alarms.next, now + _FULL if runner.slots.full else 0.0))
        sleeping = asyncio.ensure_future(self._clock.sleep(max(pause, due - now, 0.0)))
        runner.alarms.wake = None if pause else sleeping.cancel
        try:
            await asyncio.wait([sleeping])
        finally:
            runner.alarms.wake = None
            sleeping.cancel()

    async def renew(self) -> None:
        """Renew every running turn's lease in one trip, and tell those that have lost theirs."""
        runner, now = self._runner, self._clock()
        kept, lost = await runner.leases.renew(runner.store, runner.terms)
        self._renew_at = now + runner.terms.lease / 3
        for running in kept:
            runner.listeners.renewed(running)
        for running in lost:
            runner.listeners.lost(running)

    async def sweep(self) -> None:
        """Take over what was left behind, as far as there are slots; tidy a part of the store."""
        runner = self._runner
        for _ in range(_PAGES):
            found = await runner.store.due(runner.bot, _PAGE)
            ours = [address for address in found if runner.can_run(address)]
            if len(ours) < len(found):
                self._warn()
            await self._take_over(ours)
            if len(ours) < _PAGE or runner.slots.full or self._clock() >= self._renew_at:
                break
        await runner.store.expire(runner.bot, _TIDIED_AT_ONCE, runner.terms)
        self._swept = self._clock()
        self._sweep_at = self._swept + self._every

    def _rung(self) -> list[Address]:
        """The conversations whose alarm has rung and that can be run here, as many as there are slots for."""
        runner, now = self._runner, self._clock()
        rung: list[Address] = []
        while len(rung) < runner.slots.limit - runner.slots.taken and not runner.stopping:
            address = runner.alarms.ring(now)
            if address is None:
                break
            if runner.can_run(address):
                rung.append(address)
        return rung

    async def _take_over(self, addresses: list[Address]) -> None:
        """All at once, each with a slot; those that get none are left for the next sweep.

        They go on when whoever waits for them here is cancelled: a task that never began would keep its slot.
        """
        runner = self._runner
        taken = [address for address in addresses if not runner.stopping and runner.slots.take()]
        if not taken:
            return
        tasks = [runner.spawn(runner.take_over(address)) for address in taken]
        await asyncio.wait(tasks)
        for task in tasks:
            if not task.cancelled() and (error := task.exception()) is not None:
                raise error

    def _warn(self) -> None:
        if not self._warned and not self._runner.expecting:
            self._warned = True
            _log.warning(
                "sweep.no_handler: events wait that nobody runs; give the keeper one: Keeper(handler=...)"
            )
