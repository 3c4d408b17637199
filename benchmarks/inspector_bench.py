"""The inspector's pages on a thousand and on a million conversations, on SQLite and PostgreSQL.

``python benchmarks/inspector_bench.py [FACTOR]`` starts a PostgreSQL of its own. For each store it fills two
bots' databases, then asks for each page in turn, the small and the large store interleaved, and compares the
medians. *first*: the overview of an inspector that was just made, whose counts are not known yet; *counted*:
from that request until the map has its counts; the others are pages that an operator goes to next.
"""

from __future__ import annotations

import asyncio
import sqlite3
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import asyncpg
import httpx

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from hitherto import Flow, State
from hitherto.addresses import Address
from hitherto.document import Event, Terms
from hitherto.inspector import inspector
from hitherto.overlap import Queue
from hitherto.records import Record
from hitherto.stores.postgres import PostgresStore
from hitherto.stores.sqlite import SQLiteStore

SMALL = 1_000
ROUNDS = 15
STATES = ("ask_name", "ask_email", "confirm")
PAGES = {
    "first": "/",
    "overview": "/",
    "list": "/conversations",
    "list by state": "/conversations?flow=signup&state=confirm",
    "list by rare state": "/conversations?flow=signup&state=gone",
    "one": "/conversation?key=500/500",
    "dead letters": "/dead",
}
SQLITE = """
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?),
template AS (SELECT * FROM conversation WHERE address = 'bench//0/0')
INSERT INTO conversation (bot, realm, address, version, flow, state, data, recorded, pending, dead,
    lease_until, wake_at, touched, body)
SELECT t.bot, t.realm, 'bench//' || i || '/' || i, t.version, t.flow,
    CASE i % 3 WHEN 0 THEN 'ask_name' WHEN 1 THEN 'ask_email' ELSE 'confirm' END, t.data, t.recorded,
    t.pending, t.dead, t.lease_until, t.wake_at, t.touched, t.body
FROM template AS t, n
"""
POSTGRES = """
INSERT INTO hitherto.document (digest, address, version, touched, recorded, flow, state, names, texts, size)
SELECT sha256(convert_to('bench//' || i || '/' || i, 'UTF8')), 'bench//' || i || '/' || i, t.version,
    t.touched, true, t.flow, (ARRAY['ask_name', 'ask_email', 'confirm'])[1 + i % 3], t.names, t.texts, t.size
FROM hitherto.document AS t, generate_series(1, $1::int) AS i WHERE t.address = 'bench//0/0'
"""


class Signup(Flow):
    """What the conversations are in."""

    ask_name = State(to="ask_email", initial=True)
    ask_email = State(to=["confirm", "ask_name"])
    confirm = State(to=[], final=True)


async def begin(store: Any) -> None:
    """The conversation that the others are copied from, and a few that need a look."""
    await store.set_state("bench", (0, 0), Record("signup", "ask_name", {"name": "Ann", "items": [1, 2, 3]}))
    terms = Terms(lease=1e6)
    for number in range(20):
        address = Address("bench", "", ("busy", number))
        answer = await store.accept(address, Event("1", b'{"text":"hi"}'), Queue(), "w", store.op(), terms)
        if number % 2:
            await store.settle(
                address, answer.grant.claim, store.op(), terms, verdict="dead", error="KeyError"
            )


async def sqlite_store(folder: str, number: int) -> SQLiteStore:
    """A file with so many conversations."""
    path = Path(folder) / f"{number}.db"
    async with SQLiteStore(path, synchronous="NORMAL") as store:
        await begin(store)
    with sqlite3.connect(path) as connection:
        connection.execute(SQLITE, (number,))
    connection.close()
    return SQLiteStore(path)


async def postgres_store(server: Any, number: int) -> PostgresStore:
    """A database with so many conversations."""
    url = server.url_of(server.create_database())
    async with PostgresStore(url) as store:
        await begin(store)
    connection = await asyncpg.connect(url)
    await connection.execute(POSTGRES.replace("$1::int", str(number)))
    await connection.execute("VACUUM ANALYZE hitherto.document")
    await connection.close()
    return PostgresStore(url)


async def asked(store: Any) -> dict[str, float]:
    """Seconds of each page, by an inspector that was just made."""
    app = inspector(store, bot="bench", flows=[Signup])
    base, took = "http://127.0.0.1", {}
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=base, timeout=60) as browser:
        await browser.get(app.link(base))
        began = time.perf_counter()
        for name, page in PAGES.items():
            before = time.perf_counter()
            answer = await browser.get(page)
            took[name] = time.perf_counter() - before
            assert answer.status_code == 200, (name, answer.status_code)
            if name == "first":
                while "counted" not in (await browser.get("/")).text:
                    pass
                took["counted"] = time.perf_counter() - began
    return took


async def compare(name: str, stores: dict[int, Any]) -> None:
    """Print the medians of both sizes, and their ratios."""
    took: dict[int, list[dict[str, float]]] = {number: [] for number in stores}
    for store in stores.values():
        await store.open()
        await asked(store)
    for _ in range(ROUNDS):
        for number, store in stores.items():
            took[number].append(await asked(store))
    print(f"{name:<22}" + "".join(f"{number:>14,}" for number in stores) + "         ratio")
    for page in took[SMALL][0]:
        medians = [statistics.median(one[page] for one in took[number]) * 1000 for number in stores]
        print(
            f"  {page:<20}"
            + "".join(f"{ms:>11.1f} ms" for ms in medians)
            + f"{medians[1] / medians[0]:>13.2f}x"
        )
    for store in stores.values():
        await store.close()


async def main(large: int) -> None:
    """Both stores."""
    from servers.postgres import PostgresServer

    with tempfile.TemporaryDirectory() as folder:
        await compare("SQLite", {number: await sqlite_store(folder, number) for number in (SMALL, large)})
    server = PostgresServer(fsync=False).start()
    try:
        await compare(
            "PostgreSQL", {number: await postgres_store(server, number) for number in (SMALL, large)}
        )
    finally:
        server.close()


if __name__ == "__main__":
    asyncio.run(main(SMALL * int(sys.argv[1] if len(sys.argv) > 1 else 1000)))
