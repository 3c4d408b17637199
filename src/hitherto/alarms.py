"""When somebody has to look at a conversation again although nothing happens: a window ends, a retry is due.

Only a hint that saves waiting for the sweeper: an alarm that is lost or rings for nothing does no harm.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from math import inf

from hitherto import addresses
from hitherto.addresses import Address

_SAME = 0.001


class Alarms:
    """One alarm for each conversation, the earliest first; *wake* is called when one is earlier than all."""

    def __init__(self) -> None:
        self.due: dict[str, tuple[float, Address]] = {}
        self.wake: Callable[[], object] | None = None
        self._heap: list[tuple[float, str]] = []

    def __len__(self) -> int:
        return len(self.due)

    @property
    def next(self) -> float:
        """When the earliest rings; infinity when there is none."""
        heap = self._heap
        while heap:
            at, text = heap[0]
            known = self.due.get(text)
            if known is not None and known[0] == at:
                return at
            heapq.heappop(heap)
        return inf

    def set(self, address: Address, at: float) -> None:
        """Ring for this conversation at *at*, and not at the time set before."""
        text = addresses.encode(address)
        known = self.due.get(text)
        if known is not None and abs(known[0] - at) < _SAME:
            return
        earliest = self.next
        self.due[text] = (at, address)
        heapq.heappush(self._heap, (at, text))
        if at < earliest and self.wake is not None:
            self.wake()

    def drop(self, address: Address) -> None:
        """Not for this conversation."""
        if not self.due:
            return
        text = addresses.encode(address)
        if text in self.due:
            del self.due[text]
            if not self.due:
                self._heap.clear()

    def ring(self, now: float) -> Address | None:
        """The earliest that is due, taken out; None when none is."""
        if self.next > now:
            return None
        _, text = heapq.heappop(self._heap)
        return self.due.pop(text)[1]
