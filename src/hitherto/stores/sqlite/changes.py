"""Changes of one document within a transaction, in two ways.

The *whole* way gives the pure function everything and writes whatever came of it. The *lean* way gives it the
row alone: enough for every step of a turn, because a step only asks whether one id was seen, marks ids as the
newest, and hands entries on unread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, TypeAlias, TypeVar, cast

from msgspec.structs import replace

from hitherto import protocol, quick
from hitherto.document import EMPTY, Answer, Claim, Dead, Document, Entry, Event, Terms
from hitherto.overlap import Overlap
from hitherto.stores.sqlite import rows
from hitherto.stores.sqlite.rows import ABSENT, INLINE_BYTES, LONGEST_TAIL, SPILL, Row, Window
from hitherto.stores.sqlite.session import EVERYTHING, Session

_TRIM: Final = 256
_T = TypeVar("_T")
Change: TypeAlias = Callable[[Document, float], tuple[Document, _T]]


# -------------------------------------------------------------------------------------------- the lean way


def accept(
    session: Session, text: str, event: Event, overlap: Overlap, owner: str, op: str | None, terms: Terms
) -> Answer:
    """See :func:`hitherto.protocol.accept`; beyond the tail the window is asked for the event's id only."""

    def change(document: Document, now: float) -> tuple[Document, Answer]:
        return quick.accept(document, now, op, event, overlap, owner, terms)

    row = session.row(text)
    window = row.window
    if window.end > window.floor and event.id is not None and event.id not in row.document.seen:
        at = session.probe(row, event.id)
        if at is not None:
            now = session.clock()
            if at <= now - terms.seen_age:
                return whole(session, text, change)
            return _filled(session, row, change(replace(row.document, seen={event.id: at}), now)[1])
    return lean(session, text, terms, change, row)


def lean(session: Session, text: str, terms: Terms, change: Change[_T], row: Row | None = None) -> _T:
    """Apply a step of a turn."""
    if row is None:
        row = session.row(text)
    if row.twice:
        return whole(session, text, change)
    before = row.document
    after, answer = change(before, session.clock())
    if row.beside and isinstance(answer, Answer):
        answer = cast("_T", _filled(session, row, answer))
    if after is not before:
        changed = _leaned(session, row, after, terms)
        if changed is None:
            return whole(session, text, change)
        session.put(text, row, changed)
    return answer


def _leaned(session: Session, row: Row, after: Document, terms: Terms) -> Row | None:
    """The row of the changed document; ``None`` when the whole window is needed to say what it holds."""
    tail, window = after.seen, row.window
    if tail is not row.document.seen and window.end > window.floor:
        shifted = rows.advanced(window, tail, after.touched, terms)
        if shifted is None:
            return None
        window = shifted
    if (
        row.id
        and after.epoch
        and not (row.beside or after.dead)
        and len(tail) <= LONGEST_TAIL
        and window.floor - window.base < _TRIM
        and (not after.inbox or _size(after) <= INLINE_BYTES)
    ):
        return Row(row.id, after, rows.text_of(row, after.record), (), window)
    return _made(session, row, after, tail, window, False, None)


def _filled(session: Session, row: Row, answer: Answer) -> Answer:
    """The answer with the payloads of what it grants."""
    grant = answer.grant
    if grant is None:
        return answer
    entries = tuple(
        [
            replace(e, payload=session.payload(row.id, e.seq)) if e.seq in row.beside else e
            for e in grant.entries
        ]
    )
    return replace(answer, grant=replace(grant, entries=entries))


def renew(session: Session, claims: list[tuple[str, Claim]], terms: Terms) -> list[bool]:
    """Renew many claims; ``False`` for each that is lost."""
    return [lean(session, text, terms, partial(_renewed, claim=claim, terms=terms)) for text, claim in claims]


def _renewed(document: Document, now: float, claim: Claim, terms: Terms) -> tuple[Document, bool]:
    return protocol.renew(document, now, claim, terms)


# ------------------------------------------------------------------------------------------- the whole way


def load(session: Session, text: str) -> Document:
    """The whole document at an address."""
    return _whole(session, session.row(text))[0]


def whole(session: Session, text: str, change: Change[_T]) -> _T:
    """Apply any change."""
    row = session.row(text)
    before, numbers, known = _whole(session, row)
    after, answer = change(before, session.clock())
    if after is not before:
        _put(session, text, row, before, numbers, known, after)
    return answer


def swap(session: Session, text: str, expected_version: int, document: Document) -> bool:
    """Put the document in place of the version expected."""
    row = session.row(text)
    if row.document.version != expected_version:
        return False
    before, numbers, known = _whole(session, row)
    _put(session, text, row, before, numbers, known, document)
    return True


def expire(session: Session, text: str, terms: Terms) -> bool:
    """Tidy one document, or remove it when it is void; whether that changed anything."""
    row = session.row(text, keep=False)
    if row is ABSENT:
        return False
    before, numbers, known = _whole(session, row)
    now = session.clock()
    after = protocol.expire(before, now, terms)
    if protocol.is_void(after, now, terms):
        after = EMPTY
    elif after is before:
        return False
    _put(session, text, row, before, numbers, known, after)
    return True


_Known: TypeAlias = Mapping[int, tuple[bytes, str]]


def _whole(session: Session, row: Row) -> tuple[Document, dict[str, int], _Known]:
    """The document with everything, the numbers of the ids beyond the tail, and what is kept beside it."""
    document = row.document
    numbers: dict[str, int] = {}
    known: _Known = {}
    if row.window.end > row.window.floor:
        seen: dict[str, float] = {}
        for event_id, n, at in session.all_marks(row):
            seen[event_id], numbers[event_id] = at, n
        document = replace(document, seen={**seen, **document.seen})
    if row.beside:
        known = session.all_payloads(row.id)
        try:
            document = _refilled(document, row.beside, known)
        except KeyError:
            raise session.damaged(row.id) from None
    return document, numbers, known


def _refilled(document: Document, beside: tuple[int, ...], known: _Known) -> Document:
    inbox = [replace(e, payload=known[e.seq][0]) if e.seq in beside else e for e in document.inbox]
    dead = [
        replace(d, payload=known[d.seq][0], error=known[d.seq][1]) if d.seq in beside else d
        for d in document.dead
    ]
    return replace(document, inbox=tuple(inbox), dead=tuple(dead))


def _put(
    session: Session,
    text: str,
    row: Row,
    before: Document,
    numbers: dict[str, int],
    known: _Known,
    after: Document,
) -> None:
    tail, window = row.document.seen, row.window
    if after.seen is not before.seen:
        tail, window = _remarked(session, row, before.seen, numbers, after.seen)
    twice = bool(numbers) and any(e.event_id in numbers and e.event_id not in tail for e in after.inbox)
    session.put(text, row, _made(session, row, after, tail, window, twice, known))


def _remarked(
    session: Session, row: Row, before: dict[str, float], numbers: dict[str, int], seen: dict[str, float]
) -> tuple[dict[str, float], Window]:
    """Tail and window for any new content: what kept its place stays, all that follows is the tail."""
    window, marks = row.window, list(seen.items())
    kept, floor = 0, -1
    gone: list[tuple[str, int]] = []
    for event_id, n in numbers.items():
        if kept < len(marks) and marks[kept] == (event_id, before[event_id]):
            kept += 1
            floor = n if floor < 0 else floor
        else:
            gone.append((event_id, n))
    floor = window.end if floor < 0 else floor
    for event_id, n in gone:
        if n > floor:
            session.marks[row.id, event_id] = None
    if floor > window.base:
        session.trims.append((row.id, floor))
    holes = window.end - floor - kept
    return dict(marks[kept:]), replace(window, base=floor, floor=floor, holes=holes)


# ------------------------------------------------------------------------------------------- the new row


def _made(
    session: Session,
    row: Row,
    after: Document,
    tail: dict[str, float],
    window: Window,
    twice: bool,
    known: _Known | None,
) -> Row:
    """The row for a changed document; what does not fit in it goes beside it."""
    id_ = row.id
    if not window.size and protocol.is_blank(after):
        after, id_ = EMPTY, 0
    elif not id_:
        id_ = session.new_id()
    beside = row.beside
    if beside or after.dead or (after.inbox and _size(after) > INLINE_BYTES):
        after, beside = _shelved(session, row, id_, after, known)
    if not id_:
        if window.end > window.base:
            session.trims.append((row.id, EVERYTHING))
        return ABSENT
    if len(tail) > LONGEST_TAIL:
        tail, window = _spilled(session, id_, tail, window)
    if window.floor - window.base >= _TRIM:
        session.trims.append((id_, window.floor))
        window = replace(window, base=window.floor)
    if tail is not after.seen:
        after = replace(after, seen=tail)
    return Row(id_, after, rows.text_of(row, after.record), beside, window, twice)


def _size(document: Document) -> int:
    return sum([len(entry.payload) for entry in document.inbox])


def _spilled(
    session: Session, id_: int, tail: dict[str, float], window: Window
) -> tuple[dict[str, float], Window]:
    """Move all but the newest ids out of the row."""
    marks = list(tail.items())
    n = window.end
    for event_id, at in marks[:-SPILL]:
        session.marks[id_, event_id] = (n, at)
        n += 1
    return dict(marks[-SPILL:]), replace(window, end=n)


def _shelved(
    session: Session, row: Row, id_: int, document: Document, known: _Known | None
) -> tuple[Document, tuple[int, ...]]:
    """Keep large payloads, and all of the dead letters, beside the row.

    With *known* the document has its payloads and they are compared; without, what is beside stays there.
    """
    room = INLINE_BYTES
    beside: list[int] = []
    inbox: list[Entry] = []
    for entry in document.inbox:
        if entry.seq not in row.beside and len(entry.payload) <= room:
            room -= len(entry.payload)
            inbox.append(entry)
        else:
            beside.append(entry.seq)
            inbox.append(_beside(session, row, id_, entry, known))
    dead: list[Dead] = []
    buried = {letter.seq for letter in row.document.dead}
    for letter in document.dead:
        beside.append(letter.seq)
        if letter.seq not in buried or (known is not None and letter.error != known[letter.seq][1]):
            session.errors[id_, letter.seq] = letter.error
        dead.append(replace(_beside(session, row, id_, letter, known), error=""))
    for seq in row.beside:
        if seq not in beside:
            session.payloads[row.id, seq] = None
    return replace(document, inbox=tuple(inbox), dead=tuple(dead)), tuple(beside)


_E = TypeVar("_E", Entry, Dead)


def _beside(session: Session, row: Row, id_: int, event: _E, known: _Known | None) -> _E:
    """The event without its payload, which is written beside the row unless it is there already."""
    if known is None:
        is_there = event.seq in row.beside
    else:
        is_there = event.seq in known and known[event.seq][0] == event.payload
    if not is_there:
        session.payloads[id_, event.seq] = event.payload
    return replace(event, payload=b"") if event.payload else event
