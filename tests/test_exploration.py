"""The protocol, explored completely in small worlds; test_spoiled_protocols shows what this would find."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from explore_protocol import Budget, Explorer, Setting
from hitherto.overlap import Burst, Reject
from hitherto.protocol import Terms

ENDLESS = Terms(max_attempts=1_000_000)
IN_ORDER = Terms(max_attempts=1_000_000, retry_in_order=True)

WORLDS = {
    "3 workers, 3 events, 2 crashes, 2 lease ends": Setting(),
    "given back, forced": Setting(budget=Budget(2, 2, 1, 1)),
    "a handler fails": Setting(budget=Budget(2, 2, 0, 1, 1)),
    "two handlers fail, retried in order": Setting(budget=Budget(2, 2, 0, 0, 2), terms=IN_ORDER),
    "a reply is lost": Setting(budget=Budget(2, 2, 0, 0, 0, 1)),
    "everything once": Setting(events=2, budget=Budget(1, 1, 1, 1, 1, 1)),
    "rejected while busy": Setting(budget=Budget(2, 2, 1, 1), policy=Reject()),
    "folded in bursts": Setting(budget=Budget(2, 2, 1, 1), policy=Burst(0)),
}


@pytest.mark.parametrize("name", WORLDS)
def test_no_interleaving_breaks_the_promise(name: str, say: Callable[[object], None]) -> None:
    report = Explorer(WORLDS[name]).run()
    say(report)
    assert report.states > 500
    assert report.at_rest > 10


@pytest.mark.parametrize(
    "setting", [Setting(), Setting(2, 3, Budget(1, 1, 1, 1)), Setting(2, 3, Budget(1, 1, 0, 0, 1, 1))]
)
def test_the_reduction_leaves_nothing_out(setting: Setting, say: Callable[[object], None]) -> None:
    """With workers that have names and epochs as they are, the search meets the states of the reduced one."""
    reduced, plain = Explorer(setting).run(), Explorer(setting, canonical=False).run()
    say(f"nothing reduced: {plain}")
    assert plain.states > reduced.states
    assert plain.reduced == reduced.states
