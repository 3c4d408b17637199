"""`hitherto doctor` on ten prepared faults, each in a process of its own, on real files and servers."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
import tempfile
import textwrap
from contextlib import closing
from pathlib import Path

import pytest

from hitherto.stores.postgres import PostgresStore
from hitherto.stores.sqlite import SQLiteStore
from servers.pgwire import Pg
from servers.postgres import PostgresServer
from servers.redis import RedisServer

SICK, STRICT = 4, ["--strict"]


def doctor(*words: str, before: str = "") -> tuple[int, str]:
    """What the doctor says, with a little preparation in its process; nothing else is ever printed."""
    ask = "import sys; from hitherto.cli import main; sys.exit(main(['doctor', *sys.argv[1:]]))"
    script = f"{textwrap.dedent(before)}\n{ask}"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script, *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stderr == ""
    return done.returncode, done.stdout


def problems(told: str) -> list[str]:
    return [line for line in told.splitlines() if line.startswith("PROBLEM")]


def warned(told: str) -> list[str]:
    return [line for line in told.splitlines() if line.startswith("warning")]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    async def fill() -> None:
        async with SQLiteStore(tmp_path / "bot.db", synchronous="NORMAL") as store:
            await store.set_data("bot", (1,), {"pad": "x"})

    asyncio.run(fill())
    return tmp_path / "bot.db"


def test_a_wrong_password_of_postgres() -> None:
    with PostgresServer(fsync=False, password="right") as server:
        code, told = doctor(server.url.replace("right", "wr0ng"))
    assert code == SICK
    assert "password" in problems(told)[0].lower()
    assert "wr0ng" not in told


def test_a_wrong_password_of_redis() -> None:
    with RedisServer(password="right") as server:
        code, told = doctor(f"redis://:wr0ng@127.0.0.1:{server.port}/0")
        assert code == SICK
        assert "password" in problems(told)[0].lower()
        assert "wr0ng" not in told


def test_a_newer_schema(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA user_version=99")
    code, told = doctor(f"sqlite:///{path}")
    assert code == SICK
    assert "has schema 99 and this version of hitherto knows" in problems(told)[0]


def test_a_newer_schema_of_postgres(postgres_url) -> None:
    asyncio.run(PostgresStore(postgres_url).migrate())
    with Pg(postgres_url) as pg:
        pg.query("INSERT INTO hitherto.migration (number, phase, name) VALUES (99, 'post', 'less')")
    code, told = doctor(postgres_url)
    assert code == SICK
    assert "newer version" in problems(told)[0]


def test_a_read_only_file() -> None:
    """The doctor's process is not root, whom no permission stops."""
    before = """
        import asyncio, os, sys
        from hitherto.cli import examining
        from hitherto.stores.sqlite import SQLiteStore
        path = sys.argv[1].removeprefix("sqlite:///")
        os.chmod(os.path.dirname(path), 0o777)
        if os.getuid() == 0: os.setgid(65534); os.setuid(65534)
        asyncio.run(examining.examined(sys.argv[1]))
        os.chmod(path, 0o400)
    """
    with tempfile.TemporaryDirectory() as folder:
        code, told = doctor(f"sqlite:///{folder}/bot.db", before=before)
    assert code == SICK
    assert "is read-only" in problems(told)[0]


def test_a_redis_that_evicts(redis_evicting_server) -> None:
    code, told = doctor(redis_evicting_server.url)
    assert code == 0
    assert "maxmemory-policy is allkeys-lru" in warned(told)[0]


def test_a_redis_without_its_append_only_file(redis_url) -> None:
    code, told = doctor(redis_url)
    assert code == 0
    assert "appendonly is no" in warned(told)[0]
    assert "lost in a crash: what was acknowledged since the last snapshot, or everything" in told
    assert doctor(redis_url, *STRICT)[0] == SICK


def test_a_redis_that_keeps_everything_is_healthy(redis_aof_url) -> None:
    code, told = doctor(redis_aof_url, *STRICT)
    assert (code, warned(told), problems(told)) == (0, [], [])


def test_a_clock_that_is_two_hours_off(redis_aof_url) -> None:
    before = "import time; right = time.time; time.time = lambda: right() - 7200"
    code, told = doctor(redis_aof_url, before=before)
    assert code == 0
    assert "the store's clock is 7200 s ahead of this machine's" in warned(told)[0]


@pytest.mark.parametrize(
    ("module", "url", "extra"),
    [
        ("asyncpg", "postgresql://bot:hidden@localhost/bot", "postgres"),
        ("redis", "redis://:hidden@localhost", "redis"),
    ],
)
def test_a_missing_extra(module: str, url: str, extra: str) -> None:
    code, told = doctor(url, before=f"import sys; sys.modules['{module}'] = None")
    assert code == SICK
    assert f'pip install "hitherto[{extra}]"' in problems(told)[0]
    assert "hidden" not in told


def test_an_old_sqlite(path: Path) -> None:
    before = "import sqlite3; sqlite3.sqlite_version_info = (3, 40, 0); sqlite3.sqlite_version = '3.40.0'"
    code, told = doctor(f"sqlite:///{path}", before=before)
    assert code == 0
    assert "SQLite 3.40.0 has the WAL-reset bug (fixed in 3.51.3)" in warned(told)[0]


def test_a_file_of_another_program(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "theirs.db")) as connection:
        connection.execute("CREATE TABLE diary (line TEXT)")
    before = (tmp_path / "theirs.db").read_bytes()
    code, told = doctor(f"sqlite:///{tmp_path}/theirs.db")
    assert code == SICK
    assert "is an SQLite database of another program" in problems(told)[0]
    assert (tmp_path / "theirs.db").read_bytes() == before


def test_a_full_disk(path: Path) -> None:
    """SQLite itself says it: the file may have no page more than it has."""
    before = """
        import sqlite3
        connect = sqlite3.connect
        def full(*given, **named):
            connection = connect(*given, **named)
            pages = connection.execute("PRAGMA page_count").fetchone()[0]
            connection.execute(f"PRAGMA max_page_count={pages}")
            return connection
        sqlite3.connect = full
    """
    kept = path.read_bytes()
    code, told = doctor(f"sqlite:///{path}", before=before)
    assert code == SICK
    assert "disk is full" in problems(told)[0]
    assert path.read_bytes() == kept
