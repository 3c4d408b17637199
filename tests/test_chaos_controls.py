"""The harness on what others do: nothing is found while nobody dies, something when workers die and pause.

If it found nothing there, that it finds nothing here would mean nothing.
"""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from hitherto.testing.chaos.plan import Plan
from hitherto.testing.chaos.run import run
from hitherto.testing.chaos.worker import Settings

pytestmark = [pytest.mark.timeout(180)]

# no duplicates, nothing out of order: what is found is the doing of kills and pauses alone
HARMED = Plan(conversations=6, duplicate=0, reorder=0, between=0.2, pause=1.5, ready=True)
CALM = replace(HARMED, workers=1, kills=0, pauses=1, pause=0.0, patience=60.0)

PRELOAD = ("aiogram.fsm.storage.redis", "telegram.ext")
PEERS = {
    "AiogramRedis": replace(HARMED, workers=2, kills=1, pauses=6),
    "Pickled": replace(HARMED, workers=1, kills=6, pauses=1),
    "MarkLockPop": replace(HARMED, workers=2, kills=5, pauses=3),
}


@pytest.mark.parametrize("peer", PEERS)
async def test_what_others_lose_is_found(peer, redis_url, tmp_path):
    url = f"{tmp_path}/pickle" if peer == "Pickled" else redis_url
    settings = Settings(url, subject=f"chaos.peers:{peer}", slowest=0.03, preload=PRELOAD)
    calm = await run(replace(settings, lease=60.0), CALM)
    assert calm.violations == []
    assert calm.events
    another = f"{url}2" if peer == "Pickled" else f"{url[:-1]}1"
    harmed = await run(replace(settings, url=another), PEERS[peer])
    print(peer, harmed, harmed.violations[:3])
    assert harmed.violations
