"""Histories of real stores under faults, each of them checked: ``make histories``.

``--store`` chooses (all by default), ``--operations`` how many for each; the seed is printed and repeats the
choices, though not what servers and the network make of them. Before that the checker is tried on histories
that are good and on histories that were spoiled.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import sqlite3
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from hitherto.errors import StoreWarning
from hitherto.stores.base import Store
from hitherto.stores.memory import MemoryStore
from hitherto.stores.postgres import PostgresStore
from hitherto.stores.redis import RedisStore
from hitherto.stores.sqlite import SQLiteStore
from hitherto.testing.clock import START
from hitherto.testing.histories import Workload, judge, record, spoiled
from hitherto.testing.linearizability import UNKNOWN
from hitherto.testing.proxy import Proxy
from servers.cluster import RedisCluster
from servers.postgres import PostgresServer
from servers.process import ServerProcess
from servers.redis import RedisServer

Fault = Callable[[], Awaitable[None]]


@dataclass
class Findings:
    """What came out."""

    operations: int = 0
    unknown: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    faults: int = 0
    examples: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        found = ", ".join(f"{number} {name}" for name, number in sorted(self.outcomes.items()))
        return (
            f"{self.operations} operations ({self.unknown} of unknown outcome), {self.faults} faults: {found}"
        )


def frozen() -> float:
    """Time stands still."""
    return START


@asynccontextmanager
async def in_memory() -> AsyncIterator[tuple[list[Store], list[Fault]]]:
    """One store, nothing to break."""
    async with MemoryStore(clock=frozen) as store:
        yield [store], []


INTRUDER = """
    import sqlite3, sys, time
    connection = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=30)
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("DELETE FROM conversation")
    print("in", flush=True)
    time.sleep(60)
"""


@asynccontextmanager
async def on_sqlite() -> AsyncIterator[tuple[list[Store], list[Fault]]]:
    """Two stores on one file; another process deletes everything and is killed before it commits."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "histories.db"

        async def intrude() -> None:
            script = "\n".join(line.removeprefix("    ") for line in INTRUDER.splitlines())
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-c", script, path, stdout=subprocess.PIPE
            )
            assert process.stdout is not None
            try:
                await process.stdout.readline()
                await asyncio.sleep(0.02)
            finally:
                process.kill()
                await process.communicate()

        async def hold() -> None:
            """Longer than the stores wait: what they want to write fails."""
            with contextlib.closing(sqlite3.connect(path, isolation_level=None, timeout=5)) as connection:
                with contextlib.suppress(sqlite3.OperationalError):
                    connection.execute("BEGIN IMMEDIATE")
                await asyncio.sleep(0.15)

        async with (
            SQLiteStore(path, clock=frozen, timeout=0.1) as one,
            SQLiteStore(path, clock=frozen, timeout=5.0) as two,
        ):
            yield [one, two], [intrude, hold]


@asynccontextmanager
async def through_proxies(
    url: str, store_at: Callable[[str], Store], server: ServerProcess
) -> AsyncIterator[tuple[list[Store], list[Fault]]]:
    """Two stores, each through a network that loses replies, cuts and slices; and the server is killed."""
    async with AsyncExitStack() as stack:
        proxies = [await stack.enter_async_context(Proxy(url, seed=n)) for n in range(2)]
        stores = [await stack.enter_async_context(store_at(proxy.url)) for proxy in proxies]
        chance = random.Random(7)
        proxies[1].slice = 700

        async def lose() -> None:
            chance.choice(proxies).lose_reply(chance.randrange(1, 20))

        async def forget() -> None:
            chance.choice(proxies).lose_request(chance.randrange(1, 20))

        async def cut() -> None:
            chance.choice(proxies).reset()

        async def kill() -> None:
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.start)

        yield stores, [lose, lose, lose, lose, forget, cut, kill]


@asynccontextmanager
async def on_redis() -> AsyncIterator[tuple[list[Store], list[Fault]]]:
    """A Redis that syncs every write, killed and restarted."""
    server = RedisServer(variant="aof").start()
    try:
        async with through_proxies(
            server.url, lambda url: RedisStore(url, clock=frozen, timeout=20.0), server
        ) as setting:
            yield setting
    finally:
        server.close()


@asynccontextmanager
async def on_cluster() -> AsyncIterator[tuple[list[Store], list[Fault]]]:
    """Two stores over three masters; slots have no time to move, connections are cut."""
    cluster = RedisCluster(replicas=0).start()
    try:
        async with (
            RedisStore(cluster.url, clock=frozen, timeout=20.0) as one,
            RedisStore(cluster.url, clock=frozen, timeout=20.0) as two,
        ):

            async def cut() -> None:
                for node in cluster.nodes:
                    node.command("CLIENT", "KILL", "TYPE", "normal")

            yield [one, two], [cut]
    finally:
        cluster.close()


@asynccontextmanager
async def on_postgres() -> AsyncIterator[tuple[list[Store], list[Fault]]]:
    """A PostgreSQL whose backends are killed."""
    server = PostgresServer().start()
    try:
        url = server.url_of(server.create_database())
        async with through_proxies(
            url, lambda url: PostgresStore(url, clock=frozen, timeout=20.0), server
        ) as (stores, faults):

            async def kill() -> None:
                await asyncio.to_thread(server.kill_backends, 1)
                await asyncio.to_thread(server.wait_ready)

            yield stores, [*faults[:-1], kill]
    finally:
        server.close()


PLACES = {
    "memory": in_memory,
    "sqlite": on_sqlite,
    "redis": on_redis,
    "cluster": on_cluster,
    "postgres": on_postgres,
}
ROUND = Workload(conversations=20, clients=5, calls=10, at_once=20)


async def check(place: str, operations: int, seed: int, every: float = 0.3) -> Findings:
    """Record so many operations under faults, and check them."""
    chance, findings = random.Random(seed), Findings()
    async with PLACES[place]() as (stores, faults):
        workload = ROUND._replace(exact=place in ("memory", "sqlite"))

        async def harm() -> None:
            while faults:
                await asyncio.sleep(chance.random() * 2 * every)
                await chance.choice(faults)()
                findings.faults += 1

        harming = asyncio.create_task(harm())
        number = 0
        while findings.operations < operations or (faults and findings.faults < 3):
            number += 1
            histories = await record(stores, f"bot{number}", START, workload, chance.randrange(2**32))
            for history in histories:
                _note(findings, history)
            if harming.done():
                harming.result()
        harming.cancel()
        await asyncio.gather(harming, return_exceptions=True)
    return findings


def _note(findings: Findings, history: list) -> None:
    verdict = judge(history)
    findings.operations += len(history)
    findings.unknown += sum(call.answer is UNKNOWN for call in history)
    findings.outcomes[verdict.outcome] += 1
    if not verdict:
        calls = "\n".join(f"  {c.invoked}-{c.returned} {c.what}: {c.answer}" for c in history)
        findings.examples.append(f"{verdict}\n{calls}")


async def self_test(number: int, seed: int, exact: bool = True) -> tuple[int, int, Counter[str]]:
    """How many good histories were rejected, how many spoiled ones were not, and how many there were of each
    kind.
    """
    chance, rejected, passed, kinds = random.Random(seed), 0, 0, Counter[str]()
    tried = 0
    while tried < number:
        async with MemoryStore(clock=frozen) as store:
            small = Workload(conversations=100, clients=4, calls=6, exact=exact)
            histories = await record([store], "bot", START, small, chance.randrange(2**32))
        for history in histories:
            wrong = spoiled(history, chance)
            if wrong is not None and tried < number:
                tried += 1
                kinds[wrong[0]] += 1
                rejected += not judge(history)
                passed += bool(judge(wrong[1]))
    return rejected, passed, kinds


def main() -> int:
    """Try the checker, then every store; what was found, and 1 if anything was."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--store", choices=tuple(PLACES), action="append")
    parser.add_argument("--operations", type=int, default=200_000)
    parser.add_argument("--spoiled", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    given = parser.parse_args()
    warnings.simplefilter("ignore", StoreWarning)
    print(f"seed {given.seed}")
    bad = False
    for exact in (True, False):
        rejected, passed, kinds = asyncio.run(self_test(given.spoiled, given.seed, exact))
        print(
            f"self-test ({'whole answers' if exact else 'essence of answers'}): "
            f"{rejected} of {given.spoiled} good ones rejected; "
            f"{given.spoiled - passed} of {given.spoiled} spoiled ones rejected ({dict(kinds)})"
        )
        bad |= rejected > 0 or passed > given.spoiled * 0.01
    for place in given.store or PLACES:
        began = time.monotonic()
        findings = asyncio.run(check(place, given.operations, given.seed))
        print(f"{place}: {findings}, {time.monotonic() - began:.0f} s", flush=True)
        for example in findings.examples[:2]:
            print(example)
        bad |= bool(findings.examples)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
