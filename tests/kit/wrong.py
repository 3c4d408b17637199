"""Deliberately wrong stores: how they are made, told apart and tried on a clause of the kit.

A wrong store names the clauses that have to catch it. Most are made of one small function that bends an
honest store: what an operation sees, what it is asked, or what it makes and answers.
"""

from __future__ import annotations

import asyncio
import inspect
import random
from dataclasses import dataclass
from typing import Any

from hitherto.addresses import encode
from hitherto.chatstate import ChatState
from hitherto.protocol import EMPTY, Answer
from hitherto.stores.base import Store
from hitherto.stores.memory import MemoryStore
from hitherto.testing import ManualClock, StoreContract
from hitherto.testing.kit import BOT, Talk

OPERATIONS = (
    "accept", "settle", "renew", "release", "acquire", "take_over", "force_release",
    "retry_dead", "drop_dead", "forget", "expire", "write",
)  # fmt: skip


@dataclass(frozen=True)
class Wrong:
    """A wrong store: how it is wrong, how to make one, what catches it."""

    name: str
    make: Any
    clauses: tuple[str, ...]
    what: str = "store"


WRONG: list[Wrong] = []


class Shared(MemoryStore):
    """An honest store of which several objects may see the same documents."""

    def another(self):
        """A second object."""
        twin = type(self)(clock=self.clock)
        twin._documents, twin._active = self._documents, self._active
        return twin


class Plain(Shared):
    """An honest store whose every change goes through ``transact``, as with compare and swap."""

    accept, settle, expire = Store.accept, Store.settle, Store.expire


class Bent(Plain):
    """A store with places to bend it: every operation goes through ``asked``, ``sees`` and ``makes``."""

    doing = ""

    def asked(self, doing, given, document):
        """What an operation is asked to do."""
        return given

    def sees(self, doing, document, now):
        """The document as an operation sees it."""
        return document

    def makes(self, doing, before, after, answer, now):
        """What an operation leaves and answers."""
        return after, answer

    async def transact(self, address, change):
        text = encode(address)
        kept, now = self._documents.get(text, EMPTY), self.clock()
        seen = self.sees(self.doing, kept, now)
        after, answer = change(seen, now)
        after = kept if after is seen else after
        after, answer = self.makes(self.doing, kept, after, answer, now)
        if after is not kept:
            self._put(text, after)
        return answer


def _bendable(name):
    honest = getattr(Store, name)
    signature = inspect.signature(honest)

    async def operation(self, *args, **kwargs):
        self.doing = name
        bound = signature.bind(self, *args, **kwargs)
        bound.apply_defaults()
        given = dict(bound.arguments)
        del given["self"]
        address = given.get("address")
        document = EMPTY if address is None else self._documents.get(encode(address), EMPTY)
        return await honest(self, **self.asked(name, given, document))

    return operation


for _name in OPERATIONS:
    setattr(Bent, _name, _bendable(_name))


def _register(name, make, clauses, what="store"):
    WRONG.append(Wrong(name, make, clauses, what))


def wrong(*clauses):
    """A wrong store that is a class of its own."""

    def register(cls):
        _register(cls.__name__, lambda clock: cls(clock=clock), clauses)
        return cls

    return register


def wrong_storage(*clauses):
    """A wrong FSM storage with the seven methods only."""

    def register(cls):
        _register(cls.__name__, lambda clock: cls(), clauses, "storage")
        return cls

    return register


def wrong_chat(*clauses):
    """A wrong chat state on an honest store."""

    def register(cls):
        _register(cls.__name__, lambda clock: cls(MemoryStore(clock=clock), BOT), clauses, "chat")
        return cls

    return register


def _bending(hook):
    def decorator(*clauses):
        def register(function):
            body = {hook: lambda self, *args: function(*args)}
            cls = type(function.__name__, (Bent,), body)
            _register(function.__name__, lambda clock: cls(clock=clock), clauses)
            return function

        return register

    return decorator


asked = _bending("asked")
sees = _bending("sees")
makes = _bending("makes")


def answering(*clauses):
    """A store that leaves the right thing and answers the wrong one: by operation, answer and time."""

    def register(function):
        def makes(self, doing, before, after, answer, now):
            return after, function(doing, answer, now) if isinstance(answer, Answer) else answer

        cls = type(function.__name__, (Bent,), {"makes": makes})
        _register(function.__name__, lambda clock: cls(clock=clock), clauses)
        return function

    return register


async def tried(clause: str, make: Any, what: str = "store", contract: type = StoreContract) -> None:
    """Run one clause on what *make* makes of a clock."""
    clock = ManualClock()
    made = make(clock)
    store = MemoryStore(clock=clock) if what == "chat" else made
    chat = made if what == "chat" else ChatState(store, BOT) if isinstance(store, Store) else None
    given = {
        "clock": clock,
        "store": chat.store if what == "chat" else store,
        "chat": chat,
        "talk": Talk(store, clock),
        "fresh": ChatState(MemoryStore(clock=clock), "another"),
        "another": store.another() if hasattr(store, "another") else None,
    }
    method = getattr(contract(), clause)
    wanted = inspect.signature(method).parameters
    random.seed(7)
    await asyncio.wait_for(method(**{name: given[name] for name in wanted}), 20)
