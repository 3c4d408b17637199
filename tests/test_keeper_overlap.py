"""What happens to an event that arrives while its conversation is busy: every policy, set in every way."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from hitherto import Burst, ChatTopic, Concurrent, Debounce, Flow, Keeper, Queue, Reject, State, Turn
from hitherto.telegram import media_group
from keeping import STORES, Gate, World, note, others, until, update


class Quick(Flow, overlap=Reject()):
    only = State(initial=True)


class Slow(Flow):
    only = State(initial=True)


@pytest.fixture(params=STORES)
async def world(request, tmp_path):
    world = World(request.param, tmp_path)
    yield world
    await world.close()


async def busy(keeper: Keeper, gate: Gate, number: int = 1) -> asyncio.Task[Any]:
    """A turn of event *number* that runs until it is let through."""
    task = asyncio.create_task(keeper.handle(update(number), gate))
    await until(lambda: number in gate.entered)
    return task


class Folded:
    """A handler that notes the events of each turn together, oldest first."""

    def __init__(self) -> None:
        self.turns: list[list[int]] = []

    async def __call__(self, turn: Turn) -> None:
        self.turns.append([event["update_id"] for event in (*turn.skipped, turn.event)])


# ---------------------------------------------------------------------------------------------- reject, queue


async def test_reject_is_busy_and_leaves_no_mark(world):
    keeper, gate = await world.keeper(overlap=Reject()), Gate()
    running = await busy(keeper, gate)
    outcome = await keeper.handle(update(2), gate)
    assert outcome.status == "busy"
    assert not outcome.accepted
    gate.open()
    await running
    assert (await keeper.handle(update(2), gate)).status == "committed"
    assert await world.done() == [1, 2]


async def test_a_full_queue_rejects_without_a_mark(world):
    keeper, gate = await world.keeper(overlap=Queue(limit=2)), Gate()
    running = await busy(keeper, gate)
    statuses = [(await keeper.handle(update(number), gate)).status for number in (2, 3, 4)]
    assert statuses == ["queued", "queued", "full"]
    gate.open()
    await running
    assert await keeper.idle()
    assert (await keeper.handle(update(4), gate)).status == "committed"
    assert await world.done() == [1, 2, 3, 4]


async def test_a_full_queue_drops_the_oldest_and_says_so(world):
    keeper, gate = await world.keeper(overlap=Queue(limit=2, on_full="drop_oldest")), Gate()
    running = await busy(keeper, gate)
    for number in (2, 3, 4):
        assert (await keeper.handle(update(number), gate)).status == "queued"
    gate.open()
    await running
    assert await keeper.idle()
    assert await world.done() == [1, 3, 4]
    assert [(s.event_id, s.detail) for s in world.steps if s.kind == "dropped"] == [("tg:2", "oldest")]
    assert (await keeper.handle(update(2), gate)).status == "duplicate"
    assert keeper.counts["given up"] == 1


async def test_a_full_queue_drops_the_newest_and_says_so(world):
    keeper, gate = await world.keeper(overlap=Queue(limit=1, on_full="drop_newest")), Gate()
    running = await busy(keeper, gate)
    statuses = [(await keeper.handle(update(number), gate)).status for number in (2, 3, 3)]
    assert statuses == ["queued", "dropped", "duplicate"]
    gate.open()
    await running
    assert await keeper.idle()
    assert await world.done() == [1, 2]


async def test_a_queued_event_expires(world):
    keeper, gate = await world.keeper(overlap=Queue(expires=5)), Gate()
    running = await busy(keeper, gate)
    await keeper.handle(update(2), gate)
    await world.pass_time(6)
    await keeper.handle(update(3), gate)
    gate.open()
    await running
    assert await keeper.idle()
    assert await world.done() == [1, 3]
    assert [(s.event_id, s.detail) for s in world.steps if s.kind == "dropped"] == [("tg:2", "expired")]


# -------------------------------------------------------------------------------------------- debounce, burst


async def test_debounce_keeps_only_the_newest(world):
    keeper, gate = await world.keeper(overlap=Debounce(2)), Gate()
    running = await busy(keeper, gate)
    statuses = []
    for number in (2, 3, 4):
        statuses.append((await keeper.handle(update(number), gate)).status)
        await world.pass_time(1)
    assert statuses == ["debounced"] * 3
    gate.open()
    await running
    await world.pass_time(0.5)
    assert gate.entered == [1]
    await world.pass_time(1)
    assert await keeper.idle()
    assert await world.done() == [1, 4]


async def test_burst_zero_folds_what_arrived_during_the_turn(world):
    keeper, gate, folded = await world.keeper(overlap=Burst(0)), Gate(), Folded()
    running = await busy(keeper, gate)
    for number in (2, 3, 4):
        assert (await keeper.handle(update(number), folded)).status == "queued"
    gate.open()
    await running
    assert await keeper.idle()
    assert folded.turns == [[2, 3, 4]]
    assert (await keeper.handle(update(3), folded)).status == "duplicate"


async def test_a_burst_waits_for_its_window(world):
    keeper, gate, folded = await world.keeper(overlap=Burst(2)), Gate(), Folded()
    running = await busy(keeper, gate)
    await keeper.handle(update(2), folded)
    gate.open()
    await running
    await world.pass_time(1)
    await keeper.handle(update(3), folded)
    assert folded.turns == []
    await world.pass_time(1)
    assert await keeper.idle()
    assert folded.turns == [[2, 3]]


async def test_a_burst_has_a_limit(world):
    keeper, gate, folded = await world.keeper(overlap=Burst(0, limit=2)), Gate(), Folded()
    running = await busy(keeper, gate)
    statuses = [(await keeper.handle(update(number), folded)).status for number in (2, 3, 4)]
    assert statuses == ["queued", "queued", "full"]
    gate.open()
    await running


async def test_an_album_is_one_turn(world):
    keeper = await world.keeper(
        overlap=lambda event: Burst(1, gather=True) if media_group(event) else None, sweep=1000.0
    )
    folded = Folded()
    album = [update(number, media_group_id="album") for number in (1, 2, 3)]
    for event in album:
        assert (await keeper.handle(event, folded)).status == "queued"
        await world.pass_time(0.25, 0.25)
    assert folded.turns == []
    await world.pass_time(0.5, 0.25)
    assert await keeper.idle()
    assert folded.turns == [[1, 2, 3]]
    assert (await keeper.handle(update(4), folded)).status == "committed"
    assert "recovered" not in world.kinds()


async def test_what_comes_after_an_album_keeps_its_place(world):
    keeper = await world.keeper(overlap=lambda event: Burst(1, gather=True) if media_group(event) else None)
    folded = Folded()
    await keeper.handle(update(1, media_group_id="album"), folded)
    assert (await keeper.handle(update(2), folded)).status == "committed"
    await world.pass_time(1.5)
    assert await keeper.idle()
    assert folded.turns == [[2], [1]]


# ------------------------------------------------------------------------------------------------- concurrent


async def test_concurrent_runs_at_once_up_to_its_limit(world):
    keeper, gate = await world.keeper(overlap=Concurrent(2)), Gate()
    calls = [asyncio.create_task(keeper.handle(update(number), gate)) for number in (1, 2)]
    await until(lambda: len(gate.entered) == 2)
    assert (await keeper.handle(update(3), gate)).status == "busy"
    gate.open()
    assert [outcome.status for outcome in await asyncio.gather(*calls)] == ["committed"] * 2
    assert (await keeper.handle(update(3), gate)).status == "committed"
    assert (await keeper.handle(update(1), gate)).status == "duplicate"


async def test_concurrent_beside_a_leased_turn(world):
    keeper, gate = await world.keeper(overlap=lambda e: Concurrent() if e["update_id"] > 1 else None), Gate()
    running = await busy(keeper, gate)

    async def other(turn: Turn) -> None:
        turn.update_data(other=True)

    assert (await keeper.handle(update(2), other)).status == "committed"
    gate.open()
    await running
    assert await world.store.get_data("bot", (7, 7)) == {"other": True, "done": [1]}


# ---------------------------------------------------------------------------------------- per flow, per event


async def test_a_flows_own_policy_comes_before_the_keepers(world):
    keeper, gate = await world.keeper(flows=[Quick, Slow], overlap=Queue()), Gate()
    for flow, status in ((Quick, "busy"), (Slow, "queued"), (None, "queued")):
        async with keeper.open((7, 7)) as turn:
            turn.clear()
            if flow is not None:
                turn.start(flow)
        number = 10 * (1 + len(gate.entered))
        running = await busy(keeper, gate, number)
        assert (await keeper.handle(update(number + 1), note)).status == status
        gate.let(1)
        await running
        assert await keeper.idle()


async def test_a_function_of_the_event_decides(world):
    def overlap(event: dict[str, Any]) -> Any:
        return {2: Reject(), 3: Queue(limit=1), 4: Burst(0), 5: None}[event["update_id"]]

    keeper, gate = await world.keeper(overlap=lambda e: None if e["update_id"] == 1 else overlap(e)), Gate()
    running = await busy(keeper, gate)
    statuses = [(await keeper.handle(update(number), gate)).status for number in (2, 3, 4, 5)]
    assert statuses == ["busy", "queued", "queued", "queued"]
    gate.open()
    await running


# --------------------------------------------------------------------------------------------- each as itself


class Event:
    """An update object of some framework: no dict, with its own writing."""

    def __init__(self, number: int) -> None:
        self.update_id = number
        self.number = number

    def model_dump_json(self, **_: object) -> str:
        return f'{{"update_id": {self.number}}}'


async def test_a_queued_event_is_the_very_object_with_its_own_handler(world):
    keeper = await world.keeper(key=lambda event: (7, 7))
    gate, got = asyncio.Event(), []

    async def first(turn: Turn) -> None:
        await gate.wait()

    def handler_named(name: str) -> Any:
        async def handler(turn: Turn) -> None:
            got.append((name, turn.event))

        return handler

    running = asyncio.create_task(keeper.handle(Event(1), first))
    await others()
    await until(lambda: "started" in world.kinds())
    events = [Event(number) for number in (2, 3, 4)]
    for event in events:
        await keeper.handle(event, handler_named(f"h{event.number}"))
    gate.set()
    await running
    assert await keeper.idle()
    assert [(name, event is events[place]) for place, (name, event) in enumerate(got)] == [
        ("h2", True),
        ("h3", True),
        ("h4", True),
    ]


async def test_each_keeps_its_own_topic_and_sender(world):
    keeper, gate = await world.keeper(key=lambda e: (e["message"]["chat"]["id"],)), Gate()
    running = asyncio.create_task(keeper.handle(update(1, user=1, message_thread_id=1), gate))
    await until(lambda: gate.entered)
    got = []

    async def handler(turn: Turn) -> None:
        message = turn.event["message"]
        got.append((message["text"], message["message_thread_id"], message["from"]["id"]))

    for number, topic, user in ((2, 1, 11), (3, 2, 22), (4, 1, 33)):
        await keeper.handle(update(number, user=user, message_thread_id=topic), handler)
    gate.open()
    await running
    assert await keeper.idle()
    assert got == [("text 2", 1, 11), ("text 3", 2, 22), ("text 4", 1, 33)]


async def test_after_a_restart_a_queued_event_is_decoded_for_the_keepers_handler(world):
    keeper, gate = await world.keeper(key=lambda event: (7, 7)), Gate()
    running = asyncio.create_task(keeper.handle(update(1), gate))
    await until(lambda: gate.entered)
    await keeper.handle(update(2, user=5, message_thread_id=9), note)
    stopping = asyncio.create_task(keeper.stop(grace=10))
    gate.open()
    await running
    await stopping
    got: list[Any] = []

    async def handler(turn: Turn) -> None:
        got.append(turn.event)

    again = await world.keeper(key=lambda event: (7, 7), handler=handler)
    await world.pass_time(6)
    assert await again.idle()
    assert got == [update(2, user=5, message_thread_id=9)]
    assert "recovered" in world.kinds()


async def test_a_decoder_makes_the_events_of_a_framework_again(world):
    options: dict[str, Any] = {"key": lambda event: (7, 7)}
    keeper, gate = await world.keeper(**options), Gate()
    running = asyncio.create_task(keeper.handle(update(1), gate))
    await until(lambda: gate.entered)
    await keeper.handle(Event(2), note)
    stopping = asyncio.create_task(keeper.stop(grace=10))
    gate.open()
    await running
    await stopping
    got: list[Any] = []

    async def handler(turn: Turn) -> None:
        got.append(turn.event)

    again = await world.keeper(**options, handler=handler, decode=lambda text: ("decoded", text))
    await world.pass_time(6)
    assert await again.idle()
    assert got == [("decoded", b'{"update_id": 2}')]


async def test_topics_have_conversations_of_their_own(world):
    keeper, gate = await world.keeper(key=ChatTopic()), Gate()
    topic = {"is_topic_message": True}
    events = [update(n, user=n, message_thread_id=n, **topic) for n in (1, 2)]
    calls = [asyncio.create_task(keeper.handle(event, gate)) for event in events]
    await until(lambda: len(gate.entered) == 2)
    gate.open()
    await asyncio.gather(*calls)
