"""The thread that owns the connection, and group commit.

Operations wait in a line; the thread takes all that wait, runs them in one transaction and commits once. An
answer is given only after the commit has reached the disk, all answers of one loop in one call. An operation
that raises does not disturb its neighbours; when SQLite itself refuses, the transaction is rolled back and
its operations are run again one by one, so that only the guilty one fails.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import os
import sqlite3
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Final, Generic, Protocol, TypeVar

from hitherto.errors import HithertoError
from hitherto.patience import UNDER_WAY
from hitherto.stores.sqlite import failures
from hitherto.stores.sqlite.line import Job, Line
from hitherto.stores.sqlite.opening import patiently

_LARGEST_BATCH: Final = 512


class Transactions(Protocol):
    """What operations work on; made anew for every connection."""

    def check(self) -> None:
        """Raise when the file is not the one that was opened."""

    def begin(self) -> None:
        """A transaction has begun."""

    def flush(self) -> None:
        """Write what is not written yet: the transaction is about to be committed."""

    def settle(self, committed: bool) -> None:
        """The transaction is over."""


_S = TypeVar("_S", bound=Transactions)
_T = TypeVar("_T")


class Engine(Generic[_S]):
    """One connection, one thread, one line of operations.

    *connect* and *session* run in the thread, on first use and again after the connection was given up.
    """

    def __init__(
        self,
        connect: Callable[[], sqlite3.Connection],
        session: Callable[[sqlite3.Connection], _S],
        *,
        url: str,
        timeout: float,
        group: bool = True,
    ) -> None:
        self._connect, self._make_session = connect, session
        self._url, self._timeout = url, timeout
        self._largest = _LARGEST_BATCH if group else 1
        self._pid = os.getpid()
        self._jobs: deque[Job] = deque()
        self._bell: SimpleQueue[bool] = SimpleQueue()
        self._lock = threading.Lock()
        self._ended = False
        self._ends: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []
        self._line: Line | None = None
        self._lines: dict[asyncio.AbstractEventLoop, Line] = {}
        self._connection: sqlite3.Connection | None = None
        self._session: _S | None = None
        self._thread = threading.Thread(target=self._main, name="hitherto-sqlite", daemon=True)
        self._thread.start()

    # ------------------------------------------------------------------------------------- in the loop

    def is_ours(self) -> bool:
        """Whether the engine was made in this process, not in the one this was forked from."""
        return self._pid == os.getpid()

    async def submit(self, run: Callable[[_S], _T], *, writes: bool = True) -> _T:
        """Put an operation in the line; it is answered after the commit that holds it.

        An operation is not cancelled with its caller: who goes on in its place gets the answer.
        """
        loop = asyncio.get_running_loop()
        line = self._line
        if line is None or line.loop is not loop:
            line = self._line = self._line_of(loop)
        job = line.submit(run, writes)
        try:
            answer: _T = await job.future
        except asyncio.CancelledError as cancelled:
            setattr(cancelled, UNDER_WAY, job.again)
            raise
        return answer

    def _line_of(self, loop: asyncio.AbstractEventLoop) -> Line:
        with self._lock:
            line = self._lines.get(loop)
            if line is None:
                self._lines = {known: line for known, line in self._lines.items() if not known.is_closed()}
                line = self._lines[loop] = Line(loop, self._jobs.append, self._bell.put)
            return line

    def stop(self) -> None:
        """End the thread after what waits now; may be called from anywhere, and again."""
        self._bell.put(False)

    async def stopped(self) -> None:
        """Stop, and wait until the connection is closed."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        with self._lock:
            if self._ended:
                return
            self._ends.append((loop, future))
        self.stop()
        await future

    # ----------------------------------------------------------------------------------- in the thread

    def _main(self) -> None:
        alive = True
        while alive:
            alive = self._bell.get()
            while self._jobs:
                batch = self._take()
                self._serve(batch)
                _deliver(batch)
                del batch
        self._disconnect()
        with self._lock:
            self._ended = True
        for loop, future in self._ends:
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(_end, future)

    def _take(self) -> list[Job]:
        jobs = self._jobs
        return [jobs.popleft() for _ in range(min(len(jobs), self._largest))]

    def _serve(self, batch: list[Job]) -> None:
        """Run a batch to its commit; whatever goes wrong belongs to those who wait for it."""
        try:
            self._run(batch)
        except BaseException as error:  # noqa: BLE001
            for job in batch:
                job.answer, job.error = None, _own_copy(error)

    def _run(self, batch: list[Job]) -> None:
        session = self._ready()
        begin = "BEGIN IMMEDIATE" if any(job.writes for job in batch) else "BEGIN"
        try:
            patiently(lambda: self._begin(session, begin), self._timeout)
            self._work(session, batch)
        except Exception as error:
            was_open = self._roll_back(session, error)
            if was_open and len(batch) > 1:
                for job in batch:
                    job.answer = job.error = None
                    self._serve([job])
            elif isinstance(error, sqlite3.Error):
                raise failures.translated(error, self._url) from error
            else:
                raise

    def _begin(self, session: _S, begin: str) -> None:
        connection = self._open_connection()
        connection.execute(begin)
        try:
            session.begin()
        except sqlite3.Error:
            connection.execute("ROLLBACK")
            raise

    def _work(self, session: _S, batch: list[Job]) -> None:
        """All operations and the commit; a change that raised has changed nothing yet."""
        for job in batch:
            try:
                job.answer = job.run(session)
            except sqlite3.Error:
                raise
            except Exception as error:  # noqa: BLE001
                job.error = error
        session.flush()
        self._open_connection().execute("COMMIT")
        session.settle(True)

    def _roll_back(self, session: _S, error: Exception) -> bool:
        """Forget the transaction; whether there was one, on a connection that is still good."""
        session.settle(False)
        connection = self._open_connection()
        was_open = connection.in_transaction
        if was_open:
            with contextlib.suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
        if isinstance(error, sqlite3.Error) and failures.is_lasting(error):
            self._disconnect()
            return False
        return was_open

    def _ready(self) -> _S:
        if self._session is None:
            connection = self._connect()
            self._connection, self._session = connection, self._make_session(connection)
        self._session.check()
        return self._session

    def _open_connection(self) -> sqlite3.Connection:
        assert self._connection is not None  # noqa: S101 - _ready() comes first
        return self._connection

    def _disconnect(self) -> None:
        connection, self._connection, self._session = self._connection, None, None
        if connection is not None:
            with contextlib.suppress(sqlite3.Error):
                connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
            with contextlib.suppress(sqlite3.Error):
                connection.close()


def _end(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _own_copy(error: BaseException) -> BaseException:
    """An error of everybody's own: raising one object in many tasks would mix up their tracebacks."""
    if not isinstance(error, HithertoError):
        return error
    own = copy.copy(error)
    own.__cause__ = error.__cause__
    return own


def _deliver(batch: list[Job]) -> None:
    """Hand every loop its answers in one call."""
    first = batch[0].line
    if all(job.line is first for job in batch):
        first.answer(batch)
        return
    by_line: dict[Line, list[Job]] = {}
    for job in batch:
        by_line.setdefault(job.line, []).append(job)
    for line, jobs in by_line.items():
        line.answer(jobs)
