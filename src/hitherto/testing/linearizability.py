"""Is there an order? A checker for concurrent histories of one object, whatever the object is.

A history is linearizable when every call can be given one moment between its invocation and its return, so
that in the order of those moments a sequential object answers just what was answered. A call whose outcome
is unknown (its reply was lost) may have had its moment at any time after its invocation, or never.

The search goes through the history in time and keeps every configuration that is still possible: a state of
the object, and which of the open calls have had their moment. When a call returns, only configurations
survive in which it has. Three things keep this small. Configurations are remembered. Of two that differ only
in which lost calls they used up, the thriftier is enough. And a call whose answer says that it changed
nothing has its moment as soon as that answer fits, which takes nothing from the others. (A call that merely
happens to change nothing now, like removing what is not there, must stay free to have it later.)
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final, Generic, Literal, NamedTuple, TypeVar

__all__ = ["UNKNOWN", "Call", "Verdict", "check"]

S = TypeVar("S")

UNKNOWN: Final = object()
"""The answer of a call whose reply was lost."""


class Call(NamedTuple, Generic[S]):
    """One call: when it began and ended (``None``: never heard of again), what it does to the object, and its
    answer.

    *change* is the sequential object: the state after the call, and the answer it would give. *idle*: whoever
    gets this answer knows that nothing was changed.
    """

    what: str
    invoked: int
    returned: int | None
    change: Callable[[S], tuple[S, Any]]
    answer: Any
    idle: bool = False


class Verdict(NamedTuple):
    """What was found; *at* is the call that nobody can explain, *configurations* how many were looked at."""

    outcome: Literal["linearizable", "violation", "undecided"]
    at: str = ""
    configurations: int = 0

    def __bool__(self) -> bool:
        return self.outcome == "linearizable"


Place = tuple[Hashable, frozenset[int]]
"""A configuration: the state's identity, and the open calls that have had their moment."""


class _Object(Generic[S]):
    """The sequential object, with everything it was ever asked remembered."""

    def __init__(self, calls: Sequence[Call[S]], identity: Callable[[S], Hashable]) -> None:
        self._calls, self._identity = calls, identity
        self.lost = frozenset([number for number, call in enumerate(calls) if call.answer is UNKNOWN])
        self._states: dict[Hashable, S] = {}
        self._after: dict[tuple[Hashable, int], Hashable | None] = {}

    def meet(self, state: S) -> Hashable:
        """The identity of a state, by which it is found again."""
        identity = self._identity(state)
        self._states.setdefault(identity, state)
        return identity

    def is_idle(self, number: int) -> bool:
        """Whether a call changes nothing wherever its answer fits."""
        return self._calls[number].idle

    def after(self, place: Hashable, number: int) -> Hashable | None:
        """The state after a call that answers what was answered; ``None`` if it would answer otherwise."""
        found = self._after.get((place, number), UNKNOWN)
        if found is UNKNOWN:
            call = self._calls[number]
            state, answer = call.change(self._states[place])
            fits = call.answer is UNKNOWN or answer == call.answer
            found = self._after[place, number] = self.meet(state) if fits else None
        return found


def check(
    calls: Sequence[Call[S]], start: S, identity: Callable[[S], Hashable], limit: int = 200_000
) -> Verdict:
    """Whether the calls, in any order, are those of one object that was in the state *start*.

    *identity* tells states apart. After *limit* configurations the search gives up: ``undecided``.
    """
    thing, seen = _Object(calls, identity), 0
    possible: set[Place] = {(thing.meet(start), frozenset())}
    running: set[int] = set()
    for _, ends, number in sorted(_points(calls)):
        if not ends:
            running.add(number)
            continue
        possible, looked = _returned(thing, possible, running, number, limit - seen)
        running.discard(number)
        seen += looked
        if seen >= limit:
            return Verdict("undecided", calls[number].what, seen)
        if not possible:
            return Verdict("violation", calls[number].what, seen)
    return Verdict("linearizable", "", seen)


def _points(calls: Sequence[Call[Any]]) -> list[tuple[int, bool, int]]:
    began = [(call.invoked, False, number) for number, call in enumerate(calls)]
    ended = [(call.returned, True, number) for number, call in enumerate(calls) if call.returned is not None]
    return began + ended


def _returned(
    thing: _Object[Any], possible: set[Place], running: set[int], number: int, limit: int
) -> tuple[set[Place], int]:
    """The configurations in which the call *number* has had its moment, and how many were looked at."""
    survivors: set[Place] = set()
    seen = _Seen(thing.lost)
    stack = [step for step in possible if seen.add(step)]
    while stack and seen.number < limit:
        place, done = stack.pop()
        if number in done:
            survivors.add((place, done - {number}))
            continue
        steps = [(call, thing.after(place, call)) for call in running - done]
        settled = done.union(call for call, after in steps if after == place and thing.is_idle(call))
        if number in settled:
            survivors.add((place, settled - {number}))
            continue
        for call, after in steps:
            if after is None or call in settled or (after == place and call in thing.lost):
                continue
            step = (after, settled | {call})
            if seen.add(step):
                stack.append(step)
    return survivors, seen.number


class _Seen:
    """The configurations looked at. One that used up more of the lost calls than another, and is like it in
    all else, can do nothing that the other cannot: it is not looked at.
    """

    def __init__(self, lost: frozenset[int]) -> None:
        self._lost = lost
        self._used: dict[Place, list[frozenset[int]]] = {}
        self.number = 0

    def add(self, step: Place) -> bool:
        """Whether this one has to be looked at."""
        place, done = step
        used = done & self._lost
        others = self._used.setdefault((place, done - used), [])
        if any(other <= used for other in others):
            return False
        others.append(used)
        self.number += 1
        return True
