"""The verdict of a run: what was done, what was found, and the figures."""

from __future__ import annotations

from typing import Any

import msgspec

from hitherto.document import Document


class Report(msgspec.Struct):
    """One run; ``violations`` is empty when the promise was kept."""

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
    slowest_recovery: float = 0.0
    statuses: dict[str, int] = {}
    violations: list[str] = []

    def __str__(self) -> str:
        return (
            f"seed {self.seed}: {self.events} events in {self.deliveries} deliveries "
            f"({self.duplicates} duplicates, {self.reordered} reordered), {self.kills} kills, "
            f"{self.pauses} pauses, {self.recovered} recovered, {self.fenced} fenced, {self.faults} faults, "
            f"drained {self.slowest_recovery:.2f} s after the last, {self.seconds:.1f} s: "
            f"{len(self.violations)} violations"
        )


def judge(document: Document, data: dict[str, Any] | None, key: int, sent: list[str]) -> list[str]:
    """What is wrong with one conversation in the end, given the ids in the order they were accepted."""
    log = [] if data is None else data.get("log", [])
    found = []
    if document.inbox:
        found.append(f"key {key}: {len(document.inbox)} events are still pending")
    if document.dead:
        found.append(f"key {key}: {len(document.dead)} dead letters")
    if len(set(log)) != len(log):
        twice = sorted({event for event in log if log.count(event) > 1})
        found.append(f"key {key}: handled twice in effect: {twice[:5]}")
    if missing := [event for event in sent if event not in set(log)]:
        found.append(f"key {key}: accepted and lost: {missing[:5]}")
    if invented := [event for event in log if event not in set(sent)]:
        found.append(f"key {key}: never sent: {invented[:5]}")
    if not found and log != sent:
        where = next(i for i, pair in enumerate(zip(log, sent, strict=True)) if pair[0] != pair[1])
        found.append(f"key {key}: out of order from event {where} on: {log[where : where + 3]}")
    if data is not None and (data.get("needle") != [key] or data.get("turns") != len(log)):
        found.append(f"key {key}: needle {data.get('needle')}, {data.get('turns')} turns, {len(log)} events")
    return found
