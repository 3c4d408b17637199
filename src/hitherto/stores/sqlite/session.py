"""What runs inside a transaction: rows are read once, changed in memory and written together at its end.

Rows stay in a bounded cache between transactions, which SQLite's ``data_version`` keeps honest: it changes as
soon as any other connection has committed, and then nothing is believed any more.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

from hitherto import addresses
from hitherto.errors import StoreCorrupt, StoreUnavailable
from hitherto.records import Stored
from hitherto.stores.sqlite import rows
from hitherto.stores.sqlite.opening import MEMORY, identity
from hitherto.stores.sqlite.rows import ABSENT, COLUMNS, Row

Mark: TypeAlias = tuple[int, float]
"""The number of a seen id and when it was marked."""

EVERYTHING: Final = 1 << 62
_LARGEST_KEPT: Final = 16_384

_SELECT: Final = f"SELECT {COLUMNS} FROM conversation WHERE address=?"  # noqa: S608 - constants only
_LAST: Final = "SELECT coalesce(max(id), 0) FROM conversation"
_INSERT: Final = (
    "INSERT INTO conversation (bot, realm, address, flow, state, data, recorded, dead, version, wake_at, "
    "touched, pending, lease_until, body, id) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)"
)
_STIR: Final = (
    "UPDATE conversation SET version=?, wake_at=?, touched=?, pending=?, lease_until=?, body=? WHERE id=?"
)
_UPDATE: Final = _STIR.replace("SET ", "SET data=?, ")
_MOVE: Final = _STIR.replace("SET ", "SET flow=?, state=?, data=?, recorded=?, dead=?, ")
_DELETE: Final = "DELETE FROM conversation WHERE id=?"
_PAYLOAD: Final = "SELECT payload FROM payload WHERE conversation=? AND seq=?"
_PAYLOADS: Final = "SELECT seq, payload, error FROM payload WHERE conversation=?"
_KEEP: Final = "INSERT OR REPLACE INTO payload (conversation, seq, payload) VALUES (?,?,?)"
_DROP: Final = "DELETE FROM payload WHERE conversation=? AND seq=?"
_BLAME: Final = "UPDATE payload SET error=? WHERE conversation=? AND seq=?"
_PROBE: Final = "SELECT n, at FROM seen WHERE conversation=? AND event_id=?"
_WINDOW: Final = "SELECT event_id, n, at FROM seen WHERE conversation=? AND n>=? AND at>? ORDER BY n"
_MARK: Final = "INSERT OR REPLACE INTO seen (conversation, event_id, n, at) VALUES (?,?,?,?)"
_UNMARK: Final = "DELETE FROM seen WHERE conversation=? AND event_id=?"
_FORGET: Final = "DELETE FROM seen WHERE conversation=? AND n<?"


class Session:
    """One connection's transactions, one after the other, with what is remembered between them.

    What is pending is public to :mod:`hitherto.stores.sqlite.changes`: *payloads* (``None``: to be deleted),
    *errors* of dead letters, *marks* (``None``: to be taken out) and *trims* (all marks below a number).
    """

    def __init__(
        self, connection: sqlite3.Connection, *, path: str, url: str, clock: Callable[[], float], kept: int
    ) -> None:
        self.clock = clock
        self.payloads: dict[tuple[int, int], bytes | None] = {}
        self.errors: dict[tuple[int, int], str] = {}
        self.marks: dict[tuple[int, str], Mark | None] = {}
        self.trims: list[tuple[int, int]] = []
        self._execute, self._executemany = connection.execute, connection.executemany
        self._path, self._url, self._half = path, url, kept // 2
        self._file = None if path == MEMORY else identity(path)
        self._data_version = -1
        self._next_id = 0
        self._young: dict[str, Row] = {}
        self._old: dict[str, Row] = {}
        self._changed: dict[str, Row] = {}
        self._base: dict[str, Row] = {}

    # ----------------------------------------------------------------------------------- the transaction

    def check(self) -> None:
        """Raise when the file was deleted or replaced since it was opened."""
        if self._file is not None and identity(self._path) != self._file:
            raise StoreUnavailable(
                f"{self._path} was deleted or replaced while it was in use, and nothing is written to it any "
                "more; close the store and open it again to go on with what is there now",
                url=self._url,
                retryable=False,
            )

    def begin(self) -> None:
        """A transaction has begun: find out whether anybody else wrote since the last one."""
        version = self._execute("PRAGMA data_version").fetchone()[0]
        if version != self._data_version:
            self._data_version = version
            self._young.clear()
            self._old.clear()

    def flush(self) -> None:
        """Write what changed."""
        if self._changed:
            self._write_rows()
        if self.payloads:
            self._write_pairs(_DROP, _KEEP, self.payloads)
        if self.errors:
            self._executemany(_BLAME, [(error, *place) for place, error in self.errors.items()])
            self.errors.clear()
        if self.marks:
            self._write_pairs(_UNMARK, _MARK, self.marks)
        if self.trims:
            self._executemany(_FORGET, self.trims)
            self.trims.clear()

    def settle(self, committed: bool) -> None:
        """The transaction is over: believe what was written, or forget everything."""
        if not committed:
            self._data_version = -1
            for pending in (self._changed, self._base, self.payloads, self.errors, self.marks, self.trims):
                pending.clear()
        self._next_id = 0

    # --------------------------------------------------------------------------------------------- rows

    def row(self, text: str, *, keep: bool = True) -> Row:
        """The row at an address, as this transaction sees it; *keep* it for the next ones."""
        found = self._changed.get(text) or self._young.get(text) or self._old.get(text)
        if found is None:
            columns = self._execute(_SELECT, (text,)).fetchone()
            if columns is None:
                return ABSENT
            found = rows.read(columns, self._url)
            if keep and (found.text is None or len(found.text) <= _LARGEST_KEPT):
                self._young[text] = found
                self._grow_old()
        return found

    def _grow_old(self) -> None:
        """Half of what is kept is new; when it has grown, what is older than it goes."""
        if len(self._young) > self._half:
            self._old = self._young
            self._young = {}

    def put(self, text: str, before: Row, row: Row) -> None:
        """Remember a changed row until it is written; ``ABSENT`` deletes it."""
        self._base.setdefault(text, before)
        self._changed[text] = row

    def new_id(self) -> int:
        """A number for a new conversation; nobody else can take one while this transaction writes."""
        if not self._next_id:
            self._next_id = self._execute(_LAST).fetchone()[0]
        self._next_id += 1
        return self._next_id

    def _write_rows(self) -> None:
        stirred: list[tuple[Any, ...]] = []
        updated: list[tuple[Any, ...]] = []
        moved: list[tuple[Any, ...]] = []
        large: list[str] = []
        for text, row in self._changed.items():
            base = self._base[text]
            if row.text is not None and len(row.text) > _LARGEST_KEPT:
                large.append(text)
            if base.id != row.id:
                self._replace(text, base, row)
            elif row.id:
                before, after = base.document, row.document
                if before.record is after.record and before.dead is after.dead:
                    stirred.append(_columns(row))
                elif len(before.dead) != len(after.dead) or _is_moved(before.record, after.record):
                    moved.append((*_record_columns(row), *_columns(row)))
                else:
                    updated.append((row.text, *_columns(row)))
        for sql, many in ((_STIR, stirred), (_UPDATE, updated), (_MOVE, moved)):
            if many:
                self._executemany(sql, many)
        self._young.update(self._changed)
        for text in large:
            del self._young[text]
            self._old.pop(text, None)
        self._grow_old()
        self._changed.clear()
        self._base.clear()

    def _replace(self, text: str, base: Row, row: Row) -> None:
        if base.id:
            self._execute(_DELETE, (base.id,))
        if row.id:
            bot, realm, _ = addresses.decode(text)
            self._execute(_INSERT, (bot, realm, text, *_record_columns(row), *_columns(row)))

    def _write_pairs(self, delete: str, insert: str, pending: dict[Any, Any]) -> None:
        """Delete what is ``None``, insert the rest."""
        gone: list[Any] = []
        kept: list[Any] = []
        for place, value in pending.items():
            if value is None:
                gone.append(place)
            else:
                kept.append((*place, *value) if type(value) is tuple else (*place, value))
        for sql, many in ((delete, gone), (insert, kept)):
            if many:
                self._executemany(sql, many)
        pending.clear()

    # --------------------------------------------------------------------------- what is beside the row

    def payload(self, id_: int, seq: int) -> bytes:
        """The payload of one event that is kept beside its row."""
        pending = self.payloads.get((id_, seq))
        if pending is not None:
            return pending
        found = self._execute(_PAYLOAD, (id_, seq)).fetchone()
        if found is None:
            raise self.damaged(id_)
        payload: bytes = found[0]
        return payload

    def all_payloads(self, id_: int) -> dict[int, tuple[bytes, str]]:
        """The payload and the error of every event that is kept beside the row."""
        self.flush()
        return {seq: (payload, error) for seq, payload, error in self._execute(_PAYLOADS, (id_,))}

    def probe(self, row: Row, event_id: str) -> float | None:
        """When an id of the window was marked, or ``None`` if it is not in it."""
        place = (row.id, event_id)
        found = self.marks[place] if place in self.marks else self._execute(_PROBE, place).fetchone()
        if found is None:
            return None
        window = row.window
        n, at = found
        return at if window.floor <= n < window.end and at > window.horizon else None

    def all_marks(self, row: Row) -> list[tuple[str, int, float]]:
        """Every id of the window with its number and its time, oldest first."""
        self.flush()
        window = row.window
        return self._execute(_WINDOW, (row.id, window.floor, window.horizon)).fetchall()

    def damaged(self, id_: int) -> StoreCorrupt:
        """The error for a row whose parts do not fit together."""
        return StoreCorrupt(
            f"the payloads of row {id_} of table conversation are damaged; restore a backup", url=self._url
        )

    def query(self, sql: str, values: Sequence[Any]) -> list[Any]:
        """All rows of a query; flush() first if it must see what is pending."""
        return self._execute(sql, values).fetchall()


def _columns(row: Row) -> tuple[Any, ...]:
    document = row.document
    lease = document.lease
    return (
        document.version,
        rows.wake_at(document),
        document.touched,
        len(document.inbox),
        None if lease is None else lease.deadline,
        rows.body_of(row),
        row.id,
    )


def _record_columns(row: Row) -> tuple[Any, ...]:
    record, dead = row.document.record, len(row.document.dead)
    if record is None:
        return None, None, None, 0, dead
    return record.flow, record.state, row.text, 1, dead


def _is_moved(before: Stored | None, after: Stored | None) -> bool:
    """Whether more than the data differs."""
    if before is None or after is None:
        return before is not after
    return before.flow != after.flow or before.state != after.state
