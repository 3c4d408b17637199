"""Chaos beyond workers: a bad network, servers that die and fail over, clocks that are wrong.

Full disks, and an SQLite file whose host's clock is set, are in what test_chaos_report runs of the command.
"""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from hitherto.testing.chaos.faults import of_the_clock, of_the_network
from hitherto.testing.chaos.plan import Fault, Plan
from hitherto.testing.chaos.run import run
from hitherto.testing.chaos.worker import Settings
from hitherto.testing.proxy import Proxy

pytestmark = [pytest.mark.timeout(180), pytest.mark.filterwarnings("ignore::hitherto.errors.StoreWarning")]

BRIEF = Plan(workers=3, conversations=8, kills=5, pauses=1, between=0.25, pause=0.9, duration=2.5, calm=0.2)


def only(faults, *names):
    chosen = [fault for fault in faults if fault.name in names]
    assert len(chosen) == len(names)
    return chosen


def losing(name, lose, lost):
    """Lose a request or a reply, five times; one whose connection ended before does not count."""

    async def five_times(run):
        wanted = lost() + 5
        while lost() < wanted:
            loss = lose(3)
            while loss.active:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.05)

    return Fault(name, five_times, 2.0)


def kept(report, faults):
    """Nothing was broken, and everything was done."""
    print(report)
    assert report.violations == []
    assert report.lost == 0
    assert report.named_faults.keys() == {fault.name for fault in faults}
    assert report.kills + report.pauses
    assert report.commits
    assert report.looks


async def test_redis_killed_behind_a_network_that_loses_replies(redis_aof_server, redis_aof_url):
    def killed():
        redis_aof_server.kill()
        redis_aof_server.start()

    async with Proxy(f"{redis_aof_url}?timeout=1") as proxy:
        faults = only(of_the_network(proxy), "black hole", "resets")
        faults += [
            losing("replies lost", proxy.lose_reply, lambda: proxy.counts.lost_replies),
            Fault("server killed", lambda run: asyncio.to_thread(killed)),
        ]
        report = await run(Settings(proxy.url, direct=redis_aof_url), BRIEF, faults=faults)
    kept(report, faults)


async def test_postgres_killed_behind_a_network_that_loses_requests(postgres_server, postgres_url):
    def killed():
        postgres_server.kill_backends()
        postgres_server.wait_ready()

    async with Proxy(f"{postgres_url}?timeout=1") as proxy:
        faults = [
            losing("replies lost", proxy.lose_reply, lambda: proxy.counts.lost_replies),
            losing("requests lost", proxy.lose_request, lambda: proxy.counts.lost_requests),
            Fault("backends killed", lambda run: asyncio.to_thread(killed)),
        ]
        report = await run(Settings(proxy.url, direct=postgres_url), BRIEF, faults=faults)
    kept(report, faults)


async def test_a_cluster_that_fails_over(redis_cluster, redis_cluster_url):
    def killed():
        redis_cluster.kill_master()
        redis_cluster.wait_ok()
        redis_cluster.heal()

    faults = [Fault("master killed", lambda run: asyncio.to_thread(killed), 4.0)]
    report = await run(Settings(f"{redis_cluster_url}?timeout=1"), replace(BRIEF, lossy=True), faults=faults)
    report.lost = 0  # what a master had not passed on when it died: Redis, and its documentation, may lose it
    kept(report, faults)


async def test_a_sentinel_that_fails_over(redis_sentinel, redis_sentinel_url):
    def killed():
        redis_sentinel.wait_failover(redis_sentinel.kill_master())
        redis_sentinel.heal()

    faults = [Fault("master killed", lambda run: asyncio.to_thread(killed), 4.0)]
    report = await run(Settings(f"{redis_sentinel_url}?timeout=1"), replace(BRIEF, lossy=True), faults=faults)
    report.lost = 0
    kept(report, faults)


async def test_clocks_that_jump_behind_a_server(redis_url):
    faults = of_the_clock(redis_url)
    report = await run(Settings(redis_url), BRIEF, faults=faults)
    kept(report, faults)
