"""The common case, short: an event for a conversation where nothing waits, and the end of the only turn.

Both functions answer exactly what :mod:`hitherto.protocol` answers, and hand over to it whenever the case is
not the common one; a property test holds them to that. Stores that run the protocol in this process use them.
"""

from __future__ import annotations

from typing import Final

from hitherto import protocol
from hitherto.overlap import Overlap, Queue, Reject
from hitherto.protocol import Answer, Claim, Document, Entry, Event, Grant, Lease, Op, Step, Terms, Verdict
from hitherto.records import NO_PATCH, Patch, apply

_WAIT_OR_REFUSE: Final = (Queue, Reject)


def accept(
    document: Document, now: float, op: str | None, event: Event, overlap: Overlap, owner: str, terms: Terms
) -> Step:
    """:func:`hitherto.protocol.accept`; short when nobody holds the conversation and nothing waits."""
    if (
        document.inbox
        or document.lease is not None
        or type(overlap) not in _WAIT_OR_REFUSE
        or event.id in document.seen
        or (op is not None and protocol.is_repeated(document, op))
    ):
        return protocol.accept(document, now, op, event, overlap, owner, terms)
    seq, epoch, deadline = document.next_seq, document.epoch + 1, now + terms.lease
    entry = Entry(seq, event.id, event.payload, now, 1, True)
    ops = document.ops
    if op is not None:
        ops = (*protocol.recent(ops, now, terms), Op(op, now, "granted", epoch, seq, (seq,)))
    after = Document(
        document.version + 1, epoch, Lease(owner, deadline), document.record, (entry,), seq + 1,
        document.seen, ops, document.dead, now,
    )  # fmt: skip
    grant = Grant(epoch, (entry,), protocol.live_record(document, now), deadline)
    return after, Answer("granted", seq, grant, 0, deadline, (), now)


def settle(
    document: Document, now: float, op: str | None, claim: Claim, terms: Terms, *,
    patch: Patch = NO_PATCH, verdict: Verdict = "done", not_before: float = 0.0, error: str = "",
    keep: bool = True,
) -> Step:  # fmt: skip
    """:func:`hitherto.protocol.settle`; short when the turn is done and was the only one."""
    inbox = document.inbox
    if (
        verdict != "done"
        or len(inbox) != 1
        or document.lease is None
        or document.epoch != claim.epoch
        or claim.lone
        or not inbox[0].claimed
        or claim.seqs != (inbox[0].seq,)
        or (op is not None and protocol.is_repeated(document, op))
    ):
        return protocol.settle(
            document, now, op, claim, terms,
            patch=patch, verdict=verdict, not_before=not_before, error=error, keep=keep,
        )  # fmt: skip
    record = document.record
    if patch:
        record = protocol.kept(apply(protocol.live_record(document, now), patch), now, terms)
    ops, seen = document.ops, protocol.marked(document.seen, (inbox[0].event_id,), now, terms)
    if op is not None:
        ops = (*protocol.recent(ops, now, terms), Op(op, now, "committed"))
    after = Document(
        document.version + 1, document.epoch, None, record, (), document.next_seq, seen, ops,
        document.dead, now,
    )  # fmt: skip
    return after, Answer("committed", -1, None, 0, None, (), now)
