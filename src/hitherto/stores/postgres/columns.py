"""Documents as columns: what a document looks like in the tables, and what changed between two of them.

PostgreSQL's text holds every character but NUL, so NUL and the one it is written with are escaped; event ids
longer than an index takes are indexed by their digest. Everything else goes in as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, Final, NamedTuple

from hitherto import addresses, protocol
from hitherto.addresses import Address
from hitherto.codec import Fields
from hitherto.document import EMPTY, Dead, Document, Entry, Lease, Op
from hitherto.errors import BadEvent, DataError
from hitherto.records import Stored

LONGEST_ID: Final = 500
WIDTH: Final = 68
_SUB: Final = "\x1a"


class Place(NamedTuple):
    """Where a conversation is kept: the text of its address and the digest it is found by."""

    text: str
    digest: bytes


def call_of(function: str, arguments: int) -> str:
    """The statement that calls one of our functions, written for the default schema."""
    places = ",".join(f"${n}" for n in range(1, arguments + 1))
    return f'SELECT * FROM "hitherto".{function}({places})'  # noqa: S608


def place_of(address: Address) -> Place:
    """The place of an address."""
    text = addresses.encode(address)
    return Place(text, sha256(text.encode()).digest())


def put_text(text: str | None) -> str | None:
    """Any text as PostgreSQL can hold it."""
    if text is None or not ("\0" in text or _SUB in text):
        return text
    return text.replace(_SUB, _SUB + "1").replace("\0", _SUB + "0")


def got_text(text: str | None) -> str | None:
    """The text that was put."""
    if text is None or _SUB not in text:
        return text
    return text.replace(_SUB + "0", "\0").replace(_SUB + "1", _SUB)


def put_id(event_id: str | None) -> tuple[str | None, str | None]:
    """An event id as (what is indexed, the whole of it if that is something else)."""
    if event_id is None:
        return None, None
    try:
        size = len(event_id) if event_id.isascii() else len(event_id.encode())
    except UnicodeEncodeError:
        raise BadEvent("the event's id has a lone surrogate and cannot be stored; replace it first") from None
    text = put_text(event_id)
    if size <= LONGEST_ID:
        return text, None
    return f"{_SUB}2{sha256(event_id.encode()).hexdigest()}", text


def got_id(event_id: str | None, long_id: str | None) -> str | None:
    """The event id that was put."""
    return got_text(event_id if long_id is None else long_id)


def short_op(op: str | None) -> str | None:
    """An operation id that fits an index; ours always do."""
    if op is None or len(op) <= LONGEST_ID // 4:
        return op
    return f"sha256:{sha256(op.encode(errors='surrogatepass')).hexdigest()}"


def got_fields(names: Sequence[str], texts: Sequence[str]) -> Fields:
    """The fields that were put as names and texts."""
    return {got_text(name) or "": text.encode() for name, text in zip(names, texts, strict=True)}


def got_stored(row: Mapping[str, Any]) -> Stored | None:
    """The record in a row, if there is one."""
    if not row["recorded"]:
        return None
    return Stored(
        got_text(row["flow"]),
        got_text(row["state"]),
        row["record_version"],
        got_fields(row["names"], row["texts"]),
        row["expires_at"],
    )


def got_live(row: Mapping[str, Any]) -> Stored | None:
    """The record in a row that tells the time too, unless it has expired."""
    stored = got_stored(row)
    if stored is not None and stored.expires_at is not None and stored.expires_at <= row["at"]:
        return None
    return stored


def size_of(fields: Fields) -> int:
    """What :func:`hitherto.codec.check_size` counts."""
    return sum(map(len, fields.values())) + sum(map(len, fields))


class Loaded(NamedTuple):
    """A document as it was read: *id* is its row (0: there is none), *at* the store's time then."""

    document: Document
    id: int
    at: float


def got_document(row: Mapping[str, Any]) -> Loaded:
    """The document in a row of ``load_v1``."""
    if row["id"] is None:
        return Loaded(EMPTY, 0, row["at"])
    document = Document(
        row["version"],
        row["epoch"],
        None if row["deadline"] is None else Lease(got_text(row["owner"]) or "", row["deadline"]),
        got_stored(row),
        _got_inbox(row),
        row["next_seq"],
        _got_seen(row),
        _got_ops(row),
        _got_dead(row),
        row["touched"],
    )
    return Loaded(document if document.version else EMPTY, row["id"], row["at"])


def _columns(row: Mapping[str, Any], *names: str) -> Any:
    return zip(*[row[name] or () for name in names], strict=True)


def _got_inbox(row: Mapping[str, Any]) -> tuple[Entry, ...]:
    if not row["inbox_seqs"]:
        return ()
    columns = _columns(
        row, "inbox_seqs", "inbox_events", "inbox_longs", "inbox_payloads", "inbox_accepted",
        "inbox_attempts", "inbox_claimed", "inbox_not_before", "inbox_expires", "inbox_lone", "inbox_gathers",
        "inbox_blocks",
    )  # fmt: skip
    return tuple([Entry(seq, got_id(short, long), *rest) for seq, short, long, *rest in columns])


def _got_seen(row: Mapping[str, Any]) -> dict[str, float]:
    columns = _columns(row, "seen_events", "seen_longs", "seen_times")
    return {got_id(short, long) or "": at for short, long, at in columns}


def _got_ops(row: Mapping[str, Any]) -> tuple[Op, ...]:
    columns = _columns(row, "op_ids", "op_times", "op_statuses", "op_epochs", "op_seqs", "op_claims")
    return tuple(
        [
            Op(
                got_text(id_) or "",
                at,
                status,
                epoch,
                seq,
                tuple([int(one) for one in claim.split(",") if one]),
            )
            for id_, at, status, epoch, seq, claim in columns
        ]
    )


def _got_dead(row: Mapping[str, Any]) -> tuple[Dead, ...]:
    columns = _columns(
        row, "dead_seqs", "dead_events", "dead_longs", "dead_payloads", "dead_accepted", "dead_attempts",
        "dead_errors", "dead_times",
    )  # fmt: skip
    return tuple(
        [
            Dead(seq, got_id(short, long), payload, accepted, attempts, got_text(error) or "", died)
            for seq, short, long, payload, accepted, attempts, error, died in columns
        ]
    )


# ---------------------------------------------------------------------------------------------- what changed


class Change(NamedTuple):
    """One document to be put in place of another; *removed* takes it away altogether."""

    place: Place
    loaded: Loaded
    after: Document
    removed: bool = False


Row = tuple[Any, ...]


class Delta(NamedTuple):
    """What :class:`Change` means for each table: rows that are gone, rows that are put."""

    document: Row
    fields: list[Row]
    inbox_gone: list[int]
    inbox: list[Row]
    seen: Row
    seen_gone: list[str]
    seen_put: list[Row]
    ops_gone: list[str]
    ops: list[Row]
    dead_gone: list[int]
    dead: list[Row]


def delta(change: Change) -> Delta:
    """The rows of a change; a value that no column holds is refused here, before anything is sent."""
    before, after = change.loaded.document, change.after
    _check_numbers(after)
    inbox_gone, entries = _moved(before.inbox, after.inbox)
    dead_gone, letters = _moved(before.dead, after.dead)
    cleared, seen_gone, marks = _seen_delta(before.seen, after.seen)
    known, kept = {op.id for op in before.ops}, {op.id for op in after.ops}
    fresh = [op for op in after.ops if op.id not in known]
    return Delta(
        _document_row(change),
        _field_rows(before.record, after.record),
        inbox_gone,
        [_entry_row(entry) for entry in entries],
        (cleared, len(after.seen), next(iter(after.seen.values()), None)),
        seen_gone,
        [(*put_id(event_id), at) for event_id, at in marks],
        [put_text(op.id) or "" for op in before.ops if op.id not in kept],
        [_op_row(op, before.version + 1 + n) for n, op in enumerate(fresh)],
        dead_gone,
        [_dead_row(letter, rank) for rank, letter in enumerate(letters, 1)],
    )


def _document_row(change: Change) -> Row:
    before, after = change.loaded.document, change.after
    lease, record = after.lease, after.record
    rewritten = record is not before.record
    return (
        change.place.digest, change.place.text, change.loaded.id, before.version, change.removed,
        after.version, after.epoch,
        None if lease is None else put_text(lease.owner), None if lease is None else lease.deadline,
        after.next_seq, after.touched, protocol.wake_at(after), rewritten, record is not None,
        None if record is None else put_text(record.flow), None if record is None else put_text(record.state),
        1 if record is None else record.version, 0 if record is None else size_of(record.fields),
        None if record is None else record.expires_at,
    )  # fmt: skip


def _field_rows(before: Stored | None, after: Stored | None) -> list[Row]:
    if after is None or after is before:
        return []
    return [(put_text(name), text.decode()) for name, text in after.fields.items()]


def _entry_row(entry: Entry) -> Row:
    return (
        entry.seq, *put_id(entry.event_id), entry.payload, entry.accepted_at, entry.attempts, entry.claimed,
        entry.not_before, entry.expires_at, entry.lone_until, entry.gather, entry.blocks,
    )  # fmt: skip


def _op_row(op: Op, version: int) -> Row:
    return put_text(op.id), version, op.at, op.status, op.epoch, op.seq, ",".join(map(str, op.seqs))


def _dead_row(dead: Dead, rank: int) -> Row:
    return (
        rank, dead.seq, *put_id(dead.event_id), dead.payload, dead.accepted_at, dead.attempts,
        put_text(dead.error), dead.died_at,
    )  # fmt: skip


def _moved(before: tuple[Any, ...], after: tuple[Any, ...]) -> tuple[list[int], list[Any]]:
    """The seqs that are gone and the entries (or letters) that are new or changed."""
    if before is after:
        return [], []
    known = {one.seq: one for one in before}
    kept = {one.seq for one in after}
    return [seq for seq in known if seq not in kept], [one for one in after if known.get(one.seq) != one]


def _seen_delta(
    before: dict[str, float], after: dict[str, float]
) -> tuple[bool, list[str], list[tuple[str, float]]]:
    """Whether all marks go first, those that are gone, and those that are put behind the others."""
    if before is after:
        return False, [], []
    kept = [event_id for event_id, at in before.items() if after.get(event_id) == at]
    order = list(after)
    if order[: len(kept)] != kept:
        return True, [], list(after.items())
    gone = [put_id(event_id)[0] or "" for event_id in before.keys() - set(kept)]
    return False, gone, [(event_id, after[event_id]) for event_id in order[len(kept) :]]


def _check_numbers(document: Document) -> None:
    record = document.record
    if record is not None and not -(2**63) <= record.version < 2**63:
        raise DataError("record: a version beyond 64 bits cannot be stored in PostgreSQL", path="version")
    if record is not None and any(
        text is not None and not _is_text(text) for text in (record.flow, record.state)
    ):
        raise DataError("record: a name with a lone surrogate cannot be stored", path="flow")


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def weight(one: Delta) -> int:
    """About how many bytes a delta takes."""
    return sum(len(row[1]) for row in one.fields) + sum(len(row[3]) for row in one.inbox)


def write_arguments(deltas: Sequence[Delta]) -> list[Any]:
    """The arguments of ``write_v1`` for these changes."""
    places = range(1, len(deltas) + 1)

    def flat(name: str, width: int) -> list[list[Any]]:
        rows = [
            (place, *(row if isinstance(row, tuple) else (row,)))
            for place, one in zip(places, deltas, strict=True)
            for row in getattr(one, name)
        ]
        return _columns_of(rows, width + 1)

    inbox, seen_put = flat("inbox", 12), flat("seen_put", 3)
    return [
        *_columns_of([one.document for one in deltas], 19),
        *flat("fields", 2),
        *flat("inbox_gone", 1),
        *inbox,
        *_columns_of([one.seen for one in deltas], 3),
        *flat("seen_gone", 1),
        *seen_put,
        *flat("ops_gone", 1),
        *flat("ops", 7),
        *flat("dead_gone", 1),
        *flat("dead", 9),
    ]


def _columns_of(rows: Sequence[Row], width: int) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in range(width)]
