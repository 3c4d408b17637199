"""Flows and their states: how they are declared, what is checked, which steps are allowed.

::

    class Signup(Flow, data=SignupData, version=2):
        ask_name = State(to="ask_email", initial=True)
        ask_email = State(to=["confirm", "ask_name"])
        confirm = State(to=[], final=True)

The class is the flow, its attributes are the states, and both are used by value.  States may have any name,
also ``name``, ``data`` or ``states``: what the library knows of a flow is in one object beside them,
``spec(Signup)``.  ``f"{Signup:mermaid}"``, ``dot`` and ``table`` draw it.

States can come from an Enum, whose members then stand for them wherever a state is expected::

    class Step(Enum):
        NAME = State(to="EMAIL", initial=True)
        EMAIL = State(to=[])

    class Signup(Flow, states=Step): ...

Each member becomes the attribute and the state of its name (``Signup.NAME``); a value that is no State means
``State()``.  The class body may declare more states, and anew those of the Enum.

A flow inherits the states of its bases as copies of its own, may declare them anew and add others; the
keywords are inherited too, except ``name``, ``states`` and ``abstract``.  A base with ``abstract=True`` needs
no states and may name ones that its subclasses bring.  Classes that are no flows can lend states as well.
"""

from __future__ import annotations

import copyreg
import importlib
import pickle
import sys
import warnings
from collections.abc import Hashable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Any, NoReturn, TypeAlias, TypeVar, final
from weakref import WeakValueDictionary

from hitherto import drawings
from hitherto.drawings import DRAWINGS, plain
from hitherto.errors import (
    FlowError,
    FlowWarning,
    InvalidTransition,
    UnknownFlow,
    UnknownState,
    did_you_mean,
    shown,
)

T = TypeVar("T")


class _Awaited:
    """What tells whoever looks into a callable that the call of a state is to be awaited.

    Only a state has it, not the class: otherwise State itself would be taken for a wrapper.
    """

    def __get__(self, state: Any, owner: type | None = None) -> Any:
        if state is None:
            raise AttributeError("__wrapped__")
        return state.__call__


@final
class State:
    """One step of a flow, equal only to itself; copied or unpickled it is still the same object.

    ``to`` says which states may follow: a name (of the attribute or the stored one), a State, an Enum member,
    or a collection of them.  ``[]`` means none.  Left out in every state of the flow it means any; left out
    in some it means none there.  ``initial`` is where the flow starts; ``final`` is where a dialogue is
    complete, which only the checks and drawings look at.  ``name`` is the stored text, by default the
    attribute's: give it when you rename an attribute.  ``label`` is for people, in drawings.
    """

    __slots__ = ("__weakref__", "_attribute", "_flow", "_given", "final", "initial", "label", "name", "to")

    name: str
    to: tuple[object, ...] | None
    initial: bool
    final: bool
    label: str
    _flow: FlowMeta | None
    _attribute: str
    _given: str | None

    def __init__(
        self,
        *,
        to: Target | Iterable[Target] | None = None,
        initial: bool = False,
        final: bool = False,
        name: str | None = None,
        label: str = "",
    ) -> None:
        _fill(self, to=_listed(to), initial=bool(initial), final=bool(final), label=label)
        _fill(self, name=name or "", _given=name, _flow=None, _attribute="")

    @property
    def flow(self) -> type[Flow]:
        """The flow that this state belongs to."""
        if self._flow is None:
            raise FlowError("this State belongs to no flow yet; declare it in the body of a Flow class")
        return self._flow  # type: ignore[return-value]

    def __setattr__(self, key: str, value: object) -> None:
        raise AttributeError(f"{self!r} cannot be changed: declare State(...) with what it should have")

    def __delattr__(self, key: str) -> None:
        raise AttributeError(f"{self!r} cannot be changed: declare State(...) with what it should have")

    def __copy__(self) -> State:
        return self

    def __deepcopy__(self, memo: object) -> State:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        if self._flow is None:
            raise pickle.PicklingError(
                "a State that belongs to no flow cannot be pickled; declare it in a Flow"
            )
        return _state_at, (self._flow, self._attribute)

    __wrapped__ = _Awaited()

    async def __call__(self, *event: object, turn: Any = None) -> bool:
        """Whether *turn* is in this state: this makes a state a filter wherever filters are called so."""
        if turn is None:
            raise TypeError(f"{self!r} was asked without a turn: attach a keeper, or give turn=")
        return turn.state is self

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        home = "no flow yet" if self._flow is None else self._flow.__hitherto__.name
        return f"<State {self.name} of {home}>"


Target: TypeAlias = str | State | Enum


@dataclass(frozen=True, slots=True, eq=False)
class FlowSpec:
    """All that is known of a flow, in the order of declaration; see ``spec``.

    ``states`` are by stored name; ``edges`` has every state, with the states that its ``to=`` declares;
    ``declared`` says that some state has a ``to=``, without which any step is allowed.  ``by_text`` finds a
    state by stored name or attribute, ``by_ref`` by State or Enum member (those of bases included), ``own``
    holds by attribute what this very class declares.
    """

    name: str
    version: int
    data: Any
    states: Mapping[str, State]
    initial: State | None
    edges: Mapping[State, tuple[State, ...]]
    declared: bool
    strict: bool
    overlap: Any
    abstract: bool
    by_text: Mapping[str, State]
    by_ref: Mapping[Hashable, State]
    own: Mapping[str, State]


class _Body(dict[str, object]):
    """The namespace of a class body, which remembers the states that were assigned over."""

    def __init__(self) -> None:
        super().__init__()
        self.repeated: list[str] = []

    def __setitem__(self, key: str, value: object) -> None:
        if key in self and (isinstance(value, State) or isinstance(self[key], State)):
            self.repeated.append(key)
        super().__setitem__(key, value)


class _StoredName:
    """``Signup.name`` is the stored name, unless a state is called so: a data descriptor would hide it.

    mypy takes a state called ``name`` for text all the same; it is accepted wherever a state is expected.
    """

    def __get__(self, flow: Any, owner: type | None = None) -> str:
        if flow is None:
            raise AttributeError("name")
        name: str = flow.__hitherto__.name
        return name


class FlowMeta(type):
    """What makes a class body a flow."""

    __hitherto__: FlowSpec
    name = _StoredName()

    @classmethod
    def __prepare__(cls, name: str, bases: tuple[type, ...], /, **keywords: Any) -> _Body:
        """A namespace that notices a state declared twice."""
        return _Body()

    def __new__(
        mcs,
        class_name: str,
        bases: tuple[type, ...],
        body: dict[str, Any],
        /,
        *,
        name: str | None = None,
        data: Any = None,
        version: int | None = None,
        strict: bool | None = None,
        overlap: Any = None,
        states: type[Enum] | None = None,
        abstract: bool = False,
    ) -> FlowMeta:
        """Make the flow, or raise FlowError with everything that is wrong with it."""
        cls = super().__new__(mcs, class_name, bases, dict(body))
        keywords = _Keywords(name, data, version, strict, overlap, states, abstract).inherit(cls)
        draft = _Draft(cls, keywords, body)
        for warning in draft.finish():
            warnings.warn(f"flow {class_name}: {warning}", FlowWarning, stacklevel=2)
        _flows_by_path[cls.__module__, cls.__qualname__] = cls
        return cls

    def __call__(cls, *args: object, **keywords: object) -> NoReturn:
        """Refuse: a flow is used as the class that it is."""
        name = cls.__name__
        raise TypeError(f"{name} is a flow and never instantiated; use the class, as in turn.start({name})")

    def __setattr__(cls, key: str, value: object) -> None:
        cls._keep_states(key, value)
        super().__setattr__(key, value)

    def __delattr__(cls, key: str) -> None:
        cls._keep_states(key)
        super().__delattr__(key)

    def _keep_states(cls, key: str, value: object = None) -> None:
        if isinstance(value, State) or isinstance(cls.__dict__.get(key), State) or key == "__hitherto__":
            raise AttributeError(f"the states of {cls.__name__} are fixed; declare {key!r} in the class body")

    def __iter__(cls) -> Iterator[State]:
        """The states in the order of declaration."""
        return iter(cls.__hitherto__.states.values())

    def __contains__(cls, state: object) -> bool:
        """Whether this is one of the flow's own states."""
        return isinstance(state, State) and state._flow is cls

    def __repr__(cls) -> str:
        return f"<Flow {cls.__hitherto__.name}>"

    def __format__(cls, what: str) -> str:
        """``f"{Signup:mermaid}"``, ``dot`` or ``table``: the declared graph in a stable order."""
        if not what:
            return repr(cls)
        if what not in DRAWINGS:
            there_are = f"there are {', '.join(DRAWINGS)}"
            raise ValueError(
                f"a flow has no drawing {shown(what)}{did_you_mean(what, DRAWINGS)}; {there_are}"
            )
        return DRAWINGS[what](cls.__hitherto__)


@dataclass(frozen=True, slots=True)
class _Keywords:
    """What stands behind the bases of a class statement."""

    name: str | None
    data: Any
    version: int | None
    strict: bool | None
    overlap: Any
    states: Any
    abstract: bool

    def inherit(self, cls: FlowMeta) -> _Keywords:
        """The same, with what was left out taken from the nearest base."""
        base = next((b.__hitherto__ for b in cls.__mro__[1:] if isinstance(b, FlowMeta)), None)
        return _Keywords(
            _snake(cls.__name__) if self.name is None else self.name,
            base.data if self.data is None and base else self.data,
            (base.version if base else 1) if self.version is None else self.version,
            (base.strict if base else False) if self.strict is None else self.strict,
            base.overlap if self.overlap is None and base else self.overlap,
            self.states,
            self.abstract,
        )


class _Draft:
    """A flow while it is checked: everything by attribute, nothing bound before all is known to be right."""

    def __init__(self, cls: FlowMeta, keywords: _Keywords, body: Mapping[str, object]) -> None:
        self.cls, self.keywords, self.body = cls, keywords, body
        self.problems: list[str] = []
        self.states: dict[str, State] = {}
        self.own: dict[str, State] = {}
        self.refs: dict[Hashable, str] = {}
        self.by_text: dict[str, str] = {}
        self.edges: dict[str, tuple[str, ...]] = {}

    def finish(self) -> list[str]:
        """Check, bind and return the warnings; FlowError when there is a problem."""
        self._inherit()
        self._take_enum()
        self._take_body()
        self._check_keywords()
        self._check_names()
        self._check_states()
        doubts = self._doubts() if self._resolve_edges() else []
        if self.keywords.strict:
            self.problems += doubts
        if self.problems:
            raise FlowError(f"flow {self.cls.__name__} is declared wrongly:", self.problems)
        self._bind()
        return doubts

    def _inherit(self) -> None:
        for base in reversed(self.cls.__mro__[1:]):
            if isinstance(base, FlowMeta):
                self.states |= base.__hitherto__.own
                self.refs |= {ref: state._attribute for ref, state in base.__hitherto__.by_ref.items()}
            else:
                self.states |= {key: value for key, value in vars(base).items() if isinstance(value, State)}
        self.refs |= {state: attribute for attribute, state in self.states.items()}

    def _take_enum(self) -> None:
        source = self.keywords.states
        if source is None:
            return
        if not (isinstance(source, type) and issubclass(source, Enum)):
            self.problems.append(f"states= takes an Enum class, not {_kind(source)}")
            return
        for attribute, member in source.__members__.items():
            if member.name != attribute:
                self.problems.append(
                    f"duplicate name: {shown(attribute)} and {shown(member.name)} are one member"
                )
                continue
            state = member.value if isinstance(member.value, State) else State()
            self.own[attribute] = state
            self.refs |= {_member_key(member): attribute, state: attribute}

    def _take_body(self) -> None:
        for attribute in getattr(self.body, "repeated", ()):
            self.problems.append(f"duplicate name: {shown(attribute)} is assigned twice in the class body")
        for attribute, value in self.body.items():
            if isinstance(value, State):
                self._take_state(attribute, value)
            elif value is State:
                self.problems.append(f"{shown(attribute)} is the class State itself; write State()")
            elif attribute in self.states or attribute in self.own:
                self.problems.append(f"{shown(attribute)} is a state and cannot become {_kind(value)}")
        self.states |= self.own

    def _take_state(self, attribute: str, state: State) -> None:
        known = self.refs.setdefault(state, attribute)
        text = shown(attribute)
        if state._flow is not None:
            self.problems.append(
                f"{text} is a state of {state._flow.__name__} already; give it a State() of its own"
            )
        elif known != attribute:
            self.problems.append(
                f"duplicate name: {shown(known)} and {text} are one State; give each its own"
            )
        elif attribute.startswith("__") and attribute.endswith("__"):
            self.problems.append(f"{text} is a name that Python keeps for itself; call the state otherwise")
        self.own[attribute] = state

    def _check_keywords(self) -> None:
        if problem := _bad_text(self.keywords.name):
            self.problems.append(f"name= {problem}")
        version = self.keywords.version
        if not isinstance(version, int) or isinstance(version, bool) or version < 1:
            self.problems.append(f"version= is a whole number from 1 on, not {shown(version)}")
        if not self.states and not self.keywords.abstract:
            self.problems.append(
                "no state: declare one, as in `ask = State()`; a base for other flows takes abstract=True"
            )

    def _check_names(self) -> None:
        owners: dict[str, str] = {}
        for attribute in self.states:
            name = self._stored(attribute)
            if problem := _bad_text(name):
                self.problems.append(f"state {shown(attribute)}: name= {problem}")
                continue
            owner = owners.setdefault(name, attribute)
            both = f"{shown(owner)} and {shown(attribute)}"
            if owner != attribute:
                self.problems.append(f"duplicate name: {both} are both stored as {shown(name)}")
        for name, owner in owners.items():
            if owner != name and name in self.states and self._stored(name) != name:
                self.problems.append(
                    f"duplicate name: {shown(owner)} is stored as {shown(name)}, another state's attribute"
                )
        self.by_text = {attribute: attribute for attribute in self.states} | owners

    def _stored(self, attribute: str) -> str:
        name = self.states[attribute]._given
        return attribute if name is None else name

    def _check_states(self) -> None:
        initial = [shown(attribute) for attribute, state in self.states.items() if state.initial]
        if len(initial) > 1:
            self.problems.append(
                f"two initial states: {' and '.join(initial)}; keep initial=True on one (declare an "
                "inherited one anew to change it), or on none to start in state None"
            )
        for attribute, state in self.states.items():
            label: object = state.label
            if not isinstance(label, str):
                self.problems.append(f"state {shown(attribute)}: label= is text, not {_kind(label)}")

    def _resolve_edges(self) -> bool:
        before = len(self.problems)
        order = {attribute: place for place, attribute in enumerate(self.states)}
        for attribute, state in self.states.items():
            found = {end for ref in state.to or () if (end := self._target(attribute, ref)) is not None}
            self.edges[attribute] = tuple(sorted(found, key=order.__getitem__))
        return len(self.problems) == before

    def _target(self, attribute: str, ref: object) -> str | None:
        start = shown(attribute)
        if not isinstance(ref, str | State | Enum):
            self.problems.append(f"state {start}: to= takes names, States and Enum members, not {_kind(ref)}")
            return None
        found = _find(self.refs, self.by_text, ref)
        if found is None and not self.keywords.abstract:
            text = _text_of(ref)
            guess = did_you_mean(text, self.by_text)
            self.problems.append(f"edge {start} -> {shown(text)} leads to an undeclared state{guess}")
        return found

    def _doubts(self) -> list[str]:
        if self.keywords.abstract or not self._declared:
            return []
        doubts = [
            f"state {shown(attribute)} cannot be reached from the initial one; name it in a to=, or remove it"
            for attribute in self._unreachable()
        ]
        if any(state.final for state in self.states.values()):
            doubts += [
                f"state {shown(attribute)} cannot be left although others are final; add a to=, or final=True"
                for attribute, targets in self.edges.items()
                if not self.states[attribute].final and not set(targets) - {attribute}
            ]
        return doubts

    @property
    def _declared(self) -> bool:
        return any(state.to is not None for state in self.states.values())

    def _unreachable(self) -> list[str]:
        starts = [attribute for attribute, state in self.states.items() if state.initial]
        waiting = starts or list(self.states)
        reached = set(waiting)
        while waiting:
            new = set(self.edges[waiting.pop()]) - reached
            reached |= new
            waiting += new
        return [attribute for attribute in self.states if attribute not in reached]

    def _bind(self) -> None:
        bound = {attribute: self._bound(attribute, state) for attribute, state in self.states.items()}
        for attribute, state in bound.items():
            type.__setattr__(self.cls, attribute, state)
        refs: dict[Hashable, State] = {ref: bound[attribute] for ref, attribute in self.refs.items()}
        spec = FlowSpec(
            name=str(self.keywords.name),
            version=self.keywords.version or 1,
            data=self.keywords.data,
            states=MappingProxyType({state.name: state for state in bound.values()}),
            initial=next((state for state in bound.values() if state.initial), None),
            edges=MappingProxyType(
                {bound[a]: tuple(bound[b] for b in ends) for a, ends in self.edges.items()}
            ),
            declared=self._declared,
            strict=bool(self.keywords.strict),
            overlap=self.keywords.overlap,
            abstract=self.keywords.abstract,
            by_text=MappingProxyType({text: bound[attribute] for text, attribute in self.by_text.items()}),
            by_ref=MappingProxyType(refs | {state: state for state in bound.values()}),
            own=MappingProxyType({attribute: bound[attribute] for attribute in self.own}),
        )
        type.__setattr__(self.cls, "__hitherto__", spec)

    def _bound(self, attribute: str, source: State) -> State:
        state = source if attribute in self.own and source._flow is None else _twin(source)
        _fill(state, name=self._stored(attribute), _flow=self.cls, _attribute=attribute)
        return state


def _fill(state: State, **values: object) -> None:
    for key, value in values.items():
        object.__setattr__(state, key, value)


def _twin(source: State) -> State:
    state = State.__new__(State)
    _fill(state, to=source.to, initial=source.initial, final=source.final, label=source.label)
    _fill(state, _given=source._given)
    return state


def _listed(to: Any) -> tuple[object, ...] | None:
    if to is None:
        return None
    if isinstance(to, str | State | Enum) or not isinstance(to, Iterable):
        return (to,)
    return tuple(to)


def _member_key(member: Enum) -> Hashable:
    """Type and name: members of an IntEnum are equal to those of another."""
    return type(member), member.name


def _find(by_ref: Mapping[Hashable, T], by_text: Mapping[str, T], ref: object) -> T | None:
    if isinstance(ref, State):
        return by_ref.get(ref)
    if not isinstance(ref, Enum):
        return by_text.get(ref) if isinstance(ref, str) else None
    found = by_ref.get(_member_key(ref))
    if found is None and isinstance(ref.value, str | State):
        found = _find(by_ref, by_text, ref.value)
    return by_text.get(ref.name) if found is None else found


def _text_of(ref: object) -> str:
    if isinstance(ref, State):
        return "State()" if ref._flow is None else f"{ref._flow.__hitherto__.name}.{ref.name}"
    return ref.name if isinstance(ref, Enum) else str(ref)


def _kind(value: object) -> str:
    return (
        f"the class {value.__name__}"
        if isinstance(value, type)
        else f"a value of type {type(value).__name__}"
    )


def _snake(name: str) -> str:
    pieces = []
    for place, one in enumerate(name):
        before, after = name[max(place - 1, 0) : place], name[place + 1 : place + 2]
        if one.isupper() and (before.islower() or before.isdigit() or (before.isupper() and after.islower())):
            pieces.append("_")
        pieces.append(one.lower())
    return "".join(pieces)


def _bad_text(name: object) -> str | None:
    if not isinstance(name, str):
        return f"is text, not {_kind(name)}"
    if not name.strip():
        return "is empty; give it at least one visible character"
    if plain(name) != name:
        return f"has control characters: {shown(name)}; take them out"
    return None


_flows_by_path: WeakValueDictionary[tuple[str, str], FlowMeta] = WeakValueDictionary()


class Flow(metaclass=FlowMeta, abstract=True):
    """A declared dialogue: subclass it and give it states; see the module's docstring.

    Keywords of the class statement: ``name`` (the stored text; ``sign_up`` for ``SignUp`` by default),
    ``data`` (the class of the data; a dict without it), ``version`` (stored with the record, 1 by default),
    ``strict`` (warnings become errors), ``overlap`` (this flow's overlap policy), ``states`` (an Enum),
    ``abstract`` (only a base).
    """


def spec(flow: type[Flow]) -> FlowSpec:
    """All that is known of a flow."""
    try:
        return flow.__hitherto__
    except AttributeError:
        raise TypeError(f"{_kind(flow)} is not a flow; give the class itself, a subclass of Flow") from None


def resolve(flow: type[Flow], state: Target) -> State:
    """The flow's own State for a State, an Enum member, a stored name or an attribute's; else UnknownState.

    A State of a base of the flow stands for the copy that the flow inherited.
    """
    if isinstance(state, State) and state._flow is flow:
        return state
    about = spec(flow)
    found = _find(about.by_ref, about.by_text, state)
    if found is None:
        raise UnknownState(about.name, _text_of(state), tuple(about.states))
    return found


def allowed(from_: State | None, to: State) -> bool:
    """Whether the flow of ``to`` declares this step.

    Any step is, in a flow without a single ``to=``; a step from a state to itself is declared like any
    other.  From state None it is the initial state, or any state when the flow has no initial one.  States of
    different flows never follow each other: that is ``start``.
    """
    about = to.flow.__hitherto__
    if from_ is None:
        return not about.declared or about.initial is None or to is about.initial
    return from_._flow is to._flow and (not about.declared or to in about.edges[from_])


def targets(flow: type[Flow], from_: State | None) -> tuple[State, ...]:
    """The states that may follow, in the order of declaration: those for which ``allowed`` is true."""
    return tuple(state for state in flow if allowed(from_, state))


def refusal(
    flow: type[Flow] | None, from_: State | type[Flow] | None, to: State | type[Flow]
) -> InvalidTransition:
    """The error for a step that is not allowed, with the ways that are."""
    if flow is None or isinstance(from_, type):
        return InvalidTransition(flow, from_, to)
    return InvalidTransition(flow, from_, to, targets(flow, from_))


class FlowRegistry:
    """The flows that a keeper knows, by their stored names."""

    def __init__(self, flows: Iterable[type[Flow]] = ()) -> None:
        self._flows: dict[str, type[Flow]] = {}
        problems: list[str] = []
        for flow in flows:
            problem = self._unfit(flow)
            if problem:
                problems.append(problem)
            else:
                self._flows[spec(flow).name] = flow
        if problems:
            raise FlowError("these flows cannot be used together:", problems)

    def _unfit(self, flow: object) -> str | None:
        if not isinstance(flow, FlowMeta):
            return f"flows are subclasses of Flow, not {_kind(flow)}"
        name = flow.__hitherto__.name
        if flow.__hitherto__.abstract:
            return f"{flow.__name__} is abstract: list the flows made from it"
        if self._flows.get(name, flow) is not flow:
            both = f"{self._flows[name].__name__} and {flow.__name__}"
            return f"{both} are both stored as {shown(name)}; give one a name="
        return None

    def by_name(self, name: str) -> type[Flow]:
        """The flow that is stored under this name, or UnknownFlow."""
        try:
            return self._flows[name]
        except KeyError:
            raise UnknownFlow(name, tuple(self._flows)) from None

    def check(self, flow: type[Flow] | str) -> type[Flow]:
        """The flow itself, given as class or by name, if it is registered; else UnknownFlow."""
        if isinstance(flow, str):
            return self.by_name(flow)
        name = spec(flow).name
        if self._flows.get(name) is not flow:
            raise UnknownFlow(name, tuple(self._flows))
        return flow

    def state(self, flow: type[Flow] | str, name: str | None) -> State | None:
        """The state that is stored under this name; None is state None; else UnknownState."""
        if name is None:
            return None
        about = spec(self.check(flow))
        try:
            return about.states[name]
        except KeyError:
            raise UnknownState(about.name, name, tuple(about.states)) from None

    def resolve(self, flow: type[Flow] | str, state: Target) -> State:
        """The flow's State for a State, an Enum member or a name; the flow has to be registered."""
        return resolve(self.check(flow), state)

    def __iter__(self) -> Iterator[type[Flow]]:
        return iter(self._flows.values())

    def __len__(self) -> int:
        return len(self._flows)

    def __contains__(self, flow: object) -> bool:
        return any(flow is known for known in self._flows.values())

    def __repr__(self) -> str:
        return f"FlowRegistry({', '.join(self._flows)})"


def diagram(flow: type[Flow], current: Target | None = None) -> str:
    """The flow for a terminal, one state a line, ``=>`` before the current one."""
    return drawings.lines(spec(flow), None if current is None else resolve(flow, current))


def _state_at(flow: FlowMeta, attribute: str) -> State:
    state = flow.__dict__.get(attribute)
    if not isinstance(state, State):
        raise UnknownState(flow.__hitherto__.name, attribute, tuple(flow.__hitherto__.states))
    return state


def _flow_at(module: str, path: str) -> FlowMeta:
    with suppress(ImportError):
        importlib.import_module(module)
    flow = _flows_by_path.get((module, path))
    if flow is None:
        raise FlowError(
            f"flow {path} of module {module} is declared in a function that has not run in this process; "
            "move it to the top level of its module"
        )
    return flow


def _reduce_flow(flow: FlowMeta) -> str | tuple[Any, ...]:
    found: object = sys.modules.get(flow.__module__)
    for part in flow.__qualname__.split("."):
        found = getattr(found, part, None)
    if found is flow:
        return flow.__qualname__
    if _flows_by_path.get((flow.__module__, flow.__qualname__)) is flow:
        return _flow_at, (flow.__module__, flow.__qualname__)
    raise pickle.PicklingError(
        f"{flow.__qualname__} of module {flow.__module__} was declared again since; "
        "declare it once, at the top level of its module"
    )


copyreg.pickle(FlowMeta, _reduce_flow)
