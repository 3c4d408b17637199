"""Mistakes that writing the kit brought to light in the protocol, each as small as it gets."""

from __future__ import annotations

from hitherto import protocol
from hitherto.addresses import Address
from hitherto.overlap import Burst, Queue, Reject
from hitherto.protocol import EMPTY, Claim, Event, Terms
from hitherto.stores.base import Store
from hitherto.testing import ManualClock

TERMS = Terms(lease=30.0)


def event(name):
    return Event(name, b"{}")


def accepted(document, now, name, policy=None, op=None, terms=TERMS):
    return protocol.accept(document, now, op, event(name), policy or Queue(), "w", terms)


def test_a_claim_is_good_for_its_own_entries_only_though_the_epoch_goes_on():
    document, first = accepted(EMPTY, 0, "a")
    document, _ = accepted(document, 0, "b")
    document, handed = protocol.settle(document, 1, None, first.grant.claim, TERMS)
    assert handed.grant.epoch == first.grant.epoch
    after, answer = protocol.settle(document, 2, None, first.grant.claim, TERMS)
    assert answer.status == "fenced"
    assert after is document


def test_a_refusal_that_drops_expired_entries_is_a_new_version():
    for policy, status in ((Reject(), "busy"), (Queue(1), "full")):
        document, _ = accepted(EMPTY, 0, "a")
        document, _ = accepted(document, 0, "b")
        document, _ = accepted(document, 0, "old", Queue(expires=1))
        after, answer = accepted(document, 5, "c", policy, "op")
        assert answer.status == status
        assert [drop.event_id for drop in answer.dropped] == ["old"]
        assert after.version == document.version + 1


def test_a_redelivery_that_took_over_is_repeated_as_it_was():
    document, _ = accepted(EMPTY, 0, "a")
    document, _ = accepted(document, 0, "b")
    for name in "ab":
        after, first = accepted(document, 40, name, op="op")
        again = accepted(after, 41, name, op="op")[1]
        assert (again.status, again.seq) == (first.status, first.seq)
        assert again.grant.entries == first.grant.entries


def test_nobody_is_woken_for_what_waits_behind_a_retry_in_order():
    terms = Terms(lease=30.0, retry_in_order=True)
    document, first = accepted(EMPTY, 0, "a", terms=terms)
    document, _ = accepted(document, 0, "b", terms=terms)
    document, answer = protocol.settle(
        document, 1, None, first.grant.claim, terms, verdict="retry", not_before=60.0
    )
    assert answer.wake_at == 60.0


def test_a_line_held_up_by_a_retry_in_order_is_bounded_by_the_policy():
    terms = Terms(lease=30.0, retry_in_order=True)
    document, first = accepted(EMPTY, 0, "a", terms=terms)
    document, _ = protocol.settle(
        document, 1, None, first.grant.claim, terms, verdict="retry", not_before=60.0
    )
    assert accepted(document, 2, "b", Reject(), terms=terms)[1].status == "busy"
    assert accepted(document, 2, "b", Queue(1), terms=terms)[1].status == "full"
    assert accepted(document, 2, "b", Queue(2), terms=terms)[1].status == "queued"


def test_a_dead_lease_with_nothing_due_is_freed_by_whoever_looks():
    document, _ = protocol.acquire(EMPTY, 0, None, "w", TERMS)
    document, answer = protocol.take_over(document, 40, None, "v", TERMS)
    assert answer.status == "nothing"
    assert answer.wake_at is None
    assert protocol.settle(document, 41, None, Claim(1), TERMS)[1].status == "fenced"


def test_a_burst_does_not_reach_over_what_was_accepted_in_between():
    document, first = accepted(EMPTY, 0, "a")
    for name, policy in (("b", Burst()), ("c", Queue()), ("d", Burst())):
        document, _ = accepted(document, 0, name, policy)
    answer = protocol.settle(document, 1, None, first.grant.claim, TERMS)[1]
    assert [entry.event_id for entry in answer.grant.entries] == ["b"]


async def test_expire_of_a_plain_store_goes_round():
    class Plain(Store):
        def __init__(self, clock):
            super().__init__(clock=clock)
            self.documents = {}

        async def open(self): ...
        async def close(self): ...
        async def load(self, address):
            return self.documents.get(address, EMPTY)

        async def swap(self, address, expected_version, document):
            self.documents[address] = document
            return True

        async def scan(self, bot, kind):
            for address in list(self.documents):
                yield address

    clock = ManualClock()
    store = Plain(clock)
    for number in range(5):
        await store.acquire(Address("bot", "", (number,)), "w", None, TERMS)
    clock.advance(31)
    assert [await store.expire("bot", 2, TERMS) for _ in range(4)] == [2, 2, 1, 0]
