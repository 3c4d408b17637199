"""The event objects that wait in this process, and the handlers they came with.

What the store keeps is the JSON of an update. While the process lives, a queued event is handled as the very
object it came as, by the handler it came with; after a crash it is decoded, and the keeper's own handler runs
it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias

import msgspec

from hitherto import addresses
from hitherto.addresses import Address
from hitherto.protocol import Entry, Grant
from hitherto.turns import Turn

Handler: TypeAlias = Callable[[Turn], Awaitable[object]]
Known: TypeAlias = tuple[Any, Handler | None]

LIMIT: Final = 10_000


class Remembered:
    """A bounded memory by conversation and place in its line; what falls out of it is only decoded again."""

    def __init__(self, decode: Callable[[bytes], Any] = msgspec.json.decode) -> None:
        self.decode = decode
        self._known: dict[str, dict[int, Known]] = {}
        self._count = 0

    def put(self, address: Address, seq: int, event: Any, handler: Handler | None) -> None:
        """Remember an event that waits."""
        if seq < 0:
            return
        line = self._known.setdefault(addresses.encode(address), {})
        self._count += seq not in line
        line[seq] = (event, handler)
        while self._count > LIMIT:
            self._forget_oldest()

    def keep(self, address: Address, grant: Grant, events: list[Any], handler: Handler | None) -> None:
        """Remember the events of a turn that will perhaps be tried again."""
        for entry, event in zip(grant.entries, events, strict=True):
            self.put(address, entry.seq, event, handler)

    def take(self, address: Address, grant: Grant, original: Any) -> tuple[list[Any], Handler | None]:
        """The events of a grant, oldest first, and the handler of the newest; they are forgotten here."""
        line = self._known.get(addresses.encode(address)) if self._known else None
        if not line:
            events = [self.decode(entry.payload) for entry in grant.entries[:-1]]
            return [*events, self._newest(grant, original)] if grant.entries else events, None
        found = [self._pop(line, entry) for entry in grant.entries]
        if not line:
            del self._known[addresses.encode(address)]
        events = [event for event, _ in found]
        if original is not None and events:
            events[-1] = original
        return events, found[-1][1] if found else None

    def knows(self, address: Address) -> bool:
        """Whether some event of this conversation is remembered with its handler."""
        line = self._known.get(addresses.encode(address))
        return line is not None and any(handler is not None for _, handler in line.values())

    def _newest(self, grant: Grant, original: Any) -> Any:
        return self.decode(grant.entries[-1].payload) if original is None else original

    def _pop(self, line: dict[int, Known], entry: Entry) -> Known:
        known = line.pop(entry.seq, None)
        if known is None:
            return self.decode(entry.payload), None
        self._count -= 1
        event, handler = known
        return (self.decode(entry.payload) if event is None else event), handler

    def _forget_oldest(self) -> None:
        text, line = next(iter(self._known.items()))
        del line[next(iter(line))]
        self._count -= 1
        if not line:
            del self._known[text]
