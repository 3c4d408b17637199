"""What the operations say to their scripts: packed words, as the Lua files describe them."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from hitherto import codec
from hitherto.codec import Fields
from hitherto.document import Claim, Event, Terms, Verdict
from hitherto.overlap import Burst, ByFlow, Concurrent, Debounce, Overlap, Queue
from hitherto.records import Patch, Record

__all__ = [
    "Op",
    "accept_words",
    "claim_words",
    "field_words",
    "policy_words",
    "record_words",
    "settle_words",
    "terms_words",
]

pack_words: Final = msgspec.msgpack.Encoder().encode
Words = tuple[Any, ...]
_NO_PATCH: Final = (False, False, False, False, 1, 0, False, False)


class Op(str):
    """An operation id of this process, which knows whether it was sent: what was not cannot be a repeat."""

    sent = False


def may_repeat(op: str | None) -> bool:
    """Whether the server may know this operation already, and has to look."""
    if type(op) is not Op:
        return op is not None
    sent, op.sent = op.sent, True
    return sent


def terms_words(terms: Terms) -> bytes:
    """The limits, packed."""
    return pack_words((
        terms.lease, terms.max_attempts, terms.seen_limit, terms.seen_age, terms.ops_limit, terms.ops_age,
        terms.dead_limit, _or_false(terms.record_ttl), terms.tombstone, terms.retry_in_order, codec.MAX_BYTES,
    ))  # fmt: skip


def policy_words(overlap: Overlap) -> tuple[bytes, str | bool]:
    """A policy, packed, and what the entry of a free conversation gathers where nothing has to be asked."""
    simple = not isinstance(overlap, ByFlow | Concurrent) and not (
        isinstance(overlap, Burst) and overlap.gather and overlap.window > 0
    )
    gather = "burst" if isinstance(overlap, Burst) else ""
    return pack_words(_overlap_words(overlap)), gather if simple else False


def _overlap_words(overlap: Overlap) -> Words:
    if isinstance(overlap, ByFlow):
        flows = {name: _overlap_words(policy) for name, policy in overlap.flows.items()}
        return ("by_flow", _overlap_words(overlap.default), flows)
    if isinstance(overlap, Queue):
        return ("queue", overlap.limit, overlap.on_full, _or_false(overlap.expires), 0, False)
    if isinstance(overlap, Debounce):
        return ("debounce", 0, "", False, overlap.window, False)
    if isinstance(overlap, Burst):
        return ("burst", overlap.limit, "", False, overlap.window, overlap.gather)
    if isinstance(overlap, Concurrent):
        return ("concurrent", overlap.limit, "", False, 0, False)
    return ("reject", 0, "", False, 0, False)


def accept_words(event: Event, owner: str, gather: str | bool, terms: Terms) -> Words:
    """What is accepted, by whom, and the terms that the short way needs."""
    event_id = False if event.id is None else event.id
    return (owner, event_id, gather, terms.lease, terms.ops_limit, terms.ops_age)


def settle_words(
    claim: Claim, patch: Patch, fields: list[bytes], verdict: Verdict, delay: float, error: str, keep: bool,
    terms: Terms,
) -> Words:  # fmt: skip
    """How a turn ends, and the terms that the short way needs."""
    one = len(claim.seqs) == 1 and not claim.lone
    return (
        claim.epoch if one else False, verdict, delay, error, keep,
        *(_patch_words(patch, fields) if patch else _NO_PATCH), claim.seqs[0] if one else 0,
        terms.ops_limit, terms.ops_age, terms.seen_limit, terms.seen_age, terms.record_ttl is not None,
        codec.MAX_BYTES,
    )  # fmt: skip


def _patch_words(patch: Patch, fields: list[bytes]) -> Words:
    removed = patch.removed and [key for key in patch.removed if key not in patch.set]
    size = sum(map(len, fields))
    return (
        True, patch.moved, _or_false(patch.flow), _or_false(patch.state), patch.version, size, patch.cleared,
        removed or False,
    )  # fmt: skip


def claim_words(claim: Claim) -> Words:
    """What a worker shows."""
    return (claim.epoch, claim.seqs, claim.lone, claim.attempt)


def field_words(fields: Fields) -> list[bytes]:
    """Keys and values, one after the other."""
    words: list[bytes] = []
    for key, text in fields.items():
        words += (key.encode(), text)
    return words


def record_words(how: str, fields: list[bytes], record: Record | None = None) -> Words:
    """What the FSM storage contract writes: ``state``, ``data``, ``update`` or ``clear``."""
    flow, state, version = (None, None, 1) if record is None else (record.flow, record.state, record.version)
    return (how, _or_false(flow), _or_false(state), version, sum(map(len, fields)))


def _or_false(value: Any) -> Any:
    return False if value is None else value
