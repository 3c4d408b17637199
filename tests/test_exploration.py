"""The protocol, explored completely in small worlds; and spoiled protocols, each caught by the explorer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from explore_protocol import NOW, Budget, Explorer, Hand, Sent, Setting, Violation, World
from hitherto import protocol
from hitherto.overlap import Burst, Reject
from hitherto.protocol import Answer, Claim, Document, Entry, Terms

ENDLESS = Terms(max_attempts=1_000_000)
IN_ORDER = Terms(max_attempts=1_000_000, retry_in_order=True)

WORLDS = {
    "3 workers, 3 events, 2 crashes, 2 lease ends": Setting(),
    "given back, forced": Setting(budget=Budget(2, 2, 1, 1)),
    "a handler fails": Setting(budget=Budget(2, 2, 0, 1, 1)),
    "two handlers fail, retried in order": Setting(budget=Budget(2, 2, 0, 0, 2), terms=IN_ORDER),
    "a reply is lost": Setting(budget=Budget(2, 2, 0, 0, 0, 1)),
    "everything once": Setting(events=2, budget=Budget(1, 1, 1, 1, 1, 1)),
    "rejected while busy": Setting(budget=Budget(2, 2, 1, 1), policy=Reject()),
    "folded in bursts": Setting(budget=Budget(2, 2, 1, 1), policy=Burst(0)),
}


@pytest.mark.parametrize("name", WORLDS)
def test_no_interleaving_breaks_the_promise(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    report = Explorer(WORLDS[name]).run()
    with capsys.disabled():
        print(f"\n  {name}: {report}", end="")
    assert report.states > 500
    assert report.at_rest > 10


@pytest.mark.parametrize(
    "setting", [Setting(), Setting(2, 3, Budget(1, 1, 1, 1)), Setting(2, 3, Budget(1, 1, 0, 0, 1, 1))]
)
def test_the_reduction_leaves_nothing_out(setting: Setting, capsys: pytest.CaptureFixture[str]) -> None:
    """With workers that have names and epochs as they are, the search meets the states of the reduced one."""
    reduced, plain = Explorer(setting).run(), Explorer(setting, canonical=False).run()
    with capsys.disabled():
        print(f"\n  nothing reduced: {plain}", end="")
    assert plain.states > reduced.states
    assert plain.reduced == reduced.states


# ------------------------------------------------------------------------------------------- the controls


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


LOSING = Setting(budget=Budget(1, 1, 0, 0, 0, 1))
SPOILED: dict[str, tuple[Callable[[Callable[[str, Any], None]], None], Setting, str]] = {
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
    "force release frees nothing else": (
        _force_release_frees_nothing_else,
        Setting(budget=Budget(0, 0, 0, 1)),
        "never drained",
    ),
}


@pytest.mark.parametrize("name", SPOILED)
def test_a_spoiled_protocol_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    spoil, setting, kind = SPOILED[name]
    spoil(lambda attribute, value: monkeypatch.setattr(protocol, attribute, value))
    with pytest.raises(Violation, match=kind):
        Explorer(setting, canonical=False).run(limit=200_000)


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


@pytest.mark.parametrize("done_first", [True, False])
def test_a_commit_in_two_steps_is_caught(done_first: bool) -> None:
    with pytest.raises(Violation):
        TwoSteps(done_first).run(limit=200_000)
