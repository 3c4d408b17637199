"""Run under the recorder: turns on an SQLite store, each acknowledged by a line in the file ``acks``; or the
same few turns again and again, with one call to the disk after the other failing.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import errno
import json
import os
import random
import sys
import warnings
from pathlib import Path
from typing import Any

from hitherto import codec
from hitherto.addresses import Address
from hitherto.document import Event, Terms
from hitherto.errors import StoreError, StoreWarning
from hitherto.overlap import Queue
from hitherto.records import Patch
from hitherto.stores.sqlite import SQLiteStore

BOT, CONVERSATIONS, AT_FAULT = "power", 4, 2
TERMS = Terms(lease=0.0)


def address(who: int) -> Address:
    """One of the conversations."""
    return Address(BOT, "", (who,))


async def turn(store: SQLiteStore, who: int, log: list[int], number: int, pad: str) -> None:
    """Accept an event and commit a log that is one longer."""
    answer = await store.accept(address(who), Event(f"e{number}", b"{}"), Queue(), "w", store.op(), TERMS)
    assert answer.grant is not None
    patch = Patch(set=codec.encode({"log": [*log, number], "pad": pad}))
    settled = await store.settle(address(who), answer.grant.claim, store.op(), TERMS, patch=patch)
    assert settled.status == "committed", settled
    log.append(number)


async def record(folder: Path, synchronous: str, turns: int, seed: int) -> None:
    """Turns in several conversations at once, which share transactions; what returned is acknowledged."""
    chance, logs = random.Random(seed), [list[int]() for _ in range(CONVERSATIONS)]
    acks = os.open(folder / "acks", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    async def talk(who: int, store: SQLiteStore) -> None:
        for number in range(turns):
            await turn(store, who, logs[who], number, "x" * chance.randrange(12_000))
            os.write(acks, f"{who} {number}\n".encode())

    async with SQLiteStore(folder / "power.db", synchronous=synchronous) as store:
        await asyncio.gather(*[talk(who, store) for who in range(CONVERSATIONS)])
    os.close(acks)


async def fail(folder: Path, number: int, lasting: int) -> dict[str, Any]:
    """Let one call after the other fail until none is left to; what is found to be wrong."""
    shim = ctypes.CDLL(None)
    shim.hitherto_fail.argtypes = (ctypes.c_long, ctypes.c_int, ctypes.c_long)
    shim.hitherto_calls.restype = ctypes.c_long
    wrong, refused, k = [], 0, 0
    while True:
        k += 1
        path = folder / f"fault{k}.db"
        acked, calls, errors = await _failing_turns(shim, path, k, number, lasting)
        refused += errors
        wrong += [f"call {k}: {what}" for what in await _look(path, acked)]
        _remove(folder, f"fault{k}.db*")
        if calls < k:
            return {"calls": k - 1, "refused": refused, "wrong": wrong}


def _remove(folder: Path, pattern: str) -> None:
    for left in folder.glob(pattern):
        left.unlink()


async def _failing_turns(
    shim: Any, path: Path, k: int, number: int, lasting: int
) -> tuple[list[list[int]], int, int]:
    """A few turns in each conversation while call *k* fails; then once more when the disk is well again."""
    acked: list[list[int]] = [[] for _ in range(AT_FAULT)]
    errors = 0
    shim.hitherto_fail(k, number, lasting)
    store = SQLiteStore(path, timeout=1.0)
    for _ in range(2):
        for who in range(AT_FAULT):
            errors += await _one_more(store, who, acked[who])
    calls = shim.hitherto_calls()
    shim.hitherto_fail(0, 0, 0)
    for who in range(AT_FAULT):
        if await _one_more(store, who, acked[who]):
            raise AssertionError(f"call {k} failed, and the store does not recover")
    await store.close()
    return acked, calls, errors


async def _one_more(store: SQLiteStore, who: int, acked: list[int]) -> bool:
    """One more turn, on what is there; whether it was refused."""
    try:
        data = await store.get_data(BOT, (who,))
        log = [] if data is None else list(data["log"])
        await turn(store, who, log, (log or [-1])[-1] + 1, "x" * 3000)
    except StoreError:
        return True
    acked[:] = log
    return False


async def _look(path: Path, acked: list[list[int]]) -> list[str]:
    """What is wrong with a closed file: turns that are missing, or there without their events."""
    wrong = []
    async with SQLiteStore(path) as store:
        for who, log in enumerate(acked):
            document = await store.load(address(who))
            found = [] if document.record is None else codec.decode(document.record.fields)["log"]
            if found != log:
                wrong.append(f"conversation {who} keeps {found}, acknowledged were {log}")
            if any(f"e{number}" not in document.seen for number in found):
                wrong.append(f"conversation {who} keeps {found} and has seen {list(document.seen)}")
    return wrong


def main() -> None:
    """``record FOLDER LEVEL TURNS SEED`` or ``fail FOLDER ERRNO LASTING``."""
    warnings.simplefilter("ignore", StoreWarning)
    what, folder, *rest = sys.argv[1:]
    if what == "record":
        asyncio.run(record(Path(folder), rest[0], int(rest[1]), int(rest[2])))
    else:
        found = asyncio.run(fail(Path(folder), getattr(errno, rest[0]), int(rest[1])))
        with contextlib.suppress(BrokenPipeError):
            print(json.dumps(found))


if __name__ == "__main__":
    main()
