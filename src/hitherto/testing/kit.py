"""What the clauses of the conformance kit stand on: contracts, abilities, a conversation to drive.

A contract is a class of clauses: each clause is one test method, its name is its id, its docstring is the
sentence it proves. A store author subclasses a contract in a test module and gives it one fixture::

    class TestMyStore(StoreContract):
        abilities = {"reopens"}

        @pytest.fixture
        async def store(self, clock):
            async with MyStore(clock=clock) as store:
                yield store

The store is opened, empty and goes by ``clock``, a :class:`ManualClock`. The clauses are plain ``async def``
methods and run under pytest-asyncio and anyio (on asyncio) alike; the module says which:
``asyncio_mode = "auto"``, or ``pytestmark = pytest.mark.asyncio`` and a ``pytest_asyncio.fixture``, or
``pytest.mark.anyio``.

What only some stores can do is an *ability*: its clauses belong to a class that declares it and are not there
otherwise, so nothing is ever skipped. Every other clause is required, and switching one off fails
``test_the_contract_is_whole``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Set
from contextlib import contextmanager
from typing import Any, ClassVar, Final, TypeVar

import pytest
from msgspec.structs import replace

from hitherto import codec
from hitherto.addresses import Address, Key
from hitherto.overlap import Overlap, Queue
from hitherto.protocol import Answer, Claim, Document, Event, Grant, Terms, Verdict
from hitherto.records import NO_PATCH, Patch, Record
from hitherto.stores.base import Kind, Store
from hitherto.testing.clock import ManualClock

BOT: Final = "kit"
KEY: Final = (7, 7)
QUEUE: Final = Queue()
TERMS: Final = Terms(lease=30.0, max_attempts=3, seen_limit=100, seen_age=3600.0, dead_limit=10)

ABILITIES: Final = {
    "reopens": "what was written is there after the store was closed and opened again",
    "shared": "a second store object, the fixture `another`, sees and respects what the first one does",
}

_C = TypeVar("_C", bound=Callable[..., Any])


def needs(ability: str) -> Callable[[_C], _C]:
    """Mark a clause as one for stores that declare *ability*."""
    if ability not in ABILITIES:
        raise ValueError(f"{ability!r}: the abilities are {', '.join(ABILITIES)}")

    def mark(clause: _C) -> _C:
        clause.needs = ability  # type: ignore[attr-defined]
        return clause

    return mark


def _written(contract: type) -> dict[str, Callable[..., Any]]:
    """The clauses as the kit wrote them, whatever subclasses made of them."""
    found: dict[str, Callable[..., Any]] = {}
    for base in contract.__mro__:
        if vars(base).get("mixin"):
            for name, clause in vars(base).items():
                if name.startswith("test_"):
                    found.setdefault(name, clause)
    return dict(sorted(found.items()))


def clauses(contract: type) -> dict[str, str]:
    """Every clause that a store with the abilities of this class must keep: its id and its sentence."""
    abilities: Set[str] = getattr(contract, "abilities", frozenset())
    return {
        name: " ".join((clause.__doc__ or "").split())
        for name, clause in _written(contract).items()
        if getattr(clause, "needs", None) in (None, *abilities)
    }


class Contract:
    """The base of every contract: the clock, the abilities, and the proof that nothing is switched off."""

    mixin: ClassVar[bool] = True
    abilities: ClassVar[Set[str]] = frozenset()

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.mixin = vars(cls).get("mixin", False)
        unknown = cls.abilities - ABILITIES.keys()
        if unknown:
            known = "; ".join(f"{name}: {meaning}" for name, meaning in ABILITIES.items())
            raise TypeError(f"{cls.__name__}: no ability is called {', '.join(sorted(unknown))} ({known})")
        if not cls.mixin:
            for name, clause in _written(cls).items():
                ability = getattr(clause, "needs", None)
                if ability is not None:
                    setattr(cls, name, clause if ability in cls.abilities else None)

    @pytest.fixture
    def clock(self) -> ManualClock:
        """The time that the store goes by."""
        return ManualClock()

    async def test_the_contract_is_whole(self) -> None:
        """Every required clause and every clause of a declared ability is run as the kit wrote it."""
        written = _written(type(self))
        changed = [name for name in clauses(type(self)) if getattr(type(self), name) is not written[name]]
        assert not changed, f"{type(self).__name__} switches off or replaces {', '.join(changed)}"


@contextmanager
def refuses(*kinds: type[Exception]) -> Iterator[list[Exception]]:
    """Assert that the body raises one of *kinds*; the list holds it afterwards."""
    raised: list[Exception] = []
    try:
        yield raised
    except kinds as error:
        raised.append(error)
        return
    raise AssertionError(f"accepted, instead of {' or '.join(kind.__name__ for kind in kinds)}")


def view(document: Document) -> tuple[Any, ...]:
    """What every store must keep alike of a document: all but its version and the results of operations."""
    return (
        document.record,
        document.epoch,
        document.lease,
        document.inbox,
        tuple(document.seen.items()),
        document.dead,
        document.next_seq,
    )


def ids(grant: Grant | None) -> list[str | None]:
    """The ids of the events that were handed out, oldest first."""
    return [] if grant is None else [entry.event_id for entry in grant.entries]


def event(name: str | None, payload: bytes | None = None) -> Event:
    """An event with this id, whose payload says the same."""
    return Event(name, codec.encode_value({"text": name}, "event") if payload is None else payload)


def to_state(flow: str | None, state: str | None, version: int = 1, **data: object) -> Patch:
    """A patch that moves to a state and sets some data."""
    return Patch(set=codec.encode(data), moved=True, flow=flow, state=state, version=version)


def setting(**data: object) -> Patch:
    """A patch that sets some data."""
    return Patch(set=codec.encode(data))


async def gathered(addresses: AsyncIterator[Address]) -> list[Address]:
    """All of a scan, in the order of the addresses."""
    return sorted([address async for address in addresses], key=repr)


class Talk:
    """One conversation of a store, driven as workers would: each call is one operation of the store.

    ``terms`` may be replaced at any time; ``owner`` is who acts when a call names nobody else.
    """

    def __init__(self, store: Store, clock: ManualClock, key: Key = KEY, bot: str = BOT) -> None:
        self.store, self.clock = store, clock
        self.address = Address(bot, "", key)
        self.terms = TERMS
        self.owner = "ann"

    def under(self, **limits: Any) -> None:
        """Go on under other terms."""
        self.terms = replace(self.terms, **limits)

    async def accept(
        self,
        name: str | None,
        overlap: Overlap = QUEUE,
        *,
        op: str | None = None,
        owner: str | None = None,
        payload: bytes | None = None,
    ) -> Answer:
        """Accept the event called *name*."""
        who = owner or self.owner
        return await self.store.accept(self.address, event(name, payload), overlap, who, op, self.terms)

    async def begin(self, name: str | None, overlap: Overlap = QUEUE, *, owner: str | None = None) -> Grant:
        """Accept an event that is to be granted at once."""
        answer = await self.accept(name, overlap, owner=owner)
        assert answer.status == "granted"
        assert answer.grant is not None
        return answer.grant

    async def busy(self, *names: str, overlap: Overlap = QUEUE) -> Grant:
        """Make the conversation busy with an event ``running``, and let *names* wait behind it."""
        grant = await self.begin("running")
        for name in names:
            answer = await self.accept(name, overlap)
            assert answer.status in ("queued", "debounced")
        return grant

    async def settle(
        self,
        turn: Grant | Claim,
        patch: Patch = NO_PATCH,
        *,
        op: str | None = None,
        verdict: Verdict = "done",
        delay: float = 0.0,
        error: str = "",
        keep: bool = True,
    ) -> Answer:
        """End a turn."""
        claim = turn if isinstance(turn, Claim) else turn.claim
        return await self.store.settle(
            self.address,
            claim,
            op,
            self.terms,
            patch=patch,
            verdict=verdict,
            delay=delay,
            error=error,
            keep=keep,
        )

    async def commit(self, turn: Grant, patch: Patch = NO_PATCH) -> Grant | None:
        """End a turn that is to be committed; what is handed on is the answer."""
        answer = await self.settle(turn, patch)
        assert answer.status == "committed"
        return answer.grant

    async def fenced(self, turn: Grant | Claim) -> None:
        """Assert that this turn can commit nothing any more, and changes nothing by trying."""
        before = await self.view()
        answer = await self.settle(turn, setting(fenced=True))
        assert (answer.status, answer.grant) == ("fenced", None)
        assert await self.view() == before

    async def take_over(self, *, op: str | None = None, owner: str = "bob") -> Answer:
        """Take over what a free conversation has left."""
        return await self.store.take_over(self.address, owner, op, self.terms)

    async def taken(self) -> Grant:
        """Take over a conversation that has something due."""
        answer = await self.take_over()
        assert answer.status == "granted"
        assert answer.grant is not None
        return answer.grant

    async def acquire(self, *, op: str | None = None, owner: str | None = None) -> Answer:
        """Take the lease without an event."""
        return await self.store.acquire(self.address, owner or self.owner, op, self.terms)

    async def acquired(self) -> Grant:
        """Take the lease of a free conversation."""
        answer = await self.acquire()
        assert answer.status == "granted"
        assert answer.grant is not None
        return answer.grant

    async def renew(self, *turns: Grant) -> list[bool]:
        """Renew turns of this conversation."""
        return await self.store.renew([(self.address, turn.claim) for turn in turns], self.terms)

    async def release(self, turn: Grant, *, op: str | None = None) -> Answer:
        """Give a turn back."""
        return await self.store.release(self.address, turn.claim, op, self.terms)

    async def force_release(self, *, op: str | None = None) -> Answer:
        """Free the conversation, whoever holds it."""
        return await self.store.force_release(self.address, op, self.terms)

    async def bury(self, name: str, error: str = "it raised") -> int:
        """Make a dead letter of a new event; its number is the answer."""
        grant = await self.begin(name)
        answer = await self.settle(grant, verdict="dead", error=error)
        assert answer.status == "committed"
        return grant.entries[0].seq

    async def retry_dead(self, seq: int, *, op: str | None = None) -> Answer:
        """Put a dead letter back in the inbox."""
        return await self.store.retry_dead(self.address, seq, op, self.terms)

    async def drop_dead(self, seq: int, *, op: str | None = None) -> Answer:
        """Throw a dead letter away."""
        return await self.store.drop_dead(self.address, seq, op, self.terms)

    async def document(self) -> Document:
        """What the store keeps of the conversation."""
        return await self.store.load(self.address)

    async def view(self) -> tuple[Any, ...]:
        """What the store keeps, but for the details that stores may keep in their own way."""
        return view(await self.document())

    async def record(self) -> Record | None:
        """The record, as the FSM storage contract gives it."""
        return await self.store.get_state(self.address.bot, self.address.key)

    async def data(self) -> dict[str, Any] | None:
        """The data, as the FSM storage contract gives it."""
        return await self.store.get_data(self.address.bot, self.address.key)

    async def waiting(self) -> list[str | None]:
        """The ids of what waits, oldest first."""
        inbox = (await self.document()).inbox
        return [entry.event_id for entry in inbox if not entry.claimed and entry.lone_until is None]

    async def seen(self) -> list[str]:
        """The ids of the window of handled events, oldest first."""
        return list((await self.document()).seen)

    async def is_filed(self, kind: Kind) -> bool:
        """Whether a scan of *kind* lists the conversation."""
        return self.address in await gathered(self.store.scan(self.address.bot, kind))
