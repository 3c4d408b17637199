"""Cancelled at every ``await`` of the package, one after the other, nothing is lost, kept back or mixed up.

Each scenario runs once for every point at which one of its tasks is suspended inside the package, and that
task is cancelled there. After each: every accepted event is in the data exactly once, no lease is left, all
slots are free, no task is left over, and each conversation has only heard its own.
"""

from __future__ import annotations

import asyncio
import random
import warnings
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from cancelling import TIMES, Cancelled, Watch, at_every_point, never_cancelled, watched
from hitherto import Burst, ChatState, Debounce, Fenced, Keeper, MemoryStore, Queue, Record, Turn
from hitherto.addresses import Address
from hitherto.errors import HithertoError, StoreUnavailable, StoreWarning
from hitherto.holding import Holder
from hitherto.protocol import Terms
from hitherto.records import from_record
from hitherto.remembered import Remembered
from hitherto.runner import Runner
from hitherto.slots import Slots
from hitherto.stores.adapted import AdaptedStore
from hitherto.stores.base import Store
from hitherto.stores.sqlite import SQLiteStore
from hitherto.stores.sqlite.line import Job
from hitherto.testing import ManualClock
from keeping import Talk, update
from toy_store import ToyStore

CHATS = (7, 8)
CORE = ("keeper.py", "runner.py", "pump.py", "slots.py", "patience.py", "leases.py", "failures.py")
LONG = 60.0


async def pause() -> None:
    """What a network does: somebody else's turn first."""
    loop = asyncio.get_running_loop()
    future = loop.create_future()
    loop.call_soon(lambda: future.done() or future.set_result(None))
    await future


class FarStore(ToyStore):
    """The five primitives as over a network, there and back: who is cancelled meanwhile misses the reply."""

    def __init__(self, *, failing: int = 0, **options: Any) -> None:
        super().__init__(**options)
        self.rows = {}
        self.failing, self.calls = failing, 0

    async def open(self):
        await pause()
        await super().open()

    async def load(self, address):
        await self._travel()
        document = await super().load(address)
        await pause()
        return document

    async def swap(self, address, expected_version, document):
        await self._travel()
        swapped = await super().swap(address, expected_version, document)
        await pause()
        return swapped

    async def scan(self, bot, kind):
        await self._travel()
        async for address in super().scan(bot, kind):
            await pause()
            yield address

    async def close(self):
        await pause()

    async def _travel(self):
        await pause()
        self.calls += 1
        if self.failing and self.calls % self.failing == 0:
            raise StoreUnavailable("away for a moment")


class FarStorage:
    """Somebody's own storage, with the seven methods and nothing else."""

    def __init__(self) -> None:
        self.records: dict[Any, Record] = {}

    async def init(self, bot, **options):
        await pause()

    async def get_state(self, bot, key):
        await pause()
        return self.records.get((bot, key))

    async def set_state(self, bot, key, record):
        await pause()
        self.records[bot, key] = record
        await pause()

    async def get_data(self, bot, key):
        record = await self.get_state(bot, key)
        return None if record is None else record.data

    async def set_data(self, bot, key, data):
        await self.set_state(bot, key, Record(None, None, data))

    async def update_data(self, bot, key, new):
        data = {**(await self.get_data(bot, key) or {}), **new}
        await self.set_data(bot, key, data)
        return data

    async def clear(self, bot, key):
        await pause()
        self.records.pop((bot, key), None)


def a_store(kind: str, clock: ManualClock) -> Store:
    if kind == "sqlite":
        return SQLiteStore(":memory:", clock=clock)
    if kind == "adapted":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", StoreWarning)
            return AdaptedStore(FarStorage(), clock=clock)
    if kind == "troubled":
        return FarStore(clock=clock, failing=3)
    return FarStore(clock=clock) if kind == "far" else MemoryStore(clock=clock)


class Stage:
    """One run of a scenario: a store, keepers on it, the tasks of their callers, and a clock."""

    def __init__(self, kind: str, watch: Watch) -> None:
        random.seed(7)  # the jitter of who tries again
        self.kind, self.watch = kind, watch
        self.clock = ManualClock()
        self.store = a_store(kind, self.clock)
        self.keepers: list[Keeper] = []
        self.tasks: dict[asyncio.Task[Any], tuple[int, int] | None] = {}
        self.heard: list[tuple[int, str]] = []
        self.certain: set[tuple[int, int]] = set()

    # ------------------------------------------------------------------------------- what scenarios use

    def keeper(self, **options: Any) -> Keeper:
        """One that waits for nothing long, except for a dead lease."""
        options = {
            "handler": self.note, "lease": LONG, "sweep": 2.0, "grace": 0.5, "deadline": 12.0,
            "backoff": lambda attempt: 0.5, "max_attempts": 50, **options,
        }  # fmt: skip
        keeper = Keeper("bot", self.store, [Talk], clock=self.clock, **options)
        self.keepers.append(keeper)
        return keeper

    async def started(self, **options: Any) -> Keeper:
        """A keeper that lives until the judge has come."""
        keeper = self.keeper(**options)
        await keeper.start()
        return keeper

    async def note(self, turn: Turn) -> None:
        """Take its time, fail as often as its event says, keep the event's number and its words."""
        event = turn.event
        assert turn.key == (event["message"]["chat"]["id"],) * 2
        heard = (turn.key[0], event["message"]["text"])
        first = heard not in self.heard
        self.heard.append(heard)
        await self.clock.sleep(event.get("takes", 0) if first else 0)
        if turn.attempt <= event.get("fails", 0):
            raise ValueError("as it was told to")
        numbers = [folded["update_id"] for folded in (*turn.skipped, event)]
        turn.update_data(
            done=[*turn.data.get("done", []), *numbers],
            words=[*turn.data.get("words", []), event["message"]["text"]],
        )

    def go(self, work: Coroutine[Any, Any, Any], event: tuple[int, int] | None = None) -> asyncio.Task[Any]:
        """Let somebody do it in a task of his own."""
        task = asyncio.get_running_loop().create_task(work)
        self.tasks[task] = event
        return task

    def handle(self, keeper: Keeper, number: int, chat: int = 7, **extra: Any) -> asyncio.Task[Any]:
        """A caller with an event."""
        return self.go(self.called(keeper.handle, number, chat, extra), (chat, number))

    def accept(self, keeper: Keeper, number: int, chat: int = 7, **extra: Any) -> asyncio.Task[Any]:
        """A caller that only wants it kept."""
        return self.go(self.called(keeper.accept, number, chat, extra), (chat, number))

    async def called(self, verb: Callable[..., Awaitable[Any]], number: int, chat: int, extra: Any) -> None:
        outcome = await verb({**update(number, chat, text=f"needle {chat} {number}"), **extra})
        assert (outcome.event_id, outcome.key) == (f"tg:{number}", (chat, chat))
        if outcome.accepted:
            self.certain.add((chat, number))

    # --------------------------------------------------------------------------------- how it is played

    async def calm(self) -> None:
        """Until nobody has anything to do at this moment."""
        for _ in range(12):
            await asyncio.sleep(0)
        if isinstance(self.store, SQLiteStore) and not self.store._closed:
            for _ in range(2):
                await self.store.load(Address("nobody", "", ()))
                await asyncio.sleep(0)

    async def pass_time(self, seconds: float, until: Callable[[], bool] = lambda: False) -> None:
        while seconds > 0 and not until():
            await self.calm()
            self.clock.advance(0.25)
            seconds -= 0.25
        await self.calm()

    def are_done(self) -> bool:
        return all(task.done() for task in self.tasks)

    async def play(self, scenario: Callable[[Stage], Coroutine[Any, Any, None]]) -> None:
        with watched(self.watch):
            self.go(scenario(self))
            await self.pass_time(200, self.are_done)
            for _ in range(2000):  # the grace of a stop is real time
                if self.are_done():
                    break
                await asyncio.sleep(0.005)
            assert self.are_done(), "somebody waits for ever"
            for task in self.tasks:
                if not task.cancelled() and (error := task.exception()) is not None:
                    assert isinstance(error, ValueError | HithertoError | TimeoutError), error
            self.watch.active = False
            self.store.failing = 0
            await self.judge()

    # ----------------------------------------------------------------------------------- how it is judged

    async def judge(self) -> None:
        alive = [keeper for keeper in self.keepers if keeper.running and not keeper._pumping.done()]
        for keeper in alive:
            await self.pass_time(40, lambda keeper=keeper: not keeper._runner.slots.taken)
            await self.pass_time(4.5)
        documents = [await self.document(chat) for chat in CHATS]
        gone = self.watch.who is not None and self.watch.who.get_coro().__qualname__ == "Runner._instead"
        if (
            alive and alive == self.keepers and not gone
        ):  # nobody goes on for who went on for somebody: there the lease has to end
            for document in documents:
                assert document.lease is None, "a lease is left although somebody lives who could free it"
                assert not document.inbox, "an event waits although somebody lives who could run it"
        for keeper in self.keepers:
            runner = keeper._runner
            await self.driven(keeper.stop())
            assert (runner.slots.taken, len(runner.leases), len(runner._tasks)) == (0, 0, 0)
            assert not runner.slots._waiting
            assert not runner._freed
            assert not runner.remembered._coming
        for document in [await self.document(chat) for chat in CHATS]:
            assert document.lease is None or document.lease.deadline <= self.clock() + LONG
        await self.recover()
        for chat in CHATS:
            await self.judge_conversation(chat)
        await self.driven(self.store.close())
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, f"tasks are left: {left}"

    async def recover(self) -> None:
        """Another worker comes, as long after as a lease is long."""
        self.clock.advance(LONG)
        keeper = self.keeper()
        await self.driven(keeper.start())
        await self.pass_time(3.0)
        await self.driven(keeper.stop())

    async def driven(self, work: Awaitable[Any]) -> Any:
        task = asyncio.ensure_future(work)
        await self.pass_time(30, task.done)
        return await task

    async def document(self, chat: int) -> Any:
        return await self.driven(self.store.load(Address("bot", "", (chat, chat))))

    async def judge_conversation(self, chat: int) -> None:
        document = await self.document(chat)
        assert not document.inbox, "an event was left behind"
        assert document.lease is None
        data = (await self.driven(self.store.get_data("bot", (chat, chat)))) or {}
        done = data.get("done", [])
        assert len(done) + len(document.dead) == document.next_seq - 1 - self.dropped(), "one was lost"
        assert set(Counter(done).values()) <= {1}, f"one took effect twice: {done}"
        certain = {number for where, number in self.certain if where == chat}
        assert certain <= set(done) | {int(letter.event_id[3:]) for letter in document.dead}
        assert all(f"needle {chat} " in words for words in data.get("words", []))
        assert all(f"needle {where} " in words for where, words in self.heard)

    def dropped(self) -> int:
        return sum(keeper.counts["given up"] for keeper in self.keepers)


# ------------------------------------------------------------------------------------------------- scenarios


async def one_event(stage: Stage) -> None:
    keeper = await stage.started()
    await asyncio.wait([stage.handle(keeper, 1)])
    await keeper.idle()


async def a_queue(stage: Stage) -> None:
    """Three in one conversation, one in another, two that share a name."""
    keeper = await stage.started(handler=stage.note)
    stage.handle(keeper, 1, takes=1)
    stage.handle(keeper, 4, chat=8, takes=0.5)
    await stage.clock.sleep(0.25)
    stage.handle(keeper, 2)
    stage.accept(keeper, 3)
    stage.accept(keeper, 3)
    await stage.clock.sleep(2)
    await keeper.idle()


async def handlers_of_their_own(stage: Stage) -> None:
    """The keeper has no handler: only who came with one can run what waits."""
    keeper = await stage.started(handler=None)

    async def call(number: int, **extra: Any) -> None:
        event = {**update(number, text=f"needle 7 {number}"), **extra}
        await keeper.handle(event, stage.note)
        stage.certain.add((7, number))

    stage.go(call(1, takes=1))
    await stage.clock.sleep(0.25)
    for number in (2, 3):
        stage.go(call(number))
    await stage.clock.sleep(3)
    await keeper.idle()


async def failures_and_retries(stage: Stage) -> None:
    async def choose(turn: Turn, error: BaseException) -> str:
        await stage.clock.sleep(0.1)
        return "retry"

    keeper = await stage.started(on_error=choose, handler_timeout=1.0)
    stage.handle(keeper, 1, fails=2, takes=0.5)
    await stage.clock.sleep(0.25)
    stage.handle(keeper, 2)
    await stage.clock.sleep(5)
    await keeper.idle()


async def held_open(stage: Stage) -> None:
    """Jobs that want the conversation that an event has, one of them not for ever."""

    async def job(keeper: Keeper, number: int, timeout: float | None = None) -> None:
        async with keeper.open((7, 7), timeout=timeout) as turn:
            turn.update_data(**{f"job{number}": True})

    keeper = await stage.started()
    stage.handle(keeper, 1, takes=0.5)
    await stage.clock.sleep(0.25)
    stage.go(job(keeper, 1))
    stage.go(job(keeper, 2, timeout=50))
    await stage.clock.sleep(1)
    stage.handle(keeper, 2)
    await keeper.idle()


async def few_slots(stage: Stage) -> None:
    keeper = await stage.started(max_turns=1)
    for number in (1, 2):
        stage.handle(keeper, number, takes=0.25)
    stage.accept(keeper, 3, chat=8)
    await stage.clock.sleep(3)
    await keeper.idle()


async def leases_renewed_and_lost(stage: Stage) -> None:
    """A long handler, whose lease is renewed; then somebody takes it away."""
    keeper = await stage.started(lease=3.0, on_lost="cancel")
    stage.handle(keeper, 1, takes=2)
    await stage.clock.sleep(1.5)
    stage.go(keeper.sweep())
    await stage.clock.sleep(1)
    stage.handle(keeper, 2, takes=4)
    await stage.clock.sleep(0.5)
    await keeper.force_release((7, 7))
    await stage.clock.sleep(10)
    await keeper.idle()


async def died(stage: Stage) -> None:
    """A worker died with a turn running and an event waiting, in each conversation."""
    await stage.store.open()
    dead = Keeper("bot", stage.store, [Talk], handler=stage.note, clock=stage.clock, lease=2.0)
    dead._phase = "running"
    for chat in CHATS:
        for number in (chat * 10, chat * 10 + 1):
            event = update(number, chat, text=f"needle {chat} {number}")
            address, stored = dead._stored(event, None, None, None)
            await stage.store.accept(address, stored, Queue(), "dead", None, dead.terms)
            stage.certain.add((chat, number))


async def left_behind(stage: Stage) -> None:
    """What a dead worker left is recovered without a new event."""
    await died(stage)
    keeper = await stage.started()
    await stage.clock.sleep(5)
    await keeper.sweep()
    await keeper.idle()


async def left_behind_for_others(stage: Stage) -> None:
    """Who comes first has a handler for his own event only, and gives back what he is handed."""
    await died(stage)
    keeper = await stage.started(handler=None)
    await stage.clock.sleep(5)
    stage.go(stage.called(partial(keeper.handle, handler=stage.note), 1, 7, {}))
    await stage.clock.sleep(1)
    other = await stage.started(sweep=1.5)
    await stage.clock.sleep(5)
    await other.idle()


async def gone_already(stage: Stage) -> None:
    """Callers that went away after so many rounds: what goes on in their place is cancelled too."""
    keeper = await stage.started()
    for number in range(1, 9):
        caller = stage.handle(keeper, number, chat=CHATS[number % 2])
        for _ in range(number):
            await asyncio.sleep(0)
        caller.cancel()
    await stage.clock.sleep(3)
    await keeper.idle()


async def blocks_that_raise(stage: Stage) -> None:
    """Blocks that end badly, with one slot for them and the event behind them."""

    async def job(keeper: Keeper) -> None:
        async with keeper.open((7, 7)) as turn:
            turn.update_data(lost=True)
            await stage.clock.sleep(0.5)
            raise ValueError

    keeper = await stage.started(max_turns=1)
    stage.go(job(keeper))
    await stage.clock.sleep(0.25)
    stage.go(job(keeper)).add_done_callback(lambda _: None)
    stage.handle(keeper, 1)
    await stage.clock.sleep(3)
    await keeper.idle()


async def ended_by_force(stage: Stage) -> None:
    """What runs a queue is cancelled, as when a loop ends; the keeper is stopped while an event arrives."""
    keeper = await stage.started()
    stage.handle(keeper, 1, takes=0.5)
    await stage.clock.sleep(0.25)
    for number in (2, 3, 4):
        stage.handle(keeper, number, takes=0.5)
    await stage.clock.sleep(0.5)
    for task in tuple(keeper._runner._tasks):
        if task.get_coro().has_begun:  # one that has not can tidy nothing up
            task.cancel()
    await stage.clock.sleep(0.25)
    stage.handle(keeper, 5, chat=8)
    await asyncio.sleep(0)
    with suppress(asyncio.CancelledError):
        await keeper.stop(0)


async def in_a_block(stage: Stage) -> None:
    """As a program is written: started and stopped by the block."""
    async with stage.keeper() as keeper:
        await asyncio.wait([stage.handle(keeper, 1, takes=0.25)])


async def stubborn(stage: Stage) -> None:
    """A handler that does not end when it is told to, in a keeper that opened its store itself."""

    async def handler(turn: Turn) -> None:
        try:
            await stage.clock.sleep(30)
        except asyncio.CancelledError:
            await stage.clock.sleep(0.1)
            raise
        await stage.note(turn)

    keeper = await stage.started(grace=0.0)
    keeper._owned = isinstance(stage.store, FarStore)
    stage.go(keeper.handle(update(1, text="needle 7 1"), handler))
    await stage.clock.sleep(0.25)
    with suppress(asyncio.CancelledError):
        await keeper.stop()


async def stopped_meanwhile(stage: Stage) -> None:
    """It is stopped with a turn that ends in time, one that does not, and one that waits; twice."""
    keeper = stage.keeper(grace=1.0)
    await keeper.start()
    stage.handle(keeper, 1, takes=0.5)
    stage.handle(keeper, 2, chat=8, takes=30)
    await stage.clock.sleep(0.25)
    stage.handle(keeper, 3, chat=8)
    await stage.clock.sleep(0.25)
    stopping = stage.go(keeper.stop(0.02))
    stage.go(keeper.stop())
    with suppress(asyncio.CancelledError):
        await stopping
    assert not keeper.running


async def folded(stage: Stage) -> None:
    keeper = await stage.started(overlap=lambda event: Burst(event["window"]))
    stage.handle(keeper, 1, takes=1, window=0)
    await stage.clock.sleep(0.25)
    for number in (2, 3):
        stage.handle(keeper, number, window=1)
    await stage.clock.sleep(3)
    await keeper.idle()


async def debounced(stage: Stage) -> None:
    keeper = await stage.started(overlap=Debounce(0.5))
    stage.handle(keeper, 1, takes=1)
    await stage.clock.sleep(0.25)
    stage.handle(keeper, 2)
    await stage.clock.sleep(3)
    await keeper.idle()


async def without_a_key(stage: Stage) -> None:
    async def handler(turn: Turn) -> None:
        await stage.clock.sleep(0.5)

    keeper = await stage.started()
    stage.go(keeper.handle({"update_id": 1}, handler))
    await keeper.accept({"update_id": 2}, handler)
    await stage.clock.sleep(1)
    await keeper.idle()


async def dead_letters(stage: Stage) -> None:
    """Given up, listed, put back in line, and everything else that looks after conversations."""
    keeper = await stage.started(max_attempts=1)
    await asyncio.wait([stage.handle(keeper, 1, fails=1), stage.handle(keeper, 2, chat=8, fails=1)])
    keys = [key async for key in keeper.dead_keys()]
    for _ in range(3):
        letters = await keeper.dead_letters((7, 7))
    if keys and letters:
        await keeper.retry_dead((7, 7), letters[0].seq)
    await stage.clock.sleep(1)
    await keeper.idle()
    await keeper.force_release((8, 8))
    await keeper.drop_dead((9, 9), 1)
    await keeper.forget((9, 9))


async def told_in_time(stage: Stage) -> None:
    """The loop's owner asks for one thing with a deadline of its own."""
    keeper = await stage.started()
    with suppress(TimeoutError):
        async with asyncio.timeout(30):
            await asyncio.wait([stage.handle(keeper, 1, takes=0.25)])
    with suppress(Fenced):
        async with keeper.open((7, 7)) as turn:
            turn.update_data(more=1)
    await keeper.idle()


SCENARIOS = [
    one_event, a_queue, handlers_of_their_own, failures_and_retries, held_open, few_slots,
    leases_renewed_and_lost, left_behind, left_behind_for_others, stopped_meanwhile, stubborn,
    ended_by_force, in_a_block, gone_already, blocks_that_raise, folded, debounced, without_a_key,
    dead_letters, told_in_time,
]  # fmt: skip
NEVER_SUSPENDED = {
    # entering and leaving a timeout does not wait
    "runner.py _within: async with asyncio.timeout(seconds):",
    "runner.py _acquired: async with asyncio.timeout(timeout):",
    # the time of these tests is moved by hand
    "patience.py sleep: await asyncio.sleep(seconds)",
}
KINDS = ("memory", "sqlite", "far", "troubled", "adapted")
EXPLORED: dict[tuple[str, str], Cancelled] = {}


async def explored(scenario: Any, kind: str) -> Cancelled:
    """Cancel a scenario at every point; once is enough."""
    name = (scenario.__name__, kind)
    if name not in EXPLORED:
        times = TIMES[:1] if kind == "troubled" else TIMES
        EXPLORED[name] = await at_every_point(lambda watch: Stage(kind, watch).play(scenario), times)
    return EXPLORED[name]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
async def test_cancelled_anywhere_nothing_is_lost(scenario, kind):
    assert (await explored(scenario, kind)).points >= 4


@pytest.mark.timeout(600)
async def test_every_await_of_the_turn_was_cancelled():
    """Found in the source on one side and by watching on the other: none is missing."""
    found = [await explored(scenario, kind) for scenario in SCENARIOS for kind in KINDS]
    places = set().union(*[one.places for one in found])
    missed = set().union(*[never_cancelled(module, places) for module in CORE])
    print(f"{sum(one.points for one in found)} points cancelled, at {len(places)} lines; missed: {missed}")
    assert missed == NEVER_SUSPENDED


# ------------------------------------------------------------------------------- the harness is no ornament


async def loses_the_call(self, trouble, call, orphaned):
    """A runner that lets a cancelled caller take its slot, and what it was granted, along."""
    if isinstance(trouble, Exception):
        return await self.patience.again(call, trouble)
    raise trouble


async def forgets_the_turn(self, running, error):
    """A runner that does not tell the store of a cancelled handler."""
    if isinstance(error, asyncio.CancelledError):
        raise error
    return await _FAILED(self, running, error)


_FAILED = Runner._failed
SPOILED = [
    (Runner, "_insist", loses_the_call, one_event, "far"),
    (Runner, "_failed", forgets_the_turn, one_event, "memory"),
    (Slots, "_left", lambda self, place: None, few_slots, "memory"),
    (Job, "again", lambda self: self.line.loop.create_future(), a_queue, "sqlite"),
    (Runner, "_unwanted", lambda self, address, answer: self.slots.free(), held_open, "far"),
    (Remembered, "put", lambda *_: None, handlers_of_their_own, "memory"),
]


@pytest.mark.parametrize(
    ("owner", "name", "spoiled", "scenario", "kind"),
    SPOILED,
    ids=[f"{one[0].__name__}.{one[1]}" for one in SPOILED],
)
async def test_a_spoiled_one_is_caught(monkeypatch, owner, name, spoiled, scenario, kind):
    monkeypatch.setattr(owner, name, spoiled)
    with pytest.raises(AssertionError, match="cancelled"):
        await at_every_point(lambda watch: Stage(kind, watch).play(scenario))
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


# -------------------------------------------------------------------------------------------- chat state


STEPS: list[Callable[[ChatState], Awaitable[Any]]] = [
    lambda chat: chat.subscribe("a"),
    lambda chat: chat.put_thread_state("t", {"x": 1}),
    lambda chat: chat.update_thread_state("t", {"y": 2}),
    lambda chat: chat.put_channel_state("t", {"z": 3}),
    lambda chat: chat.mark_seen(("adapter", 1)),
    lambda chat: chat.claim(("adapter", 2)),
    lambda chat: chat.lock("l", "ann"),
    lambda chat: chat.lock("l", "ben", "queue"),
    lambda chat: chat.release_lock("l", "ann"),
    lambda chat: chat.unsubscribe("a"),
]


@pytest.mark.parametrize("kind", ["sqlite", "far"])
async def test_chat_state_cancelled_anywhere_is_as_before_or_as_after(kind):
    """Every operation is one step, done or not; and a restore cut off is mended by another."""
    wanted = []
    async with MemoryStore() as store:
        chat = ChatState(store, "bot")
        wanted.append(await chat.snapshot())
        for step in STEPS:
            await step(chat)
            wanted.append(await chat.snapshot())

    async def run(watch: Watch) -> None:
        done = 0
        async with a_store(kind, ManualClock()) as store:
            chat = ChatState(store, "bot")

            async def all_steps() -> None:
                nonlocal done
                for step in STEPS:
                    await step(chat)
                    done += 1
                await chat.restore(await chat.snapshot())

            with watched(watch):
                task = asyncio.get_running_loop().create_task(all_steps())
                await asyncio.wait([task])
                watch.active = False
            assert await chat.snapshot() in wanted[done : done + 2]
            await chat.restore(wanted[5])
            assert await chat.snapshot() == wanted[5]
            assert asyncio.all_tasks() == {asyncio.current_task()}

    assert (await at_every_point(run)).points > 20


# ------------------------------------------------------------------------------- steps without a turn


@pytest.mark.parametrize("kind", ["sqlite", "far"])
async def test_a_conversation_held_for_a_step_is_free_again_wherever_it_was_cancelled(kind):
    async def run(watch: Watch) -> None:
        store = a_store(kind, ManualClock())
        holder = Holder(store, "bot", Terms(lease=LONG), deadline=5.0)
        address = Address("bot", "", (7, 7))

        async def step(number: int) -> None:
            unit = await holder.take(address)
            await pause()
            before = () if unit.record is None else tuple(unit.record.fields)
            unit.record = from_record(Record(None, None, dict.fromkeys([*before, f"step{number}"], 1)))
            await holder.settle(unit, unit.patch())

        with watched(watch):
            tasks = [asyncio.get_running_loop().create_task(step(number)) for number in range(3)]
            await asyncio.wait(tasks)
            watch.active = False
            async with asyncio.timeout(10):
                await holder.drained(5)
                await step(9)
                await holder.drained(5)
        kept = {f"step{number}" for number, task in enumerate(tasks) if not task.cancelled()}
        assert kept < set((await store.get_data("bot", (7, 7))) or {})
        assert (await store.load(address)).lease is None
        assert not holder.lines.waiting
        assert not holder.units
        await store.close()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    assert (await at_every_point(run)).points > 10
