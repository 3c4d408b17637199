"""The conformance kit on any store that a URL names, with a report: ``hitherto check-store``.

It needs no test runner of its own: a clause is a coroutine, and the machines run themselves. Everything is
done under bots with a prefix of their own, so that a store in use is not disturbed, and erased afterwards.
"""

from __future__ import annotations

import asyncio
import inspect
import secrets
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Final

import msgspec
from hypothesis import settings as Settings  # noqa: N812

from hitherto.chatstate import ChatState
from hitherto.stores import Store, open_store
from hitherto.stores.memory import MemoryStore
from hitherto.testing.clock import ManualClock
from hitherto.testing.kit import ABILITIES, BOT, Talk, clauses
from hitherto.testing.machine import PATIENT, FSMStorageMachine, StoreMachine, machine_for
from hitherto.testing.scoped import Scoped
from hitherto.testing.stores import StoreContract

_LONGEST: Final = 60.0
_MACHINES: Final = {"turns in lockstep": StoreMachine, "records in lockstep": FSMStorageMachine}


class Checked(msgspec.Struct, frozen=True):
    """One clause, tried: *error* is empty when the store keeps it."""

    clause: str
    sentence: str
    error: str = ""
    seconds: float = 0.0

    @property
    def kept(self) -> bool:
        """Whether the store keeps it."""
        return not self.error


def contract_of(url: str) -> type[StoreContract]:
    """The kit with the abilities that the store of this URL declares."""
    declared = open_store(url).abilities
    return type("Checked", (StoreContract,), {"abilities": frozenset(declared & ABILITIES.keys())})


def names_of(contract: type[StoreContract], only: str = "") -> dict[str, str]:
    """The clauses to try, with their sentences."""
    return {
        name: sentence
        for name, sentence in clauses(contract).items()
        if only in name and name != "test_the_contract_is_whole"
    }


def check(url: str, *, only: str = "", examples: int = 50) -> Iterator[Checked]:
    """Try every clause whose name holds *only*, then the machines with so many *examples* (0: without)."""
    contract, run = contract_of(url), f"hitherto-check-{secrets.token_hex(4)}"
    for number, (name, sentence) in enumerate(names_of(contract, only).items()):
        yield _timed(name, sentence, partial(_clause, url, contract, name, run, number))
    if examples and not only:
        for name, machine in _MACHINES.items():
            sentence = f"No difference to the protocol in {examples} examples of 50 steps."
            yield _timed(name, sentence, partial(_machine, url, machine, f"{run}-{name[:4]}-", examples))


def failures(found: Iterable[Checked]) -> list[Checked]:
    """Those that were not kept."""
    return [one for one in found if not one.kept]


def _timed(name: str, sentence: str, work: Callable[[], None]) -> Checked:
    began = time.perf_counter()
    try:
        work()
    except Exception as error:  # noqa: BLE001 - whatever the store does wrong is the finding
        told = "".join(traceback.format_exception(error, limit=-4)).strip()
        return Checked(name, sentence, told, time.perf_counter() - began)
    return Checked(name, sentence, "", time.perf_counter() - began)


def _clause(url: str, contract: type[StoreContract], name: str, run: str, number: int) -> None:
    asyncio.run(asyncio.wait_for(_tried(url, getattr(contract(), name), f"{run}-{number}-"), _LONGEST))


async def _tried(url: str, clause: Callable[..., Any], scope: str) -> None:
    clock = ManualClock()
    wanted = inspect.signature(clause).parameters
    store = _scoped(url, scope, clock)
    another = _scoped(url, scope, clock) if "another" in wanted else store
    given: dict[str, Any] = {
        "clock": clock, "store": store, "another": another, "talk": Talk(store, clock),
        "chat": ChatState(store, BOT), "fresh": ChatState(MemoryStore(clock=clock), "another"),
    }  # fmt: skip
    await store.open()
    try:
        if another is not store:
            await another.open()
        answer = clause(**{name: given[name] for name in wanted})
        if inspect.isawaitable(answer):
            await answer
    finally:
        await store.open()
        await store.erase()
        await store.close()
        if another is not store:
            await another.close()


def _scoped(url: str, scope: str, clock: ManualClock) -> Scoped:
    store: Store = open_store(url)
    store.go_by(clock)
    return Scoped(store, scope)


def _machine(url: str, machine: Any, scope: str, examples: int) -> None:
    settings = Settings(PATIENT, max_examples=examples, database=None, print_blob=False)
    lockstep: Any = machine_for(
        lambda clock: MemoryStore(clock=clock),
        lambda clock: _scoped(url, scope, clock),
        settings=settings, machine=machine,
    )  # fmt: skip
    lockstep.setUpClass()
    try:
        lockstep("test_lockstep").test_lockstep()
    finally:
        for store in lockstep.opened:
            if isinstance(store, Scoped):
                lockstep.runner.run(store.erase())
        lockstep.tearDownClass()
