"""How cost grows: with the conversations in the store, those at once, the size of a record, the processes;
and what an idle conversation, an import and an opening cost.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import asyncpg

from benchmarks.measure import interleaved, rate
from benchmarks.ways import MESSAGE, kept
from hitherto import Keeper, Turn, open_store
from hitherto.addresses import Address
from hitherto.document import Event, Terms
from hitherto.overlap import Queue
from hitherto.records import Patch

AT_ONCE = (1, 10, 100, 1000)
BYTES = (100, 1_000, 10_000, 100_000)
PROCESSES = (1, 2, 4)
FILLERS = 400


async def fill(url: str, count: int) -> None:
    """So many idle conversations, each with a record and a seen id."""
    numbers, terms = iter(range(count)), Terms()
    patch = Patch(set={"name": b'"Ann"', "step": b"1"}, moved=True, flow="signup", state="here")

    async with open_store(url) as store:

        async def work() -> None:
            for number in numbers:
                address = Address("bench", "", (number, number))
                event = Event(f"{number:x}", b"{}")
                answer = await store.accept(address, event, Queue(), "fill", store.op(), terms)
                assert answer.grant is not None
                await store.settle(address, answer.grant.claim, store.op(), terms, patch=patch)

        await asyncio.gather(*[work() for _ in range(FILLERS)])


async def settle_down(url: str) -> None:
    """What a bulk load leaves behind is no part of a turn: let PostgreSQL tidy up before it is measured."""
    if url.startswith("postgres"):
        connection = await asyncpg.connect(url)
        await connection.execute("VACUUM ANALYZE")
        await connection.execute("CHECKPOINT")
        await connection.close()


async def growth(
    small: str, large: str, counts: tuple[int, int], seconds: float, rounds: int
) -> dict[str, Any]:
    """The time of a turn with few and with many conversations in the store, and of opening it."""
    filled = []
    for url, count in zip((small, large), counts, strict=True):
        began = time.perf_counter()
        await fill(url, count)
        filled.append(time.perf_counter() - began)
    for url in (small, large):
        await settle_down(url)
    opened = [statistics.median([await _opening(url) for _ in range(5)]) for url in (small, large)]
    async with kept(small) as few, kept(large) as many:
        found = await interleaved({"few": few, "many": many}, 100, seconds, rounds)
        alone = await interleaved({"few": few, "many": many}, 1, seconds / 2, rounds)
    return {
        "conversations": counts,
        "filled_in_seconds": filled,
        "milliseconds_to_open": opened,
        "time_per_turn_times": found["few"].median / found["many"].median,
        "time_per_turn_times_alone": alone["few"].median / alone["many"].median,
    }


async def _opening(url: str) -> float:
    began = time.perf_counter()
    async with Keeper("bench", url):
        return 1000 * (time.perf_counter() - began)


async def at_once(url: str, seconds: float) -> dict[str, float]:
    """Turns a second for so many conversations at once."""
    async with kept(url) as step:
        return {str(number): await rate(step, number, seconds) for number in AT_ONCE}


async def sizes(url: str, seconds: float) -> dict[str, float]:
    """Turns a second, a hundred at once, on records with one large field that the turn leaves alone."""
    found = {}
    for size in BYTES:

        async def handler(turn: Turn, size: int = size) -> None:
            if "pad" not in turn.data:
                turn.update_data(pad="x" * size)
            turn.update_data(step=turn.data.get("step", 0) + 1)

        async with Keeper(f"size{size}", url) as keeper:

            async def step(
                who: int, number: int, keeper: Keeper = keeper, handler: Callable[..., Any] = handler
            ) -> None:
                await keeper.handle(MESSAGE, handler, key=(who,), id=f"{number:x}")

            await rate(step, 100, seconds / 4)
            found[str(size)] = await rate(step, 100, seconds)
    return found


WORKER = """
import asyncio, sys, time, warnings
warnings.simplefilter("ignore")
from benchmarks.measure import rate
from benchmarks.ways import kept
async def main():
    async with kept(sys.argv[1]) as step:
        mine = int(sys.argv[2]) * 1000
        async def own(who, number):
            await step(mine + who, number)
        await rate(own, 50, 0.2)
        print("ready", flush=True)
        sys.stdin.readline()
        print(await rate(own, 50, float(sys.argv[3])), flush=True)
asyncio.run(main())
"""


def processes(url: str, seconds: float) -> dict[str, float]:
    """Turns a second of so many processes together, fifty conversations of its own for each."""
    return {str(number): sum(_workers(url, number, seconds)) for number in PROCESSES}


def _workers(url: str, number: int, seconds: float) -> list[float]:
    root = Path(__file__).parents[1]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "cwd": root}
    commands = [[sys.executable, "-c", WORKER, url, str(n), str(seconds)] for n in range(number)]
    running = [subprocess.Popen(command, **pipes) for command in commands]  # type: ignore[call-overload]
    for process in running:
        process.stdout.readline()
    for process in running:
        process.stdin.write("go\n")
        process.stdin.flush()
    return [float(process.communicate(timeout=seconds * 10 + 60)[0]) for process in running]


IDLE = """
import asyncio, json, resource, sys, time
began = time.perf_counter()
import hitherto
imported = 1000 * (time.perf_counter() - began)
from benchmarks.scale import fill
def used():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
async def main():
    await asyncio.sleep(0)
    before, count = used(), int(sys.argv[1])
    store = hitherto.MemoryStore()
    import benchmarks.scale as scale
    scale.open_store = lambda url: store
    await fill("memory://", count)
    bytes_each = (used() - before) / count
    print(json.dumps({"import_milliseconds": imported, "bytes_of_an_idle_conversation": bytes_each}))
asyncio.run(main())
"""


def idle(count: int) -> dict[str, float]:
    """What an import takes, and what an idle conversation in memory does, in a process of its own."""
    command = [sys.executable, "-c", IDLE, str(count)]
    done = subprocess.run(
        command, cwd=Path(__file__).parents[1], capture_output=True, text=True, timeout=600, check=True
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found
