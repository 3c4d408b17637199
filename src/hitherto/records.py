"""What is remembered of a conversation, and the patch that a turn makes of it.

``Record`` is what callers see: flow, state and data as plain values of their own. ``Stored`` is what stores
keep: the same with data as encoded fields, never mutated once made. ``Patch`` is the difference between two
of them.
"""

from __future__ import annotations

from typing import Any

import msgspec

from hitherto import codec
from hitherto.codec import Fields
from hitherto.errors import DataError


class Record(msgspec.Struct, eq=True):
    """Flow, state and data of one conversation, as plain values; yours to change."""

    flow: str | None = None
    state: str | None = None
    data: dict[str, Any] = {}
    version: int = 1

    def __repr__(self) -> str:
        return f"Record(flow={self.flow!r}, state={self.state!r}, data=<{len(self.data)} keys>)"


class Stored(msgspec.Struct, frozen=True, omit_defaults=True):
    """A record as stores keep it; its fields are shared between documents and never mutated."""

    flow: str | None = None
    state: str | None = None
    version: int = 1
    fields: Fields = {}
    expires_at: float | None = None

    def to_record(self) -> Record:
        """A fresh Record of the caller's own."""
        return Record(self.flow, self.state, codec.decode(self.fields), self.version)


class Patch(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a commit changes: nothing that the turn did not touch.

    ``cleared`` empties the record first (flow, state and every field, also those others added meanwhile);
    ``moved`` says that flow, state and version are to be written; then fields are set and removed.
    """

    set: Fields = {}
    removed: tuple[str, ...] = ()
    moved: bool = False
    flow: str | None = None
    state: str | None = None
    version: int = 1
    cleared: bool = False

    def __bool__(self) -> bool:
        return bool(self.set or self.removed or self.moved or self.cleared)


NO_PATCH = Patch()
BLANK = Stored()


def from_record(record: Record) -> Stored:
    """Encode a caller's record, refusing data that would not round-trip."""
    _check_name("flow", record.flow)
    _check_name("state", record.state)
    return Stored(record.flow, record.state, record.version, codec.encode(record.data))


def _check_name(what: str, name: object) -> None:
    if name is not None:
        if type(name) is not str:
            raise DataError(f"{what}: {type(name).__name__}; a name is text or None", path=what)
        codec.check(name, what)


def difference(before: Fields, after: Fields) -> tuple[Fields, tuple[str, ...]]:
    """The fields to set and the keys to remove that turn *before* into *after*."""
    changed = {key: text for key, text in after.items() if before.get(key) != text}
    removed = (
        tuple([key for key in before if key not in after]) if len(before) + len(changed) > len(after) else ()
    )
    return changed, removed


def apply(stored: Stored | None, patch: Patch) -> Stored | None:
    """The record after *patch*; ``None`` when clearing left nothing to remember."""
    if not patch:
        return stored
    base = BLANK if stored is None or patch.cleared else stored
    fields = base.fields
    if patch.set or patch.removed:
        fields = {**fields, **patch.set}
        for key in patch.removed:
            if key not in patch.set:
                fields.pop(key, None)
        codec.check_size(fields)
    if patch.moved:
        return Stored(patch.flow, patch.state, patch.version, fields, base.expires_at)
    if patch.cleared and not fields:
        return None
    return Stored(base.flow, base.state, base.version, fields, base.expires_at)


def merged(stored: Stored | None, fields: Fields) -> Stored:
    """The record with *fields* laid over its own; new ones win, a missing record is made."""
    base = stored if stored is not None else BLANK
    together = {**base.fields, **fields}
    codec.check_size(together)
    return Stored(base.flow, base.state, base.version, together, base.expires_at)
