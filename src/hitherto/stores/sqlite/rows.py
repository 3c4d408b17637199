"""Documents as rows, and rows as documents."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec

from hitherto import addresses, protocol
from hitherto.addresses import Address
from hitherto.errors import StoreCorrupt, StoreUnavailable
from hitherto.protocol import EMPTY, Document
from hitherto.stores.sqlite.schema import MEMORY, identity

_T = TypeVar("_T")
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Document).decode


class Rows:
    """One connection's view of the documents."""

    def __init__(
        self, connection: sqlite3.Connection, path: str, url: str, clock: Callable[[], float]
    ) -> None:
        self._execute = connection.execute
        self._path, self._url, self._clock = path, url, clock
        self._file = None if path == MEMORY else identity(path)

    def check(self) -> None:
        """Raise when the file was deleted or replaced since it was opened."""
        if self._file is not None and identity(self._path) != self._file:
            raise StoreUnavailable(
                f"{self._path} was deleted or replaced while it was in use; nothing more is written to the old "
                "file: close the store and open it again to go on with what is there now",
                url=self._url,
                retryable=False,
            )

    def begin(self) -> None:
        """Nothing is remembered between transactions."""

    def flush(self) -> None:
        """Everything is written at once."""

    def settle(self, committed: bool) -> None:
        """Nothing is remembered between transactions."""

    def load(self, text: str) -> Document:
        """The document at an address."""
        row = self._execute("SELECT body FROM conversation WHERE address=?", (text,)).fetchone()
        if row is None:
            return EMPTY
        try:
            return _decode(row[0])
        except msgspec.MsgspecError as error:
            raise StoreCorrupt("a conversation's row is damaged", url=self._url) from error

    def transact(self, address: Address, change: Callable[[Document, float], tuple[Document, _T]]) -> _T:
        """Apply a change."""
        text = addresses.encode(address)
        before = self.load(text)
        after, answer = change(before, self._clock())
        if after is not before:
            self._store(text, address, after)
        return answer

    def swap(self, address: Address, expected_version: int, document: Document) -> bool:
        """Put the document in place of the version expected."""
        text = addresses.encode(address)
        if self.load(text).version != expected_version:
            return False
        self._store(text, address, document)
        return True

    def _store(self, text: str, address: Address, document: Document) -> None:
        if protocol.is_blank(document):
            self._execute("DELETE FROM conversation WHERE address=?", (text,))
            return
        values = (document.version, protocol.wake_at(document), len(document.dead), _encode(document), text)
        done = self._execute(
            "UPDATE conversation SET version=?, wake_at=?, dead=?, body=? WHERE address=?", values
        )
        if not done.rowcount:
            self._execute(
                "INSERT INTO conversation (version, wake_at, dead, body, address, bot, realm) "
                "VALUES (?,?,?,?,?,?,?)",
                (*values, address.bot, address.realm),
            )

    def page(self, sql: str, values: Sequence[Any]) -> list[Any]:
        """Rows of a query."""
        return self._execute(sql, values).fetchall()
