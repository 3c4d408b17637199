"""Wrong variants of the protocol, and what catches each of them without chance.

The first kind is a protocol with a part exchanged: the explorer goes through every interleaving of a small
world until a promise is broken. The second is a commit in two steps. The third is a store of ``tests/kit``
that is wrong in this way, and the clause of the public kit that it breaks. The harness, which goes by chance,
has a few of its own in ``hitherto.testing.chaos.spoiled``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from explore_protocol import NOW, Budget, Explorer, Hand, Sent, Setting, World
from hitherto import protocol
from hitherto.overlap import Burst, Concurrent, Reject
from hitherto.protocol import Answer, Claim, Document, Entry, Terms

ENDLESS = Terms(max_attempts=1_000_000)
IN_ORDER = Terms(max_attempts=1_000_000, retry_in_order=True)


# ------------------------------------------------------------------------------- a part of it is exchanged


def _no_epoch_check(patch: Callable[[str, Any], None]) -> None:
    patch("_held", lambda document, claim: [e for e in document.inbox if e.seq in claim.seqs])


def _counted_claims(patch: Callable[[str, Any], None]) -> None:
    """A claim is compared by the number of its entries, and a take over keeps the epoch."""
    original = protocol._grant

    def held(document: Document, claim: Claim) -> list[Entry] | None:
        mine = [entry for entry in document.inbox if entry.claimed]
        free = document.lease is None or document.epoch != claim.epoch
        return None if free or len(mine) != len(claim.seqs) else mine

    def grant(document: Document, *rest: Any) -> Any:
        epoch, died = document.epoch, document.lease is not None
        document, given, dropped = original(document, *rest)
        if given is not None and died:
            document, given = replace(document, epoch=epoch), replace(given, epoch=epoch)
        return document, given, dropped

    patch("_held", held)
    patch("_grant", grant)


def _patched_before_the_check(patch: Callable[[str, Any], None]) -> None:
    original = protocol.settle

    def settle(document: Document, *rest: Any, **named: Any) -> protocol.Step:
        after, answer = original(document, *rest, **named)
        if answer.status == "fenced" and "patch" in named:
            after = replace(document, record=protocol.apply(document.record, named["patch"]))
        return after, answer

    patch("settle", settle)


def _popped_when_claimed(patch: Callable[[str, Any], None]) -> None:
    """What is handed out leaves the inbox at once and counts as seen: mark seen, lock, pop."""
    original = protocol._claim_next

    def claim_next(document: Document, now: float, terms: Terms) -> Any:
        document, claimed, dropped = original(document, now, terms)
        inbox = tuple([entry for entry in document.inbox if not entry.claimed])
        ids = [entry.event_id for entry in claimed]
        return protocol._marked(replace(document, inbox=inbox), ids, now, terms), claimed, dropped

    def held(document: Document, claim: Claim) -> list[Entry] | None:
        return None if document.lease is None or document.epoch != claim.epoch else []

    patch("_claim_next", claim_next)
    patch("_held", held)


def _seen_before_inbox(patch: Callable[[str, Any], None]) -> None:
    """An event that finds the conversation busy is marked although it was not kept."""
    original = protocol._accept_busy

    def accept_busy(document: Document, now: float, *rest: Any) -> protocol.Step:
        after, answer = original(document, now, *rest)
        event, terms = rest[1], rest[-1]
        return protocol._marked(replace(document, version=after.version), [event.id], now, terms), answer

    patch("_accept_busy", accept_busy)


def _drain_then_release(patch: Callable[[str, Any], None]) -> None:
    """A commit frees the lease without looking again, and nobody sweeps conversations without a lease."""
    take_over = protocol.take_over

    def swept(document: Document, *rest: Any) -> protocol.Step:
        return take_over(document, *rest) if document.lease is not None else (document, Answer("nothing"))

    patch("_handed_on", lambda document, now, keep, terms: (replace(document, lease=None), None, ()))
    patch("take_over", swept)


def _epoch_reset(patch: Callable[[str, Any], None]) -> None:
    """An idle conversation forgets its counters, as if its keys were deleted."""
    original = protocol._handed_on

    def handed_on(*given: Any) -> Any:
        document, grant, dropped = original(*given)
        idle = document.lease is None and not document.inbox
        return (replace(document, epoch=0, next_seq=1) if idle else document), grant, dropped

    patch("_handed_on", handed_on)


def _newest_first(patch: Callable[[str, Any], None]) -> None:
    original = protocol._next_due
    patch("_next_due", lambda inbox, now: original(inbox[::-1], now))


def _done_leaves_no_mark(patch: Callable[[str, Any], None]) -> None:
    patch("_marked", lambda document, ids, now, terms: document)


def _operation_ids_ignored(patch: Callable[[str, Any], None]) -> None:
    patch("_replayed", lambda document, now, op: None)


def _leases_for_ever(patch: Callable[[str, Any], None]) -> None:
    patch("is_busy", lambda document, now: document.lease is not None)


def _given_back_to_the_end(patch: Callable[[str, Any], None]) -> None:
    original = protocol.release

    def release(document: Document, *rest: Any) -> protocol.Step:
        after, answer = original(document, *rest)
        return replace(after, inbox=after.inbox[1:] + after.inbox[:1]), answer

    patch("release", release)


def _waiting_is_no_duplicate(patch: Callable[[str, Any], None]) -> None:
    original = protocol.accept

    def accept(document: Document, now: float, op: str | None, event: protocol.Event, *rest: Any) -> Any:
        fresh = replace(event, id=None) if event.id not in document.seen else event
        after, answer = original(document, now, op, fresh, *rest)
        inbox = tuple([e if e.event_id else replace(e, event_id=event.id) for e in after.inbox])
        return replace(after, inbox=inbox) if after is not document else document, answer

    patch("accept", accept)


def _retries_pass_each_other(patch: Callable[[str, Any], None]) -> None:
    original = protocol._waiting_again
    patch("_waiting_again", lambda entry, at, terms: replace(original(entry, at, terms), blocks=False))


def _force_release_frees_nothing_else(patch: Callable[[str, Any], None]) -> None:
    """A forced release deletes the lease and leaves what its holder had claimed as it was."""

    def force_release(document: Document, now: float, op: str | None, terms: Terms) -> protocol.Step:
        return replace(document, lease=None), Answer("released")

    patch("force_release", force_release)
    patch("_unclaimed", lambda inbox, now: inbox)


def _order_broken_on_recovery(patch: Callable[[str, Any], None]) -> None:
    """What a dead lease had claimed waits again, at the end of the line."""
    original = protocol._unclaimed

    def unclaimed(inbox: tuple[Entry, ...], now: float) -> tuple[Entry, ...]:
        claimed = {entry.seq for entry in inbox if entry.claimed}
        return tuple(sorted(original(inbox, now), key=lambda entry: entry.seq in claimed))

    patch("_unclaimed", unclaimed)


def _claimed_not_handed_back(patch: Callable[[str, Any], None]) -> None:
    """What a dead lease had claimed stays claimed by it."""
    patch("_unclaimed", lambda inbox, now: inbox)


def _new_events_jump_the_line(patch: Callable[[str, Any], None]) -> None:
    """An event that finds a dead lease runs before what that one left."""
    original = protocol._accept_free

    def accept_free(document: Document, now: float, *rest: Any) -> protocol.Step:
        late = tuple([replace(entry, not_before=now + 1) for entry in document.inbox])
        after, answer = original(replace(document, inbox=late), now, *rest)
        inbox = tuple([replace(entry, not_before=0.0) for entry in after.inbox])
        return replace(after, inbox=inbox), answer

    patch("_accept_free", accept_free)


def _refused_but_marked(patch: Callable[[str, Any], None]) -> None:
    """An event that is refused while the conversation is busy counts as seen all the same."""

    def refused(document: Document, now: float, op: Any, status: Any, dropped: Any, terms: Terms) -> Any:
        return protocol._done(document, now, op, status, terms, dropped=dropped)

    original = protocol._accept_busy

    def accept_busy(document: Document, now: float, op: Any, event: protocol.Event, *rest: Any) -> Any:
        marked = protocol._marked(document, [event.id], now, rest[-1])
        return original(marked, now, op, event, *rest)

    patch("_refused", refused)
    patch("_accept_busy", accept_busy)


def _a_retry_is_a_loss(patch: Callable[[str, Any], None]) -> None:
    """What failed leaves the inbox as if it were done."""
    original = protocol._settled

    def settled(document: Document, mine: Any, verdict: Any, *rest: Any) -> Any:
        return original(document, mine, "done", *rest)

    patch("_settled", settled)


def _settling_forgets_its_operation(patch: Callable[[str, Any], None]) -> None:
    original = protocol.settle
    patch("settle", lambda document, now, op, *rest, **named: original(document, now, None, *rest, **named))


def _accepting_forgets_its_operation(patch: Callable[[str, Any], None]) -> None:
    original = protocol.accept
    patch("accept", lambda document, now, op, *rest: original(document, now, None, *rest))


def _a_burst_acknowledges_its_first(patch: Callable[[str, Any], None]) -> None:
    original = protocol._settled
    patch("_settled", lambda document, mine, *rest: original(document, mine[:1], *rest))


def _swept_while_it_runs(patch: Callable[[str, Any], None]) -> None:
    """A sweeper takes what waits behind a living lease, beside its holder."""
    patch("is_busy", lambda document, now: False)
    patch("_unclaimed", lambda inbox, now: inbox)

    def held(document: Document, claim: Claim) -> list[Entry] | None:
        mine = [entry for entry in document.inbox if entry.seq in claim.seqs and entry.claimed]
        return mine or None

    patch("_held", held)


def _everything_at_once(patch: Callable[[str, Any], None]) -> None:
    """No lease at all: every event runs when it comes."""
    patch("_policy", lambda document, now, overlap: Concurrent(100))


LOSING = Setting(budget=Budget(1, 1, 0, 0, 0, 1))
BURSTS = Setting(policy=Burst(0))
Spoiler = Callable[[Callable[[str, Any], None]], None]

SPOILED: dict[str, tuple[Spoiler, Setting, str]] = {
    "no epoch check": (_no_epoch_check, Setting(), "older than one that has committed"),
    "claims counted, take over keeps the epoch": (_counted_claims, Setting(), "lost"),
    "patched before the check": (_patched_before_the_check, Setting(), "still kept"),
    "popped when claimed": (_popped_when_claimed, Setting(), "lost"),
    "seen before inbox": (_seen_before_inbox, Setting(), "lost"),
    "drain, then release": (_drain_then_release, Setting(), "never drained"),
    "epoch reset": (_epoch_reset, Setting(), "older than one that has committed"),
    "newest first": (_newest_first, Setting(), "out of order"),
    "done leaves no mark": (_done_leaves_no_mark, Setting(), "double effect|committed and still kept"),
    "operation ids ignored": (_operation_ids_ignored, LOSING, "when repeated"),
    "leases for ever": (_leases_for_ever, Setting(), "never drained"),
    "given back to the end": (_given_back_to_the_end, Setting(budget=Budget(0, 0, 1)), "out of order"),
    "waiting is no duplicate": (_waiting_is_no_duplicate, Setting(), "twice|double effect|still kept"),
    "retries pass each other": (
        _retries_pass_each_other,
        Setting(budget=Budget(0, 0, 0, 0, 1), terms=IN_ORDER),
        "out of order",
    ),
    "order broken on recovery": (_order_broken_on_recovery, Setting(), "out of order"),
    "claimed is not handed back": (_claimed_not_handed_back, Setting(), "never drained"),
    "new events jump the line": (_new_events_jump_the_line, Setting(), "out of order"),
    "refused, but marked": (_refused_but_marked, Setting(policy=Reject()), "lost"),
    "a retry is a loss": (_a_retry_is_a_loss, Setting(budget=Budget(0, 0, 0, 0, 1)), "lost"),
    "settling forgets its operation": (_settling_forgets_its_operation, LOSING, "when repeated"),
    "accepting forgets its operation": (_accepting_forgets_its_operation, LOSING, "when repeated"),
    "a burst acknowledges its first": (_a_burst_acknowledges_its_first, BURSTS, "still kept|double effect"),
    "swept while it runs": (_swept_while_it_runs, Setting(), "out of order|older than one|still kept|lost"),
    "everything at once": (_everything_at_once, Setting(), "lost|out of order|still kept"),
    "force release frees nothing else": (
        _force_release_frees_nothing_else,
        Setting(budget=Budget(0, 0, 0, 1)),
        "never drained",
    ),
}


# ---------------------------------------------------------------------------- in two steps, not one


class TwoSteps(Explorer):
    """A commit in two steps: the record is written first and the event is done after, or the reverse."""

    def __init__(self, done_first: bool) -> None:
        super().__init__(Setting())
        self.done_first = done_first

    def _turn_steps(self, world: World, hand: Hand, others: tuple[Hand, ...]) -> Any:
        if protocol._held(world.document, hand.claim) is None:
            yield "commit:fenced", world._replace(hands=others)
            return
        document = self._half(world.document, hand, first=True)
        sent = Sent("half", "", "", None)
        yield "commit:half", world._replace(document=document, hands=(*others, hand._replace(sent=sent)))

    def _asked_again(self, world: World, hand: Hand, others: tuple[Hand, ...]) -> World:
        return world._replace(document=self._half(world.document, hand, first=False), hands=others)

    def _half(self, document: Document, hand: Hand, first: bool) -> Document:
        if first != self.done_first:
            return replace(document, record=protocol.apply(document.record, hand.patch))
        return protocol.settle(document, NOW, None, hand.claim, ENDLESS, keep=False)[0]


# ---------------------------------------------------------------------------------- stores that are wrong

BY_THE_KIT: dict[str, str] = {
    "check outside the write": "WritesWithoutComparing",
    "compare, then write": "ComparesThenWrites",
    "accept, then write": "AcceptsThenWrites",
    "look, then release": "LooksThenReleases",
    "client clock": "ClocksOfTheirOwn",
    "validity by the clock": "ValidByTheClock",
    "no renewal": "renewing_does_nothing",
    "late holders lose": "late_is_fenced",
    "stale take-over": "takes_over_the_living",
    "take over keeps the epoch": "taking_over_leaves_the_epoch",
    "force release keeps the epoch": "freeing_leaves_the_epoch",
    "epoch reset on delete": "ForgetsTheEpoch",
    "epochs forgotten with age": "BuriesItsEpochs",
    "epochs in the worker's memory": "EpochsInMemory",
    "leases in the worker's memory": "LeasesInMemory",
    "release without an owner check": "anybody_may_release",
    "joined keys": "JoinedWithColons",
    "keys without types": "KeysWithoutTypes",
    "one window for all conversations": "OneWindowForAll",
    "the window keeps no order": "LosesTheSeenOrder",
    "the queue's limit counts what expired": "expired_entries_count",
    "the queue's limit is not kept": "FullTakesItAnyway",
    "dropped in silence": "drops_silently",
    "dropped without a mark": "drops_without_a_mark",
    "a commit is the whole record": "CommitsTheWholeRecord",
    "attempts without end": "tries_for_ever",
    "the last operation only": "RemembersTheLastOnly",
    "a grant again after it was lost": "GrantsForEver",
}
"""By the name of the store in ``tests/kit``; it names the clauses that have to catch it."""
