"""Group commit on SQLite with ``synchronous=FULL``, beside the same code with one commit per operation.

Whole turns through a keeper, in 100 conversations at once; rounds are interleaved and medians compared. Then
fsyncs are counted, not timed: each way runs in a process of its own under a small library that counts the
calls of ``fsync`` and ``fdatasync`` (made with the C compiler; without one, ``strace`` counts). Run it on a
real disk, not in a file system in memory::

    python benchmarks/sqlite_group.py [--directory .] [--rounds 5] [--seconds 2]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from hitherto import Flow, Keeper, State, Turn
from hitherto.stores.sqlite import SQLiteStore

CONVERSATIONS = 100
SPEED_BAR, FSYNC_BAR = 8.0, 0.1
WAYS = {"grouped": True, "one by one": False}

COUNTER = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
static long count;
#define COUNTED(name) int name(int fd) { \\
    static int (*next)(int); \\
    if (!next) next = (int (*)(int))dlsym(RTLD_NEXT, #name); \\
    __atomic_add_fetch(&count, 1, __ATOMIC_RELAXED); \\
    return next(fd); }
COUNTED(fsync)
COUNTED(fdatasync)
long hitherto_fsyncs(void) { return count; }
"""


class Signup(Flow):
    ask_name = State(to="ask_email", initial=True)
    ask_email = State(to="ask_name")


async def handler(turn: Turn) -> None:
    """A step of a dialogue: another state, two fields."""
    if turn.flow is None:
        turn.start(Signup)
    turn.transition(Signup.ask_email if turn.state is Signup.ask_name else Signup.ask_name)
    turn.update_data(name=f"Ann {turn.event['update_id']}", step=turn.event["update_id"])


def update(number: int, chat: int) -> dict[str, Any]:
    """A message as Telegram sends it."""
    ann = {"id": chat, "is_bot": False, "first_name": "Ann"}
    message = {"message_id": number, "date": 1, "chat": {"id": chat, "type": "private"}, "from": ann}
    return {"update_id": number, "message": {**message, "text": "hello"}}


class Way:
    """A keeper on a file of its own, with or without group commit."""

    def __init__(self, path: Path, group: bool) -> None:
        self.keeper = Keeper("bench", SQLiteStore(path, group=group), [Signup])
        self.number = 0

    async def turns(self, seconds: float = 1e9, count: int = 1 << 60, talkers: int = CONVERSATIONS) -> float:
        """Turns per second, of *talkers* people who each send the next message when theirs is answered."""
        done, began = 0, time.perf_counter()

        async def talk(chat: int) -> None:
            nonlocal done
            while time.perf_counter() - began < seconds and done < count:
                done += 1
                self.number += 1
                outcome = await self.keeper.handle(update(self.number, chat), handler)
                assert outcome.status == "committed"

        await asyncio.gather(*[talk(chat) for chat in range(1, talkers + 1)])
        return done / (time.perf_counter() - began)


async def measure(directory: Path, rounds: int, seconds: float) -> dict[str, list[float]]:
    """Turns per second of each way, round by round."""
    ways = {name: Way(directory / f"{group}.db", group) for name, group in WAYS.items()}
    found: dict[str, list[float]] = {name: [] for name in ways}
    for way in ways.values():
        await way.keeper.start()
        await way.turns(count=5 * CONVERSATIONS)
    for _ in range(rounds):
        for name, way in ways.items():
            found[name].append(await way.turns(seconds))
    for way in ways.values():
        await way.keeper.stop()
        await way.keeper.store.close()
    return found


# ------------------------------------------------------------------------------------------ counting fsyncs


async def counted(path: Path, group: bool, turns: int) -> float:
    """In a process under the counter: fsyncs for each turn, once the file is there."""
    import ctypes

    fsyncs = ctypes.CDLL(os.environ["LD_PRELOAD"]).hitherto_fsyncs
    way = Way(path, group)
    await way.keeper.start()
    await way.turns(count=CONVERSATIONS)
    before, number = fsyncs(), way.number
    await way.turns(count=turns)
    used = (fsyncs() - before) / (way.number - number)
    await way.keeper.stop()
    await way.keeper.store.close()
    return float(used)


async def just_run(path: Path, group: bool, turns: int) -> None:
    """The same under strace, which counts from outside."""
    way = Way(path, group)
    await way.keeper.start()
    await way.turns(count=turns)
    await way.keeper.stop()
    await way.keeper.store.close()


def fsyncs_per_turn(directory: Path, group: bool, turns: int) -> tuple[float | None, str]:
    """Counted in a process of its own, and by what."""
    command = [
        sys.executable,
        __file__,
        "--child",
        json.dumps([str(directory / f"c{group}.db"), group, turns]),
    ]
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler and sys.platform == "linux":
        library = directory / "counter.so"
        if not library.exists():
            source = directory / "counter.c"
            source.write_text(COUNTER)
            subprocess.run(
                [compiler, "-shared", "-fPIC", "-O1", str(source), "-o", str(library), "-ldl"], check=True
            )
        environment = {**os.environ, "LD_PRELOAD": str(library)}
        child = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
        return float(child.stdout), "a counting library"
    if shutil.which("strace"):
        traced = ["strace", "-f", "-c", "-e", "trace=fsync,fdatasync", *command]
        child = subprocess.run(traced, check=True, capture_output=True, text=True)
        rows = [line.split() for line in child.stderr.splitlines()]
        calls = [int(row[3]) for row in rows if row and row[-1] in ("fsync", "fdatasync")]
        return sum(calls) / turns, "strace"
    return None, ""


def report_fsyncs(directory: Path, turns: int) -> bool:
    held = True
    for name, group in WAYS.items():
        used, by = fsyncs_per_turn(directory, group, turns if group else turns // 10)
        if used is None:
            print("fsyncs were not counted: neither a C compiler nor strace is here")
            return True
        bar = f"   bar: below {FSYNC_BAR:g}" if group else ""
        print(f"{name:11} {used:8.3f} fsyncs per turn, counted by {by}{bar}")
        held = held and not (group and used >= FSYNC_BAR)
    return held


def report_speed(found: dict[str, list[float]]) -> bool:
    middle = {name: statistics.median(rates) for name, rates in found.items()}
    for name, rates in found.items():
        print(f"{name:11} {middle[name]:8.0f} turns/s ({min(rates):.0f} to {max(rates):.0f})")
    ratio = middle["grouped"] / middle["one by one"]
    print(f"grouped / one by one   {ratio:.1f}   bar: at least {SPEED_BAR:g}")
    return ratio >= SPEED_BAR


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--directory", type=Path, default=Path.cwd(), help="on the disk to be measured")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each round")
    parser.add_argument("--turns", type=int, default=10_000, help="for which fsyncs are counted")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        path, group, turns = json.loads(given.child)
        if "LD_PRELOAD" in os.environ:
            print(asyncio.run(counted(Path(path), group, turns)))
        else:
            asyncio.run(just_run(Path(path), group, turns))
        return
    with tempfile.TemporaryDirectory(dir=given.directory) as name:
        directory = Path(name)
        print(
            f"synchronous=FULL, {CONVERSATIONS} conversations, {given.rounds} rounds of {given.seconds:g} s"
        )
        held = report_speed(asyncio.run(measure(directory, given.rounds, given.seconds)))
        held = report_fsyncs(directory, given.turns) and held
    raise SystemExit(not held)


if __name__ == "__main__":
    main()
