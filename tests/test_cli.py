"""The command line: what each command prints, its exit codes, and how it refuses."""

from __future__ import annotations

import asyncio
import io
import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time

import pytest

from hitherto.addresses import Address, encode
from hitherto.chatstate import ChatState
from hitherto.cli import main, parser
from hitherto.cli.completion import words_of
from hitherto.cli.output import Progress, safe
from hitherto.document import Event, Terms
from hitherto.overlap import Queue
from hitherto.records import Record
from hitherto.stores.sqlite import SQLiteStore

FLOWS = """
from hitherto import Flow, State

class Signup(Flow):
    name_ = State(name="name", to="mail", initial=True)
    mail = State(to=[])

class Odd(Flow):
    one = State(to=[], initial=True)
    never = State(to=[])
"""


async def filled(store):
    """Three conversations: one signing up with an event waiting, one in no flow, one with a dead letter."""
    await store.set_state("bot", (7, 7), Record("signup", "name", {"name": "Ann", "n": 2**70}))
    await store.set_state("bot", (8, 7), Record(None, None, {"x": 1e16}))
    await store.set_state("bot", ("room", 9), Record("signup", "mail", {}))
    terms = Terms(lease=1e6)
    await store.accept(Address("bot", "", (7, 7)), Event("1", b'{"text":"hi"}'), Queue(), "ann", None, terms)
    await store.accept(
        Address("bot", "", (7, 7)), Event("2", b'{"text":"secret"}'), Queue(), "ann", None, terms
    )
    dying = Address("bot", "", ("room", 9))
    answer = await store.accept(dying, Event("3", b'{"text":"bad"}'), Queue(), "ann", None, terms)
    await store.settle(dying, answer.grant.claim, None, terms, verdict="dead", error="Traceback\nKeyError")
    await ChatState(store, "bot").subscribe("thread-1")


@pytest.fixture
def url(tmp_path):
    async def fill():
        async with SQLiteStore(tmp_path / "bot.db", synchronous="NORMAL") as store:
            await filled(store)

    asyncio.run(fill())
    return f"sqlite:///{tmp_path / 'bot.db'}"


@pytest.fixture
def run(url, capsys):
    def call(*words, store=url, bot="bot"):
        place = ["--store", store, "--bot", bot] if store else []
        command, rest = words[0].split(), list(words[1:])
        code = main([*command, *place, *rest])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return call


@pytest.fixture
def bare(capsys):
    def call(*words):
        try:
            code = main(list(words))
        except SystemExit as left:
            code = left.code
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return call


# ----------------------------------------------------------------------------------------------------- help


def test_help_fits_a_screen_and_names_every_command(bare):
    code, out, _ = bare("--help")
    lines = out.splitlines()
    assert code == 0
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80
    named = out.replace(",", " ").split()
    for command in words_of(parser()):
        assert command in named, command


def test_help_names_no_command_that_is_not_there(bare):
    _, out, _ = bare("--help")
    rows = [line[2:22].split(", ") for line in out.splitlines() if line.startswith("  ")]
    known = words_of(parser())
    assert [row for row in rows if not any(name.strip() in known for name in row)] == []


@pytest.mark.parametrize("command", sorted(words_of(parser())))
def test_every_command_has_help(bare, command):
    code, out, _ = bare(command, "--help")
    assert code == 0
    assert out.startswith(f"usage: hitherto {command}")


def test_the_nearest_command_is_named(bare):
    code, _, err = bare("shwo")
    assert code == 2
    assert "did you mean 'show'?" in err


def test_wrong_options_are_refused_in_one_line(bare):
    code, _, err = bare("ls", "--colour")
    assert code == 2
    assert err.startswith("hitherto")
    assert "--colour" in err


def test_version(bare):
    from hitherto import __version__

    assert bare("--version")[:2] == (0, f"hitherto {__version__}\n")


def test_it_runs_as_a_module():
    done = subprocess.run([sys.executable, "-m", "hitherto", "--version"], capture_output=True, timeout=30)
    assert done.stdout.startswith(b"hitherto ")


def test_without_a_place_it_says_what_to_give(bare, monkeypatch):
    monkeypatch.delenv("HITHERTO_STORE", raising=False)
    monkeypatch.delenv("HITHERTO_BOT", raising=False)
    code, _, err = bare("ls")
    assert (code, err) == (
        1,
        "hitherto ls: which store? give --store URL (sqlite:///bot.db) or set HITHERTO_STORE\n",
    )
    code, _, err = bare("ls", "--store", "memory://")
    assert (code, err) == (1, "hitherto ls: which bot? give --bot NAME or set HITHERTO_BOT\n")


def test_the_place_may_be_in_the_environment(bare, url, monkeypatch):
    monkeypatch.setenv("HITHERTO_STORE", url)
    monkeypatch.setenv("HITHERTO_BOT", "bot")
    assert bare("ls")[0] == 0


# ------------------------------------------------------------------------------------------------- reading


def test_ls(run):
    code, out, _ = run("ls")
    rows = [line.split() for line in out.splitlines()]
    assert code == 0
    assert rows[0] == ["KEY", "FLOW", "STATE", "WAITING", "DEAD", "LEASE", "TOUCHED"]
    assert rows[1][:4] == [".room/9", "signup", "mail", "1"]
    assert rows[2][:5] == ["7/7", "signup", "name", "2", "held"]
    assert rows[3][0] == "8/7"


def test_ls_of_a_flow_a_state_and_the_dead(run):
    assert [one["key"] for one in json.loads(run("ls", "--json", "--flow", "signup")[1])] == [
        ".room/9",
        "7/7",
    ]
    only = run("ls", "--json", "--flow", "signup", "--state", "mail")[1]
    assert [one["key"] for one in json.loads(only)] == [".room/9"]
    assert [one["key"] for one in json.loads(run("ls", "--json", "--flow", "")[1])] == ["8/7"]
    assert [one["key"] for one in json.loads(run("ls", "--json", "--dead")[1])] == [".room/9"]
    assert [one["key"] for one in json.loads(run("ls", "--json", "--dead", "--limit", "1")[1])] == [".room/9"]
    assert json.loads(run("ls", "--json", "--dead", "--flow", "")[1]) == []


def test_ls_goes_on_where_it_stopped(run):
    _, out, _ = run("ls", "--limit", "1")
    *_, more = out.splitlines()
    assert more.startswith("more: --after ")
    _, out, _ = run("ls", "--limit", "1", "--after", more.split()[-1])
    assert out.splitlines()[1].startswith("7/7")


def test_show_hides_what_people_wrote_until_asked(run):
    code, out, _ = run("show", "7/7")
    assert code == 0
    assert "flow: signup" in out
    assert "'name': 'Ann'" in out
    assert "secret" not in out
    assert "secret" in run("show", "7/7", "--events")[1]


def test_show_as_json_is_exact(run):
    _, out, _ = run("show", "7/7", "--json")
    shown = json.loads(out)
    assert shown["data"] == {"name": "Ann", "n": 2**70}
    assert [(entry["id"], entry["is"]) for entry in shown["inbox"]] == [("1", "running"), ("2", "waiting")]
    assert shown["lease"]["alive"] is True


def test_show_names_the_nearest_key(run):
    code, _, err = run("show", "7/8")
    assert code == 3
    assert err == "hitherto: nothing is known of 7/8 (did you mean '7/7'?)\n"


@pytest.mark.parametrize("command", ["show", "clear", "release", "dead retry", "dead drop"])
def test_every_command_names_the_nearest_key(run, url, command):
    async def more():
        async with SQLiteStore(url.removeprefix("sqlite:///"), synchronous="NORMAL") as store:
            await asyncio.gather(*(store.set_data("bot", (n, 0), {}) for n in range(5000, 5600)))

    asyncio.run(more())
    code, out, err = run(command, "5503/1")
    assert (code, out) == (3, "")
    assert err == "hitherto: nothing is known of 5503/1 (did you mean '5503/0'?)\n"


def test_stats(run):
    code, out, _ = run("stats")
    assert code == 0
    assert [line.split() for line in out.splitlines()[1:4]] == [
        ["1"],
        ["signup", "mail", "1"],
        ["signup", "name", "1"],
    ]
    assert "lease: 1, pending: 1, due: 0, dead: 1" in out
    assert json.loads(run("stats", "--json")[1])["dead"] == 1


# the flow that is odd is there to be warned of
odd = pytest.mark.filterwarnings("ignore::hitherto.errors.FlowWarning")


@pytest.fixture
def flows(tmp_path, monkeypatch):
    (tmp_path / "cli_flows.py").write_text(FLOWS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield "cli_flows"
    sys.modules.pop("cli_flows", None)


@odd
def test_graph(flows, capfdbinary):
    assert main(["graph", f"{flows}:Signup"]) == 0
    sys.stdout.flush()
    out = capfdbinary.readouterr().out.decode()
    assert out.startswith("stateDiagram-v2")
    assert "name --> mail" in out


@odd
def test_graph_into_a_file(bare, flows, tmp_path):
    assert bare("graph", f"{flows}:Signup", "-f", "dot", "-o", "flow.dot")[0] == 0
    assert (tmp_path / "flow.dot").read_text().startswith("digraph")


@odd
def test_graph_as_svg_needs_nothing(bare, flows, tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert bare("graph", f"{flows}:Signup", "-f", "svg", "-o", "flow.svg")[0] == 0
    text = (tmp_path / "flow.svg").read_text()
    assert text.startswith("<svg ")
    assert 'data-from="name" data-to="mail"' in text
    assert "<style>" in text


def a_dot(tmp_path, monkeypatch, script):
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "dot").write_text(f"#!/bin/sh\n{script}\n")
    (programs / "dot").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")


@odd
def test_graph_as_png_by_graphviz(bare, flows, tmp_path, monkeypatch):
    a_dot(tmp_path, monkeypatch, 'echo "$1"; cat')
    assert bare("graph", f"{flows}:Signup", "-f", "png", "-o", "flow")[0] == 0
    assert (tmp_path / "flow").read_text().startswith("-Tpng\ndigraph")


@odd
def test_graph_says_what_graphviz_said(bare, flows, tmp_path, monkeypatch):
    a_dot(tmp_path, monkeypatch, "cat > /dev/null; echo no fonts >&2; exit 1")
    assert bare("graph", f"{flows}:Signup", "-f", "png")[::2] == (
        1,
        "hitherto graph: Graphviz could not draw it: no fonts\n",
    )


@odd
def test_graph_without_graphviz_says_what_to_do(bare, flows, monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    code, _, err = bare("graph", f"{flows}:Signup", "-f", "png")
    assert code == 1
    assert "png needs Graphviz's dot: install graphviz, or use --format svg" in err


@odd
def test_check(bare, flows):
    code, out, _ = bare("check", flows)
    assert code == 4
    assert "signup: declared soundly" in out
    assert "warning: " in out
    assert "never" in out
    code, out, _ = bare("check", f"{flows}:Signup", "--json")
    assert json.loads(out)["flows"] == ["signup"]
    code, _, err = bare("check", "no_such_module_at_all")
    assert (code, "cannot be imported" in err) == (1, True)
    code, _, err = bare("check", f"{flows}:Sigup")
    assert (code, "it has Signup, Odd" in err) == (1, True)


# ------------------------------------------------------------------------------------------------- mending


def test_release(run):
    assert run("release", "7/7")[:2] == (0, "released; 2 events wait\n")
    assert run("release", "7/7")[:2] == (3, "nobody holds it\n")


def test_clear(run):
    assert run("clear", "7/7")[:2] == (0, "cleared\n")
    assert run("clear", "7/7")[:2] == (3, "there is no record\n")  # but events wait
    assert run("clear", "8/7")[:2] == (0, "cleared\n")
    assert run("clear", "8/7")[2].startswith("hitherto: nothing is known of 8/7")


def test_forget_lists_first_and_erases_when_told(run):
    code, out, _ = run("forget", "--user", "7")
    assert code == 0
    assert out == "would forget: 7/7\nwould forget: 8/7\nnothing was done; say --yes to do it\n"
    assert run("forget", "--user", "7", "--yes")[1] == "forgotten: 7/7\nforgotten: 8/7\n"
    assert run("forget", "--user", "7")[:2] == (3, "")
    code, _, err = run("forget")
    assert (code, err) == (1, "hitherto forget: forget whom? give --user ID or --key KEY\n")


def test_dead_letters(run):
    code, out, _ = run("dead ls")
    assert code == 0
    assert out.splitlines()[1].split() == [".room/9", "1", "3", "1", "KeyError"]
    assert json.loads(run("dead ls", "--json")[1])[0]["event"] == "3"
    assert run("dead retry", ".room/9", "1")[:2] == (0, "1 put back in line\n")
    assert run("dead drop", ".room/9")[:2] == (3, "0 dropped\n")


def test_dead_letters_are_dropped(run):
    assert run("dead drop", ".room/9")[:2] == (0, "1 dropped\n")
    assert run("dead ls")[1].splitlines() == ["KEY  SEQ  EVENT  ATTEMPTS  ERROR"]


# -------------------------------------------------------------------------------------------------- moving


def lines(path):
    return sorted(path.read_bytes().splitlines()[1:])


def test_an_export_imported_is_the_same_export(run, tmp_path):
    out = tmp_path / "out.jsonl"
    assert run("export", str(out))[0] == 0
    other = f"sqlite:///{tmp_path / 'other.db'}"
    assert run("import", str(out), store=other) == (0, "", "4 conversations\n")
    again = tmp_path / "again.jsonl"
    assert run("import", str(out), store=other)[0] == 0
    run("export", str(again), store=other)
    data = [json.loads(line) for line in lines(out)]
    assert len(data) == 4
    mine = next(line for line in data if line["address"].endswith("7/7"))
    assert mine["data"] == {"name": "Ann", "n": 2**70}
    same = [json.loads(line) for line in lines(again)]
    assert [line["address"] for line in same] == [line["address"] for line in data]
    assert [line.get("data") for line in same] == [line.get("data") for line in data]


def test_an_export_that_was_cut_off_goes_on(run, tmp_path):
    whole, cut = tmp_path / "whole.jsonl", tmp_path / "cut.jsonl"
    run("export", str(whole))
    text = whole.read_bytes()
    for length in range(text.index(b"\n") + 1, len(text), 97):
        cut.write_bytes(text[:length])
        assert run("export", "--resume", str(cut))[0] == 0
        assert lines(cut) == lines(whole)
    cut.write_bytes(b"something else\n")
    code, _, err = run("export", "--resume", str(cut))
    assert (code, "this is no export of 'bot' to go on with" in err) == (1, True)
    assert cut.read_bytes() == b"something else\n"


def killed_again_and_again(command, pauses=(0.25, 0.3, 0.35)):
    """Run a command that is killed a few times on its way, and then to its end."""
    for pause in pauses:
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(pause)
        child.send_signal(signal.SIGKILL)
        child.wait(10)
    return subprocess.run(command, timeout=60, capture_output=True, text=True).returncode


@pytest.fixture
def many(url):
    async def fill():
        async with SQLiteStore(url.removeprefix("sqlite:///"), synchronous="NORMAL") as store:
            await asyncio.gather(*(store.set_data("bot", (n, n), {"n": n}) for n in range(3000)))

    asyncio.run(fill())
    return url


def test_imports_and_restores_that_are_killed_are_repeated_without_loss(run, many, tmp_path):
    out, again = tmp_path / "out.jsonl", tmp_path / "again.jsonl"
    run("snapshot", str(out))
    for command in ("import", "restore"):
        other = f"sqlite:///{tmp_path / command}.db"
        words = [sys.executable, "-m", "hitherto", command, "-s", other, "-b", "bot", str(out)]
        assert killed_again_and_again(words, (0.4,)) == 0
        run("export", str(again), store=other)
        placed = [(line["address"], line.get("data")) for line in map(json.loads, lines(again))]
        assert placed == [(line["address"], line.get("data")) for line in map(json.loads, lines(out))]
        assert len(placed) == 3003


def test_a_snapshot_that_is_killed_is_absent_or_whole(many, tmp_path):
    kept = tmp_path / "kept.snapshot"
    kept.write_text("the one of yesterday")
    words = [sys.executable, "-m", "hitherto", "snapshot", "-s", many, "-b", "bot", str(kept)]
    for pause in (0.2, 0.3, 0.4):
        child = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(pause)
        child.send_signal(signal.SIGKILL)
        child.wait(10)
        assert kept.read_text() == "the one of yesterday" or len(lines(kept)) == 3003
    assert subprocess.run(words, timeout=60, capture_output=True).returncode == 0
    assert len(lines(kept)) == 3003


def test_an_import_into_another_bot(run, tmp_path):
    out = tmp_path / "out.jsonl"
    run("export", str(out))
    assert run("import", str(out), bot="two")[0] == 0
    assert len(json.loads(run("ls", "--json", bot="two")[1])) == 3


def test_an_import_refuses_what_it_cannot_read_and_says_where(run, tmp_path):
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"no": "head"}\n')
    assert run("import", str(bad))[2].endswith(
        "this is no export of hitherto's: its first line should say so\n"
    )
    bad.write_text('{"hitherto":"conversations","format":1,"bot":"bot"}\n{"broken\n')
    assert run("import", str(bad))[2].endswith("line 2 cannot be read: DecodeError\n")


def test_snapshot_and_restore(run, tmp_path, url):
    kept = tmp_path / "kept.snapshot"
    assert run("snapshot", str(kept))[:2] == (0, "4 conversations\n")
    assert not list(tmp_path.glob("*.partial"))
    run("clear", "8/7")

    async def added():
        async with SQLiteStore(url.removeprefix("sqlite:///"), synchronous="NORMAL") as store:
            await store.set_data("bot", ("new",), {})

    asyncio.run(added())
    assert run("restore", str(kept))[:2] == (0, "4 conversations\n")
    found = json.loads(run("ls", "--json")[1])
    assert [one["key"] for one in found if one["recorded"]] == [".room/9", "7/7", "8/7"]


def test_exports_that_are_killed_go_on_without_loss(tmp_path, many):
    """Killed at random moments and gone on with, an export ends whole."""
    out = tmp_path / "out.jsonl"
    command = [sys.executable, "-m", "hitherto", "export", "-s", many, "-b", "bot", "--resume", str(out)]
    assert killed_again_and_again(command) == 0
    keys = [json.loads(line)["address"] for line in lines(out)]
    assert len(keys) == len(set(keys)) == 3003
    assert {encode(Address("bot", "", (n, n))) for n in range(3000)} <= set(keys)


# ------------------------------------------------------------------------------------------------- examining


def test_doctor_of_a_healthy_store(bare, url):
    code, out, _ = bare("doctor", url)
    assert code == 0
    assert "lost in a crash: nothing that was acknowledged, power cuts included" in out
    assert "and came back exactly" in out
    found = json.loads(bare("doctor", url, "--json", "--read-only")[1])
    assert found["healthy"] is True
    assert "trial" not in [finding["what"] for finding in found["findings"]]


def faults(tmp_path):
    newer = sqlite3.connect(tmp_path / "newer.db")
    newer.execute("PRAGMA application_id=1751741544")
    newer.execute("PRAGMA user_version=999")
    newer.close()
    foreign = sqlite3.connect(tmp_path / "foreign.db")
    foreign.execute("CREATE TABLE theirs (a)")
    foreign.close()
    (tmp_path / "text.db").write_text("this is a letter to my mother, and long enough to be one" * 20)
    (tmp_path / "folder.db").mkdir()
    return {
        f"sqlite:///{tmp_path}/newer.db": "the file has schema 999 and this version of hitherto knows",
        f"sqlite:///{tmp_path}/foreign.db": "is an SQLite database of another program",
        f"sqlite:///{tmp_path}/text.db": "not an SQLite",
        f"sqlite:///{tmp_path}/folder.db": "is a directory",
        f"sqlite:///{tmp_path}/nowhere/bot.db": "does not exist; create it first",
        "sqlitee:///bot.db": "no store for 'sqlitee'",
        "sqlite:///bot.db?sync=1": "unknown option sync",
    }


def test_doctor_names_each_fault(bare, tmp_path):
    for place, said in faults(tmp_path).items():
        code, out, _ = bare("doctor", place)
        assert code == 4, place
        assert said in out, out


def test_doctor_names_a_missing_extra(bare, monkeypatch):
    for name in [name for name in sys.modules if name.startswith("hitherto.stores.postgres")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    code, out, _ = bare("doctor", "postgresql://user:hidden@localhost/bot")
    assert (code, 'pip install "hitherto[postgres]"' in out) == (4, True)
    assert "hidden" not in out


def test_doctor_names_an_old_sqlite_and_strict_minds_it(bare, url, monkeypatch):
    from hitherto.stores.sqlite import store

    monkeypatch.setattr(store, "_warned", [])
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 40, 0))
    code, out, _ = bare("doctor", url)
    assert (code, "WAL-reset bug" in out) == (0, True)
    monkeypatch.setattr(store, "_warned", [])
    assert bare("doctor", url, "--strict")[0] == 4


def test_doctor_names_clocks_that_differ(bare, url, monkeypatch):
    async def two_hours_ahead(self):
        return time.time() + 7200

    monkeypatch.setattr(SQLiteStore, "now", two_hours_ahead)
    code, out, _ = bare("doctor", url)
    assert (code, "the store's clock is 7200 s ahead of this machine's" in out) == (0, True)


def test_doctor_does_not_trust_a_store_that_changes_data(bare, url, monkeypatch):
    async def something_else(self, bot, key):
        return {"when": 0}

    monkeypatch.setattr(SQLiteStore, "get_data", something_else)
    code, out, _ = bare("doctor", url)
    assert (code, "do not use this store" in out) == (4, True)


def test_doctor_names_a_full_disk(bare, url, monkeypatch):
    async def full(self, bot, key, data):
        from hitherto.stores.sqlite import failures

        error = sqlite3.OperationalError("database or disk is full")
        error.sqlite_errorcode = sqlite3.SQLITE_FULL
        raise failures.translated(error, self.url)

    monkeypatch.setattr(SQLiteStore, "set_data", full)
    code, out, _ = bare("doctor", url)
    assert (code, "full" in out) == (4, True)


def test_check_store_keeps_the_store_as_it_was(bare, run, url, tmp_path):
    before = tmp_path / "before.jsonl"
    run("export", str(before))
    code, out, _ = bare("check-store", url, "--only", "burst", "--examples", "0")
    assert code == 0
    assert re.fullmatch(r"(\d+) of \1 clauses are kept\n", out)
    after = tmp_path / "after.jsonl"
    run("export", str(after))
    assert lines(after) == lines(before)


def test_check_store_reports_what_is_broken(bare, url, monkeypatch):
    async def forgetful(self, bot, key):
        return None

    monkeypatch.setattr(SQLiteStore, "get_data", forgetful)
    code, out, _ = bare("check-store", url, "--only", "set_data")
    assert code == 4
    assert "BROKEN  test_" in out
    found = json.loads(bare("check-store", url, "--only", "set_data", "--json")[1])
    assert found["broken"] >= 1
    assert [one["sentence"] for one in found["clauses"] if one["error"]]


def test_check_store_runs_the_machines(bare):
    code, out, _ = bare("check-store", "memory://", "--examples", "2", "--json")
    found = json.loads(out)
    names = [one["clause"] for one in found["clauses"]]
    assert (code, found["broken"]) == (0, 0)
    assert names[-2:] == ["turns in lockstep", "records in lockstep"]
    assert len(names) > 150


def test_check_store_with_nothing_to_try(bare):
    code, _, err = bare("check-store", "memory://", "--only", "no such clause")
    assert (code, err) == (4, "hitherto check-store: no clause has 'no such clause' in its name\n")


# ---------------------------------------------------------------------------------------------- completion


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(bare, shell):
    code, out, _ = bare("completion", shell)
    assert code == 0
    for command in words_of(parser()):
        assert command in out
    assert "check-store" in out


def test_completion_works_in_bash(bare):
    script = bare("completion", "bash")[1]
    asked = 'COMP_WORDS=(hitherto sh); COMP_CWORD=1; _hitherto; echo "${COMPREPLY[*]}"\n'
    asked += 'COMP_WORDS=(hitherto ls --fl); COMP_CWORD=2; _hitherto; echo "${COMPREPLY[*]}"\n'
    done = subprocess.run(["bash", "-c", script + asked], capture_output=True, text=True, timeout=10)
    assert done.stdout.splitlines() == ["show", "--flow"], done.stderr


# -------------------------------------------------------------------------------------------------- printing


def test_hostile_text_does_not_reach_the_terminal():
    assert safe("a\x1b[31m\u202e\nb") == "a\\x1b[31m\\x202e\\x0ab"


def test_progress_is_for_terminals(capsys):
    progress = Progress("moved", 3)
    progress.step(3)
    progress.end()
    assert capsys.readouterr().err == ""


def test_progress_on_a_terminal(capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    progress = Progress("moved", 3000)
    progress.step(1500)
    progress.end()
    shown, ended = capsys.readouterr().err.split("\r")[1:]
    assert shown == f"moved: [{'#' * 12}{'.' * 12}]  50% 1,500 of 3,000\x1b[K"
    assert ended == "moved: 1,500 in 0 s\x1b[K\n"


def test_progress_tells_speed_and_what_is_left(capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    clock = iter([0.0, 10.0, 20.0, 20.0])
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    progress = Progress("read", share=lambda: 0.25)
    progress.step(5000)
    assert "]  25% 5,000, 500/s, 30 s left" in capsys.readouterr().err
    progress = Progress("read")
    progress.step(5)
    assert capsys.readouterr().err.endswith("read: 5\x1b[K")


class Screen(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("screen", "no_color", "bold"), [(True, "", True), (True, "1", False), (False, "", False)]
)
def test_colours_are_for_terminals(run, monkeypatch, screen, no_color, bold):
    out = Screen() if screen else io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setenv("NO_COLOR", no_color)
    run("ls")
    assert ("\x1b[" in out.getvalue()) is bold
    assert "KEY" in out.getvalue()
