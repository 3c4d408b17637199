"""The document of a conversation, and what operations say about it: plain immutable values.

:mod:`hitherto.protocol` says what is done with them.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from hitherto.records import Stored

Status: TypeAlias = Literal[
    "granted",
    "duplicate",
    "queued",
    "debounced",
    "busy",
    "full",
    "dropped",
    "nothing",
    "committed",
    "fenced",
    "released",
]
Verdict: TypeAlias = Literal["done", "retry", "dead"]
Gather: TypeAlias = Literal["", "burst", "debounce"]


class Terms(msgspec.Struct, frozen=True):
    """The limits a keeper works under; they travel with every operation, so that stores have none of their
    own.
    """

    lease: float = 30.0
    max_attempts: int = 5
    seen_limit: int = 1000
    seen_age: float = 172_800.0
    ops_limit: int = 64
    ops_age: float = 600.0
    dead_limit: int = 100
    record_ttl: float | None = None
    tombstone: float = 172_800.0
    retry_in_order: bool = False


class Event(msgspec.Struct, frozen=True):
    """One event as stores see it: an id for deduplication, or none, and the JSON bytes of the update."""

    id: str | None
    payload: bytes

    def __repr__(self) -> str:
        return f"Event(<{len(self.payload)} bytes>)"


class Entry(msgspec.Struct, frozen=True, gc=False, array_like=True, omit_defaults=True):
    """An event in the inbox."""

    seq: int
    event_id: str | None
    payload: bytes
    accepted_at: float
    attempts: int = 0
    claimed: bool = False
    not_before: float = 0.0
    expires_at: float | None = None
    lone_until: float | None = None
    gather: Gather = ""
    blocks: bool = False

    def __repr__(self) -> str:
        kind = "lone" if self.lone_until is not None else "claimed" if self.claimed else "waiting"
        return f"Entry(#{self.seq} {kind}, attempts={self.attempts}, <{len(self.payload)} bytes>)"


class Lease(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Who may commit, and until when others leave it alone."""

    owner: str
    deadline: float


class Dead(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A dead letter: an event that was given up, with its payload and the last error."""

    seq: int
    event_id: str | None
    payload: bytes
    accepted_at: float
    attempts: int
    error: str
    died_at: float

    def __repr__(self) -> str:
        return f"Dead(#{self.seq}, attempts={self.attempts}, <{len(self.payload)} bytes>)"


class Op(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """What an operation answered, kept so that a repeat after a lost reply answers the same."""

    id: str
    at: float
    status: Status
    epoch: int = 0
    seq: int = -1
    seqs: tuple[int, ...] = ()


class Document(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Everything kept about one conversation; ``version`` counts its changes."""

    version: int = 0
    epoch: int = 0
    lease: Lease | None = None
    record: Stored | None = None
    inbox: tuple[Entry, ...] = ()
    next_seq: int = 1
    seen: dict[str, float] = {}
    ops: tuple[Op, ...] = ()
    dead: tuple[Dead, ...] = ()
    touched: float = 0.0


EMPTY = Document()


class Claim(msgspec.Struct, frozen=True, gc=False):
    """What a worker shows to commit: its epoch and the entries it was handed (with the attempt, for a lone
    one).
    """

    epoch: int
    seqs: tuple[int, ...] = ()
    lone: bool = False
    attempt: int = 0


class Grant(msgspec.Struct, frozen=True, gc=False):
    """The right to run one turn: its entries (oldest first, the newest is the event) and the record to start
    from.
    """

    epoch: int
    entries: tuple[Entry, ...]
    record: Stored | None
    deadline: float
    lone: bool = False

    @property
    def claim(self) -> Claim:
        """What to show when the turn is settled."""
        entries = self.entries
        if len(entries) == 1:
            return Claim(self.epoch, (entries[0].seq,), self.lone, entries[0].attempts)
        return Claim(self.epoch, tuple([entry.seq for entry in entries]), self.lone)


class Dropped(msgspec.Struct, frozen=True, gc=False):
    """An event that was given up by a policy, and why: never silently."""

    event_id: str | None
    reason: Literal["expired", "oldest", "newest", "superseded", "dead", "dead-limit"]


class Answer(msgspec.Struct, frozen=True, gc=False):
    """What an operation did: to the event (``seq`` is its place), to the line (``depth``), and what to run
    next.

    ``at`` is the store's time of the answer; ``wake_at`` is the time at which somebody must look at this
    conversation again, if nothing else happens.
    """

    status: Status
    seq: int = -1
    grant: Grant | None = None
    depth: int = 0
    wake_at: float | None = None
    dropped: tuple[Dropped, ...] = ()
    at: float = 0.0


Step: TypeAlias = tuple[Document, Answer]
