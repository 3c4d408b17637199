"""The event objects that wait in this process, and the handlers they came with.

What the store keeps is the JSON of an update. While the process lives, a queued event is handled as the very
object it came as, by the handler it came with; after a crash it is decoded, and the keeper's own handler runs
it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import msgspec

from hitherto import addresses
from hitherto.addresses import Address
from hitherto.leases import Handler
from hitherto.protocol import Entry, Event, Grant

__all__ = ["LIMIT", "Handler", "Remembered"]

Known: TypeAlias = tuple[Any, Handler | None]
Coming: TypeAlias = tuple[Event, Any, Handler | None]

LIMIT: Final = 10_000


class Remembered:
    """A bounded memory by conversation and place in its line; what falls out of it is only decoded again."""

    def __init__(self, decode: Callable[[bytes], Any] = msgspec.json.decode) -> None:
        self.decode = decode
        self.lines: dict[str, dict[int, Known]] = {}
        self._coming: dict[str, list[Coming]] = {}
        self._count = 0

    # ------------------------------------------------------------------------------------ into the memory

    def coming(self, address: Address, event: Event, original: Any, handler: Handler | None) -> Coming:
        """Remember an event whose place is not known yet: its turn may be granted before accept answers."""
        coming = (event, original, handler)
        self._coming.setdefault(addresses.encode(address), []).append(coming)
        return coming

    def arrived(self, address: Address, coming: Coming) -> None:
        """Accept has answered, or failed."""
        text = addresses.encode(address)
        left = [other for other in self._coming.pop(text) if other is not coming]
        if left:
            self._coming[text] = left

    def put(self, address: Address, seq: int, event: Any, handler: Handler | None) -> None:
        """Remember an event that waits."""
        if seq < 0:
            return
        line = self.lines.setdefault(addresses.encode(address), {})
        self._count += seq not in line
        line[seq] = (event, handler)
        while self._count > LIMIT:
            self._forget_oldest()

    def keep(self, address: Address, grant: Grant, events: list[Any], handler: Handler | None) -> None:
        """Remember the events of a turn that will perhaps be tried again."""
        for entry, event in zip(grant.entries, events, strict=False):
            self.put(address, entry.seq, event, handler)

    # ------------------------------------------------------------------------------------------ out of it

    def take(self, address: Address, grant: Grant, original: Any) -> tuple[list[Any], Handler | None]:
        """The events of a grant, oldest first, and the handler of the newest; they are forgotten here."""
        entries = grant.entries
        if original is not None and len(entries) == 1 and not self.lines:
            return [original], None
        text = addresses.encode(address)
        found = [self._pop(text, entry.seq) or self._expected(text, entry) for entry in entries]
        events = [self.decode(entry.payload) if known is None else known[0]
                  for entry, known in zip(entries, found, strict=True)]  # fmt: skip
        if original is not None and events:
            events[-1] = original
        newest = found[-1] if found else None
        return events, None if newest is None else newest[1]

    def knows(self, address: Address) -> bool:
        """Whether some event of this conversation is remembered with its handler."""
        line = self.lines.get(addresses.encode(address))
        return line is not None and any(handler is not None for _, handler in line.values())

    def has(self, address: Address, grant: Grant) -> bool:
        """Whether the events of a grant came to this process."""
        line = self.lines.get(addresses.encode(address))
        return line is not None and all(entry.seq in line for entry in grant.entries)

    def handler(self, address: Address, entry: Entry) -> Handler | None:
        """The handler that an event came with, if it came to this process with one."""
        text = addresses.encode(address)
        known = self.lines.get(text, {}).get(entry.seq) or self._expected(text, entry)
        return None if known is None else known[1]

    def forget(self, address: Address, seq: int) -> None:
        """Nothing of this conversation waits: forget all up to *seq*, which others have run or dropped."""
        text = addresses.encode(address)
        for old in [known for known in self.lines.get(text, ()) if known <= seq]:
            self._pop(text, old)

    def _expected(self, text: str, entry: Entry) -> Known | None:
        """An event whose accept has not answered yet."""
        for event, original, handler in self._coming.get(text, ()):
            if event.id == entry.event_id and event.payload == entry.payload:
                return original, handler
        return None

    def _pop(self, text: str, seq: int) -> Known | None:
        line = self.lines.get(text)
        known = None if line is None else line.pop(seq, None)
        if line is not None and known is not None:
            self._count -= 1
            if not line:
                del self.lines[text]
        return known

    def _forget_oldest(self) -> None:
        text, line = next(iter(self.lines.items()))
        self._pop(text, next(iter(line)))
