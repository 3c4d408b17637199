"""Time as the keeper needs it, and patience with a store that is away for a moment."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol, TypeVar

from hitherto.errors import StoreError, StoreUnavailable

UNDER_WAY: Final = "hitherto_under_way"
"""What a store sets on the CancelledError of a call that it finishes all the same: a function that gives an
awaitable of the answer. A store whose operations carry ids need not: there the call is repeated.
"""

_T = TypeVar("_T")
_log = logging.getLogger("hitherto")


class Clock(Protocol):
    """Seconds that only go forward, and a way to wait for them; tests give one that is moved by hand."""

    def __call__(self) -> float: ...

    async def sleep(self, seconds: float, /) -> object: ...


class SystemClock:
    """The clock of this machine."""

    def __call__(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float, /) -> None:
        """Wait, in real time."""
        await asyncio.sleep(seconds)


class Patience:
    """Repeat a call to the store, with back-off and jitter, until it answers or the deadline has come.

    The call carries an operation id, so that repeating it after a lost reply is harmless.
    """

    def __init__(self, clock: Clock, deadline: float) -> None:
        self.clock = clock
        self.deadline = deadline

    async def __call__(self, call: Callable[[], Awaitable[_T]]) -> _T:
        try:
            return await call()
        except (StoreError, OSError) as error:
            return await self.again(call, error)

    async def again(self, call: Callable[[], Awaitable[_T]], error: Exception) -> _T:
        """Go on after a first *error*, if it is one that may pass."""
        if not _worth_repeating(error):
            raise error
        end = self.clock() + self.deadline
        pause = 0.02
        while True:
            pause = min(pause * 2, 1.0)
            wait = pause * (0.5 + random.random() / 2)
            if self.clock() + wait > end:
                raise _final(error, self.deadline) from error
            _log.warning("store.retry %s", type(error).__name__)
            await self.clock.sleep(wait)
            try:
                return await call()
            except (StoreError, OSError) as again:
                if not _worth_repeating(again):
                    raise
                error = again


def resumed(cancelled: BaseException, call: Callable[[], Awaitable[_T]]) -> Callable[[], Awaitable[_T]]:
    """*call* as whoever goes on for a cancelled caller makes it: the answer under way comes first."""
    under_way: Any = getattr(cancelled, UNDER_WAY, None)
    if under_way is None:
        return call
    calls = [call, under_way]
    return lambda: calls.pop()() if len(calls) > 1 else call()


def _worth_repeating(error: Exception) -> bool:
    return error.retryable if isinstance(error, StoreError) else True


def _final(error: Exception, deadline: float) -> StoreError:
    if isinstance(error, StoreError):
        return error
    return StoreUnavailable(f"the store did not answer for {deadline:g} s: {type(error).__name__}")
