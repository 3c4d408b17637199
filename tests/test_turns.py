"""The turn: every verb and policy, and that a patch says exactly what changed."""

from __future__ import annotations

import copy
import datetime
import enum
import json
import logging
from dataclasses import dataclass, field
from typing import Any, TypedDict

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hitherto import DataError, Flow, InvalidTransition, Record, State, Turn, UnknownFlow, UnknownState
from hitherto.codec import encode
from hitherto.flows import FlowRegistry
from hitherto.records import BLANK, NO_PATCH, Patch, Stored, apply, from_record, merged
from hitherto.turns import Rules

NOW = datetime.datetime(2026, 1, 1)


class Step(enum.Enum):
    FIRST = State(to="SECOND", initial=True)
    SECOND = State(to=[])


class Signup(Flow):
    ask_name = State(to="ask_email", initial=True)
    ask_email = State(to=["confirm", "ask_name"])
    confirm = State(to=[])


class Order(Flow):
    size = State(to=["size", "done"], initial=True)
    done = State(to=[])


class Free(Flow):
    here = State()
    there = State()


class Enumerated(Flow, states=Step):
    pass


class Later(Signup, name="later", version=3):
    ask_name = State(to=["ask_email", "extra"], initial=True)
    extra = State(to="ask_name")


class Stranger(Flow):
    nowhere = State()


@dataclass
class AsDataclass:
    name: str = ""
    tags: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class AsFrozenDataclass:
    name: str = ""
    tags: tuple[str, ...] = ()


class AsStruct(msgspec.Struct):
    name: str = ""
    tags: list[str] = []


class AsFrozenStruct(msgspec.Struct, frozen=True):
    name: str = ""
    tags: tuple[str, ...] = ()


class AsModel(pydantic.BaseModel):
    name: str = ""
    tags: list[str] = []


class AsFrozenModel(pydantic.BaseModel, frozen=True):
    name: str = ""
    tags: tuple[str, ...] = ()


class AsTypedDict(TypedDict, total=False):
    name: str
    tags: list[str]


CLASSES = [AsDataclass, AsFrozenDataclass, AsStruct, AsFrozenStruct, AsModel, AsFrozenModel]
TYPED: dict[type, type[Flow]] = {}
for cls in [*CLASSES, AsTypedDict]:

    class Typed(Flow, name=f"typed_{cls.__name__.lower()}", data=cls):
        only = State(to="only", initial=True)

    TYPED[cls] = Typed

FLOWS = [Signup, Order, Free, Enumerated, Later, *TYPED.values()]


def a_turn(stored: Stored | None = None, **policies: Any) -> Turn:
    return Turn(Rules(FlowRegistry(FLOWS), **policies), "bot", (7, 7), stored)


def at(flow: type[Flow], state: State | None, version: int = 1, **data: Any) -> Stored:
    return Stored(flow.name, None if state is None else state.name, version, encode(data))


def committed(turn: Turn, before: Stored | None = None) -> Record | None:
    after = apply(before, turn.patch())
    return None if after is None else after.to_record()


# ---------------------------------------------------------------------------------------------- what is there


def test_a_new_conversation_is_in_no_flow_and_has_no_data():
    turn = a_turn()
    assert (turn.flow, turn.state, turn.data) == (None, None, {})
    assert (turn.event, turn.skipped, turn.attempt, turn.lost, turn.key) == (None, (), 1, False, (7, 7))


def test_flow_and_state_are_the_classes_themselves():
    turn = a_turn(at(Signup, Signup.ask_email, name="Ann"))
    assert turn.flow is Signup
    assert turn.state is Signup.ask_email
    assert turn.data == {"name": "Ann"}
    assert turn.record == Record("signup", "ask_email", {"name": "Ann"}, 1)


def test_repr_shows_no_data():
    turn = a_turn(at(Signup, Signup.ask_email, name="Secret Name"))
    assert repr(turn) == "Turn(flow='signup', state='ask_email', attempt=1, lost=False)"


# ------------------------------------------------------------------------------------------------- start


def test_start_sets_the_initial_state_and_empties_the_data():
    before = Stored(None, None, 1, encode({"old": 1}))
    turn = a_turn(before)
    turn.start(Signup)
    assert (turn.flow, turn.state, turn.data) == (Signup, Signup.ask_name, {})
    assert committed(turn, before) == Record("signup", "ask_name", {}, 1)


def test_start_takes_data():
    turn = a_turn()
    turn.start(Signup, name="Ann")
    assert committed(turn) == Record("signup", "ask_name", {"name": "Ann"}, 1)


def test_start_without_an_initial_state_is_in_state_none():
    turn = a_turn()
    turn.start(Free)
    assert (turn.flow, turn.state) == (Free, None)
    turn.transition(Free.there)
    assert turn.state is Free.there


def test_starting_the_active_flow_restarts_it():
    before = at(Signup, Signup.confirm, name="Ann", age=3)
    turn = a_turn(before)
    turn.start(Signup, name="Bob")
    assert committed(turn, before) == Record("signup", "ask_name", {"name": "Bob"}, 1)


def test_starting_another_flow_is_an_invalid_transition_from_flow_to_flow():
    turn = a_turn(at(Signup, Signup.ask_email, name="Ann"))
    with pytest.raises(InvalidTransition) as caught:
        turn.start(Order)
    assert (caught.value.flow, caught.value.from_, caught.value.to) == (Signup, Signup, Order)
    assert (turn.flow, turn.state, turn.patch()) == (Signup, Signup.ask_email, NO_PATCH)


def test_after_clear_another_flow_may_start():
    before = at(Signup, Signup.ask_email, name="Ann")
    turn = a_turn(before)
    turn.clear()
    turn.start(Order)
    assert committed(turn, before) == Record("order", "size", {}, 1)


def test_start_of_an_unregistered_flow():
    with pytest.raises(UnknownFlow):
        a_turn().start(Stranger)


def test_start_refuses_data_and_changes_nothing():
    turn = a_turn(at(Signup, Signup.ask_email, name="Ann"))
    with pytest.raises(DataError, match=r'data\["when"\]: datetime'):
        turn.start(Signup, when=NOW)
    assert turn.patch() is NO_PATCH


# ------------------------------------------------------------------------------------------------- transition


def test_a_declared_transition():
    before = at(Signup, Signup.ask_name, name="Ann")
    turn = a_turn(before)
    turn.transition(Signup.ask_email)
    assert turn.patch() == Patch(moved=True, flow="signup", state="ask_email")
    assert committed(turn, before) == Record("signup", "ask_email", {"name": "Ann"}, 1)


@pytest.mark.parametrize("to", ["ask_email", Signup.ask_email])
def test_a_transition_by_name_or_state(to):
    turn = a_turn(at(Signup, Signup.ask_name))
    turn.transition(to)
    assert turn.state is Signup.ask_email


def test_a_transition_by_enum_member():
    turn = a_turn(at(Enumerated, Enumerated.FIRST))
    turn.transition(Step.SECOND)
    assert turn.state is Enumerated.SECOND


def test_an_undeclared_transition():
    turn = a_turn(at(Signup, Signup.ask_name))
    with pytest.raises(InvalidTransition) as caught:
        turn.transition(Signup.confirm)
    assert (caught.value.from_, caught.value.to) == (Signup.ask_name, Signup.confirm)
    assert caught.value.allowed == (Signup.ask_email,)
    assert turn.state is Signup.ask_name
    assert turn.patch() is NO_PATCH


def test_a_self_transition_must_be_declared():
    with pytest.raises(InvalidTransition):
        a_turn(at(Signup, Signup.ask_name)).transition(Signup.ask_name)
    turn = a_turn(at(Order, Order.size))
    turn.transition(Order.size)
    assert turn.patch() is NO_PATCH


def test_no_edges_at_all_means_any():
    turn = a_turn(at(Free, Free.here))
    turn.transition(Free.there)
    turn.transition(Free.there)
    assert turn.state is Free.there


def test_a_transition_without_an_active_flow():
    for to in (Signup.ask_name, "ask_name"):
        with pytest.raises(InvalidTransition):
            a_turn().transition(to)


def test_a_transition_into_another_flow():
    turn = a_turn(at(Signup, Signup.ask_name))
    with pytest.raises(InvalidTransition):
        turn.transition(Order.size)
    assert turn.flow is Signup


def test_a_transition_to_an_unknown_state():
    with pytest.raises(UnknownState):
        a_turn(at(Signup, Signup.ask_name)).transition("ask_nmae")
    with pytest.raises(UnknownFlow):
        a_turn(at(Signup, Signup.ask_name)).transition(Stranger.nowhere)


def test_a_base_flows_state_stands_for_the_inherited_copy():
    turn = a_turn(at(Later, Later.ask_name, 3))
    turn.transition(Signup.ask_email)
    assert turn.state is Later.ask_email


# ------------------------------------------------------------------------------------ set_state, force, clear


def test_set_state_skips_the_edge_check():
    turn = a_turn(at(Signup, Signup.ask_name))
    turn.set_state(Signup.confirm)
    assert turn.state is Signup.confirm


def test_set_state_needs_an_active_flow():
    for stored in (None, at(Order, Order.size)):
        with pytest.raises(InvalidTransition):
            a_turn(stored).set_state(Signup.confirm)


def test_force_skips_everything_and_keeps_the_data():
    before = at(Signup, Signup.ask_name, name="Ann")
    turn = a_turn(before)
    turn.force(Order, Order.done)
    assert committed(turn, before) == Record("order", "done", {"name": "Ann"}, 1)


def test_force_without_a_state():
    turn = a_turn(at(Signup, Signup.ask_name))
    turn.force(Order)
    assert (turn.flow, turn.state) == (Order, None)


def test_force_needs_a_known_flow():
    with pytest.raises(UnknownFlow):
        a_turn().force(Stranger, Stranger.nowhere)
    with pytest.raises(UnknownState):
        a_turn().force(Order, Signup.ask_name)


def test_clear_resets_all():
    before = at(Signup, Signup.ask_email, name="Ann")
    turn = a_turn(before)
    turn.clear()
    assert (turn.flow, turn.state, turn.data) == (None, None, {})
    assert turn.patch() == Patch(cleared=True)
    assert committed(turn, before) is None


def test_clear_of_nothing_writes_nothing():
    turn = a_turn()
    turn.clear()
    assert turn.patch() is NO_PATCH


def test_data_after_clear_is_a_record_without_a_flow():
    before = at(Signup, Signup.ask_email, name="Ann")
    turn = a_turn(before)
    turn.clear()
    turn.update_data(b=2)
    assert committed(turn, before) == Record(None, None, {"b": 2}, 1)


# ----------------------------------------------------------------------------------------------- policies


def invalid_steps(turn: Turn) -> None:
    turn.transition(Signup.confirm)
    turn.transition(Order.size)
    turn.set_state(Order.size)
    turn.start(Order)


def test_policy_ignore_leaves_everything():
    turn = a_turn(at(Signup, Signup.ask_name, name="Ann"), on_invalid="ignore")
    invalid_steps(turn)
    assert turn.patch() is NO_PATCH


def test_policy_ignore_without_a_flow():
    turn = a_turn(on_invalid="ignore")
    turn.transition("ask_name")
    turn.transition(Signup.ask_name)
    turn.set_state("ask_name")
    assert turn.patch() is NO_PATCH


def test_policy_log_warns(caplog):
    turn = a_turn(at(Signup, Signup.ask_name), on_invalid="log")
    with caplog.at_level(logging.WARNING, "hitherto"):
        invalid_steps(turn)
    assert turn.patch() is NO_PATCH
    assert [record.getMessage().split()[0] for record in caplog.records] == ["transition.invalid"] * 4


def test_policy_function_is_told_and_decides():
    asked: list[Any] = []

    def policy(turn: Turn, from_: Any, to: Any) -> bool:
        asked.append((turn.flow, from_, to))
        return to is Signup.confirm or to is Order

    turn = a_turn(at(Signup, Signup.ask_name, name="Ann"), on_invalid=policy)
    invalid_steps(turn)
    assert asked == [
        (Signup, Signup.ask_name, Signup.confirm),
        (Signup, Signup.confirm, Order.size),
        (Signup, Signup.confirm, Order.size),
        (Signup, Signup, Order),
    ]
    assert (turn.flow, turn.state, turn.data) == (Order, Order.size, {})


def test_policy_function_may_change_the_turn():
    turn = a_turn(at(Signup, Signup.ask_name), on_invalid=lambda turn, from_, to: turn.clear())
    turn.transition(Signup.confirm)
    assert turn.flow is None


@pytest.mark.parametrize("policies", [{"on_invalid": "shout"}, {"on_unknown": "ignore"}])
def test_unknown_policies_are_refused(policies):
    with pytest.raises(ValueError, match="'raise'"):
        a_turn(**policies)


# ---------------------------------------------------------------------------------- unknown flows and states

OLD_STATE = Stored("signup", "gone", 1, encode({"name": "Ann"}))
OLD_FLOW = Stored("gone", "ask", 1, encode({"name": "Ann"}))


def test_on_unknown_raise():
    with pytest.raises(UnknownState):
        a_turn(OLD_STATE)
    with pytest.raises(UnknownFlow):
        a_turn(OLD_FLOW)


@pytest.mark.parametrize("old", [OLD_STATE, OLD_FLOW])
def test_on_unknown_reset_clears_for_good(old):
    turn = a_turn(old, on_unknown="reset")
    assert (turn.flow, turn.state, turn.data) == (None, None, {})
    assert committed(turn, old) is None


def test_on_unknown_function_answers_a_state():
    seen: list[Any] = []

    def moved(record: Record, error: Exception) -> State:
        seen.append((record, type(error)))
        return Order.done

    turn = a_turn(OLD_STATE, on_unknown=moved)
    assert seen == [(Record("signup", "gone", {"name": "Ann"}, 1), UnknownState)]
    assert (turn.flow, turn.state, turn.data) == (Order, Order.done, {"name": "Ann"})
    assert committed(turn, OLD_STATE) == Record("order", "done", {"name": "Ann"}, 1)


def test_on_unknown_function_answers_none_and_resets():
    assert a_turn(OLD_FLOW, on_unknown=lambda record, error: None).data == {}


def test_on_unknown_is_asked_every_time():
    rules = Rules(FlowRegistry(FLOWS), on_unknown=lambda record, error: Order.done)
    for _ in range(2):
        assert Turn(rules, "bot", 1, OLD_STATE).state is Order.done
    assert Turn(rules, "bot", 1, at(Order, Order.size)).state is Order.size


# ------------------------------------------------------------------------------------------------- plain data


def test_update_data_merges():
    before = at(Signup, Signup.ask_name, a=1, b=2)
    turn = a_turn(before)
    turn.update_data({"b": 3, "self": 1}, c=4)
    assert turn.patch() == Patch(set=encode({"b": 3, "self": 1, "c": 4}))
    assert turn.data == {"a": 1, "b": 3, "self": 1, "c": 4}


def test_update_data_before_and_after_a_look():
    turn = a_turn(at(Signup, Signup.ask_name, a=1))
    turn.update_data(b=2)
    turn.data["c"] = 3
    turn.update_data(d=4)
    assert turn.data == {"a": 1, "b": 2, "c": 3, "d": 4}
    assert turn.patch() == Patch(set=encode({"b": 2, "c": 3, "d": 4}))


def test_looking_and_writing_the_same_writes_nothing():
    turn = a_turn(at(Signup, Signup.ask_name, a=[1, {"b": 2}]))
    turn.data["a"] = [1, {"b": 2}]
    turn.update_data(a=[1, {"b": 2}])
    turn.set_state(Signup.ask_name)
    assert turn.patch() is NO_PATCH


def test_a_nested_mutation_is_noticed():
    turn = a_turn(at(Signup, Signup.ask_name, a=[1, {"b": 2}], c=0))
    turn.data["a"][1]["b"] = 3
    assert turn.patch() == Patch(set=encode({"a": [1, {"b": 3}]}))


def test_a_removed_key_is_removed_and_no_other():
    turn = a_turn(at(Signup, Signup.ask_name, a=1, b=2))
    del turn.data["a"]
    assert turn.patch() == Patch(removed=("a",))


def test_a_patch_does_not_undo_what_others_did_to_other_keys():
    before = at(Signup, Signup.ask_name, a=1, b=2)
    turn = a_turn(before)
    turn.data["a"] = 10
    turn.transition(Signup.ask_email)
    meanwhile = merged(before, encode({"b": 20, "c": 30}))
    after = apply(meanwhile, turn.patch())
    assert after == Stored("signup", "ask_email", 1, encode({"a": 10, "b": 20, "c": 30}))


def test_what_others_wrote_goes_when_the_turn_clears():
    before = at(Signup, Signup.ask_name, a=1)
    turn = a_turn(before)
    turn.start(Signup)
    after = apply(merged(before, encode({"b": 20})), turn.patch())
    assert after == Stored("signup", "ask_name", 1, {})


def test_assigning_data_replaces_it():
    before = at(Signup, Signup.ask_name, a=1, b=2)
    turn = a_turn(before)
    mine = {"b": 2, "c": 3}
    turn.data = mine
    mine["d"] = 4
    assert committed(turn, before) == Record("signup", "ask_name", {"b": 2, "c": 3, "d": 4}, 1)


def test_tuples_become_lists():
    turn = a_turn()
    turn.update_data(a=(1, (2,)))
    assert turn.data == {"a": [1, [2]]}


REFUSED = {"a": NOW, "b": [1, {"c": b"bytes"}], "d": {1: 2}, "e": float("nan"), "f": "\ud800", "g": {1}}


@pytest.mark.parametrize("look", [False, True])
@pytest.mark.parametrize("key", REFUSED)
def test_what_cannot_be_stored_is_refused_at_once(key, look):
    turn = a_turn(at(Signup, Signup.ask_name, a=0))
    if look:
        assert turn.data == {"a": 0}
    with pytest.raises(DataError) as caught:
        turn.update_data({"ok": 1, key: REFUSED[key]})
    assert caught.value.path.startswith(f'data["{key}"]')
    assert turn.patch() is NO_PATCH


@pytest.mark.parametrize("key", REFUSED)
def test_what_cannot_be_stored_is_refused_where_it_is_assigned(key):
    turn = a_turn(at(Signup, Signup.ask_name, z=0))
    value = REFUSED[key]
    for put in (
        lambda data: data.__setitem__(key, value),
        lambda data: data.setdefault(key, value),
        lambda data: data.update({"ok": 1, key: value}),
        lambda data: data.__ior__({"ok": 1, key: value}),
    ):
        with pytest.raises(DataError) as caught:
            put(turn.data)
        assert caught.value.path.startswith(f'data["{key}"]')
    with pytest.raises(DataError):
        turn.data = {key: value}
    assert turn.data == {"z": 0}
    assert turn.patch() is NO_PATCH


def test_what_is_put_in_deeper_is_refused_by_the_patch_with_its_path():
    turn = a_turn(at(Signup, Signup.ask_name, cart=[1, 2]))
    turn.data["cart"].append({"when": NOW})
    with pytest.raises(DataError, match=r'data\["cart"\]\[2\]\["when"\]: datetime'):
        turn.patch()


def test_too_much_data_is_refused():
    turn = a_turn()
    for number in range(2):
        turn.update_data({str(number): "x" * 400_000})
    with pytest.raises(DataError, match="more than"):
        turn.update_data(more="x" * 400_000)
    assert len(turn.data) == 2


def test_plain_data_is_a_dict_in_every_way():
    turn = a_turn(at(Signup, Signup.ask_name, a=[1]))
    data = turn.data
    assert isinstance(data, dict)
    assert data == {"a": [1]}
    assert repr(data) == "{'a': [1]}"
    assert json.dumps(data) == '{"a": [1]}'
    assert msgspec.json.encode(data) == b'{"a":[1]}'
    assert copy.deepcopy(data) == data
    assert type(data.copy()) is dict
    data["again"] = a_turn(at(Signup, Signup.ask_name, a=[1])).data
    data |= {"b": 1}
    assert turn.record.data == {"a": [1], "b": 1, "again": {"a": [1]}}
    assert from_record(Record(data=data)).to_record().data == turn.record.data


def test_what_one_gets_is_ones_own():
    before = at(Signup, Signup.ask_name, a=[1])
    turn = a_turn(before)
    turn.data["a"].append(2)
    turn.record.data["a"].append(3)
    assert a_turn(before).data == {"a": [1]}


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
DATA = st.dictionaries(st.sampled_from("abcdef"), VALUES, max_size=5)


@given(DATA, DATA, st.booleans(), st.booleans())
def test_the_patch_turns_what_was_into_what_is(before, after, by_update, look):
    stored = Stored(None, None, 1, encode(before))
    turn = a_turn(stored)
    if look:
        assert turn.data == before
    if by_update:
        turn.update_data(after)
        expected = {**before, **after}
    else:
        turn.data = after
        expected = after
    patch = turn.patch()
    result = apply(stored, patch)
    assert result is not None
    assert encode(result.to_record().data) == encode(expected)
    assert not any(encode(before).get(key) == text for key, text in patch.set.items())
    assert bool(patch) == (encode(before) != encode(expected))


# ------------------------------------------------------------------------------------------------- typed data


@pytest.mark.parametrize("cls", CLASSES)
def test_typed_data_is_an_instance_of_its_class(cls):
    flow = TYPED[cls]
    turn = a_turn()
    turn.start(flow)
    assert type(turn.data) is cls
    turn.update_data(name="Ann")
    assert turn.data == cls(name="Ann")
    after = apply(None, turn.patch())
    assert a_turn(after).data == cls(name="Ann")
    turn.start(flow, name="Bob")
    assert turn.data.name == "Bob"


@pytest.mark.parametrize("cls", CLASSES)
def test_a_typed_patch_is_only_what_changed(cls):
    before = at(TYPED[cls], TYPED[cls].only, name="Ann", tags=["a"])
    turn = a_turn(before)
    assert turn.data.name == "Ann"
    assert turn.patch() is NO_PATCH
    turn.update_data(name="Bob")
    assert turn.patch() == Patch(set=encode({"name": "Bob"}))


@pytest.mark.parametrize("cls", [AsDataclass, AsStruct, AsModel])
def test_typed_data_may_be_mutated(cls):
    turn = a_turn(at(TYPED[cls], TYPED[cls].only, name="Ann", tags=["a"]))
    turn.data.tags.append("b")
    assert turn.patch() == Patch(set=encode({"tags": ["a", "b"]}))
    turn.data.name = "Bob"
    assert turn.patch() == Patch(set=encode({"tags": ["a", "b"], "name": "Bob"}))


@pytest.mark.parametrize("cls", CLASSES)
def test_typed_data_may_be_replaced(cls):
    turn = a_turn(at(TYPED[cls], TYPED[cls].only, name="Ann", tags=[]))
    turn.data = cls(name="Bob")
    assert turn.patch() == Patch(set=encode({"name": "Bob"}))


@pytest.mark.parametrize("cls", CLASSES)
def test_typed_data_of_another_class_or_type_is_refused(cls):
    turn = a_turn(at(TYPED[cls], TYPED[cls].only, name="Ann"))
    with pytest.raises(DataError, match=f"expected {cls.__name__}"):
        turn.data = {"name": "Bob"}
    with pytest.raises(DataError) as caught:
        turn.update_data(name=7)
    assert caught.value.path == 'data["name"]'
    with pytest.raises(DataError, match="no such field; did you mean 'name'"):
        turn.update_data(nmae="Bob")
    assert turn.patch() is NO_PATCH
    assert turn.data.name == "Ann"


@pytest.mark.parametrize("cls", CLASSES)
def test_wrong_stored_data_names_the_field_and_can_be_replaced(cls):
    before = at(TYPED[cls], TYPED[cls].only, name=7, tags=[])
    turn = a_turn(before)
    with pytest.raises(DataError) as caught:
        _ = turn.data
    assert caught.value.path == 'data["name"]'
    turn.data = cls(name="Ann")
    after = apply(before, turn.patch())
    assert a_turn(after).data == cls(name="Ann")


def test_stored_keys_the_class_does_not_know_are_kept():
    before = at(TYPED[AsDataclass], TYPED[AsDataclass].only, name="Ann", from_an_older_version=1)
    turn = a_turn(before)
    turn.data.name = "Bob"
    record = committed(turn, before)
    assert record is not None
    assert record.data == {"name": "Bob", "from_an_older_version": 1}


def test_a_typed_dict_is_a_checked_dict():
    flow = TYPED[AsTypedDict]
    turn = a_turn()
    turn.start(flow, name="Ann")
    turn.update_data(tags=["a"])
    assert turn.data == {"name": "Ann", "tags": ["a"]}
    with pytest.raises(DataError):
        turn.update_data(tags="not a list")
    assert apply(None, turn.patch()) == at(flow, flow.only, name="Ann", tags=["a"])


def test_a_field_without_default_is_named_by_start():
    class Needs(msgspec.Struct):
        name: str

    class Needing(Flow, data=Needs):
        only = State(initial=True)

    turn = Turn(Rules(FlowRegistry([Needing])), "bot", 1, None)
    turn.start(Needing, name="Ann")
    assert turn.data == Needs("Ann")
    turn.start(Needing)
    with pytest.raises(DataError, match="name"):
        _ = turn.data


def test_forcing_a_typed_flow_reads_the_same_data_again():
    flow = TYPED[AsStruct]
    turn = a_turn(at(Signup, Signup.ask_name, name="Ann"))
    assert turn.data == {"name": "Ann"}
    turn.data["tags"] = ["a"]
    turn.force(flow, flow.only)
    assert turn.data == AsStruct("Ann", ["a"])


# ------------------------------------------------------------------------------------------------- version


def test_the_version_is_stored():
    turn = a_turn()
    turn.start(Later)
    assert turn.patch().version == 3
    assert turn.record.version == 3


def test_an_older_version_is_only_rewritten_with_a_change():
    before = at(Later, Later.ask_name, 2, name="Ann")
    assert a_turn(before).patch() is NO_PATCH
    turn = a_turn(before)
    turn.update_data(name="Bob")
    after = apply(before, turn.patch())
    assert after == at(Later, Later.ask_name, 3, name="Bob")


def test_blank_is_never_changed():
    turn = a_turn()
    turn.update_data(a=1)
    turn.start(Order)
    turn.patch()
    assert Stored() == BLANK
    assert BLANK.fields == {}
