"""python-telegram-bot's ``PicklePersistence``, 13 to 22, of one file or of several beside each other.

What it holds goes where ``hitherto.ptb.HithertoPersistence`` looks for it. Values that are no plain data (a
``Message`` in ``user_data``) are left out, each by itself.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Final

from hitherto.errors import DataError, HithertoError
from hitherto.importers import Placed, Report
from hitherto.importers.unpickling import unpickle
from hitherto.packing import pack
from hitherto.records import Stored

__all__ = ["read"]

_PARTS: Final = ("bot_data", "user_data", "chat_data", "conversations", "callback_data")
_REALMS: Final = {"user_data": "ptb.user", "chat_data": "ptb.chat"}
_NO_DATA: Final = "a value that is no plain data"


async def read(path: str, report: Report, *, leave_out: bool = False) -> AsyncIterator[Placed]:
    """All that a persistence has stored."""
    strangers = "opaque" if leave_out else "refuse"
    whole = _loaded(Path(path), strangers)
    for name, rows in (
        ("bot_data", _bot), ("user_data", _people), ("chat_data", _people), ("conversations", _conversations),
        ("callback_data", _callbacks),
    ):  # fmt: skip
        for row in rows(name, whole.get(name), report):
            yield row


def _loaded(path: Path, strangers: str) -> dict[str, Any]:
    """Everything, from one file or from those with a part's name behind it."""
    if path.is_file():
        whole = unpickle(path.read_bytes(), strangers)
        if not isinstance(whole, dict) or not whole.keys() & set(_PARTS):
            raise HithertoError("this pickle is not of python-telegram-bot's PicklePersistence")
        return whole
    files = {name: path.with_name(f"{path.name}_{name}") for name in _PARTS}
    found = {name: file for name, file in files.items() if file.is_file()}
    if not found:
        raise HithertoError(f"there is no file {str(path)!a}, nor {path.name + '_user_data'!a}")
    return {name: unpickle(file.read_bytes(), strangers) for name, file in found.items()}


def _fields(data: Any, name: str, number: int, report: Report) -> Any:
    """Data as fields, without what is no plain data."""
    if not isinstance(data, dict):
        report.left_out("data that is no dict", f"{name}, entry {number}")
        return None
    try:
        return pack(data)
    except DataError:
        fields: dict[str, Any] = {}
    for key, value in data.items():
        try:
            fields.update(pack({key: value}))
        except DataError:
            report.left_out(_NO_DATA, f"{name}, entry {number}")
    return fields


def _bot(name: str, data: Any, report: Report) -> Iterator[Placed]:
    if data:
        report.read += 1
        fields = _fields(data, name, 1, report)
        if fields:
            yield Placed("ptb.bot", (), Stored(fields=fields))


def _people(name: str, entries: Any, report: Report) -> Iterator[Placed]:
    for number, (id, data) in enumerate(_items(name, entries, report), 1):
        report.read += 1
        if type(id) is not int:
            report.left_out("an id that is no number", f"{name}, entry {number}")
            continue
        fields = _fields(data, name, number, report)
        if fields:
            yield Placed(_REALMS[name], (id,), Stored(fields=fields))
        elif fields is not None:
            report.empty += 1


def _conversations(name: str, handlers: Any, report: Report) -> Iterator[Placed]:
    for which, (handler, entries) in enumerate(_items(name, handlers, report), 1):
        for number, (key, state) in enumerate(_items(name, entries, report), 1):
            report.read += 1
            place = f"{name}, handler {which}, entry {number}"
            plain = isinstance(key, tuple) and all(type(part) in (int, str) for part in key)
            if not plain or type(handler) is not str:
                report.left_out("a key of an unknown form", place)
                continue
            if state is None:
                report.empty += 1
                continue
            try:
                yield Placed(f"ptb.conversation.{handler}", key, Stored(fields=pack(state, whole=True)))
            except DataError:
                report.left_out("a state that is no plain data", place)


def _callbacks(name: str, kept: Any, report: Report) -> Iterator[Placed]:
    """The keyboards and queries of ``arbitrary_callback_data``."""
    if not kept:
        return
    if not isinstance(kept, tuple) or len(kept) != 2 or not isinstance(kept[0], list):
        report.left_out("callback data of an unknown form", name)
        return
    for number, keyboard in enumerate(kept[0], 1):
        report.read += 1
        try:
            uuid, at, buttons = keyboard
            yield Placed(
                "ptb.callback", ("keyboard", str(uuid)), Stored(fields=pack({"at": at, "buttons": buttons}))
            )
        except (DataError, TypeError, ValueError):
            report.left_out("a keyboard that is no plain data", f"{name}, entry {number}")
    for query, uuid in _items(name, kept[1], report):
        report.read += 1
        yield Placed("ptb.callback", ("query", str(query)), Stored(fields=pack(str(uuid))))


def _items(name: str, entries: Any, report: Report) -> Iterator[tuple[Any, Any]]:
    if isinstance(entries, dict):
        yield from entries.items()
    elif entries is not None:
        report.left_out("a part that is no dict", name)
