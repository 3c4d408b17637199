"""The thread that owns the connection, and group commit.

Operations wait in a line; the thread takes all that wait, runs them in one transaction and commits once. An
answer is given only after the commit has reached the disk, all answers of one loop in one call. An operation
that raises does not disturb its neighbours; when SQLite itself refuses, the transaction is rolled back and its
operations are run again one by one, so that only the guilty one fails.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Final, Generic, Protocol, TypeVar

from hitherto.errors import StoreClosed, StoreError
from hitherto.stores.sqlite import failures
from hitherto.stores.sqlite.schema import patiently

_LARGEST_BATCH: Final = 512


class Session(Protocol):
    """What operations work on; made anew for every connection."""

    def begin(self) -> None:
        """A transaction has begun."""

    def flush(self) -> None:
        """Write what is not written yet: the transaction is about to be committed."""

    def settle(self, committed: bool) -> None:
        """The transaction is over."""

    def check(self) -> None:
        """Raise when the file is not the one that was opened."""


_S = TypeVar("_S", bound=Session)
_T = TypeVar("_T")


class _Job:
    __slots__ = ("answer", "error", "future", "loop", "run", "writes")

    def __init__(
        self,
        run: Callable[[Any], Any],
        writes: bool,
        loop: asyncio.AbstractEventLoop,
        future: asyncio.Future[Any],
    ) -> None:
        self.run, self.writes, self.loop, self.future = run, writes, loop, future
        self.answer: Any = None
        self.error: BaseException | None = None


class Engine(Generic[_S]):
    """One connection, one thread, one line of operations."""

    def __init__(
        self,
        connect: Callable[[], sqlite3.Connection],
        session: Callable[[sqlite3.Connection], _S],
        *,
        url: str,
        timeout: float,
        group: bool = True,
    ) -> None:
        self.pid = os.getpid()
        self.error: BaseException | None = None
        self._connect, self._make_session = connect, session
        self._url, self._timeout = url, timeout
        self._largest = _LARGEST_BATCH if group else 1
        self._jobs: deque[_Job] = deque()
        self._bell: SimpleQueue[bool] = SimpleQueue()
        self._kicking: set[asyncio.AbstractEventLoop] = set()
        self._connection: sqlite3.Connection | None = None
        self._session: _S | None = None
        self._thread = threading.Thread(target=self._main, name="hitherto-sqlite", daemon=True)
        self._thread.start()

    # ------------------------------------------------------------------------------------- in the loop

    def submit(self, run: Callable[[_S], _T], *, writes: bool = True) -> asyncio.Future[_T]:
        """Put an operation in the line; its future is done after the commit that holds it."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[_T] = loop.create_future()
        self._jobs.append(_Job(run, writes, loop, future))
        if loop not in self._kicking:
            self._kicking.add(loop)
            loop.call_soon(self._kick, loop)
        return future

    def _kick(self, loop: asyncio.AbstractEventLoop) -> None:
        """Ring once for everything that was submitted in one round of the loop."""
        self._kicking.discard(loop)
        self._bell.put(True)

    def stop(self) -> None:
        """End the thread after what waits now; may be called from anywhere."""
        self._bell.put(False)

    async def stopped(self) -> None:
        """Stop, and wait until the connection is closed."""
        loop = asyncio.get_running_loop()
        self.stop()
        await loop.run_in_executor(None, self._thread.join)

    # ----------------------------------------------------------------------------------- in the thread

    def _main(self) -> None:
        alive = True
        while alive:
            alive = self._bell.get()
            while self._jobs:
                self._serve(self._take())
        self._disconnect()

    def _take(self) -> list[_Job]:
        jobs = self._jobs
        return [jobs.popleft() for _ in range(min(len(jobs), self._largest))]

    def _serve(self, batch: list[_Job]) -> None:
        """Run a batch and give the answers, whatever happens."""
        try:
            self._run(batch)
        except StoreError as error:
            _fail(batch, error)
        except BaseException as error:  # noqa: BLE001 - it belongs to whoever waits, not to this thread
            _fail(batch, error)
        _deliver(batch)

    def _run(self, batch: list[_Job]) -> None:
        session = self._ready()
        try:
            self._transact(session, batch)
        except sqlite3.Error as error:
            ambiguous = self._roll_back(session, error)
            if len(batch) == 1 or ambiguous:
                raise failures.translated(error, self._url) from error
            for job in batch:
                job.answer = job.error = None
                self._serve_alone(job)

    def _serve_alone(self, job: _Job) -> None:
        try:
            self._run([job])
        except BaseException as error:  # noqa: BLE001 - it belongs to whoever waits
            job.error = error

    def _transact(self, session: _S, batch: list[_Job]) -> None:
        connection = self._connection
        assert connection is not None  # noqa: S101
        begin = "BEGIN IMMEDIATE" if any(job.writes for job in batch) else "BEGIN"
        try:
            patiently(lambda: self._begin(connection, session, begin), self._timeout)
        except sqlite3.Error as error:
            raise failures.translated(error, self._url) from error
        for job in batch:
            try:
                job.answer = job.run(session)
            except sqlite3.Error:
                raise
            except Exception as error:  # noqa: BLE001 - a change that raised changed nothing
                job.error = error
        session.flush()
        connection.execute("COMMIT")
        session.settle(True)

    def _begin(self, connection: sqlite3.Connection, session: _S, begin: str) -> None:
        connection.execute(begin)
        try:
            session.begin()
        except BaseException:
            connection.execute("ROLLBACK")
            raise

    def _roll_back(self, session: _S, error: sqlite3.Error) -> bool:
        """Undo the transaction; ``True`` when the connection had to be given up."""
        session.settle(False)
        connection = self._connection
        if connection is not None and connection.in_transaction:
            with contextlib.suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
        if failures.is_lasting(error):
            self._disconnect()
            return True
        return False

    def _ready(self) -> _S:
        if self._session is None:
            self._connection = self._connect()
            self._session = self._make_session(self._connection)
        self._session.check()
        return self._session

    def _disconnect(self) -> None:
        connection, self._connection, self._session = self._connection, None, None
        if connection is not None:
            with contextlib.suppress(sqlite3.Error):
                connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
            with contextlib.suppress(sqlite3.Error):
                connection.close()


def _fail(batch: list[_Job], error: BaseException) -> None:
    for job in batch:
        job.answer, job.error = None, error


def _deliver(batch: list[_Job]) -> None:
    """Hand every loop its answers in one call."""
    by_loop: dict[asyncio.AbstractEventLoop, list[_Job]] = {}
    for job in batch:
        by_loop.setdefault(job.loop, []).append(job)
    for loop, jobs in by_loop.items():
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(_resolve, jobs)


def _resolve(jobs: list[_Job]) -> None:
    for job in jobs:
        future = job.future
        if future.done():
            continue
        if job.error is None:
            future.set_result(job.answer)
        else:
            future.set_exception(job.error)


def used_after_fork(url: str) -> StoreClosed:
    """The error for a store that was open when its process was forked."""
    return StoreClosed(
        "the store was open when this process was forked, and an SQLite connection must not cross a fork; "
        "open it after the fork, or close it before",
        url=url,
    )
