"""Files that SQLiteStore makes, and those it refuses and leaves as they were."""

from __future__ import annotations

import asyncio
import os
import random
import sqlite3
import stat
import subprocess
import sys
import tempfile
import textwrap
from contextlib import closing
from pathlib import Path

import pytest

from hitherto.errors import (
    BadStoreURL,
    DataError,
    SchemaError,
    StoreCorrupt,
    StoreError,
    StoreUnavailable,
    StoreWarning,
)
from hitherto.stores import open_store
from hitherto.stores.sqlite import SQLiteStore, schema, store

KEY = ("user", 7)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "bot.db"


async def filled(path, **data):
    """A file of ours with something in it, closed."""
    async with SQLiteStore(path) as store:
        await store.set_data("bot", KEY, data or {"a": 1})
    return path.read_bytes()


def run(script, *arguments, check=True):
    """A program in a process of its own; what it printed."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(script), *map(str, arguments)],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert not check or done.returncode == 0, done.stderr
    return done.stdout.strip()


class TestURLs:
    @pytest.mark.parametrize(
        ("url", "path"),
        [
            ("sqlite:///bot.db", "bot.db"),
            ("sqlite:///some/where/bot.db", "some/where/bot.db"),
            ("sqlite:////var/lib/bot.db", "/var/lib/bot.db"),
            ("sqlite:///my%20bot%3F.db?timeout=3", "my bot?.db"),
            ("sqlite:///:memory:.db", ":memory:.db"),
        ],
    )
    def test_three_slashes_are_relative_and_four_absolute(self, url, path):
        assert open_store(url).path == os.path.abspath(path)

    @pytest.mark.parametrize("url", ["sqlite://:memory:", "sqlite:///:memory:"])
    async def test_memory(self, url):
        async with open_store(url) as store:
            await store.set_data("bot", KEY, {"a": 1})
            assert await store.get_data("bot", KEY) == {"a": 1}
        assert store.path == ":memory:"

    @pytest.mark.parametrize("url", ["sqlite://bot.db", "sqlite:bot.db", "sqlite://", "sqlite:///"])
    def test_what_is_no_path_is_an_error_that_shows_how(self, url):
        with pytest.raises(BadStoreURL, match=r"sqlite:///relative\.db, sqlite:////absolute\.db"):
            open_store(url)

    def test_an_unknown_option_is_an_error_that_lists_what_exists(self):
        with pytest.raises(BadStoreURL, match="option sync; there are cache, synchronous, timeout"):
            open_store("sqlite:///bot.db?sync=FULL")

    @pytest.mark.parametrize(
        "option", ["synchronous=OFF", "timeout=soon", "timeout=-1", "timeout=nan", "cache=x"]
    )
    def test_a_wrong_value_is_an_error_that_names_the_option(self, option):
        with pytest.raises(BadStoreURL, match=option.partition("=")[0]):
            open_store(f"sqlite:///bot.db?{option}")

    @pytest.mark.parametrize("url", [None, 5, b"memory://", Path("bot.db")], ids=str)
    def test_what_is_no_text_is_a_type_error_with_an_example(self, url):
        with pytest.raises(TypeError, match=r"sqlite:///bot\.db"):
            open_store(url)

    @pytest.mark.parametrize(
        ("option", "level"), [("", 2), ("?synchronous=normal", 1), ("?synchronous=EXTRA", 3)]
    )
    async def test_full_is_the_default_durability(self, path, option, level):
        async with open_store(f"sqlite:///{path}{option}") as store:
            found = await store._running().submit(
                lambda session: [
                    session.query(f"PRAGMA {name}", ())[0][0] for name in ("synchronous", "journal_mode")
                ]
            )
        assert found == [level, "wal"]


class TestNewFiles:
    async def test_it_is_made_on_first_use(self, path):
        store = SQLiteStore(path)
        assert not path.exists()
        assert await store.get_data("bot", KEY) is None
        assert path.exists()
        await store.close()

    async def test_only_its_owner_may_read_it(self, path):
        async with SQLiteStore(path) as store:
            await store.set_data("bot", KEY, {"a": 1})
            modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
        assert modes == {"bot.db": 0o600, "bot.db-wal": 0o600, "bot.db-shm": 0o600}

    async def test_nothing_is_left_beside_it_when_it_is_closed(self, path):
        await filled(path)
        assert [file.name for file in path.parent.iterdir()] == ["bot.db"]

    async def test_an_empty_file_is_taken(self, path):
        path.touch()
        await filled(path)

    async def test_it_can_be_read_with_any_sqlite(self, path):
        async with SQLiteStore(path) as store:
            await store.set_data("bot", KEY, {"cart": [{"size": "large"}], "name": "Ünï\U0001f600"})
        with closing(sqlite3.connect(path)) as connection:
            found = connection.execute(
                "SELECT address, json_extract(data, '$.cart[0].size'), data->>'name' FROM conversation"
            ).fetchall()
        assert found == [("bot//.user/7", "large", "Ünï\U0001f600")]

    async def test_data_mended_by_hand_is_read_back(self, path):
        await filled(path)
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("UPDATE conversation SET data = '{ \"a\" : [ 2 ] }'")
        async with SQLiteStore(path) as store:
            assert await store.get_data("bot", KEY) == {"a": [2]}


class TestRefused:
    """Each with what to do, and the file byte for byte as it was."""

    async def refused(self, path, kind, match, **options):
        before = path.read_bytes() if path.is_file() else None
        store = SQLiteStore(path, timeout=0.1, **options)
        with pytest.raises(kind, match=match) as raised:
            await store.open()
        with pytest.raises(kind):
            await store.set_data("bot", KEY, {"a": 2})
        await store.close()
        assert type(raised.value) is kind
        assert raised.value.url == store.url
        if before is not None:
            assert path.read_bytes() == before
        return raised.value

    async def test_a_missing_directory(self, tmp_path):
        error = await self.refused(
            tmp_path / "no" / "bot.db", StoreUnavailable, "no does not exist; create it"
        )
        assert not error.retryable

    async def test_a_directory(self, tmp_path):
        await self.refused(tmp_path, StoreUnavailable, "is a directory; name a file in it")

    async def test_a_file_that_is_no_database(self, path):
        path.write_text("the diary of a bot\n" * 100)
        await self.refused(path, StoreCorrupt, "not an SQLite database.*left as it is")
        assert [file.name for file in path.parent.iterdir()] == ["bot.db"]

    @pytest.mark.parametrize("journal", ["delete", "wal"])
    async def test_a_database_of_another_program(self, path, journal):
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute(f"PRAGMA journal_mode={journal}")
            connection.execute("CREATE TABLE diary (line TEXT)")
        await self.refused(path, StoreCorrupt, "of another program; it was left as it is")

    async def test_an_empty_database_of_another_program(self, path):
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("PRAGMA application_id=7")
        await self.refused(path, StoreCorrupt, "of another program")

    async def test_a_database_of_another_program_that_is_only_in_its_log(self, path):
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA journal_mode=wal")
            connection.execute("CREATE TABLE diary (line TEXT)")
            await self.refused(path, StoreCorrupt, "of another program")

    async def test_a_newer_schema(self, path):
        await filled(path)
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("PRAGMA user_version=99")
        await self.refused(
            path, SchemaError, "schema 99 and this version of hitherto knows 1; upgrade hitherto"
        )

    async def test_a_truncated_file(self, path):
        whole = await filled(path)
        path.write_bytes(whole[: len(whole) // 2])
        await self.refused(path, StoreCorrupt, r"damaged.*\.recover")

    async def test_a_file_locked_by_another_program(self, path):
        await filled(path)
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("PRAGMA locking_mode=EXCLUSIVE")
            connection.execute("BEGIN EXCLUSIVE")
            error = await self.refused(path, StoreUnavailable, r"locked by another connection.*timeout=")
            assert error.retryable

    @pytest.mark.parametrize("what", ["file", "directory"])
    def test_a_read_only_file_or_directory(self, what):
        """In a process of its own that is not root, whom no permission stops."""
        script = """
            import asyncio, os, sys
            from hitherto.stores.sqlite import SQLiteStore
            from hitherto.errors import StoreUnavailable
            path, what = sys.argv[1:]
            asyncio.run(SQLiteStore(path).close())
            async def fill():
                async with SQLiteStore(path) as store: await store.set_data("bot", (1,), {"a": 1})
            async def refused():
                store = SQLiteStore(path)
                try: await store.set_data("bot", (1,), {"a": 2})
                except StoreUnavailable as error: print(error.retryable, error)
                await store.close()
            os.chmod(os.path.dirname(path), 0o777)
            if os.getuid() == 0: os.setgid(65534); os.setuid(65534)
            asyncio.run(fill())
            before = open(path, "rb").read()
            os.chmod(path, 0o400) if what == "file" else os.chmod(path, 0o600)
            if what == "directory":
                os.rename(path, path + "2"); os.mkdir(path); os.rename(path + "2", path + "/bot.db")
                os.chmod(path, 0o500); path += "/bot.db"
            asyncio.run(refused())
            assert open(path, "rb").read() == before
        """
        with tempfile.TemporaryDirectory() as folder:
            found = run(script, os.path.join(folder, "bot.db"), what)
        assert found.startswith("False ")
        assert "is read-only" in found


class TestTroubleLater:
    async def test_a_full_disk(self, path):
        """No more pages: the change is refused, the file works again when there is room."""
        async with SQLiteStore(path) as store:
            await store.set_data("bot", KEY, {"a": 1})
            pages = await store._running().submit(
                lambda session: session.query("PRAGMA page_count", ())[0][0]
            )
            await store._running().submit(lambda session: session.query(f"PRAGMA max_page_count={pages}", ()))
            with pytest.raises(StoreUnavailable, match="disk is full, nothing was changed") as raised:
                await store.set_data("bot", KEY, {"a": "x" * 100_000})
            assert raised.value.retryable
            assert await store.get_data("bot", KEY) == {"a": 1}
            await store._running().submit(lambda session: session.query("PRAGMA max_page_count=100000", ()))
            await store.set_data("bot", KEY, {"a": "x" * 100_000})

    def test_a_disk_that_takes_no_more_bytes(self, path):
        """The operating system refuses the write: an error, and afterwards nothing is lost or half there."""
        script = """
            import asyncio, resource, signal, sys
            from hitherto.stores.sqlite import SQLiteStore
            from hitherto.errors import StoreUnavailable
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            async def main():
                refused = 0
                async with SQLiteStore(sys.argv[1]) as store:
                    await store.set_data("bot", (0,), {"n": 0})
                    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, resource.RLIM_INFINITY))
                    for n in range(1, 60):
                        try: await store.update_data("bot", (0,), {"n": n, "pad": "x" * 9000})
                        except StoreUnavailable: refused += 1
                        else: last = n
                    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
                    kept = (await store.get_data("bot", (0,)))["n"]
                    await store.update_data("bot", (0,), {"n": 1000})
                async with SQLiteStore(sys.argv[1]) as store:
                    print(refused > 0, kept == last, (await store.get_data("bot", (0,)))["n"])
            asyncio.run(main())
        """
        assert run(script, path) == "True True 1000"

    async def test_damage_in_the_middle_is_found_when_it_is_read(self, path):
        async with SQLiteStore(path) as store:
            for number in range(300):
                await store.set_data("bot", (number,), {"pad": "x" * 500})
        bytes_ = bytearray(path.read_bytes())
        draw = random.Random(1)
        for page in range(2, len(bytes_) // 4096):
            bytes_[page * 4096 : page * 4096 + 200] = draw.randbytes(200)
        path.write_bytes(bytes_)
        async with SQLiteStore(path) as store:
            reads = [store.get_data("bot", (number,)) for number in range(300)]
            found = await asyncio.gather(*reads, return_exceptions=True)
        damaged = [one for one in found if isinstance(one, StoreCorrupt)]
        assert damaged
        assert all("damaged" in str(one) for one in damaged)
        assert all(one in damaged or one == {"pad": "x" * 500} for one in found)

    @pytest.mark.parametrize(
        ("column", "value"), [("body", b"\xff\xff"), ("body", "text"), ("data", "{oops")]
    )
    async def test_a_damaged_row_hurts_nobody_else(self, path, column, value):
        async with SQLiteStore(path) as store:
            await store.set_data("bot", KEY, {"a": 1})
            await store.set_data("bot", ("other",), {"a": 1})
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute(f"UPDATE conversation SET {column}=? WHERE id=1", (value,))
        async with SQLiteStore(path) as store:
            with pytest.raises(StoreCorrupt, match="row 1 of table conversation is damaged"):
                await store.get_data("bot", KEY)
            await store.update_data("bot", ("other",), {"b": 2})

    @pytest.mark.parametrize("what", ["deleted", "replaced"])
    async def test_a_file_that_is_deleted_or_replaced_in_use(self, path, what):
        store = SQLiteStore(path)
        await store.set_data("bot", KEY, {"a": 1})
        path.rename(path.with_name("old.db"))
        if what == "replaced":
            await filled(path, b=2)
        for _ in range(2):
            with pytest.raises(
                StoreUnavailable, match=r"was deleted or replaced.*close the store and open it"
            ):
                await store.set_data("bot", KEY, {"a": 2})
        await store.close()
        await store.open()
        assert await store.get_data("bot", KEY) == ({"b": 2} if what == "replaced" else None)
        await store.close()

    async def test_locked_while_another_program_writes(self, path):
        async with SQLiteStore(path, timeout=0.1) as store:
            await store.set_data("bot", KEY, {"a": 1})
            with closing(sqlite3.connect(path, isolation_level=None)) as connection:
                connection.execute("BEGIN IMMEDIATE")
                with pytest.raises(StoreUnavailable, match="locked by another connection"):
                    await store.set_data("bot", KEY, {"a": 2})
                assert await store.get_data("bot", KEY) == {"a": 1}
                connection.execute("ROLLBACK")
            await store.set_data("bot", KEY, {"a": 3})

    async def test_too_large_for_a_record_is_no_store_error(self, path):
        async with SQLiteStore(path) as store:
            with pytest.raises(DataError):
                await store.set_data("bot", KEY, {"a": "x" * 2_000_000})


class TestMigration:
    async def test_an_older_file_is_brought_forward(self, path, monkeypatch):
        await filled(path)
        steps = (
            *schema.STEPS,
            ("ALTER TABLE conversation ADD COLUMN colour TEXT",),
            ("CREATE TABLE more (x)",),
        )
        monkeypatch.setattr(schema, "STEPS", steps)
        async with SQLiteStore(path) as store:
            assert await store.get_data("bot", KEY) == {"a": 1}
            await store.set_data("bot", KEY, {"a": 2})
        with closing(sqlite3.connect(path)) as connection:
            assert connection.execute("PRAGMA user_version").fetchone() == (3,)
            assert connection.execute("SELECT colour FROM conversation").fetchall() == [(None,)]

    async def test_a_step_that_fails_changes_nothing(self, path, monkeypatch):
        before = await filled(path)
        monkeypatch.setattr(
            schema, "STEPS", (*schema.STEPS, ("CREATE TABLE more (x)", "CREATE TABLE seen (x)"))
        )
        store = SQLiteStore(path)
        with pytest.raises(StoreError, match="already exists"):
            await store.open()
        await store.close()
        assert path.read_bytes() == before

    async def test_what_a_crash_left_between_making_and_logging_is_taken(self, path):
        """Made, but not yet in the log's mode."""
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            schema.migrate(connection, "")
        await filled(path)


class TestWarning:
    @pytest.fixture(autouse=True)
    def _not_yet_warned(self, monkeypatch):
        monkeypatch.setattr(store, "_warned", [])

    async def test_an_old_sqlite_is_warned_about_once(self, path, monkeypatch, recwarn):
        monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 51, 2))
        with pytest.warns(StoreWarning, match="WAL-reset bug"):
            await SQLiteStore(path).open()
        await SQLiteStore(path).open()
        assert not [one for one in recwarn if one.category is StoreWarning]

    @pytest.mark.parametrize("version", [(3, 51, 3), (3, 52, 0)])
    async def test_a_new_one_is_not(self, path, monkeypatch, recwarn, version):
        monkeypatch.setattr(sqlite3, "sqlite_version_info", version)
        await SQLiteStore(path).open()
        assert not [one for one in recwarn if one.category is StoreWarning]

    async def test_memory_has_no_log(self, monkeypatch, recwarn):
        monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 40, 0))
        await SQLiteStore(":memory:").open()
        assert not [one for one in recwarn if one.category is StoreWarning]
