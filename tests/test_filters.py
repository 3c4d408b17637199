"""Filters: in this flow, in this state, in any flow, no flow, data key equals value."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from hitherto import Flow, State, Turn
from hitherto.codec import encode
from hitherto.filters import DataIs, InFlow, InState, NoFlow
from hitherto.flows import FlowRegistry
from hitherto.records import NO_PATCH, Stored
from hitherto.turns import Rules


@dataclass
class Person:
    name: str = ""
    age: int = 0


class Signup(Flow, data=Person):
    ask = State(to="done", initial=True)
    done = State(to=[])


class Order(Flow):
    ask = State(to="done", initial=True)
    done = State(to=[])


RULES = Rules(FlowRegistry([Signup, Order]))
NOWHERE = Turn(RULES, "bot", 1, None)
IN_SIGNUP = Turn(RULES, "bot", 1, Stored("signup", "ask", 1, encode({"name": "Ann", "age": 3})))
IN_ORDER = Turn(RULES, "bot", 1, Stored("order", "done", 1, encode({"size": "large", "count": 0})))
STATELESS = Turn(RULES, "bot", 1, Stored("order", None, 1, {}))


@pytest.mark.parametrize(
    ("question", "yes"),
    [
        (InFlow(), [IN_SIGNUP, IN_ORDER, STATELESS]),
        (InFlow(Signup), [IN_SIGNUP]),
        (InFlow(Signup, Order), [IN_SIGNUP, IN_ORDER, STATELESS]),
        (NoFlow(), [NOWHERE]),
        (InState(Signup.ask), [IN_SIGNUP]),
        (InState(Order.ask), []),
        (InState(Signup.ask, Order.done), [IN_SIGNUP, IN_ORDER]),
        (DataIs(name="Ann"), [IN_SIGNUP]),
        (DataIs(name="Ann", age=3), [IN_SIGNUP]),
        (DataIs(name="Ann", age=4), []),
        (DataIs(size="large"), [IN_ORDER]),
        (DataIs(count=0), [IN_ORDER]),
        (DataIs(missing=None), []),
    ],
)
def test_a_filter_is_true_exactly_there(question, yes):
    turns = [NOWHERE, IN_SIGNUP, IN_ORDER, STATELESS]
    assert [turn for turn in turns if question(turn)] == yes


def test_asking_changes_nothing():
    DataIs(size="large")(IN_ORDER)
    assert IN_ORDER.patch() is NO_PATCH


@pytest.mark.parametrize("kind", [InState, DataIs])
def test_an_empty_question_is_refused(kind):
    with pytest.raises(ValueError, match="at least one"):
        kind()
