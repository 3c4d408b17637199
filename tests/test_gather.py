"""The gathering of concurrent operations, with a server that answers when the test says so."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from hitherto.errors import StoreUnavailable
from hitherto.stores.gather import Gather, Trip


class Server:
    """Takes batches, and answers each when told to; an answer is the item times ten."""

    def __init__(self) -> None:
        self.batches: list[list[Any]] = []
        self.open: list[asyncio.Future[Sequence[Any]]] = []

    def __call__(self, items: list[Any]) -> asyncio.Future[Sequence[Any]]:
        self.batches.append(items)
        future = asyncio.get_running_loop().create_future()
        self.open.append(future)
        return future

    def answer(self, number: int, change: Callable[[Any], Any] = lambda item: item * 10) -> None:
        """Answer the batch with this number."""
        self.open[number].set_result([change(item) for item in self.batches[number]])


@pytest.fixture
def server():
    return Server()


def ask(gather: Gather[Any, Any], *items: Any) -> list[asyncio.Task[Any]]:
    return [asyncio.ensure_future(gather(item)) for item in items]


async def turns(count: int = 3) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_a_call_alone_is_sent_at_once(server):
    gather = Gather(server)
    call = gather(1)
    call.send(None)  # the first step of the coroutine, no turn of the loop
    assert server.batches == [[1]]
    call.close()


async def test_calls_that_come_meanwhile_travel_together_in_their_order(server):
    gather = Gather(server)
    calls = ask(gather, 1, 2, 3, 4)
    await turns()
    assert server.batches == [[1]]
    server.answer(0)
    await turns()
    assert server.batches == [[1], [2, 3, 4]]
    server.answer(1)
    assert await asyncio.gather(*calls) == [10, 20, 30, 40]


async def test_with_lanes_to_spare_a_turn_of_the_loop_is_what_gathers(server):
    gather = Gather(server, lanes=3)
    first = ask(gather, 1, 2, 3)
    await turns()
    assert server.batches == [[1], [2, 3]]
    second = ask(gather, 4, 5)
    await turns()
    third = ask(gather, 6)
    await turns()
    assert server.batches == [[1], [2, 3], [4, 5]], "three lanes are taken: 6 waits"
    server.answer(1)
    await turns()
    assert server.batches[3] == [6]
    for number in (0, 2, 3):
        server.answer(number)
    assert await asyncio.gather(*first, *second, *third) == [10, 20, 30, 40, 50, 60]


async def test_a_batch_has_its_limits(server):
    gather = Gather(server, max_batch=3, max_bytes=100)
    calls = [
        asyncio.ensure_future(gather(item, size)) for item, size in enumerate([1, 60, 60, 500, 1, 1, 1, 1])
    ]
    for number in range(6):
        await turns()
        server.answer(number)
    await asyncio.gather(*calls)
    assert server.batches == [[0], [1], [2], [3], [4, 5, 6], [7]]


async def test_each_has_its_own_error(server):
    gather = Gather(server)
    calls = ask(gather, 0, 1, 2, 3)
    await turns()
    server.answer(0)
    await turns()
    server.answer(1, lambda item: KeyError(item) if item == 2 else item)
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert [results[0], results[1], results[3]] == [0, 1, 3]
    assert isinstance(results[2], KeyError)


async def test_a_batch_that_fails_fails_for_everybody_of_it_with_errors_of_their_own(server):
    gather = Gather(server)
    calls = ask(gather, 0, 1, 2)
    await turns()
    server.answer(0)
    await turns()
    server.open[1].set_exception(StoreUnavailable("gone"))
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert results[0] == 0
    assert [str(error) for error in results[1:]] == ["gone", "gone"]
    assert results[1] is not results[2]
    (after,) = ask(gather, 5)
    await turns()
    server.answer(2)
    assert await after == 50, "the next batch is sent as if nothing had been"


async def test_a_send_that_raises_at_once_is_the_callers_error():
    def send(items):
        raise OSError("no way")

    with pytest.raises(OSError, match="no way"):
        await Gather(send)(1)


async def test_one_cancelled_leaves_the_rest_untouched(server):
    gather = Gather(server)
    calls = ask(gather, 0, 1, 2, 3)
    await turns()
    calls[2].cancel()
    await turns()
    server.answer(0)
    await turns()
    assert server.batches[1] == [1, 3], "what was not sent yet is not sent"
    calls[1].cancel()
    await turns()
    server.answer(1)
    assert await calls[3] == 30
    assert [call.cancelled() for call in calls] == [False, True, True, False]


async def test_a_coroutine_function_will_do():
    async def send(items):
        await asyncio.sleep(0)
        return [item + 1 for item in items]

    gather = Gather(send)
    assert await asyncio.gather(*[gather(item) for item in range(5)]) == [1, 2, 3, 4, 5]


async def test_who_waits_is_bounded(server):
    gather = Gather(server, max_waiting=2)
    calls = ask(gather, 0, 1, 2)
    await turns()
    with pytest.raises(StoreUnavailable) as refused:
        await gather(3)
    assert refused.value.retryable
    server.answer(0)
    await turns()
    server.answer(1)
    assert await asyncio.gather(*calls) == [0, 10, 20]


async def test_nobody_waits_longer_than_the_timeout(server):
    gather = Gather(server, timeout=0.05, url="redis://:secret@host/0")
    calls = ask(gather, 0, 1)
    results = await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), 2)
    assert [type(result) for result in results] == [StoreUnavailable, StoreUnavailable]
    assert "0.05" in str(results[0])
    assert "secret" not in str(results)
    server.answer(0)
    await turns()
    assert server.batches == [[0]], "a call given up while it waited is not sent"


async def test_results_that_do_not_match_are_an_error_for_everybody():
    async def send(items):
        return items[1:]

    with pytest.raises(RuntimeError, match="0 results for 1"):
        await Gather(send)(1)


async def test_closed_it_refuses_what_waits_and_finishes_what_is_under_way(server):
    gather = Gather(server)
    calls = ask(gather, 0, 1)
    await turns()
    gather.close(StoreUnavailable("closed"))
    with pytest.raises(StoreUnavailable, match="closed"):
        await calls[1]
    with pytest.raises(StoreUnavailable, match="closed"):
        await gather(2)
    server.answer(0)
    await gather.drained()
    assert await calls[0] == 0


async def test_ten_thousand_calls_at_once_keep_their_results_apart():
    sizes: list[int] = []

    async def send(items):
        sizes.append(len(items))
        await asyncio.sleep(0)
        return [item * 2 for item in items]

    gather = Gather(send, lanes=4, max_batch=64)
    assert await asyncio.gather(*[gather(item) for item in range(10_000)]) == [
        item * 2 for item in range(10_000)
    ]
    assert max(sizes) == 64
    assert len(sizes) < 200
    assert (gather.waiting, gather.under_way) == (0, 0)


async def test_a_trip_is_heard_of_at_once(server):
    """Who waits for it goes on in the next turn of the loop, not in the one after."""
    trips: list[Trip] = []

    def send(items):
        trips.append(Trip())
        return trips[-1]

    gather = Gather(send)
    first, second = ask(gather, 1, 2)
    await turns()
    trips[0].returns([10])
    assert len(trips) == 2
    await asyncio.sleep(0)
    assert first.done()
    trips[1].returns(StoreUnavailable("gone"))
    trips[1].returns([20])
    with pytest.raises(StoreUnavailable, match="gone"):
        await second
    assert gather.under_way == 0


async def test_a_trip_that_failed_before_it_began(server):
    def send(items):
        trip = Trip()
        trip.returns(StoreUnavailable("no way"))
        return trip

    with pytest.raises(StoreUnavailable, match="no way"):
        await Gather(send)(1)
