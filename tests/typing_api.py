"""What users see, as the type checkers see it; checked by mypy and pyright, never run."""

# pyright: reportUnnecessaryTypeIgnoreComment=true

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, assert_type

import hitherto
from hitherto import (
    Burst,
    ChatState,
    ChatUser,
    Concurrent,
    DataError,
    Debounce,
    Fenced,
    Flow,
    HithertoError,
    InvalidTransition,
    Keeper,
    MemoryStore,
    Outcome,
    Queue,
    Record,
    Reject,
    Snapshot,
    State,
    StoreError,
    Turn,
    UnknownFlow,
    UnknownState,
    User,
    normalize_snapshot,
    open_store,
)
from hitherto.stores import Store


@dataclass
class SignupData:
    name: str = ""
    age: int = 0


class Signup(Flow):
    ask_name = State(to="ask_age", initial=True)
    ask_age = State(to=["confirm", "ask_name"])
    confirm = State(to=[], final=True)


class Typed(Flow, name="typed", data=SignupData, version=2):
    name = State()
    data = State()


assert_type(Signup.ask_name, State)
assert_type(Signup.ask_name.name, str)
assert_type(Typed.data, State)
assert_type(f"{Signup:mermaid}", str)
assert_type(hitherto.__version__, str)


async def handler(turn: Turn) -> None:
    assert_type(turn.flow, type[Flow] | None)
    assert_type(turn.state, State | None)
    assert_type(turn.event, Any)
    assert_type(turn.attempt, int)
    assert_type(turn.lost, bool)
    assert_type(turn.data, Any)
    turn.start(Signup)
    turn.transition(Signup.ask_age)
    turn.set_state(Signup.confirm)
    turn.force(Signup, Signup.confirm)
    turn.update_data(name="Ann")
    turn.update_data({"name": "Ann"}, age=33)
    turn.clear()
    assert_type(turn.record, Record)


async def answers(turn: Turn) -> str:
    return repr(turn.state)


async def keeping() -> None:
    keeper = Keeper(
        "my_bot",
        store="sqlite:///my_bot.db",
        flows=[Signup, Typed],
        key=ChatUser(),
        overlap=Queue(limit=100),
        on_invalid_transition="raise",
    )
    async with keeper as same:
        assert_type(same, Keeper)
        assert_type(await keeper.handle({"update_id": 1}, handler), Outcome)
        assert_type(await keeper.handle({"update_id": 2}, answers), Outcome)
        async with keeper.open((7, 7)) as turn:
            assert_type(turn, Turn)


def policies(event: dict[str, Any]) -> Reject | Queue | Debounce | Burst | Concurrent | None:
    return Reject() if event else None


def other_ways() -> None:
    Keeper("bot", MemoryStore(), [Signup], key=lambda event: (event["room"],), overlap=policies)
    Keeper("bot", open_store("memory://"), key=User(), overlap=Burst(window=0.5))
    Keeper("bot", overlap=Debounce(window=1.0), on_invalid_transition=lambda turn, from_, to: None)


async def contracts(store: Store) -> None:
    assert_type(await store.get_state("bot", (1, 2)), Record | None)
    assert_type(await store.get_data("bot", (1, 2)), dict[str, Any] | None)
    assert_type(await store.update_data("bot", (1, 2), {"a": 1}), dict[str, Any])
    chat = ChatState(store, "bot")
    assert_type(await chat.is_subscribed("thread"), bool)
    assert_type(await chat.claim(("slack", "42"), 1000), bool)
    assert_type(await chat.snapshot(), Snapshot)
    assert_type(normalize_snapshot({"subscriptions": ["a"]}), Snapshot)


def errors() -> tuple[type[HithertoError], ...]:
    return InvalidTransition, UnknownFlow, UnknownState, StoreError, Fenced, DataError


def refused() -> None:
    """Every line here is an error that a checker has to find; an unneeded ignore is an error too."""
    Keeper()  # type: ignore[call-arg]
    Keeper("bot", on_invalid_transition="shout")  # type: ignore[arg-type]
    Keeper("bot", overlap=ChatUser())  # type: ignore[arg-type]
    Queue(limit="many")  # type: ignore[arg-type]
    Queue(on_full="explode")  # type: ignore[arg-type]
