"""Hypothesis machines that drive stores beside a model, step by step, and compare them after every one.

``machine_for(MyStore)`` is a test class::

    TestMachine = machine_for(lambda clock: MyStore(clock=clock))

It opens the store once and uses a bot of its own for every example. Several factories run in lockstep.
"""

from __future__ import annotations

import asyncio
import itertools
import unittest
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, ClassVar, Final, NamedTuple, TypeAlias, TypeVar

from hypothesis import HealthCheck
from hypothesis import settings as Settings  # noqa: N812
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)
from msgspec.structs import replace

from hitherto import codec, protocol
from hitherto.addresses import Address, encode
from hitherto.overlap import Burst, ByFlow, Concurrent, Debounce, Policy, Queue, Reject
from hitherto.protocol import EMPTY, Answer, Claim, Document, Event, Terms
from hitherto.records import Patch, Record, Stored, from_record, merged
from hitherto.stores.base import DEFAULT_TERMS, Store, is_filed
from hitherto.testing.clock import START, ManualClock
from hitherto.testing.fsm import HOSTILE, TWINS, VALUES, same
from hitherto.testing.kit import TERMS, view

Factory: TypeAlias = Callable[[ManualClock], Any]
_T = TypeVar("_T")

PATIENT: Final = Settings(
    max_examples=200,
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
_NARROW: Final = replace(TERMS, max_attempts=2, seen_limit=3, dead_limit=2, tombstone=500.0)
_TERMS: Final = (
    _NARROW,
    replace(_NARROW, lease=5.0, record_ttl=60.0, seen_age=100.0),
    replace(_NARROW, retry_in_order=True, max_attempts=3),
)
_POLICIES: Final[tuple[Policy, ...]] = (
    Queue(), Queue(), Queue(2), Queue(1, "drop_oldest"), Queue(2, "drop_newest"), Queue(2, expires=5.0),
    Reject(), Debounce(5.0), Debounce(0.0), Burst(), Burst(5.0), Burst(0.0, 2), Burst(5.0, gather=True),
    Concurrent(1), Concurrent(3),
)  # fmt: skip
_SECONDS: Final = (
    0.25,
    1.0,
    1.0,
    4.75,
    5.0,
    5.0,
    10.0,
    29.75,
    30.0,
    30.0,
    31.0,
    60.0,
    600.0,
    3600.0,
    200_000.0,
)
_REPEATABLE: Final = 500.0
_CLAIMS: Final = 12


def _names() -> st.SearchStrategy[str]:
    return st.sampled_from(("a", "b", "c", "d")) | st.sampled_from(HOSTILE)


def _values() -> st.SearchStrategy[Any]:
    plain = st.sampled_from([value for value in VALUES if len(repr(value)) < 1000])
    numbers = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    text = st.text(st.characters(codec="utf-8"), max_size=20)
    return plain | numbers | text | st.lists(plain, max_size=3) | st.dictionaries(text, plain, max_size=3)


def _data() -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(_names(), _values(), max_size=3)


def _keys() -> st.SearchStrategy[Any]:
    return st.sampled_from(TWINS) | st.tuples(st.sampled_from(HOSTILE), st.integers())


def _records() -> st.SearchStrategy[Record]:
    flows = st.sampled_from((None, "signup", "order", "", "a:b\x00😀"))
    return st.builds(Record, flows, flows, _data(), st.integers(1, 5))


def _events() -> st.SearchStrategy[Event]:
    ids = st.integers(0, 30).map(str) | st.sampled_from(("1", "2", None, *HOSTILE[:20]))
    return st.builds(Event, ids, _values().map(lambda value: codec.encode_value(value, "event")))


def _overlaps() -> st.SearchStrategy[Any]:
    policies = st.sampled_from(_POLICIES)
    return policies | st.builds(
        ByFlow, policies, st.fixed_dictionaries({"signup": policies, "order": policies})
    )


@st.composite
def _patches(draw: st.DrawFn) -> Patch:
    flow, state = (
        draw(st.sampled_from((None, "signup", "order"))),
        draw(st.sampled_from((None, "s1", "s2\x00"))),
    )
    removed = tuple(draw(st.lists(_names(), max_size=2, unique=True)))
    moved, cleared = draw(st.booleans()), draw(st.sampled_from((False, False, False, True)))
    fields = codec.encode(draw(_data()))
    if moved:
        return Patch(fields, removed, True, flow, state, draw(st.integers(1, 3)), cleared)
    return Patch(fields, removed, cleared=cleared)


def _index() -> st.SearchStrategy[int]:
    """Mostly the newest."""
    return st.sampled_from((0, 0, 0, 1, 2, 5, _CLAIMS))


def _places() -> st.SearchStrategy[int]:
    """Mostly the first conversation."""
    return st.sampled_from((0, 0, 0, 0, 0, 1, 2))


def _view(document: Document, now: float) -> tuple[Any, ...]:
    return view(replace(document, record=protocol.live_record(document, now)))


class _Lane:
    """One store beside its model: the pure protocol over a dict of documents."""

    def __init__(self, store: Store, run: Callable[[Awaitable[Any]], Any]) -> None:
        self.store, self.run = store, run
        self.documents: dict[str, Document] = {}
        self.claims: dict[str, list[Claim]] = {}

    def kept(self, address: Address) -> Document:
        """What the model keeps."""
        return self.documents.get(encode(address), EMPTY)

    def claim(self, address: Address, index: int) -> Claim | None:
        """One of the claims that were handed out, the newest first: good ones, lost ones and used ones."""
        claims = self.claims.get(encode(address))
        return claims[-1 - index % len(claims)] if claims else None

    def is_running(self, address: Address) -> bool:
        """Whether the newest turn that was handed out still runs."""
        document, claim = self.kept(address), self.claim(address, 0)
        return claim is not None and (document.lease is not None or claim.lone)

    def step(self, address: Address, change: Callable[[Document, float], tuple[Document, _T]]) -> _T:
        """What the model answers to a change."""
        after, answer = change(self.kept(address), self.store.clock())
        self.documents[encode(address)] = after
        return answer

    def note(self, address: Address, answer: Answer) -> None:
        """Remember what was handed out."""
        if answer.grant is not None:
            claims = self.claims.setdefault(encode(address), [])
            claims.append(answer.grant.claim)
            del claims[:-_CLAIMS]

    def check(self, address: Address, terms: Terms = _NARROW) -> None:
        """Assert that the store keeps what the model keeps; a document with nothing in it may be gone."""
        now, kept = self.store.clock(), self.kept(address)
        found = self.run(self.store.load(address))
        if _view(found, now) == _view(kept, now):
            return
        gone = protocol.is_blank(kept) or protocol.is_void(kept, now, terms)
        assert gone, f"{self.store!r} keeps\n{found}\ninstead of\n{kept}"
        assert _view(found, now) == view(EMPTY), f"{self.store!r} keeps\n{found}\ninstead of nothing"
        self.documents.pop(encode(address), None)


Operation: TypeAlias = Callable[
    [_Lane], tuple[Awaitable[Any], Callable[[Document, float], tuple[Document, Any]]]
]


class _Done(NamedTuple):
    """An operation that was done, to be repeated with the same id."""

    at: float
    address: Address
    operation: Operation


class StoreMachine(RuleBasedStateMachine):
    """Drives stores beside :mod:`hitherto.protocol` over plain dicts.

    Every answer is compared as a whole (status, place, grant, depth, time to wake, what was dropped), and
    after every step the loaded document: record, epoch, lease, inbox, seen window with its order, dead
    letters, next number. Its version and the results of operations are the store's own business: they show
    in what is answered to a repetition. A document that holds nothing and fences nobody may be there or not.
    """

    stores: ClassVar[Sequence[Store]] = ()
    clock: ClassVar[ManualClock]
    run_async: ClassVar[Callable[[Awaitable[Any]], Any]]
    _examples: ClassVar[Any] = itertools.count(1)

    def __init__(self) -> None:
        super().__init__()
        type(self).clock.set(START)
        self.bot = f"bot{next(StoreMachine._examples)}"
        self.lanes = [_Lane(store, type(self).run_async) for store in self.stores]
        self.addresses: list[Address] = []
        self.done: list[_Done] = []
        self.numbers = itertools.count(1)

    @initialize(keys=st.lists(_keys(), min_size=3, max_size=3, unique_by=repr))
    def begin(self, keys: list[Any]) -> None:
        """Choose the conversations of this example; the first gets most of the traffic."""
        self.addresses = [Address(self.bot, "", key) for key in keys]

    # ---------------------------------------------------------------------------------------------- running

    @property
    def granted(self) -> bool:
        """Whether anything was ever handed out."""
        return any(lane.claims for lane in self.lanes)

    def at(self, place: int) -> Address:
        """Which conversation."""
        return self.addresses[place]

    def op(self, wanted: bool) -> str | None:
        """A fresh operation id, if one is wanted."""
        return f"op-{next(self.numbers)}" if wanted else None

    def do(self, address: Address, operation: Operation, op: str | None = None) -> None:
        """Do it in every lane and compare."""
        for lane in self.lanes:
            self.once(lane, address, operation)
        if op is not None:
            self.done.append(_Done(self.clock(), address, operation))
            del self.done[:-20]

    def once(self, lane: _Lane, address: Address, operation: Operation) -> None:
        """Do it in one lane and compare answer and document."""
        call, change = operation(lane)
        found, expected = lane.run(call), lane.step(address, change)
        assert found == expected, f"{lane.store!r} answers\n{found}\ninstead of\n{expected}"
        if isinstance(expected, Answer):
            lane.note(address, expected)
        lane.check(address)

    # ----------------------------------------------------------------------------------------- FSM storage

    @rule(place=_places(), record=_records())
    def set_state(self, place: int, record: Record) -> None:
        """Overwrite a record."""
        stored = from_record(record)
        self.write(
            self.at(place), lambda store, key: store.set_state(self.bot, key, record), lambda _: stored
        )

    @rule(place=_places(), data=_data())
    def set_data(self, place: int, data: dict[str, Any]) -> None:
        """Overwrite data."""

        def overwritten(stored: Stored | None) -> Stored:
            return replace(protocol.blank_if_none(stored), fields=codec.encode(data))

        self.write(self.at(place), lambda store, key: store.set_data(self.bot, key, data), overwritten)

    @rule(place=_places(), new=_data())
    def update_data(self, place: int, new: dict[str, Any]) -> None:
        """Merge data."""
        fields = codec.encode(new)
        self.write(
            self.at(place),
            lambda store, key: store.update_data(self.bot, key, new),
            lambda stored: merged(stored, fields),
            lambda stored: codec.decode(protocol.blank_if_none(stored).fields),
        )

    @rule(place=_places())
    def clear(self, place: int) -> None:
        """Remove a record."""
        self.write(self.at(place), lambda store, key: store.clear(self.bot, key), lambda _: None)

    def write(
        self,
        address: Address,
        call: Callable[[Store, Any], Awaitable[Any]],
        change: Callable[[Stored | None], Stored | None],
        answered: Callable[[Stored | None], Any] = lambda _: None,
    ) -> None:
        """Write a record in every lane and compare."""

        def step(document: Document, now: float) -> tuple[Document, Any]:
            before = protocol.live_record(document, now)
            after = change(before)
            if after is before or after == before == document.record:
                return document, answered(after)
            return protocol.remembered(document, now, None, after, DEFAULT_TERMS), answered(after)

        self.do(address, lambda lane: (call(lane.store, address.key), step))

    @rule(place=_places())
    def read(self, place: int) -> None:
        """Read a record, all of it and its data."""
        key = self.at(place).key
        for lane in self.lanes:
            stored = protocol.live_record(lane.kept(self.at(place)), self.clock())
            expected = None if stored is None else stored.to_record()
            assert lane.run(lane.store.get_state(self.bot, key)) == expected
            data = lane.run(lane.store.get_data(self.bot, key))
            assert same(data, None if expected is None else expected.data)

    # ------------------------------------------------------------------------------------------------ turns

    @rule(
        place=_places(),
        event=_events(),
        overlap=_overlaps(),
        owner=st.sampled_from(("ann", "bob")),
        with_op=st.booleans(),
        terms=st.sampled_from(_TERMS),
    )
    def accept(self, place: int, event: Event, with_op: bool, **how: Any) -> None:
        """Accept an event."""
        self.accept_with(self.at(place), event, self.op(with_op), how)

    @rule(
        place=_places(),
        events=st.lists(_events(), min_size=2, max_size=4),
        overlap=_overlaps(),
        terms=st.sampled_from(_TERMS),
    )
    def accept_many(self, place: int, events: list[Event], **how: Any) -> None:
        """Accept several events in a row."""
        for event in events:
            self.accept_with(self.at(place), event, None, {"owner": "ann", **how})

    def accept_with(self, address: Address, event: Event, op: str | None, how: dict[str, Any]) -> None:
        """Accept an event in every lane and compare."""
        self.do(
            address,
            lambda lane: (
                lane.store.accept(address, event, op=op, **how),
                lambda document, now: protocol.accept(document, now, op, event, **how),
            ),
            op,
        )

    @precondition(lambda self: self.granted)
    @rule(
        place=_places(),
        index=_index(),
        patch=_patches(),
        verdict=st.sampled_from(("done", "done", "done", "retry", "dead")),
        delay=st.sampled_from((0.0, 0.0, 5.0, 60.0)),
        error=st.sampled_from(("", "ValueError: é\x00")),
        keep=st.sampled_from((True, True, False)),
        with_op=st.booleans(),
        terms=st.sampled_from(_TERMS),
    )
    def settle(self, place: int, index: int, with_op: bool, terms: Terms, delay: float, **how: Any) -> None:
        """End a turn, with a claim that may be good or lost."""
        self.settle_with(self.at(place), index, self.op(with_op), terms, delay, how)

    @precondition(lambda self: self.granted)
    @rule(place=_places(), patch=_patches(), with_op=st.booleans(), terms=st.sampled_from(_TERMS))
    def commit(self, place: int, patch: Patch, with_op: bool, terms: Terms) -> None:
        """End the newest turn well, where one is running."""
        running = [address for address in self.addresses if self.lanes[0].is_running(address)]
        address = running[place % len(running)] if running else self.at(place)
        self.settle_with(address, 0, self.op(with_op), terms, 0.0, {"patch": patch})

    @precondition(lambda self: self.granted)
    @rule(patches=st.lists(_patches(), min_size=1, max_size=4), terms=st.sampled_from(_TERMS))
    def drain(self, patches: list[Patch], terms: Terms) -> None:
        """End turn after turn, as long as something is handed on."""
        for patch in patches:
            for address in self.addresses:
                if self.lanes[0].is_running(address):
                    self.settle_with(address, 0, None, terms, 0.0, {"patch": patch})

    def settle_with(
        self, address: Address, index: int, op: str | None, terms: Terms, delay: float, how: dict[str, Any]
    ) -> None:
        """End a turn in every lane that ever had one, and compare."""
        claims = {id(lane): lane.claim(address, index) or Claim(1, (1,)) for lane in self.lanes}

        def operation(lane: _Lane) -> Any:
            claim, until = claims[id(lane)], self.clock() + delay if delay else 0.0
            return (
                lane.store.settle(address, claim, op, terms, delay=delay, **how),
                lambda document, now: protocol.settle(
                    document, now, op, claim, terms, not_before=until, **how
                ),
            )

        self.do(address, operation, op)

    @rule(picks=st.lists(st.tuples(_places(), _index()), max_size=4), terms=st.sampled_from(_TERMS))
    def renew(self, picks: list[tuple[int, int]], terms: Terms) -> None:
        """Renew several turns together."""
        for lane in self.lanes:
            pairs = [(self.at(place), lane.claim(self.at(place), index)) for place, index in picks]
            claims = [(address, claim) for address, claim in pairs if claim is not None]
            found = lane.run(lane.store.renew(claims, terms))
            expected = [
                lane.step(address, partial(_renew, claim=claim, terms=terms)) for address, claim in claims
            ]
            assert found == expected, f"{lane.store!r} answers {found} instead of {expected}"
            for address, _ in claims:
                lane.check(address)

    @rule(place=_places(), index=_index(), with_op=st.booleans(), terms=st.sampled_from(_TERMS))
    def release(self, place: int, index: int, with_op: bool, terms: Terms) -> None:
        """Give a turn back, with a claim that may be good or lost."""
        address, op = self.at(place), self.op(with_op)
        claims = {id(lane): lane.claim(address, index) or Claim(1, (1,)) for lane in self.lanes}

        def operation(lane: _Lane) -> Any:
            claim = claims[id(lane)]
            return (
                lane.store.release(address, claim, op, terms),
                lambda document, now: protocol.release(document, now, op, claim, terms),
            )

        self.do(address, operation, op)

    @rule(place=_places(), with_op=st.booleans(), terms=st.sampled_from(_TERMS))
    def acquire(self, place: int, with_op: bool, terms: Terms) -> None:
        """Take the lease without an event."""
        address, op = self.at(place), self.op(with_op)
        self.do(
            address,
            lambda lane: (
                lane.store.acquire(address, "ann", op, terms),
                lambda document, now: protocol.acquire(document, now, op, "ann", terms),
            ),
            op,
        )

    @rule(place=_places(), with_op=st.booleans(), terms=st.sampled_from(_TERMS))
    def take_over(self, place: int, with_op: bool, terms: Terms) -> None:
        """Take over what is left."""
        address, op = self.at(place), self.op(with_op)
        self.do(
            address,
            lambda lane: (
                lane.store.take_over(address, "bob", op, terms),
                lambda document, now: protocol.take_over(document, now, op, "bob", terms),
            ),
            op,
        )

    @rule(place=_places(), with_op=st.booleans(), terms=st.sampled_from(_TERMS))
    def force_release(self, place: int, with_op: bool, terms: Terms) -> None:
        """Free a conversation."""
        address, op = self.at(place), self.op(with_op)
        self.do(
            address,
            lambda lane: (
                lane.store.force_release(address, op, terms),
                lambda document, now: protocol.force_release(document, now, op, terms),
            ),
            op,
        )

    @rule(
        place=_places(),
        drop=st.booleans(),
        index=_index(),
        with_op=st.booleans(),
        terms=st.sampled_from(_TERMS),
    )
    def dead_letter(self, place: int, drop: bool, index: int, with_op: bool, terms: Terms) -> None:
        """Put a dead letter back or throw it away; sometimes one that is not there."""
        address, op = self.at(place), self.op(with_op)
        dead = self.lanes[0].kept(address).dead
        seq = dead[index % len(dead)].seq if dead and index < _CLAIMS else 99

        def operation(lane: _Lane) -> Any:
            call, change = (
                (lane.store.drop_dead, protocol.drop_dead)
                if drop
                else (lane.store.retry_dead, protocol.retry_dead)
            )
            return (
                call(address, seq, op, terms),
                lambda document, now: change(document, now, op, seq, terms),
            )

        self.do(address, operation, op)

    @rule(place=_places())
    def forget(self, place: int) -> None:
        """Erase a conversation; where nothing was kept, the epoch may grow or not."""
        address = self.at(place)
        for lane in self.lanes:
            kept = lane.kept(address)
            lane.run(lane.store.forget(address))
            if not protocol.is_blank(kept) or lane.run(lane.store.load(address)).epoch > kept.epoch:
                lane.step(address, lambda document, now: (protocol.forget(document, now), None))
            lane.check(address)

    # ----------------------------------------------------------------------------- repeating, time, tidying

    @precondition(lambda self: self.done)
    @rule(index=st.integers(0, 19))
    def repeat(self, index: int) -> None:
        """Repeat an operation with the same id, as after a lost reply."""
        done = self.done[-1 - index % len(self.done)]
        if done.at > self.clock() - _REPEATABLE:
            self.do(done.address, done.operation)

    @rule(seconds=st.sampled_from(_SECONDS))
    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self.clock.advance(seconds)

    @rule(terms=st.sampled_from(_TERMS))
    def expire(self, terms: Terms) -> None:
        """Tidy up."""
        for lane in self.lanes:
            lane.run(lane.store.expire(self.bot, 1000, terms))
            for address in self.addresses:
                lane.step(address, lambda document, now: (protocol.expire(document, now, terms), None))
                lane.check(address, terms)

    @rule(kind=st.sampled_from(("all", "record", "due", "pending", "lease", "dead", "everything")))
    def scan(self, kind: str) -> None:
        """List conversations."""
        for lane in self.lanes:
            found = lane.run(_listed(lane.store, self.bot, kind))
            assert len(found) == len(set(found)), f"{lane.store!r} lists a conversation twice: {found}"
            kept = {encode(address): (address, lane.kept(address)) for address in self.addresses}
            may = {text for text, pair in kept.items() if is_filed(*pair, kind, self.clock())}
            must = {text for text in may if not self.may_be_gone(kept[text][1], kind)}
            assert must <= set(found) <= may, f"{lane.store!r} lists {found} as {kind} instead of {may}"

    def may_be_gone(self, document: Document, kind: str) -> bool:
        """Whether a store need not list this document: nothing is in it, or its record has expired."""
        expired = kind == "record" and protocol.live_record(document, self.clock()) is None
        return expired or protocol.is_blank(document)

    def teardown(self) -> None:
        """Compare everything once more."""
        for lane in self.lanes:
            for address in self.addresses:
                lane.check(address)


def _renew(document: Document, now: float, claim: Claim, terms: Terms) -> tuple[Document, bool]:
    return protocol.renew(document, now, claim, terms)


async def _listed(store: Store, bot: str, kind: str) -> list[str]:
    return [encode(address) async for address in store.scan(bot, kind)]


class FSMStorageMachine(RuleBasedStateMachine):
    """Drives FSM storages beside a plain dict of records, with the seven methods only."""

    stores: ClassVar[Sequence[Any]] = ()
    clock: ClassVar[ManualClock]
    run_async: ClassVar[Callable[[Awaitable[Any]], Any]]
    _examples: ClassVar[Any] = itertools.count(1)

    def __init__(self) -> None:
        super().__init__()
        self.bots = [f"fsm{next(FSMStorageMachine._examples)}{end}" for end in ("", "0")]
        self.records: dict[str, Record] = {}

    def each(self, call: Callable[[Any], Awaitable[Any]], expected: Any = None) -> None:
        """Do it in every storage and compare the answer."""
        for store in self.stores:
            found = type(self).run_async(call(store))
            assert same(found, expected), f"{store!r} answers {found!r} instead of {expected!r}"

    def kept(self, bot: int, key: Any) -> tuple[str, str, Record | None]:
        """The bot's name, the text of the conversation and what the model has of it."""
        text = encode(Address(self.bots[bot], "", key))
        return self.bots[bot], text, self.records.get(text)

    @rule(bot=st.integers(0, 1), key=_keys(), record=_records())
    def set_state(self, bot: int, key: Any, record: Record) -> None:
        """Overwrite a record."""
        name, text, _ = self.kept(bot, key)
        self.records[text] = record
        self.each(lambda store: store.set_state(name, key, record))
        self.compare(name, key, record)

    @rule(bot=st.integers(0, 1), key=_keys(), data=_data())
    def set_data(self, bot: int, key: Any, data: dict[str, Any]) -> None:
        """Overwrite data."""
        name, text, before = self.kept(bot, key)
        self.records[text] = replace(before or Record(), data=data)
        self.each(lambda store: store.set_data(name, key, data))
        self.compare(name, key, self.records[text])

    @rule(bot=st.integers(0, 1), key=_keys(), new=_data())
    def update_data(self, bot: int, key: Any, new: dict[str, Any]) -> None:
        """Merge data."""
        name, text, before = self.kept(bot, key)
        record = before or Record()
        self.records[text] = replace(record, data={**record.data, **new})
        self.each(lambda store: store.update_data(name, key, new), self.records[text].data)
        self.compare(name, key, self.records[text])

    @rule(bot=st.integers(0, 1), key=_keys())
    def clear(self, bot: int, key: Any) -> None:
        """Remove a record."""
        name, text, _ = self.kept(bot, key)
        self.records.pop(text, None)
        self.each(lambda store: store.clear(name, key))
        self.compare(name, key, None)

    @rule(bot=st.integers(0, 1), key=_keys())
    def read(self, bot: int, key: Any) -> None:
        """Read a record, and make the bot ready again."""
        name, _, record = self.kept(bot, key)
        self.each(lambda store: store.init(name))
        self.compare(name, key, record)

    def compare(self, bot: str, key: Any, record: Record | None) -> None:
        """Assert that every storage has this record."""
        self.each(lambda store: store.get_data(bot, key), None if record is None else record.data)
        self.each(lambda store: store.get_state(bot, key), record)


def machine_for(
    *factories: Factory,
    settings: Settings = PATIENT,
    machine: type[StoreMachine] | type[FSMStorageMachine] = StoreMachine,
) -> type[unittest.TestCase]:
    """A test class that drives the stores these factories make of a clock, in lockstep, by *settings*."""

    class Lockstep(unittest.TestCase):
        """One test: as many examples as the settings say."""

        runner: ClassVar[asyncio.Runner]
        opened: ClassVar[list[Any]]
        machine: ClassVar[Any]

        @classmethod
        def setUpClass(cls) -> None:
            cls.runner = asyncio.Runner()
            clock = ManualClock()
            stores = [factory(clock) for factory in factories]
            cls.opened = [store for store in stores if hasattr(store, "open")]
            for store in cls.opened:
                cls.runner.run(store.open())
            run = {"stores": stores, "clock": clock, "run_async": staticmethod(cls.runner.run)}
            cls.machine = type(machine.__name__, (machine,), run)

        @classmethod
        def tearDownClass(cls) -> None:
            for store in cls.opened:
                cls.runner.run(store.close())
            cls.runner.close()

        def test_lockstep(self) -> None:
            """No difference after any step of any example."""
            run_state_machine_as_test(self.machine, settings=settings)

    return Lockstep
