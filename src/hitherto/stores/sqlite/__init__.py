"""The default store: one SQLite file, shared by as many processes as like.

Write-ahead log, ``synchronous=FULL``, one thread that owns the connection and commits for everybody who waits
at the same moment (see :mod:`hitherto.stores.sqlite.engine`).
"""

from __future__ import annotations

from hitherto.stores.sqlite.store import SQLiteStore

__all__ = ["SQLiteStore"]
