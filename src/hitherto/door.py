"""Where polled updates become accepted: one conversation's in their order, and confirmed only afterwards.

With long polling the next request confirms everything before it. The door keeps that request back until each
update that came before is accepted; what was refused, or could not be accepted, is asked for again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from hitherto.addresses import Key, key_text

_T = TypeVar("_T")
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0


class Place:
    """One update's place before the door, behind those of its conversation that came earlier."""

    __slots__ = ("_before", "_line", "_passed")

    def __init__(self, line: str, passed: asyncio.Future[None], before: asyncio.Future[None] | None) -> None:
        self._line, self._passed, self._before = line, passed, before

    async def reached(self) -> None:
        """Wait until all that came before are through."""
        if self._before is not None:
            await asyncio.wait([self._before])


class Door:
    """The way in. Everybody who comes has to leave it, accepted or not."""

    def __init__(self) -> None:
        self._last: dict[str, asyncio.Future[None]] = {}
        self._entering = 0
        self._nobody = asyncio.Event()
        self._held: int | None = None
        self._pause = _FIRST_PAUSE

    def come(self, key: Key) -> Place:
        """Take a place; those without a key wait for nobody."""
        self._entering += 1
        self._nobody.clear()
        passed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if key is None:
            return Place("", passed, None)
        line = key_text(key)
        before, self._last[line] = self._last.get(line), passed
        return Place(line, passed, before)

    def leave(self, place: Place) -> None:
        """It is accepted, or will not be."""
        if place._passed.done():
            return
        place._passed.set_result(None)
        if self._last.get(place._line) is place._passed:
            del self._last[place._line]
        self._entering -= 1
        if not self._entering:
            self._nobody.set()

    def hold(self, update_id: int) -> None:
        """It is not accepted now: it must be given again."""
        self._held = update_id if self._held is None else min(self._held, update_id)

    async def ask(self, offset: int | None, request: Callable[[int | None], Awaitable[_T]]) -> _T:
        """Ask for more updates from *offset* on, or from an earlier one that must be given again."""
        await asyncio.sleep(0)  # the tasks that were made for the last updates come to the door first
        while self._entering:
            await self._nobody.wait()
        held, self._held = self._held, None
        if held is None or offset is None or offset <= held:
            self._pause = _FIRST_PAUSE
            return await request(offset)
        try:
            await asyncio.sleep(self._pause)
            self._pause = min(self._pause * 2, _LONGEST_PAUSE)
            return await request(held)
        except BaseException:
            self.hold(held)
            raise
