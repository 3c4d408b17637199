"""Handlers that raise, hang, are cancelled or lose their lease: nothing is stranded and nothing is lost."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from hitherto import Keeper, Queue, Record, Turn
from hitherto.addresses import Address
from hitherto.errors import DataError, KeeperClosed
from keeping import STORES, Gate, Talk, World, gathered, note, others, until, update


@pytest.fixture(params=STORES)
async def world(request, tmp_path):
    world = World(request.param, tmp_path)
    yield world
    await world.close()


class Failing:
    """A handler that fails so many times, then notes its event."""

    def __init__(self, times: int = 10_000, error: BaseException | None = None) -> None:
        self.times = times
        self.error = ValueError("my secret text") if error is None else error
        self.attempts: list[tuple[int, int]] = []

    async def __call__(self, turn: Turn) -> None:
        number = turn.event["update_id"]
        self.attempts.append((number, turn.attempt))
        turn.update_data(done=[*turn.data.get("done", []), number])
        if len(self.attempts) <= self.times:
            raise self.error


# ------------------------------------------------------------------------------------------------------ retry


async def test_a_handler_that_raises_commits_nothing_and_handle_raises_it(world):
    keeper = await world.keeper()
    failing = Failing()
    with pytest.raises(ValueError, match="my secret text") as caught:
        await keeper.handle(update(1), failing)
    assert caught.value is failing.error
    assert await world.store.get_data("bot", (7, 7)) is None
    document = await keeper.inspect((7, 7))
    assert document.lease is None
    assert [entry.attempts for entry in document.inbox] == [1]
    assert keeper.counts == {"failed": 1}


async def test_it_is_tried_again_by_the_keeper_with_back_off(world):
    keeper = await world.keeper(sweep=1000.0)
    failing = Failing(times=3)
    with pytest.raises(ValueError, match="secret"):
        await keeper.handle(update(1), failing)
    for _ in range(8):
        await world.pass_time(0.9, 0.3)
        tried = len(failing.attempts)
        await world.pass_time(0.1)
        if len(failing.attempts) > tried:
            world.steps.append(None)
    assert failing.attempts == [(1, 1), (1, 2), (1, 3), (1, 4)]
    assert await world.done() == [1]
    assert (await keeper.handle(update(1), failing)).status == "duplicate"
    assert "recovered" not in [step.kind for step in world.steps if step]


async def test_the_back_off_is_yours(world):
    asked: list[int] = []

    def backoff(attempt: int) -> float:
        asked.append(attempt)
        return 0.25

    keeper = await world.keeper(backoff=backoff, max_attempts=3, sweep=1000.0)
    failing = Failing()
    with pytest.raises(ValueError, match="secret"):
        await keeper.handle(update(1), failing)
    await world.pass_time(1, 0.25)
    assert asked == [1, 2, 3]
    assert [attempt for _, attempt in failing.attempts] == [1, 2, 3]


async def test_a_redelivery_is_tried_at_once(world):
    keeper = await world.keeper()
    failing = Failing(times=1)
    with pytest.raises(ValueError, match="secret"):
        await keeper.handle(update(1), failing)
    outcome = await keeper.handle(update(1), failing)
    assert (outcome.status, outcome.attempt) == ("committed", 2)
    assert await world.done() == [1]


async def test_what_waits_behind_a_failure_is_run_without_a_new_event(world):
    keeper, gate = await world.keeper(), asyncio.Event()

    async def failing(turn: Turn) -> None:
        await gate.wait()
        raise ValueError("no")

    running = asyncio.create_task(keeper.handle(update(1), failing))
    await until(lambda: "started" in world.kinds())
    for number in (2, 3):
        await keeper.handle(update(number), note)
    gate.set()
    with pytest.raises(ValueError, match="no"):
        await running
    assert await keeper.idle()
    assert await world.done() == [2, 3]


async def test_retry_in_order_holds_the_line(world):
    keeper = await world.keeper(retry_in_order=True, sweep=1000.0)
    failing = Failing(times=1)
    with pytest.raises(ValueError, match="secret"):
        await keeper.handle(update(1), failing)
    assert (await keeper.handle(update(2), note)).status == "queued"
    assert await world.done() == []
    await world.pass_time(1.5)
    assert await keeper.idle()
    assert await world.done() == [1, 2]


# ------------------------------------------------------------------------------------ giving up, dead letters


async def test_discard_marks_it_as_handled(world):
    keeper = await world.keeper(on_error="discard")
    with pytest.raises(ValueError, match="secret"):
        await keeper.handle(update(1), Failing())
    assert (await keeper.handle(update(1), note)).status == "duplicate"
    assert (await keeper.inspect((7, 7))).inbox == ()


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_function_of_the_turn_and_the_error_decides(world, is_async):
    asked: list[Any] = []

    def choose(turn: Turn, error: BaseException) -> str:
        asked.append((turn.event["update_id"], type(error), turn.attempt))
        return {1: "retry", 2: "discard", 3: "dead"}[turn.event["update_id"]]

    async def choose_later(turn: Turn, error: BaseException) -> str:
        await asyncio.sleep(0)
        return choose(turn, error)

    keeper = await world.keeper(on_error=choose_later if is_async else choose)
    for number in (1, 2, 3):
        with pytest.raises(ValueError, match="secret"):
            await keeper.handle(update(number, chat=number), Failing())
    assert asked == [(1, ValueError, 1), (2, ValueError, 1), (3, ValueError, 1)]
    assert [len((await keeper.inspect((n, n))).inbox) for n in (1, 2, 3)] == [1, 0, 0]
    assert [len(await keeper.dead_letters((n, n))) for n in (1, 2, 3)] == [0, 0, 1]
    assert [key async for key in keeper.dead_keys()] == [(3, 3)]


@pytest.mark.parametrize("answer", ["ignore", None, 7])
async def test_a_function_that_answers_nonsense_or_fails_means_retry(world, answer, caplog):
    keeper = await world.keeper(on_error=lambda turn, error: answer)
    with pytest.raises(ValueError, match="on_error answered"):
        await keeper.handle(update(1), Failing())
    assert [entry.attempts for entry in (await keeper.inspect((7, 7))).inbox] == [1]
    assert "on_error.failed" in caplog.text


async def test_a_back_off_that_fails_is_the_usual_one(world, caplog):
    keeper = await world.keeper(backoff=lambda attempt: 1 / 0, sweep=1000.0)
    failing = Failing(times=1)
    with pytest.raises(ValueError, match="secret"):
        await keeper.handle(update(1), failing)
    assert "backoff.failed" in caplog.text
    await world.pass_time(1.5)
    assert await world.done() == [1]


async def test_after_max_attempts_it_is_a_dead_letter(world):
    keeper = await world.keeper(max_attempts=3, backoff=lambda attempt: 1.0)
    failing = Failing()
    with pytest.raises(ValueError, match="secret"):
        await keeper.handle(update(1), failing)
    await world.pass_time(5)
    assert [attempt for _, attempt in failing.attempts] == [1, 2, 3]
    (letter,) = await keeper.dead_letters((7, 7))
    assert (letter.event_id, letter.attempts) == ("tg:1", 3)
    assert b'"text 1"' in letter.payload
    assert (await keeper.inspect((7, 7))).inbox == ()
    assert (await keeper.handle(update(1), note)).status == "duplicate"
    assert world.kinds().count("dead") == 1
    assert keeper.counts["dead"] == 1


async def test_the_traceback_of_a_dead_letter_tells_where_and_not_what(world):
    keeper = await world.keeper(on_error=lambda turn, error: "dead")
    with pytest.raises(ValueError, match="secret"):
        await keeper.handle(update(1), Failing())
    (letter,) = await keeper.dead_letters((7, 7))
    assert "secret" not in letter.error
    assert letter.error.splitlines()[-1] == "builtins.ValueError"
    assert "test_keeper_failure.py" in letter.error.splitlines()[-2]
    assert "in __call__" in letter.error.splitlines()[-2]


async def test_a_dead_letter_is_retried(world):
    keeper = await world.keeper(on_error=lambda turn, error: "dead", handler=note, sweep=1000.0)
    with pytest.raises(ValueError, match="secret"):
        await keeper.handle(update(1), Failing())
    await keeper.handle(update(2), note)
    (letter,) = await keeper.dead_letters((7, 7))
    assert await keeper.retry_dead((7, 7), letter.seq)
    await until(lambda: "recovered" in world.kinds())
    assert await keeper.idle()
    assert await world.done() == [2, 1]
    assert await keeper.dead_letters((7, 7)) == ()
    assert not await keeper.retry_dead((7, 7), letter.seq)


async def test_a_dead_letter_is_dropped(world):
    keeper = await world.keeper(on_error=lambda turn, error: "dead")
    with pytest.raises(ValueError, match="secret"):
        await keeper.handle(update(1), Failing())
    (letter,) = await keeper.dead_letters((7, 7))
    assert await keeper.drop_dead((7, 7), letter.seq)
    assert not await keeper.drop_dead((7, 7), letter.seq)
    assert await keeper.dead_letters((7, 7)) == ()
    assert (await keeper.handle(update(1), note)).status == "duplicate"


async def test_a_failing_event_does_not_strand_the_line_when_it_dies(world):
    keeper, gate = await world.keeper(max_attempts=1), Gate()
    running = asyncio.create_task(keeper.handle(update(1), gate))
    await until(lambda: gate.entered)
    for number in range(2, 6):
        await keeper.handle(update(number), Failing() if number % 2 else note)
    gate.open()
    await running
    assert await keeper.idle()
    assert await world.done() == [1, 2, 4]
    assert [letter.event_id for letter in await keeper.dead_letters((7, 7))] == ["tg:3", "tg:5"]


async def test_data_that_cannot_be_stored_is_a_failure_of_the_handler(world):
    keeper = await world.keeper()

    async def handler(turn: Turn) -> None:
        turn.data["cart"] = []
        turn.data["cart"].append(object())

    with pytest.raises(DataError, match=r'data\["cart"\]\[0\]: object'):
        await keeper.handle(update(1), handler)
    assert await world.store.get_data("bot", (7, 7)) is None
    assert [entry.attempts for entry in (await keeper.inspect((7, 7))).inbox] == [1]
    assert await keeper.idle(1)


async def test_data_that_grew_too_large_with_what_others_wrote(world):
    keeper = await world.keeper()

    async def handler(turn: Turn) -> None:
        turn.update_data(mine="x" * 600_000)
        await world.store.update_data("bot", (7, 7), {"theirs": "x" * 600_000})

    with pytest.raises(DataError, match="more than"):
        await keeper.handle(update(1), handler)
    assert set(await world.store.get_data("bot", (7, 7))) == {"theirs"}
    assert (await keeper.inspect((7, 7))).lease is None

    async def grow():
        async with keeper.open((7, 7)) as turn:
            turn.update_data(mine="x" * 300_000)
            await world.store.update_data("bot", (7, 7), {"more": "x" * 300_000})

    with pytest.raises(DataError, match="more than"):
        await grow()
    assert (await keeper.inspect((7, 7))).lease is None
    assert await keeper.idle(1)


# ----------------------------------------------------------------------------------------- time, cancellation


async def test_a_handler_that_takes_too_long(world):
    keeper = await world.keeper(handler_timeout=0.02, max_attempts=1)

    async def handler(turn: Turn) -> None:
        turn.update_data(a=1)
        await asyncio.sleep(60)

    with pytest.raises(TimeoutError):
        await keeper.handle(update(1), handler)
    assert len(await keeper.dead_letters((7, 7))) == 1
    assert await world.store.get_data("bot", (7, 7)) is None


async def test_a_caller_that_is_cancelled_gets_its_event_run_by_the_keeper(world):
    keeper, gate = await world.keeper(sweep=1000.0), Gate()
    caller = asyncio.create_task(keeper.handle(update(1), gate))
    await until(lambda: gate.entered)
    await keeper.handle(update(2), gate)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    gate.open()
    await until(lambda: gate.left == [1, 2])
    assert await keeper.idle()
    assert await world.done() == [1, 2]
    assert gate.entered == [1, 1, 2]


async def test_cancelled_inside_the_handler_only(world):
    keeper, gate = await world.keeper(), Gate()
    running = asyncio.create_task(keeper.handle(update(1), gate))
    await until(lambda: gate.entered)

    async def handler(turn: Turn) -> None:
        raise asyncio.CancelledError

    await keeper.handle(update(2), handler)
    await keeper.handle(update(3), note)
    gate.open()
    await running
    assert await keeper.idle()
    assert await world.done() == [1, 3]
    assert [letter.event_id for letter in await keeper.dead_letters((7, 7))] == ["tg:2"]


async def test_an_error_that_is_no_exception_is_raised_after_the_store_knows(world):
    class Stop(BaseException):
        pass

    keeper = await world.keeper(on_error="discard")
    with pytest.raises(Stop):
        await keeper.handle(update(1), Failing(times=1, error=Stop()))
    assert [entry.attempts for entry in (await keeper.inspect((7, 7))).inbox] == [1]
    await world.pass_time(1.5)
    assert await keeper.idle()
    assert await world.done() == [1]


# ------------------------------------------------------------------------------------------------ lost leases


async def stolen(world: World, keeper: Keeper, gate: Gate, **options: Any) -> tuple[asyncio.Task[Any], Any]:
    """A turn that runs while somebody else has taken its conversation over."""
    running = asyncio.create_task(keeper.handle(update(1), gate))
    await until(lambda: gate.entered)
    thief = await world.keeper(store=world.a_store(), handler=note, **options)
    assert await thief.force_release((7, 7))
    await until(lambda: thief.counts.get("committed"))
    return running, thief


async def test_a_stale_turn_commits_nothing(world):
    keeper, gate = await world.keeper(), Gate()
    running, _ = await stolen(world, keeper, gate)
    gate.open()
    assert (await running).status == "fenced"
    assert await world.done() == [1]
    assert keeper.counts["fenced"] == 1


async def test_a_lost_lease_is_told_to_the_turn(world):
    keeper = await world.keeper()
    turns: list[Turn] = []
    gate = asyncio.Event()

    async def handler(turn: Turn) -> None:
        turns.append(turn)
        await gate.wait()

    running = asyncio.create_task(keeper.handle(update(1), handler))
    await until(lambda: turns)
    thief = await world.keeper(handler=note)
    await thief.force_release((7, 7))
    await until(lambda: thief.counts.get("committed"))
    assert not turns[0].lost
    await world.pass_time(11)
    assert turns[0].lost
    assert world.kinds().count("lost") == 1
    await world.pass_time(11)
    assert world.kinds().count("lost") == 1
    gate.set()
    assert (await running).status == "fenced"


async def test_on_lost_cancel_interrupts_the_handler(world):
    keeper, gate = await world.keeper(on_lost="cancel"), Gate()
    running, _ = await stolen(world, keeper, gate)
    await world.pass_time(11)
    outcome = await running
    assert outcome.status == "fenced"
    assert gate.left == []
    assert running.cancelling() == 0
    assert await world.done() == [1]
    assert await keeper.idle(1)


async def test_on_lost_cancel_of_a_handler_that_minds_it(world):
    keeper = await world.keeper(on_lost="cancel", max_attempts=1)
    entered = asyncio.Event()

    async def handler(turn: Turn) -> None:
        entered.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise ValueError("mine") from None

    running = asyncio.create_task(keeper.handle(update(1), handler))
    await entered.wait()
    thief = await world.keeper(handler=note)
    await thief.force_release((7, 7))
    await until(lambda: thief.counts.get("committed"))
    await world.pass_time(11)
    with pytest.raises(ValueError, match="mine"):
        await running
    assert running.cancelling() == 0
    assert await world.done() == [1]


async def test_a_renewed_lease_is_kept_and_what_others_accepted_is_left_to_them(world):
    """This keeper has no handler of its own: what came to the other worker is given back unrun."""
    keeper, gate = await world.keeper(), Gate()
    running = asyncio.create_task(keeper.handle(update(1), gate))
    await until(lambda: gate.entered)
    other = await world.keeper(store=world.a_store(), handler=note)
    await world.pass_time(100, 2)
    assert (await other.handle(update(2), note)).status == "queued"
    assert gate.entered == [1]
    gate.open()
    assert (await running).status == "committed"
    assert await keeper.idle()
    assert await world.done() == [1]
    await world.pass_time(6)
    await until(lambda: other.counts.get("committed"))
    assert await world.done() == [1, 2]
    assert [attempt for attempt in (step.attempt for step in world.steps) if attempt > 1] == []
    assert world.kinds().count("renewed") >= 9


async def test_a_lease_that_nobody_took_may_still_commit(world):
    keeper, gate = await world.keeper(), Gate()
    running = asyncio.create_task(keeper.handle(update(1), gate))
    await until(lambda: gate.entered)
    world.clock.set(world.clock() + 1000)
    gate.open()
    assert (await running).status == "committed"


async def test_after_force_release_the_keeper_runs_it_again_as_what_it_was(world):
    keeper, gate = await world.keeper(sweep=1000.0), Gate()
    event = update(1)
    running = asyncio.create_task(keeper.handle(event, gate))
    await until(lambda: gate.entered)
    assert await keeper.force_release((7, 7))
    gate.open()
    assert (await running).status == "fenced"
    await until(lambda: gate.left == [1, 1])
    assert await keeper.idle()
    assert await world.done() == [1]


async def test_forget_erases_and_a_running_turn_cannot_bring_it_back(world):
    keeper, gate = await world.keeper(), Gate()
    async with keeper.open((7, 7)) as turn:
        turn.start(Talk)
    running = asyncio.create_task(keeper.handle(update(1), gate))
    await until(lambda: gate.entered)
    await keeper.forget((7, 7))
    gate.open()
    assert (await running).status == "fenced"
    assert await world.store.get_state("bot", (7, 7)) is None


async def test_force_release_of_nothing(world):
    keeper = await world.keeper()
    assert not await keeper.force_release((7, 7))


async def test_the_seen_window_forgets_by_count_and_by_age(world):
    keeper = await world.keeper(seen_limit=2, seen_age=100.0)
    for number in (1, 2, 3):
        await keeper.handle(update(number), note)
    assert (await keeper.handle(update(3), note)).status == "duplicate"
    assert (await keeper.handle(update(1), note)).status == "committed"
    await world.pass_time(101, 25)
    assert (await keeper.handle(update(1), note)).status == "committed"
    assert await world.done() == [1, 2, 3, 1, 1]


async def test_records_expire_when_asked(world):
    keeper = await world.keeper(record_ttl=50.0, overlap=Queue())
    await keeper.handle(update(1), note)
    await world.pass_time(40, 10)
    assert await world.done() == [1]
    await world.pass_time(20, 10)
    assert await world.store.get_state("bot", (7, 7)) is None
    await world.store.set_state("bot", (8, 8), Record(data={"a": 1}))
    await world.pass_time(1000, 100)
    assert await world.store.get_data("bot", (8, 8)) == {"a": 1}


async def test_all_at_once_some_fail_some_hang_none_is_lost(world):
    keeper = await world.keeper(max_attempts=2, backoff=lambda attempt: 0.0)

    async def handler(turn: Turn) -> None:
        number = turn.event["update_id"]
        await asyncio.sleep(0)
        if number % 3 == 0 and turn.attempt == 1:
            raise ValueError("first")
        if number % 7 == 0:
            raise ValueError("always")
        turn.update_data(done=[*turn.data.get("done", []), number])

    await gathered(*[keeper.handle(update(n, chat=n % 5 + 1), handler) for n in range(1, 101)])
    assert await keeper.idle()
    await others()
    await world.pass_time(2)
    assert await keeper.idle()
    done = [number for chat in range(1, 6) for number in await world.done(chat)]
    dead = [letter.event_id for chat in range(1, 6) for letter in await keeper.dead_letters((chat, chat))]
    assert sorted(done) == [n for n in range(1, 101) if n % 7]
    assert sorted(dead) == sorted(f"tg:{n}" for n in range(7, 101, 7))


async def test_what_nobody_here_can_run_is_not_fetched_again_and_again(world):
    """A keeper without a handler, and before its own event one that a dead worker left."""
    dead = await world.keeper(handler=note)
    address, stored = dead._stored(update(1), None, None, None)
    await world.store.accept(address, stored, Queue(), "dead", world.store.op(), dead.terms)
    await dead.stop()
    world.clock.advance(31)
    keeper = await world.keeper(sweep=1000.0)
    fetched: list[int] = []
    take_over, fetch = world.store.take_over, fetched.append

    async def counted(*arguments: Any) -> Any:
        fetch(1)
        return await take_over(*arguments)

    world.store.take_over = counted
    assert (await keeper.handle(update(2), note)).status == "queued"
    for _ in range(5):
        await world.calm()
    assert len(fetched) <= 1
    other = await world.keeper(handler=note)
    await other.sweep()
    assert await other.idle()
    assert await world.done() == [1, 2]


# ---------------------------------------------------------------------------------------- the keeper's health


async def test_health_tells_that_the_store_is_away_and_that_it_came_back(world, caplog):
    keeper = await world.keeper()
    await until(lambda: keeper.health().swept is not None)
    assert keeper.health().ok
    due, away = world.store.due, True

    async def flaky(bot: str, limit: int) -> Any:
        if away:
            raise OSError("gone")
        return await due(bot, limit)

    world.store.due = flaky
    await world.until(lambda: not keeper.health().ok)
    health = keeper.health()
    assert (health.ok, health.error) == (False, "OSError")
    assert health.failures >= 1
    assert "pump.failed error=OSError" in caplog.text
    away = False
    await world.until(lambda: keeper.health().ok)


async def test_health_tells_that_the_background_task_was_cancelled(world):
    keeper = await world.keeper()
    keeper._pumping.cancel()
    await until(keeper._pumping.done)
    assert (keeper.health().ok, keeper.health().error) == (False, "cancelled")


async def test_what_is_granted_after_the_grace_is_given_back_unrun(world):
    keeper, accept = await world.keeper(grace=0.0), world.store.accept
    asked, go_on = asyncio.Event(), asyncio.Event()

    async def slow(*arguments: Any) -> Any:
        asked.set()
        await go_on.wait()
        return await accept(*arguments)

    world.store.accept = slow
    running = asyncio.create_task(keeper.handle(update(1), note))
    await asked.wait()
    stopping = asyncio.create_task(keeper.stop())
    await others()
    go_on.set()
    with pytest.raises(KeeperClosed):
        await running
    await stopping
    document = await world.store.load(Address("bot", "", (7, 7)))
    assert document.lease is None
    assert [(entry.claimed, entry.attempts) for entry in document.inbox] == [(False, 0)]
