"""``make bench``: hitherto beside its peers and the limits, in one run; results as JSON, a page and plots.

``ARGS=--quick`` takes two minutes and writes nothing into docs/; the whole takes about a quarter of an hour.
Everything is on loopback, on servers that the run starts itself; what is not there (Node) is left out.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib.metadata
import json
import os
import platform
import sqlite3
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from benchmarks import contended, limits, node_peer, ptb_persistence, report, scale
from benchmarks.measure import Rates, Way, rate
from benchmarks.ways import ways
from hitherto.testing.proxy import Proxy
from servers.postgres import PostgresServer
from servers.redis import RedisServer

ROOT = Path(__file__).parents[1]
PEERS = (
    "aiogram", "python-telegram-bot", "pyTelegramBotAPI", "aiogram-sqlite-storage", "chat-sdk",
    "aiogram-fsm-sqlitestorage", "redis", "hiredis", "asyncpg", "msgspec", "hitherto",
)  # fmt: skip


class Run:
    """One run: its servers, its folder, how long everything takes."""

    def __init__(
        self, quick: bool, folder: Path, redis: RedisServer, spare: RedisServer, postgres: PostgresServer
    ) -> None:
        self.seconds, self.rounds = (0.4, 3) if quick else (1.2, 5)
        self.many = 20_000 if quick else 1_000_000
        self.folder, self.redis, self.spare, self.postgres = folder, redis, spare, postgres
        self.node = node_peer.installed(Path(tempfile.gettempdir()) / "hitherto-bench-node")

    def database(self) -> str:
        """A new one."""
        return self.postgres.url_of(self.postgres.create_database())

    async def steps(self) -> dict[str, Any]:
        """The ordinary step, everybody in turn, at a hundred conversations and alone."""
        found: dict[str, dict[int, list[float]]] = {}
        all_ways = ways(self.folder, self.redis.url, self.database())
        async with contextlib.AsyncExitStack() as stack:
            steps = {way.name: await stack.enter_async_context(way.opened()) for way in all_ways}
            others = await self._node_rates(stack)
            for name in [*steps, *others]:
                found[name] = {1: [], 100: []}
            for step in steps.values():
                await rate(step, 100, self.seconds / 3)
            for _ in range(self.rounds):
                for name, step in steps.items():
                    found[name][100].append(await rate(step, 100, self.seconds))
                    found[name][1].append(await rate(step, 1, self.seconds / 3))
                for name, ask in others.items():
                    found[name][100].append(await ask(100))
                    found[name][1].append(await ask(1))
                await self._limits(found)
        places = {way.name: way for way in all_ways}
        return {name: self._said(name, rounds, places) for name, rounds in found.items()}

    async def _node_rates(self, stack: contextlib.AsyncExitStack) -> dict[str, Any]:
        if self.node is None:
            return {}
        redis = node_peer.chat(self.node, "redis", self.redis.url, self.seconds)
        postgres = node_peer.chat(self.node, "postgres", self.database(), self.seconds)
        return {
            "Chat SDK (Node), Redis": await stack.enter_async_context(redis),
            "Chat SDK (Node), PostgreSQL": await stack.enter_async_context(postgres),
        }

    async def _limits(self, found: dict[str, dict[int, list[float]]]) -> None:
        """One round of each limit, on a file, a server and a database of their own."""
        bare = {
            "limit, SQLite": limits.bare_sqlite(self.folder / "bare.db", self.seconds),
            "limit, Redis": await limits.bare_redis(self.spare.url, self.seconds),
            "limit, PostgreSQL": await limits.bare_postgres(self.database(), self.seconds),
        }
        for name, found_rate in bare.items():
            found.setdefault(name, {1: [], 100: []})[100].append(found_rate)

    def _said(self, name: str, rounds: dict[int, list[float]], places: dict[str, Way]) -> dict[str, Any]:
        way = places.get(name)
        place = way.place if way else _place_in(name)
        return {
            "place": place,
            "peer": way.peer if way else not name.startswith("limit"),
            "note": way.note if way else "",
            **{str(number): Rates(values).said() for number, values in rounds.items() if values},
        }

    async def crowds(self) -> dict[str, Any]:
        """Twenty messages of one person at once."""
        from aiogram.fsm.storage.redis import RedisEventIsolation, RedisStorage
        from redis.asyncio import Redis

        urls = {
            "hitherto, memory": "memory://",
            "hitherto, SQLite": f"sqlite:///{self.folder}/crowd.db",
            "hitherto, Redis": self.redis.url,
            "hitherto, PostgreSQL": self.database(),
        }
        found = {}
        for name, url in urls.items():
            found[name] = await contended.best_of(
                lambda number, url=url: contended.on_hitherto(url, f"t{number}"), self.rounds
            )
        client = Redis.from_url(self.redis.url)
        storage, isolation = RedisStorage(client), RedisEventIsolation(client)
        found["aiogram, Redis"] = await contended.best_of(
            lambda number: contended.on_aiogram(storage, isolation, number), 3
        )
        await client.aclose()
        return found

    async def counts(self) -> dict[str, Any]:
        """Round trips of a hundred ordinary steps, one after the other, counted at the socket."""
        found: dict[str, Any] = {}
        async with Proxy(self.redis.url) as redis, Proxy(self.database()) as postgres:
            for way in ways(self.folder, redis.url, postgres.url):
                if way.place not in ("redis", "postgres"):
                    continue
                proxy = redis if way.place == "redis" else postgres
                async with way.opened() as step:
                    for number in range(20):
                        await step(number % 10, time.time_ns())
                    proxy.reset_counts()
                    for number in range(100):
                        await step(number % 10, time.time_ns())
                    found[way.name] = proxy.counts.round_trips / 100
        return found

    async def persistence(self) -> dict[str, Any]:
        """A changed user of python-telegram-bot."""
        return await ptb_persistence.measure(self.many // 10, self.rounds)

    async def growths(self) -> dict[str, Any]:
        """A thousand conversations, and very many."""
        urls = {
            "SQLite": (f"sqlite:///{self.folder}/few.db", f"sqlite:///{self.folder}/many.db"),
            "Redis": (f"{self.redis.url}?prefix=few", f"{self.redis.url}?prefix=many"),
            "PostgreSQL": (self.database(), self.database()),
        }
        return {
            name: await scale.growth(*pair, (1000, self.many), self.seconds, self.rounds)
            for name, pair in urls.items()
        }

    async def scales(self) -> dict[str, Any]:
        """At once, sizes and processes, on every store that more than one process can share."""
        urls = {
            "SQLite": f"sqlite:///{self.folder}/scale.db",
            "Redis": f"{self.redis.url}?prefix=scale",
            "PostgreSQL": self.database(),
        }
        found = {}
        for name, url in urls.items():
            found[name] = {
                "at_once": await scale.at_once(url, self.seconds),
                "bytes": await scale.sizes(url, self.seconds),
                "processes": await asyncio.to_thread(scale.processes, url, self.seconds * 2),
            }
        return found


def _place_in(name: str) -> str:
    return {"SQLite": "sqlite", "Redis": "redis", "PostgreSQL": "postgres"}[name.rpartition(", ")[2]]


def machine(run: Run) -> dict[str, Any]:
    """Where and with what this was measured."""
    found = {name: importlib.metadata.version(name) for name in PEERS}
    found |= node_peer.versions(run.node) if run.node else {}
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "redis": str(run.redis.flavour),
        "postgresql": str(run.postgres.flavour),
        "packages": found,
        "fsyncs_per_second": round(limits.fsyncs(run.folder, 1.0)),
        "load_before": os.getloadavg()[0],
    }


def _processor() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(": ")[2]
    return platform.processor() or "unknown"


async def measured(run: Run, only: set[str]) -> dict[str, Any]:
    """Everything, or what is named."""
    parts = {
        "counts": run.counts,
        "steps": run.steps,
        "crowds": run.crowds,
        "scales": run.scales,
        "growths": run.growths,
        "persistence": run.persistence,
    }
    found: dict[str, Any] = {"machine": machine(run)}
    for name, part in parts.items():
        if not only or name in only:
            began = time.monotonic()
            found[name] = await part()
            print(f"{name}: {time.monotonic() - began:.0f} s", flush=True)
    if not only or "idle" in only:
        found["idle"] = scale.idle(min(run.many, 200_000))
    return found


def main() -> int:
    """Measure, write, print the bars."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="short rounds, 20 000 conversations")
    parser.add_argument("--only", action="append", default=[], metavar="PART")
    parser.add_argument("--json", type=Path, help="where the results go (docs/benchmarks.json)")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    with (
        tempfile.TemporaryDirectory() as folder,
        RedisServer() as redis,
        RedisServer() as spare,
        PostgresServer() as postgres,
    ):
        run = Run(given.quick, Path(folder), redis, spare, postgres)
        found = asyncio.run(measured(run, set(given.only)))
    docs = None if given.quick or given.only else ROOT / "docs"
    path = given.json or (docs / "benchmarks.json" if docs else None)
    if path is not None:
        path.write_text(json.dumps(found, indent=1, default=str) + "\n")
    if docs is not None:
        report.write(found, docs)
    print(report.text(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
