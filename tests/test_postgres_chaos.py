"""SIGKILL of workers, and of backends of PostgreSQL, under load: nothing lost, nothing twice, in order."""

from __future__ import annotations

import asyncio
import os
import time

import pytest

from hitherto.testing.chaos.run import Plan, run
from hitherto.testing.chaos.worker import Settings
from servers.postgres import PostgresServer
from servers.process import wait_until

WORKERS = int(os.environ.get("HITHERTO_POSTGRES_KILLS", "60"))
BACKENDS = int(os.environ.get("HITHERTO_BACKEND_KILLS", "4"))

pytestmark = [pytest.mark.filterwarnings("ignore::hitherto.errors.StoreWarning")]


@pytest.mark.timeout(max(180, 2 * WORKERS))
async def test_killed_workers_lose_nothing(postgres_url):
    plan = Plan(workers=4, kills=WORKERS, between=0.05, ready=True)
    report = await run(Settings(f"{postgres_url}?timeout=5"), plan)
    print(report)
    assert report.violations == []
    assert report.kills == WORKERS
    assert report.recovered
    assert report.duplicates
    assert report.reordered


@pytest.mark.timeout(max(180, 12 * BACKENDS))
async def test_killed_backends_lose_nothing():
    """SIGKILL of one makes the server end all the others and recover; half of the faults only end them."""
    with PostgresServer() as server:
        url = server.url_of(server.create_database())

        def attended():
            wait_until(server.backends, "a worker has come back")
            time.sleep(0.5)

        async def kill():
            await asyncio.to_thread(attended)
            killed.append(await asyncio.to_thread(server.kill_backends, 1))
            await asyncio.to_thread(server.wait_ready)

        async def terminate():
            await asyncio.to_thread(attended)
            terminated.append(await asyncio.to_thread(server.terminate_backends))

        killed, terminated = [], []
        faults = [kill, terminate] * BACKENDS
        plan = Plan(workers=3, kills=BACKENDS, between=0.2)
        report = await run(Settings(f"{url}?timeout=5", deadline=60.0), plan, faults=faults)
        print(report, killed, terminated)
        assert report.violations == []
        assert report.faults == 2 * BACKENDS
        assert sum(killed) >= BACKENDS * 0.6
        assert sum(terminated) >= BACKENDS * 0.6
        assert server.log.count("was terminated by signal 9") >= sum(killed)
        assert report.commits
