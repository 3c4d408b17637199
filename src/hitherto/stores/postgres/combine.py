"""Changes that take the long way: those of one conversation that wait together share a load and a write."""

from __future__ import annotations

import asyncio
import copy
import random
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, TypeAlias

from hitherto import protocol
from hitherto.document import Document
from hitherto.errors import StoreConflict, StoreUnavailable
from hitherto.stores.postgres.columns import Change, Loaded, Place

Apply: TypeAlias = Callable[[Document, float], tuple[Document, Any]]
_Answer: TypeAlias = tuple[asyncio.Future[Any], Any, Exception | None]
_SWAPS = 200


class _Waiting(NamedTuple):
    apply: Apply
    future: asyncio.Future[Any]


class Combiner:
    """Applies pure changes by compare-and-swap, those of one conversation in the order in which they came."""

    def __init__(
        self,
        load: Callable[[Place], Awaitable[Loaded]],
        write: Callable[[Change], Awaitable[bool]],
        url: str,
        timeout: float,
    ) -> None:
        self._load, self._write, self._url, self._timeout = load, write, url, timeout
        self._waiting: dict[bytes, list[_Waiting]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def is_busy(self, place: Place) -> bool:
        """Whether a change of this conversation is under way: what comes now must not overtake it."""
        return place.digest in self._waiting

    async def __call__(self, place: Place, apply: Apply) -> Any:
        """What *apply* answers; it may run several times, until nobody was in between."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        queue = self._waiting.get(place.digest)
        if queue is not None:
            queue.append(_Waiting(apply, future))
            return await future
        self._waiting[place.digest] = [_Waiting(apply, future)]
        task = asyncio.get_running_loop().create_task(self._drain(place))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return await future

    async def drained(self) -> None:
        """Wait until nothing is under way."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def _drain(self, place: Place) -> None:
        batch: list[_Waiting] = []
        try:
            while waiting := self._waiting[place.digest]:
                batch = [one for one in waiting if not one.future.done()]
                self._waiting[place.digest] = []
                try:
                    async with asyncio.timeout(self._timeout):
                        await self._together(place, batch)
                except TimeoutError:
                    _fail(batch, StoreUnavailable("PostgreSQL did not answer in time", url=self._url))
                except Exception as error:  # noqa: BLE001 - it is the callers' error
                    _fail(batch, error)
        finally:
            _cancel(batch + self._waiting.pop(place.digest))

    async def _together(self, place: Place, batch: list[_Waiting]) -> None:
        for attempt in range(_SWAPS):
            if not batch:
                return
            loaded = await self._load(place)
            document, answers = loaded.document, list[_Answer]()
            for one in batch:
                try:
                    document, answer = one.apply(document, loaded.at)
                    answers.append((one.future, answer, None))
                except Exception as error:  # noqa: BLE001 - it is this caller's error
                    answers.append((one.future, None, error))
            if document is loaded.document or await self._write(_change(place, loaded, document)):
                _deliver(answers)
                return
            await asyncio.sleep(random.random() * min(attempt, 20) / 1000)
        raise StoreConflict(
            f"{_SWAPS} attempts to change one conversation met another writer each time", url=self._url
        )


def _change(place: Place, loaded: Loaded, document: Document) -> Change:
    return Change(place, loaded, document, protocol.is_blank(document))


def _deliver(answers: list[_Answer]) -> None:
    for future, answer, error in answers:
        if future.done():
            continue
        if error is None:
            future.set_result(answer)
        else:
            future.set_exception(error)


def _fail(batch: list[_Waiting], error: Exception) -> None:
    for one in batch:
        if not one.future.done():
            mine = copy.copy(error)
            mine.__cause__ = error.__cause__ or error
            one.future.set_exception(mine)


def _cancel(batch: list[_Waiting]) -> None:
    for one in batch:
        if not one.future.done():
            one.future.cancel()
