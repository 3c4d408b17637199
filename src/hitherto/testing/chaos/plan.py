"""What a run is to do: how much of everything, and what else may go wrong than workers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec


class Plan(msgspec.Struct, frozen=True):
    """How much of everything.

    Without a *duration* the run does all its kills, pauses and faults once and is over, at the latest after
    *seconds*. With one it goes on for so long: kills and pauses come in the proportion of their numbers,
    *between* seconds apart on average, and beside them the faults in turn with *calm* seconds between two.

    *length*: after so many events a conversation is over and another begins. *slack*: how much later than
    lease + sweep + 2 s a conversation may be recovered after a kill on a machine that is busy with other
    things. *patience*: after so many seconds without an answer an event is delivered once more.
    *lossy*: the servers may lose the newest commits (a failover of Redis). *ready*: only workers that
    have started get events and are harmed; they are waited for.
    """

    workers: int = 4
    conversations: int = 12
    kills: int = 300
    pauses: int = 0
    duplicate: float = 0.10
    reorder: float = 0.05
    seconds: float = 600.0
    between: float = 0.05
    pause: float = 1.0
    length: int = 300
    duration: float = 0.0
    calm: float = 3.0
    slack: float = 20.0
    lossy: bool = False
    patience: float = 0.5
    ready: bool = False


class Fault(msgspec.Struct, frozen=True):
    """Something that goes wrong with the store or the way there.

    ``do`` gets the run, and comes back when all is well again; for ``grace`` seconds more the workers may
    still be waiting for answers that will not come.
    """

    name: str
    do: Callable[[Any], Awaitable[object]]
    grace: float = 0.0


def named(fault: Fault | Callable[[], Awaitable[object]]) -> Fault:
    """A fault as such; a plain function is one of its own name."""
    if isinstance(fault, Fault):
        return fault
    return Fault(getattr(fault, "__name__", "fault"), lambda _run: fault())
