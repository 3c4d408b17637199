"""What a run of chaos leaves: its verdict on good and bad conversations, the page, and the command."""

from __future__ import annotations

import json
import re

import msgspec
import pytest

from hitherto.cli import main
from hitherto.cli.harming import told
from hitherto.document import Dead, Document, Entry
from hitherto.testing.chaos.campaign import Wish, passable, plan_of
from hitherto.testing.chaos.page import page
from hitherto.testing.chaos.plan import Fault, named
from hitherto.testing.chaos.report import Report, Span, judge
from hitherto.testing.chaos.run import Plan, Run
from hitherto.testing.chaos.watch import Watch
from hitherto.testing.chaos.worker import Settings

# --- the verdict ------------------------------------------------------------------------------------------

SENT = ["3-0", "3-1", "3-2"]


def data(*log, **other):
    marks = [[number, 77] for number, _ in enumerate(log)]
    return {"log": list(log), "needle": [3], "turns": len(log), "marks": marks} | other


def test_a_conversation_that_is_well():
    assert judge(Document(), data(*SENT), 3, SENT) == []
    assert judge(Document(), None, 3, []) == []


@pytest.mark.parametrize(
    ("found", "says"),
    [
        (data("3-0", "3-1"), "accepted and lost: ['3-2']"),
        (None, "accepted and lost"),
        (data("3-0", "3-2", "3-1"), "out of order from event 1"),
        (data("3-0", "3-1", "3-1", "3-2"), "handled twice in effect: ['3-1']"),
        (data(*SENT, "4-0"), "never sent: ['4-0']"),
        (data(*SENT, needle=[4]), "needle [4]"),
        (data(*SENT, turns=2), "2 turns, 3 events"),
        (data(*SENT, marks=[[1, 7], [3, 8], [2, 7]]), "a commit of epoch 2 after one of epoch 3"),
        (data(*SENT, marks=[[1, 7], [2, 7], [2, 8]]), "two workers committed under epoch 2"),
    ],
)
def test_a_conversation_that_is_not(found, says):
    (violation,) = judge(Document(), found, 3, SENT)
    assert violation.startswith("key 3: ")
    assert says in violation


def test_what_is_left_over_is_found():
    entry, letter = Entry(4, "3-3", b"", 0.0), Dead(5, "3-4", b"", 0.0, 1, "", 0.0)
    found = judge(Document(inbox=(entry,), dead=(letter,)), data(*SENT), 3, SENT)
    assert found == ["key 3: 1 events are still pending", "key 3: 1 dead letters"]


def test_a_store_that_may_lose_must_not_double():
    assert judge(Document(), data("3-0", "3-2", "3-1"), 3, [*SENT, "3-3"], lossy=True) == []
    assert judge(Document(), data("3-0", "3-0"), 3, SENT, lossy=True)


# --- what is seen on the way ------------------------------------------------------------------------------


@pytest.fixture
def watch():
    return Watch(Report(1, "x://"), bound=5.0, queue=10, lossy=False)


def step(kind, event="3-0"):
    return {"step": kind, "key": 3, "id": event, "epoch": 1}


def test_a_recovery_is_measured_from_the_kill(watch):
    running = {}
    watch.step(running, step("started"))
    watch.killed(running, watch.began - 2)
    watch.step({}, step("committed"))
    watch.step({}, step("committed", "3-1"))
    ((_, took),) = watch.report.recoveries
    assert took >= 2
    assert watch.report.slowest_recovery >= 2
    assert watch.report.violations == []


def test_a_late_recovery_is_a_violation_unless_a_fault_fell_into_it(watch):
    watch.killed({3: None, 4: None}, watch.began - 9)
    watch.step({}, step("committed"))
    assert "key 3: recovered" in watch.report.violations[0]
    watch.fault_ends("cut", watch.fault_begins(), grace=2.0)
    watch.step({}, step("committed", "4-0") | {"key": 4})
    watch.killed({5: None}, watch.began - 9)
    watch.step({}, step("committed", "5-0") | {"key": 5})
    assert len(watch.report.recoveries) == 1
    assert len(watch.report.violations) == 1


def test_whoever_took_over_and_is_stopped_too_starts_the_clock_again(watch):
    watch.killed({3: None}, watch.began - 9)
    watch.paused({3: None})
    watch.step({}, step("committed"))
    assert watch.report.violations == []


def test_an_event_committed_twice_is_a_violation(watch):
    for _ in range(2):
        watch.step({}, step("committed"))
    assert watch.report.violations == ["key 3: event 3-0 was committed twice"]


def test_a_conversation_that_goes_back_or_grows_is_a_violation(watch):
    watch.looked(3, Document(version=5, epoch=2), ["a", "b"])
    watch.looked(3, Document(version=6, epoch=2), ["a", "b", "c"])
    assert watch.report.violations == []
    watch.looked(3, Document(version=5, epoch=2), ["a", "c"])
    assert "version 5 epoch 2 after 6, 2" in watch.report.violations[0]
    assert "no prefix" in watch.report.violations[1]
    entries = tuple([Entry(number, None, b"", 0.0) for number in range(30)])
    watch.looked(4, Document(version=1, inbox=entries), [])
    assert watch.report.violations[2] == "key 4: 30 inbox, over the cap of 21"


# --- the schedule ------------------------------------------------------------------------------------------


async def deeds(seed):
    """What a run would do, without workers."""
    done = []
    run = Run(Settings("memory://"), Plan(kills=5, pauses=3, between=0), seed, [named(lambda: None)])

    async def deed(what):
        done.append(what.name if isinstance(what, Fault) else what)

    run._deed = deed
    await run._harm(run.watch.began)
    return done


async def test_a_seed_gives_the_same_deeds_again():
    first = await deeds(7)
    assert first == await deeds(7) != await deeds(8)
    assert (first.count("kill"), first.count("pause"), len(first)) == (5, 3, 9)


def test_a_proxy_stands_before_plain_servers_only():
    assert passable("redis://localhost/1") == "redis://localhost:6379/1"
    assert passable("postgresql://u:p@db:6000/x?timeout=1") == "postgresql://u:p@db:6000/x?timeout=1"
    for url in (
        "sqlite:///x.db", "rediss://h", "redis://h?ssl=yes", "redis+cluster://a:1,b:2", "redis+unix:///x",
        "postgresql://a,b/x", "postgresql:///x?host=/run", "postgresql://h/x?sslmode=require",
    ):  # fmt: skip
        assert passable(url) is None, url


def test_a_plan_follows_the_lease():
    plan = plan_of(Wish("x://", minutes=2, lease=4, workers=3))
    assert (plan.duration, plan.workers, plan.pause) == (120, 3, 6)


# --- the page ----------------------------------------------------------------------------------------------

GOOD = Report(
    7, "redis://h/<b>", seconds=4.0, kills=2, commits=9, recoveries=[(1.0, 0.5), (3.5, 0.7)],
    spans=[Span("black hole", 1.0, 2.0)], named_faults={"black hole": 1}, throughput=[3, 0, 5, 1],
)  # fmt: skip


def test_the_page_needs_nothing_else():
    text = page(GOOD)
    assert not re.search(r"(src|href)=|url\(|@import", text)
    assert text.count("<svg") == text.count("</svg>") == 2
    assert text.count("<circle") == 2
    assert re.search(r'<polyline points="[\d., ]+"', text)
    assert "<title>black hole at 1.0 s</title>" in text
    assert "kept: 0 violations" in text
    assert "redis://h/&lt;b&gt;" in text


def test_the_page_of_a_broken_promise():
    text = page(msgspec.structs.replace(GOOD, violations=["key 3: <lost>"]))
    assert "broken: 1 violations" in text
    assert "<li>key 3: &lt;lost&gt;</li>" in text


def test_a_violation_is_printed_and_is_exit_code_four(capsys):
    assert told(GOOD) == 0
    assert told(msgspec.structs.replace(GOOD, violations=["key 3: lost"])) == 4
    assert capsys.readouterr().out.endswith(": 1 violations\nVIOLATION  key 3: lost\n")


# --- the command -----------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::hitherto.errors.StoreWarning")
def test_the_command_leaves_a_report_and_an_empty_store(tmp_path, capsys):
    url, report, html = f"sqlite:///{tmp_path}/c.db", tmp_path / "r.json", tmp_path / "r.html"
    words = ["--minutes", "0.02", "--seed", "7", "--workers", "2", "--lease", "0.4", "--slack", "30"]
    code = main(["chaos", url, *words, "--json", str(report), "--html", str(html)])
    out = capsys.readouterr().out
    assert code == 0, out
    assert out.startswith("seed 7 (--seed 7 repeats the schedule)\nseed 7: ")
    found = json.loads(report.read_bytes())
    assert found["violations"] == []
    assert found["kills"] > 0
    assert found["named_faults"].keys() == {"full disk", "host's clock set"}
    assert sum(found["throughput"]) == found["commits"]
    assert "<svg" in html.read_text()
    assert main(["ls", "--store", url, "--bot", "chaos"]) == 0
    assert "c.db" in {path.name for path in tmp_path.iterdir()}


def test_the_command_refuses(capsys, tmp_path):
    assert main(["chaos", "memory://"]) == 1
    assert "several share" in capsys.readouterr().err
    assert main(["chaos", f"sqlite:///{tmp_path}/no/such/place.db"]) == 1
    with pytest.raises(SystemExit, match="2"):
        main(["chaos", "memory://", "--minutes", "0"])
