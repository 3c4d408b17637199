"""Histories of concurrent operations on one conversation, recorded from a store, and spoiled ones.

Several clients work on a conversation at the same time, over as many stores as are given. Every call is
noted with when it began, when it ended and what it answered; :mod:`hitherto.testing.linearizability` then
says whether the pure protocol, one call after the other, could have answered so. Time stands still meanwhile,
so that the order of the calls is all there is to find out; leases die by being taken with no length.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from hitherto import codec, protocol
from hitherto.addresses import Address
from hitherto.document import EMPTY, Answer, Claim, Document, Event, Terms
from hitherto.errors import StoreError, StoreUnavailable
from hitherto.overlap import Overlap, Queue, Reject
from hitherto.records import Patch, Record, Stored, from_record, merged
from hitherto.stores.base import DEFAULT_TERMS, Store
from hitherto.testing.linearizability import UNKNOWN, Call, Verdict, check

__all__ = ["History", "Workload", "judge", "record", "spoiled"]

_POLICIES: Final[tuple[Overlap, ...]] = (Queue(), Queue(2), Queue(1, "drop_oldest"), Reject())
_TERMS: Final = Terms(max_attempts=100, seen_limit=4)
_DEAD_AT_ONCE: Final = replace(_TERMS, lease=0.0)
_PAYLOAD: Final = b'{"text":"hello"}'
_VERDICTS: Final = ("done", "done", "done", "retry", "dead")
_PATIENCE: Final = 200
_PAUSE: Final = 0.1
_REFUSALS: Final = ("busy", "full", "fenced", "duplicate")
_WRITTEN: Final = ("name", "size", "step")

History = list[Call[Document]]
Ask = Callable[[], Awaitable[Any]]
Shown = Callable[[Any], Any]
Sequential = Callable[[Document], tuple[Document, Any]]


class Workload(NamedTuple):
    """How much of everything: *cancelled* is how many calls of a hundred are given up in the middle."""

    conversations: int = 20
    clients: int = 5
    calls: int = 10
    at_once: int = 10
    cancelled: float = 2.0
    exact: bool = True
    """Compare answers whole. A store that repeats an operation after a lost reply says how long the line is,
    and what the data are, at the time of the repetition; then only the essence can be compared.
    """


def judge(history: History, limit: int = 200_000) -> Verdict:
    """Whether the protocol could have answered so."""
    return check(history, EMPTY, _identity, limit)


def _identity(document: Document) -> bytes:
    """Two documents that answer alike from now on are one; how often one changed shows in no answer."""
    return msgspec.msgpack.encode(replace(document, version=0))


async def record(
    stores: Sequence[Store], bot: str, now: float, workload: Workload, seed: int = 0
) -> list[History]:
    """One history for each conversation; the stores share their content and go by a clock that says *now*."""
    chance, histories = random.Random(seed), []
    numbers = itertools.count()
    for first in range(0, workload.conversations, workload.at_once):
        several = range(first, min(first + workload.at_once, workload.conversations))
        talks = [_Talk(stores, Address(bot, "", (n,)), now, workload, chance, numbers) for n in several]
        await asyncio.gather(*[talk.go() for talk in talks])
        histories += [talk.history for talk in talks]
    return histories


class Essence(NamedTuple):
    """What an answer says that is the same when it is given again."""

    status: str
    seq: int
    epoch: int | None


def _essence(answer: Any) -> Any:
    if isinstance(answer, dict):
        return "merged"
    if not isinstance(answer, Answer):
        return answer
    return Essence(answer.status, answer.seq, None if answer.grant is None else answer.grant.epoch)


def _is_idle(answer: Any) -> bool:
    """Whether the answer says that nothing was changed; events do not expire here."""
    said = _essence(answer)
    if isinstance(said, Essence):
        return said.status in _REFUSALS and said.epoch is None
    return bool(said == [False])


class _Talk:
    """What several clients do to one conversation."""

    def __init__(
        self, stores: Sequence[Store], address: Address, now: float, workload: Workload,
        chance: random.Random, numbers: itertools.count[int],
    ) -> None:  # fmt: skip
        self.stores, self.address, self.now, self.workload = stores, address, now, workload
        self.chance, self.numbers = chance, numbers
        self.shown: Shown = (lambda answer: answer) if workload.exact else _essence
        self.history: History = []
        self.claims: list[Claim] = []
        self._deeds: tuple[tuple[int, Callable[[Store, str], Awaitable[None]]], ...] = (
            (30, self.accept), (24, self.settle), (10, self.read), (10, self.update), (4, self.write),
            (2, self.clear), (6, self.take_over), (4, self.acquire), (4, self.release), (3, self.renew),
            (3, self.force),
        )  # fmt: skip

    async def go(self) -> None:
        """A first turn, so that the conversation is never blank, and then everybody at once."""
        store = self.stores[0]
        await self.called(
            "acquire", partial(store.acquire, self.address, "c", store.op(), _TERMS),
            lambda document: protocol.acquire(document, self.now, None, "c", _TERMS), spared=True,
        )  # fmt: skip
        await asyncio.gather(*[self.client(number) for number in range(self.workload.clients)])

    async def client(self, number: int) -> None:
        """One client: call after call, over its own choice of store."""
        deeds, weights = [deed for _, deed in self._deeds], [weight for weight, _ in self._deeds]
        for deed in self.chance.choices(deeds, weights, k=self.workload.calls):
            await deed(self.chance.choice(self.stores), f"c{number}")

    async def called(
        self, what: str, call: Ask, change: Sequential, *, again: bool = True, spared: bool = False
    ) -> None:
        """Do one call, or a part of it, and note it down; *again*: repeat it while the store is away."""
        place, began = len(self.history), next(self.numbers)
        self.history.append(Call(what, began, None, self._shown_of(change), UNKNOWN))
        task = asyncio.ensure_future(self._asked(call, _PATIENCE if again else 1))
        await self.dawdle()
        if not spared and self.chance.random() * 100 < self.workload.cancelled:
            task.cancel()
        try:
            answer = await task
        except (StoreError, asyncio.CancelledError):
            return
        await self.dawdle()
        if isinstance(answer, Answer) and answer.grant is not None:
            self.claims.append(answer.grant.claim)
        ended, shown = next(self.numbers), self.shown(answer)
        idle = what == "read" or _is_idle(answer)
        self.history[place] = Call(what, began, ended, self._shown_of(change), shown, idle)

    async def _asked(self, call: Ask, times: int) -> Any:
        for left in reversed(range(times)):
            try:
                return await call()
            except StoreUnavailable:
                if not left:
                    raise
                await asyncio.sleep(self.chance.random() * _PAUSE)
        return None

    def _shown_of(self, change: Sequential) -> Sequential:
        def shown(document: Document) -> tuple[Document, Any]:
            after, answer = change(document)
            return after, self.shown(answer)

        return shown

    async def dawdle(self) -> None:
        """Let others go first, perhaps."""
        for _ in range(self.chance.choice((0, 0, 1, 2, 4))):
            await asyncio.sleep(0)

    # ------------------------------------------------------------------------------------------ the calls

    async def accept(self, store: Store, who: str) -> None:
        """An event that may have come before."""
        event = Event(self.chance.choice((None, *"abcdefgh")), _PAYLOAD)
        overlap, terms = self.chance.choice(_POLICIES), self.chance.choice((_TERMS, _TERMS, _DEAD_AT_ONCE))
        call = partial(store.accept, self.address, event, overlap, who, store.op(), terms)
        what = f"accept {event.id} {overlap} lease {terms.lease}"
        await self.called(
            what, call, lambda document: protocol.accept(document, self.now, None, event, overlap, who, terms)
        )

    async def settle(self, store: Store, who: str) -> None:
        """The end of a turn: mostly the newest, sometimes one that was lost long ago."""
        claim, patch = self.claim(), Patch(set=self.fields(), moved=True, flow="f", state=who)
        verdict = self.chance.choice(_VERDICTS)
        how: dict[str, Any] = {"patch": patch, "verdict": verdict, "keep": self.chance.random() < 0.8}
        call = partial(store.settle, self.address, claim, store.op(), _TERMS, error="e", **how)
        change = partial(_settled, now=self.now, claim=claim, how=how)
        await self.called(f"settle {claim} {verdict}", call, change)

    def claim(self) -> Claim:
        """One that was handed out, good or lost."""
        newest = self.chance.random() < 0.7
        return (
            Claim(99) if not self.claims else self.claims[-1] if newest else self.chance.choice(self.claims)
        )

    def fields(self) -> codec.Fields:
        """A field with a value of its own."""
        return codec.encode({self.chance.choice(_WRITTEN): next(self.numbers)})

    async def read(self, store: Store, who: str) -> None:
        """The whole record."""

        def seen(document: Document) -> tuple[Document, Record | None]:
            stored = protocol.live_record(document, self.now)
            return document, None if stored is None else stored.to_record()

        await self.called("read", partial(store.get_state, self.address.bot, self.address.key), seen)

    async def update(self, store: Store, who: str) -> None:
        """Lay a field over the data."""
        fields = self.fields()
        call = partial(store.update_data, self.address.bot, self.address.key, codec.decode(fields))
        change = partial(self._written, change=partial(_merged, fields=fields), told=True)
        await self.called("update", call, change, again=False)

    async def write(self, store: Store, who: str) -> None:
        """Overwrite the record."""
        record = Record("f", who, codec.decode(self.fields()))
        stored = from_record(record)
        call = partial(store.set_state, self.address.bot, self.address.key, record)
        await self.called("write", call, partial(self._written, change=lambda _: stored), again=False)

    async def clear(self, store: Store, who: str) -> None:
        """Remove the record."""
        call = partial(store.clear, self.address.bot, self.address.key)
        await self.called("clear", call, partial(self._written, change=lambda _: None), again=False)

    def _written(
        self, document: Document, change: Callable[[Stored | None], Stored | None], told: bool = False
    ) -> tuple[Document, Any]:
        before = protocol.live_record(document, self.now)
        after = change(before)
        if after != before:
            document = protocol.remembered(document, self.now, None, after, DEFAULT_TERMS)
        return document, codec.decode(after.fields) if told and after is not None else None

    async def take_over(self, store: Store, who: str) -> None:
        """Run what somebody left behind."""
        call = partial(store.take_over, self.address, who, store.op(), _TERMS)
        await self.called(
            "take over", call, lambda document: protocol.take_over(document, self.now, None, who, _TERMS)
        )

    async def acquire(self, store: Store, who: str) -> None:
        """Take the lease without an event, some of them for no time at all."""
        terms = self.chance.choice((_TERMS, _DEAD_AT_ONCE))
        call = partial(store.acquire, self.address, who, store.op(), terms)
        await self.called(
            "acquire", call, lambda document: protocol.acquire(document, self.now, None, who, terms)
        )

    async def release(self, store: Store, who: str) -> None:
        """Give a turn back, perhaps one that was lost."""
        claim = self.claim()
        call = partial(store.release, self.address, claim, store.op(), _TERMS)
        await self.called(
            f"release {claim}", call,
            lambda document: protocol.release(document, self.now, None, claim, _TERMS),
        )  # fmt: skip

    async def renew(self, store: Store, who: str) -> None:
        """Renew a turn, perhaps one that was lost."""
        claim = self.claim()

        def renewed(document: Document) -> tuple[Document, list[bool]]:
            after, still = protocol.renew(document, self.now, claim, _TERMS)
            return after, [still]

        call = partial(store.renew, [(self.address, claim)], _TERMS)
        await self.called(f"renew {claim}", call, renewed)

    async def force(self, store: Store, who: str) -> None:
        """Free the conversation."""
        call = partial(store.force_release, self.address, store.op(), _TERMS)
        await self.called(
            "force release", call, lambda document: protocol.force_release(document, self.now, None, _TERMS)
        )


def _settled(document: Document, now: float, claim: Claim, how: dict[str, Any]) -> tuple[Document, Answer]:
    return protocol.settle(document, now, None, claim, _TERMS, error="e", **how)


def _merged(stored: Stored | None, fields: codec.Fields) -> Stored:
    return merged(stored, fields)


# -------------------------------------------------------------------------------------------------- spoiling


def spoiled(history: History, chance: random.Random) -> tuple[str, History] | None:
    """The history with one answer that no store may give, and what is wrong with it, if anything fits."""
    ways = list(_WAYS.items())
    chance.shuffle(ways)
    for name, way in ways:
        places = [place for place, call in enumerate(history) if call.answer is not UNKNOWN]
        chance.shuffle(places)
        for place in places:
            wrong = way(history, place)
            if wrong is not None:
                return name, [*history[:place], _told(history[place], wrong), *history[place + 1 :]]
    return None


def _told(call: Call[Document], wrong: Any) -> Call[Document]:
    return call._replace(answer=wrong, idle=call.what == "read" or _is_idle(wrong))


def _two_owners(history: History, place: int) -> Any:
    """A lease that was granted before is granted again, with its epoch."""
    mine = _essence(history[place].answer)
    if not isinstance(mine, Essence) or mine.epoch is None:
        return None
    for call in history[:place]:
        early = _essence(call.answer)
        if isinstance(early, Essence) and early.epoch not in (None, mine.epoch):
            return _changed(history[place].answer, epoch=early.epoch)
    return None


def _stale_commit(history: History, place: int) -> Any:
    """A commit that was fenced succeeds."""
    return _changed(history[place].answer, status="committed") if _says(history[place], "fenced") else None


def _twice(history: History, place: int) -> Any:
    """What is a duplicate is taken in again."""
    if not _says(history[place], "duplicate"):
        return None
    return _changed(history[place].answer, status="queued", seq=1 + _highest(history))


def _same_place(history: History, place: int) -> Any:
    """Two events have one place in the line."""
    mine = _essence(history[place].answer)
    if not isinstance(mine, Essence) or mine.seq < 2 or mine.status not in ("queued", "granted"):
        return None
    return _changed(history[place].answer, seq=mine.seq - 1)


def _old_value(history: History, place: int) -> Any:
    """A value is read that was overwritten before the reading began."""
    mine = history[place]
    if mine.what != "read" or mine.answer is None:
        return None
    for early in history[:place]:
        if early.what != "read" or early.answer in (None, UNKNOWN) or early.answer == mine.answer:
            continue
        between = [c for c in history if c.what == "write" and c.returned is not None]
        if any(early.returned < c.invoked and c.returned < mine.invoked for c in between):  # type: ignore[operator]
            return early.answer
    return None


def _says(call: Call[Document], status: str) -> bool:
    said = _essence(call.answer)
    return isinstance(said, Essence) and said.status == status


def _changed(answer: Any, **to: Any) -> Any:
    """An answer, whole or its essence, with something else in it."""
    if isinstance(answer, Essence):
        return answer._replace(**to)
    epoch = to.pop("epoch", None)
    return (
        replace(answer, **to) if epoch is None else replace(answer, grant=replace(answer.grant, epoch=epoch))
    )


def _highest(history: History) -> int:
    said = [_essence(call.answer) for call in history]
    return max((one.seq for one in said if isinstance(one, Essence)), default=0)


_WAYS: Final[dict[str, Callable[[History, int], Any]]] = {
    "two owners": _two_owners,
    "a stale commit": _stale_commit,
    "handled twice": _twice,
    "one place for two": _same_place,
    "an old value": _old_value,
}
