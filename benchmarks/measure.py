"""How things are measured: in one run, in turn, in several rounds; medians and spread, ratios first."""

from __future__ import annotations

import asyncio
import itertools
import statistics
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple

Step = Callable[[int, int], Awaitable[object]]
"""One ordinary step: of which conversation, and a number that is never the same."""


class Way(NamedTuple):
    """One way to do the ordinary step: *place* is what it lies on, *peer* whether it is somebody else's."""

    name: str
    place: str
    peer: bool
    opened: Callable[[], AbstractAsyncContextManager[Step]]
    note: str = ""


class Rates(NamedTuple):
    """Steps per second, of each round."""

    rounds: list[float]

    @property
    def median(self) -> float:
        """The typical round."""
        return statistics.median(self.rounds)

    def said(self) -> dict[str, float]:
        """For the report."""
        return {"median": self.median, "low": min(self.rounds), "high": max(self.rounds)}


_numbers = itertools.count(time.time_ns())


async def rate(step: Step, conversations: int, seconds: float) -> float:
    """Steps per second in so many conversations at once, each one step after the other."""
    done, end = 0, time.perf_counter() + seconds

    async def talk(who: int) -> None:
        nonlocal done
        while time.perf_counter() < end:
            await step(who, next(_numbers))
            done += 1

    began = time.perf_counter()
    await asyncio.gather(*[talk(who) for who in range(conversations)])
    return done / (time.perf_counter() - began)


async def interleaved(
    steps: dict[str, Step], conversations: int, seconds: float, rounds: int
) -> dict[str, Rates]:
    """The rates of each, one round of each after the other, so that a busy machine slows all."""
    found: dict[str, list[float]] = {name: [] for name in steps}
    for step in steps.values():
        await rate(step, conversations, seconds / 4)
    for _ in range(rounds):
        for name, step in steps.items():
            found[name].append(await rate(step, conversations, seconds))
    return {name: Rates(rounds) for name, rounds in found.items()}
