"""The pure heart: every promise of the library as functions of one immutable document.

A ``Document`` is all that is kept about one conversation: its record, the lease and its epoch, the inbox, the
window of seen event ids, the results of recent operations, the dead letters. Each function takes a document,
the time and whatever else it needs as arguments, and returns the next document with an answer. No I/O, no
clock, no randomness: what is written here is the specification, and every store is run in lockstep with it.

The words of the inbox. An entry is *waiting*, *claimed* (the holder of the lease runs it) or *lone* (it runs
beside the others, without a lease). A waiting entry is *due* when its ``not_before`` has come. An entry
waiting for its retry stands outside the line: later ones may pass it, unless it ``blocks``.

Validity is decided by epoch equality, never by time: a lease past its deadline that nobody took over may
still commit, one that was taken over never can, whatever any clock says.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from hitherto.document import (
    EMPTY,
    Answer,
    Claim,
    Dead,
    Document,
    Dropped,
    Entry,
    Event,
    Gather,
    Grant,
    Lease,
    Op,
    Status,
    Step,
    Terms,
    Verdict,
)
from hitherto.overlap import Burst, ByFlow, Concurrent, Debounce, Overlap, Policy, Queue, Reject
from hitherto.records import BLANK, NO_PATCH, Patch, Stored, apply

__all__ = [
    "EMPTY",
    "Answer",
    "Claim",
    "Dead",
    "Document",
    "Dropped",
    "Entry",
    "Event",
    "Gather",
    "Grant",
    "Lease",
    "Op",
    "Status",
    "Step",
    "Terms",
    "Verdict",
    "accept",
    "acquire",
    "blank_if_none",
    "depth",
    "drop_dead",
    "expire",
    "force_release",
    "forget",
    "is_bare",
    "is_blank",
    "is_busy",
    "is_repeated",
    "is_seen",
    "is_void",
    "kept",
    "live_record",
    "marked",
    "recent",
    "release",
    "remembered",
    "renew",
    "retry_dead",
    "settle",
    "take_over",
    "wake_at",
]

_CHANGES_PER_SECOND = 10_000
"""More than one document sees; in tenths of milliseconds a moment still has fewer than 15 digits."""


# ---------------------------------------------------------------------------------------------------- accept


def accept(
    document: Document, now: float, op: str | None, event: Event, overlap: Overlap, owner: str, terms: Terms
) -> Step:
    """Take an event in, in one atomic step.

    1. An id that is claimed, waiting or seen is a ``duplicate`` and changes nothing; but when the lease that
       claimed it is dead, or it waits for a retry in a free conversation, it is taken over instead.
    2. A free conversation (no lease, or one past its deadline) gives epoch + 1 and the lease; what was left
       over is claimed before the new event, oldest first.
    3. A busy one, or one whose line is held up by a retry in order, answers by its *overlap*
       policy; ``busy`` and ``full`` leave no mark, so that a redelivery is handled later.
    """
    if (again := _replayed(document, now, op)) is not None:
        return again
    if event.id is not None:
        if is_seen(document, event.id, now, terms):
            return document, _answer(document, now, "duplicate")
        for entry in document.inbox:
            if entry.event_id == event.id:
                return _redelivered(document, now, op, entry, owner, terms)
    document, dropped = _expire_entries(document, now, terms)
    policy = _policy(document, now, overlap)
    if isinstance(policy, Concurrent):
        return _accept_lone(document, now, op, event, policy, dropped, terms)
    if not (is_busy(document, now) or _window_open(document, now, policy) or _is_blocked(document, now)):
        return _accept_free(document, now, op, event, policy, owner, dropped, terms)
    return _accept_busy(document, now, op, event, policy, dropped, terms)


def _policy(document: Document, now: float, overlap: Overlap) -> Policy:
    """The policy of the flow that is active now, where flows have policies of their own."""
    if not isinstance(overlap, ByFlow):
        return overlap
    record = live_record(document, now)
    flow = None if record is None else record.flow
    return overlap.default if flow is None else overlap.flows.get(flow, overlap.default)


def _redelivered(
    document: Document, now: float, op: str | None, entry: Entry, owner: str, terms: Terms
) -> Step:
    if is_busy(document, now) or (entry.lone_until is not None and entry.lone_until > now):
        return document, _answer(document, now, "duplicate")
    if entry.attempts and entry.not_before > now and not entry.claimed:
        inbox = tuple([replace(e, not_before=now) if e.seq == entry.seq else e for e in document.inbox])
        document = replace(document, inbox=inbox)
    after, grant, dropped = _taken(document, now, owner, terms)
    if grant is None:
        return document, _answer(document, now, "duplicate")
    if any(handed.seq == entry.seq for handed in grant.entries):
        return _done(after, now, op, "granted", terms, entry.seq, grant, dropped)
    return _done(after, now, op, "duplicate", terms, -1, grant, dropped)


def _window_open(document: Document, now: float, policy: Policy) -> bool:
    """Whether the event must wait although no lease is held: a window is open, or one is to be opened."""
    if isinstance(policy, Burst) and policy.gather and policy.window > 0:
        return True
    if isinstance(policy, Burst | Debounce):
        kind = "burst" if isinstance(policy, Burst) else "debounce"
        return any(
            entry.gather == kind and entry.not_before > now and not entry.attempts for entry in document.inbox
        )
    return False


def _is_blocked(document: Document, now: float) -> bool:
    """Whether a retry that blocks holds up the line, so that a new event could not run at once."""
    for entry in document.inbox:
        if entry.lone_until is not None and entry.lone_until > now:
            continue
        if entry.not_before <= now:
            return False
        if entry.blocks:
            return True
    return False


def _accept_free(
    document: Document,
    now: float,
    op: str | None,
    event: Event,
    policy: Policy,
    owner: str,
    dropped: tuple[Dropped, ...],
    terms: Terms,
) -> Step:
    seq = document.next_seq
    gather: Gather = "burst" if isinstance(policy, Burst) else ""
    entry = Entry(seq, event.id, event.payload, now, 0, False, 0.0, None, None, gather)
    inbox = (*_unclaimed(document.inbox, now), entry)
    document = replace(document, inbox=inbox, next_seq=seq + 1)
    document, grant, more = _grant(document, now, owner, terms)
    own = grant is not None and grant.entries[-1].seq == seq
    return _done(document, now, op, "granted" if own else "queued", terms, seq, grant, dropped + more)


def _accept_lone(
    document: Document,
    now: float,
    op: str | None,
    event: Event,
    policy: Concurrent,
    dropped: tuple[Dropped, ...],
    terms: Terms,
) -> Step:
    running = sum(entry.lone_until is not None and entry.lone_until > now for entry in document.inbox)
    if running >= policy.limit:
        return _refused(document, now, op, "busy", dropped, terms)
    seq, until = document.next_seq, now + terms.lease
    entry = Entry(seq, event.id, event.payload, now, 1, False, 0.0, None, until)
    document = replace(document, inbox=(*document.inbox, entry), next_seq=seq + 1)
    grant = Grant(document.epoch, (entry,), live_record(document, now), until, lone=True)
    return _done(document, now, op, "granted", terms, seq, grant, dropped)


def _accept_busy(
    document: Document,
    now: float,
    op: str | None,
    event: Event,
    policy: Policy,
    dropped: tuple[Dropped, ...],
    terms: Terms,
) -> Step:
    waiting = [entry for entry in document.inbox if _is_waiting(entry)]
    if isinstance(policy, Reject):
        return _refused(document, now, op, "busy", dropped, terms)
    if isinstance(policy, Debounce):
        return _debounce(document, now, op, event, policy, waiting, dropped, terms)
    if len(waiting) >= policy.limit:
        return _overflow(document, now, op, event, policy, waiting, dropped, terms)
    return _enqueue(document, now, op, event, policy, waiting, dropped, terms)


def _enqueue(
    document: Document,
    now: float,
    op: str | None,
    event: Event,
    policy: Policy,
    waiting: list[Entry],
    dropped: tuple[Dropped, ...],
    terms: Terms,
) -> Step:
    not_before: float = 0.0
    expires_at: float | None = None
    gather: Gather = ""
    if isinstance(policy, Burst):
        gathering = [entry for entry in waiting if entry.gather == "burst" and not entry.attempts]
        opened = gathering[0].not_before if gathering else now + policy.window
        not_before, gather = (opened if policy.window > 0 else 0.0), "burst"
    elif isinstance(policy, Queue) and policy.expires is not None:
        expires_at = now + policy.expires
    return _append(document, now, op, event, not_before, expires_at, gather, "queued", dropped, terms)


def _overflow(
    document: Document,
    now: float,
    op: str | None,
    event: Event,
    policy: Policy,
    waiting: list[Entry],
    dropped: tuple[Dropped, ...],
    terms: Terms,
) -> Step:
    on_full = policy.on_full if isinstance(policy, Queue) else "reject"
    if on_full == "reject":
        return _refused(document, now, op, "full", dropped, terms)
    if on_full == "drop_newest":
        document = _marked(document, (event.id,), now, terms)
        return _done(document, now, op, "dropped", terms, dropped=(*dropped, Dropped(event.id, "newest")))
    oldest = waiting[0]
    inbox = tuple([entry for entry in document.inbox if entry.seq != oldest.seq])
    document = _marked(replace(document, inbox=inbox), (oldest.event_id,), now, terms)
    return _enqueue(
        document, now, op, event, policy, waiting[1:], (*dropped, Dropped(oldest.event_id, "oldest")), terms
    )


def _debounce(
    document: Document,
    now: float,
    op: str | None,
    event: Event,
    policy: Debounce,
    waiting: list[Entry],
    dropped: tuple[Dropped, ...],
    terms: Terms,
) -> Step:
    replaced = [entry for entry in waiting if entry.gather == "debounce"]
    if replaced:
        gone = {entry.seq for entry in replaced}
        inbox = tuple([entry for entry in document.inbox if entry.seq not in gone])
        document = _marked(replace(document, inbox=inbox), [entry.event_id for entry in replaced], now, terms)
        dropped += tuple([Dropped(entry.event_id, "superseded") for entry in replaced])
    return _append(
        document, now, op, event, now + policy.window, None, "debounce", "debounced", dropped, terms
    )


def _append(
    document: Document,
    now: float,
    op: str | None,
    event: Event,
    not_before: float,
    expires_at: float | None,
    gather: Gather,
    status: Status,
    dropped: tuple[Dropped, ...],
    terms: Terms,
) -> Step:
    seq = document.next_seq
    entry = Entry(seq, event.id, event.payload, now, 0, False, not_before, expires_at, None, gather)
    document = replace(document, inbox=(*document.inbox, entry), next_seq=seq + 1)
    return _done(document, now, op, status, terms, seq, None, dropped)


# ---------------------------------------------------------------------------------------- take the lease


def take_over(document: Document, now: float, op: str | None, owner: str, terms: Terms) -> Step:
    """Give a free conversation with something due to *owner*: epoch + 1, leftovers first; else ``nothing``.

    An entry that was claimed ``max_attempts`` times without ever being settled killed its workers: it becomes
    a dead letter here instead of being tried for ever. A dead lease goes in any case, so that nobody is sent
    to look at it again.
    """
    if (again := _replayed(document, now, op)) is not None:
        return again
    if is_busy(document, now):
        return document, _answer(document, now, "nothing")
    after, grant, dropped = _taken(document, now, owner, terms)
    if grant is not None:
        return _done(after, now, op, "granted", terms, grant=grant, dropped=dropped)
    if dropped or document.lease is not None:
        return _done(after, now, op, "nothing", terms, dropped=dropped)
    return document, _answer(document, now, "nothing")


def _taken(
    document: Document, now: float, owner: str, terms: Terms
) -> tuple[Document, Grant | None, tuple[Dropped, ...]]:
    """A free conversation after what is next was claimed; its dead lease is gone also when nothing was."""
    document, dropped = _expire_entries(document, now, terms)
    document = replace(document, inbox=_unclaimed(document.inbox, now))
    document, grant, more = _grant(document, now, owner, terms)
    return document, grant, dropped + more


def acquire(document: Document, now: float, op: str | None, owner: str, terms: Terms) -> Step:
    """Take the lease of a free conversation for a turn without an event; ``busy`` otherwise."""
    if (again := _replayed(document, now, op)) is not None:
        return again
    if is_busy(document, now):
        return document, _answer(document, now, "busy")
    epoch, deadline = document.epoch + 1, now + terms.lease
    inbox = _unclaimed(document.inbox, now)
    document = replace(document, epoch=epoch, lease=Lease(owner, deadline), inbox=inbox)
    grant = Grant(epoch, (), live_record(document, now), deadline)
    return _done(document, now, op, "granted", terms, grant=grant)


def _grant(
    document: Document, now: float, owner: str, terms: Terms
) -> tuple[Document, Grant | None, tuple[Dropped, ...]]:
    """Claim what is next under a new epoch; no grant when nothing is due."""
    document, claimed, dropped = _claim_next(document, now, terms)
    if not claimed:
        return replace(document, lease=None), None, dropped
    epoch, deadline = document.epoch + 1, now + terms.lease
    document = replace(document, epoch=epoch, lease=Lease(owner, deadline))
    return document, Grant(epoch, claimed, live_record(document, now), deadline), dropped


def _claim_next(
    document: Document, now: float, terms: Terms
) -> tuple[Document, tuple[Entry, ...], tuple[Dropped, ...]]:
    """Claim the oldest due entry (with the rest of its burst), burying those that were claimed too often."""
    dropped: tuple[Dropped, ...] = ()
    while True:
        chosen = _next_due(document.inbox, now)
        spent = [entry for entry in chosen if entry.attempts >= terms.max_attempts]
        if not spent:
            break
        document, gone = _buried(document, spent, "abandoned: every worker that ran it was lost", now, terms)
        dropped += gone
    if not chosen:
        return document, (), dropped
    claimed = tuple([replace(entry, claimed=True, attempts=entry.attempts + 1) for entry in chosen])
    if len(document.inbox) == len(claimed):
        return replace(document, inbox=claimed), claimed, dropped
    by_seq = {entry.seq: entry for entry in claimed}
    inbox = tuple([by_seq.get(entry.seq, entry) for entry in document.inbox])
    return replace(document, inbox=inbox), claimed, dropped


def _next_due(inbox: tuple[Entry, ...], now: float) -> list[Entry]:
    """The oldest entry that may run, with its burst up to whatever runs alone; empty when none is due."""
    chosen: list[Entry] = []
    for entry in inbox:
        if entry.claimed or entry.lone_until is not None:
            continue
        if entry.not_before > now:
            if entry.blocks:
                break
            continue
        if not chosen:
            chosen.append(entry)
            if entry.gather != "burst":
                break
        elif entry.gather == "burst":
            chosen.append(entry)
        else:
            break
    return chosen


# ---------------------------------------------------------------------------------------------- settle


def settle(
    document: Document,
    now: float,
    op: str | None,
    claim: Claim,
    terms: Terms,
    *,
    patch: Patch = NO_PATCH,
    verdict: Verdict = "done",
    not_before: float = 0.0,
    error: str = "",
    keep: bool = True,
) -> Step:
    """End a turn, in one atomic step: ``committed``, or ``fenced`` and nothing changes.

    The patch is applied and the turn's entries leave the inbox: ``done`` ids move to the seen window,
    ``retry`` ones go back to wait until *not_before* (after ``max_attempts`` they are dead), ``dead`` ones
    become dead letters and are seen. Then, if something is due and *keep* is set, it is claimed and handed
    back with the lease kept, so that nobody can slip in and nothing is stranded; otherwise the lease is
    released.
    """
    if (again := _replayed(document, now, op)) is not None:
        return again
    mine = _held(document, claim)
    if mine is None:
        return document, _answer(document, now, "fenced")
    if patch:
        document = replace(document, record=kept(apply(live_record(document, now), patch), now, terms))
    document, dropped = _settled(document, mine, verdict, not_before, error, now, terms)
    if claim.lone:
        return _done(document, now, op, "committed", terms, dropped=dropped)
    document, expired = _expire_entries(document, now, terms)
    document, grant, more = _handed_on(document, now, keep, terms)
    return _done(document, now, op, "committed", terms, grant=grant, dropped=dropped + expired + more)


def _held(document: Document, claim: Claim) -> list[Entry] | None:
    """The entries of a claim that is still good; ``None`` when it is not."""
    if claim.lone:
        mine = [e for e in document.inbox if e.seq in claim.seqs and e.lone_until is not None]
        return mine if len(mine) == 1 and mine[0].attempts == claim.attempt else None
    if document.lease is None or document.epoch != claim.epoch:
        return None
    mine = [entry for entry in document.inbox if entry.claimed]
    return mine if tuple([entry.seq for entry in mine]) == claim.seqs else None


def _settled(
    document: Document,
    mine: list[Entry],
    verdict: Verdict,
    not_before: float,
    error: str,
    now: float,
    terms: Terms,
) -> tuple[Document, tuple[Dropped, ...]]:
    if not mine:
        return document, ()
    if verdict == "done":
        gone = {entry.seq for entry in mine}
        inbox = (
            ()
            if len(gone) == len(document.inbox)
            else tuple([e for e in document.inbox if e.seq not in gone])
        )
        return _marked(replace(document, inbox=inbox), [entry.event_id for entry in mine], now, terms), ()
    spent = mine if verdict == "dead" else [entry for entry in mine if entry.attempts >= terms.max_attempts]
    back = {entry.seq for entry in mine} - {entry.seq for entry in spent}
    inbox = tuple([_waiting_again(e, not_before, terms) if e.seq in back else e for e in document.inbox])
    return _buried(replace(document, inbox=inbox), spent, error, now, terms)


def _waiting_again(entry: Entry, not_before: float, terms: Terms) -> Entry:
    return replace(
        entry,
        claimed=False,
        lone_until=None,
        not_before=not_before,
        expires_at=None,
        blocks=terms.retry_in_order,
    )


def _handed_on(
    document: Document, now: float, keep: bool, terms: Terms
) -> tuple[Document, Grant | None, tuple[Dropped, ...]]:
    lease = document.lease
    if not keep or not document.inbox or lease is None:
        return replace(document, lease=None), None, ()
    document, claimed, dropped = _claim_next(document, now, terms)
    if not claimed:
        return replace(document, lease=None), None, dropped
    deadline = now + terms.lease
    document = replace(document, lease=Lease(lease.owner, deadline))
    return document, Grant(document.epoch, claimed, live_record(document, now), deadline), dropped


def renew(document: Document, now: float, claim: Claim, terms: Terms) -> tuple[Document, bool]:
    """Push the deadline of a claim that is still good; ``False`` tells its holder that it is lost."""
    if _held(document, claim) is None:
        return document, False
    until = now + terms.lease
    if claim.lone:
        inbox = tuple([replace(e, lone_until=until) if e.seq in claim.seqs else e for e in document.inbox])
        return replace(document, inbox=inbox, touched=now, version=document.version + 1), True
    owner = document.lease.owner if document.lease is not None else ""
    lease = Lease(owner, until)
    return replace(document, lease=lease, touched=now, version=document.version + 1), True


def release(document: Document, now: float, op: str | None, claim: Claim, terms: Terms) -> Step:
    """Give a turn back unrun: its entries wait again, the attempt is not counted, the lease is free."""
    if (again := _replayed(document, now, op)) is not None:
        return again
    mine = _held(document, claim)
    if mine is None:
        return document, _answer(document, now, "fenced")
    back = {entry.seq for entry in mine}
    inbox = tuple([_given_back(entry) if entry.seq in back else entry for entry in document.inbox])
    lease = document.lease if claim.lone else None
    document = replace(document, inbox=inbox, lease=lease)
    return _done(document, now, op, "released", terms)


def _given_back(entry: Entry) -> Entry:
    return replace(entry, claimed=False, lone_until=None, attempts=max(entry.attempts - 1, 0))


def force_release(document: Document, now: float, op: str | None, terms: Terms) -> Step:
    """Free a stuck conversation: epoch + 1 fences whoever held it, what it was running waits again."""
    if (again := _replayed(document, now, op)) is not None:
        return again
    if document.lease is None and not any(entry.lone_until is not None for entry in document.inbox):
        return document, _answer(document, now, "nothing")
    inbox = tuple([replace(e, claimed=False, lone_until=None) for e in document.inbox])
    document = replace(document, epoch=document.epoch + 1, lease=None, inbox=inbox)
    return _done(document, now, op, "released", terms)


# ------------------------------------------------------------------------------------------- housekeeping


def expire(document: Document, now: float, terms: Terms) -> Document:
    """Drop what is over: an expired record, old seen ids and results, a dead lease with nothing behind it.

    The epoch stays, so that a late commit is fenced; see :func:`is_void` for when the document itself may go.
    """
    record = live_record(document, now)
    horizon = now - terms.seen_age
    seen = document.seen
    if seen and next(iter(seen.values())) <= horizon:
        seen = {event_id: at for event_id, at in seen.items() if at > horizon}
    ops = tuple([op for op in document.ops if op.at > now - terms.ops_age])
    epoch, lease = document.epoch, document.lease
    if lease is not None and lease.deadline <= now and not document.inbox:
        epoch, lease = epoch + 1, None
    after = replace(document, record=record, seen=seen, ops=ops, epoch=epoch, lease=lease)
    return document if after == document else replace(after, version=document.version + 1)


def is_void(document: Document, now: float, terms: Terms) -> bool:
    """Whether nothing is kept and the epoch has been kept long enough to fence whoever was late."""
    return is_bare(document) and (document.epoch == 0 or document.touched <= now - terms.tombstone)


def is_blank(document: Document) -> bool:
    """Whether nothing is kept and nobody ever held it: it may be removed at once."""
    return document.epoch == 0 and is_bare(document)


def is_bare(document: Document) -> bool:
    """Whether nothing is kept but the epoch."""
    return (
        document.record is None
        and document.lease is None
        and not (document.inbox or document.seen or document.ops or document.dead)
    )


def forget(document: Document, now: float) -> Document:
    """Erase everything about the conversation; epoch + 1, so that whoever runs it cannot bring it back."""
    return Document(
        version=document.version + 1, epoch=document.epoch + 1, next_seq=document.next_seq, touched=now
    )


def retry_dead(document: Document, now: float, op: str | None, seq: int, terms: Terms) -> Step:
    """Put a dead letter back in the inbox, with its attempts forgotten."""
    if (again := _replayed(document, now, op)) is not None:
        return again
    letter = next((dead for dead in document.dead if dead.seq == seq), None)
    if letter is None:
        return document, _answer(document, now, "nothing")
    entry = Entry(seq, letter.event_id, letter.payload, letter.accepted_at)
    inbox = tuple(sorted((*document.inbox, entry), key=_by_seq))
    seen = document.seen
    if letter.event_id in seen:
        seen = {event_id: at for event_id, at in seen.items() if event_id != letter.event_id}
    dead = tuple([dead for dead in document.dead if dead.seq != seq])
    return _done(replace(document, inbox=inbox, dead=dead, seen=seen), now, op, "queued", terms, seq)


def drop_dead(document: Document, now: float, op: str | None, seq: int, terms: Terms) -> Step:
    """Throw a dead letter away; its id stays seen."""
    if (again := _replayed(document, now, op)) is not None:
        return again
    dead = tuple([letter for letter in document.dead if letter.seq != seq])
    if len(dead) == len(document.dead):
        return document, _answer(document, now, "nothing")
    return _done(replace(document, dead=dead), now, op, "dropped", terms, seq)


def remembered(
    document: Document, now: float, op: str | None, record: Stored | None, terms: Terms
) -> Document:
    """The document with another record: what the FSM storage contract writes.

    A document that begins here begins at a version of its own time: the one before it at this address may
    have been dropped as blank, and whoever still holds a version of that one must not succeed with it.
    """
    after = _done(replace(document, record=kept(record, now, terms)), now, op, "committed", terms)[0]
    return after if document.version else replace(after, version=max(1, int(now * _CHANGES_PER_SECOND)))


def is_repeated(document: Document, op: str | None) -> bool:
    """Whether *op* was applied before."""
    return op is not None and any(done.id == op for done in document.ops)


# ---------------------------------------------------------------------------------------------- questions


def is_busy(document: Document, now: float) -> bool:
    """Whether somebody holds the conversation by a lease that is not past its deadline."""
    lease = document.lease
    return lease is not None and lease.deadline > now


def is_seen(document: Document, event_id: str, now: float, terms: Terms) -> bool:
    """Whether the id is in the window of handled events."""
    at = document.seen.get(event_id)
    return at is not None and at > now - terms.seen_age


def live_record(document: Document, now: float) -> Stored | None:
    """The record, unless it has expired."""
    record = document.record
    if record is not None and record.expires_at is not None and record.expires_at <= now:
        return None
    return record


def depth(document: Document) -> int:
    """How many events wait."""
    return sum(_is_waiting(entry) for entry in document.inbox) if document.inbox else 0


def wake_at(document: Document) -> float | None:
    """When somebody must look at the conversation again, if nothing else happens; ``None``: never.

    Never before there is something to do: while a lease lives only its holder can do anything, and nothing
    passes an entry that blocks.
    """
    if document.lease is not None:
        return document.lease.deadline
    times: list[float] = []
    for entry in document.inbox:
        times.append(entry.not_before if entry.lone_until is None else entry.lone_until)
        if entry.blocks:
            break
    return min(times) if times else None


# ------------------------------------------------------------------------------------------------- pieces


def _is_waiting(entry: Entry) -> bool:
    return not entry.claimed and entry.lone_until is None


def _by_seq(entry: Entry) -> int:
    return entry.seq


def _unclaimed(inbox: tuple[Entry, ...], now: float) -> tuple[Entry, ...]:
    """The inbox of a free conversation: what a dead lease had claimed waits again, dead lone ones too."""
    if not inbox:
        return inbox
    return tuple(
        [
            replace(entry, claimed=False, lone_until=None)
            if entry.claimed or (entry.lone_until is not None and entry.lone_until <= now)
            else entry
            for entry in inbox
        ]
    )


def _expire_entries(document: Document, now: float, terms: Terms) -> tuple[Document, tuple[Dropped, ...]]:
    """Take out waiting entries that are past their time; they never count against a limit."""
    stale = [e for e in document.inbox if e.expires_at is not None and e.expires_at <= now and _is_waiting(e)]
    if not stale:
        return document, ()
    gone = {entry.seq for entry in stale}
    inbox = tuple([entry for entry in document.inbox if entry.seq not in gone])
    document = _marked(replace(document, inbox=inbox), [entry.event_id for entry in stale], now, terms)
    return document, tuple([Dropped(entry.event_id, "expired") for entry in stale])


def marked(seen: dict[str, float], ids: Iterable[str | None], now: float, terms: Terms) -> dict[str, float]:
    """The seen window with *ids* in it, newest last, bounded by count and by age."""
    seen = dict(seen)
    for event_id in ids:
        if event_id is not None:
            seen.pop(event_id, None)
            seen[event_id] = now
    horizon = now - terms.seen_age
    while seen:
        oldest = next(iter(seen))
        if len(seen) <= terms.seen_limit and seen[oldest] > horizon:
            break
        del seen[oldest]
    return seen


def _marked(document: Document, ids: Iterable[str | None], now: float, terms: Terms) -> Document:
    return replace(document, seen=marked(document.seen, ids, now, terms))


def _buried(
    document: Document, spent: list[Entry], error: str, now: float, terms: Terms
) -> tuple[Document, tuple[Dropped, ...]]:
    """Move entries to the dead letters, bounded: the oldest letters give way."""
    if not spent:
        return document, ()
    gone = {entry.seq for entry in spent}
    inbox = tuple([entry for entry in document.inbox if entry.seq not in gone])
    letters = [Dead(e.seq, e.event_id, e.payload, e.accepted_at, e.attempts, error, now) for e in spent]
    dead = (*document.dead, *letters)
    dropped = [Dropped(entry.event_id, "dead") for entry in spent]
    over = max(len(dead) - terms.dead_limit, 0)
    dropped += [Dropped(letter.event_id, "dead-limit") for letter in dead[:over]]
    document = replace(document, inbox=inbox, dead=dead[over:])
    return _marked(document, [entry.event_id for entry in spent], now, terms), tuple(dropped)


def kept(record: Stored | None, now: float, terms: Terms) -> Stored | None:
    """The record with its time to live, if records have one."""
    if record is None or terms.record_ttl is None:
        return record
    return replace(record, expires_at=now + terms.record_ttl)


def _answer(document: Document, now: float, status: Status) -> Answer:
    """An answer that changed nothing."""
    return Answer(status, -1, None, depth(document), wake_at(document), (), now)


def _refused(
    document: Document, now: float, op: str | None, status: Status, dropped: tuple[Dropped, ...], terms: Terms
) -> Step:
    """The event leaves no mark; a change all the same when entries expired on the way."""
    if dropped:
        return _done(document, now, op, status, terms, dropped=dropped)
    return document, _answer(document, now, status)


def _done(
    document: Document,
    now: float,
    op: str | None,
    status: Status,
    terms: Terms,
    seq: int = -1,
    grant: Grant | None = None,
    dropped: tuple[Dropped, ...] = (),
) -> Step:
    """The changed document, one version on, with the result noted under its operation id."""
    ops = document.ops
    if op is not None:
        seqs = () if grant is None else tuple([entry.seq for entry in grant.entries])
        lone = grant is not None and grant.lone
        epoch = 0 if grant is None else (-1 if lone else grant.epoch)
        ops = (*recent(ops, now, terms), Op(op, now, status, epoch, seq, seqs))
    document = replace(document, version=document.version + 1, ops=ops, touched=now)
    return document, Answer(status, seq, grant, depth(document), wake_at(document), dropped, now)


def recent(ops: tuple[Op, ...], now: float, terms: Terms) -> tuple[Op, ...]:
    """The results that are still worth keeping beside a new one."""
    if not ops:
        return ops
    if len(ops) >= terms.ops_limit:
        ops = ops[len(ops) - terms.ops_limit + 1 :]
    if ops and ops[0].at <= now - terms.ops_age:
        ops = tuple([done for done in ops if done.at > now - terms.ops_age])
    return ops


def _replayed(document: Document, now: float, op: str | None) -> Step | None:
    """What *op* answered the first time; its grant is remade from the entries it still holds."""
    if op is None:
        return None
    for done in document.ops:
        if done.id == op:
            grant = _regranted(document, done) if done.epoch else None
            return document, Answer(done.status, done.seq, grant, depth(document), wake_at(document), (), now)
    return None


def _regranted(document: Document, done: Op) -> Grant:
    """The grant again; without its entries when the lease was lost since, and then it can commit nothing."""
    if done.epoch < 0:
        entries = tuple([e for e in document.inbox if e.seq in done.seqs and e.lone_until is not None])
        until = next((e.lone_until for e in entries if e.lone_until is not None), 0.0)
        return Grant(document.epoch, entries, document.record, until, lone=True)
    if document.lease is None or document.epoch != done.epoch:
        return Grant(done.epoch, (), document.record, 0.0)
    entries = tuple([entry for entry in document.inbox if entry.seq in done.seqs and entry.claimed])
    return Grant(done.epoch, entries, document.record, document.lease.deadline)


def blank_if_none(record: Stored | None) -> Stored:
    """A record to start from."""
    return BLANK if record is None else record
