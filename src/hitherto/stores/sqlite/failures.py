"""What SQLite complains about, as errors of this library that say what to do."""

from __future__ import annotations

import os
import sqlite3
from typing import Final

from hitherto.errors import StoreCorrupt, StoreError, StoreUnavailable

BUSY: Final = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_LASTING: Final = frozenset(
    {
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_NOTADB,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_MISUSE,
        sqlite3.SQLITE_PROTOCOL,
    }
)
_REASONS: Final[dict[int, tuple[type[StoreError], bool, str]]] = {
    sqlite3.SQLITE_BUSY: (
        StoreUnavailable,
        True,
        "the database is locked by another connection; end what holds it, or raise ?timeout=",
    ),
    sqlite3.SQLITE_FULL: (
        StoreUnavailable,
        True,
        "the disk is full, nothing was changed; free some space and try again",
    ),
    sqlite3.SQLITE_READONLY: (
        StoreUnavailable,
        False,
        "the file or its directory is read-only; let this user write to both",
    ),
    sqlite3.SQLITE_CANTOPEN: (
        StoreUnavailable,
        False,
        "the file cannot be opened; this user must be able to read and write it and its directory",
    ),
    sqlite3.SQLITE_IOERR: (
        StoreUnavailable,
        True,
        "the disk failed to read or write; see the system's log; the file is opened again on the next use",
    ),
    sqlite3.SQLITE_NOMEM: (StoreUnavailable, True, "out of memory; nothing was changed"),
    sqlite3.SQLITE_PROTOCOL: (
        StoreUnavailable,
        True,
        "the file's locks do not work; keep it on a local disk, not on a network file system",
    ),
    sqlite3.SQLITE_CORRUPT: (
        StoreCorrupt,
        False,
        "the file is damaged; stop the bot, keep a copy, restore a backup or try `sqlite3 FILE .recover`",
    ),
    sqlite3.SQLITE_NOTADB: (
        StoreCorrupt,
        False,
        "the file is not an SQLite database (or encrypted); it was left as it is, name another one",
    ),
}
_REASONS[sqlite3.SQLITE_LOCKED] = _REASONS[sqlite3.SQLITE_BUSY]
_REASONS[sqlite3.SQLITE_PERM] = _REASONS[sqlite3.SQLITE_READONLY]


def code_of(error: sqlite3.Error) -> int:
    """The primary result code, or 0 when the error did not come from SQLite itself."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def is_busy(error: sqlite3.Error) -> bool:
    """Whether another connection is in the way and a later attempt may succeed."""
    return code_of(error) in BUSY


def is_lasting(error: sqlite3.Error) -> bool:
    """Whether the connection should be given up: what went wrong may stay with it."""
    return code_of(error) in _LASTING


def translated(error: sqlite3.Error, url: str) -> StoreError:
    """The error to give to the caller."""
    code = code_of(error)
    kind, retryable, reason = _REASONS.get(code, (StoreError, False, "SQLite refused"))
    name = getattr(error, "sqlite_errorname", type(error).__name__)
    return kind(f"{reason} ({name}: {error})", url=url, retryable=retryable)


def unopenable(error: OSError, path: str, url: str) -> StoreError:
    """The operating system refused the file before SQLite saw it."""
    reason = os.strerror(error.errno) if error.errno else str(error)
    return StoreUnavailable(
        f"{path}: {reason}; this user must be able to read and write the file and its directory, "
        "and the disk must have room",
        url=url,
        retryable=False,
    )
