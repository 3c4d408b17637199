"""A disk made of what was recorded: what is on it for certain, what was only written, and how it may look
after the power went.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

HEAD = struct.Struct("<ciqq")
SECTOR = 512
Variant = Literal["nothing", "everything", "some", "torn"]
VARIANTS: tuple[Variant, ...] = ("nothing", "everything", "some", "torn")
ACKS = "acks"


class Note(NamedTuple):
    """One recorded call."""

    what: str
    name: str
    at: int
    data: bytes


def notes(log: Path) -> Iterator[Note]:
    """The calls in the order of their effects; files by their names."""
    raw, place = log.read_bytes(), 0
    names: dict[int, str] = {}
    while place < len(raw):
        what, file, at, length = HEAD.unpack_from(raw, place)
        place += HEAD.size
        data = raw[place : place + length]
        place += length
        if what in b"OU":
            name = Path(data.decode()).name
            if what == b"O":
                names[file] = name
        else:
            name = names[file]
        yield Note(what.decode(), name, at, data)


class _Change(NamedTuple):
    """A write or a cut that no sync has followed."""

    at: int
    data: bytes | None

    def apply(self, content: bytearray) -> None:
        if self.data is None:
            if self.at < len(content):
                del content[self.at :]
            else:
                content.extend(bytes(self.at - len(content)))
            return
        if len(content) < self.at:
            content.extend(bytes(self.at - len(content)))
        content[self.at : self.at + len(self.data)] = self.data


@dataclass
class _File:
    certain: bytearray = field(default_factory=bytearray)
    pending: list[_Change] = field(default_factory=list)
    is_there: bool = True
    is_there_for_certain: bool = False
    length: int = 0

    def note(self, change: _Change) -> None:
        self.pending.append(change)
        if change.data is None:
            self.length = change.at
        else:
            self.length = max(self.length, change.at + len(change.data))

    def sync(self) -> None:
        for change in self.pending:
            change.apply(self.certain)
        self.pending.clear()
        self.is_there_for_certain = self.is_there


class Disk:
    """Takes note after note; `crashed` says what a power loss now would leave."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._files: dict[str, _File] = {}
        self.acks: list[bytes] = []

    def apply(self, note: Note) -> bool:
        """Whether the note changes what a power loss would leave."""
        if note.name == ACKS:
            if note.what == "W":
                self.acks.append(note.data)
            return False
        if note.name == self._folder:
            return self._sync_folder() if note.what == "S" else False
        if note.name.endswith("-shm"):
            return False
        file = self._files.setdefault(note.name, _File(is_there=False))
        if note.what == "O":
            return self._open(file, creates=bool(note.at))
        if note.what == "U":
            file.is_there = False
        elif note.what == "S":
            file.sync()
        elif note.what == "T":
            file.note(_Change(note.at, None))
        else:
            file.note(_Change(note.at if note.what == "P" else file.length, note.data))
        return True

    def _open(self, file: _File, creates: bool) -> bool:
        if file.is_there or not creates:
            return False
        file.pending.append(_Change(0, None))
        file.is_there, file.length = True, 0
        return True

    def _sync_folder(self) -> bool:
        for file in self._files.values():
            file.is_there_for_certain = file.is_there
        return True

    def crashed(self, variant: Variant, chance: random.Random) -> dict[str, bytes]:
        """The files after a power loss: of what was not synced *nothing*, *everything*, *some*, or everything
        with the last write *torn*.
        """
        left = {}
        for name, file in self._files.items():
            is_there = {
                "nothing": file.is_there_for_certain,
                "some": chance.choice((file.is_there, file.is_there_for_certain)),
            }.get(variant, file.is_there)
            if is_there:
                left[name] = self._content(file, variant, chance)
        return left

    def _content(self, file: _File, variant: Variant, chance: random.Random) -> bytes:
        content = bytearray(file.certain)
        pending = file.pending
        if variant == "nothing":
            pending = []
        elif variant == "some":
            pending = [change for change in pending if chance.random() < 0.5]
        elif variant == "torn" and pending and pending[-1].data is not None:
            last = pending[-1]
            sectors = range(0, len(last.data), SECTOR)
            torn = [
                _Change(last.at + start, last.data[start : start + SECTOR])
                for start in sectors
                if chance.random() < 0.5
            ]
            pending = [*pending[:-1], *torn]
        for change in pending:
            change.apply(content)
        return bytes(content)
