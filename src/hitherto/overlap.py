"""What happens to an event that arrives while its conversation is busy: five policies, plain frozen values.

A policy is given to a keeper, to a flow, or returned by a function of the event. The protocol reads it;
nothing here acts by itself.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

OnFull: TypeAlias = Literal["reject", "drop_oldest", "drop_newest"]


class Reject(msgspec.Struct, frozen=True, tag="reject"):
    """Refuse it as busy and leave no mark: a redelivery is handled later."""


class Queue(msgspec.Struct, frozen=True, tag="queue"):
    """Let it wait its turn, at most *limit* waiting, each for at most *expires* seconds.

    At the limit ``on_full`` decides: ``"reject"`` refuses it without a mark, ``"drop_oldest"`` and
    ``"drop_newest"`` give one up for good (counted, logged and marked as seen).
    """

    limit: int = 100
    on_full: OnFull = "reject"
    expires: float | None = None

    def __post_init__(self) -> None:
        _at_least_one("Queue", self.limit)
        if self.on_full not in ("reject", "drop_oldest", "drop_newest"):
            raise ValueError(f"Queue(on_full={self.on_full!r}): use 'reject', 'drop_oldest' or 'drop_newest'")
        if self.expires is not None and self.expires <= 0:
            raise ValueError(f"Queue(expires={self.expires!r}): seconds above zero, or None")


class Debounce(msgspec.Struct, frozen=True, tag="debounce"):
    """Only the newest counts: it replaces the debounced event that waits and restarts the window."""

    window: float = 1.0

    def __post_init__(self) -> None:
        _not_negative("Debounce", self.window)


class Burst(msgspec.Struct, frozen=True, tag="burst"):
    """Fold what waits into one turn: the newest event, the others in ``turn.skipped``, oldest first.

    The window opens with the first event that has to wait; ``Burst(0)`` folds whatever arrived during the
    running turn. With ``gather=True`` a free conversation waits for the window too, so that an album is one
    turn.
    """

    window: float = 0.0
    limit: int = 100
    gather: bool = False

    def __post_init__(self) -> None:
        _not_negative("Burst", self.window)
        _at_least_one("Burst", self.limit)


class Concurrent(msgspec.Struct, frozen=True, tag="concurrent"):
    """Run it at once beside the others, without a lease; at most *limit* of a conversation, then busy."""

    limit: int = 10

    def __post_init__(self) -> None:
        _at_least_one("Concurrent", self.limit)


Policy: TypeAlias = Reject | Queue | Debounce | Burst | Concurrent


class ByFlow(msgspec.Struct, frozen=True, tag="by_flow"):
    """A policy for each flow that has its own, by the flow's stored name, and one for everything else."""

    default: Policy
    flows: dict[str, Policy]


Overlap: TypeAlias = Policy | ByFlow


def _at_least_one(name: str, limit: int) -> None:
    if limit < 1:
        raise ValueError(f"{name}(limit={limit!r}): at least 1")


def _not_negative(name: str, window: float) -> None:
    if not window >= 0:
        raise ValueError(f"{name}(window={window!r}): seconds, zero or more")
