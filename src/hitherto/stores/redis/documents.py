"""Documents, grants and answers as the scripts write them, and back.

The scripts answer with a packed head (never with floats of Redis' own, which lose their fraction) and with
bulk strings for everything opaque: data, payloads.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from hitherto.errors import StoreCorrupt
from hitherto.protocol import Answer, Dead, Document, Dropped, Entry, Grant, Lease, Op, Status
from hitherto.records import Stored

__all__ = ["answer_of", "document_of", "record_of", "words_of"]

_pack = msgspec.msgpack.Encoder().encode


class _Entry(msgspec.Struct, array_like=True, gc=False):
    seq: int
    id: str | bool
    accepted_at: float
    attempts: int
    claimed: bool
    not_before: float
    expires_at: float | bool
    lone_until: float | bool
    gather: str
    blocks: bool


class _Head(msgspec.Struct, array_like=True, gc=False):
    status: Status
    seq: int
    depth: int
    wake_at: float | bool
    at: float
    dropped: list[tuple[str | bool, str]] | bool
    epoch: int = 0
    deadline: float = 0.0
    lone: bool = False
    entries: list[_Entry] = []
    version: int | bool = False
    flow: str | bool = False
    state: str | bool = False
    expires_at: float | bool = False


class _Record(msgspec.Struct, array_like=True, gc=False):
    at: float
    version: int | bool
    flow: str | bool = False
    state: str | bool = False
    expires_at: float | bool = False


class _Kept(msgspec.Struct, array_like=True, gc=False):
    """A conversation in the order of the prelude."""

    version: int
    epoch: int
    owner: str | bool
    deadline: float
    next_seq: int
    flow: str | bool
    state: str | bool
    record: int | bool
    expires_at: float | bool
    size: int
    touched: float
    inbox: list[_Entry]
    dead: list[int | str | bool]
    slot_seq: int
    slot: str
    due: float | bool
    ops_last: float
    ops_kept: float
    seen_first: int
    seen_next: int
    seen_count: int
    seen_from: float
    seen_last: float
    seen_kept: float
    late: float


class _Loaded(msgspec.Struct, array_like=True, gc=False):
    at: float
    there: bool
    kept: _Kept


_head = msgspec.msgpack.Decoder(_Head).decode
_record = msgspec.msgpack.Decoder(_Record).decode
_loaded = msgspec.msgpack.Decoder(_Loaded).decode
_letter = msgspec.msgpack.Decoder(tuple[int, str | bool, float, int, str, float]).decode
_MISSING: Final = (
    "a payload is missing: the server has thrown it away (maxmemory-policy), or somebody else has"
)


def answer_of(reply: Any, own: bytes | None = None) -> Answer:
    """An answer of the protocol; *own* is the payload of the caller's event, which does not travel back."""
    if type(reply) is bytes:
        head = _head(reply)
        return Answer(
            head.status,
            head.seq,
            None,
            head.depth,
            _time(head.wake_at),
            _dropped(head.dropped),
            head.at,
        )
    head = _head(reply[0])
    payloads = reply[2:]
    if own is not None and len(payloads) < len(head.entries):
        payloads.append(own)
    entries = tuple(map(_entry, head.entries, payloads))
    record = None if head.version is False else _stored(head, reply[1])
    grant = Grant(head.epoch, entries, record, head.deadline, head.lone)
    return Answer(
        head.status,
        head.seq,
        grant,
        head.depth,
        _time(head.wake_at),
        _dropped(head.dropped),
        head.at,
    )


def record_of(reply: Any) -> Stored | None:
    """The record in an answer to a read, or to a write of the FSM storage."""
    if type(reply) is bytes:
        return None
    return _stored(_record(reply[0]), reply[1])


def document_of(reply: Any) -> tuple[Document, float]:
    """A whole document, and the server's time."""
    head, slot, data, seen, payloads, ops = reply
    loaded = _loaded(head)
    kept = loaded.kept
    if not loaded.there:
        return Document(), loaded.at
    stored = dict(_pairs(payloads))
    if kept.slot_seq:
        stored[b"%d" % kept.slot_seq] = slot
    record = None
    if kept.record is not False:
        record = Stored(
            _text(kept.flow), _text(kept.state), kept.record, _fields(data), _time(kept.expires_at)
        )
    document = Document(
        version=kept.version,
        epoch=kept.epoch,
        lease=None if kept.owner is False else Lease(str(kept.owner), kept.deadline),
        record=record,
        inbox=tuple([_entry(entry, stored.get(b"%d" % entry.seq)) for entry in kept.inbox]),
        next_seq=kept.next_seq,
        seen=_seen(seen),
        ops=_ops(ops),
        dead=tuple([_dead(int(seq), stored) for seq in kept.dead[::2]]),
        touched=kept.touched,
    )
    return document, loaded.at


def words_of(document: Document) -> tuple[list[Any], list[list[bytes]]]:
    """A document as the swap takes it: the conversation, and the words of data, seen ids and payloads."""
    record, lease, dead = document.record, document.lease, document.dead
    data: list[bytes] = []
    for key, text in (record.fields if record is not None else {}).items():
        data += (key.encode(), text)
    seen: list[bytes] = []
    for number, (event_id, at) in enumerate(document.seen.items(), 1):
        name = event_id.encode()
        seen += (b"." + name, b"%d %r" % (number, at), b"%d" % number, b"%r %b" % (at, name))
    payloads: list[bytes] = []
    for entry in document.inbox:
        payloads += (b"%d" % entry.seq, entry.payload)
    for letter in dead:
        rest = (
            letter.seq,
            _or_false(letter.event_id),
            letter.accepted_at,
            letter.attempts,
            letter.error,
            letter.died_at,
        )
        payloads += (b"x%d" % letter.seq, _pack(rest), b"y%d" % letter.seq, letter.payload)
    times = list(document.seen.values())
    kept = [
        document.version, document.epoch,
        False if lease is None else lease.owner, 0 if lease is None else lease.deadline, document.next_seq,
        *_record_words(record, sum(map(len, data))), document.touched,
        [_entry_words(entry) for entry in document.inbox],
        [word for letter in dead for word in (letter.seq, _or_false(letter.event_id))],
        0, "", False,
        max([op.at for op in document.ops], default=0), 0,
        1, len(times) + 1, len(times), times[0] if times else 0, max(times, default=0), 0,
        0,
    ]  # fmt: skip
    return kept, [data, seen, payloads, list(map(_op_text, document.ops))]


def _record_words(record: Stored | None, size: int) -> Sequence[Any]:
    if record is None:
        return (False, False, False, False, 0)
    return (
        _or_false(record.flow), _or_false(record.state), record.version, _or_false(record.expires_at), size,
    )  # fmt: skip


def _entry_words(entry: Entry) -> Sequence[Any]:
    return (
        entry.seq, _or_false(entry.event_id), entry.accepted_at, entry.attempts, entry.claimed,
        entry.not_before, _or_false(entry.expires_at), _or_false(entry.lone_until), entry.gather,
        entry.blocks,
    )  # fmt: skip


def _op_text(op: Op) -> bytes:
    seqs = ",".join(map(str, op.seqs))
    return f"{op.id}\t{op.at!r} {op.status} {op.epoch} {op.seq} {seqs}".encode()


def _or_false(value: Any) -> Any:
    return False if value is None else value


def _time(value: float | bool) -> float | None:
    return None if value is False else value


def _text(value: str | bool) -> str | None:
    return None if value is False else value  # type: ignore[return-value]


def _stored(head: _Head | _Record, data: list[bytes]) -> Stored:
    return Stored(_text(head.flow), _text(head.state), head.version, _fields(data), _time(head.expires_at))


def _fields(data: list[bytes]) -> dict[str, bytes]:
    words = iter(data)
    return {key.decode(): text for key, text in zip(words, words, strict=True)}


def _pairs(words: list[bytes]) -> Iterable[tuple[bytes, bytes]]:
    one = iter(words)
    return zip(one, one, strict=True)


def _dropped(dropped: list[tuple[str | bool, str]] | bool) -> tuple[Dropped, ...]:
    if dropped is False or dropped is True:
        return ()
    return tuple([Dropped(_text(event_id), reason) for event_id, reason in dropped])  # type: ignore[arg-type]


def _entry(entry: _Entry, payload: bytes | None) -> Entry:
    if payload is None:
        raise StoreCorrupt(_MISSING)
    return Entry(
        entry.seq, _text(entry.id), payload, entry.accepted_at, entry.attempts, entry.claimed,
        entry.not_before, _time(entry.expires_at), _time(entry.lone_until), entry.gather,  # type: ignore[arg-type]
        entry.blocks,
    )  # fmt: skip


def _seen(words: list[bytes]) -> dict[str, float]:
    stored = dict(_pairs(words))
    numbers = sorted(int(name) for name in stored if not name.startswith(b"."))
    seen: dict[str, float] = {}
    for number in numbers:
        at, _, event_id = stored[b"%d" % number].partition(b" ")
        own = stored.get(b"." + event_id)
        if own is not None and own.split(b" ", 1)[0] == b"%d" % number:
            seen[event_id.decode()] = float(at)
    return seen


def _ops(lines: list[bytes]) -> tuple[Op, ...]:
    ops: list[Op] = []
    for line in lines:
        op, _, rest = line.decode().partition("\t")
        at, status, epoch, seq, seqs = rest.split(" ")
        numbers = tuple(map(int, seqs.split(","))) if seqs else ()
        ops.append(Op(op, float(at), status, int(epoch), int(seq), numbers))  # type: ignore[arg-type]
    return tuple(ops)


def _dead(seq: int, stored: dict[bytes, bytes]) -> Dead:
    letter, payload = stored.get(b"x%d" % seq), stored.get(b"y%d" % seq)
    if letter is None or payload is None:
        raise StoreCorrupt(_MISSING)
    _, event_id, accepted_at, attempts, error, died_at = _letter(letter)
    return Dead(seq, _text(event_id), payload, accepted_at, attempts, error, died_at)
