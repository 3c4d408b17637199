"""The turns that run in this process, and the leases they hold: renewed together, told when they are lost."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Literal, TypeAlias

from hitherto.addresses import Address
from hitherto.protocol import Claim, Terms
from hitherto.stores.base import Store
from hitherto.turns import Turn

OnLost: TypeAlias = Literal["continue", "cancel"]


class Running:
    """One turn that runs: whose it is, what it may commit with, and the task that can be cancelled."""

    __slots__ = ("address", "cancelled", "claim", "settling", "started", "task", "turn")

    def __init__(self, address: Address, claim: Claim, turn: Turn, started: float) -> None:
        self.address = address
        self.claim = claim
        self.turn = turn
        self.started = started
        self.task = asyncio.current_task()
        self.cancelled = False
        self.settling = False

    def cancel(self) -> None:
        """Interrupt the handler, unless it has returned; whoever runs it takes the cancellation back."""
        if self.task is not None and not self.cancelled and not self.settling:
            self.cancelled = True
            self.task.cancel()

    async def returned(self) -> None:
        """The handler has returned: from here on nothing is interrupted, and a late interruption is taken
        back.
        """
        self.settling = True
        if self.cancelled and self.task is not None:
            try:
                await asyncio.sleep(0)
            except asyncio.CancelledError:
                self.task.uncancel()


class Leases:
    """All running turns of a keeper."""

    def __init__(self, on_lost: OnLost) -> None:
        if on_lost not in ("continue", "cancel"):
            raise ValueError(f"on_lost={on_lost!r}: 'continue' or 'cancel'")
        self._on_lost = on_lost
        self._running: set[Running] = set()

    def __len__(self) -> int:
        return len(self._running)

    def __iter__(self) -> Iterator[Running]:
        return iter(tuple(self._running))

    def add(self, running: Running) -> None:
        """It runs."""
        self._running.add(running)

    def remove(self, running: Running) -> None:
        """It is over."""
        self._running.discard(running)

    async def renew(self, store: Store, terms: Terms) -> tuple[list[Running], list[Running]]:
        """Renew all of them in one trip: those that hold on, and those whose lease is lost."""
        batch = list(self)
        if not batch:
            return [], []
        held = await store.renew([(running.address, running.claim) for running in batch], terms)
        kept: list[Running] = []
        lost: list[Running] = []
        for running, good in zip(batch, held, strict=True):
            if running not in self._running:
                continue
            (kept if good else lost).append(running)
        for running in lost:
            self.lose(running)
        return kept, lost

    def lose(self, running: Running) -> None:
        """Tell the turn, and cancel its handler if that is asked for."""
        if not running.turn.lost:
            running.turn.lost = True
            if self._on_lost == "cancel":
                running.cancel()
