"""Flows: declaration, every check, allowed steps, Enum and inherited states, pickling and drawings."""

from __future__ import annotations

import copy
import pickle
import re
import subprocess
import sys
import textwrap
import types
import warnings
from enum import Enum, IntEnum, StrEnum, auto
from unicodedata import category

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hitherto.errors import FlowError, FlowWarning, InvalidTransition, UnknownFlow, UnknownState
from hitherto.flows import Flow, FlowRegistry, State, allowed, diagram, refusal, resolve, spec, targets
from hitherto.overlap import Reject


class Signup(Flow, data=dict, version=2):
    ask_name = State(to="ask_email", initial=True)
    ask_email = State(to=["confirm", "ask_name"])
    confirm = State(to=[], final=True)


class Free(Flow):
    one = State()
    two = State()


class Step(Enum):
    NAME = State(to="EMAIL", initial=True)
    EMAIL = State(to=["NAME", "DONE"])
    DONE = State(to=[], final=True)


class Stepped(Flow, states=Step):
    pass


class Outer:
    class Inner(Flow):
        only = State()


def declare(class_name="Made", bases=(Flow,), keywords=None, **body):
    return types.new_class(class_name, bases, keywords or {}, lambda namespace: namespace.update(body))


def make(*args, **body):
    """Declare a flow whose warnings are not what is tested."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FlowWarning)
        return declare(*args, **body)


def problems_of(keywords=None, bases=(Flow,), **body):
    with pytest.raises(FlowError) as caught:
        declare("Wrong", bases, keywords, **body)
    return caught.value.problems


def names(flow):
    return [state.name for state in flow]


# declaration


@pytest.mark.parametrize(
    ("class_name", "stored"),
    [
        ("SignUp", "sign_up"),
        ("Signup", "signup"),
        ("HTTPForm", "http_form"),
        ("FormHTTP", "form_http"),
        ("Form2Step", "form2_step"),
        ("My_Form", "my_form"),
        ("lower", "lower"),
        ("A", "a"),
        ("МояФорма", "моя_форма"),
    ],
)
def test_the_name_comes_from_the_class(class_name, stored):
    flow = make(class_name, a=State())
    assert flow.name == spec(flow).name == stored


def test_the_name_can_be_given():
    flow = make("SignUp", keywords={"name": "sign up: 2"}, a=State())
    assert spec(flow).name == "sign up: 2"


def test_the_spec_holds_what_was_declared():
    about = spec(Signup)
    assert (about.name, about.version, about.data, about.strict, about.overlap) == (
        "signup",
        2,
        dict,
        False,
        None,
    )
    assert dict(about.states) == {
        "ask_name": Signup.ask_name,
        "ask_email": Signup.ask_email,
        "confirm": Signup.confirm,
    }
    assert about.initial is Signup.ask_name
    assert about.declared
    assert not about.abstract
    assert dict(about.edges) == {
        Signup.ask_name: (Signup.ask_email,),
        Signup.ask_email: (Signup.ask_name, Signup.confirm),
        Signup.confirm: (),
    }


def test_version_is_one_unless_given():
    assert spec(Free).version == 1


def test_the_spec_is_frozen():
    about = spec(make(a=State()))
    with pytest.raises(AttributeError):
        about.name = "other"
    with pytest.raises(TypeError):
        about.states["b"] = Signup.confirm
    with pytest.raises(TypeError):
        about.edges[Signup.confirm] = ()


def test_an_overlap_policy_is_kept_as_it_is():
    policy = Reject()
    assert spec(make(keywords={"overlap": policy}, a=State())).overlap is policy


@pytest.mark.parametrize("wrong", [None, 5, "Signup", object, Signup.ask_name])
def test_only_a_flow_has_a_spec(wrong):
    with pytest.raises(TypeError, match="not a flow"):
        spec(wrong)


@pytest.mark.parametrize("flow", [Flow, Signup, Stepped])
def test_flows_are_never_instantiated(flow):
    with pytest.raises(TypeError, match="never instantiated"):
        flow()
    with pytest.raises(TypeError, match="never instantiated"):
        flow(1, name="x")


def test_a_state_knows_what_was_declared():
    state = Signup.ask_email
    assert (state.name, state.flow, state.to) == ("ask_email", Signup, ("confirm", "ask_name"))
    assert (state.initial, state.final, state.label) == (False, False, "")
    assert (Signup.ask_name.initial, Signup.confirm.final) == (True, True)
    assert (Signup.ask_name.to, Signup.confirm.to, Free.one.to) == (("ask_email",), (), None)


def test_states_are_equal_only_to_themselves_and_hashable():
    other = make("Other", ask_name=State(to="ask_email", initial=True), ask_email=State(to=[]))
    assert Signup.ask_name == Signup.ask_name
    assert Signup.ask_name != other.ask_name
    assert Signup.ask_name != "ask_name"
    assert len({Signup.ask_name, other.ask_name, Signup.ask_name}) == 2


def test_states_show_themselves():
    assert repr(Signup.confirm) == "<State confirm of signup>"
    assert str(Signup.confirm) == f"{Signup.confirm}" == "confirm"
    assert repr(State(name="x")) == "<State x of no flow yet>"


def test_states_cannot_be_changed():
    with pytest.raises(AttributeError, match="cannot be changed"):
        Signup.confirm.name = "other"
    with pytest.raises(AttributeError, match="cannot be changed"):
        Signup.confirm.extra = 1
    with pytest.raises(AttributeError, match="cannot be changed"):
        del Signup.confirm.name
    assert Signup.confirm.name == "confirm"


def test_the_states_of_a_class_are_fixed():
    with pytest.raises(AttributeError, match="class body"):
        Signup.confirm = 1
    with pytest.raises(AttributeError, match="class body"):
        Signup.extra = State()
    with pytest.raises(AttributeError, match="class body"):
        Signup.__hitherto__ = None
    with pytest.raises(AttributeError, match="class body"):
        del Signup.confirm
    assert names(Signup) == ["ask_name", "ask_email", "confirm"]


def test_other_attributes_stay_free():
    flow = make(a=State(), LIMIT=3, describe=staticmethod(lambda: "text"))
    flow.LIMIT = 4
    flow.note = "x"
    del flow.note
    assert (flow.LIMIT, flow.describe(), names(flow)) == (4, "text", ["a"])


def test_a_state_of_no_flow_says_so():
    with pytest.raises(FlowError, match="no flow yet"):
        _ = State().flow


def test_a_flow_iterates_over_its_states_and_contains_them():
    assert list(Signup) == [Signup.ask_name, Signup.ask_email, Signup.confirm]
    assert Signup.confirm in Signup
    assert Free.one not in Signup
    assert "confirm" not in Signup
    assert None not in Signup
    assert Signup


FREE_NAMES = [
    *("name", "data", "states", "version", "flow", "initial", "final", "to", "label", "edges", "spec", "own"),
    *("declared", "strict", "overlap", "abstract", "by_text", "by_ref", "mro", "register", "type", "format"),
    *("__name__x", "_private", "keys", "items", "values", "get", "self", "cls", "start", "_keep_states"),
]


@pytest.mark.parametrize("name", FREE_NAMES)
def test_a_state_may_have_any_name(name):
    flow = make("Odd", **{name: State(to="other", initial=True), "other": State(to=[])})
    assert getattr(flow, name) is spec(flow).states[name]
    assert spec(flow).name == "odd"
    assert names(flow) == [name, "other"]
    assert spec(flow).initial is getattr(flow, name)
    assert pickle.loads(pickle.dumps(getattr(flow, name))) is getattr(flow, name)
    assert f"{flow:mermaid}"


def test_a_state_called_name_hides_only_the_convenience():
    flow = make("Odd", name=State())
    assert isinstance(flow.name, State)
    assert spec(flow).name == "odd"
    assert Signup.name == "signup"


def test_the_stored_name_of_a_state_can_be_given():
    flow = make(ask=State(name="Step 1: name?", to="end"), end=State(name="Конец", to="Step 1: name?"))
    assert names(flow) == ["Step 1: name?", "Конец"]
    assert spec(flow).edges == {flow.ask: (flow.end,), flow.end: (flow.ask,)}
    assert resolve(flow, "Конец") is resolve(flow, "end") is flow.end


class Pair(tuple, Enum):
    b = ("x", "y")


def same_in_every_process(value):
    """A test's id: what each worker of a parallel run collects has to be the same."""
    text = repr(value)
    return type(value).__name__ if " at 0x" in text or isinstance(value, set | frozenset) else text


@pytest.mark.parametrize(
    ("to", "expected"),
    [
        ("b", ["b"]),
        (["b", "c"], ["b", "c"]),
        (("c", "b"), ["b", "c"]),
        ({"c", "b"}, ["b", "c"]),
        (frozenset({"a"}), ["a"]),
        ((one for one in "bc"), ["b", "c"]),
        (["b", "b"], ["b"]),
        ([], []),
        ((), []),
        (StrEnum("Where", {"B": "b"}).B, ["b"]),
        (Enum("Where", {"b": 7}).b, ["b"]),
        (Pair.b, ["b"]),
        (Enum("Where", ["b", "c"]), ["b", "c"]),
    ],
    ids=same_in_every_process,
)
def test_what_to_may_be(to, expected):
    flow = make(a=State(to=to), b=State(to=[]), c=State(to=[]))
    assert [end.name for end in spec(flow).edges[flow.a]] == expected


def test_to_may_be_state_objects():
    end = State(to=[])
    flow = make(start=State(to=end), again=State(to=[end, "start"]), end=end)
    assert spec(flow).edges[flow.start] == (flow.end,)
    assert spec(flow).edges[flow.again] == (flow.start, flow.end)


# what is wrong with a declaration


def test_no_state_is_an_error():
    (problem,) = problems_of()
    assert "no state" in problem
    assert "abstract=True" in problem


def test_two_initial_states_are_an_error():
    (problem,) = problems_of(a=State(initial=True), b=State(initial=True), c=State())
    assert "two initial" in problem
    assert "'a' and 'b'" in problem


def test_no_initial_state_is_none():
    assert spec(Free).initial is None


def test_two_states_stored_under_one_name_are_an_error():
    (problem,) = problems_of(a=State(name="x"), b=State(name="x"))
    assert "duplicate name" in problem
    assert "'a' and 'b'" in problem


@pytest.mark.parametrize("order", [("a", "b"), ("b", "a")])
def test_a_name_that_is_an_attribute_is_an_error(order):
    states = {"a": State(), "b": State(name="a")}
    (problem,) = problems_of(**{key: states[key] for key in order})
    assert "duplicate name" in problem


def test_names_that_cross_are_an_error():
    problems = problems_of(a=State(name="b"), b=State(name="a"))
    assert len(problems) == 2
    assert all("duplicate name" in problem for problem in problems)


def test_one_state_under_two_attributes_is_an_error():
    one = State()
    (problem,) = [p for p in problems_of(a=one, b=one) if "one State" in p]
    assert "'a' and 'b'" in problem


def test_an_attribute_assigned_twice_is_an_error():
    with pytest.raises(FlowError, match="'a' is assigned twice"):

        class Twice(Flow):
            a = State()
            a = State()  # noqa: PIE794


def test_a_state_assigned_over_by_anything_is_an_error():
    with pytest.raises(FlowError, match="'a' is assigned twice"):

        class Covered(Flow):
            a = State()
            b = State()

            def a(self): ...  # noqa: F811


def test_a_state_of_another_flow_is_an_error():
    (problem,) = problems_of(mine=Signup.confirm)
    assert "state of Signup already" in problem
    assert Signup.confirm.flow is Signup


@pytest.mark.parametrize(
    ("target", "hint"),
    [
        ("ask_emial", "did you mean 'ask_email'"),
        ("ASK_EMAIL", "did you mean 'ask_email'"),
        ("qqq", "undeclared"),
    ],
)
def test_an_edge_to_nowhere_names_the_nearest_state(target, hint):
    (problem,) = problems_of(ask_name=State(to=target), ask_email=State(to=[]))
    assert f"'ask_name' -> '{target}'" in problem
    assert hint in problem


@pytest.mark.parametrize("target", [Signup.confirm, State(), Step.DONE], ids=repr)
def test_an_edge_to_a_foreign_state_is_an_error(target):
    (problem,) = problems_of(a=State(to=target))
    assert "undeclared" in problem


@pytest.mark.parametrize("target", [5, object(), [None], b"b", [["b"]]], ids=same_in_every_process)
def test_an_edge_to_something_else_is_an_error(target):
    problems = problems_of(a=State(to=target))
    assert all("to= takes" in problem for problem in problems)


BAD_NAMES = ["", "  ", "a\nb", "a\x00", "\x7f", "a\u2028b", "\ud800", 5, ["x"], b"x"]


@pytest.mark.parametrize("name", BAD_NAMES, ids=ascii)
def test_names_are_visible_text(name):
    (problem,) = problems_of({"name": name}, a=State())
    assert problem.startswith("name= ")
    (problem,) = problems_of(a=State(name=name), b=State(name="a2"))
    assert "name= " in problem
    assert problem.isprintable()


@pytest.mark.parametrize("version", [0, -1, True, "1", 1.0])
def test_the_version_is_a_whole_number(version):
    (problem,) = problems_of({"version": version}, a=State())
    assert "version=" in problem


@pytest.mark.parametrize("states", [5, State, ["a"], Step.NAME])
def test_states_takes_an_enum(states):
    problems = problems_of({"states": states})
    assert "states= takes an Enum" in problems[0]


def test_labels_are_text():
    (problem,) = problems_of(a=State(label=5))
    assert "label=" in problem


def test_the_class_state_itself_is_an_error():
    assert "write State()" in problems_of(a=State, b=State())[0]


def test_names_of_python_are_an_error():
    (problem,) = problems_of(a=State(), __doc__=State())
    assert "Python" in problem


def test_all_problems_are_in_one_message():
    with pytest.raises(FlowError) as caught:

        class Wrong(Flow, name="", version=0):
            a = State(initial=True, to="bb")
            a = State(initial=True, to="bb")  # noqa: PIE794
            b = State(initial=True, name="x")
            c = State(name="x", to=5)

    problems = caught.value.problems
    assert len(problems) == 7
    for words in ("twice", "name=", "version=", "stored as 'x'", "two initial", "'a' -> 'bb'", "to= takes"):
        assert sum(words in problem for problem in problems) == 1, words
    assert all(problem in str(caught.value) for problem in problems)
    assert "Wrong" in str(caught.value)
    assert isinstance(caught.value, ValueError)


def test_a_failed_declaration_leaves_its_states_free():
    state = State()
    problems_of({"version": 0}, a=state)
    assert make(a=state).a is state


def test_unknown_keywords_are_refused():
    with pytest.raises(TypeError, match="nmae"):
        make(keywords={"nmae": "x"}, a=State())


# what is suspicious


def doubts_of(keywords=None, **body):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        declare("Doubtful", (Flow,), keywords, **body)
    assert all(warning.category is FlowWarning for warning in caught)
    return [str(warning.message) for warning in caught]


def test_an_unreachable_state_is_a_warning():
    (doubt,) = doubts_of(a=State(to="b", initial=True), b=State(to="a"), island=State(to="a"))
    assert "'island' cannot be reached" in doubt


def test_an_unreachable_circle_is_a_warning_for_each():
    doubts = doubts_of(a=State(to=[], initial=True), b=State(to="c"), c=State(to="b"))
    assert ["'b'" in doubts[0], "'c'" in doubts[1]] == [True, True]
    assert len(doubts) == 2


def test_without_an_initial_state_all_can_be_reached():
    assert doubts_of(a=State(to="b"), b=State(to=[]), island=State(to="a")) == []


def test_without_edges_nothing_is_suspicious():
    assert doubts_of(a=State(initial=True), b=State(final=True), c=State()) == []


@pytest.mark.parametrize("to", [None, [], "trap"])
def test_a_state_that_cannot_be_left_although_others_are_final_is_a_warning(to):
    (doubt,) = doubts_of(a=State(to=["trap", "end"], initial=True), trap=State(to=to), end=State(final=True))
    assert "'trap' cannot be left" in doubt


def test_a_state_that_cannot_be_left_is_no_warning_when_none_is_final():
    assert doubts_of(a=State(to="end", initial=True), end=State(to=[])) == []


def test_strict_makes_warnings_errors():
    states = {"a": State(to="b", initial=True), "b": State(to=[]), "c": State(to=[], final=True)}
    problems = problems_of({"strict": True, "version": 0}, **states)
    assert len(problems) == 3
    assert "version=" in problems[0]
    assert "'c' cannot be reached" in problems[1]
    assert "'b' cannot be left" in problems[2]


def test_a_warning_points_at_the_class_statement():
    with pytest.warns(FlowWarning, match="strict|cannot be reached") as caught:

        class Doubtful(Flow):
            a = State(to=[], initial=True)
            b = State(to="a")

    assert caught[0].filename == __file__


# inheritance


class Order(Flow, data=dict, version=3):
    size = State(to="address", initial=True)
    address = State(to=["confirm", "size"])
    confirm = State(to=[])


class GiftOrder(Order):
    address = State(to=["card", "size"], label="Whose address?")
    card = State(to="confirm")


def test_a_subclass_has_copies_of_its_own():
    assert names(GiftOrder) == ["size", "address", "confirm", "card"]
    assert GiftOrder.size is not Order.size
    assert (GiftOrder.size.flow, Order.size.flow) == (GiftOrder, Order)
    assert names(Order) == ["size", "address", "confirm"]
    assert GiftOrder.name == "gift_order"


def test_a_subclass_overrides_and_adds():
    assert GiftOrder.address.label == "Whose address?"
    assert spec(GiftOrder).edges[GiftOrder.address] == (GiftOrder.size, GiftOrder.card)
    assert spec(Order).edges[Order.address] == (Order.size, Order.confirm)
    assert spec(GiftOrder).initial is GiftOrder.size


def test_keywords_are_inherited_except_the_name():
    policy = Reject()
    parent = make(
        "Parent", (Flow,), {"data": dict, "version": 4, "overlap": policy, "strict": True}, a=State()
    )
    about = spec(make("Child", (parent,)))
    assert (about.name, about.data, about.version, about.overlap, about.strict) == (
        "child",
        dict,
        4,
        policy,
        True,
    )
    about = spec(make("Child", (parent,), {"data": list, "version": 5, "strict": False}))
    assert (about.data, about.version, about.strict) == (list, 5, False)


def test_a_subclass_with_a_second_initial_state_is_an_error():
    (problem,) = problems_of(bases=(Order,), other=State(to="size", initial=True))
    assert "two initial" in problem
    moved = make("Moved", (Order,), size=State(to="address"), other=State(to="size", initial=True))
    assert spec(moved).initial is moved.other


def test_an_inherited_state_cannot_become_something_else():
    (problem,) = problems_of(bases=(Order,), confirm=None)
    assert "'confirm' is a state and cannot become" in problem


def test_edges_may_name_states_of_the_base_by_value():
    flow = make(
        "Child", (Order,), extra=State(to=Order.confirm), size=State(to=[Order.address], initial=True)
    )
    assert spec(flow).edges[flow.extra] == (flow.confirm,)
    assert spec(flow).edges[flow.size] == (flow.address,)


def test_explicit_names_are_inherited():
    parent = make("Parent", a=State(name="first step"))
    assert make("Child", (parent,)).a.name == "first step"


def test_an_abstract_base_needs_no_states_and_may_name_missing_ones():
    base = make("Base", (Flow,), {"abstract": True}, menu=State(to=["cancel", "work"], initial=True))
    assert spec(base).abstract
    flow = make("Real", (base,), work=State(to="menu"), cancel=State(to=[]))
    assert not spec(flow).abstract
    assert spec(flow).edges[flow.menu] == (flow.work, flow.cancel)
    assert "'work'" in problems_of(bases=(base,), cancel=State(to=[]))[0]
    assert spec(make("Empty", (Flow,), {"abstract": True})).states == {}


def test_an_abstract_base_gives_no_warnings():
    assert doubts_of({"abstract": True}, a=State(to=[], initial=True), b=State(to=[])) == []


def test_the_nearest_declaration_wins_as_in_python():
    root = make("Root", x=State(label="root"))
    left = make("Left", (root,), y=State())
    right = make("Right", (root,), x=State(label="right"))
    both = make("Both", (left, right))
    assert both.x.label == "right"
    assert sorted(names(both)) == ["x", "y"]


def test_plain_classes_lend_states():
    class Cancelling:
        cancel = State(to=[], label="Stop")

    one = make("One", (Cancelling, Flow), a=State(to=Cancelling.cancel))
    two = make("Two", (Cancelling, Flow), a=State(to="cancel"))
    assert one.cancel.flow is one
    assert two.cancel.flow is two
    assert one.cancel.label == two.cancel.label == "Stop"
    assert spec(one).edges[one.a] == (one.cancel,)
    with pytest.raises(FlowError, match="no flow yet"):
        _ = Cancelling.cancel.flow


def test_a_base_state_stands_for_the_inherited_one():
    assert resolve(GiftOrder, Order.confirm) is GiftOrder.confirm
    assert resolve(make("Third", (GiftOrder,)), Order.address).label == "Whose address?"
    with pytest.raises(UnknownState):
        resolve(Order, GiftOrder.confirm)


# Enums


def test_states_come_from_an_enum():
    assert names(Stepped) == ["NAME", "EMAIL", "DONE"]
    assert Stepped.NAME is Step.NAME.value
    assert spec(Stepped).initial is Stepped.NAME
    assert spec(Stepped).edges[Stepped.EMAIL] == (Stepped.NAME, Stepped.DONE)
    assert all(resolve(Stepped, step) is spec(Stepped).states[step.name] for step in Step)


class Colour(IntEnum):
    RED = 1
    BLUE = 2


class Fruit(IntEnum):
    PEAR = 1
    RED = 2


@pytest.mark.parametrize(
    "members",
    [Colour, Enum("Letters", {"RED": "x", "BLUE": "y"}), StrEnum("Strings", {"RED": "r", "BLUE": "b"})],
    ids=repr,
)
def test_plain_values_are_named_by_their_members(members):
    flow = make("Painted", keywords={"states": members})
    assert names(flow) == ["RED", "BLUE"]
    assert not spec(flow).declared
    assert resolve(flow, members.RED) is flow.RED
    assert resolve(flow, "RED") is flow.RED


def test_equal_members_of_different_enums_are_told_apart():
    flow = make("Painted", keywords={"states": Colour})
    assert resolve(flow, Fruit.RED) is flow.RED
    with pytest.raises(UnknownState):
        resolve(flow, Fruit.PEAR)


def test_the_body_completes_the_enum():
    class Chosen(Enum):
        A = auto()
        B = auto()

    flow = make(
        "Chosen", keywords={"states": Chosen}, A=State(to=Chosen.B, initial=True), C=State(to=[Chosen.A])
    )
    assert names(flow) == ["A", "B", "C"]
    assert spec(flow).edges == {flow.A: (flow.B,), flow.B: (), flow.C: (flow.A,)}
    assert resolve(flow, Chosen.A) is flow.A


def test_enum_states_may_refer_to_each_other_by_value():
    class Linked(Enum):
        END = State(to=[])
        START = State(to=END, initial=True)

    flow = make("Linked", keywords={"states": Linked})
    assert spec(flow).edges[flow.START] == (flow.END,)


def test_a_second_flow_of_the_same_enum_has_copies():
    again = make("Again", keywords={"states": Step})
    assert again.NAME is not Stepped.NAME
    assert resolve(again, Step.NAME) is again.NAME
    assert resolve(Stepped, Step.NAME) is Stepped.NAME
    assert spec(again).edges[again.NAME] == (again.EMAIL,)


def test_copies_of_enum_states_keep_their_stored_names():
    class Named(Enum):
        A = State(name="first")

    first, second = (make(f"Flow{n}", keywords={"states": Named}) for n in range(2))
    assert names(first) == names(second) == names(make("Child", (second,))) == ["first"]


def test_a_subclass_answers_to_the_members_of_its_base():
    child = make("Child", (Stepped,), EXTRA=State(to=Step.DONE), DONE=State(to="EXTRA", final=True))
    assert resolve(child, Step.DONE) is child.DONE
    assert spec(child).edges[child.EXTRA] == (child.DONE,)


def test_two_names_of_one_member_are_an_error():
    class Alias(Enum):
        A = 1
        B = 1  # noqa: PIE796

    (problem,) = problems_of({"states": Alias})
    assert "duplicate name" in problem
    assert "'B' and 'A'" in problem


def test_an_enum_without_members_has_no_states():
    assert "no state" in problems_of({"states": Enum("Nothing", [])})[0]


# steps


def test_declared_edges_are_allowed_and_no_others():
    steps = {(a.name, b.name) for a in Signup for b in Signup if allowed(a, b)}
    assert steps == {("ask_name", "ask_email"), ("ask_email", "ask_name"), ("ask_email", "confirm")}


def test_without_any_to_everything_is_allowed():
    assert all(allowed(a, b) for a in [None, *Free] for b in Free)


def test_a_state_without_to_leads_nowhere_when_others_declare():
    flow = make(a=State(to="b"), b=State())
    assert targets(flow, flow.b) == ()


def test_a_step_to_itself_has_to_be_declared():
    flow = make(a=State(to="a"), b=State(to="a"))
    assert allowed(flow.a, flow.a)
    assert not allowed(flow.b, flow.b)
    assert allowed(Free.one, Free.one)


def test_from_none_any_state_is_allowed_when_none_is_initial():
    flow = make(a=State(to="b"), b=State(to=[]))
    assert targets(flow, None) == (flow.a, flow.b)


def test_from_none_only_the_initial_state_is_allowed_when_there_is_one():
    assert targets(Signup, None) == (Signup.ask_name,)


def test_from_none_any_state_is_allowed_when_nothing_is_declared():
    flow = make(a=State(initial=True), b=State())
    assert targets(flow, None) == (flow.a, flow.b)


def test_states_of_different_flows_never_follow_each_other():
    assert not allowed(Signup.ask_name, Free.one)
    assert not allowed(Free.one, Signup.ask_name)
    assert not allowed(Order.size, GiftOrder.address)


def test_a_refusal_names_the_states_and_the_ways():
    error = refusal(Signup, Signup.ask_name, Signup.confirm)
    assert isinstance(error, InvalidTransition)
    assert (error.flow, error.from_, error.to) == (Signup, Signup.ask_name, Signup.confirm)
    assert error.allowed == (Signup.ask_email,)
    for words in ("'signup'", "'ask_name' -> 'confirm'", "may go to 'ask_email'", "set_state"):
        assert words in str(error)


def test_a_refusal_from_a_dead_end_from_none_without_a_flow_and_to_a_flow():
    assert "may go nowhere" in str(refusal(Signup, Signup.confirm, Signup.ask_name))
    assert "state None" in str(refusal(Signup, None, Signup.confirm))
    assert "turn.start" in str(refusal(None, None, Signup.confirm))
    error = refusal(Signup, Signup, Free)
    assert (error.from_, error.to, error.allowed) == (Signup, Free, ())
    assert "'signup' is active" in str(error)
    assert "'free' cannot start" in str(error)


# resolve and the registry


@pytest.mark.parametrize("ref", [Signup.confirm, "confirm", StrEnum("Where", {"X": "confirm"}).X], ids=repr)
def test_resolve_takes_a_state_a_name_or_a_member(ref):
    assert resolve(Signup, ref) is Signup.confirm


@pytest.mark.parametrize(
    ("ref", "words"),
    [
        ("confrim", "did you mean 'confirm'"),
        (Free.one, "'free.one'"),
        (Step.DONE, "'DONE'"),
        (State(), "State()"),
        ("", "''"),
        (None, "'None'"),
    ],
    ids=repr,
)
def test_resolve_refuses_what_the_flow_has_not(ref, words):
    with pytest.raises(UnknownState) as caught:
        resolve(Signup, ref)
    assert words in str(caught.value)
    assert caught.value.flow == "signup"
    assert caught.value.known == ("ask_name", "ask_email", "confirm")


def test_a_registry_finds_flows_by_their_stored_names():
    registry = FlowRegistry([Signup, Free, Signup])
    assert registry.by_name("signup") is Signup
    assert (list(registry), len(registry)) == ([Signup, Free], 2)
    assert Signup in registry
    assert Order not in registry
    assert repr(registry) == "FlowRegistry(signup, free)"
    with pytest.raises(UnknownFlow, match="did you mean 'signup'") as caught:
        registry.by_name("singup")
    assert (caught.value.name, caught.value.known) == ("singup", ("signup", "free"))


def test_a_registry_checks_that_a_flow_is_the_one_it_knows():
    registry = FlowRegistry([Signup])
    assert registry.check(Signup) is registry.check("signup") is Signup
    with pytest.raises(UnknownFlow):
        registry.check(Free)
    with pytest.raises(UnknownFlow):
        registry.check(make("Signup", a=State()))


def test_a_registry_finds_stored_states():
    registry = FlowRegistry([Signup])
    assert registry.state(Signup, "confirm") is registry.state("signup", "confirm") is Signup.confirm
    assert registry.state(Signup, None) is None
    with pytest.raises(UnknownState, match="did you mean 'confirm'") as caught:
        registry.state(Signup, "confirmed")
    assert (caught.value.flow, caught.value.state) == ("signup", "confirmed")


def test_stored_states_are_found_by_the_stored_name_only():
    flow = make("Renamed", new=State(name="old"))
    registry = FlowRegistry([flow])
    assert registry.state(flow, "old") is flow.new
    with pytest.raises(UnknownState):
        registry.state(flow, "new")


def test_a_registry_resolves_states_of_its_flows():
    registry = FlowRegistry([Stepped])
    assert registry.resolve(Stepped, Step.NAME) is registry.resolve("stepped", "NAME") is Stepped.NAME
    with pytest.raises(UnknownFlow):
        registry.resolve(Signup, "confirm")


def test_a_registry_refuses_what_does_not_fit_in_one_message():
    other = make("Other", keywords={"name": "signup"}, a=State())
    base = make("Base", keywords={"abstract": True})
    with pytest.raises(FlowError) as caught:
        FlowRegistry([Signup, other, base, Signup.confirm, Flow])
    problems = caught.value.problems
    assert len(problems) == 4
    for problem, words in zip(
        problems,
        ["Signup and Other are both stored as 'signup'", "Base is abstract", "subclasses of Flow", "Flow is"],
        strict=True,
    ):
        assert words in problem


def test_an_empty_registry_says_that_there_are_none():
    with pytest.raises(UnknownFlow, match="there are no flows"):
        FlowRegistry([]).by_name("x")


# pickle and copy

PICKLED = [
    Signup.confirm,
    Signup,
    Free.one,
    Step.NAME,
    Stepped.EMAIL,
    GiftOrder.size,
    Outer.Inner,
    Outer.Inner.only,
]


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("thing", PICKLED, ids=repr)
def test_pickled_it_is_still_the_same(thing, protocol):
    assert pickle.loads(pickle.dumps(thing, protocol)) is thing
    assert pickle._loads(pickle._dumps(thing, protocol)) is thing


@pytest.mark.parametrize("thing", PICKLED, ids=repr)
def test_copied_it_is_still_the_same(thing):
    assert copy.copy(thing) is thing
    assert copy.deepcopy(thing) is thing
    assert copy.deepcopy({"a": [thing]})["a"][0] is thing


def test_flows_of_functions_are_pickled_within_the_process():
    class Local(Flow):
        a = State(to=[])

    assert pickle.loads(pickle.dumps([Local, Local.a])) == [Local, Local.a]


def test_importable_flows_are_pickled_by_reference_like_any_class():
    assert b"_flow_at" not in pickle.dumps(Outer.Inner.only)


def test_a_flow_declared_again_cannot_be_found_by_its_name():
    def local():
        class Local(Flow):
            a = State()

        return Local

    first, second = local(), local()
    assert pickle.loads(pickle.dumps(second.a)) is second.a
    with pytest.raises(pickle.PicklingError, match="declared again"):
        pickle.dumps(first.a)


def test_a_state_of_no_flow_cannot_be_pickled():
    with pytest.raises(pickle.PicklingError, match="no flow"):
        pickle.dumps(State())


def test_a_refusal_can_be_pickled_and_copied():
    error = refusal(Signup, Signup.ask_name, Signup.confirm)
    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert str(twin) == str(error)
        assert (twin.flow, twin.from_, twin.to) == (Signup, Signup.ask_name, Signup.confirm)


def run_python(code, cwd):
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout


MODULE = """
from hitherto import flows
class Remote(flows.Flow):
    a = flows.State()
def declare():
    class Local(flows.Flow):
        a = flows.State()
    return Local
"""


def test_another_process_finds_the_flow_of_a_module(tmp_path):
    (tmp_path / "remote.py").write_text(MODULE)
    dumped = run_python("import pickle, remote; print(pickle.dumps(remote.Remote.a).hex())", tmp_path)
    code = f"""
        import pickle
        state = pickle.loads(bytes.fromhex('{dumped.strip()}'))
        import remote
        print(state is remote.Remote.a)
    """
    assert run_python(code, tmp_path) == "True\n"


def test_a_flow_of_main_is_found_in_main(tmp_path):
    code = MODULE + "import pickle; print(pickle.loads(pickle.dumps(Remote.a)) is Remote.a)"
    assert run_python(code, tmp_path) == "True\n"


def test_a_flow_of_a_function_that_did_not_run_is_a_clear_error(tmp_path):
    (tmp_path / "remote.py").write_text(MODULE)
    dumped = run_python(
        "import pickle, remote; print(pickle.dumps(remote.declare().a).hex())", tmp_path
    ).strip()
    code = f"""
        import pickle
        try:
            pickle.loads(bytes.fromhex('{dumped}'))
        except Exception as error:
            print(type(error).__name__, error)
        import remote
        local = remote.declare()
        print(pickle.loads(bytes.fromhex('{dumped}')) is local.a)
    """
    first, second = run_python(code, tmp_path).splitlines()
    assert first.startswith("FlowError")
    assert "top level" in first
    assert second == "True"


def test_a_flow_of_a_function_that_its_module_calls_is_found(tmp_path):
    (tmp_path / "remote.py").write_text(MODULE + "kept = declare()\n")
    dumped = run_python("import pickle, remote; print(pickle.dumps(remote.kept.a).hex())", tmp_path).strip()
    code = f"import pickle; print(repr(pickle.loads(bytes.fromhex('{dumped}'))))"
    assert run_python(code, tmp_path) == "<State a of local>\n"


def test_a_state_that_was_removed_meanwhile_is_unknown(tmp_path):
    (tmp_path / "remote.py").write_text(MODULE)
    dumped = run_python("import pickle, remote; print(pickle.dumps(remote.Remote.a).hex())", tmp_path).strip()
    (tmp_path / "remote.py").write_text(MODULE.replace("    a = ", "    longer = "))
    code = f"""
        import pickle
        try:
            pickle.loads(bytes.fromhex('{dumped}'))
        except Exception as error:
            print(type(error).__name__, error.state)
    """
    assert run_python(code, tmp_path) == "UnknownState a\n"


# drawings


def test_the_mermaid_drawing():
    assert f"{Signup:mermaid}" == textwrap.dedent("""\
        stateDiagram-v2
            ask_name
            ask_email
            confirm
            [*] --> ask_name
            ask_name --> ask_email
            ask_email --> ask_name
            ask_email --> confirm
            confirm --> [*]""")


def test_the_dot_drawing():
    assert f"{Signup:dot}" == textwrap.dedent("""\
        digraph "signup" {
            rankdir=LR;
            node [shape=box, style=rounded];
            "ask_name" [label="ask_name"];
            "ask_email" [label="ask_email"];
            "confirm" [label="confirm", peripheries=2];
            "" [shape=point];
            "" -> "ask_name";
            "ask_name" -> "ask_email";
            "ask_email" -> "ask_name";
            "ask_email" -> "confirm";
        }""")


def test_the_table():
    assert f"{Signup:table}" == textwrap.dedent("""\
        | state     | to                | mark    | label |
        |-----------|-------------------|---------|-------|
        | ask_name  | ask_email         | initial |       |
        | ask_email | ask_name, confirm |         |       |
        | confirm   |                   | final   |       |""")


def test_a_diagram_for_terminals_marks_the_current_state():
    assert diagram(Signup, Signup.ask_email) == textwrap.dedent("""\
        signup (version 2)
           ask_name   ask_email          initial
        => ask_email  ask_name, confirm
           confirm                       final""")
    assert diagram(Signup, "ask_email") == diagram(Signup, Signup.ask_email)
    assert "=>" not in diagram(Signup)
    assert diagram(Signup, None) == diagram(Signup)
    with pytest.raises(UnknownState):
        diagram(Signup, "nowhere")


def test_a_flow_without_edges_is_drawn_as_such():
    assert f"{Free:mermaid}".splitlines()[1].strip().startswith("%% no to=")
    assert "// no to=" in f"{Free:dot}"
    assert f"{Free:table}".splitlines()[2] == "| one   | *  |      |       |"
    assert "(any)" in diagram(Free)


def test_no_drawing_asked_for_is_the_repr():
    assert f"{Signup}" == str(Signup) == repr(Signup) == "<Flow signup>"


@pytest.mark.parametrize(
    ("what", "hint"), [("mermiad", "did you mean 'mermaid'"), ("png", "mermaid, dot, table")]
)
def test_an_unknown_drawing_lists_what_exists(what, hint):
    with pytest.raises(ValueError, match=hint):
        format(Signup, what)


def test_the_order_does_not_depend_on_hashes(tmp_path):
    (tmp_path / "remote.py").write_text(
        "from hitherto.flows import Flow, State\n"
        "class Remote(Flow):\n"
        + "".join(
            f"    s{n} = State(to={{{', '.join(repr(f's{m}') for m in range(9))}}})\n" for n in range(9)
        )
    )
    code = "import remote; print(*(format(remote.Remote, what) for what in ('mermaid', 'dot', 'table')))"
    drawn = {run_python(f"import os; {code}", tmp_path) for _ in range(3)}
    assert len(drawn) == 1


HOSTILE = [
    'a"b',
    "a --> b",
    "%%{init: {}}%%",
    "a\\",
    '\\"];',
    "#quot;",
    "</script><b>",
    "a|b",
    "`x`",
    "end",
    "state",
    "[*]",
    "note right of x",
    "s1",
    "s1_",
    "style a:#f;",
    "a, b",
    "_x_",
    "constructor",
    "日本語 🍕",
    "*",
    "; rankdir=TB",
    "\u202etxet",
    "&lt;",
    "{{",
    "a:b",
]


def unmermaid(text):
    return re.sub(r"#(\d+);", lambda match: chr(int(match[1])), text)


def read_mermaid(drawing):
    """States by alias with their captions, and edges; every line has to be one of the few known shapes."""
    first, *lines = drawing.split("\n")
    assert first == "stateDiagram-v2"
    states, edges = {}, []
    for line in lines:
        if match := re.fullmatch(r"    ([A-Za-z]\w*)", line, re.ASCII):
            assert match[1] not in states
            states[match[1]] = match[1]
        elif match := re.fullmatch(r'    state "((?:[\w .,()!?\'/+=@*-]|#\d+;)+)" as ([A-Za-z]\w*)', line):
            assert match[2] not in states
            states[match[2]] = unmermaid(match[1])
        elif match := re.fullmatch(r"    (\[\*\]|\w+) --> (\[\*\]|\w+)", line, re.ASCII):
            edges.append((match[1], match[2]))
        else:
            assert line.startswith("    %% no to="), line
    return states, edges


def undot(text):
    return re.sub(r"\\(.)", r"\1", text)


STRING = r'"((?:[^"\\\n]|\\.)*)"'


def read_dot(drawing):
    states, edges = {}, []
    first, *lines, last = drawing.split("\n")
    assert re.fullmatch(rf"digraph {STRING} {{", first)
    assert last == "}"
    for line in lines:
        if match := re.fullmatch(rf"    {STRING} \[label={STRING}(, peripheries=2)?\];", line):
            assert undot(match[1]) not in states
            states[undot(match[1])] = undot(match[2]).replace("&amp;", "&")
        elif match := re.fullmatch(rf"    {STRING} -> {STRING};", line):
            edges.append((undot(match[1]), undot(match[2])))
        else:
            assert line.strip() in (
                "rankdir=LR;",
                "node [shape=box, style=rounded];",
                '"" [shape=point];',
                "// no to= is declared: any state may follow any other",
            ), line
    return states, edges


def read_table(drawing):
    cell = r" ((?:[^|\\]|\\.)*) "
    rows = [re.fullmatch(rf"\|{cell}\|{cell}\|{cell}\|{cell}\|", line) for line in drawing.split("\n")]
    assert all(match for n, match in enumerate(rows) if n != 1)
    assert set(drawing.split("\n")[1]) == {"|", "-"}
    states, edges = [], []
    for match in rows[2:]:
        name = undot(match[1].rstrip())
        states.append(name)
        ends = re.findall(r"((?:[^,\\]|\\.)+?)(?:, |\s*$)", match[2].rstrip()) if match[2].strip() else []
        edges += [(name, undot(end)) for end in ends]
    return states, edges


def test_hostile_names_cannot_break_a_drawing():
    body = {f"x{n}": State(name=name, to=HOSTILE, label=name[::-1]) for n, name in enumerate(HOSTILE)}
    flow = make("Hostile", keywords={"name": '"] }; a -> b\\'}, **body)
    every = [(a, b) for a in HOSTILE for b in HOSTILE]
    captions = [name[::-1].strip() for name in HOSTILE]
    states, edges = read_mermaid(f"{flow:mermaid}")
    assert list(states.values()) == captions
    assert len(edges) == len(set(edges)) == len(every)
    states, edges = read_dot(f"{flow:dot}")
    assert list(states.items()) == list(zip(HOSTILE, captions, strict=True))
    assert edges == every
    states, edges = read_table(f"{flow:table}")
    assert states == HOSTILE
    assert edges == every


@pytest.mark.parametrize("word", ["end", "State", "note", "class", "root", "constructor", "_a", "1", "é"])
def test_words_that_mermaid_reads_otherwise_get_an_alias(word):
    flow = make(a=State(name=word, to=word))
    assert f"{flow:mermaid}".split("\n")[1:] == [f'    state "{word}" as s0', "    s0 --> s0"]


def test_an_alias_is_never_the_name_of_another_state():
    flow = make(a=State(name="end", to="s0"), b=State(name="s0"), c=State(name="s0_"))
    assert list(read_mermaid(f"{flow:mermaid}")[0]) == ["s0__", "s0", "s0_"]


def test_entities_are_not_interpreted_in_dot():
    assert '[label="&amp;lt;"]' in f"{make(a=State(label='&lt;')):dot}"


def test_labels_of_several_lines_stay_on_one():
    flow = make(a=State(label='one\ntwo\r\x1b[31m"three'), b=State(label=" \n "))
    assert read_mermaid(f"{flow:mermaid}")[0] == {"a": 'one two  [31m"three', "b": "b"}
    assert read_dot(f"{flow:dot}")[0] == {"a": 'one two  [31m"three', "b": "b"}
    assert len(diagram(flow).splitlines()) == 3
    assert "\x1b" not in diagram(flow)


# any graph


def visible(text):
    """A name that a state may have, and no attribute of ``flow_of``."""
    ugly = any(category(one) in ("Cc", "Cs", "Zl", "Zp") for one in text)
    return text.strip() and not ugly and not re.fullmatch(r"n\d", text)


@st.composite
def graphs(draw):
    """Names, edges by number, and the number of the initial state or None."""
    many = draw(st.integers(1, 7))
    number = st.integers(0, many - 1)
    edges = draw(st.lists(st.one_of(st.none(), st.sets(number)), min_size=many, max_size=many))
    return edges, draw(st.one_of(st.none(), number))


def flow_of(edges, initial, stored=None):
    body = {
        f"n{n}": State(
            to=None if ends is None else {f"n{m}" for m in ends},
            initial=n == initial,
            name=stored[n] if stored else None,
        )
        for n, ends in enumerate(edges)
    }
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        return declare("Random", **body), [str(warning.message) for warning in caught]


@given(graphs())
def test_every_state_and_edge_is_drawn_once(graph):
    edges, initial = graph
    flow, _ = flow_of(edges, initial)
    expected = [(f"n{n}", f"n{m}") for n, ends in enumerate(edges) for m in sorted(ends or ())]
    states = [f"n{n}" for n in range(len(edges))]
    drawn, ways = read_mermaid(f"{flow:mermaid}")
    assert list(drawn) == states
    assert [way for way in ways if "[*]" not in way] == expected
    assert [end for start, end in ways if start == "[*]"] == ([] if initial is None else [f"n{initial}"])
    drawn, ways = read_dot(f"{flow:dot}")
    assert (list(drawn), [way for way in ways if way[0]]) == (states, expected)
    drawn, ways = read_table(f"{flow:table}")
    assert drawn == states
    assert ways == (expected if spec(flow).declared else [(name, "*") for name in states])
    for what in ("mermaid", "dot", "table"):
        assert format(flow, what) == format(flow_of(edges, initial)[0], what)


@given(graphs())
def test_reachability_agrees_with_a_naive_search(graph):
    edges, initial = graph
    _, doubts = flow_of(edges, initial)
    many = range(len(edges))
    reached = {(n, m) for n in many for m in edges[n] or ()} | {(n, n) for n in many}
    for middle in many:
        reached |= {(n, m) for n in many for m in many if (n, middle) in reached and (middle, m) in reached}
    declared = any(ends is not None for ends in edges)
    lost = [m for m in many if declared and initial is not None and (initial, m) not in reached]
    assert [re.search(r"'n(\d)' cannot be reached", doubt)[1] for doubt in doubts] == [str(m) for m in lost]


@given(graphs())
def test_allowed_agrees_with_the_declaration(graph):
    edges, initial = graph
    flow, _ = flow_of(edges, initial)
    states = list(flow)
    declared = any(ends is not None for ends in edges)
    for n, start in enumerate(states):
        for m, end in enumerate(states):
            assert allowed(start, end) == (not declared or m in (edges[n] or ()))
    for m, end in enumerate(states):
        assert allowed(None, end) == (not declared or initial is None or m == initial)


@given(
    st.lists(st.text(min_size=1, max_size=12).filter(visible), min_size=1, max_size=5, unique=True), st.data()
)
def test_any_names_survive_the_drawings(stored, data):
    ends = [data.draw(st.sets(st.integers(0, len(stored) - 1))) for _ in stored]
    flow, _ = flow_of(ends, 0, stored)
    expected = [(stored[n], stored[m]) for n, some in enumerate(ends) for m in sorted(some)]
    states, ways = read_mermaid(f"{flow:mermaid}")
    assert list(states.values()) == stored
    assert len(ways) == len(expected) + 1
    states, ways = read_dot(f"{flow:dot}")
    assert (list(states), ways[1:]) == (stored, expected)
    for drawing in (f"{flow:table}", diagram(flow)):
        assert len(drawing.split("\n")) == len(stored) + (2 if drawing.startswith("|") else 1)
