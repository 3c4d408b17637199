"""The turn: what a handler holds while it handles one event.

Its verbs change memory only. When the handler returns, :meth:`Turn.patch` says what really changed - found by
comparing encoded fields, so that a nested mutation is noticed and an unchanged turn writes nothing - and the
keeper commits it in one step. A handler that raises commits nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Literal, TypeAlias

from hitherto import codec
from hitherto.addresses import Key
from hitherto.codec import EMPTY_FIELDS, Fields, Shape
from hitherto.errors import DataError, InvalidTransition, UnknownFlow, UnknownState
from hitherto.flows import Flow, FlowRegistry, State, Target, allowed, refusal, resolve, spec
from hitherto.records import BLANK, NO_PATCH, Patch, Record, Stored, difference

OnInvalid: TypeAlias = Literal["raise", "log", "ignore"] | Callable[["Turn", Any, Any], object]
OnUnknown: TypeAlias = (
    Literal["raise", "reset"] | Callable[[Record, UnknownFlow | UnknownState], State | None]
)
Place: TypeAlias = tuple[type[Flow] | None, State | None]

_log = logging.getLogger("hitherto")


@lru_cache(maxsize=512)
def shape_of(flow: type[Flow] | None) -> Shape:
    """How the data of a flow travels; of no flow: a plain dict."""
    return Shape(None if flow is None else spec(flow).data)


class Rules:
    """What a keeper's turns share: its flows, and what it does about the invalid and the unknown."""

    __slots__ = ("_places", "flows", "on_invalid", "on_unknown")

    def __init__(
        self, flows: FlowRegistry, on_invalid: OnInvalid = "raise", on_unknown: OnUnknown = "raise"
    ) -> None:
        if on_invalid not in ("raise", "log", "ignore") and not callable(on_invalid):
            raise ValueError(f"on_invalid_transition={on_invalid!r}: 'raise', 'log', 'ignore' or a function")
        if on_unknown not in ("raise", "reset") and not callable(on_unknown):
            raise ValueError(
                f"on_unknown_state={on_unknown!r}: 'raise', 'reset' or a function (record, error)"
            )
        self.flows = flows
        self.on_invalid = on_invalid
        self.on_unknown = on_unknown
        self._places: dict[tuple[str | None, str | None], Place] = {(None, None): (None, None)}

    def place(self, stored: Stored) -> Place:
        """The flow and state that a stored record names, by the policy for unknown ones."""
        names = stored.flow, stored.state
        return self._places.get(names) or self._found(stored, names)

    def _found(self, stored: Stored, names: tuple[str | None, str | None]) -> Place:
        if stored.flow is None:
            return None, None
        try:
            flow = self.flows.by_name(stored.flow)
            self._places[names] = found = flow, self.flows.state(flow, stored.state)
            return found
        except (UnknownFlow, UnknownState) as error:
            if self.on_unknown == "raise":
                raise
            wanted = self.on_unknown(stored.to_record(), error) if callable(self.on_unknown) else None
            return (None, None) if wanted is None else (self.flows.check(wanted.flow), wanted)


class Turn:
    """The handling of one event (or one burst of them): the conversation's record, to be changed freely.

    ``event`` is the event; ``skipped`` are those folded into it, oldest first; ``attempt`` says how often it
    was tried, from 1; ``lost`` becomes true when the lease is lost, and then the commit will be refused.
    """

    __slots__ = (
        "_baseline", "_before", "_cleared", "_data", "_fields", "_flow", "_rules", "_state", "_stored",
        "attempt", "bot", "epoch", "event", "event_id", "key", "lost", "skipped",
    )  # fmt: skip

    def __init__(
        self,
        rules: Rules,
        bot: str,
        key: Key,
        stored: Stored | None,
        event: Any = None,
        event_id: str | None = None,
        skipped: tuple[Any, ...] = (),
        attempt: int = 1,
        epoch: int = 0,
    ) -> None:
        self._rules = rules
        self._stored = BLANK if stored is None else stored
        self._fields: Fields = self._stored.fields
        self._before: Fields = self._fields
        self._baseline: Fields | None = None
        self._data: Any = None
        self._cleared = False
        self._flow, self._state = rules.place(self._stored)
        if self._flow is None and self._stored.flow is not None:
            self._empty()
        self.bot = bot
        self.key = key
        self.event = event
        self.event_id = event_id
        self.skipped = skipped
        self.attempt = attempt
        self.epoch = epoch
        self.lost = False

    def __repr__(self) -> str:
        flow, state = self.place
        return f"Turn(flow={flow!r}, state={state!r}, attempt={self.attempt}, lost={self.lost})"

    # -------------------------------------------------------------------------------------- what is there

    @property
    def flow(self) -> type[Flow] | None:
        """The active flow, or None."""
        return self._flow

    @property
    def state(self) -> State | None:
        """The state it is in, or None."""
        return self._state

    @property
    def data(self) -> Any:
        """A dict, or an instance of the flow's data class; mutate it freely."""
        if self._baseline is None:
            self._load()
        return self._data

    @data.setter
    def data(self, value: Any) -> None:
        self._replace(value)

    @property
    def place(self) -> tuple[str | None, str | None]:
        """The stored names of flow and state, as they are now."""
        flow, state = self._flow, self._state
        return (None if flow is None else spec(flow).name), (None if state is None else state.name)

    @property
    def record(self) -> Record:
        """Flow, state and data as they would be stored now, as plain values of your own."""
        flow = self._flow
        name, version = (None, 1) if flow is None else (spec(flow).name, spec(flow).version)
        return Record(
            name, None if self._state is None else self._state.name, codec.decode(self._now()), version
        )

    # --------------------------------------------------------------------------------------------- verbs

    def start(self, flow: type[Flow], **data: Any) -> None:
        """Enter *flow* at its initial state with empty data (or *data*); starting the active one restarts it.

        Starting a flow while another is active is an invalid transition: clear() first, or force().
        """
        flow = self._rules.flows.check(flow)
        initial = spec(flow).initial
        other = self._flow
        if other is not None and other is not flow and not self._permitted(refusal(other, other, flow)):
            return
        shape = shape_of(flow)
        fields = shape.encode(shape.empty(data)) if data else EMPTY_FIELDS
        self._empty()
        self._flow, self._state, self._fields = flow, initial, fields

    def transition(self, to: Target) -> None:
        """Go to *to*, if the active flow declares that step."""
        target = self._target(to)
        if target is not None and (
            (target.flow is self._flow and allowed(self._state, target))
            or self._permitted(refusal(self._flow, self._state, target))
        ):
            self._go(target)

    def set_state(self, to: Target) -> None:
        """Go to any state of the active flow, declared step or not."""
        target = self._target(to)
        if target is not None and (
            target.flow is self._flow or self._permitted(refusal(self._flow, self._state, target))
        ):
            self._go(target)

    def force(self, flow: type[Flow], state: Target | None = None) -> None:
        """Be in *state* of *flow*, whatever was before; the data stays.  Only the flow must be known."""
        flow = self._rules.flows.check(flow)
        target = None if state is None else resolve(flow, state)
        if flow is not self._flow:
            self._switch(flow)
        self._state = target

    def update_data(self, new: Mapping[str, Any] | None = None, /, **values: Any) -> None:
        """Merge values into the data; what cannot be stored is refused here, and nothing is changed."""
        together = {**new, **values} if new else values
        shape = shape_of(self._flow)
        if shape.cls is None:
            self._merge(together)
            return
        data = self.data
        if isinstance(data, dict):
            shape.encode({**data, **together})
            data.update(together)
            return
        changed = shape.changed(data, together)
        shape.encode(changed)
        try:
            for name, value in together.items():
                setattr(data, name, value)
        except (AttributeError, ValueError):
            self._data = changed

    def _merge(self, new: dict[str, Any]) -> None:
        """Into plain data, which stays encoded for as long as nobody looks at it."""
        fields = codec.encode(new)
        if self._baseline is None:
            together = {**self._fields, **fields}
            codec.check_size(together)
            self._fields = together
        else:
            dict.update(self._data, new)

    def clear(self) -> None:
        """Leave the flow and forget the data."""
        self._empty()
        self._flow = self._state = None

    def revert(self) -> None:
        """Forget every change: be as the turn began."""
        self._fields = self._before = self._stored.fields
        self._data, self._baseline, self._cleared = None, None, False
        self._flow, self._state = self._rules.place(self._stored)
        if self._flow is None and self._stored.flow is not None:
            self._empty()

    def as_it_began(self) -> Turn:
        """Another turn, without the changes: where the event found the conversation."""
        return Turn(
            self._rules, self.bot, self.key, self._stored, self.event, self.event_id, self.skipped,
            self.attempt, self.epoch,
        )  # fmt: skip

    # ------------------------------------------------------------------------------------------- the commit

    def patch(self) -> Patch:
        """What the turn changed; a DataError names what cannot be stored."""
        fields, removed = difference(self._before, self._now())
        flow_name, state_name = self.place
        version = 1 if self._flow is None else spec(self._flow).version
        stored = self._stored
        moved = (flow_name, state_name) != (stored.flow, stored.state) or (
            bool(fields or removed) and version != stored.version
        )
        if self._cleared:
            if flow_name is None and not fields:
                return NO_PATCH if stored is BLANK else Patch(cleared=True)
            return Patch(fields, removed, True, flow_name, state_name, version, True)
        if moved:
            return Patch(fields, removed, True, flow_name, state_name, version)
        return Patch(fields, removed) if fields or removed else NO_PATCH

    def _now(self) -> Fields:
        """The fields as they are now; only a data object that somebody looked at is encoded again."""
        if self._baseline is None:
            return self._fields
        after = shape_of(self._flow).encode(self._data)
        if shape_of(self._flow).cls is None:
            return after
        changed, removed = difference(self._baseline, after)
        fields = {**self._fields, **changed}
        for key in removed:
            fields.pop(key, None)
        return fields

    def _load(self) -> None:
        shape = shape_of(self._flow)
        data = shape.decode(self._fields)
        self._data = codec.Data(data) if shape.cls is None else data
        self._baseline = self._fields if shape.cls is None else shape.encode(data)

    def _replace(self, value: Any) -> None:
        """Another data object, refused at once when it cannot be stored; what is stored may be wrong."""
        shape_of(self._flow).encode(value)
        if self._baseline is None:
            try:
                self._load()
            except DataError:
                self._baseline = self._fields
        self._data = value

    def _go(self, target: State) -> None:
        if target.flow is not self._flow:
            self._switch(target.flow)
        self._state = target

    def _switch(self, flow: type[Flow]) -> None:
        """Another flow over the same data: what was typed by the old one is read again by the new one."""
        self._fields = self._now()
        self._data, self._baseline = None, None
        self._flow = flow

    def _empty(self) -> None:
        self._cleared = True
        self._fields = self._before = EMPTY_FIELDS
        self._data, self._baseline = None, None

    def _target(self, to: Target) -> State | None:
        """A State is itself; a name or an Enum member is one of the active flow's."""
        flow = self._flow
        if isinstance(to, State):
            if flow is not None and issubclass(flow, to.flow):
                return resolve(flow, to)
            return self._rules.flows.resolve(to.flow, to)
        if flow is not None:
            return resolve(flow, to)
        self._permitted(InvalidTransition(None, None, None))
        return None

    def _permitted(self, error: InvalidTransition) -> bool:
        """Apply the policy for an invalid step; true when the user's own function allows it after all."""
        policy = self._rules.on_invalid
        if policy == "raise":
            raise error
        if policy == "log":
            _log.warning("transition.invalid %s", error)
        elif callable(policy):
            return policy(self, error.from_, error.to) is True
        return False
