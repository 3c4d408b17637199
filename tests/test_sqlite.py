"""SQLiteStore's engine: group commit, errors that stay with their own, loops, threads, forks, processes."""

from __future__ import annotations

import asyncio
import gc
import sqlite3
import subprocess
import sys
import textwrap
import threading
import time
from collections import Counter
from contextlib import closing

import pytest

from hitherto.addresses import Address
from hitherto.document import Event, Terms
from hitherto.errors import StoreClosed, StoreError
from hitherto.overlap import Queue
from hitherto.records import Patch, Record
from hitherto.stores.base import none_first
from hitherto.stores.sqlite import SQLiteStore, line, listing

TERMS = Terms()


@pytest.fixture
async def store(tmp_path):
    async with SQLiteStore(tmp_path / "bot.db") as store:
        yield store


def at(*key):
    return Address("bot", "", key)


def connection_of(session):
    return session._execute.__self__


async def traced(store):
    """Every statement that is run from now on."""
    statements = []
    await store._running().submit(
        lambda session: connection_of(session).set_trace_callback(statements.append)
    )
    statements.clear()
    return statements


async def turn(store, key, number):
    """One event accepted and settled; its payload is what the next one finds."""
    answer = await store.accept(at(key), Event(f"{key}-{number}", b"{}"), Queue(), "me", store.op(), TERMS)
    patch = Patch(set={"n": b"%d" % number}, moved=True, flow="f", state=f"s{number % 3}")
    settled = await store.settle(at(key), answer.grant.claim, store.op(), TERMS, patch=patch)
    assert settled.status == "committed"


def run(script, *arguments, timeout=60):
    """A program in a process of its own; what it printed."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(script), *map(str, arguments)],
        capture_output=True, text=True, timeout=timeout,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


class TestGroupCommit:
    async def test_a_hundred_conversations_share_their_commits(self, store):
        """At 100 concurrent conversations: well under one commit, which is one fsync, for ten turns."""

        async def talk(key):
            for number in range(10):
                await turn(store, key, number)

        await asyncio.gather(*[turn(store, key, -1) for key in range(100)])
        statements = await traced(store)
        await asyncio.gather(*[talk(key) for key in range(100)])
        commits = statements.count("COMMIT")
        assert 20 <= commits <= 60
        assert statements.count("BEGIN IMMEDIATE") == commits
        assert len(statements) < 1000 * 4

    async def test_without_group_commit_every_operation_pays(self, tmp_path):
        async with SQLiteStore(tmp_path / "bot.db", group=False) as store:
            statements = await traced(store)
            await asyncio.gather(*[turn(store, key, 0) for key in range(10)])
            assert statements.count("COMMIT") == 20

    async def test_one_alone_is_committed_at_once(self, store):
        statements = await traced(store)
        await turn(store, 1, 0)
        assert statements.count("COMMIT") == 2

    async def test_fifty_merges_at_once_keep_fifty_keys(self, store):
        answers = await asyncio.gather(*[store.update_data("bot", (1,), {f"k{n}": n}) for n in range(50)])
        assert await store.get_data("bot", (1,)) == {f"k{n}": n for n in range(50)}
        assert sorted(map(len, answers)) == list(range(1, 51))

    async def test_an_answer_is_given_only_after_the_commit(self, store):
        """Whoever has its answer finds the change on disk, by any other connection."""
        with closing(sqlite3.connect(store.path)) as other:

            async def check(key):
                await turn(store, key, 7)
                found = other.execute(
                    "SELECT data FROM conversation WHERE address=?", (f"bot//{key}",)
                ).fetchone()
                assert found == ('{"n":7}',)

            await asyncio.gather(*[check(key) for key in range(30)])

    async def test_no_answer_while_the_commit_waits(self, store):
        """The transaction is held back before its commit: nobody is answered."""
        gate = threading.Event()
        session = await store._running().submit(lambda session: session)
        flush = session.flush

        def held():
            flush()
            assert gate.wait(10)

        session.flush = held
        tasks = [asyncio.create_task(store.update_data("bot", (n,), {"a": 1})) for n in range(5)]
        done, _ = await asyncio.wait(tasks, timeout=0.2)
        assert not done
        gate.set()
        assert await asyncio.gather(*tasks) == [{"a": 1}] * 5

    async def test_reading_waits_for_no_writer(self, store):
        await store.set_data("bot", (1,), {"a": 1})
        with closing(sqlite3.connect(store.path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            assert await store.get_data("bot", (1,)) == {"a": 1}
            assert [one async for one in store.scan("bot", "all")] == [at(1)]

    async def test_what_other_processes_wrote_is_seen_at_once(self, store):
        await store.set_data("bot", (1,), {"a": 1})
        with closing(sqlite3.connect(store.path)) as other, other:
            other.execute("""UPDATE conversation SET data = '{"a":2}'""")
        assert await store.update_data("bot", (1,), {"b": 1}) == {"a": 2, "b": 1}

    async def test_a_large_record_is_not_remembered_wrongly(self, store):
        """Small, then too large for the cache, then small again, with other conversations between."""
        for size in (10, 100_000, 10, 100_000):
            await store.set_data("bot", (1,), {"pad": "x" * size})
            assert await store.get_data("bot", (1,)) == {"pad": "x" * size}
        assert await store.update_data("bot", (1,), {"b": 1}) == {"pad": "x" * 100_000, "b": 1}

    async def test_a_small_cache_is_enough(self, tmp_path):
        async with SQLiteStore(tmp_path / "bot.db", cache=4) as store:
            for number in range(3):
                await asyncio.gather(*[turn(store, key, number) for key in range(50)])
            session = await store._running().submit(lambda session: session)
            assert len(session._young) + len(session._old) <= 4 + 50


class TestNeighbours:
    """What one operation does wrong is its own error; those beside it in the transaction are committed."""

    async def beside(self, store, culprit, error):
        statements = await traced(store)
        good = [store.update_data("bot", (n,), {"a": n}) for n in range(5)]
        found = await asyncio.gather(*good[:2], culprit, *good[2:], return_exceptions=True)
        assert isinstance(found.pop(2), error)
        assert found == [{"a": n} for n in range(5)]
        assert [await store.get_data("bot", (n,)) for n in range(5)] == found
        return statements

    async def test_a_change_that_raises(self, store):
        def fails(document, now):
            raise LookupError("no")

        statements = await self.beside(store, store.transact(at(9), fails), LookupError)
        assert "ROLLBACK" not in statements
        assert await store.get_data("bot", (9,)) is None

    async def test_a_row_that_sqlite_refuses(self, store):
        await store._running().submit(
            lambda session: connection_of(session).setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 10_000)
        )
        statements = await self.beside(store, store.set_data("bot", (9,), {"a": "x" * 20_000}), StoreError)
        assert statements.count("ROLLBACK") == 2
        assert await store.get_data("bot", (9,)) is None

    async def test_an_id_that_cannot_be_written(self, store):
        event = Event("lone \ud800 surrogate", b"{}")
        await self.beside(store, store.accept(at(9), event, Queue(), "me", None, TERMS), UnicodeEncodeError)
        assert (await store.load(at(9))).inbox == ()

    async def test_errors_are_everybodys_own(self, tmp_path):
        """One object raised in many tasks would mix up their tracebacks."""
        store = SQLiteStore(tmp_path / "no" / "bot.db")
        found = await asyncio.gather(*[store.get_data("bot", (n,)) for n in range(3)], return_exceptions=True)
        assert len({id(error) for error in found}) == 3
        assert {type(error).__name__ for error in found} == {"StoreUnavailable"}
        await store.close()

    async def test_a_cancelled_waiter_leaves_the_others_alone(self, store):
        tasks = [asyncio.create_task(store.update_data("bot", (1,), {f"k{n}": n})) for n in range(20)]
        await asyncio.sleep(0)
        for task in tasks[::3]:
            task.cancel()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        kept = await store.get_data("bot", (1,))
        for number, answer in enumerate(found):
            assert isinstance(answer, asyncio.CancelledError) == (number % 3 == 0)
            assert number % 3 == 0 or kept[f"k{number}"] == number

    async def test_a_conversation_deleted_and_made_again_in_one_transaction(self, store):
        await store.set_data("bot", (1,), {"a": 1})
        for _ in range(3):
            await asyncio.gather(
                store.clear("bot", (1,)), store.set_data("bot", (1,), {"b": 1}), store.clear("bot", (1,)),
                store.set_data("bot", (1,), {"c": 1}), store.set_data("bot", (2,), {"d": 1}),
            )  # fmt: skip
        assert await store.get_data("bot", (1,)) == {"c": 1}
        assert await store.get_data("bot", (2,)) == {"d": 1}


class TestLife:
    async def test_used_after_close_is_an_error_until_opened_again(self, store):
        await store.set_data("bot", (1,), {"a": 1})
        await store.close()
        await store.close()
        with pytest.raises(StoreClosed, match=r"open\(\) it again"):
            await store.get_data("bot", (1,))
        await store.open()
        assert await store.get_data("bot", (1,)) == {"a": 1}

    async def test_close_waits_for_what_was_asked_before(self, store):
        tasks = [asyncio.create_task(store.update_data("bot", (1,), {f"k{n}": n})) for n in range(20)]
        await asyncio.sleep(0)
        await store.close()
        assert all(len(answer) for answer in await asyncio.gather(*tasks))
        await store.open()
        assert len(await store.get_data("bot", (1,))) == 20

    async def test_closed_by_many_at_once(self, store):
        await store.get_data("bot", (1,))
        await asyncio.gather(*[store.close() for _ in range(5)])

    def test_one_loop_after_the_other(self, tmp_path):
        store = SQLiteStore(tmp_path / "bot.db")
        for number in range(3):
            assert len(asyncio.run(store.update_data("bot", (1,), {f"k{number}": 1}))) == number + 1
        asyncio.run(store.close())

    def test_several_loops_at_once(self, tmp_path):
        """Each loop gets its own answers."""
        store, failed = SQLiteStore(tmp_path / "bot.db"), []

        async def talk(name):
            for number in range(40):
                answers = await asyncio.gather(
                    *[store.update_data("bot", (name,), {"n": number}) for _ in range(3)]
                )
                if answers != [{"n": number}] * 3:
                    failed.append(answers)

        threads = [threading.Thread(target=lambda name=n: asyncio.run(talk(name))) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        asyncio.run(store.close())
        assert not failed

    async def test_a_loop_that_ended_early_disturbs_nobody(self, tmp_path):
        store = SQLiteStore(tmp_path / "bot.db")

        def leave():
            loop = asyncio.new_event_loop()
            task = loop.create_task(store.set_data("bot", (1,), {"a": 1}))
            loop.run_until_complete(asyncio.sleep(0))
            task.cancel()
            loop.run_until_complete(asyncio.wait([task]))
            loop.close()

        await asyncio.to_thread(leave)
        assert await store.update_data("bot", (2,), {"a": 1}) == {"a": 1}
        await store.close()

    async def test_forgotten_without_close_ends_its_thread(self, tmp_path):
        store = SQLiteStore(tmp_path / "bot.db")
        await store.set_data("bot", (1,), {"a": 1})
        thread = store._engine._thread
        del store
        gc.collect()
        await asyncio.to_thread(thread.join, 10)
        assert not thread.is_alive()
        assert [file.name for file in tmp_path.iterdir()] == ["bot.db"]

    def test_forgotten_at_the_end_of_the_program_hangs_nothing(self, tmp_path):
        script = """
            import asyncio, sys
            from hitherto.stores.sqlite import SQLiteStore
            store = SQLiteStore(sys.argv[1])
            print(asyncio.run(store.update_data("bot", (1,), {"a": 1})))
        """
        assert run(script, tmp_path / "bot.db", timeout=20) == "{'a': 1}"

    def test_a_fork_of_an_open_store_is_refused(self, tmp_path):
        """In the child; also a new store on the same file; the parent goes on."""
        script = """
            import asyncio, os, sys
            from hitherto.errors import StoreClosed
            from hitherto.stores.sqlite import SQLiteStore
            store = SQLiteStore(sys.argv[1])
            asyncio.run(store.set_data("bot", (1,), {"a": 1}))
            if not (child := os.fork()):
                for one in (store, SQLiteStore(sys.argv[1])):
                    try: asyncio.run(one.get_data("bot", (1,)))
                    except StoreClosed as error: os.write(1, str("fork" in str(error)).encode())
                os._exit(0)
            os.waitpid(child, 0)
            os.write(1, str(asyncio.run(store.get_data("bot", (1,)))).encode())
            asyncio.run(store.close())
            if not (child := os.fork()):
                for one in (store, SQLiteStore(sys.argv[1])):
                    asyncio.run(one.open())
                    os.write(1, str(asyncio.run(one.get_data("bot", (1,)))).encode())
                os._exit(0)
            os.waitpid(child, 0)
        """
        assert run(script, tmp_path / "bot.db") == "TrueTrue" + "{'a': 1}" * 3

    async def test_a_saturated_loop_steps_aside(self, store, monkeypatch):
        """A loop that never rests would keep the interpreter's lock from the engine for seconds.

        The engine is slow here, and the loop's time is all spent on the processor, however busy the machine.
        """
        pauses, sleep = [], time.sleep
        session = await store._running().submit(lambda session: session)
        flush = session.flush
        session.flush = lambda: (flush(), threading.Event().wait(0.03))
        monkeypatch.setattr(line.time, "sleep", lambda seconds: (pauses.append(seconds), sleep(seconds)))
        monkeypatch.setattr(line.time, "thread_time", time.monotonic)
        stop = False

        async def hog():
            while not stop:  # noqa: ASYNC110 - it is to be a loop without rest
                await asyncio.sleep(0)

        task = asyncio.create_task(hog())
        for number in range(3):
            await turn(store, 1, number)
        stop = True
        await task
        assert pauses
        assert max(pauses) < 0.001

    async def test_a_loop_that_rests_never_does(self, store, monkeypatch):
        monkeypatch.setattr(line.time, "sleep", lambda seconds: pytest.fail("the loop was made to sleep"))
        session = await store._running().submit(lambda session: session)
        flush = session.flush
        session.flush = lambda: (flush(), threading.Event().wait(0.05))
        for number in range(3):
            await turn(store, 1, number)

    def test_a_repr_tells_no_more_than_the_path(self, tmp_path):
        assert repr(SQLiteStore("bot.db")).endswith("bot.db')")


WRITER = """
    import asyncio, sys
    from hitherto.stores.sqlite import SQLiteStore
    path, name = sys.argv[1], sys.argv[2]
    async def main():
        async with SQLiteStore(path) as store:
            for number in range(20):
                merges = [{f"{name}-{number}-{n}": n} for n in range(5)]
                await asyncio.gather(*[store.update_data("bot", (1,), merge) for merge in merges])
    print("ready", flush=True)
    sys.stdin.readline()
    asyncio.run(main())
"""
RACER = """
    import asyncio, sys, time
    sys.path.insert(0, sys.argv[3])
    from test_sqlite import turn
    from hitherto.stores.sqlite import SQLiteStore
    path, name = sys.argv[1], sys.argv[2]
    done = 0
    async def talk(store, key):
        global done
        number = 0
        while time.monotonic() < end:
            await turn(store, key, number)
            number, done = number + 1, done + 1
    async def main():
        async with SQLiteStore(path) as store:
            await asyncio.gather(*[talk(store, f"{name}-{n}") for n in range(25)])
    print("ready", flush=True)
    sys.stdin.readline()
    end = time.monotonic() + 2
    asyncio.run(main())
    print(done)
"""


def together(script, number, *arguments):
    """Several processes, let go at the same moment, when all say that they are ready."""
    path, *rest = map(str, arguments)
    command = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(script), path]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    running = [subprocess.Popen([*command, str(n), *rest], text=True, **pipes) for n in range(number)]
    for process in running:
        process.stdout.readline()
    for process in running:
        process.stdin.write("go\n")
        process.stdin.flush()
    outputs = [process.communicate(timeout=90) for process in running]
    assert [process.returncode for process in running] == [0] * number, outputs
    return [out for out, _ in outputs]


class TestProcesses:
    def test_eight_make_the_file_and_merge_into_one_conversation(self, tmp_path):
        """All start on a file that does not exist; every key is kept."""
        path = tmp_path / "bot.db"
        together(WRITER, 8, path)
        data = asyncio.run(SQLiteStore(path).get_data("bot", (1,)))
        assert data == {f"{p}-{number}-{n}": n for p in range(8) for number in range(20) for n in range(5)}

    def test_four_get_their_share(self, tmp_path):
        """SQLite's own busy handler gives one of four nearly nothing, race after race; here nobody starves.

        A busy machine may hold one of them up once.
        """
        here = __file__.rpartition("/")[0]
        for race in range(3):
            done = [int(number) for number in together(RACER, 4, tmp_path / f"{race}.db", here)]
            if min(done) > 0.3 * sum(done) / 4:
                return
        raise AssertionError(done)


@pytest.mark.parametrize("at_once", [1, 2, 3, 20_000])
async def test_counts_are_made_in_parts_that_sum_up(at_once, monkeypatch):
    monkeypatch.setattr(listing, "COUNTED_AT_ONCE", at_once)
    steps = []
    count = listing.count
    monkeypatch.setattr(listing, "count", lambda *args, **given: steps.append(1) or count(*args, **given))
    wanted = Counter()
    async with SQLiteStore(":memory:") as store:
        for number in range(40):
            flow, state = (None, "", "a", "b")[number % 4], (None, "x", "y")[number % 3]
            await store.set_state("bot", (number,), Record(flow, state, {}))
            await store.set_state("other", (number,), Record(flow, state, {}))
            wanted[flow, state] += 1
        expected = sorted([(*place, number) for place, number in wanted.items()], key=none_first)
        assert await store.counts("bot") == expected
        assert 40 // at_once <= len(steps) <= max(1, 40 // at_once + 12)
        assert await store.counts("nobody") == []


async def test_a_part_of_the_counts_can_be_made_again():
    async with SQLiteStore(":memory:") as store:
        for number in range(5):
            await store.set_state("bot", (number,), Record("a", "x", {}))
        first = await store._running().submit(
            lambda session: listing.count(session, "bot", listing.Counted())
        )
        again = await store._running().submit(
            lambda session: listing.count(session, "bot", listing.Counted())
        )
        assert first == again
        assert listing.Counted().numbers == {}
