"""How a file is opened, or refused and left as it was.

Nothing here opens the file other than through SQLite: closing an ordinary descriptor of it would drop the
locks that other connections of this process hold on it.
"""

from __future__ import annotations

import contextlib
import os
import random
import sqlite3
import threading
import time
from collections.abc import Callable
from typing import Final, TypeAlias, TypeVar

from hitherto.errors import StoreClosed, StoreUnavailable
from hitherto.stores.sqlite import failures, schema

MEMORY: Final = ":memory:"
SAFE_SINCE: Final = (3, 51, 3)
Identity: TypeAlias = tuple[int, int]
_T = TypeVar("_T")


def open_file(path: str, url: str, synchronous: str, timeout: float) -> sqlite3.Connection:
    """A connection to a file (or memory) that is ours and up to date; a ``StoreError`` says what is wrong."""
    if path != MEMORY:
        _refuse_unusable(path, url)
        _refuse_foreign(path, url)
    try:
        connection = sqlite3.connect(
            path, timeout=0, isolation_level=None, cached_statements=64, factory=_Connection
        )
    except sqlite3.Error as error:
        raise failures.translated(error, url) from error
    try:
        connection.hold(path)
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


def identity(path: str) -> Identity | None:
    """Which file the path names now: device and inode, or ``None`` when there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def forked(url: str) -> StoreClosed:
    """The error for a file that was open when its process was forked."""
    return StoreClosed(
        "the file was open when this process was forked, and SQLite must not cross a fork; open the store "
        "after the fork, or close it before",
        url=url,
    )


_lock: Final = threading.Lock()
_holders: Final[dict[Identity, tuple[int, int]]] = {}
"""How many connections of which process hold a file; a forked child inherits the entries of its parent."""


class _Connection(sqlite3.Connection):
    """A connection that is known to hold its file until it is closed."""

    _held: Identity | None = None

    def hold(self, path: str) -> None:
        """Note that this process has the file open."""
        found = None if path == MEMORY else identity(path)
        if found is not None:
            self._held = found
            with _lock:
                pid, number = _holders.get(found, (os.getpid(), 0))
                _holders[found] = (pid, number + 1)

    def close(self) -> None:
        """Close, and let go of the file."""
        super().close()
        found, self._held = self._held, None
        if found is not None:
            with _lock:
                pid, number = _holders[found]
                _holders[found] = (pid, number - 1)
                if number == 1:
                    del _holders[found]


def _refuse_unusable(path: str, url: str) -> None:
    """Create the file if there is none, private to its owner; complain about what cannot work."""
    folder = os.path.dirname(path)
    if not os.path.isdir(folder):
        raise _unusable(f"the directory {folder} does not exist; create it first", url)
    if os.path.isdir(path):
        raise _unusable(f"{path} is a directory; name a file in it", url)
    if not os.access(folder, os.W_OK | os.X_OK):
        raise _unusable(
            f"the directory {folder} is read-only; SQLite keeps its log beside the file, let this user write",
            url,
        )
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        if not os.access(path, os.R_OK | os.W_OK):
            raise _unusable(f"{path} is read-only; let this user read and write it", url) from None
    except OSError as error:
        raise failures.unopenable(error, path, url) from error


def _unusable(message: str, url: str) -> StoreUnavailable:
    return StoreUnavailable(message, url=url, retryable=False)


def version_at(path: str, url: str) -> int:
    """The schema's version in a file that need not be there."""
    if not os.path.exists(path):
        return 0
    try:
        with contextlib.closing(sqlite3.connect(_read_only(path), uri=True)) as looking:
            return schema.version_of(looking, url)
    except sqlite3.Error as error:
        raise failures.translated(error, url) from error


def _read_only(path: str) -> str:
    quoted = path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")
    return f"file:{quoted}?mode=ro"


def _refuse_foreign(path: str, url: str) -> None:
    """Look at the bare file, without its log and without locks, so that a look changes nothing.

    Somebody may be writing it at this moment: what only looks damaged is left to a look with locks. So is a
    file beside which a journal lies: the power went while it was made, and SQLite undoes that on opening.
    """
    pid, _ = _holders.get(identity(path) or (0, 0), (os.getpid(), 0))
    if pid != os.getpid():
        raise forked(url)
    try:
        with contextlib.closing(sqlite3.connect(f"{_read_only(path)}&immutable=1", uri=True)) as bare:
            schema.version_of(bare, url)
    except sqlite3.Error as error:
        is_made_again = os.path.exists(f"{path}-journal")
        if failures.code_of(error) == sqlite3.SQLITE_NOTADB and not is_made_again:
            raise failures.translated(error, url) from error


def _prepare(connection: sqlite3.Connection, url: str, synchronous: str) -> None:
    if schema.version_of(connection, url) < schema.version():
        schema.migrate(connection, url)
    mode = connection.execute("PRAGMA journal_mode=WAL").fetchone()[0]
    if mode not in ("wal", "memory"):
        raise _unusable(
            f"write-ahead logging does not work there (journal_mode stays {mode}); use a local disk",
            url,
        )
    connection.execute(f"PRAGMA synchronous={synchronous}")
    connection.execute("PRAGMA cache_size=-16000")
    connection.execute("PRAGMA temp_store=MEMORY")
