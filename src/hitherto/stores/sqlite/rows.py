"""One conversation as a row, and the row as a document.

A ``Row`` holds the *lean* document: its seen window is only the newest part (the tail), and payloads that are
kept beside the row are empty. Older seen ids are rows of their own, numbered in the order of marking:
``Window`` says which of them still count, so that forgetting the oldest is arithmetic and no write.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec.structs import replace

from hitherto import codec, protocol
from hitherto.document import EMPTY, Dead, Document, Entry, Lease, Op, Terms
from hitherto.errors import StoreCorrupt
from hitherto.records import Stored

LONGEST_TAIL: Final = 64
SPILL: Final = 32
INLINE_BYTES: Final = 2048

COLUMNS: Final = "id, version, recorded, flow, state, data, touched, body"


class Window(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Which of the numbered seen ids count: those from *floor* up to *end*, *holes* of them taken out, if
    they are younger than *horizon*. Rows from *base* on may still be in the file.
    """

    base: int = 0
    floor: int = 0
    end: int = 0
    holes: int = 0
    horizon: float = 0.0

    @property
    def size(self) -> int:
        """How many ids it holds, counting those that are too old."""
        return self.end - self.floor - self.holes


NO_WINDOW: Final = Window()


class Body(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """What a row's ``body`` holds: all that has no column of its own."""

    epoch: int
    next_seq: int
    lease: Lease | None
    inbox: tuple[Entry, ...]
    dead: tuple[Dead, ...]
    ops: tuple[Op, ...]
    tail: dict[str, float]
    record_version: int
    expires_at: float | None
    beside: tuple[int, ...]
    window: Window | None
    twice: bool


class Row(msgspec.Struct, frozen=True, gc=False):
    """A conversation as the file has it.

    *text* is the record's data as JSON; *beside* are the numbers of the events whose payloads are rows of
    their own; *twice* says that an event waits whose id is also in the window, which needs the whole of it.
    """

    id: int
    document: Document
    text: str | None = None
    beside: tuple[int, ...] = ()
    window: Window = NO_WINDOW
    twice: bool = False


ABSENT: Final = Row(0, EMPTY)
_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(Body).decode


def read(columns: tuple[Any, ...], url: str) -> Row:
    """The row that a query for ``COLUMNS`` found."""
    try:
        return _read(*columns)
    except (msgspec.MsgspecError, TypeError, ValueError) as error:
        raise StoreCorrupt(
            f"row {columns[0]} of table conversation is damaged; restore a backup, or delete that row",
            url=url,
        ) from error


def _read(
    id_: int,
    version: int,
    recorded: int,
    flow: str | None,
    state: str | None,
    data: str | None,
    touched: float,
    blob: bytes,
) -> Row:
    body = _decode(blob)
    record = None
    if recorded:
        record = Stored(flow, state, body.record_version, codec.split(data or "{}"), body.expires_at)
    document = Document(
        version,
        body.epoch,
        body.lease,
        record,
        body.inbox,
        body.next_seq,
        body.tail,
        body.ops,
        body.dead,
        touched,
    )
    return Row(id_, document, data, body.beside, body.window or NO_WINDOW, body.twice)


def body_of(row: Row) -> bytes:
    """The row's ``body``."""
    document = row.document
    record = document.record
    return _encode(
        Body(
            document.epoch,
            document.next_seq,
            document.lease,
            document.inbox,
            document.dead,
            document.ops,
            document.seen,
            1 if record is None else record.version,
            None if record is None else record.expires_at,
            row.beside,
            None if row.window is NO_WINDOW else row.window,
            row.twice,
        )
    )


def text_of(before: Row, record: Stored | None) -> str | None:
    """The record's data as JSON, made anew only if it changed."""
    if record is None:
        return None
    known = before.document.record
    if known is not None and record.fields is known.fields:
        return before.text
    return codec.join(record.fields).decode()


def advanced(window: Window, tail: dict[str, float], now: float, terms: Terms) -> Window | None:
    """The window after ids were marked and *tail* holds the newest; ``None`` if only the whole can tell."""
    room = max(terms.seen_limit - len(tail), 0)
    floor = window.floor
    if window.size > room:
        if window.holes:
            return None
        floor = window.end - room
    return replace(window, floor=floor, horizon=max(window.horizon, now - terms.seen_age))


def wake_at(document: Document) -> float | None:
    """See :func:`hitherto.protocol.wake_at`; idle and running ones are answered at once."""
    lease, inbox = document.lease, document.inbox
    if lease is None:
        return protocol.wake_at(document) if inbox else None
    if len(inbox) == 1 and inbox[0].lone_until is None:
        return lease.deadline
    return protocol.wake_at(document)
