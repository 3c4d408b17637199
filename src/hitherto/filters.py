"""Questions about where a conversation is, usable as filters: true or false of a turn.

Each adapter turns these into the filters of its framework; on their own they are plain callables.
"""

from __future__ import annotations

from typing import Any

from hitherto.flows import Flow, State
from hitherto.turns import Turn


class InFlow:
    """In one of these flows; without any named, in any flow at all."""

    def __init__(self, *flows: type[Flow]) -> None:
        self.flows = flows

    def __call__(self, turn: Turn) -> bool:
        return turn.flow in self.flows if self.flows else turn.flow is not None


class InState:
    """In one of these states."""

    def __init__(self, *states: State) -> None:
        if not states:
            raise ValueError("InState() needs at least one state; for any flow at all use InFlow()")
        self.states = states

    def __call__(self, turn: Turn) -> bool:
        return turn.state in self.states


class NoFlow:
    """In no flow."""

    def __call__(self, turn: Turn) -> bool:
        return turn.flow is None


class DataIs:
    """The data holds these values under these keys."""

    def __init__(self, **values: Any) -> None:
        if not values:
            raise ValueError("DataIs() needs at least one key=value")
        self.values = values

    def __call__(self, turn: Turn) -> bool:
        data = turn.data
        if isinstance(data, dict):
            return all(key in data and data[key] == value for key, value in self.values.items())
        return all(getattr(data, key, self) == value for key, value in self.values.items())
