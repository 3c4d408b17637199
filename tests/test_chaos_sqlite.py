"""SIGKILL and SIGSTOP of workers on one SQLite file, and the control that proves the harness."""

from __future__ import annotations

import pytest

from hitherto.testing.chaos.run import Plan, run
from hitherto.testing.chaos.worker import Settings

pytestmark = [pytest.mark.timeout(180), pytest.mark.filterwarnings("ignore::hitherto.errors.StoreWarning")]


async def test_three_hundred_kills_lose_nothing(tmp_path):
    report = await run(Settings(f"sqlite:///{tmp_path}/chaos.db"), Plan(kills=300, pauses=10))
    print(report)
    assert report.violations == []
    assert report.kills == 300
    assert report.duplicates
    assert report.reordered
    assert report.recovered


PAUSED = Plan(workers=6, conversations=30, kills=20, pauses=40, between=0.08, pause=0.6)


async def test_pauses_longer_than_the_lease_are_fenced(tmp_path):
    report = await run(Settings(f"sqlite:///{tmp_path}/chaos.db", lease=0.25, slowest=0.04), PAUSED)
    print(report)
    assert report.violations == []
    assert report.fenced


@pytest.mark.parametrize("spoil", ["no-epoch-check", "seen-before-inbox", "nothing-is-seen"])
async def test_a_spoiled_protocol_is_found(tmp_path, spoil):
    settings = Settings(f"sqlite:///{tmp_path}/chaos.db", spoil=spoil, lease=0.25, slowest=0.04)
    report = await run(settings, PAUSED)
    print(report, report.violations[:3])
    assert report.violations
