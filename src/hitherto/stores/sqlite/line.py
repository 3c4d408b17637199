"""One event loop's side of the engine: operations go in, one ring of the bell for all of a round, answers
come back in one call.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, Final

_PATIENCE: Final = 0.005
_HASTE: Final = 0.0005
_PAUSE: Final = 0.0003
_HURRY: Final = 40


class Job:
    """One operation, who waits for it and what came of it."""

    __slots__ = ("answer", "answered", "error", "future", "line", "run", "writes")

    def __init__(
        self, run: Callable[[Any], Any], writes: bool, line: Line, future: asyncio.Future[Any]
    ) -> None:
        self.run, self.writes, self.line, self.future = run, writes, line, future
        self.answer: Any = None
        self.error: BaseException | None = None
        self.answered = False

    def resolve(self) -> None:
        """Give the answer to whoever waits for it."""
        self.answered = True
        if self.future.done():
            return
        if self.error is None:
            self.future.set_result(self.answer)
        else:
            self.future.set_exception(self.error)

    def again(self) -> asyncio.Future[Any]:
        """The answer for somebody else: whoever waited was cancelled, the operation was not."""
        self.future = self.line.loop.create_future()
        if self.answered:
            self.resolve()
        return self.future


class Line:
    """What one loop has asked for and not been answered yet."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, put: Callable[[Job], None], ring: Callable[[bool], None]
    ) -> None:
        self.loop = loop
        self._put, self._ring = put, ring
        self._outstanding = 0
        self._answered = self._hurried = 0
        self._kicking = self._watching = False

    def submit(self, run: Callable[[Any], Any], writes: bool) -> Job:
        """Put an operation in; the bell rings when everybody whose turn it is in this round has done so."""
        job = Job(run, writes, self, self.loop.create_future())
        self._outstanding += 1
        self._put(job)
        if not self._kicking:
            self._kicking = True
            self.loop.call_soon(self._kick)
        return job

    def answer(self, jobs: list[Job]) -> None:
        """Give the answers, from the engine's thread; a loop that is closed by now wants none."""
        try:
            self.loop.call_soon_threadsafe(self._resolve, jobs)
        except RuntimeError:
            self._outstanding -= len(jobs)

    def _kick(self) -> None:
        self._kicking = False
        self._ring(True)
        if not self._watching:
            self._watch()

    def _resolve(self, jobs: list[Job]) -> None:
        self._outstanding -= len(jobs)
        self._answered += 1
        for job in jobs:
            job.resolve()

    def _watch(self) -> None:
        self._watching = True
        pause = _HASTE if self._hurried else _PATIENCE
        self.loop.call_later(pause, self._look, self._answered, time.monotonic(), time.thread_time())

    def _look(self, answered: int, wall: float, cpu: float) -> None:
        """Step aside when the engine gave no answer for a while and this loop never rested.

        A saturated loop gives the interpreter's lock up and takes it back before any other thread wakes, and
        the engine would wait for seconds. Short sleeps hand over, only while the engine is waited for.
        """
        self._watching = False
        if not self._outstanding:
            return
        is_busy = time.thread_time() - cpu > 0.5 * (time.monotonic() - wall)
        if is_busy and answered == self._answered:
            self._hurried = self._hurried or _HURRY
            time.sleep(_PAUSE)
        self._hurried = max(self._hurried - 1, 0)
        self._watch()
