"""The default store: one SQLite file, shared by as many processes as like.

Write-ahead log, ``synchronous=FULL``, one thread that owns the connection and commits for everybody who waits
at the same moment (see :mod:`hitherto.stores.sqlite.engine`).
"""

from __future__ import annotations

import math
import os
import sqlite3
import time
import warnings
import weakref
from collections.abc import AsyncIterator, Callable
from typing import Final, TypeVar
from urllib.parse import parse_qsl, unquote

from hitherto import addresses
from hitherto.addresses import Address
from hitherto.errors import BadStoreURL, StoreClosed, StoreWarning
from hitherto.protocol import EMPTY, Document
from hitherto.stores.base import Kind, Store, is_filed
from hitherto.stores.sqlite.engine import Engine, used_after_fork
from hitherto.stores.sqlite.rows import Rows
from hitherto.stores.sqlite.schema import MEMORY, SAFE_SINCE, open_file

__all__ = ["SQLiteStore"]

_OPTIONS: Final = ("synchronous", "timeout")
_LEVELS: Final = ("FULL", "NORMAL", "EXTRA")
_PAGE: Final = 500
_T = TypeVar("_T")
_warned: list[bool] = []


class SQLiteStore(Store):
    """Conversations in one SQLite file; it is opened on first use.

    *synchronous* ``"FULL"`` keeps every acknowledged change through a power cut, ``"NORMAL"`` may lose the
    newest; *timeout* is how many seconds to wait for other processes that are writing.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        synchronous: str = "FULL",
        timeout: float = 10.0,
        group: bool = True,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(clock=clock)
        name = os.fspath(path)
        if synchronous.upper() not in _LEVELS:
            raise ValueError(f"synchronous={synchronous!r}: one of {', '.join(_LEVELS)}")
        if not (timeout >= 0 and math.isfinite(timeout)):
            raise ValueError(f"timeout={timeout!r}: seconds, zero or more")
        self.path = name if name == MEMORY else os.path.abspath(name)
        self.url = f"sqlite://{MEMORY}" if name == MEMORY else f"sqlite:///{name}"
        self._synchronous, self._timeout, self._group = synchronous.upper(), timeout, group
        self._engine: Engine[Rows] | None = None
        self._closed = False

    @classmethod
    def from_url(cls, url: str) -> SQLiteStore:
        """``sqlite:///relative.db``, ``sqlite:////absolute.db`` or ``sqlite://:memory:``.

        Options: ``?synchronous=FULL`` (or ``NORMAL``, ``EXTRA``) and ``?timeout=10`` (seconds).
        """
        rest, _, query = url.removeprefix("sqlite:").partition("?")
        place = unquote(rest.removeprefix("//"))
        if place not in (MEMORY, "/" + MEMORY) and (not rest.startswith("///") or len(place) < 2):
            raise BadStoreURL(
                f"{url}: write sqlite:///relative.db, sqlite:////absolute.db or sqlite://:memory:", url=url
            )
        options = dict(parse_qsl(query, keep_blank_values=True))
        if unknown := sorted(set(options) - set(_OPTIONS)):
            raise BadStoreURL(
                f"unknown option {', '.join(unknown)}; there are {', '.join(_OPTIONS)}", url=url
            )
        try:
            return cls(
                MEMORY if place.endswith(MEMORY) and len(place) < 10 else place[1:],
                synchronous=options.get("synchronous", "FULL"),
                timeout=float(options.get("timeout", 10.0)),
            )
        except ValueError as error:
            raise BadStoreURL(str(error), url=url) from None

    def __repr__(self) -> str:
        return f"SQLiteStore({self.path!r})"

    # ------------------------------------------------------------------------------ the five primitives

    async def open(self) -> None:
        """Open the file, create or migrate it if need be; a ``StoreError`` says what is wrong with it."""
        self._closed = False
        await self._running().submit(_nothing, writes=False)

    async def close(self) -> None:
        """Wait for what was asked before, then let go of the file."""
        engine, self._engine = self._engine, None
        self._closed = True
        if engine is not None and engine.pid == os.getpid():
            await engine.stopped()

    async def load(self, address: Address) -> Document:
        """The document at the address."""
        text = addresses.encode(address)
        return await self._running().submit(lambda rows: rows.load(text), writes=False)

    async def swap(self, address: Address, expected_version: int, document: Document) -> bool:
        """Replace the document if it is still the version expected."""
        return await self._running().submit(lambda rows: rows.swap(address, expected_version, document))

    async def scan(self, bot: str, kind: Kind) -> AsyncIterator[Address]:
        """List page by page; what changes meanwhile may be missed or listed as it was."""
        last, now = 0, self.clock()
        sql = "SELECT id, address FROM conversation WHERE bot=? AND id>? ORDER BY id LIMIT ?"
        while True:
            values = (bot, last, _PAGE)
            page = await self._running().submit(
                lambda rows, values=values: [  # type: ignore[misc]
                    (id_, text, rows.load(text)) for id_, text in rows.page(sql, values)
                ],
                writes=False,
            )
            for last, text, document in page:
                address = addresses.decode(text)
                if document is not EMPTY and is_filed(address, document, kind, now):
                    yield address
            if len(page) < _PAGE:
                return

    # --------------------------------------------------------------------------------------- the engine

    async def transact(
        self, address: Address, change: Callable[[Document, float], tuple[Document, _T]]
    ) -> _T:
        """Apply the change within the next transaction; it runs in the store's thread."""
        return await self._running().submit(lambda rows: rows.transact(address, change))

    def _running(self) -> Engine[Rows]:
        engine = self._engine
        if engine is None:
            return self._start()
        if engine.pid != os.getpid():
            raise used_after_fork(self.url)
        return engine

    def _start(self) -> Engine[Rows]:
        if self._closed:
            raise StoreClosed("the store was closed; open() it again before using it", url=self.url)
        path, url, synchronous, timeout = self.path, self.url, self._synchronous, self._timeout
        clock = self.clock
        if path != MEMORY:
            _warn_if_unsafe()
        self._engine = Engine(
            lambda: open_file(path, url, synchronous, timeout),
            lambda connection: Rows(connection, path, url, clock),
            url=url,
            timeout=timeout,
            group=self._group,
        )
        weakref.finalize(self, self._engine.stop)
        return self._engine


def _nothing(rows: Rows) -> None:
    """The operation that only makes the engine open its file."""


def _warn_if_unsafe() -> None:
    """Say once per process that this SQLite can damage a file under several writers."""
    if _warned or sqlite3.sqlite_version_info >= SAFE_SINCE:
        return
    _warned.append(True)
    warnings.warn(
        f"SQLite {sqlite3.sqlite_version} has the WAL-reset bug (fixed in 3.51.3): in rare cases several "
        "processes writing to one file can damage it; use a Python linked to a newer SQLite, or one process",
        StoreWarning,
        stacklevel=4,
    )
