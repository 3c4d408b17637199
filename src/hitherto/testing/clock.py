"""A clock that stands still until it is told otherwise, for tests of everything that waits or expires."""

from __future__ import annotations

import asyncio
from typing import Final

START: Final = 1_800_000_000.0


class ManualClock:
    """Seconds pass only when a test says so: give it to a store as ``clock=``, to a keeper its ``sleep``.

    It starts at the same moment in every run. Whoever sleeps by it wakes in the order of the deadlines, and
    goes on at the next turn of the event loop.
    """

    def __init__(self, start: float = START) -> None:
        self._now = start
        self._sleepers: list[tuple[float, asyncio.Future[None]]] = []

    def __repr__(self) -> str:
        return f"ManualClock({self._now!r}, sleeping={self.sleeping})"

    def __call__(self) -> float:
        """The time now."""
        return self._now

    @property
    def sleeping(self) -> int:
        """How many sleep by this clock."""
        return sum(not future.done() for _, future in self._sleepers)

    def advance(self, seconds: float) -> None:
        """Let *seconds* pass and wake whoever has slept long enough; zero or more."""
        if not seconds >= 0:
            raise ValueError(f"advance({seconds!r}): seconds, zero or more; use set() to go back")
        self.set(self._now + seconds)

    def set(self, moment: float) -> None:
        """Make it *moment*, also an earlier one, as clocks of servers sometimes do."""
        self._now = moment
        awake = sorted((pair for pair in self._sleepers if pair[0] <= moment), key=lambda pair: pair[0])
        self._sleepers = [pair for pair in self._sleepers if pair[0] > moment]
        for _, future in awake:
            if not future.done():
                future.set_result(None)

    async def sleep(self, seconds: float) -> None:
        """Return once the clock has advanced by *seconds*; zero or less only lets others run."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        pair = (self._now + seconds, future)
        self._sleepers.append(pair)
        try:
            await future
        finally:
            if pair in self._sleepers:
                self._sleepers.remove(pair)
