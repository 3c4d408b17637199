"""Moving everything: `hitherto export` and `hitherto import` between every pair of stores, with real servers.

``python benchmarks/moving_bench.py [-n NUMBER] [FROM-TO ...]`` makes NUMBER conversations (100 000), records
with data, seen ids, waiting events and dead letters, then, for every pair of stores named
(``sqlite-postgres``; all nine by default): brings them into the first, exports them, imports that into the
second and exports again.  What comes out has to be what went in, line for line in any order.  With ``--kill``
both the export and the import of every pair are killed with SIGKILL half-way, and repeated.

Speed is lines per second of the whole command, start of Python included; memory is the peak of its process.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import msgspec

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from hitherto import codec
from hitherto.addresses import Address
from hitherto.cli import moving
from hitherto.document import Dead, Document, Entry
from hitherto.records import Stored

BOT = "moved"
STORES = ("sqlite", "redis", "postgres")
FLOWS = (("signup", "ask_name"), ("signup", "confirm"), ("order", "toppings"), (None, None))


class Ran(NamedTuple):
    """One command: how long it took and how much memory, and whether it was killed."""

    seconds: float
    megabytes: float
    killed: bool


# ----------------------------------------------------------------------------------------- conversations


def documents(number: int) -> Iterator[tuple[Address, Document]]:
    """Conversations as a bot leaves them, always the same."""
    chance, now = random.Random(7), 1_700_000_000.0
    for place in range(number):
        flow, state = FLOWS[place % len(FLOWS)]
        data = {
            "name": f"Person {place}",
            "step": place % 7,
            "cart": ["ham", "olives"],
            "big": 2**70,
            "é": "\x00😀",
        }
        seen = {f"id:{place}-{one}": now + one for one in range(4)}
        inbox = ()
        if place % 50 == 0:
            inbox = tuple(Entry(10 + one, f"w{place}-{one}", b'{"text":"wait"}', now) for one in range(2))
        dead = (Dead(5, f"d{place}", b'{"text":"bad"}', now, 5, "KeyError", now),) if place % 200 == 0 else ()
        yield (
            Address(BOT, "", (place, chance.randrange(10**9))),
            Document(
                epoch=place % 90 + 1, record=Stored(flow, state, 1, codec.encode(data), None), inbox=inbox,
                next_seq=20, seen=seen, dead=dead, touched=now,
            ),
        )  # fmt: skip


def write_source(path: Path, number: int) -> None:
    """An export of them."""
    with path.open("wb") as out:
        out.write(msgspec.json.encode({**moving._HEAD, "bot": BOT}) + b"\n")
        for address, document in documents(number):
            out.write(moving._line(address, document) + b"\n")


def digest(path: Path) -> tuple[int, str]:
    """How many lines, and a sum over them that no order changes."""
    total, number = 0, 0
    with path.open("rb") as source:
        source.readline()
        for line in source:
            total = (total + int.from_bytes(hashlib.blake2b(line, digest_size=16).digest())) % 2**128
            number += 1
    return number, f"{total:032x}"


# ----------------------------------------------------------------------------------------------- stores


class Places:
    """Empty stores: an SQLite file or a server of its own for each role, started when asked for."""

    def __init__(self, stack: ExitStack, folder: Path) -> None:
        self._stack, self._folder = stack, folder
        self._number = 0

    def empty(self, kind: str) -> tuple[str, Callable[[], None]]:
        """The URL of an empty store, and what throws it away."""
        self._number += 1
        if kind == "sqlite":
            path = self._folder / f"store{self._number}.db"
            return (
                f"sqlite:///{path}",
                lambda: [one.unlink() for one in self._folder.glob(f"{path.name}*")] and None,
            )
        if kind == "redis":
            from servers.redis import RedisServer

            server = RedisServer().start()
        else:
            from servers.postgres import PostgresServer

            server = PostgresServer().start()
        self._stack.callback(server.close)
        return server.url, server.close


# ----------------------------------------------------------------------------------------------- moving


def run(*words: str, kill_at: Callable[[], bool] | None = None) -> Ran:
    """One command of hitherto, in a process of its own."""
    began = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-m", "hitherto", *words], stderr=subprocess.DEVNULL)
    killed = False
    while kill_at is not None and process.poll() is None and not killed:
        if kill_at():
            process.send_signal(signal.SIGKILL)
            killed = True
        time.sleep(0.01)
    _, status, used = os.wait4(process.pid, 0) if process.returncode is None else (0, 0, None)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode and not killed:
        raise SystemExit(f"hitherto {' '.join(words[:1])} failed with {process.returncode}")
    return Ran(time.perf_counter() - began, 0.0 if used is None else used.ru_maxrss / 1024, killed)


def exported(url: str, path: Path, size: int, kill: bool) -> Ran:
    """Export a store to a file; killed once at half of it, when that is asked for, and gone on with."""
    words = ("export", "--store", url, "--bot", BOT, str(path))
    if kill:
        run(*words, kill_at=lambda: path.exists() and path.stat().st_size > size // 2)
        words = (*words[:-1], "--resume", words[-1])
    return run(*words)


def imported(url: str, path: Path, kill: bool, seconds: float = 0.0) -> Ran:
    """Import a file into a store; killed once after half the time it takes, and repeated."""
    words = ("import", "--store", url, "--bot", BOT, str(path))
    if kill:
        end = time.perf_counter() + max(seconds / 2, 0.8)
        run(*words, kill_at=lambda: time.perf_counter() > end)
    return run(*words)


def line(name: str, number: int, ran: Ran) -> str:
    return f"{name} {number / ran.seconds:8,.0f}/s {ran.megabytes:4.0f} MB"


def pair(places: Places, folder: Path, source: Path, number: int, one: str, other: str, kill: bool) -> bool:
    """Move everything from one store into another; whether all of it came out as it went in."""
    first, end_first = places.empty(one)
    second, end_second = places.empty(other)
    out, again = folder / "out.jsonl", folder / "again.jsonl"
    try:
        filled = imported(first, source, False)
        left = exported(first, out, source.stat().st_size, kill)
        came = imported(second, out, kill, filled.seconds)
        back = exported(second, again, source.stat().st_size, False)
        wanted = digest(source)
        same = digest(out) == digest(again) == wanted and wanted[0] == number
    finally:
        end_first()
        end_second()
        out.unlink(missing_ok=True)
        again.unlink(missing_ok=True)
    memory = max(ran.megabytes for ran in (filled, left, came, back))
    print(
        f"{one:>8} -> {other:<8} {line('export', number, left)}  {line('import', number, came)}  "
        f"peak {memory:.0f} MB  {'identical' if same else 'DIFFERENT'}",
        flush=True,
    )
    return same


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-n", type=int, default=100_000, metavar="NUMBER")
    parser.add_argument("--kill", action="store_true", help="kill every export and import once, half-way")
    parser.add_argument("pairs", nargs="*", metavar="FROM-TO")
    arguments = parser.parse_args()
    pairs = [tuple(text.split("-")) for text in arguments.pairs]
    pairs = pairs or [(one, other) for one in STORES for other in STORES]
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        source = folder / "source.jsonl"
        write_source(source, arguments.n)
        print(
            f"{arguments.n:,} conversations, {source.stat().st_size / 1e6:.0f} MB as JSON lines", flush=True
        )
        places = Places(stack, folder)
        good = [pair(places, folder, source, arguments.n, *one, arguments.kill) for one in pairs]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
