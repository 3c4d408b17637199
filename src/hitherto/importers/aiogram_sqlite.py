"""The SQLite storages for aiogram that are on PyPI; a file is opened for reading only.

=============================  =========================  ============================================
distribution                   table                      state and data
=============================  =========================  ============================================
aiogram-sqlite-storage 0.x     ``fsm_data`` key            both pickled
aiogram-sqlite-storage 1.x     ``fsm_data`` key            text; pickled or JSON
aiogram-fsm-sqlitestorage      ``fsm_data`` key            text, empty for none; JSON
sqlite-fsm-storage             ``states`` key              text, ``NONE`` for none; JSON or a literal
aiogram-sqlalchemy-storage     any name, column ``id``     text; JSON
=============================  =========================  ============================================

Keys are ``bot:chat:user`` or those of aiogram's ``DefaultKeyBuilder``. Any other table with the columns
``key`` (or ``id``), ``state`` and ``data`` is tried, too.
"""

from __future__ import annotations

import ast
import json
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from msgspec.structs import replace

from hitherto.errors import HithertoError
from hitherto.importers import Found, Placed, Report, aiogram_row
from hitherto.importers.aiogram_keys import parse
from hitherto.importers.unpickling import Refused, StateStandIn, unpickle

__all__ = ["read"]

_NOTHING: Final = (None, "", "NONE")


class _Strange(Exception):
    """A row that cannot be understood, and why."""


async def read(
    path: str, report: Report, *, keys: str, bot_id: int | None, prefix: str = "fsm", separator: str = ":"
) -> AsyncIterator[Placed]:
    """All conversations in a file."""
    for row in _read(path, report, keys, bot_id, prefix, separator):
        yield row


def _read(
    path: str, report: Report, keys: str, bot_id: int | None, prefix: str, separator: str
) -> Iterator[Placed]:
    if not Path(path).is_file():
        raise HithertoError(f"there is no file {path!a}")
    address = Path(path).resolve().as_uri() + "?mode=ro"
    try:
        with closing(sqlite3.connect(address, uri=True)) as connection:
            connection.execute("PRAGMA query_only = on")
            connection.text_factory = bytes
            for table, column in _tables(connection):
                for place, row in _rows(connection, table, column):
                    report.read += 1
                    try:
                        found = _found(row, bot_id, prefix, separator)
                    except _Strange as strange:
                        report.left_out(str(strange), place)
                        continue
                    placed = aiogram_row(found, keys, report, place)
                    if placed is not None:
                        yield placed
    except sqlite3.Error as error:
        raise HithertoError(f"the file cannot be read as SQLite: {error}") from None


def _tables(connection: sqlite3.Connection) -> list[tuple[str, str]]:
    """The tables that a storage has made, and their column with the key."""
    names = [
        row[0].decode() for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
    ]
    found = []
    for name in names:
        columns = {row[1].decode() for row in connection.execute(f"PRAGMA table_info({_quoted(name)})")}
        if {"state", "data"} <= columns and columns & {"key", "id"}:
            found.append((name, "key" if "key" in columns else "id"))
    if not found:
        raise HithertoError("no table of a known layout is in this file: columns key (or id), state and data")
    return found


def _rows(connection: sqlite3.Connection, table: str, column: str) -> Iterator[tuple[str, Any]]:
    selected = connection.execute(f"SELECT {column}, state, data FROM {_quoted(table)}")  # noqa: S608
    for number, row in enumerate(selected, 1):
        yield f"row {number} of {table}", row


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _found(row: Any, bot_id: int | None, prefix: str, separator: str) -> Found:
    key, state, data = row
    if not isinstance(key, bytes):
        raise _Strange("a key of an unknown form")
    words = key.decode(errors="replace").split(separator)
    if words[0] == prefix:
        words = words[1:-1] if words[-1] in ("data", "state") else words[1:]
        found = parse(separator.join(words), bot_id, separator)
    else:
        found = _plain(words, bot_id)
    if isinstance(found, str):
        raise _Strange(found)
    return replace(found, state=_state(state), data=_data(data))


def _plain(words: list[str], bot_id: int | None) -> Found | str:
    """``bot:chat:user``, and nothing else."""
    try:
        bot, chat, user = map(int, words)
    except ValueError:
        return "a key of an unknown form"
    return Found(bot, chat, user) if bot_id in (None, bot) else "a conversation of another bot"


def _state(value: bytes | None) -> str | None:
    if value is None:
        return None
    state = _unpickled(value) if value[:1] == b"\x80" else value.decode(errors="replace")
    if isinstance(state, StateStandIn):
        state = state.text
    if state is not None and not isinstance(state, str):
        raise _Strange("a state that is no text")
    return None if state in _NOTHING else state


def _data(value: bytes | None) -> dict[str, Any]:
    if value is None:
        return {}
    if value[:1] == b"\x80":
        data = _unpickled(value)
    else:
        try:
            data = json.loads(value)
        except ValueError:
            data = _literal(value)
    if data is not None and not isinstance(data, dict):
        raise _Strange("data that is no dict")
    return data or {}


def _unpickled(value: bytes) -> Any:
    try:
        return unpickle(value, "named")
    except Refused:
        raise _Strange("a pickle that was refused") from None


def _literal(value: bytes) -> Any:
    try:
        return ast.literal_eval(value.decode())
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        raise _Strange("data that is no JSON") from None
