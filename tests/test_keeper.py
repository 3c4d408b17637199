"""The keeper: what handle answers, starting and stopping, open, events without a key, bad input."""

from __future__ import annotations

import asyncio
import warnings
from typing import Any

import pytest

from hitherto import Chat, Fenced, Flow, Keeper, MemoryStore, Outcome, Queue, Record, Reject, State, Turn
from hitherto.errors import (
    BadEvent,
    BadKey,
    EventTooLarge,
    KeeperClosed,
    NotStarted,
    UnknownFlow,
    UnknownState,
)
from hitherto.stores.sqlite import SQLiteStore
from keeping import STORES, Gate, Talk, World, gathered, note, others, until, update


@pytest.fixture(params=STORES)
async def world(request, tmp_path):
    world = World(request.param, tmp_path)
    yield world
    await world.close()


# ------------------------------------------------------------------------------------------------- one turn


async def test_a_turn_is_accepted_run_and_committed(world):
    keeper = await world.keeper()

    async def handler(turn: Turn) -> None:
        assert (turn.flow, turn.state, turn.data, turn.attempt) == (None, None, {}, 1)
        assert turn.event["message"]["text"] == "text 1"
        turn.start(Talk)
        turn.update_data(name="Ann")

    outcome = await keeper.handle(update(1), handler)
    assert outcome == Outcome("committed", "tg:1", (7, 7), 0, 1)
    assert await world.store.get_state("bot", (7, 7)) == Record("talk", "hello", {"name": "Ann"}, 1)
    document = await keeper.inspect((7, 7))
    assert document.lease is None
    assert document.inbox == ()
    assert list(document.seen) == ["tg:1"]


async def test_the_next_turn_goes_on_where_the_last_one_ended(world):
    keeper = await world.keeper()

    async def first(turn: Turn) -> None:
        turn.start(Talk)
        turn.data["cart"] = [1]

    async def second(turn: Turn) -> None:
        assert turn.state is Talk.hello
        turn.data["cart"].append(2)
        turn.transition(Talk.middle)

    await keeper.handle(update(1), first)
    await keeper.handle(update(2), second)
    assert await world.store.get_state("bot", (7, 7)) == Record("talk", "middle", {"cart": [1, 2]}, 1)


async def test_a_redelivery_is_a_duplicate_and_is_not_run(world):
    keeper = await world.keeper()
    await keeper.handle(update(1), note)
    assert (await keeper.handle(update(1), note)).status == "duplicate"
    assert await world.done() == [1]
    assert keeper.counts == {"committed": 1, "duplicate": 1}


async def test_an_event_without_an_id_is_not_deduplicated(world):
    keeper = await world.keeper(key=lambda event: (7, 7))

    async def handler(turn: Turn) -> None:
        turn.update_data(count=turn.data.get("count", 0) + 1)

    for _ in range(3):
        assert (await keeper.handle({"text": "hi"}, handler)).event_id is None
    assert await world.store.get_data("bot", (7, 7)) == {"count": 3}


async def test_id_and_key_may_be_given(world):
    keeper = await world.keeper()

    async def handler(turn: Turn) -> None:
        turn.update_data(key=turn.key)

    assert (await keeper.handle({"x": 1}, handler, id=5, key=("room", 4))).key == ("room", 4)
    assert (await keeper.handle({"x": 1}, handler, id="5", key=("room", 4))).status == "duplicate"
    assert await world.store.get_data("bot", ("room", 4)) == {"key": ["room", 4]}


async def test_fifty_conversations_at_once_do_not_meet(world):
    keeper = await world.keeper()

    async def handler(turn: Turn) -> None:
        await asyncio.sleep(0)
        turn.update_data(mine=turn.key[0], count=turn.data.get("count", 0) + 1)

    events = [update(number, chat=number % 50 + 1) for number in range(150)]
    outcomes = await asyncio.gather(*[keeper.handle(event, handler) for event in events])
    assert {outcome.status for outcome in outcomes} <= {"committed", "queued"}
    assert await keeper.idle()
    for chat in range(1, 51):
        assert await world.store.get_data("bot", (chat, chat)) == {"mine": chat, "count": 3}


async def test_one_conversation_at_once_is_handled_in_order(world):
    keeper = await world.keeper()
    gate = Gate()
    first = asyncio.create_task(keeper.handle(update(1), gate))
    await until(lambda: gate.entered)
    outcomes = [await keeper.handle(update(number), gate) for number in range(2, 12)]
    assert [outcome.status for outcome in outcomes] == ["queued"] * 10
    assert [outcome.depth for outcome in outcomes] == list(range(1, 11))
    gate.open()
    assert (await first).status == "committed"
    assert await keeper.idle()
    assert await world.done() == list(range(1, 12))


async def test_the_caller_does_not_wait_for_what_queued_behind(world):
    keeper = await world.keeper()
    gate = Gate()
    first = asyncio.create_task(keeper.handle(update(1), gate))
    await until(lambda: gate.entered)
    await keeper.handle(update(2), gate)
    gate.let(1)
    assert (await first).status == "committed"
    await until(lambda: gate.entered == [1, 2])
    assert keeper.health().running == 1
    gate.open()


async def test_accept_returns_before_the_turn_runs(world):
    keeper = await world.keeper()
    gate = Gate()
    assert (await keeper.accept(update(1), gate)).status == "queued"
    assert (await keeper.accept(update(2), gate)).status == "queued"
    assert (await keeper.accept(update(1), gate)).status == "duplicate"
    gate.open()
    assert await keeper.idle()
    assert await world.done() == [1, 2]


# ------------------------------------------------------------------------------ events without a conversation


async def test_an_event_without_a_key_runs_with_an_empty_record(world):
    keeper = await world.keeper()
    seen: list[Any] = []

    async def handler(turn: Turn) -> None:
        turn.start(Talk)
        turn.update_data(a=1)
        seen.append((turn.key, turn.event))

    poll = {"update_id": 1, "poll": {"id": "1"}}
    assert await keeper.handle(poll, handler) == Outcome("no-key")
    assert (await keeper.accept(poll, handler)).status == "no-key"
    assert await keeper.idle()
    assert seen == [(None, poll)] * 2
    assert [address async for address in world.store.scan("bot", "all")] == []
    assert keeper.counts == {"no-key": 2}


async def test_an_event_without_a_key_that_fails(world):
    keeper = await world.keeper()

    async def handler(turn: Turn) -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await keeper.handle({"update_id": 1, "poll": {}}, handler)
    assert await keeper.idle(1)


# ------------------------------------------------------------------------------------------------------- open


async def test_open_commits_what_the_block_changed(world):
    keeper = await world.keeper()
    async with keeper.open((7, 7)) as turn:
        assert turn.event is None
        turn.start(Talk)
        turn.update_data(a=1)
    assert await world.store.get_state("bot", (7, 7)) == Record("talk", "hello", {"a": 1}, 1)
    assert await keeper.idle(1)


async def test_open_that_raises_commits_nothing_and_lets_go(world):
    keeper = await world.keeper()
    with pytest.raises(KeyError):  # noqa: PT012
        async with keeper.open((7, 7)) as turn:
            turn.update_data(a=1)
            raise KeyError("x")
    assert await world.store.get_data("bot", (7, 7)) is None
    async with keeper.open((7, 7), timeout=1) as turn:
        assert turn.data == {}


async def test_open_waits_until_the_conversation_is_free(world):
    keeper = await world.keeper()
    gate = Gate()
    running = asyncio.create_task(keeper.handle(update(1), gate))
    await until(lambda: gate.entered)

    async def job() -> list[int]:
        async with keeper.open((7, 7)) as turn:
            turn.update_data(job=True)
            return list(turn.data["done"])

    waiting = asyncio.create_task(job())
    await others()
    assert not waiting.done()
    gate.open()
    assert await waiting == [1]
    await running


async def test_open_gives_up_after_its_timeout(world):
    keeper = await world.keeper()
    gate = Gate()
    running = asyncio.create_task(keeper.handle(update(1), gate))
    await until(lambda: gate.entered)
    with pytest.raises(TimeoutError):
        async with keeper.open((7, 7), timeout=0.02):
            raise AssertionError("not reached")
    gate.open()
    await running
    assert await keeper.idle(1)


async def test_what_arrives_while_open_is_run_after_it(world):
    keeper = await world.keeper()
    async with keeper.open((7, 7)) as turn:
        assert (await keeper.handle(update(1), note)).status == "queued"
        turn.update_data(done=[0])
    assert await keeper.idle()
    assert await world.done() == [0, 1]


async def test_open_raises_fenced_when_the_lease_was_lost(world):
    keeper = await world.keeper()
    with pytest.raises(Fenced):  # noqa: PT012
        async with keeper.open((7, 7)) as turn:
            turn.update_data(a=1)
            assert await keeper.force_release((7, 7))
    assert await world.store.get_data("bot", (7, 7)) is None
    assert await keeper.idle(1)


async def test_opening_what_one_holds_oneself_is_an_error_and_not_a_deadlock(world):
    keeper = await world.keeper()
    async with keeper.open((7, 7)) as turn:
        with pytest.raises(RuntimeError, match="already"):
            async with keeper.open((7, 7)):
                pass
        turn.update_data(a=1)
    assert await world.store.get_data("bot", (7, 7)) == {"a": 1}


async def test_open_refuses_data_and_lets_go(world):
    keeper = await world.keeper()
    async with keeper.open((7, 7)) as turn:
        turn.data["list"] = []
    with pytest.raises(ValueError, match="object"):
        async with keeper.open((7, 7)) as turn:
            turn.data["list"].append(object())
    async with keeper.open((7, 7), timeout=1):
        pass


async def test_open_of_a_record_with_an_unknown_state_lets_go(world):
    keeper = await world.keeper()
    await world.store.set_state("bot", (7, 7), Record("talk", "gone", {}))
    for _ in range(2):
        with pytest.raises(UnknownState):
            async with keeper.open((7, 7), timeout=1):
                pass
    assert await keeper.idle(1)


# --------------------------------------------------------------------------------------------- start and stop


async def test_a_keeper_is_used_between_start_and_stop_only():
    keeper = Keeper("bot")
    calls = (
        lambda: keeper.handle(update(1), note),
        lambda: keeper.accept(update(1), note),
        lambda: keeper.open((7, 7)).__aenter__(),
        lambda: keeper.inspect((7, 7)),
        lambda: keeper.dead_letters((7, 7)),
        lambda: keeper.dead_keys().__anext__(),
        lambda: keeper.retry_dead((7, 7), 1),
        lambda: keeper.drop_dead((7, 7), 1),
        lambda: keeper.force_release((7, 7)),
        lambda: keeper.forget((7, 7)),
        lambda: keeper.sweep(),
    )
    for call in calls:
        with pytest.raises(NotStarted):
            await call()
    async with keeper:
        pass
    for call in calls:
        with pytest.raises(KeeperClosed):
            await call()
    with pytest.raises(KeeperClosed):
        await keeper.start()


async def test_start_and_stop_as_often_as_one_likes():
    keeper = Keeper("bot")
    await keeper.stop()
    await asyncio.gather(keeper.start(), keeper.start())
    await keeper.start()
    await keeper.handle(update(1), note)
    await asyncio.gather(keeper.stop(), keeper.stop())
    await keeper.stop()
    await others()
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert "stopped" in repr(keeper)


async def test_a_start_that_failed_can_be_made_again():
    class Shy(MemoryStore):
        shy = True

        async def open(self) -> None:
            if self.shy:
                raise OSError("not yet")

    store = Shy()
    keeper = Keeper("bot", store)
    with pytest.raises(OSError, match="not yet"):
        await keeper.start()
    store.shy = False
    async with keeper:
        assert (await keeper.handle(update(1), note)).status == "committed"


async def test_start_gives_the_store_every_option_that_was_given():
    class Curious(MemoryStore):
        given: dict[str, Any]

        async def init(self, bot: str, **options: object) -> None:
            self.given = {"bot": bot, **options}

    store, overlap = Curious(), Queue(limit=3)
    async with Keeper("bot", store, lease=12.0, overlap=overlap, record_ttl=None):
        assert store.given == {"bot": "bot", "lease": 12.0, "overlap": overlap}


async def test_a_store_of_the_caller_is_not_closed(tmp_path):
    class Closable(MemoryStore):
        closed = False

        async def close(self) -> None:
            self.closed = True

    store = Closable()
    async with Keeper("bot", store):
        pass
    assert not store.closed
    keeper = Keeper("bot", f"sqlite:///{tmp_path / 'mine.db'}")
    async with keeper:
        await keeper.handle(update(1), note)
    async with SQLiteStore(tmp_path / "mine.db") as again:
        assert await again.get_data("bot", (7, 7)) == {"done": [1]}


async def test_stop_lets_running_turns_finish(world):
    keeper = await world.keeper()
    gate = Gate()
    running = asyncio.create_task(keeper.handle(update(1), gate))
    await until(lambda: gate.entered)
    stopping = asyncio.create_task(keeper.stop(grace=10))
    await others()
    assert not stopping.done()
    with pytest.raises(KeeperClosed):
        await keeper.handle(update(2), gate)
    gate.open()
    await stopping
    assert (await running).status == "committed"
    assert await world.done() == [1]


async def test_stop_hands_nothing_new_out_and_loses_nothing(world):
    keeper = await world.keeper()
    gate = Gate()
    running = asyncio.create_task(keeper.handle(update(1), gate))
    await until(lambda: gate.entered)
    await keeper.handle(update(2), gate)
    await keeper.handle(update(3), gate)
    stopping = asyncio.create_task(keeper.stop(grace=10))
    await others()
    gate.open()
    await gathered(stopping, running)
    assert gate.entered == [1]
    document = await world.store.load(next(iter([a async for a in world.store.scan("bot", "all")])))
    assert document.lease is None
    assert [entry.event_id for entry in document.inbox] == ["tg:2", "tg:3"]
    assert [entry.attempts for entry in document.inbox] == [0, 0]
    another = await world.keeper(handler=note)
    await world.pass_time(6)
    assert await another.idle()
    assert await world.done() == [1, 2, 3]


async def test_stop_releases_what_does_not_finish(world):
    keeper = await world.keeper()
    gate = Gate()
    running = asyncio.create_task(keeper.handle(update(1), gate))
    await until(lambda: gate.entered)
    await keeper.stop(grace=0)
    with pytest.raises(KeeperClosed):
        await running
    assert not running.cancelled()
    assert running.cancelling() == 0
    another = await world.keeper()
    assert (await another.handle(update(1), note)).status == "committed"
    assert await world.done() == [1]
    entries = (await another.inspect((7, 7))).inbox
    assert entries == ()


async def test_stop_wakes_who_waits_for_a_slot_or_a_conversation(world):
    keeper = await world.keeper(max_turns=2)
    gate = Gate()
    running = asyncio.create_task(keeper.handle(update(1), gate))
    other = asyncio.create_task(keeper.handle(update(2, chat=8), gate))
    await until(lambda: len(gate.entered) == 2)
    waiting = asyncio.create_task(keeper.handle(update(3, chat=9), gate))
    opening = asyncio.create_task(keeper.open((7, 7)).__aenter__())
    await others()
    await keeper.stop(grace=0)
    results = await gathered(running, other, waiting, opening)
    assert [type(result) for result in results] == [KeeperClosed] * 4
    assert gate.entered == [1, 2]


async def test_stop_interrupts_an_event_without_a_key(world):
    keeper = await world.keeper()
    gate = Gate()
    running = asyncio.create_task(keeper.handle({"update_id": 1, "poll": {}}, gate))
    await until(lambda: gate.entered)
    await keeper.stop(grace=0)
    with pytest.raises(KeeperClosed):
        await running


async def test_a_handler_that_will_not_end_does_not_hold_up_the_stop(monkeypatch, caplog):
    monkeypatch.setattr("hitherto.keeper._LAST_GRACE", 0.01)
    keeper = Keeper("bot")
    await keeper.start()
    stubborn = asyncio.Event()

    async def handler(turn: Turn) -> None:
        try:
            await stubborn.wait()
        except asyncio.CancelledError:
            await stubborn.wait()
            turn.update_data(a=1)

    running = asyncio.create_task(keeper.handle(update(1), handler))
    await others()
    await keeper.stop(grace=0)
    assert "keeper.stop turns=1" in caplog.text
    stubborn.set()
    assert (await running).status == "committed"
    assert running.cancelling() == 0


async def test_a_handler_cannot_wait_for_its_own_end():
    keeper = Keeper("bot")
    await keeper.start()
    tasks: list[asyncio.Task[None]] = []

    async def shutdown(turn: Turn) -> None:
        with pytest.raises(RuntimeError, match="create_task"):
            await keeper.stop()
        tasks.append(asyncio.create_task(keeper.stop()))
        turn.update_data(bye=1)

    assert (await keeper.handle(update(1), shutdown)).status == "committed"
    await tasks[0]
    assert await keeper.store.get_data("bot", (7, 7)) == {"bye": 1}


async def test_a_cancelled_stop_ends_the_grace_and_closes_all_the_same():
    keeper = Keeper("bot")
    await keeper.start()
    gate = Gate()
    running = asyncio.create_task(keeper.handle(update(1), gate))
    await until(lambda: gate.entered)
    stopping = asyncio.create_task(keeper.stop(grace=1000))
    await others()
    stopping.cancel()
    assert [type(result) for result in await gathered(stopping, running)] == [
        asyncio.CancelledError,
        KeeperClosed,
    ]
    await keeper.stop()
    assert "stopped" in repr(keeper)


# ---------------------------------------------------------------------------------------------- back-pressure


async def test_max_turns_bounds_the_turns_that_run(world):
    keeper = await world.keeper(max_turns=3)
    gate = Gate()
    calls = [asyncio.create_task(keeper.handle(update(n, chat=n), gate)) for n in range(1, 11)]
    await until(lambda: len(gate.entered) == 3)
    await world.calm()
    assert len(gate.entered) == 3
    assert keeper.health().running == 3
    gate.let(2)
    await until(lambda: len(gate.entered) == 5)
    await world.calm()
    assert len(gate.entered) == 5
    gate.open()
    assert [outcome.status for outcome in await gathered(*calls)] == ["committed"] * 10
    assert gate.entered == list(range(1, 11))


async def test_who_waits_for_a_slot_and_goes_away_takes_none(world):
    keeper = await world.keeper(max_turns=1)
    gate = Gate()
    running = asyncio.create_task(keeper.handle(update(1), gate))
    await until(lambda: gate.entered)
    gone = asyncio.create_task(keeper.handle(update(2, chat=8), gate))
    stays = asyncio.create_task(keeper.handle(update(3, chat=9), gate))
    await others()
    gone.cancel()
    gate.open()
    results = await gathered(running, gone, stays)
    assert [getattr(result, "status", type(result)) for result in results] == [
        "committed",
        asyncio.CancelledError,
        "committed",
    ]
    assert await keeper.idle(1)


# -------------------------------------------------------------------------------------------------- bad input


async def test_a_handler_that_is_not_async(world):
    keeper = await world.keeper()
    with pytest.raises(TypeError, match="async def"):
        await keeper.handle(update(1), lambda turn: None)


async def test_no_handler_at_all(world):
    keeper = await world.keeper()
    with pytest.raises(TypeError, match="no handler"):
        await keeper.handle(update(1))
    assert (await keeper.inspect((7, 7))).version == 0


async def test_the_keepers_own_handler(world):
    keeper = await world.keeper(handler=note)
    assert (await keeper.handle(update(1))).status == "committed"
    assert await world.done() == [1]


async def test_a_payload_that_is_not_json(world):
    keeper = await world.keeper(key=lambda event: (7, 7))
    for event in (b"{not json", object(), {"x": object()}):
        with pytest.raises(BadEvent):
            await keeper.handle(event, note)
    assert await keeper.idle(1)


async def test_bytes_are_an_event(world):
    keeper = await world.keeper(key=lambda event: (7, 7))

    async def handler(turn: Turn) -> None:
        turn.update_data(kind=type(turn.event).__name__)

    await keeper.handle(b'{"a": 1}', handler)
    assert await world.store.get_data("bot", (7, 7)) == {"kind": "bytes"}


async def test_a_large_event_is_a_clear_error(world):
    keeper = await world.keeper(max_event_bytes=1000)
    with pytest.raises(EventTooLarge) as caught:
        await keeper.handle(update(1, text="x" * 1000), note)
    assert caught.value.limit == 1000
    assert caught.value.size > 1000
    assert (await keeper.handle(update(2, text="x" * 100), note)).status == "committed"


async def test_a_key_that_cannot_be_one(world):
    keeper = await world.keeper(key=lambda event: event["key"])
    for key in ([1], ({},), (float("nan"),)):
        with pytest.raises(BadKey):
            await keeper.handle({"key": key}, note)
        with pytest.raises(BadKey):
            await keeper.handle({"key": 1}, note, key=key)
    assert await keeper.idle(1)


async def test_keys_of_other_types_do_not_meet(world):
    keeper = await world.keeper()

    async def handler(turn: Turn) -> None:
        turn.update_data(count=turn.data.get("count", 0) + 1)

    keys = [(1,), ("1",), (True,), (1.0,), 1, "1", (1, None)]
    for number, key in enumerate(keys):
        await keeper.handle({}, handler, id=number, key=key)
    for key in keys:
        assert await world.store.get_data("bot", key) == {"count": 1}


async def test_an_unknown_flow_in_a_stored_record(world):
    await world.store.init("bot")
    await world.store.set_state("bot", (7, 7), Record("renamed", "x", {"a": 1}))
    keeper = await world.keeper()
    with pytest.raises(UnknownFlow, match="renamed"):
        await keeper.handle(update(1), note)
    assert await world.store.get_state("bot", (7, 7)) == Record("renamed", "x", {"a": 1})
    assert [entry.attempts for entry in (await keeper.inspect((7, 7))).inbox] == [1]


async def test_an_unknown_state_reset_and_answered_by_a_function(world):
    await world.store.init("bot")
    for chat, policy in ((1, "reset"), (2, lambda record, error: Talk.bye)):
        await world.store.set_state("bot", (chat, chat), Record("talk", "gone", {"a": 1}))
        keeper = await world.keeper(on_unknown_state=policy)
        await keeper.handle(update(chat, chat=chat), note)
    assert await world.store.get_state("bot", (1, 1)) == Record(None, None, {"done": [1]})
    assert await world.store.get_state("bot", (2, 2)) == Record("talk", "bye", {"a": 1, "done": [2]})


async def test_two_keepers_with_different_flows_for_one_bot(world):
    class Other(Flow):
        only = State(initial=True)

    one, two = await world.keeper(), await world.keeper(flows=[Other])
    async with one.open((7, 7)) as turn:
        turn.start(Talk)
    with pytest.raises(UnknownFlow, match="talk"):
        await two.handle(update(1), note)
    assert (await one.handle(update(1), note)).status == "committed"
    assert await world.store.get_state("bot", (7, 7)) == Record("talk", "hello", {"done": [1]})


async def test_two_bots_in_one_store_do_not_meet(world):
    mine = await world.keeper()
    other = Keeper("other", world.store, clock=world.clock)
    async with other:
        await mine.handle(update(1), note)
        assert (await other.handle(update(1), note)).status == "committed"
        assert (await other.handle(update(2), note)).status == "committed"
    assert await world.done() == [1]
    assert await world.store.get_data("other", (7, 7)) == {"done": [1, 2]}


@pytest.mark.parametrize(
    "options",
    [
        {"lease": 0},
        {"sweep": -1},
        {"max_turns": 0},
        {"max_attempts": 0},
        {"deadline": 0},
        {"seen_limit": 0},
        {"seen_age": 0},
        {"max_event_bytes": 0},
        {"handler_timeout": 0},
        {"grace": -1},
        {"record_ttl": -1},
        {"on_error": "ignore"},
        {"on_lost": "die"},
        {"on_invalid_transition": "shout"},
        {"on_unknown_state": "ignore"},
    ],
)
def test_options_that_make_no_sense(options):
    with pytest.raises(ValueError, match=next(iter(options)).split("_")[0]):
        Keeper("bot", **options)


@pytest.mark.parametrize(
    "options",
    [
        {"overlap": "queue"},
        {"overlap": Queue},
        {"store": object()},
        {"key": Chat},
        {"flows": [object]},
        {"handler": 5},
        {"decode": b""},
        {"backoff": 1.0},
        {"clock": 5},
        {"lease": "30"},
        {"max_attempts": 1.5},
        {"max_turns": 10.0},
        {"seen_limit": "all"},
    ],
    ids=lambda options: next(iter(options)),
)
def test_options_of_a_wrong_type(options):
    with pytest.raises((TypeError, ValueError)):
        Keeper("bot", **options)


async def test_what_is_no_handler_is_refused_before_the_event_is_kept(world):
    keeper = await world.keeper()
    with pytest.raises(TypeError, match="5 is no handler; write one as 'async def handler"):
        await keeper.handle(update(1), 5)
    assert (await keeper.inspect((7, 7))).inbox == ()


def test_a_flow_with_an_overlap_that_is_none():
    class Odd(Flow, overlap="queue"):
        only = State(initial=True)

    with pytest.raises(TypeError, match="odd"):
        Keeper("bot", flows=[Odd])


def test_a_bot_without_a_name():
    for bot in ("", None, 7):
        with pytest.raises((TypeError, ValueError)):
            Keeper(bot)


async def test_an_overlap_function_that_answers_nonsense(world):
    keeper = await world.keeper(overlap=lambda event: "queue")
    with pytest.raises(TypeError, match="one of Reject"):
        await keeper.handle(update(1), note)
    assert await keeper.idle(1)


async def test_repr_and_warnings_are_quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        keeper = Keeper("bot", overlap=Reject())
    assert repr(keeper) == "Keeper('bot', store=MemoryStore(<0 conversations>), new)"
