"""The limits under the stores: what the same disk, file or server does when nothing of ours stands before it.

* SQLite: one thread that writes the two transactions of a hundred turns at a time, in plain SQL, FULL.
* Redis and PostgreSQL: the very commands that a run of hitherto sent are recorded, the server is emptied,
  and they are sent again over one bare connection, batch after batch; nothing is done with the replies.
  Recording begins on an empty server too: the epochs in the commands have to be those that are met again.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock
from urllib.parse import urlsplit

import asyncpg
import hiredis

from benchmarks.ways import MESSAGE, kept

AT_ONCE = 100
EVENT = json.dumps(MESSAGE)


def fsyncs(folder: Path, seconds: float) -> float:
    """How often a second a page can be written and synced."""
    done, page = 0, bytes(4096)
    with open(folder / "synced", "wb", buffering=0) as file:
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            file.write(page)
            os.fdatasync(file.fileno())
            done += 1
    return done / seconds


TABLES = """
    PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;
    CREATE TABLE IF NOT EXISTS record (who TEXT PRIMARY KEY, flow TEXT, state TEXT, data TEXT, epoch INT);
    CREATE TABLE IF NOT EXISTS inbox (who TEXT, seq INT, event TEXT, PRIMARY KEY (who, seq)) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS seen (who TEXT, id TEXT, at REAL, PRIMARY KEY (who, id)) WITHOUT ROWID;
"""


def bare_sqlite(path: Path, seconds: float) -> float:
    """Turns a second of a bare loop: accept a hundred in one transaction, commit a hundred in another."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.executescript(TABLES)
    done, number, end = 0, time.time_ns(), time.perf_counter() + seconds
    began = time.perf_counter()
    while time.perf_counter() < end:
        number += 1
        found = [_accepted(connection, f"bench/{who}", number) for who in _transaction(connection)]
        for who in _transaction(connection):
            _committed(connection, f"bench/{who}", number, found[who])
        done += AT_ONCE
    took = time.perf_counter() - began
    connection.close()
    return done / took


def _transaction(connection: sqlite3.Connection) -> Iterator[int]:
    connection.execute("BEGIN IMMEDIATE")
    yield from range(AT_ONCE)
    connection.execute("COMMIT")


def _accepted(connection: sqlite3.Connection, who: str, number: int) -> dict[str, Any]:
    if connection.execute("SELECT 1 FROM seen WHERE who=? AND id=?", (who, f"{number:x}")).fetchone():
        return {}
    row = connection.execute("SELECT data FROM record WHERE who=?", (who,)).fetchone()
    connection.execute("INSERT INTO inbox VALUES (?, ?, ?)", (who, number, EVENT))
    connection.execute(
        "INSERT INTO record VALUES (?, NULL, NULL, '{}', 1) ON CONFLICT DO UPDATE SET epoch = epoch + 1",
        (who,),
    )
    return json.loads(row[0]) if row else {}


def _committed(connection: sqlite3.Connection, who: str, number: int, data: dict[str, Any]) -> None:
    data = {**data, "name": "Ann", "step": data.get("step", 0) + 1}
    connection.execute(
        "UPDATE record SET flow='signup', state=?, data=? WHERE who=?",
        (("here", "there")[number % 2], json.dumps(data), who),
    )
    connection.execute("DELETE FROM inbox WHERE who=? AND seq=?", (who, number))
    connection.execute("INSERT INTO seen VALUES (?, ?, ?)", (who, f"{number:x}", time.time()))


# ------------------------------------------------------------------------------------------------- replays


@contextmanager
def _recorded(owner: Any, name: str, into: list[Any], pick: Any) -> Iterator[None]:
    """Note down what *pick* makes of every call of a method."""
    honest = getattr(owner, name)

    def noted(self: Any, *arguments: Any) -> Any:
        result = honest(self, *arguments)
        into.append(pick(arguments, result))
        return result

    with mock.patch.object(owner, name, noted):
        yield


async def bare_redis(url: str, seconds: float) -> float:
    """Turns a second of the scripts alone, a hundred commands at a time over one socket."""
    from hitherto.stores.redis import RedisStore

    sent: list[bytes] = []
    parts = urlsplit(url)
    with socket.create_connection((parts.hostname, parts.port)) as server:
        _exchange(server, hiredis.Reader(), [b"*1\r\n$8\r\nFLUSHALL\r\n"])
    async with kept(url) as step:
        with _recorded(RedisStore, "_packed", sent, lambda _, packed: packed):
            turns = await _turns(step, seconds)
    with socket.create_connection((parts.hostname, parts.port)) as server:
        server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        reader = hiredis.Reader()
        _exchange(server, reader, [b"*1\r\n$8\r\nFLUSHALL\r\n"])
        batches = [sent[start : start + AT_ONCE] for start in range(0, len(sent), AT_ONCE)]
        joined = [b"".join(batch) for batch in batches]
        began = time.perf_counter()
        server.sendall(joined[0])
        for batch, following in zip(batches, [*joined[1:], b""], strict=True):
            server.sendall(following)  # the server is never without work
            _answered(server, reader, len(batch))
        return turns / (time.perf_counter() - began)


def _exchange(server: socket.socket, reader: Any, commands: list[bytes]) -> None:
    server.sendall(b"".join(commands))
    _answered(server, reader, len(commands))


def _answered(server: socket.socket, reader: Any, left: int) -> None:
    while left:
        reader.feed(server.recv(1 << 16))
        while left and reader.gets() is not False:
            left -= 1


async def bare_postgres(url: str, seconds: float) -> float:
    """Turns a second of the array calls alone, one after the other over one connection."""
    from hitherto.stores.postgres.link import Link

    sent: list[tuple[Any, ...]] = []
    async with kept(url) as step:
        with _recorded(Link, "call", sent, lambda arguments, _: arguments):
            turns = await _turns(step, seconds)
    connection = await asyncpg.connect(url)
    tables = await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'hitherto'")
    kept_tables = [row[0] for row in tables if "migration" not in row[0] and "schema" not in row[0]]
    await connection.execute("TRUNCATE " + ", ".join(f"hitherto.{name}" for name in kept_tables))
    statements = {sql: await connection.prepare(sql) for sql in {call[0] for call in sent}}
    began = time.perf_counter()
    for sql, *arguments in sent:
        await statements[sql].fetch(*arguments)
    took = time.perf_counter() - began
    await connection.close()
    return turns / took


async def _turns(step: Any, seconds: float) -> int:
    """How many turns were done in these seconds."""
    done, end = 0, time.perf_counter() + seconds

    async def talk(who: int) -> None:
        nonlocal done
        number = time.time_ns()
        while time.perf_counter() < end:
            number += 1
            await step(who, number)
            done += 1

    await asyncio.gather(*[talk(who) for who in range(AT_ONCE)])
    return done
