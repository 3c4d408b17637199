"""The checker of histories on small ones made by hand, on thousands that were spoiled, and on every store."""

from __future__ import annotations

import asyncio

import pytest

from hitherto.stores.memory import MemoryStore
from hitherto.testing.clock import START
from hitherto.testing.histories import Workload, judge, record
from hitherto.testing.linearizability import UNKNOWN, Call, check
from recording import PLACES, frozen, self_test
from recording import check as recorded

pytestmark = [pytest.mark.timeout(300), pytest.mark.filterwarnings("ignore::hitherto.errors.StoreWarning")]


def put(value, invoked, returned):
    """A register is written."""
    lost = UNKNOWN if returned is None else None
    return Call(f"put {value}", invoked, returned, lambda state: (value, None), lost)


def get(value, invoked, returned):
    """A register is read."""
    return Call(f"get {value}", invoked, returned, lambda state: (state, state), value, True)


def removed(found, invoked, returned):
    """A register is emptied; it says whether there was anything."""
    return Call("removed", invoked, returned, lambda state: (0, state != 0), found)


def judged(*calls, limit=10_000):
    return check(calls, 0, lambda state: state, limit).outcome


GOOD = {
    "nothing at all": (),
    "one after the other": (put(1, 0, 1), get(1, 2, 3), put(2, 4, 5), get(2, 6, 7)),
    "read old while it is written": (put(1, 0, 5), get(0, 1, 2), get(1, 6, 7)),
    "read new while it is written": (put(1, 0, 5), get(1, 1, 2), get(1, 6, 7)),
    "two writers, the first wins": (put(1, 0, 5), put(2, 1, 6), get(2, 7, 8), get(2, 9, 10)),
    "two writers, the other wins": (put(1, 0, 5), put(2, 1, 6), get(1, 7, 8), get(1, 9, 10)),
    "a lost one happened": (put(1, 0, None), get(0, 1, 2), get(1, 3, 4)),
    "a lost one never happened": (put(1, 0, None), get(0, 1, 2), get(0, 3, 4)),
    "a lost one happened late": (put(1, 0, None), put(2, 1, 2), get(2, 3, 4), get(1, 5, 6)),
    "what removes nothing now may remove later": (put(1, 1, 4), removed(True, 0, 6), get(0, 7, 8)),
    "it may also have been first": (put(1, 1, 4), removed(False, 0, 6), get(1, 7, 8)),
}
BAD = {
    "an old value": (put(1, 0, 1), get(0, 2, 3)),
    "a value of nobody": (put(1, 0, 1), get(7, 2, 3)),
    "back in time": (put(1, 0, 9), get(1, 1, 2), get(0, 3, 4)),
    "two readers disagree": (put(1, 0, 5), put(2, 1, 6), get(2, 7, 8), get(1, 9, 10)),
    "read before it was asked for": (get(1, 0, 1), put(1, 2, 3)),
    "a lost one happened twice": (put(1, 0, None), put(2, 1, 2), get(1, 3, 4), put(3, 5, 6), get(1, 7, 8)),
    "removed twice": (put(1, 0, 1), removed(True, 2, 3), removed(True, 4, 5)),
}


@pytest.mark.parametrize("name", GOOD)
def test_a_good_history(name):
    assert judged(*GOOD[name]) == "linearizable"


@pytest.mark.parametrize("name", BAD)
def test_a_bad_history(name):
    assert judged(*BAD[name]) == "violation"


def test_the_call_that_nobody_can_explain_is_named():
    assert check(BAD["back in time"], 0, lambda state: state).at == "get 0"


def test_a_search_that_grows_too_large_says_so():
    many = [put(number, 0, 100) for number in range(1, 12)]
    assert judged(*many, get(99, 101, 102), limit=500) == "undecided"


@pytest.mark.parametrize("exact", [True, False], ids=["whole", "essence"])
async def test_spoiled_histories_are_rejected_and_good_ones_are_not(exact):
    rejected, passed, kinds = await self_test(500, seed=11, exact=exact)
    assert rejected == 0
    assert passed <= 5
    assert len(kinds) == 5


@pytest.mark.parametrize("place", PLACES)
async def test_every_store_under_faults(place, say):
    findings = await recorded(place, 3000, seed=20_261_119, every=0.1)
    say(findings)
    assert findings.examples == []
    assert findings.operations >= 3000
    assert findings.unknown
    assert findings.faults >= 3 or place == "memory"


class Torn(MemoryStore):
    """Reads, lets others go first, and writes."""

    async def update_data(self, bot, key, new):
        before = await self.get_data(bot, key) or {}
        await asyncio.sleep(0)
        await self.set_data(bot, key, {**before, **new})
        return {**before, **new}


async def test_a_store_that_is_not_atomic_is_found():
    async with Torn(clock=frozen) as store:
        histories = await record([store], "bot", START, Workload(conversations=20), seed=5)
    assert any(judge(history).outcome == "violation" for history in histories)
