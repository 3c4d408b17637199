"""python-telegram-bot's persistence at many users: what a changed user costs, and what a start costs.

Two persistences hold the same users, in one run and in turn, so that a busy machine slows both:

* **pickle**: PTB's ``PicklePersistence``, one file, which is rewritten whenever the application hands over;
* **hitherto**: ``HithertoPersistence`` on SQLite, fully durable, one row for each user.

Each round one user changes, and is handed over as ``Application.update_persistence`` does it; the time of
that, and for how long the event loop did not run, are measured. Then a new process is started for each and
loads everything, as an application does: its time and its memory, with ``lazy=True`` as well. Run it alone::

    python benchmarks/ptb_persistence.py [--users 100000] [--rounds 15]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

from telegram.ext import BasePersistence, PicklePersistence

from hitherto.ptb_persistence import HithertoPersistence

BAR = 200.0


def somebody(number: int) -> dict[str, Any]:
    return {
        "name": f"Person {number}",
        "visits": number % 17,
        "cart": ["tea", "cake"],
        "address": {"zip": "1"},
    }


def opened(kind: str, folder: Path) -> BasePersistence[Any, Any, Any]:
    if kind == "pickle":
        return PicklePersistence(folder / "bot.pickle")
    return HithertoPersistence(f"sqlite:///{folder}/bot.db", lazy=kind == "lazy")


async def filled(kind: str, folder: Path, users: int) -> BasePersistence[Any, Any, Any]:
    """With so many users, written in the quickest way there is."""
    persistence = opened(kind, folder)
    await persistence.get_user_data()
    if isinstance(persistence, PicklePersistence):
        persistence.user_data = {number: somebody(number) for number in range(users)}
        await persistence.update_user_data(users, somebody(users))
        return persistence
    for start in range(0, users + 1, 1000):
        some = range(start, min(start + 1000, users + 1))
        await asyncio.gather(*[persistence.update_user_data(number, somebody(number)) for number in some])
    return persistence


class Pauses:
    """For how long the event loop was kept from running, at worst; it looks every millisecond."""

    def __init__(self) -> None:
        self.worst = 0.0

    async def watch(self) -> None:
        while True:
            before = time.perf_counter()
            await asyncio.sleep(0.001)
            self.worst = max(self.worst, time.perf_counter() - before - 0.001)


async def changed(persistence: BasePersistence[Any, Any, Any], number: int) -> tuple[float, float]:
    """The seconds that a changed user takes, and the longest pause of the loop meanwhile."""
    pauses = Pauses()
    watching = asyncio.create_task(pauses.watch())
    await asyncio.sleep(0.01)
    pauses.worst, began = 0.0, time.perf_counter()
    await persistence.update_user_data(number, {**somebody(number), "visits": number + 100})
    seconds = time.perf_counter() - began
    await asyncio.sleep(0.002)
    watching.cancel()
    return seconds, pauses.worst


def started(kind: str, folder: Path) -> dict[str, float]:
    """What a new process needs until all users are loaded."""
    command = [sys.executable, "-W", "ignore", __file__, "--start", kind, str(folder)]
    found: dict[str, float] = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    return found


def resident() -> float:
    """Megabytes of this process in memory."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0


async def start(kind: str, folder: Path) -> None:
    """In the new process: load, and tell."""
    empty, began = resident(), time.perf_counter()
    persistence = opened(kind, folder)
    users = await persistence.get_user_data()
    seconds = time.perf_counter() - began
    print(json.dumps({"seconds": seconds, "megabytes": resident() - empty, "users": len(users)}))
    if not isinstance(persistence, PicklePersistence):
        await persistence.flush()


async def measure(users: int, rounds: int) -> dict[str, Any]:
    """What a changed user and a start cost, each in its way, and how many times less ours is."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        both = {kind: await filled(kind, folder, users) for kind in ("pickle", "hitherto")}
        took: dict[str, list[tuple[float, float]]] = {kind: [] for kind in both}
        for number in range(rounds):
            for kind, persistence in both.items():
                took[kind].append(await changed(persistence, number))
        await both["hitherto"].flush()
        starts = {kind: started(kind, folder) for kind in ("pickle", "hitherto", "lazy")}
    middles = {
        kind: [statistics.median(sample[i] for sample in samples) * 1000 for i in (0, 1)]
        for kind, samples in took.items()
    }
    return {
        "users": users,
        "times": statistics.median(
            p[0] / h[0] for p, h in zip(took["pickle"], took["hitherto"], strict=True)
        ),
        "milliseconds": {kind: cost for kind, (cost, _) in middles.items()},
        "milliseconds_the_loop_stood_still": {kind: pause for kind, (_, pause) in middles.items()},
        "starts": starts,
    }


def report(found: dict[str, Any]) -> bool:
    """Print the comparison; whether the bar is met."""
    print(f"{found['users']:,} users, a changed user, medians:")
    for kind, cost in found["milliseconds"].items():
        pause = found["milliseconds_the_loop_stood_still"][kind]
        print(f"  {kind:9} {cost:9.2f} ms, the event loop stood still for {pause:9.2f} ms")
    print(f"  {found['times']:.0f} times less (bar: {BAR:.0f})\na start:")
    for kind, start in found["starts"].items():
        took = f"{start['seconds']:9.2f} s, {start['megabytes']:7.1f} MB"
        print(f"  {kind:9} {took}, {start['users']:,} users")
    return bool(found["times"] >= BAR)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--users", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--start", nargs=2, metavar=("KIND", "FOLDER"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    if given.start:
        asyncio.run(start(given.start[0], Path(given.start[1])))
    elif not report(asyncio.run(measure(given.users, given.rounds))):
        sys.exit(1)


if __name__ == "__main__":
    main()
