"""The tables, how they came to be (numbered steps, forward only), and how a file is opened or refused.

A file that is not ours is left as it was: whatever can be found out from its bytes or a read-only connection
is found out that way.
"""

from __future__ import annotations

import os
import random
import sqlite3
import time
from collections.abc import Callable
from typing import Final, TypeVar

from hitherto.errors import SchemaError, StoreCorrupt, StoreUnavailable
from hitherto.stores.sqlite import failures

MEMORY: Final = ":memory:"
APPLICATION_ID: Final = 0x68697468
SAFE_SINCE: Final = (3, 51, 3)
_MAGIC: Final = b"SQLite format 3\x00"
_T = TypeVar("_T")

STEPS: Final[tuple[tuple[str, ...], ...]] = (
    (
        """
        CREATE TABLE conversation (
            id INTEGER PRIMARY KEY,
            bot TEXT NOT NULL,
            realm TEXT NOT NULL,
            address TEXT NOT NULL UNIQUE,
            version INTEGER NOT NULL,
            flow TEXT,
            state TEXT,
            data TEXT,
            recorded INTEGER NOT NULL,
            pending INTEGER NOT NULL,
            dead INTEGER NOT NULL,
            lease_until REAL,
            wake_at REAL,
            touched REAL NOT NULL,
            body BLOB NOT NULL
        )
        """,
        "CREATE INDEX conversation_due ON conversation (bot, wake_at) WHERE wake_at IS NOT NULL",
        "CREATE INDEX conversation_state ON conversation (bot, realm, flow, state, address) "
        "WHERE recorded > 0",
        "CREATE INDEX conversation_dead ON conversation (bot) WHERE dead > 0",
        """
        CREATE TABLE payload (
            conversation INTEGER NOT NULL,
            seq INTEGER NOT NULL,
            payload BLOB NOT NULL,
            error TEXT NOT NULL DEFAULT '',
            PRIMARY KEY (conversation, seq)
        ) WITHOUT ROWID
        """,
        """
        CREATE TABLE seen (
            conversation INTEGER NOT NULL,
            event_id TEXT NOT NULL,
            n INTEGER NOT NULL,
            at REAL NOT NULL,
            PRIMARY KEY (conversation, event_id)
        ) WITHOUT ROWID
        """,
    ),
)
VERSION: Final = len(STEPS)


def open_file(path: str, url: str, synchronous: str, timeout: float) -> sqlite3.Connection:
    """A connection to a file (or memory) that is ours and up to date; a ``StoreError`` says what is wrong."""
    if path != MEMORY:
        _refuse_unusable(path, url)
        _refuse_foreign(path, url)
    connection = _connected(path, url)
    try:
        patiently(lambda: _prepare(connection, url, synchronous), timeout)
    except sqlite3.Error as error:
        connection.close()
        raise failures.translated(error, url) from error
    except BaseException:
        connection.close()
        raise
    return connection


def patiently(action: Callable[[], _T], timeout: float) -> _T:
    """Repeat while another connection is in the way, after short random waits, until the time is up.

    SQLite's own busy handler waits ever longer, and starves whoever waited most.
    """
    deadline, pause = time.monotonic() + timeout, 0.001
    while True:
        try:
            return action()
        except sqlite3.OperationalError as error:
            if not failures.is_busy(error) or time.monotonic() >= deadline:
                raise
        time.sleep(random.uniform(0.1, 1.0) * pause)
        pause = min(pause * 1.05, 0.005)


def identity(path: str) -> tuple[int, int] | None:
    """Which file the path names now: device and inode, or ``None`` when there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _connected(path: str, url: str) -> sqlite3.Connection:
    try:
        return sqlite3.connect(path, timeout=0, isolation_level=None, cached_statements=64)
    except sqlite3.Error as error:
        raise failures.translated(error, url) from error


def _refuse_unusable(path: str, url: str) -> None:
    """Create the file if there is none, private to its owner; complain about what cannot work."""
    folder = os.path.dirname(path)
    if not os.path.isdir(folder):
        raise StoreUnavailable(
            f"the directory {folder} does not exist; create it first", url=url, retryable=False
        )
    if os.path.isdir(path):
        raise StoreUnavailable(f"{path} is a directory; name a file in it", url=url, retryable=False)
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except OSError as error:
        raise failures.unopenable(error, path, url) from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise StoreUnavailable(
            f"the directory {folder} is read-only; SQLite keeps its log beside the file, let this user write",
            url=url,
            retryable=False,
        )


def _refuse_foreign(path: str, url: str) -> None:
    """Look before SQLite opens the file for writing: opening could already change somebody else's file."""
    with open(path, "rb") as file:
        header = file.read(100)
    if not header or header[68:72] == APPLICATION_ID.to_bytes(4, "big"):
        return
    if not header.startswith(_MAGIC):
        raise StoreCorrupt(
            f"{path} is not an SQLite database; it was left as it is, name another file", url=url
        )
    quoted = path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")
    connection = _connected_read_only(f"file:{quoted}?mode=ro", url)
    try:
        _state(connection, url)
    except sqlite3.Error as error:
        raise failures.translated(error, url) from error
    finally:
        connection.close()


def _connected_read_only(uri: str, url: str) -> sqlite3.Connection:
    try:
        return sqlite3.connect(uri, timeout=5, isolation_level=None, uri=True)
    except sqlite3.Error as error:
        raise failures.translated(error, url) from error


def _state(connection: sqlite3.Connection, url: str) -> int:
    """The schema's version, 0 for an empty database; refuses what another program or a newer version made."""
    application = _pragma(connection, "application_id")
    version = _pragma(connection, "user_version")
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if application != APPLICATION_ID and (application or tables or version):
        raise StoreCorrupt(
            "the file is an SQLite database of another program; it was left as it is, name another file",
            url=url,
        )
    if version > VERSION:
        raise SchemaError(
            f"the file has schema {version} and this version of hitherto knows {VERSION}; upgrade hitherto, "
            "or name another file",
            url=url,
        )
    return int(version)


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])


def _prepare(connection: sqlite3.Connection, url: str, synchronous: str) -> None:
    if _state(connection, url) < VERSION:
        _migrate(connection, url)
    mode = connection.execute("PRAGMA journal_mode=WAL").fetchone()[0]
    if mode not in ("wal", "memory"):
        raise StoreUnavailable(
            f"write-ahead logging does not work there (journal_mode stays {mode}); "
            "keep the file on a local disk",
            url=url,
            retryable=False,
        )
    connection.execute(f"PRAGMA synchronous={synchronous}")
    connection.execute("PRAGMA cache_size=-16000")
    connection.execute("PRAGMA temp_store=MEMORY")


def _migrate(connection: sqlite3.Connection, url: str) -> None:
    """Take the steps that are missing, all in one transaction."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        for step in STEPS[_state(connection, url) :]:
            for statement in step:
                connection.execute(statement)
        connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version={VERSION}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
