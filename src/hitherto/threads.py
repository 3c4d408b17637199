"""The event loop in a thread of its own, and handlers in threads, for code that blocks.

`Background` is a thread with a loop in which the coroutines of other threads run, each waiting for its own.
It survives no fork and says so, and it ends with the program in good order. `Job` is one run of a plain
function in a thread, awaited in the loop; `Workers` are the threads for those that no caller waits for.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures as futures
import inspect
import os
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from queue import SimpleQueue
from typing import Any, Final, TypeAlias, TypeVar

from hitherto.addresses import Key, key_text
from hitherto.errors import KeeperClosed, NotStarted
from hitherto.turns import Turn

__all__ = ["Background", "Handler", "Job", "Workers", "checked", "end", "held", "helped", "holding", "result"]

Handler: TypeAlias = Callable[[Turn], object]
_T = TypeVar("_T")

_BREATH: Final = 1.0
_ASYNC = "a handler here is a plain function: 'def handler(turn)'; for 'async def' there is hitherto.Keeper"
_FORKED = (
    "{what} was started in another process, and its threads did not come along: build it before the fork if "
    "you like, but start() it after it (gunicorn: in post_fork, or without preload_app)"
)
_INSIDE = (
    "{what} was called from its own thread; a function given to key=, overlap=, on_error= or listen() cannot"
)
_mine = threading.local()
"""``held``: the conversations whose turns the current thread is in. ``workers``: whose worker it is."""


class Background:
    """A thread with an event loop, which *opened* is awaited in first and *closed* last.

    *what* is what errors call it.
    """

    def __init__(
        self,
        what: str,
        opened: Callable[[], Awaitable[object]],
        closed: Callable[[float | None], Coroutine[Any, Any, object]],
    ) -> None:
        self._what, self._opened, self._closed = what, opened, closed
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._finish = asyncio.Event()
        self._pid = 0

    @property
    def here(self) -> bool:
        """Whether it was started in this process."""
        return self._pid == os.getpid()

    def start(self) -> None:
        """Start the thread, unless it runs; what opening raises is raised here."""
        with self._lock:
            if self._thread is not None:
                self._usable()
                return
            started: futures.Future[None] = futures.Future()
            target = partial(asyncio.run, self._live(started))
            thread = threading.Thread(target=target, name="hitherto", daemon=True)
            thread.start()
            try:
                started.result()
            except BaseException:
                thread.join()
                raise
            self._thread, self._pid = thread, os.getpid()
            atexit.register(self.stop)

    async def _live(self, started: futures.Future[None]) -> None:
        try:
            await self._opened()
        except BaseException as error:  # noqa: BLE001 - it is for whoever started
            started.set_exception(error)
            return
        self._loop = asyncio.get_running_loop()
        started.set_result(None)
        await self._finish.wait()

    def stop(self, grace: float | None = None) -> bool:
        """Close, and end the thread; whether there was anything to end."""
        if self._thread is None or not self.here or not self._thread.is_alive():
            return False
        try:
            self.wait(lambda: self._closed(grace))
        except KeeperClosed:
            self._thread.join()  # another thread was faster
            return False
        with self._lock:
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._finish.set)
                self._loop = None
        self._thread.join()
        atexit.unregister(self.stop)
        return True

    def _usable(self) -> asyncio.AbstractEventLoop:
        """The loop, if it can be waited for from here."""
        if self._thread is None:
            raise NotStarted(f"{self._what} is not started; use `with ...:` or call start() first")
        if not self.here:
            raise RuntimeError(_FORKED.format(what=self._what))
        if self._loop is None:
            raise KeeperClosed()
        if threading.current_thread() is self._thread:
            raise RuntimeError(_INSIDE.format(what=self._what))
        return self._loop

    def submit(self, work: Callable[[], Coroutine[Any, Any, _T]]) -> futures.Future[_T]:
        """Have something run in the loop."""
        with self._lock:
            loop = self._usable()
            return asyncio.run_coroutine_threadsafe(work(), loop)

    def wait(self, work: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        """The answer of something that runs in the loop; interrupted here, it is cancelled there."""
        with helped():
            future = self.submit(work)
            try:
                return result(future)
            except BaseException:
                future.cancel()
                raise


def result(future: futures.Future[_T]) -> _T:
    """What a submitted coroutine answered or raised."""
    try:
        return future.result()
    except futures.CancelledError:
        raise KeeperClosed() from None


class Job:
    """One run of a handler in a thread, awaited in the loop."""

    def __init__(self, handler: Handler, turn: Turn, leaving: asyncio.Event) -> None:
        self.handler, self.turn, self.leaving = handler, turn, leaving
        self.loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[None] = self.loop.create_future()
        self.error: BaseException | None = None

    def __call__(self) -> None:
        """In the thread."""
        if self.ended.done():
            return
        try:
            with holding(self.turn.key):
                answer = self.handler(self.turn)
            if inspect.isawaitable(answer):
                if inspect.iscoroutine(answer):
                    answer.close()
                raise TypeError(_ASYNC)
        except BaseException as error:  # noqa: BLE001 - it is raised in the loop, and from there where it belongs
            self.error = error
        with suppress(RuntimeError):  # the loop has gone, and with it who waited
            self.loop.call_soon_threadsafe(end, self.ended)

    async def result(self) -> None:
        """In the loop: wait for the end of it; given up before that, nothing it does counts."""
        try:
            await self.ended
        except asyncio.CancelledError:
            self.turn.lost = True
            raise
        error = self.error
        if isinstance(error, Exception):
            raise error
        if error is not None:
            # it is for the thread it was raised in, and would end the loop; the program probably ends now,
            # so that the next attempt is better made by the next one
            with suppress(TimeoutError):
                await asyncio.wait_for(self.leaving.wait(), _BREATH)
            raise asyncio.CancelledError


class Workers:
    """Threads for turns that nobody waits for; made when they are needed."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._unfinished = self._blocked = 0

    def put(self, job: Callable[[], None]) -> None:
        """Run *job* as soon as a thread is free."""
        with self._lock:
            self._unfinished += 1
            self._grow()
        self._jobs.put(job)

    def _grow(self) -> None:
        """One more thread, if there is work for it; one that waits for the keeper counts for none."""
        if min(self._unfinished, self._limit + self._blocked) > len(self._threads):
            thread = threading.Thread(target=self._work, name="hitherto-worker", daemon=True)
            self._threads.append(thread)
            thread.start()

    def _work(self) -> None:
        _mine.workers = self
        while (job := self._jobs.get()) is not None:
            job()
            with self._lock:
                self._unfinished -= 1

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """A worker waits for the keeper, perhaps for what only another worker can do."""
        with self._lock:
            self._blocked += 1
            self._grow()
        try:
            yield
        finally:
            with self._lock:
                self._blocked -= 1

    def close(self, seconds: float) -> None:
        """End the threads that have nothing to do; one that hangs in a handler ends with the program."""
        end = time.monotonic() + seconds
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))


@contextmanager
def helped() -> Iterator[None]:
    """While a worker waits in this block another one may do its work."""
    workers: Workers | None = getattr(_mine, "workers", None)
    if workers is None:
        yield
    else:
        with workers.waiting():
            yield


def held() -> tuple[str, ...]:
    """The conversations whose turns the current thread is in, as texts."""
    found: tuple[str, ...] = getattr(_mine, "held", ())
    return found


@contextmanager
def holding(key: Key) -> Iterator[None]:
    """The current thread is in a turn of this conversation."""
    before = held()
    _mine.held = (*before, key_text(key))
    try:
        yield
    finally:
        _mine.held = before


def end(future: asyncio.Future[None]) -> None:
    """Say that something is over, unless it was said."""
    if not future.done():
        future.set_result(None)


def checked(handler: Handler | None) -> Handler | None:
    """A handler that is a plain function, or none."""
    if inspect.iscoroutinefunction(handler):
        raise TypeError(_ASYNC)
    if handler is not None and not callable(handler):
        raise TypeError(f"handler={type(handler).__name__}: a function of the turn")
    return handler
