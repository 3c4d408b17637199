"""Random operations on two SQLite stores that share a file, and on a MemoryStore: never a difference.

The thresholds that decide where things are kept in the file are made tiny, so that every way is taken.
"""

from __future__ import annotations

import asyncio
import random
import sqlite3
from contextlib import closing

import pytest
from msgspec.structs import replace

from hitherto.addresses import Address, encode
from hitherto.document import Claim, Document, Event, Terms
from hitherto.overlap import Burst, Concurrent, Debounce, Queue, Reject
from hitherto.records import Patch, Record
from hitherto.stores.memory import MemoryStore
from hitherto.stores.sqlite import SQLiteStore, changes, rows
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
        self.limit, self.age = self.random.choice([9, 14, 1000]), self.random.choice([60.0, 900.0, 1e6])

    def terms(self):
        """The same limits mostly, so that windows fill up; others now and then."""
        pick = self.random.choice
        odd = self.random.random() < 0.15
        return Terms(
            lease=30.0, max_attempts=pick([1, 3]), seen_limit=pick([5, 9, 1000]) if odd else self.limit,
            seen_age=pick([20.0, 400.0]) if odd else self.age, ops_limit=3, dead_limit=pick([1, 3, 100]),
            record_ttl=pick([None, None, 300.0]), tombstone=200.0, retry_in_order=pick([False, True]),
        )  # fmt: skip

    def event(self):
        if self.random.random() < 0.3 and self.events:
            number = self.random.randrange(max(self.events - 30, 0), self.events)
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
            moved=draw.random() < 0.5, flow=draw.choice([None, "f", "g"]),
            state=draw.choice([None, "s", "t"]),
            version=draw.choice([1, 2]), cleared=draw.random() < 0.1,
        )  # fmt: skip

    def draw(self):
        """One operation: its name, its arguments, its options."""
        draw, terms = self.random, self.terms()
        key, claim = draw.choice(self.claims[-6:])
        held, at = Address(BOT, "", key), Address(BOT, "", draw.choice(KEYS))
        overlap = draw.choice(
            [Queue(), Queue(), Queue(2, "drop_oldest", 40.0), Queue(1, "drop_newest"), Reject(),
             Debounce(5.0), Burst(0.0), Burst(4.0), Burst(4.0, gather=True), Concurrent(2)]
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
            ("transact", (at, remarking(draw.random())), {}),
            ("write", (Address(BOT, "thread", at.key), lambda _: None), {}),
            ("write", (Address(BOT, "thread", at.key), lambda stored: stored or changed), {}),
        ]
        return draw.choice(choices if draw.random() > 0.02 else [("forget", (at,), {})])

    def note(self, key, answer):
        grant = getattr(answer, "grant", None)
        if grant is not None:
            self.claims.append((key, grant.claim))

    async def turn(self):
        """An event accepted and, if it was granted, settled: what most operations are in earnest."""
        address, terms = Address(BOT, "", self.random.choice(KEYS)), self.terms()
        arguments = (address, self.event(), Queue(), "me", None, terms)
        store = self.random.choice(self.stores)
        answer = await store.accept(*arguments)
        assert answer == await self.model.accept(*arguments)
        while answer.grant is not None:
            arguments, patch = (address, answer.grant.claim, None, terms), self.patch()
            answer = await store.settle(*arguments, patch=patch)
            assert answer == await self.model.settle(*arguments, patch=patch)

    async def step(self):
        """A few operations at the same moment, in the same order."""
        if self.random.random() < 0.4:
            self.clock.advance(self.random.choice([1.0, 1.0, 7.0, 31.0]))
        for _ in range(self.random.choice([0, 1, 4])):
            await self.turn()
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


def remarking(chance):
    """A change no step of a turn makes: an id out of the middle of the window, and perhaps in again."""

    def change(document, now):
        if not document.seen:
            return document, None
        ids = list(document.seen)
        chosen = ids[int(chance * len(ids))]
        seen = {name: at for name, at in document.seen.items() if name != chosen}
        if chance < 0.5:
            seen[chosen] = now
        return replace(document, seen=seen, version=document.version + 1), chosen

    return change


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
        check_leftovers(path)


async def test_an_id_too_old_for_one_keeper_is_not_in_the_window_twice(tmp_path, tiny):
    """Accepted again by a keeper that forgets sooner, marked again by one that does not."""
    clock = ManualClock()
    long, short, at = Terms(seen_age=1000.0), Terms(seen_age=10.0), Address(BOT, "", KEYS[0])
    async with SQLiteStore(tmp_path / "x.db", synchronous="NORMAL", clock=clock) as store:
        for number in range(12):
            answer = await store.accept(at, Event(f"e{number}", b"1"), Queue(), "me", None, long)
            await store.settle(at, answer.grant.claim, None, long)
        clock.advance(20.0)
        answer = await store.accept(at, Event("e2", b"1"), Queue(), "me", None, short)
        assert answer.status == "granted"
        await store.settle(at, answer.grant.claim, None, long)
        expected = [f"e{number}" for number in (0, 1, *range(3, 12), 2)]
        assert list((await store.load(at)).seen) == expected


def check_leftovers(path):
    """What is beside the rows belongs to a row that knows of it."""
    with closing(sqlite3.connect(path)) as connection:
        columns = f"SELECT {rows.COLUMNS} FROM conversation"
        known = {columns[0]: rows.read(columns, "") for columns in connection.execute(columns)}
        kept = {(id_, seq) for id_, row in known.items() for seq in row.beside}
        assert {*connection.execute("SELECT conversation, seq FROM payload")} == kept
        for id_, n in connection.execute("SELECT conversation, n FROM seen"):
            assert known[id_].window.base <= n < known[id_].window.end
            assert known[id_].window.floor - known[id_].window.base < changes._TRIM
