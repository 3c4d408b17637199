"""The stores that ``make chaos`` knows: how their servers are started, and how they die."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from hitherto.testing.chaos.plan import Fault
from servers.cluster import RedisCluster
from servers.postgres import PostgresServer
from servers.redis import RedisServer
from servers.sentinel import RedisSentinel

PATIENCE = "?timeout=2"


class Park(NamedTuple):
    """A store to harm, with what can be done to its servers; *lossy* ones may lose the newest commits."""

    url: str
    faults: list[Fault]
    lossy: bool = False


def blocking(name: str, work: Callable[[random.Random], Any], grace: float = 2.0) -> Fault:
    """A fault that waits in a thread."""
    return Fault(name, lambda run: asyncio.to_thread(work, run.luck), grace)


@contextmanager
def sqlite() -> Iterator[Park]:
    """A file, on a disk of its own that can be filled where we are allowed to make one."""
    with tempfile.TemporaryDirectory(prefix="hitherto-chaos-") as made, small_disk(Path(made)) as small:
        directory = Path(made)
        faults = [Fault("disk filled", lambda run: _filled(directory, run), 1.0)] if small else []
        yield Park(f"sqlite:///{directory}/chaos.db", faults)


@contextmanager
def small_disk(directory: Path) -> Iterator[bool]:
    """Let the directory be a file system of 256 MB in memory; whether that could be done."""
    made = (
        os.geteuid() == 0
        and not subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=256m", "tmpfs", str(directory)], capture_output=True
        ).returncode
    )
    try:
        yield made
    finally:
        if made:
            subprocess.run(["umount", "-l", str(directory)], check=True)


async def _filled(directory: Path, run: Any) -> None:
    """Nothing is left on the disk for a while."""
    ballast = directory / "ballast"
    with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(65536))
    try:
        await asyncio.sleep(run.luck.uniform(0.3, 1.0))
    finally:
        ballast.unlink()


@contextmanager
def redis() -> Iterator[Park]:
    """One server that syncs every write to disk."""
    with RedisServer(variant="aof") as server:

        def killed(luck: random.Random) -> None:
            server.kill()
            server.start()

        yield Park(f"{server.url}{PATIENCE}", 3 * [blocking("server killed", killed)])


@contextmanager
def postgres() -> Iterator[Park]:
    """One server whose commits wait for the disk."""
    with PostgresServer() as server:
        name = server.create_database()

        def killed(luck: random.Random) -> None:
            server.kill()
            server.start()

        def backends(luck: random.Random) -> None:
            server.kill_backends()
            server.wait_ready()

        def terminated(luck: random.Random) -> None:
            server.terminate_backends()

        faults = [
            *2 * [blocking("server killed", killed)],
            blocking("backends killed", backends),
            blocking("backends terminated", terminated),
        ]
        yield Park(f"{server.url_of(name)}{PATIENCE}", faults)


@contextmanager
def cluster() -> Iterator[Park]:
    """Three masters, each with a replica; what a master had not passed on when it died is lost."""
    with RedisCluster(replicas=1) as servers:

        def killed(luck: random.Random) -> None:
            servers.kill_master(luck.randrange(3))
            servers.wait_ok()
            servers.heal()

        yield Park(f"{servers.url}{PATIENCE}", [blocking("master killed", killed, 4.0)], lossy=True)


@contextmanager
def sentinel() -> Iterator[Park]:
    """A master, a replica and three sentinels."""
    with RedisSentinel() as servers:

        def killed(luck: random.Random) -> None:
            servers.wait_failover(servers.kill_master())
            servers.heal()

        yield Park(f"{servers.url}{PATIENCE}", [blocking("master killed", killed, 4.0)], lossy=True)


PARKS: dict[str, Callable[[], AbstractContextManager[Park]]] = {
    "sqlite": sqlite,
    "redis": redis,
    "postgres": postgres,
    "cluster": cluster,
    "sentinel": sentinel,
}
