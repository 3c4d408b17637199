"""Operations that wait at the same moment travel together: the gathering of every networked store.

A :class:`Gather` stands between callers and a ``send`` that takes a list of items to the server in one trip.
When nothing is under way a call is sent at once, alone. While a batch is under way calls gather: until a lane
is free, or, with lanes to spare, until the event loop comes round. Each caller has its own result or its own
error, in the order of the calls; a caller that is cancelled takes nothing from the others.

What is bounded: a batch by ``max_batch`` items and ``max_bytes``, what is under way by ``lanes`` batches, who
waits by ``max_waiting``, and how long anyone waits by ``timeout``.
"""

from __future__ import annotations

import asyncio
import copy
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from hitherto.errors import StoreUnavailable

__all__ = ["Gather", "Trip"]

Item = TypeVar("Item")
Result = TypeVar("Result")


class Trip(asyncio.Future[Sequence[Any]]):
    """A batch under way, for senders that see it come back: the gathering is told at once, which saves a turn
    of the event loop for every call.
    """

    on_return: Callable[[asyncio.Future[Sequence[Any]]], None] | None = None

    def returns(self, results: Sequence[Any] | Exception) -> None:
        """It is over, with results or with an error; nothing if it is over already."""
        if self.done():
            return
        if isinstance(results, Exception):
            self.set_exception(results)
        else:
            self.set_result(results)
        if self.on_return is not None:
            self.on_return(self)


class _Call(NamedTuple, Generic[Item, Result]):
    item: Item
    size: int
    since: float
    future: asyncio.Future[Result]


class Gather(Generic[Item, Result]):
    """Calls gathered into batches; await it with an item to get that item's result.

    *send* takes the items of one batch and answers as many results in the same order, an ``Exception`` among
    them being that one caller's; when it raises, everybody of the batch has a copy of the error. It may be a
    coroutine function, or return a future, which saves a task, or a :class:`Trip`. It must end by itself:
    *timeout* frees the callers, not the lane.
    """

    def __init__(
        self,
        send: Callable[[list[Item]], Awaitable[Sequence[Result | Exception]]],
        *,
        lanes: int = 1,
        max_batch: int = 100,
        max_bytes: int = 1 << 20,
        max_waiting: int = 10_000,
        timeout: float | None = None,
        url: str | None = None,
    ) -> None:
        self._send = send
        self._lanes, self._max_batch, self._max_bytes = lanes, max_batch, max_bytes
        self._max_waiting, self._timeout, self._url = max_waiting, timeout, url
        self._waiting: deque[_Call[Item, Result]] = deque()
        self._under_way: dict[asyncio.Future[Sequence[Result | Exception]], list[_Call[Item, Result]]] = {}
        self._flush_soon = False
        self._watch: asyncio.TimerHandle | None = None
        self._closed: Exception | None = None

    def __repr__(self) -> str:
        return f"Gather(waiting={len(self._waiting)}, batches={len(self._under_way)})"

    @property
    def waiting(self) -> int:
        """How many calls wait to be sent."""
        return len(self._waiting)

    @property
    def under_way(self) -> int:
        """How many batches are under way."""
        return len(self._under_way)

    async def __call__(self, item: Item, size: int = 0) -> Result:
        """The result of one item; *size* is what it adds to its batch's bytes."""
        if self._closed is not None:
            raise _own(self._closed)
        if len(self._waiting) >= self._max_waiting:
            raise StoreUnavailable(
                f"{self._max_waiting} operations wait for the store already", url=self._url
            )
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Result] = loop.create_future()
        self._waiting.append(_Call(item, size, loop.time(), future))
        if not self._under_way:
            self._flush()
        elif len(self._under_way) < self._lanes:
            if len(self._waiting) >= self._max_batch:
                self._flush()
            elif not self._flush_soon:
                self._flush_soon = True
                loop.call_soon(self._turn_ended)
        if self._watch is None and self._timeout is not None:
            self._watch = loop.call_later(self._timeout / 4, self._look_after)
        return await future

    async def drained(self) -> None:
        """Wait until nothing waits and nothing is under way."""
        while self._under_way:
            await asyncio.wait(self._under_way)
            await asyncio.sleep(0)

    def close(self, error: Exception) -> None:
        """Refuse further calls, and those that wait unsent, with *error*; what is under way goes on."""
        self._closed = error
        while self._waiting:
            _fail(self._waiting.popleft(), error)
        if self._watch is not None and not self._under_way:
            self._watch.cancel()
            self._watch = None

    # ---------------------------------------------------------------------------------------------- pieces

    def _turn_ended(self) -> None:
        self._flush_soon = False
        self._flush()

    def _flush(self) -> None:
        """Send what waits, oldest first, as far as there are lanes."""
        while self._waiting and len(self._under_way) < self._lanes:
            batch = self._next_batch()
            if batch:
                self._dispatch(batch)

    def _next_batch(self) -> list[_Call[Item, Result]]:
        waiting, size = self._waiting, 0
        batch: list[_Call[Item, Result]] = []
        while waiting and len(batch) < self._max_batch:
            call = waiting[0]
            if batch and size + call.size > self._max_bytes:
                break
            waiting.popleft()
            if not call.future.done():
                batch.append(call)
                size += call.size
        return batch

    def _dispatch(self, batch: list[_Call[Item, Result]]) -> None:
        try:
            sent = asyncio.ensure_future(self._send([call.item for call in batch]))
        except Exception as error:  # noqa: BLE001 - it is the callers' error
            _fail_all(batch, error)
            return
        self._under_way[sent] = batch
        if isinstance(sent, Trip) and not sent.done():
            sent.on_return = self._arrived
        else:
            sent.add_done_callback(self._arrived)

    def _arrived(self, sent: asyncio.Future[Sequence[Result | Exception]]) -> None:
        batch = self._under_way.pop(sent)
        if sent.cancelled():
            _fail_all(batch, StoreUnavailable("the batch was cancelled", url=self._url))
        elif (error := sent.exception()) is not None:
            _fail_all(batch, error)
        else:
            _deliver(batch, sent.result())
        if self._waiting:
            self._flush()

    def _look_after(self) -> None:
        """Tell everybody who has waited too long; come again while anybody waits."""
        self._watch = None
        if self._timeout is None or not (self._waiting or self._under_way):
            return
        loop = asyncio.get_running_loop()
        horizon = loop.time() - self._timeout
        error = StoreUnavailable(f"no answer within {self._timeout:g} s", url=self._url)
        while self._waiting and self._waiting[0].since <= horizon:
            _fail(self._waiting.popleft(), error)
        for batch in self._under_way.values():
            _fail_all([call for call in batch if call.since <= horizon], error)
        self._watch = loop.call_later(self._timeout / 4, self._look_after)


def _deliver(batch: list[_Call[Item, Result]], results: Sequence[Result | Exception]) -> None:
    if len(results) != len(batch):
        _fail_all(batch, RuntimeError(f"{len(results)} results for {len(batch)} operations"))
        return
    for call, result in zip(batch, results, strict=True):
        if call.future.done():
            continue
        if isinstance(result, Exception):
            call.future.set_exception(result)
        else:
            call.future.set_result(result)


def _fail_all(batch: list[_Call[Item, Result]], error: BaseException) -> None:
    for call in batch:
        _fail(call, error)


def _fail(call: _Call[Item, Result], error: BaseException) -> None:
    if not call.future.done():
        call.future.set_exception(_own(error))


def _own(error: BaseException) -> BaseException:
    """The error as one caller's own, so that tracebacks of different callers do not mix."""
    try:
        mine = copy.copy(error)
    except Exception:  # noqa: BLE001 - some errors cannot be copied
        return error
    mine.__cause__ = error.__cause__ or error
    return mine
