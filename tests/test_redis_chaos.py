"""SIGKILL of workers and of the server itself, under load, with a Redis that syncs every write.

``HITHERTO_SERVER_KILLS=50`` kills the server fifty times; every run does so eight times.
"""

from __future__ import annotations

import asyncio
import os

import pytest

from hitherto.testing.chaos.run import Plan, run
from hitherto.testing.chaos.worker import Settings

pytestmark = [pytest.mark.timeout(600), pytest.mark.filterwarnings("ignore::hitherto.errors.StoreWarning")]
SERVER_KILLS = int(os.environ.get("HITHERTO_SERVER_KILLS", "8"))


async def test_three_hundred_kills_of_workers_lose_nothing(redis_aof_url):
    report = await run(Settings(redis_aof_url), Plan(kills=300, pauses=5, between=0.02))
    print(report)
    assert report.violations == []
    assert report.kills == 300
    assert report.duplicates
    assert report.reordered
    assert report.recovered


async def test_kills_of_the_server_lose_nothing(redis_aof_server, redis_aof_url):
    async def fault() -> None:
        redis_aof_server.kill()
        await asyncio.to_thread(redis_aof_server.start)

    plan = Plan(kills=SERVER_KILLS, pauses=0, between=0.1)
    report = await run(Settings(redis_aof_url), plan, faults=[fault] * SERVER_KILLS)
    print(report)
    assert report.violations == []
    assert report.faults == SERVER_KILLS
    assert report.duplicates
