"""The keeper for code that blocks: threads, errors, forks, interrupts, the end, a WSGI webhook."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import traceback
import urllib.request
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from socketserver import ThreadingMixIn
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import pytest

from hitherto import Burst, Fenced, Flow, MemoryStore, Outcome, Reject, State
from hitherto.errors import KeeperClosed, NotStarted, StoreError
from hitherto.sync import Keeper

LONG = 60.0


class Signup(Flow):
    ask_name = State(to="ask_email", initial=True)
    ask_email = State(to=[])


def update(number, text="hi", who=7):
    person = {"chat": {"id": who, "type": "private"}, "from": {"id": who}}
    return {"update_id": number, "message": {"text": text, **person}}


def count(turn):
    turn.update_data(n=turn.data.get("n", 0) + 1)


def data_of(keeper, key=(7, 7)):
    with keeper.open(key) as turn:
        return dict(turn.data)


@pytest.fixture
def keeper():
    with Keeper("bot", flows=[Signup]) as keeper:
        yield keeper


# ------------------------------------------------------------------------------------------------ the verbs


def test_a_turn_runs_in_the_thread_that_called(keeper):
    ran = []

    def handler(turn):
        ran.append(threading.current_thread())
        turn.start(Signup)
        turn.update_data(text=turn.event["message"]["text"])

    outcome = keeper.handle(update(1), handler)
    assert outcome == Outcome("committed", "tg:1", (7, 7), 0, 1)
    assert ran == [threading.current_thread()]
    with keeper.open((7, 7)) as turn:
        assert (turn.state, turn.data) == (Signup.ask_name, {"text": "hi"})
    assert keeper.handle(update(1), handler).status == "duplicate"
    assert (len(ran), keeper.counts["committed"]) == (1, 1)


def test_what_it_raises_is_raised_here_with_its_traceback_and_nothing_is_kept():
    def breaks(turn):
        turn.update_data(x=1)
        raise ZeroDivisionError("mine")

    with Keeper("bot", on_error="discard") as keeper:
        with pytest.raises(ZeroDivisionError, match="mine") as caught:
            keeper.handle(update(1), breaks)
        assert "breaks" in [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
        assert data_of(keeper) == {}
        assert keeper.handle(update(2), count).status == "committed"


def test_what_fails_is_tried_again_by_a_worker():
    ran, done = [], threading.Event()

    def handler(turn):
        ran.append(threading.current_thread().name)
        if turn.attempt == 1:
            raise OSError("once")
        done.set()

    with Keeper("bot", backoff=lambda attempt: 0.0) as keeper:
        with pytest.raises(OSError, match="once"):
            keeper.handle(update(1), handler)
        assert done.wait(LONG)
        assert keeper.idle()
    assert ran == [threading.current_thread().name, "hitherto-worker"]


def test_an_event_that_has_to_wait_is_queued_and_run_by_a_worker(keeper):
    began, go, ran = threading.Event(), threading.Event(), []

    def slow(turn):
        began.set()
        assert go.wait(LONG)
        ran.append("slow")

    def queued(turn):
        ran.append(threading.current_thread().name)

    with ThreadPoolExecutor(1) as other:
        first = other.submit(keeper.handle, update(1), slow)
        assert began.wait(LONG)
        assert keeper.handle(update(2), queued).status == "queued"
        go.set()
        assert first.result(LONG).status == "committed"
    assert keeper.idle()
    assert ran == ["slow", "hitherto-worker"]


def test_accept_returns_when_it_is_kept(keeper):
    go, done = threading.Event(), threading.Event()

    def handler(turn):
        assert go.wait(LONG)
        count(turn)
        done.set()

    assert keeper.accept(update(1), handler).accepted
    assert not done.is_set()
    go.set()
    assert keeper.idle()
    assert data_of(keeper) == {"n": 1}


def test_open_commits_or_not(keeper):
    with keeper.open((7, 7)) as turn:
        turn.start(Signup)
    with pytest.raises(KeyError), keeper.open((7, 7)) as turn:  # noqa: PT012
        turn.clear()
        raise KeyError("mine")
    with keeper.open((7, 7)) as turn:
        assert turn.state == Signup.ask_name


def test_open_waits_for_its_time(keeper):
    def handler(turn):
        with ThreadPoolExecutor(1) as other:
            other.submit(opened).result(LONG)

    def opened():
        with pytest.raises(TimeoutError), keeper.open((7, 7), timeout=0.05):
            raise AssertionError

    assert keeper.handle(update(1), handler).status == "committed"


def test_open_of_what_this_thread_holds_is_refused_at_once(keeper):
    with keeper.open((7, 7)), pytest.raises(RuntimeError, match="wait for itself"), keeper.open((7, 7)):
        pass
    with pytest.raises(RuntimeError, match="wait for itself"):
        keeper.handle(update(1), lambda turn: keeper.open((7, 7)).__enter__())


def test_a_block_that_lost_its_conversation_says_so(keeper):
    with pytest.raises(Fenced), keeper.open((7, 7)) as turn:  # noqa: PT012
        turn.update_data(x=1)
        assert keeper.force_release((7, 7))
    assert data_of(keeper) == {}


def test_looking_and_mending():
    steps = []

    def breaks(turn):
        raise ValueError("always")

    with Keeper("bot", max_attempts=1) as keeper:
        stop = keeper.listen(lambda step: steps.append(step.kind))
        with pytest.raises(ValueError, match="always"):
            keeper.handle(update(1), breaks)
        assert keeper.dead_keys() == [(7, 7)]
        (dead,) = keeper.dead_letters((7, 7))
        assert keeper.drop_dead((7, 7), dead.seq)
        assert not keeper.retry_dead((7, 7), dead.seq)
        assert "failed" in steps
        stop()
        keeper.sweep()
        assert keeper.health().ok
        keeper.handle(update(2), count)
        assert keeper.inspect((7, 7)).record is not None
        keeper.forget((7, 7))
        assert keeper.inspect((7, 7)).record is None
        assert (keeper.bot, keeper.running) == ("bot", True)


def test_what_a_crash_left_behind_is_run_by_the_keepers_own_handler(tmp_path):
    url = f"sqlite:///{tmp_path / 'bot.db'}"
    script = """
        import os, sys
        from hitherto.sync import Keeper
        keeper = Keeper("bot", sys.argv[1], lease=0.5)
        keeper.start()
        person = {"chat": {"id": 7, "type": "private"}, "from": {"id": 7}}
        keeper.handle({"update_id": 1, "message": {"text": "x", **person}}, lambda turn: os._exit(9))
    """
    with program(script, url) as process:
        process.communicate(timeout=LONG)
    assert process.returncode == 9
    done = threading.Event()

    def handler(turn):
        count(turn)
        done.set()

    with Keeper("bot", url, handler=handler, lease=0.5, sweep=0.1) as keeper:
        assert done.wait(LONG)
        assert keeper.idle()
        assert data_of(keeper) == {"n": 1}


# --------------------------------------------------------------------------------------------- many threads


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_fifty_threads(kind, tmp_path):
    """In one conversation nothing is lost and nothing runs twice; several go on side by side."""
    url = "memory://" if kind == "memory" else f"sqlite:///{tmp_path / 'bot.db'}"
    inside, worst = Counter(), Counter()

    def handler(turn):
        who = turn.key[0]
        inside[who] += 1
        worst[who] = max(worst[who], inside[who])
        count(turn)
        inside[who] -= 1

    with Keeper("bot", url) as keeper, ThreadPoolExecutor(50) as threads:
        outcomes = list(threads.map(lambda n: keeper.handle(update(n, who=1 + n % 5), handler), range(400)))
        assert {outcome.status for outcome in outcomes} <= {"committed", "queued"}
        assert keeper.idle()
        assert [data_of(keeper, (who, who)) for who in range(1, 6)] == [{"n": 80}] * 5
    assert set(worst.values()) == {1}


def test_a_handler_may_handle_for_others(keeper):
    def outer(turn):
        count(turn)
        assert keeper.handle(update(turn.event["update_id"] + 1000, who=8), count).accepted
        with keeper.open((9, 9)) as other:
            count(other)

    with ThreadPoolExecutor(20) as threads:
        list(threads.map(lambda n: keeper.handle(update(n), outer), range(40)))
    assert keeper.idle()
    assert [data_of(keeper, (who, who)) for who in (7, 8, 9)] == [{"n": 40}] * 3


def test_workers_that_wait_for_each_other_get_help():
    """The only worker waits for a conversation whose turn needs a worker, too."""
    with Keeper("bot", workers=1) as keeper:
        began = threading.Event()

        def opens(turn):
            began.set()
            assert keeper.accept(update(2, who=8), count).accepted
            with keeper.open((8, 8)) as other:
                turn.update_data(seen=other.data.get("n", 0))

        keeper.accept(update(1), opens)
        assert began.wait(LONG)
        assert keeper.idle()
        assert data_of(keeper, (8, 8)) == {"n": 1}
        assert data_of(keeper)["seen"] in (0, 1)


def test_policies_are_those_of_the_keeper():
    began, go = threading.Event(), threading.Event()

    def slow(turn):
        began.set()
        assert go.wait(LONG)

    with Keeper("bot", overlap=Reject()) as keeper, ThreadPoolExecutor(1) as other:
        first = other.submit(keeper.handle, update(1), slow)
        assert began.wait(LONG)
        assert keeper.handle(update(2), count).status == "busy"
        go.set()
        first.result(LONG)


def test_a_burst_is_one_turn():
    seen, done = [], threading.Event()

    def handler(turn):
        seen.extend([event["update_id"] for event in (*turn.skipped, turn.event)])
        done.set()

    with Keeper("bot", overlap=Burst(0.2)) as keeper:
        for number in range(3):
            assert keeper.handle(update(number), handler).accepted
        assert done.wait(LONG)
        assert keeper.idle()
    assert seen == [0, 1, 2]


# -------------------------------------------------------------------------------------------- wrong handlers


def test_async_handlers_are_refused_with_the_way_out(keeper):
    async def handler(turn):
        raise AssertionError

    for verb in (keeper.handle, keeper.accept):
        with pytest.raises(TypeError, match=r"plain function.*hitherto\.Keeper"):
            verb(update(1), handler)
    with pytest.raises(TypeError, match="plain function"):
        Keeper("bot", handler=handler)
    with pytest.raises(TypeError, match="plain function"):
        keeper.handle(update(2), lambda turn: handler(turn))


def test_no_handler_and_no_function(keeper):
    with pytest.raises(TypeError, match="no handler"):
        keeper.handle(update(1))
    with pytest.raises(TypeError, match="a function of the turn"):
        keeper.handle(update(1), 5)
    with pytest.raises(ValueError, match="workers"):
        Keeper("bot", workers=0)
    with pytest.raises(TypeError, match="nonsense"):
        Keeper("bot", nonsense=1)


def test_a_handler_that_takes_too_long_commits_nothing():
    lost = []

    def slow(turn):
        turn.update_data(x=1)
        end = time.monotonic() + LONG
        while not turn.lost and time.monotonic() < end:
            time.sleep(0.005)
        lost.append(turn.lost)

    with Keeper("bot", handler_timeout=0.05, on_error="discard") as keeper:
        with pytest.raises(TimeoutError):
            keeper.handle(update(1), slow)
        assert lost == [True]
        assert data_of(keeper) == {}


# -------------------------------------------------------------------------------------------- start and stop


def test_starting_is_idempotent_and_needed():
    keeper = Keeper("bot")
    with pytest.raises(NotStarted, match=r"not started.*start"):
        keeper.handle(update(1), count)
    keeper.stop()
    with ThreadPoolExecutor(20) as threads:
        list(threads.map(lambda _: keeper.start(), range(20)))
    names = [thread.name for thread in threading.enumerate()]
    assert names.count("hitherto") == 1
    assert keeper.handle(update(1), count).status == "committed"
    keeper.stop()
    keeper.stop()
    assert not keeper.running
    with pytest.raises(KeeperClosed):
        keeper.handle(update(2), count)
    with pytest.raises(KeeperClosed):
        keeper.start()


def test_stopping_leaves_no_threads_behind(keeper):
    for number in range(20):
        keeper.accept(update(number, who=number + 1), count)
    keeper.idle()
    keeper.stop()
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith("hitherto")] == []


def test_stop_lets_what_runs_finish(tmp_path):
    url, began, go = f"sqlite:///{tmp_path / 'bot.db'}", threading.Event(), threading.Event()

    def slow(turn):
        began.set()
        assert go.wait(LONG)
        count(turn)

    with ThreadPoolExecutor(2) as threads:
        keeper = Keeper("bot", url)
        keeper.start()
        running = threads.submit(keeper.handle, update(1), slow)
        assert began.wait(LONG)
        stopping = threads.submit(keeper.stop, LONG)
        go.set()
        assert running.result(LONG).status == "committed"
        stopping.result(LONG)
    with Keeper("bot", url) as keeper:
        assert data_of(keeper) == {"n": 1}


def test_what_does_not_finish_in_time_is_given_back(tmp_path):
    url, began, go = f"sqlite:///{tmp_path / 'bot.db'}", threading.Event(), threading.Event()

    def slow(turn):
        count(turn)
        began.set()
        assert go.wait(LONG)

    with ThreadPoolExecutor(1) as other:
        keeper = Keeper("bot", url)
        keeper.start()
        running = other.submit(keeper.handle, update(1), slow)
        assert began.wait(LONG)
        keeper.stop(grace=0.05)
        go.set()
        assert running.result(LONG).status == "fenced"
    done = threading.Event()

    def again(turn):
        count(turn)
        done.set()

    with Keeper("bot", url, handler=again) as keeper:
        keeper.sweep()
        assert done.wait(LONG)
        assert keeper.idle()
        assert data_of(keeper) == {"n": 1}


def test_a_handler_cannot_wait_for_its_own_end(keeper):
    with pytest.raises(RuntimeError, match="its own end"):
        keeper.handle(update(1), lambda turn: keeper.stop())


def test_a_store_that_is_not_there_is_said_by_start(tmp_path):
    keeper = Keeper("bot", f"sqlite:///{tmp_path / 'no' / 'folder' / 'bot.db'}")
    with pytest.raises(StoreError):
        keeper.start()
    assert not keeper.running
    (tmp_path / "no" / "folder").mkdir(parents=True)
    with keeper:
        assert keeper.handle(update(1), count).status == "committed"


def test_calling_back_from_the_background_thread_is_an_error_and_no_deadlock():
    said = []

    def which(event):
        try:
            keeper.idle()
        except RuntimeError as error:
            said.append(str(error))
        return (7, 7)

    keeper = Keeper("bot", key=which)
    with keeper:
        keeper.handle(update(1), count)
    assert len(said) == 1
    assert "own thread" in said[0]


# ------------------------------------------------------------------------------- processes, signals, the end


def program(script, *words):
    strict = [sys.executable, "-W", "error", "-W", "ignore:SQLite 3", "-c", textwrap.dedent(script)]
    pipe = subprocess.PIPE
    return subprocess.Popen([*strict, *words], stdout=pipe, stderr=pipe, text=True, start_new_session=True)


def ran(script, *words):
    process = program(script, *words)
    try:
        out, err = process.communicate(timeout=LONG)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # it and what it forked
        process.communicate()
        raise
    assert process.returncode == 0, err
    assert err == ""
    return out.split()


FORK = """
    import os, sys, warnings
    from hitherto.sync import Keeper
    warnings.simplefilter("ignore", DeprecationWarning)
    keeper = Keeper("bot", sys.argv[1])
    if sys.argv[2] == "started":
        keeper.start()
    child = os.fork()
    if child == 0:
        try:
            keeper.start()
            keeper.handle({"id": 1}, lambda turn: turn.update_data(x=1), key=(1, 1))
            keeper.stop()
            print("done", flush=True)
        except RuntimeError as error:
            print("refused" if "after it" in str(error) else error, flush=True)
            keeper.stop()
            assert not keeper.running
        sys.exit(0)
    assert os.waitpid(child, 0)[1] == 0
    if sys.argv[2] == "started":
        keeper.handle({"id": 2}, lambda turn: turn.update_data(y=1), key=(1, 1))
        print("parent", flush=True)
"""


def test_a_keeper_is_built_before_a_fork_and_started_after_it(tmp_path):
    assert ran(FORK, f"sqlite:///{tmp_path / 'bot.db'}", "built") == ["done"]


def test_a_keeper_that_was_started_before_a_fork_says_what_to_do(tmp_path):
    assert ran(FORK, f"sqlite:///{tmp_path / 'bot.db'}", "started") == ["refused", "parent"]


def test_the_end_of_the_program_drains(tmp_path):
    url = f"sqlite:///{tmp_path / 'bot.db'}"
    script = """
        import sys, threading, time
        from hitherto.sync import Keeper
        keeper, began = Keeper("bot", sys.argv[1]), threading.Event()
        keeper.start()
        def slow(turn):
            began.set()
            time.sleep(0.3)
            turn.update_data(n=1)
        keeper.accept({"id": 1}, slow, key=(7, 7))
        assert began.wait(60)
    """
    assert ran(script, url) == []
    with Keeper("bot", url) as keeper:
        assert data_of(keeper) == {"n": 1}


@pytest.mark.parametrize("where", ["handler", "waiting"])
def test_control_c_ends_the_caller_and_keeps_the_event(tmp_path, where):
    url = f"sqlite:///{tmp_path / 'bot.db'}"
    script = """
        import sys, threading, time
        from hitherto.sync import Keeper
        def slow(turn):
            turn.update_data(wrong=1)
            print("inside", flush=True)
            time.sleep(60)
        def opens():
            print("inside", flush=True)
            with keeper.open((7, 7)):
                pass
        with Keeper("bot", sys.argv[1]) as keeper:
            if sys.argv[2] == "handler":
                keeper.handle({"id": 1}, slow, id="1", key=(7, 7))
            else:
                with keeper.open((8, 8)):
                    keeper.accept({"id": 1}, lambda turn: time.sleep(1), id="1", key=(7, 7))
                    opens()
    """
    process = program(script, url, where)
    assert process.stdout.readline().strip() == "inside"
    time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=LONG)
    assert process.returncode == -signal.SIGINT, err
    assert err.rstrip().endswith("KeyboardInterrupt")
    with Keeper("bot", url, handler=count) as keeper:
        keeper.sweep()
        assert keeper.idle()
        document = keeper.inspect((7, 7))
        assert list(document.seen) == ["1"]
        assert document.record is None or "wrong" not in document.record.to_record().data


# -------------------------------------------------------------------------------------------- a WSGI webhook


class ThreadedServer(ThreadingMixIn, WSGIServer):
    daemon_threads = False
    request_queue_size = 128


class Quiet(WSGIRequestHandler):
    def log_message(self, *_):
        pass


@contextmanager
def served(app):
    server = make_server("127.0.0.1", 0, app, ThreadedServer, Quiet)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_threaded_wsgi_webhook(tmp_path):
    """Every message twice, from thirty clients at once, over real connections: each has its effect once."""
    url = f"sqlite:///{tmp_path / 'bot.db'}"

    def handler(turn):
        turn.update_data(texts=[*turn.data.get("texts", []), turn.event["message"]["text"]])

    with Keeper("bot", url) as keeper:

        def app(environ, respond):
            body = environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"]))
            outcome = keeper.handle(json.loads(body), handler)
            respond("200 OK" if outcome.accepted else "503 Later", [("Content-Type", "text/plain")])
            return [outcome.status.encode()]

        with served(app) as place, ThreadPoolExecutor(30) as clients:

            def send(number):
                body = json.dumps(update(number, f"t{number}", who=1 + number % 6)).encode()
                with urllib.request.urlopen(urllib.request.Request(place, body), timeout=LONG) as answer:
                    return answer.read().decode()

            numbers = [number for number in range(120) for _ in range(2)]
            answers = Counter(clients.map(send, numbers))
        assert keeper.idle()
        assert answers["duplicate"] == 120
        assert answers["committed"] + answers["queued"] == 120
        for who in range(1, 7):
            texts = data_of(keeper, (who, who))["texts"]
            assert sorted(texts) == sorted(f"t{number}" for number in range(120) if 1 + number % 6 == who)


def test_a_store_object_is_not_closed(tmp_path):
    store = MemoryStore()
    with Keeper("bot", store) as keeper:
        keeper.handle(update(1), count)
    with Keeper("bot", store) as keeper:
        assert data_of(keeper) == {"n": 1}
