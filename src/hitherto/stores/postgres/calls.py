"""The two calls of a turn as arrays: many operations in, one row out for each.

``accept_v1`` and ``settle_v1`` answer what the protocol answers, or ``slow`` where the case is a rare one;
what is ``slow`` for certain is not sent at all (see :func:`is_slow_accept`, :func:`is_slow_settle`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from hitherto import codec
from hitherto.document import Answer, Claim, Entry, Event, Gather, Grant, Terms, Verdict
from hitherto.errors import DataError
from hitherto.overlap import Burst, ByFlow, Concurrent, Debounce, Overlap, Policy, Queue, Reject
from hitherto.records import Patch
from hitherto.stores.postgres.columns import Place, call_of, got_id, got_stored, got_text, put_id, put_text

ACCEPT: Final = call_of("accept_v1", 16)
_FEW: Final = 100  # keys that the function looks up one by one among those that there are
SETTLE: Final = call_of("settle_v1", 27)
_KINDS: Final[dict[type, str]] = {Reject: "reject", Debounce: "debounce", Concurrent: "slow"}


class Accept(NamedTuple):
    """One event to accept."""

    place: Place
    event: Event
    overlap: Overlap
    owner: str
    op: str | None
    terms: Terms
    event_id: str | None
    long_id: str | None


class Settle(NamedTuple):
    """One turn to settle."""

    place: Place
    claim: Claim
    op: str | None
    terms: Terms
    patch: Patch
    verdict: Verdict
    delay: float
    keep: bool


def accept_item(
    place: Place, event: Event, overlap: Overlap, owner: str, op: str | None, terms: Terms
) -> Accept:
    """The item of an accept; an id that cannot be stored is refused here."""
    return Accept(place, event, overlap, owner, op, terms, *put_id(event.id))


def is_slow_accept(overlap: Overlap) -> bool:
    """Whether accepting under this policy always takes the long way."""
    return not isinstance(overlap, ByFlow) and _policy(overlap)[0] == "slow"


def is_slow_settle(claim: Claim, verdict: Verdict, terms: Terms, patch: Patch) -> bool:
    """Whether settling this always takes the long way."""
    return (
        claim.lone
        or verdict == "dead"
        or (verdict == "retry" and terms.retry_in_order)
        or len(patch.set) + len(patch.removed) > _FEW
    )


def _policy(policy: Policy) -> tuple[str, int, float | None]:
    """What the function must know of a policy: its kind, its limit, how long an event waits at most."""
    if isinstance(policy, Queue):
        return ("queue" if policy.on_full == "reject" else "drop"), policy.limit, policy.expires
    if isinstance(policy, Burst):
        return ("slow" if policy.gather and policy.window > 0 else "burst"), policy.limit, None
    return _KINDS[type(policy)], 0, None


def _flows(overlap: Overlap) -> str | None:
    """The policies of flows, as JSON."""
    if not isinstance(overlap, ByFlow):
        return None
    policies = {put_text(name): _policy(policy) for name, policy in overlap.flows.items()}
    return msgspec.json.encode(policies).decode()


def accept_arguments(items: Sequence[Accept], moment: float | None) -> list[Any]:
    """The arguments of ``accept_v1`` for items of the same terms."""
    terms = items[0].terms
    policies = [
        _policy(item.overlap.default if isinstance(item.overlap, ByFlow) else item.overlap) for item in items
    ]
    return [
        moment,
        terms.lease,
        terms.seen_age,
        terms.ops_age,
        terms.ops_limit,
        [item.place.digest for item in items],
        [item.place.text for item in items],
        [put_text(item.op) for item in items],
        [item.event_id for item in items],
        [item.long_id for item in items],
        [item.event.payload for item in items],
        [put_text(item.owner) for item in items],
        [kind for kind, _, _ in policies],
        [limit for _, limit, _ in policies],
        [expires for _, _, expires in policies],
        [_flows(item.overlap) for item in items],
    ]


def accept_answer(item: Accept, row: Mapping[str, Any]) -> Answer | None:
    """The answer in a row; ``None`` for the long way."""
    status, seq, at = row["status"], row["seq"], row["at"]
    if status == "slow":
        return None
    grant = None
    if status == "granted":
        gather: Gather = "burst" if _is_burst(item.overlap, row) else ""
        entry = Entry(seq, item.event.id, item.event.payload, at, 1, True, 0.0, None, None, gather)
        grant = Grant(row["epoch"], (entry,), got_stored(row), row["deadline"])
    return Answer(status, seq, grant, row["depth"], row["wake_at"], (), at)


def _is_burst(overlap: Overlap, row: Mapping[str, Any]) -> bool:
    if isinstance(overlap, ByFlow):
        flow = got_text(row["flow"]) if row["recorded"] else None
        overlap = overlap.default if flow is None else overlap.flows.get(flow, overlap.default)
    return isinstance(overlap, Burst)


def settle_arguments(items: Sequence[Settle], moment: float | None) -> list[Any]:
    """The arguments of ``settle_v1`` for items of the same terms."""
    terms = items[0].terms
    set_upto: list[int] = []
    removed_upto: list[int] = []
    names: list[str | None] = []
    texts: list[str] = []
    removed: list[str | None] = []
    for item in items:
        for name, text in item.patch.set.items():
            names.append(put_text(name))
            texts.append(text.decode())
        removed += [put_text(name) for name in item.patch.removed if name not in item.patch.set]
        set_upto.append(len(names))
        removed_upto.append(len(removed))
    return [
        moment,
        terms.lease,
        terms.max_attempts,
        terms.seen_limit,
        terms.seen_age,
        terms.ops_age,
        terms.ops_limit,
        terms.record_ttl,
        codec.MAX_BYTES,
        [item.place.digest for item in items],
        [put_text(item.op) for item in items],
        [item.claim.epoch for item in items],
        ["{" + ",".join(map(str, item.claim.seqs)) + "}" for item in items],
        [item.verdict for item in items],
        [item.delay for item in items],
        [item.keep for item in items],
        [bool(item.patch) for item in items],
        [item.patch.cleared for item in items],
        [item.patch.moved for item in items],
        [put_text(item.patch.flow) for item in items],
        [put_text(item.patch.state) for item in items],
        [item.patch.version for item in items],
        set_upto,
        names,
        texts,
        removed_upto,
        removed,
    ]


def settle_answer(_: Settle, row: Mapping[str, Any]) -> Answer | None:
    """The answer in a row; ``None`` for the long way."""
    status = row["status"]
    if status == "slow":
        return None
    grant = None
    if row["seq"] is not None:
        entry = Entry(
            row["seq"], got_id(row["event_id"], row["long_id"]), row["payload"], row["accepted_at"],
            row["attempts"], True, row["not_before"], row["entry_expires_at"], None, row["gather"],
        )  # fmt: skip
        grant = Grant(row["epoch"], (entry,), got_stored(row), row["deadline"])
    return Answer(status, -1, grant, row["depth"], row["wake_at"], (), row["at"])


def check_patch(patch: Patch) -> None:
    """Refuse what no column holds."""
    if not -(2**63) <= patch.version < 2**63:
        raise DataError("record: a version beyond 64 bits cannot be stored in PostgreSQL", path="version")
