"""What goes wrong beside the workers: the network by a proxy, clocks, a full disk."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Literal

from msgspec.structs import replace

from hitherto.testing.chaos.plan import Fault
from hitherto.testing.chaos.run import Run
from hitherto.testing.proxy import Proxy

HOUR = 3600.0
_ENDINGS: tuple[Literal["reset", "close", "hang"], ...] = ("reset", "close", "hang")

Way = Callable[[Proxy, random.Random], Awaitable[object]]


# --------------------------------------------------------------------------------------------- the network


async def _latency(proxy: Proxy, luck: random.Random) -> None:
    proxy.latency, proxy.jitter = luck.uniform(0.01, 0.05), 0.05
    await asyncio.sleep(luck.uniform(1, 2))
    proxy.latency = proxy.jitter = 0.0


async def _reset(proxy: Proxy, luck: random.Random) -> None:
    for _ in range(5):
        proxy.reset()
        await asyncio.sleep(luck.uniform(0.05, 0.4))


async def _black_hole(proxy: Proxy, luck: random.Random) -> None:
    proxy.cut(luck.choice(["both", "up", "down"]))
    await asyncio.sleep(luck.uniform(0.5, 2.5))
    proxy.mend()


async def _slices(proxy: Proxy, luck: random.Random) -> None:
    proxy.slice = luck.randrange(30, 300)
    await asyncio.sleep(luck.uniform(0.5, 1.5))
    proxy.slice = None


async def _lost_replies(proxy: Proxy, luck: random.Random) -> None:
    loss = proxy.lose_reply(probability=luck.uniform(0.02, 0.2), limit=50, ending=luck.choice(_ENDINGS))
    await asyncio.sleep(luck.uniform(1, 2))
    loss.cancel()


async def _lost_requests(proxy: Proxy, luck: random.Random) -> None:
    loss = proxy.lose_request(probability=luck.uniform(0.02, 0.2), limit=50, ending=luck.choice(_ENDINGS))
    await asyncio.sleep(luck.uniform(1, 2))
    loss.cancel()


async def _refusal(proxy: Proxy, luck: random.Random) -> None:
    proxy.refuse = True
    proxy.reset()
    await asyncio.sleep(luck.uniform(0.3, 1.5))
    proxy.refuse = False


_WAYS: dict[str, Way] = {
    "latency": _latency,
    "resets": _reset,
    "black hole": _black_hole,
    "slices": _slices,
    "lost replies": _lost_replies,
    "lost requests": _lost_requests,
    "refused": _refusal,
}


def of_the_network(proxy: Proxy, grace: float = 6.0) -> list[Fault]:
    """Every way in which this proxy can fail; *grace*: how long clients wait for a reply that was lost."""

    def fault(name: str, way: Way) -> Fault:
        return Fault(name, lambda run: way(proxy, run.luck), grace)

    return [fault(name, way) for name, way in _WAYS.items()]


# ---------------------------------------------------------------------------------------------- the clocks


async def _one_clock_jumps(run: Run) -> None:
    """A worker's own clock is set wrong, by an hour to either side; others' stay as they are."""
    victim = run.luck.choice(run.crew.workers)
    victim.tell(clock=run.luck.choice([-HOUR, HOUR]))
    await asyncio.sleep(run.luck.uniform(0.2, 1.0))


async def _the_host_is_set(run: Run) -> None:
    """The clock of the host, by which all workers of a file go, is set forward by an hour, and back again.

    A lease that is dead when the clock is set back would look alive for an hour: that is what such a clock
    does to whoever goes by it. So nobody is killed, and nobody sleeps, just then.
    """
    await _set_clock(run, HOUR)
    await asyncio.sleep(run.luck.uniform(0.5, 1.5))
    async with run.peace:
        settled = run.settings.lease + run.settings.sweep + 2 * run.plan.pause
        await asyncio.sleep(settled)
        await _set_clock(run, 0.0)
        await asyncio.sleep(run.settings.lease)


async def _set_clock(run: Run, offset: float) -> None:
    run.crew.settings = replace(run.crew.settings, clock=offset)
    run.crew.order(clock=offset)


def of_the_clock(url: str) -> list[Fault]:
    """An SQLite file has its host's clock; behind a server's, every worker may have a clock of its own."""
    if url.startswith("sqlite:"):
        return [Fault("host's clock set", _the_host_is_set)]
    return [Fault("worker's clock jumps", _one_clock_jumps)]


# ------------------------------------------------------------------------------------------------ the disk


async def _full_disk(run: Run) -> None:
    """No file of a worker grows beyond a page; one that is hired meanwhile is told at once."""
    end = asyncio.get_running_loop().time() + run.luck.uniform(0.3, 1.0)
    while asyncio.get_running_loop().time() < end:
        run.crew.order(disk=4096)
        await asyncio.sleep(0.05)
    run.crew.order(disk=-1)


def of_the_disk(url: str) -> list[Fault]:
    """Only an SQLite file is on the workers' own disk."""
    return [Fault("full disk", _full_disk, 1.0)] if url.startswith("sqlite:") else []
