"""What the tests of the keeper share: events, a store of each kind on a manual clock, and patience."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

from hitherto import Flow, Keeper, MemoryStore, State, Turn
from hitherto.addresses import Address
from hitherto.outcomes import Step
from hitherto.stores.base import Store
from hitherto.stores.sqlite import SQLiteStore
from hitherto.testing import ManualClock

STORES = ("memory", "sqlite")
NOBODY = Address("nobody", "", ())


class Talk(Flow):
    hello = State(to=["middle", "bye"], initial=True)
    middle = State(to="bye")
    bye = State(to=[])


def update(number: int, chat: int = 7, user: int | None = None, **message: Any) -> dict[str, Any]:
    """A message as Telegram sends it."""
    person = {"id": chat if user is None else user, "is_bot": False, "first_name": "Ann"}
    place = {"id": chat, "type": "private" if user is None else "supergroup"}
    body = {"message_id": number, "date": 1, "chat": place, "from": person, "text": f"text {number}"}
    return {"update_id": number, "message": {**body, **message}}


async def until(condition: Callable[[], object], seconds: float = 10.0) -> None:
    """Let others run until it is true; fail when it never is."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - the condition may be anything
            await asyncio.sleep(0.001)


async def others(rounds: int = 20) -> None:
    """Let others run a little."""
    for _ in range(rounds):
        await asyncio.sleep(0)


def is_asked(store: SQLiteStore) -> bool:
    """Whether its thread owes this loop an answer."""
    engine = store._engine
    return engine is not None and any(line._outstanding for line in engine._lines.values())


class Gate:
    """A handler that notes what it gets and waits, event by event, until it is let through."""

    def __init__(self) -> None:
        self.entered: list[Any] = []
        self.left: list[Any] = []
        self._open = asyncio.Event()
        self._passes = asyncio.Semaphore(0)

    def open(self) -> None:
        """From now on nobody waits."""
        self._open.set()
        self._passes.release()

    def let(self, count: int = 1) -> None:
        """So many may pass."""
        for _ in range(count):
            self._passes.release()

    async def __call__(self, turn: Turn) -> None:
        number = turn.event["update_id"]
        self.entered.append(number)
        if not self._open.is_set():
            await self._passes.acquire()
            if self._open.is_set():
                self._passes.release()
        turn.data.setdefault("done", []).append(number)
        self.left.append(number)


async def note(turn: Turn) -> None:
    """A handler that keeps the number of its event in the data."""
    turn.update_data(done=[*turn.data.get("done", []), turn.event["update_id"]])


class World:
    """A store of one kind on a manual clock, and the keepers that work on it; all is closed in the end."""

    def __init__(self, kind: str, path: Any) -> None:
        self.clock = ManualClock()
        self.kind = kind
        self._path = path
        self._stack = AsyncExitStack()
        self._stores: list[SQLiteStore] = []
        self.store = self.a_store()
        self.steps: list[Step] = []

    def a_store(self) -> Store:
        """Another store on the same data, where the kind allows that."""
        if self.kind == "memory":
            return getattr(self, "store", None) or MemoryStore(clock=self.clock)
        store = SQLiteStore(self._path / "world.db", synchronous="NORMAL", clock=self.clock)
        self._stores.append(store)
        self._stack.push_async_callback(store.close)
        return store

    async def keeper(self, *, store: Store | None = None, **options: Any) -> Keeper:
        """One that is started, listened to and stopped in the end."""
        options = {"flows": [Talk], "lease": 30.0, "sweep": 5.0, "grace": 0.05, **options}
        keeper = Keeper("bot", store or self.store, clock=self.clock, **options)
        keeper.listen(self.steps.append)
        await keeper.start()
        self._stack.push_async_callback(keeper.stop)
        return keeper

    async def close(self) -> None:
        await self._stack.aclose()

    async def pass_time(self, seconds: float, step: float = 0.5) -> None:
        """Move the clock in small steps and let everybody act on each."""
        while seconds > 1e-9:
            self.clock.advance(min(step, seconds))
            seconds -= step
            await self.calm()

    async def until(self, condition: Callable[[], object], step: float = 0.25) -> None:
        """Let time pass until it is true; fail when it never is."""
        async with asyncio.timeout(60):
            while not condition():
                await self.pass_time(step, step)

    async def calm(self) -> None:
        """Until everything that could happen now has happened: nobody waits for a store's thread any more."""
        await others()
        async with asyncio.timeout(60):
            while busy := [store for store in self._stores if is_asked(store)]:
                for store in busy:
                    await store.load(NOBODY)
                await others()

    async def done(self, chat: int = 7) -> list[int]:
        """The numbers that the data of a conversation holds, in order."""
        return ((await self.store.get_data("bot", (chat, chat))) or {}).get("done", [])

    def kinds(self) -> list[str]:
        """The kinds of all steps so far."""
        return [step.kind for step in self.steps]


async def gathered(*calls: Awaitable[Any]) -> list[Any]:
    """All results, errors too."""
    return await asyncio.gather(*calls, return_exceptions=True)
