"""Places for turns: how many may run in one process, first come, first served.

Whoever runs a turn holds a slot from before its event is accepted until nothing follows it, so that a keeper
is idle exactly when all slots are free.
"""

from __future__ import annotations

import asyncio
from collections import deque

from hitherto.errors import KeeperClosed


class Slots:
    """At most *limit* at a time; who comes when all are taken waits."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.taken = 0
        self._waiting: deque[asyncio.Future[bool]] = deque()
        self._idle: asyncio.Future[None] | None = None
        self._closed = False

    @property
    def full(self) -> bool:
        """Whether whoever wants one now has to wait."""
        return self.taken >= self.limit or bool(self._waiting)

    def take(self) -> bool:
        """Take one if there is one; whoever waits already comes first."""
        if self.taken >= self.limit or self._waiting or self._closed:
            return False
        self.taken += 1
        return True

    async def wait(self) -> None:
        """Take one as soon as there is one; KeeperClosed when there will be none."""
        if self.take():
            return
        if self._closed:
            raise KeeperClosed()
        place: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        try:
            got = await place
        except asyncio.CancelledError:
            self._left(place)
            raise
        if not got:
            raise KeeperClosed()

    def _left(self, place: asyncio.Future[bool]) -> None:
        """Who waited goes away; a slot that came in the same moment goes to the next."""
        if place in self._waiting:
            self._waiting.remove(place)
        elif not place.cancelled() and place.result():
            self.free()

    def free(self) -> None:
        """Give one back, to whoever has waited longest."""
        while self._waiting:
            place = self._waiting.popleft()
            if not place.done():
                place.set_result(True)
                return
        self.taken -= 1
        if not self.taken and self._idle is not None:
            self._idle.set_result(None)
            self._idle = None

    def close(self) -> None:
        """Hand none out any more; who waits is told."""
        self._closed = True
        for place in self._waiting:
            if not place.done():
                place.set_result(False)
        self._waiting.clear()

    async def all_free(self, seconds: float) -> bool:
        """Wait until all are free, at most so long; whether they are."""
        if self.taken and seconds > 0:
            if self._idle is None:
                self._idle = asyncio.get_running_loop().create_future()
            await asyncio.wait([self._idle], timeout=seconds)
        return not self.taken
