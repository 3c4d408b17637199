"""The turns that run in this process, and the leases they hold: renewed together, told when they are lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Literal, TypeAlias

from hitherto.addresses import Address
from hitherto.protocol import Grant, Terms
from hitherto.stores.base import Store
from hitherto.turns import Turn

Handler: TypeAlias = Callable[[Turn], Awaitable[object]]
OnLost: TypeAlias = Literal["continue", "cancel"]


class Running:
    """One turn that runs: by which grant, with which events and handler, in which task.

    ``over``: the handler has ended, nothing interrupts the task any more. ``leased`` is false for the turn of
    an event without a key, which holds nothing.
    """

    __slots__ = (
        "address", "cancelled", "claim", "events", "grant", "handler", "leased", "over", "started", "task",
        "turn",
    )  # fmt: skip

    def __init__(self, address: Address, grant: Grant, started: float, leased: bool = True) -> None:
        self.address = address
        self.grant = grant
        self.claim = grant.claim
        self.started = started
        self.leased = leased
        self.task = asyncio.current_task()
        self.cancelled = False
        self.over = False
        self.events: list[Any] = []
        self.handler: Handler | None = None
        self.turn: Turn | None = None

    @property
    def lost(self) -> bool:
        """Whether the lease is known to be lost."""
        return self.turn is not None and self.turn.lost

    def cancel(self) -> None:
        """Interrupt the handler, unless it has ended, or asks for this itself."""
        task = self.task
        if task is not None and not self.cancelled and not self.over and task is not asyncio.current_task():
            self.cancelled = True
            task.cancel()

    def end(self, error: BaseException | None = None) -> bool:
        """The handler has ended; an interruption of ours is taken back. Whether it ended because of that."""
        self.over = True
        if not self.cancelled or self.task is None:
            return False
        self.task.uncancel()
        return isinstance(error, asyncio.CancelledError)

    @property
    def unwanted(self) -> bool:
        """Whether somebody else cancels the task as well."""
        return self.task is not None and self.task.cancelling() > 0


class Leases:
    """All running turns of a keeper."""

    def __init__(self, on_lost: OnLost) -> None:
        if on_lost not in ("continue", "cancel"):
            raise ValueError(f"on_lost={on_lost!r}: 'continue' or 'cancel'")
        self._on_lost = on_lost
        self._running: set[Running] = set()
        self.add = self._running.add
        self.remove = self._running.discard

    def __len__(self) -> int:
        return len(self._running)

    def __iter__(self) -> Iterator[Running]:
        return iter(tuple(self._running))

    async def renew(self, store: Store, terms: Terms) -> tuple[list[Running], list[Running]]:
        """Renew all of them in one trip: those that hold on, and those whose lease is lost."""
        batch = [running for running in self if running.leased]
        if not batch:
            return [], []
        held = await store.renew([(running.address, running.claim) for running in batch], terms)
        kept: list[Running] = []
        lost: list[Running] = []
        for running, good in zip(batch, held, strict=True):
            if running not in self._running:
                continue
            if good:
                kept.append(running)
            elif not running.over and not running.lost:
                lost.append(running)
        for running in lost:
            self._lose(running)
        return kept, lost

    def _lose(self, running: Running) -> None:
        """Tell the turn, and cancel its handler if that is asked for."""
        if running.turn is not None:
            running.turn.lost = True
        if self._on_lost == "cancel":
            running.cancel()
