"""Random operations on two SQLite stores that share a file, and on a MemoryStore: never a difference.

The thresholds that decide where things are kept in the file are made tiny, so that every way is taken.
"""

from __future__ import annotations

import asyncio
import random

import pytest

from hitherto.addresses import Address, encode
from hitherto.document import Claim, Document, Event, Terms
from hitherto.overlap import Burst, Concurrent, Debounce, Queue, Reject
from hitherto.records import Patch, Record
from hitherto.stores.memory import MemoryStore
from hitherto.stores.sqlite import SQLiteStore, changes
from hitherto.testing.clock import ManualClock

BOT = "bot"
KINDS = ("all", "record", "due", "pending", "lease", "dead", "thread")
KEYS = ((1,), ("a/b", 2), "x")
STEPS = 60


@pytest.fixture
def tiny(monkeypatch):
    """Spill after a few ids, put payloads beside the row at a few bytes, trim at once."""
    for name, value in (("LONGEST_TAIL", 4), ("SPILL", 2), ("INLINE_BYTES", 24), ("_TRIM", 3)):
        monkeypatch.setattr(changes, name, value)


class Machine:
    """Draws operations and gives each to the model and to one of the stores."""

    def __init__(self, seed, clock, model, stores):
        self.random, self.clock, self.model, self.stores = random.Random(seed), clock, model, stores
        self.claims = [(KEYS[0], Claim(1, (1,)))]
        self.events, self.ops = 0, 0

    def terms(self):
        pick = self.random.choice
        return Terms(
            lease=30.0, max_attempts=pick([1, 3]), seen_limit=pick([1, 6, 9, 1000, 1000]),
            seen_age=pick([50.0, 400.0, 400.0]), ops_limit=3, dead_limit=pick([1, 3, 100]),
            record_ttl=pick([None, None, 300.0]), tombstone=200.0, retry_in_order=pick([False, True]),
        )  # fmt: skip

    def event(self):
        if self.random.random() < 0.3 and self.events:
            number = self.random.randrange(max(self.events - 12, 0), self.events)
        else:
            number = self.events = self.events + 1
        name = None if self.random.random() < 0.1 else f"e{number}"
        return Event(name, b'{"n":%d}' % number + b" " * self.random.choice([0, 5, 40]))

    def op(self):
        self.ops += 1
        return self.random.choice([None, f"op{self.ops}", f"op{max(self.ops - 2, 0)}"])

    def patch(self):
        draw = self.random
        return Patch(
            set={draw.choice("abc"): b"%d" % draw.randrange(9)} if draw.random() < 0.7 else {},
            removed=("b",) if draw.random() < 0.2 else (),
            moved=draw.random() < 0.5, flow=draw.choice([None, "f", "g"]), state=draw.choice([None, "s", "t"]),
            version=draw.choice([1, 2]), cleared=draw.random() < 0.1,
        )  # fmt: skip

    def draw(self):
        """One operation: its name, its arguments, its options."""
        draw, terms = self.random, self.terms()
        key, claim = draw.choice(self.claims[-6:])
        held, at = Address(BOT, "", key), Address(BOT, "", draw.choice(KEYS))
        overlap = draw.choice(
            [Queue(), Queue(), Queue(2, "drop_oldest", 40.0), Queue(1, "drop_newest"), Reject(), Debounce(5.0),
             Burst(0.0), Burst(4.0), Burst(4.0, gather=True), Concurrent(2)]
        )  # fmt: skip
        settled = {
            "patch": self.patch(), "verdict": draw.choice(["done", "done", "done", "retry", "dead"]),
            "delay": draw.choice([0.0, 10.0]), "error": draw.choice(["", "ValueError: no"]),
            "keep": draw.random() < 0.8,
        }  # fmt: skip
        number = draw.randrange(1, max(self.events, 2))
        choices = [
            *[("accept", (at, self.event(), overlap, "me", self.op(), terms), {})] * 8,
            *[("settle", (held, claim, self.op(), terms), settled)] * 8,
            ("take_over", (at, "you", self.op(), terms), {}),
            ("acquire", (at, "you", self.op(), terms), {}),
            ("renew", ([(held, claim), (at, claim)], terms), {}),
            ("release", (held, claim, self.op(), terms), {}),
            ("force_release", (at, self.op(), terms), {}),
            ("retry_dead", (at, number, self.op(), terms), {}),
            ("drop_dead", (at, number, self.op(), terms), {}),
            ("update_data", (BOT, at.key, {draw.choice("abcd"): [draw.random()]}), {}),
            ("set_state", (BOT, at.key, Record("f", draw.choice(["s", None]), {"a": "\x00é"}, 3)), {}),
            ("set_data", (BOT, at.key, {"z": 10**30}), {}),
            ("clear", (BOT, at.key), {}),
            ("get_state", (BOT, at.key), {}),
            ("load", (at,), {}),
            ("write", (Address(BOT, "thread", at.key), lambda _: None), {}),
            ("write", (Address(BOT, "thread", at.key), lambda stored: stored or changed), {}),
        ]
        return draw.choice(choices if draw.random() > 0.02 else [("forget", (at,), {})])

    def note(self, key, answer):
        grant = getattr(answer, "grant", None)
        if grant is not None:
            self.claims.append((key, grant.claim))

    async def step(self):
        """A few operations at the same moment, in the same order."""
        if self.random.random() < 0.4:
            self.clock.advance(self.random.choice([1.0, 7.0, 31.0, 120.0]))
        drawn = [self.draw() for _ in range(self.random.choice([1, 1, 1, 2, 5]))]
        store = self.random.choice(self.stores)
        got = await asyncio.gather(*[getattr(store, name)(*args, **more) for name, args, more in drawn])
        for (name, args, more), answer in zip(drawn, got, strict=True):
            expected = await getattr(self.model, name)(*args, **more)
            assert seen_in_order(answer) == seen_in_order(expected), name
            if name in ("accept", "settle", "take_over", "acquire"):
                self.note(args[0].key, expected)
        terms = self.terms()
        if self.random.random() < 0.1:
            assert await store.expire(BOT, 1000, terms) == await self.model.expire(BOT, 1000, terms)
        await self.compare(self.random.choice(self.stores))

    async def compare(self, store):
        for realm in ("", "thread"):
            for key in KEYS:
                address = Address(BOT, realm, key)
                assert seen_in_order(await store.load(address)) == seen_in_order(
                    await self.model.load(address)
                )
        kind = self.random.choice(KINDS)
        listed = [encode(address) async for address in store.scan(BOT, kind)]
        assert len(listed) == len(set(listed))
        assert set(listed) == {encode(address) async for address in self.model.scan(BOT, kind)}, kind
        assert {*await store.due(BOT, 10)} == {*await self.model.due(BOT, 10)}
        assert await store.counts(BOT) == await self.model.counts(BOT)
        flow, state = self.random.choice([(None, None), ("f", None), ("f", "s"), ("f", ""), ("", None)])
        after, limit = self.random.choice(["", encode(Address(BOT, "", (1,)))]), self.random.choice([1, 9])
        view = {"flow": flow, "state": state, "after": after, "limit": limit}
        assert await store.browse(BOT, **view) == await self.model.browse(BOT, **view)


changed = Record("f", None, {"t": 1})


def seen_in_order(answer):
    return (answer, list(answer.seen)) if isinstance(answer, Document) else answer


@pytest.fixture(autouse=True)
def _encoded():
    from hitherto.records import from_record

    global changed
    changed = from_record(Record("f", None, {"t": 1}))


@pytest.mark.parametrize("block", range(10))
async def test_every_answer_and_document_is_the_one_of_memory(tmp_path, tiny, block):
    for seed in range(block * 20, block * 20 + 20):
        clock = ManualClock()
        path = tmp_path / f"{seed}.db"
        stores = [SQLiteStore(path, synchronous="NORMAL", clock=clock, cache=n) for n in (4096, 0)]
        machine = Machine(seed, clock, MemoryStore(clock=clock), stores)
        for _ in range(STEPS):
            await machine.step()
        for store in stores:
            await store.close()
