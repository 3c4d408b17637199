"""What is hard to see of the protocol through a store: bounds, counters, when to look again, replays."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from hitherto import protocol
from hitherto.overlap import Burst, Concurrent, Debounce, Policy, Queue, Reject
from hitherto.protocol import EMPTY, Answer, Claim, Document, Event, Grant, Terms
from hitherto.records import Patch, Stored

TERMS = Terms(lease=10, max_attempts=3, seen_limit=3, seen_age=60, ops_limit=4, ops_age=40, dead_limit=2)
POLICIES: list[Policy] = [
    Queue(),
    Queue(limit=2, on_full="drop_oldest"),
    Queue(limit=1, on_full="drop_newest"),
    Queue(expires=7),
    Reject(),
    Debounce(5),
    Burst(0),
    Burst(4, limit=2),
    Burst(4, gather=True),
    Concurrent(2),
]


def accept(document: Document, now: float, id: str | None, policy: Policy | None = None, **named: Any) -> Any:
    terms = named.get("terms", TERMS)
    event = Event(id, (id or "-").encode())
    return protocol.accept(document, now, named.get("op"), event, policy or Queue(), "w", terms)


def granted(answer: Answer) -> Grant:
    assert answer.grant is not None
    return answer.grant


# ------------------------------------------------------------------------- properties of every history

Act = tuple[str, int, str | None, int, str, float, str | None, bool]
ACTS = st.lists(
    st.tuples(
        st.sampled_from(
            ["accept"] * 4
            + ["settle"] * 3
            + ["take over", "acquire", "renew", "release", "force", "expire", "dead"]
        ),
        st.integers(0, len(POLICIES) - 1),
        st.sampled_from([None, "a", "b", "c", "d", "e"]),
        st.integers(0, 3),
        st.sampled_from(["done", "done", "retry", "dead"]),
        st.sampled_from([0.0, 0.0, 1.0, 4.0, 11.0, 70.0]),
        st.sampled_from([None, None, "o1", "o2", "o3", "o4", "o5", "o6"]),
        st.booleans(),
    ),
    max_size=40,
)


def step(document: Document, now: float, act: Act, claims: list[Claim], terms: Terms) -> Any:
    """One act upon a document: the next document, and its answer if it has one."""
    kind, policy, id, which, verdict, delay, op, flag = act
    claim = claims[-1 - which % len(claims)] if claims else Claim(0)
    if kind == "accept":
        return accept(document, now, id, POLICIES[policy], op=op, terms=terms)
    if kind == "settle":
        patch = Patch(set={"n": b"%d" % which}) if flag else Patch()
        named: Any = {"patch": patch, "verdict": verdict, "not_before": now + delay if delay else 0.0}
        return protocol.settle(document, now, op, claim, terms, keep=which != 3, **named)
    if kind in ("take over", "acquire"):
        take = protocol.take_over if kind == "take over" else protocol.acquire
        return take(document, now, op, "w", terms)
    if kind == "release":
        return protocol.release(document, now, op, claim, terms)
    if kind == "renew":
        return protocol.renew(document, now, claim, terms)[0], None
    if kind == "force":
        return protocol.force_release(document, now, op, terms)
    if kind == "expire":
        return protocol.expire(document, now, terms), None
    change = protocol.retry_dead if flag else protocol.drop_dead
    return change(document, now, op, which + 1, terms)


def history(acts: list[Act], terms: Terms) -> Any:
    """Every step of a history: the document before, the time, the act, the document after, its answer."""
    document, now, claims = EMPTY, 1000.0, [Claim(0)]
    for act in acts:
        now += act[5]
        after, answer = step(document, now, act, claims, terms)
        yield document, now, act, claims, after, answer
        if answer is not None and answer.grant is not None:
            claims = [*claims, answer.grant.claim]
        document = after


def check_shape(document: Document, terms: Terms) -> None:
    seqs = [entry.seq for entry in document.inbox]
    assert seqs == sorted(set(seqs))
    assert all(seq < document.next_seq for seq in [*seqs, *(dead.seq for dead in document.dead)])
    assert len(document.ops) <= terms.ops_limit
    assert len(document.seen) <= terms.seen_limit
    assert len(document.dead) <= terms.dead_limit
    assert list(document.seen.values()) == sorted(document.seen.values())
    ids = [entry.event_id for entry in document.inbox if entry.event_id is not None]
    assert len(ids) == len(set(ids))
    for entry in document.inbox:
        assert not (entry.claimed and entry.lone_until is not None)
        assert document.lease is not None or not entry.claimed


@pytest.mark.parametrize("in_order", [False, True])
@given(acts=ACTS)
def test_a_change_is_a_new_version_and_no_change_is_the_same_document(
    in_order: bool, acts: list[Act]
) -> None:
    terms = replace(TERMS, retry_in_order=in_order)
    for before, _, _, _, after, answer in history(acts, terms):
        check_shape(after, terms)
        if after is before:
            continue
        assert after.version > before.version
        assert after.epoch >= before.epoch
        assert after.next_seq >= before.next_seq
        if answer is not None:
            assert answer.depth == protocol.depth(after)
            assert answer.wake_at == protocol.wake_at(after)


@given(acts=ACTS)
def test_a_new_lease_is_a_new_epoch(acts: list[Act]) -> None:
    """Only a commit that hands on, or a repeated operation, grants under an epoch that was there before."""
    for before, _, act, _, after, answer in history(acts, TERMS):
        if answer is not None and answer.grant is not None and not answer.grant.lone and after is not before:
            assert (after.epoch == before.epoch) == (act[0] == "settle")
            assert after.lease is not None


@given(acts=ACTS)
def test_a_repeated_operation_answers_the_same_and_changes_nothing(acts: list[Act]) -> None:
    for before, now, act, claims, after, answer in history(acts, TERMS):
        if answer is None or act[6] is None or after is before:
            continue
        again, repeated = step(after, now, act, claims, TERMS)
        assert again is after
        assert (repeated.status, repeated.seq) == (answer.status, answer.seq)
        assert (repeated.grant is None) == (answer.grant is None)
        if answer.grant is not None and not protocol.is_repeated(before, act[6]):
            assert repeated.grant.claim == answer.grant.claim
            assert repeated.grant.entries == answer.grant.entries


@pytest.mark.parametrize("in_order", [False, True])
@settings(max_examples=300)
@given(acts=ACTS)
def test_wake_at_is_when_there_is_something_to_do(in_order: bool, acts: list[Act]) -> None:
    """Before it, nobody finds anything to take over; from then on somebody does, so nobody looks in vain."""
    terms = replace(TERMS, retry_in_order=in_order)
    for _, now, _, _, document, _ in history(acts, terms):
        wake = protocol.wake_at(document)
        for moment in (now, now + 3, now + 30, now + 300):
            after, answer = protocol.take_over(document, moment, None, "w", terms)
            early = wake is None or moment < wake
            assert (after is document) == early, (moment, wake, document, answer)


@given(acts=ACTS)
def test_what_is_accepted_is_kept_until_it_is_done_or_given_up(acts: list[Act]) -> None:
    """No step makes an entry vanish: it is handled, dead, or reported as dropped."""
    for before, _, act, _, after, answer in history(acts, TERMS):
        gone = {entry.seq: entry for entry in before.inbox} | {}
        for seq in [entry.seq for entry in after.inbox] + [letter.seq for letter in after.dead]:
            gone.pop(seq, None)
        dropped = () if answer is None else answer.dropped
        reported = [drop.event_id for drop in dropped if drop.reason != "dead-limit"]
        for entry in gone.values():
            done = act[0] == "settle" and act[4] == "done" and answer.status == "committed"
            assert entry.event_id in reported or (done and (entry.claimed or entry.lone_until is not None))


# ------------------------------------------------------------------------------------------------ bounds


@pytest.mark.parametrize("limit", [1, 2, 5])
def test_the_results_of_operations_are_bounded(limit: int) -> None:
    terms, document = replace(TERMS, ops_limit=limit), EMPTY
    for number in range(9):
        document, _ = accept(document, 0.0, None, op=f"op{number}", terms=terms)
    assert [done.id for done in document.ops] == [f"op{number}" for number in range(9)][-limit:]


def test_the_results_of_operations_age() -> None:
    document, _ = accept(EMPTY, 0.0, "a", op="old")
    document, _ = accept(document, 39.9, "b", op="new")
    assert [done.id for done in document.ops] == ["old", "new"]
    document, _ = accept(document, 40.0, "c", op="newest")
    assert [done.id for done in document.ops] == ["new", "newest"]


@pytest.mark.parametrize("limit", [0, 1, 2])
def test_dead_letters_are_bounded_and_the_oldest_is_reported(limit: int) -> None:
    terms, document, dropped = replace(TERMS, dead_limit=limit), EMPTY, []
    for id in "abc":
        document, answer = accept(document, 0.0, id, terms=terms)
        document, answer = protocol.settle(
            document, 0.0, None, granted(answer).claim, terms, verdict="dead", error="no"
        )
        dropped += [drop.event_id for drop in answer.dropped if drop.reason == "dead-limit"]
    assert [letter.event_id for letter in document.dead] == list("abc")[3 - limit :]
    assert dropped == list("abc")[: 3 - limit]


# ---------------------------------------------------------------------------------------------- burials


def abandon(document: Document, now: float, times: int) -> tuple[Document, float, Answer]:
    """Let a worker take over and die, so many times."""
    answer = Answer("nothing")
    for _ in range(times):
        document, answer = protocol.take_over(document, now, None, "w", TERMS)
        now += TERMS.lease
    return document, now, answer


def test_an_entry_that_killed_its_workers_is_buried_on_the_way_to_the_next() -> None:
    document, _ = accept(EMPTY, 0.0, "a")
    document, _ = accept(document, 0.0, "b")
    document, now, _ = abandon(document, 10.0, 2)
    assert [entry.attempts for entry in document.inbox] == [3, 0]
    document, answer = protocol.take_over(document, now, None, "w", TERMS)
    assert [entry.event_id for entry in granted(answer).entries] == ["b"]
    assert [(drop.event_id, drop.reason) for drop in answer.dropped] == [("a", "dead")]
    assert [(letter.event_id, letter.attempts) for letter in document.dead] == [("a", 3)]
    assert "abandoned" in document.dead[0].error


def test_a_burst_buries_only_what_was_tried_too_often() -> None:
    document, _ = accept(EMPTY, 0.0, "a", Burst(0))
    document, now, _ = abandon(document, 10.0, 2)
    document, answer = accept(document, now, "b", Burst(0))
    assert [entry.event_id for entry in granted(answer).entries] == ["b"]
    assert [letter.event_id for letter in document.dead] == ["a"]


def test_the_last_burial_frees_the_conversation() -> None:
    document, _ = accept(EMPTY, 0.0, "a")
    document, now, _ = abandon(document, 10.0, 2)
    document, answer = protocol.take_over(document, now, None, "w", TERMS)
    assert (answer.status, answer.grant, document.lease) == ("nothing", None, None)
    assert protocol.wake_at(document) is None
    assert protocol.is_seen(document, "a", now, TERMS)


def test_a_release_takes_its_attempt_back() -> None:
    document, answer = accept(EMPTY, 0.0, "a")
    for _ in range(10):
        document, _ = protocol.release(document, 0.0, None, granted(answer).claim, TERMS)
        document, answer = protocol.take_over(document, 0.0, None, "w", TERMS)
    assert [entry.attempts for entry in granted(answer).entries] == [1]


# ----------------------------------------------------------------------------------------- when to look


def test_wake_at_of_nothing_is_never() -> None:
    assert protocol.wake_at(EMPTY) is None


def test_wake_at_of_a_busy_conversation_is_its_deadline() -> None:
    document, answer = accept(EMPTY, 5.0, "a")
    assert answer.wake_at == protocol.wake_at(document) == 15.0


def test_wake_at_of_a_window_is_its_end() -> None:
    document, answer = accept(EMPTY, 5.0, "a", Burst(4, gather=True))
    document, answer = accept(document, 7.0, "b", Burst(4, gather=True))
    assert (answer.status, answer.wake_at) == ("queued", 9.0)
    document, answer = protocol.take_over(document, 9.0, None, "w", TERMS)
    assert [entry.event_id for entry in granted(answer).entries] == ["a", "b"]


def test_wake_at_looks_over_a_line_that_is_held_up() -> None:
    terms = replace(TERMS, retry_in_order=True)
    document, answer = accept(EMPTY, 0.0, "a", terms=terms)
    document, _ = accept(document, 0.0, "b", terms=terms)
    document, answer = protocol.settle(
        document, 0.0, None, granted(answer).claim, terms, verdict="retry", not_before=50.0
    )
    assert (answer.grant, answer.wake_at, document.lease) == (None, 50.0, None)
    document, answer = protocol.take_over(document, 50.0, None, "w", terms)
    assert [entry.event_id for entry in granted(answer).entries] == ["a"]


def test_wake_at_of_a_lone_turn_is_its_own_deadline() -> None:
    document, _ = accept(EMPTY, 0.0, "a", Concurrent(2))
    document, answer = accept(document, 3.0, "b", Concurrent(2))
    assert answer.wake_at == 10.0


def test_wake_at_of_a_dead_lone_turn_is_when_the_lease_ends() -> None:
    """Beside a living lease nobody can take it over, so nobody is to look again and again."""
    document, _ = accept(EMPTY, 0.0, "a", Concurrent(2))
    document, answer = accept(document, 4.0, "b")
    assert answer.wake_at == 14.0
    document, answer = protocol.settle(document, 12.0, None, granted(answer).claim, TERMS)
    assert answer.wake_at == 10.0
    _, answer = protocol.take_over(document, 12.0, None, "w", TERMS)
    assert [entry.event_id for entry in granted(answer).entries] == ["a"]


def test_wake_at_looks_over_a_dead_lone_turn_behind_a_line_that_is_held_up() -> None:
    terms = replace(TERMS, retry_in_order=True)
    document, answer = accept(EMPTY, 0.0, "a", terms=terms)
    document, _ = accept(document, 0.0, "b", Concurrent(2), terms=terms)
    document, answer = protocol.settle(
        document, 0.0, None, granted(answer).claim, terms, verdict="retry", not_before=50.0
    )
    assert answer.wake_at == 50.0
    document, answer = protocol.take_over(document, 50.0, None, "w", terms)
    assert [entry.event_id for entry in granted(answer).entries] == ["a"]


# ------------------------------------------------------------------------------------- the line, the window


def test_a_retry_in_order_comes_before_what_waited_behind_it() -> None:
    terms = replace(TERMS, retry_in_order=True)
    document, answer = accept(EMPTY, 0.0, "a", terms=terms)
    document, _ = accept(document, 0.0, "b", terms=terms)
    fail = partial(protocol.settle, verdict="retry", not_before=50.0)
    document, answer = fail(document, 0.0, None, granted(answer).claim, terms)
    document, answer = accept(document, 1.0, "c", terms=terms)
    assert (answer.status, answer.grant) == ("queued", None)
    order, now = [], 50.0
    document, answer = protocol.take_over(document, now, None, "w", terms)
    while answer.grant is not None:
        order += [entry.event_id for entry in answer.grant.entries]
        document, answer = protocol.settle(document, now, None, answer.grant.claim, terms)
    assert order == ["a", "b", "c"]


def test_a_gather_window_opens_once_and_closes_for_all() -> None:
    document, now = EMPTY, 0.0
    for id in "abc":
        document, answer = accept(document, now, id, Burst(4, gather=True))
        assert (answer.status, answer.wake_at) == ("queued", 4.0)
        now += 1
    document, answer = accept(document, 5.0, "d", Burst(4, gather=True))
    assert (answer.status, answer.wake_at) == ("queued", 4.0)
    document, answer = protocol.take_over(document, 5.0, None, "w", TERMS)
    assert [entry.event_id for entry in granted(answer).entries] == list("abcd")


def test_a_debounced_event_that_failed_is_replaced_like_one_that_waits() -> None:
    document, _ = accept(EMPTY, 0.0, "a")
    document, _ = accept(document, 0.0, "b", Debounce(5))
    document, answer = protocol.take_over(document, 10.0, None, "w", TERMS)
    document, answer = protocol.settle(document, 10.0, None, granted(answer).claim, TERMS)
    document, answer = protocol.settle(
        document, 10.0, None, granted(answer).claim, TERMS, verdict="retry", not_before=60.0
    )
    document, _ = protocol.acquire(document, 20.0, None, "w", TERMS)
    document, answer = accept(document, 20.0, "c", Debounce(5))
    assert [(drop.event_id, drop.reason) for drop in answer.dropped] == [("b", "superseded")]
    assert [entry.event_id for entry in document.inbox] == ["c"]


# --------------------------------------------------------------------------------- records and versions


def test_a_document_that_begins_again_does_not_begin_at_an_old_version() -> None:
    """A reader from before it was dropped must not succeed with the version it saw."""
    first = protocol.remembered(EMPTY, 100.0, None, Stored(), TERMS)
    assert protocol.is_blank(protocol.remembered(first, 100.5, None, None, TERMS))
    second = protocol.remembered(EMPTY, 101.0, None, Stored(), TERMS)
    assert second.version > first.version + 1
    assert len(str(protocol.remembered(EMPTY, 1.8e9, None, Stored(), TERMS).version)) < 15


def test_a_refusal_that_drops_something_is_a_change() -> None:
    document, _ = accept(EMPTY, 0.0, "a", Queue(expires=5))
    document, _ = accept(document, 0.0, "b", Queue(expires=5))
    after, answer = accept(document, 6.0, "c", Reject())
    assert (answer.status, [drop.event_id for drop in answer.dropped]) == ("busy", ["b"])
    assert after.version == document.version + 1


@settings(max_examples=50)
@given(acts=ACTS)
def test_nothing_is_a_secret_of_the_payload_in_a_repr(acts: list[Act]) -> None:
    for _, _, _, _, document, answer in history(acts, TERMS):
        shown = repr((document.inbox, document.dead, answer))
        assert "b'a'" not in shown
        assert "payload" not in shown
