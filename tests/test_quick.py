"""The short ways of accept and settle answer exactly what the protocol answers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hitherto import protocol, quick
from hitherto.overlap import Burst, Concurrent, Debounce, Queue, Reject
from hitherto.protocol import EMPTY, Claim, Event, Terms
from hitherto.records import Patch

TERMS = Terms(lease=10, max_attempts=2, seen_limit=3, seen_age=50, ops_limit=4, ops_age=40)
POLICIES = [Queue(), Queue(limit=1, on_full="drop_oldest"), Reject(), Burst(0), Debounce(5), Concurrent(1)]
PATCHES = [Patch(), Patch(set={"a": b"1"}), Patch(removed=("a",)), Patch(cleared=True)]
STEPS = st.tuples(
    st.sampled_from(["accept", "settle", "settle", "wait"]),
    st.sampled_from([None, "1", "2", "3", "4"]),
    st.sampled_from(POLICIES),
    st.sampled_from(PATCHES),
    st.sampled_from(["done", "done", "done", "retry", "dead"]),
    st.sampled_from([None, "op1", "op2", "op3"]),
    st.booleans(),
)


@given(st.lists(STEPS, max_size=30), st.sampled_from([None, 20.0]))
def test_quick_is_the_protocol(steps, record_ttl):
    terms = protocol.replace(TERMS, record_ttl=record_ttl)
    document, now, claim = EMPTY, 0.0, Claim(0)
    for verb, name, policy, patch, verdict, op, keep in steps:
        now += 1
        if verb == "wait":
            now += 15
            continue
        if verb == "accept":
            arguments = (document, now, op, Event(name, b"{}"), policy, "me", terms)
            after, answer = protocol.accept(*arguments)
            assert quick.accept(*arguments) == (after, answer)
        else:
            how = {"patch": patch, "verdict": verdict, "not_before": now + 3, "keep": keep}
            after, answer = protocol.settle(document, now, op, claim, terms, **how)
            assert quick.settle(document, now, op, claim, terms, **how) == (after, answer)
        document = after
        claim = answer.grant.claim if answer.grant is not None else claim
