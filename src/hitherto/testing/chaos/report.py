"""The verdict of a run: what was done, what was found, and the figures."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import msgspec

from hitherto.document import Document

SHOWN = 10


class Span(msgspec.Struct, frozen=True, array_like=True):
    """A fault on the time axis, in seconds since the run began."""

    name: str
    begin: float
    end: float


class Report(msgspec.Struct):
    """One run; ``violations`` is empty when the promise was kept.

    ``recoveries``: when, and how long after the SIGKILL of its owner a conversation committed again.
    ``throughput``: commits in each second. ``lost``: accepted events that are gone, where the store may lose
    some in a failover; everywhere else they are violations.
    """

    seed: int
    url: str
    seconds: float = 0.0
    events: int = 0
    deliveries: int = 0
    duplicates: int = 0
    reordered: int = 0
    kills: int = 0
    pauses: int = 0
    fenced: int = 0
    recovered: int = 0
    commits: int = 0
    faults: int = 0
    lost: int = 0
    looks: int = 0
    drained: float = 0.0
    slowest_recovery: float = 0.0
    statuses: dict[str, int] = {}
    steps: dict[str, int] = {}
    named_faults: dict[str, int] = {}
    recoveries: list[tuple[float, float]] = []
    spans: list[Span] = []
    throughput: list[int] = []
    violations: list[str] = []

    def __str__(self) -> str:
        named = ", ".join(f"{number} {name}" for name, number in sorted(self.named_faults.items()))
        lost = f", {self.lost} lost in failovers" if self.lost else ""
        return (
            f"seed {self.seed}: {self.events} events in {self.deliveries} deliveries "
            f"({self.duplicates} duplicates, {self.reordered} reordered), {self.commits} commits seen, "
            f"{self.kills} kills, {self.pauses} pauses, {self.recovered} recovered, {self.fenced} fenced, "
            f"{self.faults} faults{f' ({named})' if named else ''}, slowest of {len(self.recoveries)} "
            f"recoveries {self.slowest_recovery:.2f} s, drained {self.drained:.2f} s after the last{lost}, "
            f"{self.seconds:.1f} s: {len(self.violations)} violations"
        )


def judge(
    document: Document, data: dict[str, Any] | None, key: int, sent: list[str], lossy: bool = False
) -> list[str]:
    """What is wrong with one conversation in the end, given the ids in the order they were accepted.

    *lossy*: the store may have lost the newest commits, so that what is missing or came again later than it
    was first sent is no violation; all the rest is.
    """
    log = [] if data is None else data.get("log", [])
    found = []
    if document.inbox:
        found.append(f"key {key}: {len(document.inbox)} events are still pending")
    if document.dead:
        found.append(f"key {key}: {len(document.dead)} dead letters")
    there = set(log)
    if len(there) != len(log):
        twice = sorted({event for event in log if log.count(event) > 1})
        found.append(f"key {key}: handled twice in effect: {twice[:5]}")
    if not lossy and (missing := [event for event in sent if event not in there]):
        found.append(f"key {key}: accepted and lost: {missing[:5]}")
    if invented := sorted(there.difference(sent)):
        found.append(f"key {key}: never sent: {invented[:5]}")
    if not found and not lossy and log != sent:
        where = next(i for i, pair in enumerate(zip(log, sent, strict=True)) if pair[0] != pair[1])
        found.append(f"key {key}: out of order from event {where} on: {log[where : where + 3]}")
    if data is not None:
        found += _wrong_data(data, key, len(log), lossy)
    return found


def _wrong_data(data: dict[str, Any], key: int, events: int, lossy: bool) -> list[str]:
    found = []
    if data.get("needle") != [key] or data.get("turns") != events:
        found.append(f"key {key}: needle {data.get('needle')}, {data.get('turns')} turns, {events} events")
    marks = data.get("marks", [])
    for (epoch, worker), (later, another) in pairwise(marks):
        if later < epoch:
            found.append(f"key {key}: a commit of epoch {later} after one of epoch {epoch}")
        elif later == epoch and worker != another and not lossy:
            found.append(f"key {key}: two workers committed under epoch {epoch}")
    return found[:3]
