"""What a keeper tells: steps to those who listen, log lines with stable names, and nobody's words or ids."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from hitherto import Queue, Turn
from hitherto.addresses import Address, encode
from hitherto.errors import StoreCorrupt, StoreUnavailable
from hitherto.outcomes import Outcome, Step, hashed
from keeping import STORES, Gate, World, note, until, update


@pytest.fixture(params=STORES)
async def world(request, tmp_path):
    world = World(request.param, tmp_path)
    yield world
    await world.close()


async def failing(turn: Turn) -> None:
    raise ValueError("words of Ann")


async def test_every_step_of_an_event_is_told_in_order(world):
    keeper = await world.keeper()
    await keeper.handle(update(1), note)
    accepted, started, committed = world.steps
    assert [step.kind for step in world.steps] == ["accepted", "started", "committed"]
    assert {step.conversation for step in world.steps} == {encode(Address("bot", "", (7, 7)))}
    assert {step.event_id for step in world.steps} == {"tg:1"}
    assert {step.bot for step in world.steps} == {"bot"}
    assert accepted.detail == "granted"
    assert (started.attempt, committed.attempt) == (1, 1)
    assert committed.epoch == accepted.epoch == 1


async def test_every_kind_of_step_is_told(world):
    keeper = await world.keeper(max_attempts=2, overlap=Queue(1, on_full="drop_oldest"), handler=note)
    gate = Gate()
    with pytest.raises(ValueError, match="Ann"):
        await keeper.handle(update(1), failing)
    await world.until(lambda: "dead" in world.kinds())
    running = asyncio.create_task(keeper.handle(update(2), gate))
    await until(lambda: gate.entered)
    for number in (3, 4):
        await keeper.handle(update(number), note)
    await world.until(lambda: "renewed" in world.kinds())
    await keeper.force_release((7, 7))
    await world.until(lambda: "lost" in world.kinds())
    gate.open()
    await running
    await world.store.accept(
        *keeper._stored(update(5, chat=8), None, None, None), Queue(), "dead", world.store.op(), keeper.terms
    )
    await world.until(lambda: "recovered" in world.kinds())
    assert await keeper.idle()
    kinds = set(world.kinds())
    wanted = {"accepted", "started", "committed", "renewed", "lost", "fenced", "failed", "recovered"}
    assert {*wanted, "dropped", "dead"} <= kinds
    (dropped,) = [step for step in world.steps if step.kind == "dropped"]
    assert (dropped.event_id, dropped.detail) == ("tg:3", "oldest")
    assert [step.detail for step in world.steps if step.kind == "failed"] == ["ValueError"] * 2


async def test_a_listener_that_raises_hurts_nobody(world, caplog):
    keeper, heard = await world.keeper(), []

    def broken(step: Step) -> None:
        raise RuntimeError("words of a listener")

    stop_broken = keeper.listen(broken)
    stop = keeper.listen(heard.append)
    assert (await keeper.handle(update(1), note)).status == "committed"
    assert [step.kind for step in heard] == ["accepted", "started", "committed"]
    assert "listener.failed error=RuntimeError where=test_outcomes.py" in caplog.text
    assert "words of a listener" not in "".join(
        record.getMessage() for record in caplog.records if record.levelno > logging.DEBUG
    )
    stop()
    stop()
    stop_broken()
    await keeper.handle(update(2), note)
    assert len(heard) == 3


async def test_a_listener_may_stop_listening_while_it_is_told(world):
    keeper, heard = await world.keeper(), []

    def once(step: Step) -> None:
        heard.append(step.kind)
        stop()

    stop = keeper.listen(once)
    keeper.listen(heard.append)
    await keeper.handle(update(1), note)
    assert heard[0] == "accepted"
    assert len(heard) == 4


@pytest.mark.parametrize("log_ids", [False, True])
async def test_log_lines_name_a_conversation_by_its_hash_unless_asked_otherwise(world, caplog, log_ids):
    caplog.set_level(logging.INFO, "hitherto")
    keeper = await world.keeper(log_ids=log_ids, max_attempts=1)
    with pytest.raises(ValueError, match="Ann"):
        await keeper.handle(update(1, chat=987654321), failing)
    text = encode(Address("bot", "", (987654321, 987654321)))
    named = f"conversation={text if log_ids else hashed(text)}"
    lines = [record.getMessage() for record in caplog.records]
    assert any(line.startswith(f"turn.failed {named} error=ValueError") for line in lines)
    assert f"event.dead {named}" in lines
    assert ("987654321" in caplog.text) is log_ids
    assert "words of Ann" not in caplog.text
    assert {record.name for record in caplog.records} == {"hitherto"}


async def test_nothing_is_logged_of_a_turn_that_goes_well(world, caplog):
    caplog.set_level(logging.INFO, "hitherto")
    keeper = await world.keeper()
    await keeper.handle(update(1), note)
    await keeper.handle(update(1), note)
    assert caplog.records == []
    assert keeper.counts == {"committed": 1, "duplicate": 1}


def test_what_is_told_is_frozen_and_shows_no_ids():
    step = Step("accepted", "bot", "bot//987654321", event_id="tg:987654321")
    outcome = Outcome("committed", "tg:987654321", (987654321,))
    for told in (step, outcome):
        assert "987654321" not in repr(told)
        with pytest.raises(AttributeError):
            told.depth = 7
    assert hashed("bot//987654321") in repr(step)


@pytest.mark.parametrize(
    ("status", "accepted"),
    [("committed", True), ("queued", True), ("duplicate", True), ("busy", False), ("full", False)],
)
def test_an_outcome_says_whether_the_platform_may_forget_the_event(status: Any, accepted: bool):
    assert Outcome(status).accepted is accepted


# ------------------------------------------------------------------------ a store that goes away in mid-turn


class Away:
    """The store's *name* fails so many times, before it has done anything or after."""

    def __init__(self, world: World, name: str, times: int, after: bool = False) -> None:
        self.call, self.times, self.after, self.asked = getattr(world.store, name), times, after, 0
        setattr(world.store, name, self)

    async def __call__(self, *arguments: Any, **options: Any) -> Any:
        self.asked += 1
        if self.asked > self.times:
            return await self.call(*arguments, **options)
        if self.after:
            await self.call(*arguments, **options)
        raise StoreUnavailable("the store is away", url="redis://:secret@host")


@pytest.mark.parametrize("name", ["accept", "settle"])
async def test_a_store_away_for_a_moment_is_asked_again_with_back_off(world, caplog, name):
    keeper = await world.keeper(deadline=10_000.0)
    away = Away(world, name, times=3)
    running = asyncio.create_task(keeper.handle(update(1), note))
    await until(lambda: away.asked)
    await world.calm()
    assert away.asked == 1, "it is not asked again at once"
    await world.until(running.done)
    assert (await running).status == "committed"
    assert away.asked == 4
    assert await world.done() == [1]
    assert caplog.text.count("store.retry StoreUnavailable") == 3
    assert "secret" not in caplog.text


async def test_a_store_that_stays_away_is_a_store_error_and_the_event_can_come_again(world):
    keeper = await world.keeper(deadline=2.0)
    away = Away(world, "accept", times=1000)
    running = asyncio.create_task(keeper.handle(update(1), note))
    await world.until(running.done)
    with pytest.raises(StoreUnavailable, match="away"):
        await running
    assert keeper.health().running == 0
    away.times = 0
    assert (await keeper.handle(update(1), note)).status == "committed"


async def test_a_store_that_stays_away_at_the_commit_loses_no_event(world):
    keeper = await world.keeper(deadline=2.0, handler=note)
    away = Away(world, "settle", times=1000)
    running = asyncio.create_task(keeper.handle(update(1), note))
    await world.until(running.done)
    with pytest.raises(StoreUnavailable, match="away"):
        await running
    away.times = 0
    await world.until(lambda: "committed" in world.kinds())
    assert await keeper.idle()
    assert await world.done() == [1]
    assert (await keeper.inspect((7, 7))).lease is None


async def test_an_error_that_will_not_pass_is_not_waited_out(world):
    keeper = await world.keeper(deadline=1000.0)

    async def corrupt(*_: Any) -> Any:
        raise StoreCorrupt("damaged")

    world.store.accept = corrupt
    with pytest.raises(StoreCorrupt, match="damaged"):
        await keeper.handle(update(1), note)
    assert keeper._runner.slots.taken == 0
