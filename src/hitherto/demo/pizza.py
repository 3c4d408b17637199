"""The pizza bot: an order in four steps that can be undone, cancelled, and survives everything.

It knows nothing of where it runs: ``answer(turn, say)`` reads ``turn.event["text"]`` and speaks by ``say``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from hitherto.flows import Flow, State, diagram, spec
from hitherto.turns import Turn

Say = Callable[[str], object]

SIZES: Final = ("small", "medium", "large")
TOPPINGS: Final = ("cheese", "mushrooms", "olives", "ham", "pineapple", "rocket")
HELP: Final = (
    "I take pizza orders. /order begins one, /cancel drops it, /undo takes the last step back, "
    "/where says where you are, /map draws the way."
)
_KEPT_STEPS = 10


class Order(Flow):
    """One pizza, from its size to a yes."""

    size = State(to="toppings", initial=True, label="what size?")
    toppings = State(to=["toppings", "address"], label="what on it?")
    address = State(to="confirm", label="where to?")
    confirm = State(to=["size"], final=True, label="all right?")


QUESTIONS: Final = {
    Order.size: f"What size: {', '.join(SIZES)}?",
    Order.toppings: f"What shall be on it? {', '.join(TOPPINGS)} - one by one, then 'done'.",
    Order.address: "Where shall we bring it?",
    Order.confirm: "Shall I send it off? yes or no",
}


async def answer(turn: Turn, say: Say) -> None:
    """Handle one message: a command, or the answer to the question of the state."""
    text = str(turn.event.get("text", "")).strip()
    command = _COMMANDS.get(text.split("@")[0].lower())
    if command is not None:
        command(turn, say)
    elif text.startswith("/"):
        say(f"I do not know {text.split()[0]}. {HELP}")
    elif turn.flow is not Order or turn.state is None:
        say("Say /order to begin, or /help.")
    else:
        _STEPS[turn.state](turn, text, say)


def _order(turn: Turn, say: Say) -> None:
    if turn.flow is Order:
        say("You are in the middle of an order; /cancel drops it.")
    else:
        turn.start(Order)
    _ask(turn, say)


def _cancel(turn: Turn, say: Say) -> None:
    say("The order is dropped." if turn.flow is Order else "There is nothing to cancel.")
    turn.clear()


def _undo(turn: Turn, say: Say) -> None:
    if turn.flow is not Order or not turn.data.get("past"):
        say("There is nothing to take back.")
        return
    state, before = turn.data["past"].pop()
    turn.data = {**before, "past": turn.data["past"]}
    turn.set_state(state)
    say("One step back.")
    _ask(turn, say)


def _where(turn: Turn, say: Say) -> None:
    if turn.flow is not Order or turn.state is None:
        say("You are nowhere: no order is open.")
    else:
        say(f"You are at {turn.state.name} of {spec(Order).name}. {_summary(turn.data)}")


def _map(turn: Turn, say: Say) -> None:
    say(diagram(Order, turn.state if turn.flow is Order else None))


def _size(turn: Turn, text: str, say: Say) -> None:
    if text.lower() not in SIZES:
        say(f"We have {', '.join(SIZES)}.")
        return
    _go(turn, "toppings", size=text.lower())
    _ask(turn, say)


def _toppings(turn: Turn, text: str, say: Say) -> None:
    if text.lower() in ("done", "that's all", "no"):
        _go(turn, "address")
        _ask(turn, say)
        return
    wanted = [word.strip().lower() for word in text.split(",") if word.strip()]
    unknown = [word for word in wanted if word not in TOPPINGS]
    if unknown or not wanted:
        say(f"We have {', '.join(TOPPINGS)}; say 'done' when it is enough.")
        return
    _go(turn, "toppings", toppings=[*turn.data.get("toppings", []), *wanted])
    say(f"On it: {', '.join(turn.data['toppings'])}. Anything else? Or 'done'.")


def _address(turn: Turn, text: str, say: Say) -> None:
    _go(turn, "confirm", address=text)
    say(_summary(turn.data))
    _ask(turn, say)


def _confirm(turn: Turn, text: str, say: Say) -> None:
    if text.lower() in ("yes", "y", "ok"):
        say(f"It is on its way: {_summary(turn.data)}")
        turn.clear()
    elif text.lower() in ("no", "n"):
        _go(turn, "size")
        say("Then let us begin again.")
        _ask(turn, say)
    else:
        _ask(turn, say)


def _go(turn: Turn, to: str, **learned: Any) -> None:
    """Take a step and remember where it came from, for /undo."""
    assert turn.state is not None  # noqa: S101 - only called within the flow
    before = {key: value for key, value in turn.data.items() if key != "past"}
    past = [*turn.data.get("past", []), [turn.state.name, before]][-_KEPT_STEPS:]
    turn.update_data(**learned, past=past)
    turn.transition(to)


def _ask(turn: Turn, say: Say) -> None:
    if turn.state is not None:
        say(QUESTIONS[turn.state])


def _summary(data: dict[str, Any]) -> str:
    if not data.get("size"):
        return "Nothing is chosen yet."
    toppings = ", ".join(data.get("toppings", [])) or "nothing on it yet"
    address = f", to {data['address']}" if data.get("address") else ""
    return f"A {data['size']} pizza with {toppings}{address}."


_COMMANDS: Final[dict[str, Callable[[Turn, Say], object]]] = {
    "/order": _order,
    "/cancel": _cancel,
    "/undo": _undo,
    "/where": _where,
    "/map": _map,
    "/help": lambda _, say: say(HELP),
    "/start": lambda _, say: say(HELP),
}
_STEPS: Final[dict[State, Callable[[Turn, str, Say], None]]] = {
    Order.size: _size,
    Order.toppings: _toppings,
    Order.address: _address,
    Order.confirm: _confirm,
}
